/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Fan-outs of two agents in one process by several threads, with every way of driving the shard: completed, cancelled
 * by other threads, given up while answers come, and hedged. Each thread's slices are its own and are read, overwritten
 * and freed as soon as it may. For a build with ThreadSanitizer.
 */
#include "../e2e/check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

enum { CALLERS = 3, FANOUTS = 120, TARGETS = 24, LATER_MAX = 4096 };

static const char *const names[] = {"left", "right"};
static struct far_agent *agents[2];
static char url[64];
static struct far_opts opts;
static _Atomic bool stop;

/* ---- some answers come later, from another thread ---- */

static pthread_mutex_t later_lock = PTHREAD_MUTEX_INITIALIZER;
static struct far_deferred *later[LATER_MAX];
static unsigned later_n;

static enum far_status on_value(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_deferred *d;
	bool kept = false;
	if (args[0].u.i % 3 == 0) {
		pthread_mutex_lock(&later_lock);
		kept = later_n < LATER_MAX && far_defer(req, &d) == FAR_OK;
		if (kept)
			later[later_n++] = d;
		pthread_mutex_unlock(&later_lock);
	}
	return kept ? FAR_OK : far_return(req, &args[0]);
}

static void *answerer_main(void *arg)
{
	struct far_val v = far_int(3);
	while (!atomic_load(&stop)) {
		pthread_mutex_lock(&later_lock);
		struct far_deferred *d = later_n ? later[--later_n] : NULL;
		pthread_mutex_unlock(&later_lock);
		if (d)
			far_deferred_return(d, &v);
		else
			usleep(100);
	}
	return NULL;
}

/* ---- callers ---- */

static void *cancel_main(void *f)
{
	struct far_err err;
	CHECK_STATUS(far_future_cancel(f, &err), FAR_OK, &err);
	return NULL;
}

static void one(struct far_agent *a, int i)
{
	struct far_target *targets = calloc(TARGETS, sizeof *targets);
	struct far_target_result *results = calloc(TARGETS, sizeof *results);
	int64_t *values = calloc(TARGETS, sizeof *values);
	struct far_fanout_opts how = {.recv_buf = values, .slice_bytes = sizeof *values};
	struct far_future *f;
	struct far_err err;
	pthread_t thread;
	CHECK(targets && results && values);
	for (int t = 0; t < TARGETS; t++)
		targets[t] = (struct far_target){.to = {t % 2, -1}};
	if (i % 4 == 3) {
		how.hedge_after_ns = 200 * FAR_US;
		how.hedge = FAR_HEDGE_NEXT;
	}
	if (i % 5 == 4)
		how.k = TARGETS / 2;
	CHECK_STATUS(far_rpc_fanout(a, "t::value", FAR_ARGS(i), targets, TARGETS, &how, results, &f, &err), FAR_OK,
		     &err);
	if (i % 6 == 1) {
		CHECK(pthread_create(&thread, NULL, cancel_main, f) == 0);
		enum far_status status = far_future_wait(f, 0, NULL, &err);
		CHECK(status == FAR_OK || status == FAR_CANCELLED);
		CHECK(pthread_join(thread, NULL) == 0);
	} else if (i % 6 != 2) {
		CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_OK, &err);
		for (int t = 0; t < TARGETS; t++)
			CHECK(results[t].status == FAR_CANCELLED || values[t] == (i % 3 ? i : 3) || values[t] == i);
	}
	far_future_free(f); /* pending, one time in six */
	memset(values, 0x5a, TARGETS * sizeof *values);
	memset(results, 0x5a, TARGETS * sizeof *results);
	free(values);
	free(results);
	free(targets);
}

static void *caller_main(void *arg)
{
	int from = (int)(intptr_t)arg % 2;
	struct far_err err;
	for (int i = 0; i < FANOUTS; i++) {
		/* A thread that holds the shard must not wait for another one that needs it. */
		bool hold = i % 20 == 9 && i % 6 != 1;
		if (hold && far_shard_acquire(agents[from], 10 * FAR_SEC, &err) != FAR_OK)
			hold = false;
		one(agents[from], i);
		if (hold)
			far_shard_release(agents[from]);
	}
	return NULL;
}

static void *join_main(void *arg)
{
	int rank = (int)(intptr_t)arg;
	struct far_err err;
	if (far_init_rpc(names[rank], rank, 2, &opts, &agents[rank], &err))
		_exit(1 + (int)far_err_print(stderr, &err));
	return NULL;
}

static void *leave_main(void *arg)
{
	struct far_err err;
	if (far_shutdown(arg, FAR_FOREVER, &err))
		_exit(1 + (int)far_err_print(stderr, &err));
	return NULL;
}

static void in_both(void *(*body)(void *), void *left, void *right)
{
	pthread_t t[2];
	CHECK(pthread_create(&t[0], NULL, body, left) == 0);
	CHECK(pthread_create(&t[1], NULL, body, right) == 0);
	CHECK(pthread_join(t[0], NULL) == 0 && pthread_join(t[1], NULL) == 0);
}

static void run(enum far_progress progress)
{
	pthread_t callers[2 * CALLERS], answerer;
	opts.progress = progress;
	atomic_store(&stop, false);
	in_both(join_main, (void *)0, (void *)1);
	CHECK(pthread_create(&answerer, NULL, answerer_main, NULL) == 0);
	for (int i = 0; i < 2 * CALLERS; i++)
		CHECK(pthread_create(&callers[i], NULL, caller_main, (void *)(intptr_t)i) == 0);
	for (int i = 0; i < 2 * CALLERS; i++)
		CHECK(pthread_join(callers[i], NULL) == 0);
	in_both(leave_main, agents[0], agents[1]);
	atomic_store(&stop, true);
	CHECK(pthread_join(answerer, NULL) == 0);
}

/* A free port. The first store inherits its listener, the later ones listen there again. */
static void listen_somewhere(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	char text[16];
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 && listen(fd, 16) == 0);
	CHECK(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
	snprintf(url, sizeof url, "tcp://127.0.0.1:%d", ntohs(at.sin_port));
	snprintf(text, sizeof text, "%d", fd);
	setenv("FAR_STORE_FD", text, 1);
}

int main(void)
{
	static const struct far_function functions[] = {
		{"t::value(int i) -> int", FAR_KIND_INLINE, on_value, NULL, FAR_IDEMPOTENT}};
	alarm(150);
	opts = (struct far_opts){.init_method = url, .functions = functions, .functions_n = 1};
	listen_somewhere();
	run(FAR_PROGRESS_SHARED);
	run(FAR_PROGRESS_DEDICATED);
	return 0;
}
