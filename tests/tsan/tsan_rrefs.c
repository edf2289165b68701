/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Two agents in one process, with references of each at the other, made, handed on, fetched and given back by several
 * threads, while another one has messages fail and be late, and reads counters. For a build with ThreadSanitizer.
 */
#include "../e2e/api_spawn.h"
#include "handlers.h"

#include <pthread.h>
#include <stdatomic.h>

enum { CALLERS = 3, ROUNDS = 120 };

static const char *const names[] = {"left", "right"};
static struct far_agent *agents[2];
static char url[64];
static _Atomic bool stop;

static const struct far_function functions[] = {
	{"r::echo(Any x) -> Any", FAR_KIND_INLINE, handler_echo, NULL},
	{"r::fetch(rref r) -> Any", FAR_KIND_FIBER, handler_fetch, NULL},
};

/* What a fault may bring about. */
static bool expected(enum far_status status)
{
	return status == FAR_OK || status == FAR_INJECTED || status == FAR_TIMEOUT;
}

static void one_round(struct far_agent *a, int i)
{
	struct far_err err;
	struct far_rref *r;
	struct far_val v;
	struct far_future *f = NULL;
	struct far_call_opts o = {.timeout_ns = i % 7 == 6 ? FAR_MS : 0};
	enum far_status status = far_remote(a, names[i % 2], "r::echo", FAR_ARGS(i), &o, &r, &err);
	CHECK_STATUS(status, FAR_OK, &err);
	if (i % 3 == 0 && (status = far_rref_to_here_async(r, 0, &f, &err)))
		CHECK(expected(status));
	status = far_rpc_sync(a, names[i / 2 % 2], "r::fetch", FAR_ARGS(r), NULL, &v, &err);
	CHECK(expected(status) && (status || v.u.i == i));
	status = far_rpc_sync(a, names[i / 2 % 2], "r::echo", FAR_ARGS(r), NULL, &v, &err);
	CHECK(expected(status));
	far_rref_free(r);
	if (!status)
		far_val_fini(&v);
	if (f) {
		status = far_future_wait(f, 0, &v, &err);
		CHECK(expected(status) && (status || v.u.i == i));
		far_future_free(f);
	}
}

static void *caller(void *arg)
{
	int number = (int)(intptr_t)arg;
	for (int i = 0; i < ROUNDS; i++)
		one_round(agents[(i + number) % 2], i);
	return NULL;
}

static void *disturber(void *arg)
{
	struct far_debug_pair pairs[96];
	struct far_err err;
	for (int i = 0; !atomic_load(&stop); i++) {
		struct far_fault fault = {.fail_sends = i % 3 ? 2 : 0, .delay_ns = FAR_MS / 2, .messages = 3};
		enum far_fault_kind kind = (enum far_fault_kind)(i % FAR_FAULT_COUNT);
		CHECK_STATUS(far_fault_set(agents[i % 2], kind, &fault, &err), FAR_OK, &err);
		CHECK(far_debug_info(agents[i % 2], pairs, 96) > 30);
		usleep(2000);
		if (i % 4 == 3)
			CHECK_STATUS(far_faults_clear(agents[i % 2], &err), FAR_OK, &err);
	}
	return NULL;
}

static void *joiner(void *arg)
{
	int rank = (int)(intptr_t)arg;
	struct far_err err;
	struct far_opts opts = {.init_method = url,
				.functions = functions,
				.functions_n = 2,
				.shards = 2,
				.progress = rank ? FAR_PROGRESS_DEDICATED : FAR_PROGRESS_SHARED,
				.leaks = FAR_LEAKS_FAIL};
	CHECK_STATUS(far_init_rpc(names[rank], rank, 2, &opts, &agents[rank], &err), FAR_OK, &err);
	return NULL;
}

static void *leaver(void *arg)
{
	struct far_err err;
	CHECK_STATUS(far_shutdown(agents[(intptr_t)arg], FAR_FOREVER, &err), FAR_OK, &err);
	return NULL;
}

static void in_threads(void *(*body)(void *), int n)
{
	pthread_t threads[CALLERS];
	for (int i = 0; i < n; i++)
		CHECK(pthread_create(&threads[i], NULL, body, (void *)(intptr_t)i) == 0);
	for (int i = 0; i < n; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(void)
{
	struct far_err err;
	pthread_t disturbs;
	int port, listener = spawn_listen(&port);
	alarm(HANG_GUARD_S);
	snprintf(url, sizeof url, "tcp://127.0.0.1:%d", port);
	spawn_setenv("FAR_STORE_FD", listener);
	in_threads(joiner, 2);
	CHECK(pthread_create(&disturbs, NULL, disturber, NULL) == 0);
	in_threads(caller, CALLERS);
	atomic_store(&stop, true);
	CHECK(pthread_join(disturbs, NULL) == 0);
	for (int i = 0; i < 2; i++) {
		CHECK_STATUS(far_faults_clear(agents[i], &err), FAR_OK, &err);
		CHECK_STATUS(far_rref_flush(agents[i], 0, &err), FAR_OK, &err);
	}
	in_threads(leaver, 2);
	return 0;
}
