/* SPDX-License-Identifier: BSD-3-Clause */
/** What api_lossy calls: handlers of all kinds, which check every byte that they are given.
 * Handlers: shard threads, fibers and threads of the agent. */
#ifndef API_LOSSY_H
#define API_LOSSY_H

#include "api_spawn.h"
#include "pattern.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

enum { WORLD = 2, IDS = 1 << 20, OPEN_MAX = 4096, NOTE = 1 };

static _Atomic uint8_t ran[IDS];   /* by the number of the other worker's call */
static _Atomic uint8_t noted[IDS]; /* by the number of its one-way message */
static _Atomic uint32_t noted_n;

/* Each function runs once at most for a call. */
static void run_once(int64_t id)
{
	CHECK(id >= 0 && id < IDS);
	CHECK(atomic_fetch_add(&ran[id], 1) == 0);
}

static void check_data(int64_t id, const struct far_val *data)
{
	run_once(id);
	CHECK(data->type == FAR_TYPE_BYTES && pattern_holds(data->u.s.data, data->u.s.len, (uint64_t)id));
}

static enum far_status on_inline(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	check_data(args[0].u.i, &args[1]);
	return far_return(req, &args[1]);
}

static enum far_status on_blocking(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return on_inline(req, args, n, user);
}

/* Waits a little for nothing, by a future that nobody completes. */
static enum far_status on_fiber(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_future *never;
	struct far_err e;
	check_data(args[0].u.i, &args[1]);
	CHECK_STATUS(far_future_create(&never, &e), FAR_OK, &e);
	enum far_status status = far_future_wait(never, 50000, NULL, &e);
	CHECK(status == FAR_PENDING || status == FAR_CANCELLED || status == FAR_RESOURCE);
	far_future_free(never);
	return far_return(req, &args[1]);
}

static struct {
	pthread_mutex_t lock;
	struct far_deferred *d[OPEN_MAX];
	struct far_val value[OPEN_MAX];
	unsigned n;
	bool end;
} later = {.lock = PTHREAD_MUTEX_INITIALIZER};

static enum far_status on_later(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_deferred *d;
	struct far_err e;
	check_data(args[0].u.i, &args[1]);
	CHECK(far_defer(req, &d) == FAR_OK);
	pthread_mutex_lock(&later.lock);
	CHECK(later.n < OPEN_MAX);
	CHECK_STATUS(far_val_dup(&args[1], &later.value[later.n], &e), FAR_OK, &e);
	later.d[later.n++] = d;
	pthread_mutex_unlock(&later.lock);
	return FAR_OK;
}

/* Answers what was deferred, newest first. */
static void *answer_later(void *arg)
{
	for (;;) {
		struct far_deferred *d = NULL;
		struct far_val v = {0};
		pthread_mutex_lock(&later.lock);
		if (later.n) {
			d = later.d[--later.n];
			v = later.value[later.n];
		}
		bool end = later.end && !d;
		pthread_mutex_unlock(&later.lock);
		if (end)
			return NULL;
		if (d)
			far_deferred_return(d, &v);
		else
			usleep(200);
		far_val_fini(&v);
	}
}

static enum far_status on_list(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	CHECK(far_len(&args[1]) == 3 && far_list_get(&args[1], 0)->u.i == args[0].u.i);
	check_data(args[0].u.i, far_list_get(&args[1], 2));
	return far_return(req, &args[1]);
}

static enum far_status on_total(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const double *x = args[1].u.t.data;
	double sum = 0;
	run_once(args[0].u.i);
	for (uint64_t i = 0; i < far_tensor_count(&args[1].u.t); i++)
		sum += x[i];
	struct far_val v = far_float(sum);
	return far_return(req, &v);
}

/* Ends when its caller gives up. */
static enum far_status on_hang(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_future *never;
	struct far_err e;
	run_once(args[0].u.i);
	CHECK_STATUS(far_future_create(&never, &e), FAR_OK, &e);
	enum far_status status = far_future_wait(never, FAR_FOREVER, NULL, &e);
	CHECK(status == FAR_CANCELLED);
	far_future_free(never);
	return far_fail(req, status, 3, "%s", e.text);
}

static enum far_status on_noted(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(atomic_load(&noted_n));
	return far_return(req, &v);
}

/* {number, pattern}; each arrives once. */
static void on_note(struct far_req *req, const void *data, size_t len, void *user)
{
	uint64_t id;
	CHECK(len >= sizeof id);
	memcpy(&id, data, sizeof id);
	CHECK(id < IDS && pattern_holds((const uint8_t *)data + 8, len - 8, id));
	CHECK(atomic_fetch_add(&noted[id], 1) == 0);
	atomic_fetch_add(&noted_n, 1);
}

static const struct far_function functions[] = {
	{"l::inline(int id, bytes data) -> bytes", FAR_KIND_INLINE, on_inline, NULL},
	{"l::fiber(int id, bytes data) -> bytes", FAR_KIND_FIBER, on_fiber, NULL},
	{"l::blocking(int id, bytes data) -> bytes", FAR_KIND_BLOCKING, on_blocking, NULL},
	{"l::later(int id, bytes data) -> bytes", FAR_KIND_INLINE, on_later, NULL},
	{"l::list(int id, List x) -> List", FAR_KIND_INLINE, on_list, NULL},
	{"l::total(int id, Tensor x) -> float", FAR_KIND_INLINE, on_total, NULL},
	{"l::hang(int id) -> none", FAR_KIND_FIBER, on_hang, NULL},
	{"l::noted() -> int", FAR_KIND_INLINE, on_noted, NULL},
};

static const struct far_msg_handler messages[] = {{NOTE, FAR_KIND_INLINE, on_note, NULL}};

#endif
