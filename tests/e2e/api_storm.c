/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Everything at once, for a while: three workers of two shards call one another from threads that come and go, with
 * handlers of all kinds that call on, cancels, tiny time-outs, repeats, callbacks, waits for several, scopes, lists and
 * dicts, and payloads of 0 bytes to 1 MiB. No function runs twice for a call, every result is the right one, and
 * nothing is left at the end. A variant loses a worker in the middle.
 *
 *   api_storm [together|apart|death] [SEED [MILLISECONDS]]
 *
 * Without arguments: apart, then death. What is drawn depends on the seed, the order of events on the machine.
 */
#include "api_together.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <time.h>

enum { WORLD = 3, SHARDS = 2, THREADS = 3, OPS = 40, GROUP = 8, LATER = 1024, LARGE = 1 << 20 };
enum { IDS = 1 << 20, KILLED = 2 };

static uint64_t seed = 1, milliseconds = 1500;
static bool with_death;
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
	(void)n, (void)user;
	run_once(args[0].u.i);
	return far_return(req, &args[1]);
}

/* Waits a little for nothing first, by a future that nobody completes. */
static enum far_status on_fiber(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_future *never;
	struct far_err e;
	(void)n, (void)user;
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
	(void)n, (void)user;
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
	(void)n, (void)user;
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
	(void)arg;
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
	(void)n, (void)user;
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
	(void)n, (void)user;
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
	(void)n, (void)user;
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
	op->function = kinds[draw(r, 4)];
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

static void one_sync(struct client *c)
{
	struct op op;
	struct far_val out = {0};
	struct far_err e;
	op_make(c, &op);
	if (op.hang) {
		op.tiny = true;
		op.opts.timeout_ns = 100000;
	}
	enum far_status status = far_rpc_sync_to(c->agent, op.to, op.function, op.args, op.args_n, &op.opts, &out, &e);
	expect(&op, status, &out, &e);
	far_val_fini(&out);
}

static enum far_status hand_on(struct far_future *parent, struct far_val *out, struct far_err *err, void *user)
{
	atomic_fetch_add((_Atomic int *)user, 1);
	return far_future_value(parent, out, err);
}

static void *cancel_main(void *f)
{
	struct far_err e;
	CHECK_STATUS(far_future_cancel(f, &e), FAR_OK, &e);
	far_future_free(f);
	return NULL;
}

static struct far_future *start(struct client *c, struct op *op)
{
	struct far_future *f = NULL;
	struct far_err e;
	op_make(c, op);
	enum far_status status =
		far_rpc_async_to(c->agent, op->to, op->function, op->args, op->args_n, &op->opts, &f, &e);
	if (status)
		expect(op, status, NULL, &e);
	return f;
}

static void finish(const struct op *op, struct far_future *f)
{
	struct far_val out = {0};
	struct far_err e;
	enum far_status status = far_future_wait(f, FAR_FOREVER, &out, &e);
	expect(op, status, &out, &e);
	far_val_fini(&out);
	far_future_free(f);
}

/* Cancelled here, by another thread or not at all, with a child that gets the result. */
static void one_async(struct client *c)
{
	struct op op;
	struct far_err e;
	_Atomic int children = 0;
	struct far_future *child = NULL, *f = start(c, &op);
	pthread_t canceller;
	if (!f)
		return;
	if (draw(&c->random, 2))
		CHECK_STATUS(far_future_then(f, hand_on, &children, &child, &e), FAR_OK, &e);
	unsigned how = draw(&c->random, 4);
	op.cancelled = op.hang || how < 2;
	if (how == 0) {
		CHECK(pthread_create(&canceller, NULL, cancel_main, far_future_ref(f)) == 0);
		CHECK(pthread_join(canceller, NULL) == 0);
	} else if (op.cancelled) {
		CHECK_STATUS(far_future_cancel(f, &e), FAR_OK, &e);
	}
	if (child)
		finish(&op, child);
	CHECK(!child || atomic_load(&children) == 1);
	finish(&op, f);
}

static void group(struct client *c)
{
	struct op ops[GROUP];
	struct far_future *f[GROUP], *all;
	struct far_err e;
	struct far_scope scope;
	size_t n = 0, index;
	bool scoped = draw(&c->random, 2);
	if (scoped)
		CHECK(far_scope_begin(&scope) == FAR_OK);
	for (int i = 0; i < GROUP; i++)
		if ((f[n] = start(c, &ops[n])))
			n++;
	for (size_t i = 0; i < n; i++)
		if (ops[i].hang) {
			ops[i].cancelled = true;
			CHECK_STATUS(far_future_cancel(f[i], &e), FAR_OK, &e);
		}
	if (n) {
		far_future_wait_all(f, n, draw(&c->random, 100000) + 1, &e);
		CHECK_STATUS(far_future_wait_any(f, n, FAR_FOREVER, &index, &e), FAR_OK, &e);
		CHECK(index < n && far_future_done(f[index]));
		CHECK_STATUS(far_future_collect(f, n, &all, &e), FAR_OK, &e);
		far_future_wait(all, FAR_FOREVER, NULL, &e);
		CHECK(far_future_done(all));
		far_future_free(all);
	}
	if (scoped)
		far_scope_end(&scope, 0, &e);
	for (size_t i = 0; i < n; i++) {
		CHECK(far_future_done(f[i]));
		finish(&ops[i], f[i]);
	}
}

static void *client_main(void *arg)
{
	struct client *c = arg;
	for (int i = 0; i < OPS; i++) {
		switch (draw(&c->random, 4)) {
		case 0:
			group(c);
			break;
		case 1:
			one_async(c);
			break;
		default:
			one_sync(c);
		}
	}
	return NULL;
}

/* ---- a worker ---- */

static void storm(struct far_agent *a, int rank)
{
	struct client clients[THREADS];
	uint64_t end = now_ns() + milliseconds * FAR_MS, round = 0;
	bool dies = with_death && rank == KILLED;
	while (now_ns() < end) {
		for (int i = 0; i < THREADS; i++) {
			clients[i] = (struct client){.agent = a, .rank = rank, .random = seed + round * 7919};
			clients[i].random += (uint64_t)(rank * THREADS + i) * 104729;
			CHECK(pthread_create(&clients[i].thread, NULL, client_main, &clients[i]) == 0);
		}
		if (dies && (usleep((useconds_t)milliseconds * 500), true))
			raise(SIGKILL);
		for (int i = 0; i < THREADS; i++)
			CHECK(pthread_join(clients[i].thread, NULL) == 0);
		round++;
	}
}

/* Everybody has come so far: from now on nobody makes calls but this one. */
static void everybody(struct far_agent *a)
{
	struct far_val out = {0};
	struct far_err e;
	int64_t add = 1, want = with_death ? WORLD - 1 : WORLD;
	do {
		CHECK_STATUS(far_rpc_sync_to(a, (struct far_to){0, 0}, "s::finished", FAR_ARGS(add), NULL, &out, &e),
			     FAR_OK, &e);
		if (out.u.i < want)
			usleep(1000);
		add = 0;
	} while (out.u.i < want);
}

/* The hang guard bounds it. */
static void nothing_active(struct far_agent *a)
{
	struct far_counters c;
	for (;;) {
		far_counters_read(a, &c);
		if (!c.calls_active && !c.requests_active)
			break;
		usleep(1000);
	}
	CHECK(with_death || c.packets_dropped == 0);
}

static void nothing_held(void)
{
	struct far_memory m;
	far_memory_stats(&m);
	if (m.slab_used || m.large_used) {
		fprintf(stderr, "%" PRIu64 " bytes in buffers and %" PRIu64 " of large payloads are left\n",
			m.slab_used, m.large_used);
		_exit(1);
	}
}

static void fill_pattern(void)
{
	for (size_t i = 0; i < sizeof pattern; i++)
		pattern[i] = (uint8_t)(i * 131 >> 3);
}

static struct far_opts options(void)
{
	return (struct far_opts){.functions = functions,
				 .functions_n = sizeof functions / sizeof *functions,
				 .shards = SHARDS,
				 .fibers = 64,
				 .blocking_threads = 2,
				 .connect = seed % 2 ? FAR_CONNECT_LAZY : 0};
}

static int worker(int rank)
{
	struct far_opts opts = options();
	struct far_err e;
	pthread_t answerer;
	fill_pattern();
	CHECK(pthread_create(&answerer, NULL, answer_later, NULL) == 0);
	agents[rank] = check_join(&opts);
	storm(agents[rank], rank);
	everybody(agents[rank]);
	nothing_active(agents[rank]);
	enum far_status status = far_shutdown(agents[rank], 0, &e);
	CHECK(status == FAR_OK || (with_death && status == FAR_PEER_LOST));
	pthread_mutex_lock(&later.lock);
	later.end = true;
	pthread_mutex_unlock(&later.lock);
	CHECK(pthread_join(answerer, NULL) == 0);
	nothing_held();
	CHECK(atomic_load(&results_right) > 0 && atomic_load(&ended_otherwise) > 0);
	return 0;
}

/* ---- the variants ---- */

static void *together_storm(void *arg)
{
	struct together *t = arg;
	storm(t->agent, t->rank);
	everybody(t->agent);
	nothing_active(t->agent);
	return NULL;
}

static int together(void)
{
	struct together t[WORLD];
	pthread_t answerer;
	alarm(HANG_GUARD_S);
	fill_pattern();
	together_listen();
	CHECK(pthread_create(&answerer, NULL, answer_later, NULL) == 0);
	for (int i = 0; i < WORLD; i++)
		t[i] = (struct together){.opts = options(), .rank = i, .world = WORLD};
	together_all(t, WORLD, together_join);
	together_all(t, WORLD, together_storm);
	together_all(t, WORLD, together_leave);
	pthread_mutex_lock(&later.lock);
	later.end = true;
	pthread_mutex_unlock(&later.lock);
	CHECK(pthread_join(answerer, NULL) == 0);
	nothing_held();
	CHECK(atomic_load(&results_right) > 0 && atomic_load(&ended_otherwise) > 0);
	return 0;
}

static int apart(bool death)
{
	with_death = death;
	struct spawned s = spawn(WORLD, worker);
	int bad = spawn_wait(&s, death ? KILLED : -1);
	if (bad)
		fprintf(stderr, "again: api_storm %s %" PRIu64 " %" PRIu64 "\n", death ? "death" : "apart", seed,
			milliseconds);
	return bad;
}

int main(int argc, char **argv)
{
	const char *variant = argc > 1 ? argv[1] : "";
	if (argc > 2)
		seed = strtoull(argv[2], NULL, 10);
	if (argc > 3)
		milliseconds = strtoull(argv[3], NULL, 10);
	if (strcmp(variant, "together") == 0)
		return together();
	if (strcmp(variant, "death") == 0)
		return apart(true);
	if (strcmp(variant, "apart") == 0)
		return apart(false);
	int bad = apart(false);
	seed++;
	return bad | apart(true);
}
