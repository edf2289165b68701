/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Many agents in one process, sessions on demand: they join, each calls its neighbour and one far away, and they leave.
 * usage: many_agents N; prints the seconds and the resident memory of it.
 *
 * Main thread of each process; threads that it starts.
 */
#include "api_spawn.h"

#include <pthread.h>
#include <sys/resource.h>
#include <time.h>

enum { AGENTS_MAX = 1024, STACK_BYTES = 256 << 10 };

static struct far_agent *agents[AGENTS_MAX];
static pthread_t threads[AGENTS_MAX];
static int n;
static char url[64];

static double now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static double resident_mib(void)
{
	unsigned long total, resident;
	FILE *f = fopen("/proc/self/statm", "r");
	CHECK(f && fscanf(f, "%lu %lu", &total, &resident) == 2);
	fclose(f);
	return (double)resident * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

static void *join_main(void *arg)
{
	int rank = (int)(intptr_t)arg;
	struct far_opts opts = {.init_method = url, .connect = FAR_CONNECT_LAZY, .init_timeout_ns = 50 * FAR_SEC};
	struct far_err err;
	char name[32];
	snprintf(name, sizeof name, "worker%d", rank);
	CHECK_STATUS(far_init_rpc(name, rank, n, &opts, &agents[rank], &err), FAR_OK, &err);
	return NULL;
}

static void *leave_main(void *arg)
{
	struct far_err err;
	CHECK_STATUS(far_shutdown(agents[(intptr_t)arg], FAR_FOREVER, &err), FAR_OK, &err);
	return NULL;
}

static void in_all(void *(*body)(void *))
{
	pthread_attr_t attr;
	CHECK(pthread_attr_init(&attr) == 0 && pthread_attr_setstacksize(&attr, STACK_BYTES) == 0);
	for (int i = 0; i < n; i++)
		CHECK(pthread_create(&threads[i], &attr, body, (void *)(intptr_t)i) == 0);
	for (int i = 0; i < n; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	pthread_attr_destroy(&attr);
}

static void call(int from, int to)
{
	struct far_err err;
	struct far_val out;
	CHECK_STATUS(far_rpc_sync_to(agents[from], (struct far_to){to, -1}, "far::add", FAR_ARGS(from, to), NULL, &out,
				     &err),
		     FAR_OK, &err);
	CHECK(out.u.i == from + to);
}

int main(int argc, char **argv)
{
	struct far_worker_info info;
	struct far_err err;
	char text[16];
	n = argc > 1 ? atoi(argv[1]) : 0;
	CHECK(n >= 2 && n <= AGENTS_MAX);
	alarm(HANG_GUARD_S);
	struct rlimit files;
	CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	int port, listener = spawn_listen(&port);
	snprintf(url, sizeof url, "tcp://127.0.0.1:%d", port);
	snprintf(text, sizeof text, "%d", listener);
	setenv("FAR_STORE_FD", text, 1);

	double start = now(), memory = resident_mib();
	in_all(join_main);
	printf("%d agents: joined after %.2f s, %.1f MiB resident", n, now() - start, resident_mib() - memory);
	start = now();
	for (int i = 0; i < n; i++) {
		call(i, (i + 1) % n);
		call(i, (i + n / 2) % n);
		CHECK_STATUS(far_worker_by_rank(agents[i], n - 1, &info, &err), FAR_OK, &err);
		CHECK(info.alive && strcmp(info.nic, check_nic()) == 0 && info.incarnation);
	}
	printf("; %d first calls in %.2f s, %.1f MiB", 2 * n, now() - start, resident_mib() - memory);
	start = now();
	in_all(leave_main);
	printf("; left after %.2f s\n", now() - start);
	return 0;
}
