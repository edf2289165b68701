/* SPDX-License-Identifier: BSD-3-Clause */
/** The mixed calls of the clean-path test, and their handlers.
 * Handlers: shard threads, fibers and threads of the agent. */
#include "calls.h"

#include "watch.h"

enum { M_ECHO = 1, M_ECHO_FIBER, M_NEST, M_LATER, M_ALLOC, M_POST };
enum { BATCH = 8, KEPT_MAX = 64, DEPTH_MAX = 4, LARGE = 1 << 20, MORE_FUTURES = 1500 };

struct calls calls;

static const char payload[LARGE];

/* Handlers and the fibers that call: of the shard they run on, one at a time. */
static struct calls_made *mine(void)
{
	return &calls.made[far_shard_of_thread(calls.agent)];
}

/* The same shard of the other worker: what is kept there is answered there. */
static struct far_to peer(void)
{
	return (struct far_to){!calls.rank, (int32_t)far_shard_of_thread(calls.agent)};
}

/* What a handler of kind inline keeps open, and another one answers. One at a time runs on a shard. */
struct kept {
	struct far_deferred *requests[KEPT_MAX];
	unsigned n;
};
static struct kept laters[CALLS_SHARDS_MAX], later_messages[CALLS_SHARDS_MAX], nevers[CALLS_SHARDS_MAX];

/* ---- what is called ---- */

#define HANDLER(name) static enum far_status name(struct far_req *req, const struct far_val *args, size_t n, void *user)
#define MESSAGE(name) static void name(struct far_req *req, const void *data, size_t len, void *user)

HANDLER(echo)
{
	CHECK(watched());
	return far_return(req, &args[0]);
}

MESSAGE(echo_message)
{
	CHECK(watched());
	CHECK(far_reply(req, data, len) == FAR_OK);
}

MESSAGE(alloc_message)
{
	void *at;
	CHECK(far_reply_alloc(req, len, &at) == FAR_OK);
	memcpy(at, data, len);
}

MESSAGE(post_message)
{
	CHECK(watched());
}

/* Calls the same function of the caller, one level less deep. */
HANDLER(nest)
{
	struct far_val below = far_int(-1);
	struct far_err e;
	if (args[0].u.i > 0)
		CHECK_STATUS(far_rpc_sync_to(calls.agent, peer(), "clean::nest", FAR_ARGS(args[0].u.i - 1), NULL,
					     &below, &e),
			     FAR_OK, &e);
	mine()->n += args[0].u.i > 0;
	struct far_val v = far_int(below.u.i + 1);
	return far_return(req, &v);
}

MESSAGE(nest_message)
{
	struct far_err e;
	int32_t level, below = -1;
	CHECK(len == sizeof level);
	memcpy(&level, data, sizeof level);
	if (level-- > 0)
		CHECK_STATUS(far_msg_call(calls.agent, peer(), M_NEST, &level, sizeof level, NULL, &below, sizeof below,
					  NULL, &e),
			     FAR_OK, &e);
	mine()->n += level >= 0;
	below++;
	CHECK(far_reply(req, &below, sizeof below) == FAR_OK);
}

static struct far_deferred *keep(struct kept *of_shards, struct far_req *req)
{
	struct kept *k = &of_shards[far_shard_of_thread(calls.agent)];
	struct far_deferred **place = &k->requests[k->n++ % KEPT_MAX], *before = *place;
	CHECK(far_defer(req, place) == FAR_OK);
	CHECK(of_shards == nevers || k->n <= KEPT_MAX);
	return before;
}

HANDLER(later)
{
	keep(laters, req);
	return FAR_OK;
}

MESSAGE(later_message)
{
	keep(later_messages, req);
}

/* Answered when so many more have come that its caller has given up long ago. */
HANDLER(never)
{
	struct far_deferred *oldest = keep(nevers, req);
	if (oldest && nevers[far_shard_of_thread(calls.agent)].n % 2)
		far_deferred_drop(oldest);
	else if (oldest)
		far_deferred_return(oldest, NULL);
	return FAR_OK;
}

HANDLER(flush)
{
	struct far_val v = far_int(7);
	unsigned shard = far_shard_of_thread(calls.agent);
	struct kept *typed = &laters[shard], *raw = &later_messages[shard];
	while (typed->n)
		far_deferred_return(typed->requests[--typed->n], &v);
	while (raw->n)
		far_deferred_reply(raw->requests[--raw->n], payload, 100);
	return far_return(req, NULL);
}

HANDLER(fails)
{
	return far_fail(req, FAR_REMOTE, 7, "on purpose, %s, number %lld of %.3f", calls.rank ? "worker1" : "worker0",
			(long long)args[0].u.i, 0.5);
}

/* Whose caller gives up while it waits. */
HANDLER(waits)
{
	struct far_err e;
	enum far_status status = far_rpc_sync_to(calls.agent, peer(), "clean::never", FAR_NOARGS, NULL, NULL, &e);
	CHECK(status != FAR_OK);
	mine()->n++;
	return far_fail(req, status, 0, "%s", e.text);
}

HANDLER(tensor)
{
	uint64_t shape = (uint64_t)args[0].u.i;
	void *at;
	enum far_status status = far_return_tensor(req, FAR_F32, 1, &shape, &at);
	if (!status)
		memset(at, 0, shape * sizeof(float));
	return status;
}

HANDLER(scaled)
{
	struct far_val v = far_float(args[0].u.f * args[1].u.f);
	return far_return(req, &v);
}

HANDLER(block)
{
	/* A thread that hands its answer in drives the shard for a moment when nobody else does. */
	if (calls.shared)
		watch_thread(true);
	CHECK(watched() == calls.shared);
	return far_return(req, &args[0]);
}

/* ---- who calls ---- */

static uint64_t draw(uint64_t *seed, uint64_t n)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return (*seed >> 11) % n;
}

/* Mostly small ones; one in 512 is of 1 MiB. */
static size_t draw_size(uint64_t *seed)
{
	static const size_t small[] = {0, 1, 8, 28, 32, 33, 100, 512}, middle[] = {4095, 4096, 20000, 65536};
	uint64_t x = draw(seed, 512);
	size_t size = x == 0 ? LARGE : x < 32 ? middle[x % 4] : small[x % 8];
	mine()->large += size == LARGE;
	return size;
}

/* Any shard of both. */
static struct far_to draw_place(uint64_t *seed)
{
	return (struct far_to){draw(seed, 16) ? !calls.rank : calls.rank, (int32_t)draw(seed, calls.shards)};
}

static struct far_future *begin(struct far_to to, const char *function, const struct far_val *args, size_t n,
				const struct far_call_opts *opts)
{
	struct far_future *f = NULL;
	struct far_err e;
	enum far_status status;
	while ((status = far_rpc_async_to(calls.agent, to, function, args, n, opts, &f, &e)) == FAR_BUSY)
		CHECK_STATUS(far_rpc_sync_to(calls.agent, to, "far::add", FAR_ARGS(1, 1), NULL, NULL, &e), FAR_OK, &e);
	CHECK_STATUS(status, FAR_OK, &e);
	return f;
}

static void expect(struct far_to to, const char *function, const struct far_val *args, size_t n,
		   const struct far_call_opts *opts, enum far_status want)
{
	struct far_err e;
	CHECK_STATUS(far_rpc_sync_to(calls.agent, to, function, args, n, opts, NULL, &e), want, &e);
	mine()->n++;
}

static void typed_calls(uint64_t *seed)
{
	struct far_to to = draw_place(seed);
	const char *function = draw(seed, 4) ? "clean::echo" : "clean::echo_fiber";
	struct far_val sent = far_bytes(payload, draw_size(seed)), out = {0};
	struct far_err e;
	CHECK_STATUS(far_rpc_sync_to(calls.agent, to, function, FAR_ARGS(sent), NULL, &out, &e), FAR_OK, &e);
	CHECK(out.u.s.len == sent.u.s.len);
	far_val_fini(&out);
	for (int i = 0; i < BATCH; i++)
		expect(to, "far::add", FAR_ARGS(i, 1.5), NULL, FAR_OK);
	expect(to, "clean::tensor", FAR_ARGS((int)draw(seed, 3000)), NULL, FAR_OK);
	mine()->n++;
	mine()->typed += BATCH + 2;
}

static void value_calls(uint64_t *seed)
{
	struct far_to to = draw_place(seed);
	struct far_val many[40], out = {0};
	struct far_err e;
	size_t n = draw(seed, 40);
	for (size_t i = 0; i < n; i++)
		many[i] = i % 2 ? far_str("a text in a list") : far_int((int64_t)i);
	struct far_val tree = FAR_LIST(far_list(many, n), FAR_DICT(FAR_ENTRY("rate", 0.5), FAR_ENTRY(7, "seven")),
				       far_bytes(payload, draw(seed, 300)));
	const char *function = draw(seed, 4) ? "clean::any" : "clean::any_fiber";
	CHECK_STATUS(far_rpc_sync_to(calls.agent, to, function, FAR_ARGS(tree), NULL, &out, &e), FAR_OK, &e);
	CHECK(out.type == FAR_TYPE_LIST && out.u.list.n == 3 && out.u.list.items[0].u.list.n == n);
	far_val_fini(&out);
	CHECK_STATUS(far_rpc_sync_to(calls.agent, to, "clean::scaled", FAR_ARGS(3, FAR_KW("by", 4)), NULL, &out, &e),
		     FAR_OK, &e);
	CHECK(out.u.f > 11 && out.u.f < 13);
	expect(to, "clean::scaled", FAR_ARGS(3), NULL, FAR_OK);
	expect(to, "clean::over", FAR_ARGS("text"), NULL, FAR_OK);
	expect(to, "clean::over", FAR_ARGS(1), NULL, FAR_OK);
	mine()->n += 2;
	mine()->typed += 5;
}

static void message_calls(uint64_t *seed)
{
	static char of_shards[CALLS_SHARDS_MAX][LARGE]; /* of all fibers of one: nobody looks at it */
	char *reply = of_shards[far_shard_of_thread(calls.agent)];
	size_t len, got = 0;
	struct far_err e;
	for (int i = 0; i < BATCH; i++) {
		uint16_t id = (uint16_t[]){M_ECHO, M_ECHO_FIBER, M_ALLOC, M_ECHO}[draw(seed, 4)];
		len = draw_size(seed);
		CHECK_STATUS(far_msg_call(calls.agent, peer(), id, payload, len, NULL, reply, LARGE, &got, &e), FAR_OK,
			     &e);
		CHECK(got == len);
	}
	struct far_part parts[] = {{payload, 5}, {NULL, 0}, {payload, draw_size(seed)}};
	CHECK_STATUS(far_msg_call_parts(calls.agent, peer(), M_ECHO, parts, 3, NULL, reply, LARGE, &got, &e),
		     parts[2].len == LARGE ? FAR_TOO_LARGE : FAR_OK, &e);
	CHECK(got == 5 + parts[2].len);
	mine()->n += BATCH + 1;
	mine()->messages += BATCH + 1;
}

struct tally {
	unsigned left;
	struct far_future *all;
};

static void on_answer(enum far_status status, const void *data, size_t len, const struct far_err *err, void *user)
{
	struct tally *t = user;
	CHECK_STATUS(status, FAR_OK, err);
	if (--t->left == 0)
		CHECK(far_future_set_value(t->all, NULL, NULL) == FAR_OK);
}

static void sends(uint64_t *seed)
{
	struct tally t = {.left = BATCH};
	struct far_err e;
	CHECK_STATUS(far_future_create(&t.all, &e), FAR_OK, &e);
	for (int i = 0; i < BATCH; i++) {
		enum far_status status;
		size_t len = draw(seed, 100);
		while ((status = far_msg_send(calls.agent, peer(), i % 2 ? M_ECHO : M_ECHO_FIBER, payload, len, NULL,
					      on_answer, &t, &e)) == FAR_BUSY)
			expect(peer(), "far::add", FAR_ARGS(1, 1), NULL, FAR_OK);
		CHECK_STATUS(status, FAR_OK, &e);
	}
	for (int i = 0; i < BATCH; i++) {
		enum far_status status =
			far_msg_oneway(calls.agent, peer(), M_POST, payload, draw_size(seed), NULL, &e);
		if (status != FAR_BUSY)
			CHECK_STATUS(status, FAR_OK, &e);
	}
	CHECK_STATUS(far_future_wait(t.all, 0, NULL, &e), FAR_OK, &e);
	far_future_free(t.all);
	mine()->n += BATCH;
	mine()->messages += BATCH;
}

static void nested_calls(uint64_t *seed)
{
	int32_t depth = (int32_t)draw(seed, DEPTH_MAX), got = -1;
	struct far_val out = {0};
	struct far_err e;
	CHECK_STATUS(far_rpc_sync_to(calls.agent, peer(), "clean::nest", FAR_ARGS(depth), NULL, &out, &e), FAR_OK, &e);
	CHECK(out.u.i == depth);
	CHECK_STATUS(far_msg_call(calls.agent, peer(), M_NEST, &depth, sizeof depth, NULL, &got, sizeof got, NULL, &e),
		     FAR_OK, &e);
	CHECK(got == depth);
	mine()->n += 2;
	mine()->nested += 2;
}

static void free_all(struct far_future *const *f, size_t n)
{
	for (size_t i = 0; i < n; i++)
		far_future_free(f[i]);
}

static enum far_status add_one(struct far_future *parent, struct far_val *out, struct far_err *err, void *user)
{
	enum far_status status = far_future_value(parent, out, err);
	out->u.i++;
	return status;
}

static void several(uint64_t *seed)
{
	struct far_future *f[BATCH], *child, *all, *first;
	struct far_val out = {0};
	struct far_err e;
	size_t index;
	for (int i = 0; i < BATCH; i++)
		f[i] = begin(draw_place(seed), i % 3 ? "far::add" : "clean::block", FAR_ARGS(i, 1), NULL);
	CHECK_STATUS(far_future_then(f[1], add_one, NULL, &child, &e), FAR_OK, &e);
	CHECK_STATUS(far_future_collect(f, BATCH, &all, &e), FAR_OK, &e);
	CHECK_STATUS(far_future_collect_any(f, BATCH, &first, &e), FAR_OK, &e);
	CHECK_STATUS(far_future_wait_any(f, BATCH, 0, &index, &e), FAR_OK, &e);
	CHECK_STATUS(far_future_wait_all(f, BATCH, 0, &e), FAR_OK, &e);
	CHECK_STATUS(far_future_wait(all, 0, NULL, &e), FAR_OK, &e);
	CHECK_STATUS(far_future_wait(first, 0, NULL, &e), FAR_OK, &e);
	CHECK_STATUS(far_future_wait(child, 0, &out, &e), FAR_OK, &e);
	CHECK(out.u.i == 3);
	free_all((struct far_future *[]){child, all, first}, 3);
	free_all(f, BATCH);
	mine()->n += BATCH;
	mine()->typed += BATCH;
}

static void fan_outs(uint64_t *seed)
{
	struct far_target targets[BATCH] = {0};
	float in[2] = {1, 2}, out[BATCH][2];
	struct far_tensor t = far_tensor_1d(FAR_F32, in, 2);
	struct far_fanout_opts opts = {.recv_buf = out, .slice_bytes = sizeof out[0], .dtype = FAR_F32};
	struct far_future *f;
	struct far_err e;
	for (int i = 0; i < BATCH; i++)
		targets[i].to = draw_place(seed);
	CHECK_STATUS(far_rpc_fanout(calls.agent, "far::add", FAR_ARGS(&t, &t), targets, BATCH, &opts, NULL, &f, &e),
		     FAR_OK, &e);
	CHECK_STATUS(far_future_wait(f, 0, NULL, &e), FAR_OK, &e);
	CHECK(out[BATCH - 1][1] > 3);
	far_future_free(f);
	mine()->n += BATCH;
	mine()->typed += BATCH;
}

static void deferred_calls(uint64_t *seed)
{
	struct far_future *f[3];
	struct tally t = {.left = 1};
	struct far_err e;
	for (int i = 0; i < 3; i++)
		f[i] = begin(peer(), "clean::later", FAR_NOARGS, NULL);
	if (draw(seed, 2)) { /* a wait that is tried again */
		enum far_status status = far_future_wait(f[0], FAR_US, NULL, &e);
		CHECK(status == FAR_PENDING || status == FAR_OK);
	}
	CHECK_STATUS(far_future_create(&t.all, &e), FAR_OK, &e);
	enum far_status status = far_msg_send(calls.agent, peer(), M_LATER, payload, 4, NULL, on_answer, &t, &e);
	if (status != FAR_BUSY)
		CHECK_STATUS(status, FAR_OK, &e);
	expect(peer(), "clean::flush", FAR_NOARGS, NULL, FAR_OK);
	CHECK_STATUS(far_future_wait_all(f, 3, 0, &e), FAR_OK, &e);
	if (status != FAR_BUSY)
		CHECK_STATUS(far_future_wait(t.all, 0, NULL, &e), FAR_OK, &e);
	far_future_free(t.all);
	free_all(f, 3);
	mine()->n += 4;
	mine()->deferred += 4;
}

static void cancelled_calls(uint64_t *seed)
{
	struct far_future *f[2] = {begin(peer(), "clean::never", FAR_NOARGS, NULL),
				   begin(peer(), "clean::waits", FAR_NOARGS, NULL)};
	struct far_err e;
	if (draw(seed, 2))
		expect(peer(), "far::add", FAR_ARGS(1, 1), NULL, FAR_OK);
	for (int i = 0; i < 2; i++) {
		CHECK_STATUS(far_future_cancel(f[i], &e), FAR_OK, &e);
		CHECK_STATUS(far_future_wait(f[i], 0, NULL, &e), FAR_CANCELLED, &e);
	}
	free_all(f, 2);
	mine()->n += 2;
	mine()->cancelled += 2;
}

static void timed_out_calls(uint64_t *seed)
{
	static const uint64_t limits[] = {FAR_US, 20 * FAR_US, 300 * FAR_US, 3 * FAR_MS};
	struct far_call_opts soon = {.timeout_ns = limits[draw(seed, 4)]};
	expect(peer(), draw(seed, 2) ? "clean::never" : "clean::waits", FAR_NOARGS, &soon, FAR_TIMEOUT);
	mine()->timed_out++;
}

static void failed_calls(uint64_t *seed)
{
	struct far_err e;
	expect(peer(), "clean::fails", FAR_ARGS((int)draw(seed, 9)), NULL, FAR_REMOTE);
	expect(peer(), calls.rank ? "clean::only1" : "clean::only0", FAR_NOARGS, NULL, FAR_NO_FUNCTION);
	expect(peer(), "clean::unheard_of", FAR_NOARGS, NULL, FAR_NO_FUNCTION);
	expect(peer(), "clean::fails", FAR_ARGS("text"), NULL, FAR_BAD_ARGS);
	expect((struct far_to){99, -1}, "clean::fails", FAR_ARGS(1), NULL, FAR_UNKNOWN_WORKER);
	CHECK_STATUS(far_msg_call(calls.agent, peer(), 999, payload, 8, NULL, NULL, 0, NULL, &e), FAR_NO_FUNCTION, &e);
	mine()->n++;
	mine()->failed += 6;
}

static void repeated_calls(uint64_t *seed)
{
	struct far_call_opts again = {.retry = true, .retry_after_ns = 50 * FAR_US};
	struct far_call_opts in_vain = {.retry = true, .retry_after_ns = 100 * FAR_US, .timeout_ns = FAR_MS};
	struct far_val sent = far_bytes(payload, draw_size(seed));
	for (int i = 0; i < 3; i++)
		expect(peer(), "clean::echo", FAR_ARGS(sent), &again, FAR_OK);
	if (draw(seed, 8) == 0)
		expect(peer(), "clean::never", FAR_NOARGS, &in_vain, FAR_TIMEOUT);
	mine()->repeated += 3;
}

/* As many futures alive at once as were never made before the thread was watched. */
static void many_futures(void)
{
	static struct far_future *of_shards[CALLS_SHARDS_MAX][MORE_FUTURES];
	struct far_future **f = of_shards[far_shard_of_thread(calls.agent)];
	struct far_err e;
	for (int i = 0; i < MORE_FUTURES; i++)
		CHECK_STATUS(far_future_create(&f[i], &e), FAR_OK, &e);
	for (int i = 0; i < MORE_FUTURES; i++) {
		CHECK_STATUS(far_future_set_value(f[i], NULL, &e), FAR_OK, &e);
		far_future_free(f[i]);
	}
}

HANDLER(drive)
{
	static void (*const kinds[])(uint64_t *) = {
		typed_calls,   value_calls,    typed_calls,  typed_calls,    message_calls, message_calls,
		message_calls, sends,          sends,        nested_calls,   nested_calls,  several,
		fan_outs,      deferred_calls, failed_calls, repeated_calls,
	};
	uint64_t seed = (uint64_t)args[0].u.i * UINT64_C(0x9E3779B97F4A7C15) + 1;
	CHECK(watched());
	many_futures();
	while (mine()->n < calls.goal) {
		uint64_t x = draw(&seed, 256);
		if (x == 0)
			timed_out_calls(&seed);
		else if (x < 8)
			cancelled_calls(&seed);
		else
			kinds[x % (sizeof kinds / sizeof *kinds)](&seed);
		CHECK(watched());
	}
	return far_return(req, NULL);
}

/* ---- the list ---- */

/* clang-format off */
#define FUNCTIONS(only) \
	{"clean::arm() -> none", FAR_KIND_INLINE, calls_arm, NULL}, \
	{"clean::stage() -> int", FAR_KIND_INLINE, calls_stage, NULL}, \
	{"clean::end() -> none", FAR_KIND_INLINE, calls_end, NULL}, \
	{"clean::echo(bytes b) -> bytes", FAR_KIND_INLINE, echo, NULL}, \
	{"clean::echo_fiber(bytes b) -> bytes", FAR_KIND_FIBER, echo, NULL}, \
	{"clean::nest(int depth) -> int", FAR_KIND_FIBER, nest, NULL}, \
	{"clean::later() -> int", FAR_KIND_INLINE, later, NULL}, \
	{"clean::never() -> none", FAR_KIND_INLINE, never, NULL}, \
	{"clean::flush() -> none", FAR_KIND_INLINE, flush, NULL}, \
	{"clean::fails(int x) -> none", FAR_KIND_INLINE, fails, NULL}, \
	{"clean::waits() -> none", FAR_KIND_FIBER, waits, NULL}, \
	{"clean::tensor(int n) -> Tensor", FAR_KIND_INLINE, tensor, NULL}, \
	{"clean::any(Any x) -> Any", FAR_KIND_INLINE, echo, NULL}, \
	{"clean::any_fiber(Any x) -> Any", FAR_KIND_FIBER, echo, NULL}, \
	{"clean::scaled(float x, float by=2.0) -> float", FAR_KIND_INLINE, scaled, NULL}, \
	{"clean::over(int x) -> int", FAR_KIND_INLINE, echo, NULL}, \
	{"clean::over(str x) -> str", FAR_KIND_INLINE, echo, NULL}, \
	{"clean::block(int x, int y) -> int", FAR_KIND_BLOCKING, block, NULL}, \
	{"clean::drive(int seed) -> none", FAR_KIND_FIBER, drive, NULL}, \
	{only, FAR_KIND_INLINE, fails, NULL}
/* clang-format on */

void calls_handlers(int rank, struct far_opts *opts)
{
	static const struct far_function functions[2][CALLS_FUNCTIONS] = {{FUNCTIONS("clean::only0() -> none")},
									  {FUNCTIONS("clean::only1() -> none")}};
	static const struct far_msg_handler messages[CALLS_MESSAGES] = {
		{M_ECHO, FAR_KIND_INLINE, echo_message, NULL},   {M_ECHO_FIBER, FAR_KIND_FIBER, echo_message, NULL},
		{M_NEST, FAR_KIND_FIBER, nest_message, NULL},    {M_LATER, FAR_KIND_INLINE, later_message, NULL},
		{M_ALLOC, FAR_KIND_INLINE, alloc_message, NULL}, {M_POST, FAR_KIND_INLINE, post_message, NULL},
	};
	opts->functions = functions[rank];
	opts->functions_n = CALLS_FUNCTIONS;
	opts->messages = messages;
	opts->messages_n = CALLS_MESSAGES;
}
