/* SPDX-License-Identifier: BSD-3-Clause */
/** The storm's workload: handlers of all kinds, and calls drawn at random with the results that they may have.
 * Handlers: shard threads, fibers and threads of the agent. */
#ifndef API_STORM_H
#define API_STORM_H

#include "api_together.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <time.h>

enum { WORLD = 3, SHARDS = 2, THREADS = 3, OPS = 40, GROUP = 8, LATER = 1024, LARGE = 1 << 20 };
enum { IDS = 1 << 20, KILLED = 2 };

static uint64_t seed = 1, milliseconds = 1500;
static bool with_death, ends_abruptly;
static struct far_agent *agents[WORLD];
static uint8_t pattern[LARGE + 256];
static _Atomic uint8_t ran[WORLD][IDS]; /* by the caller and its number for the call */
static _Atomic uint32_t next_id[WORLD];
static _Atomic int finished, results_right, ended_otherwise;

static uint64_t now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * FAR_SEC + (uint64_t)ts.tv_nsec;
}

static uint32_t draw(uint64_t *state, uint32_t n)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*state >> 33) % n;
}

/* ---- handlers ---- */

static void run_once(int64_t id)
{
	if (id >= 0) {
		CHECK(id < WORLD * IDS);
		CHECK(atomic_fetch_add(&ran[id / IDS][id % IDS], 1) == 0);
	}
}

static struct far_to anyone(int64_t id, size_t len)
{
	uint64_t state = seed + (uint64_t)id * 31 + len;
	draw(&state, 2);
	int worker = (int)draw(&state, WORLD);
	return (struct far_to){worker, (int)draw(&state, SHARDS + 1) - 1};
}

static enum far_status pass_on(struct far_req *req, const struct far_val *args)
{
	struct far_val out = {0};
	struct far_err e;
	struct far_to to = anyone(args[0].u.i, args[1].u.s.len);
	const struct far_val inner[] = {far_int(-1), far_bytes(args[1].u.s.data, args[1].u.s.len)};
	enum far_status status = far_rpc_sync_to(far_req_agent(req), to, "s::inline", inner, 2, NULL, &out, &e);
	if (status)
		return far_fail(req, status, 1, "passed on: %s", e.text);
	status = far_return(req, &out);
	far_val_fini(&out);
	return status;
}

static enum far_status on_inline(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	run_once(args[0].u.i);
	return far_return(req, &args[1]);
}

/* Waits a little for nothing first, by a future that nobody completes. */
static enum far_status on_fiber(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_future *never;
	struct far_err e;
	run_once(args[0].u.i);
	CHECK_STATUS(far_future_create(&never, &e), FAR_OK, &e);
	for (int i = 0; i < 3; i++) {
		enum far_status status = far_future_wait(never, 20000, NULL, &e);
		CHECK(status == FAR_PENDING || status == FAR_CANCELLED || status == FAR_RESOURCE);
	}
	far_future_free(never);
	return pass_on(req, args);
}

static enum far_status on_blocking(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	run_once(args[0].u.i);
	return args[0].u.i % 2 ? pass_on(req, args) : far_return(req, &args[1]);
}

static struct {
	pthread_mutex_t lock;
	struct far_deferred *d[LATER];
	struct far_val value[LATER];
	unsigned n;
	bool end;
} later = {.lock = PTHREAD_MUTEX_INITIALIZER};

static enum far_status on_later(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_deferred *d;
	struct far_err e;
	run_once(args[0].u.i);
	pthread_mutex_lock(&later.lock);
	bool room = later.n < LATER;
	if (room && far_defer(req, &d) == FAR_OK) {
		CHECK_STATUS(far_val_dup(&args[1], &later.value[later.n], &e), FAR_OK, &e);
		later.d[later.n++] = d;
	} else {
		room = false;
	}
	pthread_mutex_unlock(&later.lock);
	return room ? FAR_OK : far_fail(req, FAR_RESOURCE, 0, "too many are open");
}

/* Answers what was deferred, newest first; now and then it drops one. */
static void *answer_later(void *arg)
{
	unsigned answered = 0;
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
		if (!d)
			usleep(100);
		else if (++answered % 64)
			far_deferred_return(d, &v);
		else
			far_deferred_drop(d);
		far_val_fini(&v);
	}
}

/* Waits for several, in a scope, and gives its argument back. */
static enum far_status on_tree(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_agent *a = far_req_agent(req);
	struct far_future *f[3];
	struct far_scope scope;
	struct far_err e;
	size_t index;
	int made = 0;
	run_once(args[0].u.i);
	CHECK(far_scope_begin(&scope) == FAR_OK);
	for (; made < 3; made++)
		if (far_rpc_async_to(a, anyone(args[0].u.i, (size_t)made), "far::identity", &args[1], 1, NULL, &f[made],
				     &e))
			break;
	for (int i = 0; i < 5 && made; i++)
		far_future_wait_any(f, (size_t)made, 10000, &index, &e);
	enum far_status status = made ? far_future_wait_all(f, (size_t)made, 20000, &e) : FAR_OK;
	while (made)
		far_future_free(f[--made]);
	if (args[0].u.i % 5 == 0)
		far_scope_abandon(&scope);
	else
		status = far_scope_end(&scope, 0, &e);
	if (status && status != FAR_PENDING)
		return far_fail(req, status, 2, "%s", e.text);
	return far_return(req, &args[1]);
}

/* Ends when it is cancelled only. */
static enum far_status on_hang(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_future *never;
	struct far_err e;
	run_once(args[0].u.i);
	CHECK_STATUS(far_future_create(&never, &e), FAR_OK, &e);
	enum far_status status = far_future_wait(never, FAR_FOREVER, NULL, &e);
	CHECK(status == FAR_CANCELLED || status == FAR_RESOURCE);
	far_future_free(never);
	return far_fail(req, status, 3, "%s", e.text);
}

static enum far_status on_finished(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(atomic_fetch_add(&finished, (int)args[0].u.i) + args[0].u.i);
	return far_return(req, &v);
}

static const struct far_function functions[] = {
	{"s::inline(int id, bytes data) -> bytes", FAR_KIND_INLINE, on_inline, NULL},
	{"s::fiber(int id, bytes data) -> bytes", FAR_KIND_FIBER, on_fiber, NULL},
	{"s::blocking(int id, bytes data) -> bytes", FAR_KIND_BLOCKING, on_blocking, NULL},
	{"s::later(int id, bytes data) -> bytes", FAR_KIND_INLINE, on_later, NULL},
	{"s::tree(int id, List|Dict x) -> List|Dict", FAR_KIND_FIBER, on_tree, NULL},
	{"s::hang(int id) -> none", FAR_KIND_FIBER, on_hang, NULL},
	{"s::finished(int n) -> int", FAR_KIND_INLINE, on_finished, NULL},
};

/* ---- callers ---- */

struct client {
	pthread_t thread;
	struct far_agent *agent;
	int rank;
	uint64_t random;
};

struct op {
	const char *function;
	struct far_to to;
	struct far_call_opts opts;
	struct far_val args[2];
	struct far_val items[4];
	struct far_dict_entry entries[3];
	size_t args_n, len;
	uint8_t key;
	bool tiny, cancelled, tree, hang;
};

static void make_tree(struct op *op, uint64_t *random)
{
	op->tree = true;
	op->function = "s::tree";
	op->items[0] = far_int(op->key);
	op->items[1] = far_str("a text that does not fit a line of its own, so that it is copied");
	op->items[2] = far_bytes(pattern + op->key, op->len);
	op->items[3] = far_list(NULL, 0);
	op->entries[0] = far_entry(far_str("key"), far_int(op->key));
	op->entries[1] = far_entry(far_int(-1), far_list(op->items, 4));
	op->entries[2] = far_entry(far_str("empty"), far_dict(NULL, 0));
	op->args[1] = draw(random, 2) ? far_list(op->items, 4) : far_dict(op->entries, 3);
}

static void op_make(struct client *c, struct op *op)
{
	static const char *const kinds[] = {"s::inline", "s::fiber", "s::blocking", "s::later"};
	static const size_t lengths[] = {0, 1, 9, 32, 100, 4096, 70000, LARGE};
	uint64_t *r = &c->random;
	uint32_t id = atomic_fetch_add(&next_id[c->rank], 1);
	*op = (struct op){.args_n = 2};
	op->to = (struct far_to){(int)draw(r, WORLD), (int)draw(r, SHARDS + 1) - 1};
	op->key = (uint8_t)draw(r, 256);
	op->len = lengths[draw(r, 16) ? draw(r, 7) : 7];
	op->tiny = draw(r, 5) == 0;
	op->opts.timeout_ns = op->tiny ? 1 + draw(r, 300000) : 0;
	op->opts.via = draw(r, SHARDS + 1);
	op->opts.retry = draw(r, 4) == 0;
	op->opts.retry_after_ns = 1 + draw(r, 400000);
	op->args[0] = far_int(id < IDS ? c->rank * IDS + (int)id : -1);
	op->args[1] = far_bytes(pattern + op->key, op->len);
	op->function = kinds[draw(r, ends_abruptly ? 3 : 4)]; /* what is deferred must be answered before the end */
	if (draw(r, 5) == 0)
		make_tree(op, r);
	else if (draw(r, 12) == 0) {
		op->hang = true;
		op->function = "s::hang";
		op->args_n = 1;
	}
}

static void expect_pattern(const struct op *op, const struct far_val *v)
{
	CHECK(v->type == FAR_TYPE_BYTES && v->u.s.len == op->len);
	CHECK(op->len == 0 || memcmp(v->u.s.data, pattern + op->key, op->len) == 0);
}

static void expect_list(const struct op *op, const struct far_val *v)
{
	CHECK(v && v->type == FAR_TYPE_LIST && far_len(v) == 4);
	CHECK(far_list_get(v, 0)->u.i == op->key);
	CHECK(strcmp(far_list_get(v, 1)->u.s.data, op->items[1].u.s.data) == 0);
	expect_pattern(op, far_list_get(v, 2));
	CHECK(far_list_get(v, 3)->type == FAR_TYPE_LIST && far_len(far_list_get(v, 3)) == 0);
}

static void expect(const struct op *op, enum far_status status, const struct far_val *v, const struct far_err *e)
{
	if (!status) {
		CHECK(!op->hang);
		if (!op->tree)
			expect_pattern(op, v);
		else if (v->type == FAR_TYPE_LIST)
			expect_list(op, v);
		else
			expect_list(op, far_dict_get_int(v, -1));
		atomic_fetch_add(&results_right, 1);
		return;
	}
	bool ok = status == FAR_BUSY || status == FAR_RESOURCE || (op->tiny && status == FAR_TIMEOUT) ||
		  ((op->tiny || op->cancelled) && status == FAR_CANCELLED) ||
		  (status == FAR_REMOTE && strstr(e->text, "dropped the request")) ||
		  (with_death && (status == FAR_PEER_LOST || status == FAR_UNREACHABLE || status == FAR_CANCELLED));
	if (!ok) {
		fprintf(stderr, "%s to worker %d: ", op->function, (int)op->to.worker);
		far_err_print(stderr, e);
		_exit(1);
	}
	atomic_fetch_add(&ended_otherwise, 1);
}

#endif
