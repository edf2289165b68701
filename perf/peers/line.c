/* SPDX-License-Identifier: BSD-3-Clause */
/** The round trip of a cache line between two CPUs: two lines, one written by each process.
 * Main thread of each process. */
#include "bench.h"
#include "clock.h"
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS     1000 /* the figure is their median: a process that was not running spoils one of them */
#define ROUNDS_MIN 20   /* on a busy machine, after LONG_NS */
#define LONG_NS    3e8
#define TRIPS      200
#define SPINS      20000
#define GUARD_S    40

struct lines {
	_Alignas(128) _Atomic uint64_t ping;
	_Alignas(128) _Atomic uint64_t pong;
};

static void pin(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof set, &set);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Gives the core up at times: on a busy machine the other process waits for one meanwhile. */
static void wait_for(_Atomic uint64_t *line, uint64_t n)
{
	for (unsigned spins = 1; atomic_load_explicit(line, memory_order_acquire) != n; spins++)
		if (spins % SPINS == 0)
			sched_yield();
}

static void answer(struct lines *l)
{
	for (uint64_t n = 1;; n++) {
		wait_for(&l->ping, n);
		atomic_store_explicit(&l->pong, n, memory_order_release);
	}
}

int main(int argc, char **argv)
{
	static double ns[ROUNDS];
	uint64_t n = 0;
	int rounds = 0;
	if (argc != 3) {
		fprintf(stderr, "usage: %s CPU CPU\nPrints the round trip of a cache line between two CPUs, in ns.\n",
			argv[0]);
		return 2;
	}
	struct lines *l = mmap(NULL, sizeof *l, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (l == MAP_FAILED) {
		perror("line: mmap");
		return 1;
	}
	pid_t parent = getpid(), child = fork();
	if (child < 0) {
		perror("line: fork");
		return 1;
	}
	alarm(GUARD_S);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		pin(atoi(argv[2]));
		answer(l);
	}
	pin(atoi(argv[1]));
	clock_start();
	uint64_t first = clock_ticks();
	while (rounds < ROUNDS &&
	       (rounds < ROUNDS_MIN || (double)(clock_ticks() - first) * clock_ns_per_tick < LONG_NS)) {
		uint64_t before = clock_ticks();
		for (int k = 0; k < TRIPS; k++) {
			atomic_store_explicit(&l->ping, ++n, memory_order_release);
			wait_for(&l->pong, n);
		}
		ns[rounds++] = (double)(clock_ticks() - before) * clock_ns_per_tick / TRIPS;
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	qsort(ns, (size_t)rounds, sizeof *ns, compare);
	printf("{\"line_ns\": %.1f, \"clock\": \"%s\"}\n", ns[rounds / 2], clock_tsc ? "tsc" : "CLOCK_MONOTONIC");
	return 0;
}
