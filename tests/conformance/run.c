/* SPDX-License-Identifier: BSD-3-Clause */
/** The test's side: starts four workers, waits for them with a deadline, and reports what became of each.
 * Main thread of each process. */
#include "run.h"
#include "divided.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { REPORT_BYTES = 24 << 10, SAID_BYTES = 4 << 10, GRACE_MS = 1500 };

struct group {
	struct conform_shared *shared;
	pid_t pids[WORLD];
	int said[WORLD]; /* what each wrote */
	int status[WORLD];
	bool ended[WORLD], stopped[WORLD];
	const char *place[WORLD]; /* of those that were stopped */
};

static uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int listen_somewhere(int *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(divided_host())};
	socklen_t len = sizeof at;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 && listen(fd, 64) == 0 &&
			  getsockname(fd, (struct sockaddr *)&at, &len) == 0,
		  "no socket for the store: %s", strerror(errno));
	*port = ntohs(at.sin_port);
	return fd;
}

/* The store's port, when it is another machine that has it. */
static int port_elsewhere(void)
{
	uint64_t deadline = now_ms() + CONFORM_DEADLINE_S * 1000;
	int port;
	while ((port = (int)divided_read("store", 0)) == 0 && now_ms() < deadline)
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	cr_assert(port > 0, "the machine of rank 0 has not begun this test within %d s", CONFORM_DEADLINE_S);
	return port;
}

/* The test's store, whose listener is here with rank 0, else -1. */
static int store(int *port)
{
	if (!divided_has(0)) {
		*port = port_elsewhere();
		return -1;
	}
	int listener = listen_somewhere(port);
	cr_assert(!divided() || divided_write("store", 0, *port), "cannot publish the store to other machines: %s",
		  strerror(errno));
	return listener;
}

static void start(struct group *g, conform_body *body, int how)
{
	int port, listener = store(&port);
	pid_t parent = getpid();
	g->shared = mmap(NULL, sizeof *g->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert(g->shared != MAP_FAILED);
	fflush(NULL);
	for (int r = 0; r < WORLD; r++) {
		g->ended[r] = !divided_has(r); /* well: it is judged where it is */
		if (g->ended[r]) {
			g->said[r] = -1;
			continue;
		}
		g->said[r] = memfd_create("said", MFD_CLOEXEC);
		cr_assert(g->said[r] >= 0);
		g->pids[r] = fork();
		cr_assert(g->pids[r] >= 0);
		if (g->pids[r] > 0)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		dup2(g->said[r], STDOUT_FILENO);
		dup2(g->said[r], STDERR_FILENO);
		conform_worker(g->shared, r, port, listener, body, how);
	}
	if (listener >= 0)
		close(listener);
}

static bool went_well(const struct group *g, int r)
{
	if (g->stopped[r])
		return false;
	if (atomic_load(&g->shared->worker[r].may_die))
		return true;
	return WIFEXITED(g->status[r]) && WEXITSTATUS(g->status[r]) == 0;
}

/* Stops the workers that still run. */
static void stop(struct group *g)
{
	for (int r = 0; r < WORLD; r++) {
		if (g->ended[r])
			continue;
		g->place[r] = atomic_load(&g->shared->worker[r].place);
		g->stopped[r] = true;
		kill(g->pids[r], SIGKILL);
		waitpid(g->pids[r], &g->status[r], 0);
		g->ended[r] = true;
	}
}

/* Until all have ended; after the first that failed, the others get a moment to say what they see. */
static bool reap(struct group *g)
{
	uint64_t deadline = now_ms() + CONFORM_DEADLINE_S * 1000;
	int left = 0;
	bool bad = false;
	for (int r = 0; r < WORLD; r++)
		left += !g->ended[r];
	while (left > 0 && now_ms() < deadline) {
		struct timespec nap = {0, 500000};
		for (int r = 0; r < WORLD; r++) {
			if (g->ended[r] || waitpid(g->pids[r], &g->status[r], WNOHANG) != g->pids[r])
				continue;
			g->ended[r] = true;
			left--;
			if (!went_well(g, r) && !bad) {
				bad = true;
				uint64_t soon = now_ms() + GRACE_MS;
				deadline = soon < deadline ? soon : deadline;
			}
		}
		nanosleep(&nap, NULL);
	}
	stop(g);
	return bad || left > 0;
}

static size_t describe(const struct group *g, int r, char *out, size_t cap, bool failed_before)
{
	char said[SAID_BYTES];
	int n;
	ssize_t len = pread(g->said[r], said, sizeof said - 1, 0);
	said[len > 0 ? len : 0] = 0;
	if (g->stopped[r])
		n = snprintf(out, cap, "worker%d %s at %s\n%s", r, failed_before ? "was still" : "hangs",
			     g->place[r] ? g->place[r] : "its start", said);
	else if (WIFSIGNALED(g->status[r]))
		n = snprintf(out, cap, "worker%d ended by signal %d (%s)\n%s", r, WTERMSIG(g->status[r]),
			     strsignal(WTERMSIG(g->status[r])), said);
	else
		n = snprintf(out, cap, "worker%d ended with exit status %d\n%s", r, WEXITSTATUS(g->status[r]), said);
	return n < 0 ? 0 : (size_t)n < cap ? (size_t)n : cap - 1;
}

/* One file for each test, read by table.py. */
static void write_result(const char *group, const char *name, const char *result)
{
	const char *dir = getenv("FAR_CONFORM_RESULTS");
	char path[4096];
	if (!dir || !*dir)
		return;
	snprintf(path, sizeof path, "%s/%s", dir, conform_mode());
	mkdir(dir, 0777);
	mkdir(path, 0777);
	snprintf(path, sizeof path, "%s/%s/%s.%s", dir, conform_mode(), group, name);
	FILE *f = fopen(path, "w");
	cr_assert(f && fprintf(f, "%s\n", result) > 0 && fclose(f) == 0, "cannot write %s: %s", path, strerror(errno));
}

void conform_run(const char *group, const char *name, conform_body *body, int how)
{
	static char report[REPORT_BYTES];
	struct group g = {0};
	size_t len = 0;
	write_result(group, name, "failed");
	divided_test(group, name);
	start(&g, body, how);
	bool bad = reap(&g), failed_before = false;
	for (int r = 0; r < WORLD; r++)
		failed_before |= !g.stopped[r] && !went_well(&g, r);
	for (int r = 0; r < WORLD && bad; r++)
		if (divided_has(r))
			len += describe(&g, r, report + len, sizeof report - len, failed_before);
	for (int r = 0; r < WORLD; r++)
		if (divided_has(r))
			close(g.said[r]);
	munmap(g.shared, sizeof *g.shared);
	if (bad)
		fprintf(stderr, "%s.%s over %s:\n%s", group, name, conform_mode(), report);
	cr_assert(!bad, "over %s:\n%s", conform_mode(), report);
	write_result(group, name, "passed");
}
