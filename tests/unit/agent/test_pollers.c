/* SPDX-License-Identifier: BSD-3-Clause */
/** The threads of an agent: their names, CPUs and signals, and their end. The test's thread. */
#include "handlers.h"
#include "own_agent.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

TestSuite(pollers, .init = own_dir_make, .fini = own_dir_remove);

static unsigned threads(void)
{
	unsigned n = 0;
	DIR *d = opendir("/proc/self/task");
	for (const struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

/* A thread that was joined is listed until its exit is complete. */
static void expect_threads(unsigned n)
{
	for (unsigned tries = 0; tries < 20000 && threads() != n; tries++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	cr_assert_eq(threads(), n);
}

/* Expect one for each shard, none with a loop, and none left at the end. */
Test(pollers, one_for_each_shard)
{
	char name[16];
	unsigned before = threads();
	struct far_agent *a = own_begin(&(struct far_opts){.shards = 3});
	cr_assert_eq(a->pollers_n, 3u);
	for (unsigned i = 0; i < 3; i++) {
		cr_assert_eq(pthread_getname_np(a->pollers[i], name, sizeof name), 0);
		cr_assert(strncmp(name, "far-shard", 9) == 0 && name[9] == '0' + (char)i && !name[10], "%s", name);
	}
	own_end(a);
	expect_threads(before);
	a = own_begin(&(struct far_opts){.progress = FAR_PROGRESS_CALLER});
	cr_assert_eq(a->pollers_n, 0u);
	own_end(a);
	expect_threads(before);
}

Test(pollers, pinned)
{
	cpu_set_t set;
	int cpu = 0;
	cr_assert_eq(sched_getaffinity(0, sizeof set, &set), 0);
	while (!CPU_ISSET((size_t)cpu, &set))
		cpu++;
	const int cpus[] = {cpu, -1};
	struct far_agent *a = own_begin(&(struct far_opts){.shards = 2, .pin_cpus = cpus, .pin_cpus_n = 2});
	cpu_set_t of[2];
	for (unsigned i = 0; i < 2; i++)
		cr_assert_eq(pthread_getaffinity_np(a->pollers[i], sizeof of[i], &of[i]), 0);
	cr_assert(CPU_COUNT(&of[0]) == 1 && CPU_ISSET((size_t)cpu, &of[0]));
	cr_assert(CPU_EQUAL(&of[1], &set), "the other one runs where the process may");
	own_end(a);
}

/* The signals that a thread of this name blocks. */
static unsigned long long blocked_by(const char *thread)
{
	char line[256], name[64], path[64];
	unsigned long long blocked = 0;
	snprintf(name, sizeof name, "Name:\t%s\n", thread);
	DIR *d = opendir("/proc/self/task");
	for (const struct dirent *e; (e = readdir(d));) {
		bool is = false;
		snprintf(path, sizeof path, "/proc/self/task/%.20s/status", e->d_name);
		FILE *f = fopen(path, "r");
		while (f && fgets(line, sizeof line, f)) {
			is |= strcmp(line, name) == 0;
			if (is && strncmp(line, "SigBlk:", 7) == 0)
				blocked = strtoull(line + 7, NULL, 16);
		}
		if (f)
			fclose(f);
	}
	closedir(d);
	return blocked;
}

/* Signals of the process go to the application's threads; those of a fault are not held back, once it has begun. */
Test(pollers, signals)
{
	const unsigned long long fault = 1ull << (SIGSEGV - 1);
	unsigned long long blocked = fault;
	struct far_agent *a = own_begin(NULL);
	for (unsigned tries = 0; tries < 100000 && blocked & fault; tries++)
		blocked = blocked_by("far-shard0");
	cr_assert_not(blocked & fault, "%llx", blocked);
	cr_assert(blocked & 1ull << (SIGTERM - 1), "%llx", blocked);
	cr_assert(blocked & 1ull << (SIGUSR1 - 1), "%llx", blocked);
	own_end(a);
}

static _Atomic bool begun;

static enum far_status waits(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	atomic_store(&begun, true);
	return handler_never(req, args, n, user);
}

/* A call is pending, its handler waits on a fiber. Expect both ended, and the end not held up. */
Test(pollers, what_is_pending_ends)
{
	static const struct far_function f = {"t::waits() -> none", FAR_KIND_FIBER, waits, NULL};
	struct far_future *pending;
	struct far_agent *a = own_begin(&(struct far_opts){.functions = &f, .functions_n = 1});
	const struct far_call_opts opts = {.timeout_ns = FAR_FOREVER};
	cr_assert_eq(far_rpc_async(a, "w0", "t::waits", NULL, 0, &opts, &pending, &err), FAR_OK, "%s", err.text);
	while (!atomic_load(&begun))
		sched_yield();
	own_end(a);
	cr_assert(far_future_done(pending));
	cr_assert_eq(far_future_value(pending, NULL, &err), FAR_SHUTDOWN, "%s", err.text);
	far_future_free(pending);
}

/* Expect the join given up at its limit, with the missing worker named, and no thread left. On a slow disk the store
 * itself may take longer than the limit: then another join has twice as long. */
Test(pollers, a_join_without_the_others)
{
	struct far_opts opts = {.init_timeout_ns = 50 * FAR_MS};
	unsigned before = threads();
	struct far_agent *a;
	bool named = false;
	for (; !named && opts.init_timeout_ns < 20 * FAR_SEC; opts.init_timeout_ns *= 2) {
		cr_assert_eq(own_join("w0", 0, 2, &opts, &a), FAR_TIMEOUT, "%s", err.text);
		named = strstr(err.text, "1 of 2 members") && strstr(err.text, "missing rank 1");
		expect_threads(before);
	}
	cr_assert(named, "%s", err.text);
}
