/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Requests of typed calls and methods whose lines are changed after they were written, as a peer may: the callee takes
 * none by the fast path that the general code would refuse, and answers as that does. Two agents in one process,
 * stepped by turns. And what a fan-out whose answers go straight into the application's memory must not write there.
 * Main thread of each process; handlers on shard threads.
 */
#include "api_together.h"

#include "agent/agent.h"
#include "base/hash.h"
#include "core/fast.h"
#include "core/plan.h"

static struct together ends[2];
static struct far_err err;
static int ran, made, destroyed;

/* ---- the callee's ---- */

static enum far_status make(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	static int objects[16];
	int *object = &objects[made % 16];
	*object = ++made;
	return far_return_object(req, object);
}

static enum far_status broken(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_fail(req, FAR_REMOTE, 7, "no cell");
}

static void destroy(void *object, void *user)
{
	destroyed++;
}

/* An object that the callee names itself. */
static enum far_status give(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_rref *r;
	struct far_err e;
	CHECK_STATUS(far_remote_to(far_req_agent(req), (struct far_to){1, -1}, "t::Cell", FAR_NOARGS, NULL, &r, &e),
		     FAR_OK, &e);
	struct far_val out = far_rref_val(r);
	enum far_status status = far_return(req, &out);
	far_rref_free(r);
	return status;
}

static enum far_status which(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	struct far_val out = far_int(*(int *)object);
	return far_return(req, &out);
}

static struct far_deferred *kept;

static enum far_status keep(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_defer(req, &kept);
}

/* A fiber: it may wait. */
static enum far_status waits(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_err e;
	struct far_val v, out = far_int(++ran);
	CHECK_STATUS(
		far_rpc_sync_to(far_req_agent(req), (struct far_to){1, -1}, "far::add", FAR_ARGS(1, 2), NULL, &v, &e),
		FAR_OK, &e);
	return far_return(req, &out);
}

static enum far_status add(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	struct far_val out = far_int(++ran);
	CHECK(n == 2 && object && far_req_rref(req));
	return far_return(req, &out);
}

static enum far_status add_waiting(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	return waits(req, args, n, user);
}

static enum far_status plain(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val out = far_int(++ran);
	CHECK(!far_req_rref(req));
	return far_return(req, &out);
}

static enum far_status whole(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	CHECK(args[0].type == FAR_TYPE_INT && args[1].type == FAR_TYPE_INT);
	return plain(req, args, n, user);
}

/* Worker 1 answers late, worker 0 at once. */
static bool prompt; /* it is answered at once by both */
static enum far_status slow(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_req_agent(req) == ends[1].agent && !prompt ? far_defer(req, &kept) : far_return(req, &args[0]);
}

#define LONG_NAME "t::one_of_a_long_name"

static const struct far_method cell_methods[] = {
	{"add(Tensor a, Tensor b) -> int", FAR_KIND_INLINE, add, NULL},
	{"fiber(Tensor a, Tensor b) -> int", FAR_KIND_FIBER, add_waiting, NULL},
	{"which(Tensor a, Tensor b) -> int", FAR_KIND_INLINE, which, NULL}};
static const struct far_method other_methods[] = {{"add(Tensor a, Tensor b) -> int", FAR_KIND_INLINE, add, NULL}};
static const struct far_function cell_makes[] = {{"t::Cell() -> t::Cell", FAR_KIND_INLINE, make, NULL},
						 {"t::broken() -> t::Cell", FAR_KIND_INLINE, broken, NULL},
						 {"t::big(Tensor a) -> t::Cell", FAR_KIND_INLINE, make, NULL},
						 {"t::absent() -> t::Cell", FAR_KIND_INLINE, make, NULL}};
static char other_class[16], other_signature[40];
static const struct far_function other_make = {other_signature, FAR_KIND_INLINE, make, NULL};
static struct far_class classes[] = {{.name = "t::Cell",
				      .constructors = cell_makes,
				      .constructors_n = 4, /* the callee lacks the last one */
				      .methods = cell_methods,
				      .methods_n = 3,
				      .destroy = destroy},
				     {.name = other_class,
				      .constructors = &other_make,
				      .constructors_n = 1,
				      .methods = other_methods,
				      .methods_n = 1}};
static const struct far_function functions[] = {
	{"t::plain(Tensor a, Tensor b) -> int", FAR_KIND_INLINE, plain, NULL},
	{LONG_NAME "(Tensor a, Tensor b) -> int", FAR_KIND_INLINE, plain, NULL},
	{"t::slow(Tensor a, Tensor b) -> Tensor", FAR_KIND_INLINE, slow, NULL, FAR_IDEMPOTENT},
	{"t::whole(int a, int b) -> int", FAR_KIND_INLINE, whole, NULL},
	{"t::fiber(Tensor a, Tensor b) -> int", FAR_KIND_FIBER, waits, NULL},
	{"t::give() -> rref", FAR_KIND_FIBER, give, NULL},
	{"t::keep() -> none", FAR_KIND_INLINE, keep, NULL},
};

/* ---- the caller's ---- */

static const struct far_to to = {1, -1};
static float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static struct far_rref *cell, *other;

static void polls(void)
{
	for (int i = 0; i < 4; i++)
		far_shard_poll(ends[i % 2].agent);
}

/* The value of a call, an int, or minus its status. */
static int64_t result(struct far_future *f)
{
	struct far_val v;
	enum far_status status = FAR_PENDING;
	for (int i = 0; i < 1000 && status == FAR_PENDING; i++) {
		polls();
		status = far_future_value(f, &v, &err);
	}
	far_future_free(f);
	if (status)
		return -(int64_t)status;
	CHECK(v.type == FAR_TYPE_INT);
	return v.u.i;
}

static struct far_future *method(struct far_rref *r, const char *name, size_t second)
{
	struct far_tensor a = far_tensor_1d(FAR_F32, data, 2), b = far_tensor_1d(FAR_F32, data, second);
	struct far_future *f;
	CHECK_STATUS(far_rref_rpc_async(r, name, FAR_ARGS(&a, &b), NULL, &f, &err), FAR_OK, &err);
	return f;
}

static struct far_future *function(const char *name)
{
	struct far_tensor a = far_tensor_1d(FAR_F32, data, 2);
	struct far_future *f;
	CHECK_STATUS(far_rpc_async_to(ends[0].agent, to, name, FAR_ARGS(&a, &a), NULL, &f, &err), FAR_OK, &err);
	return f;
}

/* The number of a function at the callee. */
static unsigned number(const char *name)
{
	const struct function *fn = registry_find(&ends[1].agent->registry, name);
	CHECK(fn);
	return fn->index;
}

static unsigned method_number(const char *cls, const char *name)
{
	const struct registry *r = &ends[1].agent->registry;
	for (unsigned i = 0; i < FAR_FUNCTIONS_MAX; i++) {
		const struct function *fn = registry_at(r, i);
		size_t len = strlen(cls);
		if (fn && fn->method && strncmp(fn->signature.name, cls, len) == 0 &&
		    strcmp(fn->signature.name + len + 1, name) == 0)
			return i;
	}
	CHECK(!"there is such a method");
	return 0;
}

/* What a request is changed to; 0: as it was. */
struct change {
	uint32_t word; /* + 1 */
	uint32_t count;
	uint32_t len; /* + 1 */
	bool late;
};

static void changed(struct change change)
{
	struct shard *s = ends[0].agent->shards[0];
	struct nic_lane *l = s->sessions[session_index(s, 1, 0)].lane;
	struct nic_line *line = l->tx + (l->tx_next - l->tx + LANE_LINES - 1) % LANE_LINES;
	uint32_t len = l->withheld_word & LANE_LEN_MASK;
	CHECK(l->withheld == line && len > 4);
	if (change.word) {
		change.word--;
		memcpy(line->bytes, &change.word, 4);
	}
	if (change.count)
		memcpy(fast_body(line) + len - 4, &change.count, 4);
	if (change.len)
		l->withheld_word = (l->withheld_word & ~LANE_LEN_MASK) | (change.len - 1);
	if (change.late)
		memset(line->bytes + 16, 0, 8);
}

#define NAMED_METHOD    (PACKET_TYPED | PACKET_METHOD | PACKET_NAMED)
#define WORD(flags, fn) (FAST_WORD(PACKET_REQUEST, flags, fn) + 1)

static void requests(void)
{
	static const uint32_t none = 0;
	unsigned cell_add = method_number("t::Cell", "add"), other_add = method_number(other_class, "add"),
		 fiber_add = method_number("t::Cell", "fiber");
	const struct {
		struct change change;
		int status; /* 0: it runs */
	} of_method[] = {
		{{0}, 0},
		{{.word = WORD(NAMED_METHOD, cell_add)}, 0},
		{{.count = UINT32_MAX}, FAR_GONE},
		{{.word = WORD(NAMED_METHOD, other_add)}, FAR_INVALID},           /* of another class */
		{{.word = WORD(NAMED_METHOD, number("t::plain"))}, FAR_PROTOCOL}, /* no method */
		{{.word = WORD(NAMED_METHOD, number("t::Cell"))}, FAR_PROTOCOL},
		{{.word = WORD(NAMED_METHOD, 4000)}, FAR_PROTOCOL},
		{{.word = WORD(NAMED_METHOD, fiber_add)}, 0},                       /* by the general code */
		{{.word = WORD(PACKET_TYPED | PACKET_METHOD, cell_add)}, FAR_GONE}, /* its end is no object's name */
		{{.word = WORD(PACKET_TYPED, cell_add)}, FAR_GONE},
		{{.word = WORD(PACKET_TYPED | PACKET_TLV, cell_add)}, FAR_PROTOCOL},
		{{.len = 3 + 1}, FAR_PROTOCOL},
		{{.len = 0 + 1}, FAR_PROTOCOL},
		{{.late = true}, FAR_TIMEOUT},
		{{0}, 0},
	};
	const struct {
		struct change change;
		int status;
	} of_function[] = {
		{{0}, 0},
		{{.word = WORD(PACKET_TYPED, number("t::fiber"))}, 0},
		{{.word = WORD(PACKET_TYPED, number("t::whole"))}, FAR_PROTOCOL}, /* takes no tensors */
		{{.word = WORD(PACKET_TYPED, number("t::Cell"))}, FAR_INVALID},
		{{.word = WORD(NAMED_METHOD, number("t::plain"))}, FAR_PROTOCOL},
		{{.len = 27 + 1}, FAR_PROTOCOL},
		{{.late = true}, FAR_TIMEOUT},
		{{0}, 0},
	};
	for (size_t i = 0; i < sizeof of_method / sizeof *of_method; i++) {
		struct far_future *f = method(cell, "add", 2);
		int before = ran, status = of_method[i].status;
		changed(of_method[i].change);
		int64_t got = result(f);
		if (got != (status ? -status : before + 1))
			fprintf(stderr, "method, change %zu: %d, %s\n", i, (int)got, got < 0 ? err.text : "");
		CHECK(got == (status ? -status : before + 1) && ran == before + !status);
	}
	/* Without a name: what its count says lies elsewhere. */
	struct far_future *f = method(cell, "add", 2);
	struct shard *s = ends[0].agent->shards[0];
	struct nic_lane *l = s->sessions[session_index(s, 1, 0)].lane;
	memcpy(fast_body(l->withheld) + 28, &none, 4);
	CHECK(result(f) == -FAR_PROTOCOL);
	for (size_t i = 0; i < sizeof of_function / sizeof *of_function; i++) {
		f = function("t::plain");
		int before = ran, status = of_function[i].status;
		changed(of_function[i].change);
		int64_t got = result(f);
		if (got != (status ? -status : before + 1))
			fprintf(stderr, "function, change %zu: %d, %s\n", i, (int)got, got < 0 ? err.text : "");
		CHECK(got == (status ? -status : before + 1) && ran == before + !status);
	}
}

/* Methods by the general code: what fills a line alone has no room for the object's name. */
static void on_message(struct far_req *req, const void *bytes, size_t len, void *user)
{
	ran++;
	far_reply(req, bytes, len);
}

static void on_answer(enum far_status status, const void *bytes, size_t len, const struct far_err *e, void *user)
{
	*(int *)user = status;
}

static void messages_with_and_without_time(void)
{
	for (int late = 0; late < 2; late++) {
		int before = ran, status = -1;
		CHECK_STATUS(far_msg_send(ends[0].agent, to, 3, data, 8, NULL, on_answer, &status, &err), FAR_OK, &err);
		changed((struct change){.late = late});
		while (status < 0)
			polls();
		CHECK(status == (late ? FAR_TIMEOUT : FAR_OK) && ran == before + !late);
	}
}

static void methods(void)
{
	for (int i = 0; i < 3; i++) {
		int before = ran;
		CHECK(result(method(cell, "add", 2)) == before + 1);
		CHECK(result(method(cell, "add", 3)) == before + 2);
		CHECK(result(method(other, "add", 2)) == before + 3);
		CHECK(result(method(cell, "fiber", 2)) == before + 4);
		/* Both in one burst, each with its own. */
		struct far_future *f = method(cell, "add", 3), *g = method(cell, "add", 2);
		CHECK(result(f) == before + 5 && result(g) == before + 6);
	}
	/* A value has no methods, also none that are functions of that name. */
	struct far_tensor t = far_tensor_1d(FAR_F32, data, 2);
	struct far_rref *value;
	struct far_future *f;
	CHECK_STATUS(far_remote_to(ends[0].agent, to, "far::add", FAR_ARGS(&t, &t), NULL, &value, &err), FAR_OK, &err);
	polls();
	CHECK(far_rref_confirmed_by_owner(value));
	CHECK_STATUS(far_rref_rpc_async(value, "t::plain", FAR_ARGS(&t, &t), NULL, &f, &err), FAR_INVALID, &err);
	far_rref_free(value);
	/* The text of a name counts, not where it lies. */
	char name[32] = "add";
	for (int i = 0; i < 2; i++)
		CHECK(result(method(cell, name, 2)) == ran);
	strcpy(name, "none");
	struct far_val v[2] = {far_tensor_val(&t), far_tensor_val(&t)};
	CHECK_STATUS(far_rref_rpc_async(cell, name, v, 2, NULL, &f, &err), FAR_NO_FUNCTION, &err);
	strcpy(name, "t::plain");
	CHECK_STATUS(far_rpc_async_to(ends[0].agent, to, name, v, 2, NULL, &f, &err), FAR_OK, &err);
	CHECK(result(f) == ran);
	static const char *const near[] = {"t::plaiN", "t::plain_", "t::plai"};
	for (size_t i = 0; i < 3; i++) {
		strcpy(name, near[i]);
		CHECK_STATUS(far_rpc_async_to(ends[0].agent, to, name, v, 2, NULL, &f, &err), FAR_NO_FUNCTION, &err);
	}
	strcpy(name, LONG_NAME);
	for (int i = 0; i < 2; i++) {
		CHECK_STATUS(far_rpc_async_to(ends[0].agent, to, name, v, 2, NULL, &f, &err), FAR_OK, &err);
		CHECK(result(f) == ran);
	}
	name[10]++;
	CHECK_STATUS(far_rpc_async_to(ends[0].agent, to, name, v, 2, NULL, &f, &err), FAR_NO_FUNCTION, &err);
}

/* An object that has another name than those that this worker gives; one that could not be made. */
static void named_otherwise(void)
{
	struct far_future *f;
	struct far_val v;
	struct far_rref *r;
	CHECK_STATUS(far_rpc_async_to(ends[0].agent, to, "t::give", FAR_NOARGS, NULL, &f, &err), FAR_OK, &err);
	for (int i = 0; i < 100; i++)
		polls();
	CHECK_STATUS(far_future_value(f, &v, &err), FAR_OK, &err);
	far_future_free(f);
	CHECK(v.type == FAR_TYPE_RREF);
	for (int i = 0; i < 3; i++) {
		CHECK(result(method(v.u.rref, "which", 2)) == made);
		CHECK(result(method(cell, "which", 2)) == 1);
	}
	far_val_fini(&v);
	CHECK_STATUS(far_remote_to(ends[0].agent, to, "t::broken", FAR_NOARGS, NULL, &r, &err), FAR_OK, &err);
	CHECK(result(method(r, "add", 2)) == -FAR_REMOTE && err.code == 7);
	far_rref_free(r);
	/* One that comes in fragments, behind its method's request. */
	static float large[1 << 20];
	struct far_tensor t = far_tensor_1d(FAR_F32, large, 1 << 20);
	CHECK_STATUS(far_remote_to(ends[0].agent, to, "t::big", FAR_ARGS(&t), NULL, &r, &err), FAR_OK, &err);
	CHECK(result(method(r, "which", 2)) == made);
	far_rref_free(r);
}

/* An object that is never made, so its owner never confirms it: its methods are not sent, or nothing would end them. */
static void never_confirmed(void)
{
	struct far_tensor t = far_tensor_1d(FAR_F32, data, 2);
	struct far_future *f;
	struct far_rref *r;
	CHECK_STATUS(far_remote_to(ends[0].agent, to, "t::absent", FAR_NOARGS, NULL, &r, &err), FAR_OK, &err);
	CHECK(result(method(r, "add", 2)) == -FAR_NO_FUNCTION);
	for (int i = 0; i < 100; i++)
		polls();
	for (int i = 0; i < 3; i++) {
		CHECK_STATUS(far_rref_rpc_async(r, "add", FAR_ARGS(&t, &t), NULL, &f, &err), FAR_NO_FUNCTION, &err);
		CHECK_TEXT(&err, "never made");
		CHECK(result(method(cell, "add", 2)) == ran);
	}
	far_rref_free(r);
}

/* A request that is kept after a method has run holds no object. */
static void kept_apart(void)
{
	struct far_rref *r;
	struct far_future *f;
	for (int i = 0; i < 100; i++)
		polls();
	CHECK_STATUS(far_remote_to(ends[0].agent, to, "t::Cell", FAR_NOARGS, NULL, &r, &err), FAR_OK, &err);
	polls();
	CHECK(result(method(r, "add", 2)) > 0);
	CHECK_STATUS(far_rpc_async_to(ends[0].agent, to, "t::keep", FAR_NOARGS, NULL, &f, &err), FAR_OK, &err);
	polls();
	CHECK(kept);
	int before = destroyed;
	far_rref_free(r);
	for (int i = 0; i < 100; i++)
		polls();
	CHECK(destroyed == before + 1);
	struct far_val out = far_none();
	CHECK_STATUS(far_deferred_return(kept, &out), FAR_OK, &err);
	for (int i = 0; i < 100; i++)
		polls();
	CHECK_STATUS(far_future_value(f, NULL, &err), FAR_OK, &err);
	far_future_free(f);
}

/* A handle that is freed while a method runs: the object outlives the request. */
static void freed(void)
{
	struct far_rref *r;
	CHECK_STATUS(far_remote_to(ends[0].agent, to, "t::Cell", FAR_NOARGS, NULL, &r, &err), FAR_OK, &err);
	polls();
	struct far_future *f = method(r, "add", 2), *g = method(r, "fiber", 2);
	far_rref_free(r);
	CHECK(result(f) > 0 && result(g) > 0);
}

/* ---- fan-outs ---- */

enum { TARGETS = 4 };

/* Status of a fan-out of doubles into slices of a few bytes. Nothing is written beyond the slices. */
static int fanned(enum far_dtype dtype, size_t slice, const float *expected)
{
	struct far_target targets[TARGETS] = {{.to = to}, {.to = to}, {.to = to}, {.to = to}};
	uint8_t out[TARGETS * 16];
	struct far_fanout_opts opts = {.recv_buf = out, .slice_bytes = slice, .dtype = dtype};
	struct far_tensor t = far_tensor_1d(FAR_F32, data, 2);
	struct far_future *f;
	memset(out, 0xee, sizeof out);
	CHECK_STATUS(
		far_rpc_fanout(ends[0].agent, "far::add", FAR_ARGS(&t, &t), targets, TARGETS, &opts, NULL, &f, &err),
		FAR_OK, &err);
	int64_t got = result(f);
	for (size_t i = 0; i < TARGETS; i++)
		CHECK(!expected || memcmp(out + i * slice, expected, 8) == 0);
	for (size_t i = expected ? TARGETS * slice : 0; i < sizeof out; i++)
		CHECK(out[i] == 0xee);
	return (int)got;
}

static void fan_outs(void)
{
	static const float sum[2] = {2, 4};
	for (int i = 0; i < 3; i++) {
		CHECK(fanned(FAR_F32, 8, sum) == TARGETS);
		CHECK(fanned(FAR_DTYPE_NONE, 8, sum) == TARGETS);
		CHECK(fanned(FAR_F64, 8, NULL) == -FAR_PROTOCOL);
		CHECK(fanned(FAR_F32, 7, NULL) == -FAR_TOO_LARGE);
	}
}

/* A target with arguments of its own, which fails, among others: all end, and then the fan-out. */
static void fan_out_mixed(void)
{
	struct far_tensor t = far_tensor_1d(FAR_F32, data, 2), longer = far_tensor_1d(FAR_F32, data, 3);
	const struct far_val own[2] = {far_tensor_val(&t), far_tensor_val(&longer)},
			     good[2] = {far_tensor_val(&longer), far_tensor_val(&longer)};
	struct far_fanout_opts opts = {.errors = FAR_ERRORS_COLLECT};
	for (int i = 0; i < 2; i++) {
		float out[TARGETS][4] = {{0}};
		struct far_target targets[TARGETS];
		struct far_future *f;
		for (int k = 0; k < TARGETS; k++)
			targets[k] = (struct far_target){.to = to, .recv_buf = out[k], .cap = sizeof out[k]};
		targets[0].args = own;
		targets[1].args = good;
		targets[0].args_n = targets[1].args_n = 2;
		CHECK_STATUS(far_rpc_fanout(ends[0].agent, "far::add", FAR_ARGS(&t, &t), targets, TARGETS, &opts, NULL,
					    &f, &err),
			     FAR_OK, &err);
		CHECK(result(f) == -FAR_BAD_ARGS);
		CHECK(out[0][0] == 0 && out[1][2] == 2 * data[2] && out[2][1] == 2 * data[1] && out[2][2] == 0);
	}
}

/* A common request that fills more than a line; one that is hedged. */
static void fan_outs_apart(void)
{
	static float many[100];
	struct far_tensor t = far_tensor_1d(FAR_F32, many, 100), pair = far_tensor_1d(FAR_F32, data, 2);
	static const struct far_to second = {0, -1};
	struct far_target target = {.to = to, .second = &second};
	struct far_fanout_opts opts = {.hedge_after_ns = FAR_MS, .hedge = FAR_HEDGE_SECOND};
	struct far_future *f;
	prompt = true; /* its number is known from then on */
	CHECK_STATUS(far_rpc_fanout(ends[0].agent, "t::slow", FAR_ARGS(&pair, &pair), &target, 1, NULL, NULL, &f, &err),
		     FAR_OK, &err);
	CHECK(result(f) == 1);
	prompt = false;
	for (int i = 0; i < 2; i++) {
		CHECK_STATUS(
			far_rpc_fanout(ends[0].agent, "far::add", FAR_ARGS(&t, &t), &target, 1, NULL, NULL, &f, &err),
			FAR_OK, &err);
		CHECK(result(f) == 1);
		CHECK_STATUS(far_rpc_fanout(ends[0].agent, "t::slow", FAR_ARGS(&pair, &pair), &target, 1, &opts, NULL,
					    &f, &err),
			     FAR_OK, &err);
		while (far_future_value(f, NULL, &err) == FAR_PENDING)
			polls();
		CHECK(result(f) == 1);
		far_deferred_drop(kept);
	}
}

/* Names the other class so that the call sites of a method of both meet. */
static void name_other(void)
{
	uint64_t first = hash64("t::Cell", 7), other_hash;
	for (int i = 0;; i++) {
		snprintf(other_class, sizeof other_class, "t::O%d", i);
		other_hash = hash64(other_class, strlen(other_class));
		if ((first ^ other_hash) % SHARD_SITES == 0)
			break;
	}
	snprintf(other_signature, sizeof other_signature, "%s() -> %s", other_class, other_class);
}

int main(void)
{
	const struct far_msg_handler message = {.id = 3, .kind = FAR_KIND_INLINE, .fn = on_message};
	name_other();
	alarm(HANG_GUARD_S);
	together_listen();
	for (int i = 0; i < 2; i++)
		ends[i] = (struct together){.rank = i,
					    .world = 2,
					    .opts = {.functions = functions,
						     .functions_n = sizeof functions / sizeof *functions,
						     .classes = classes,
						     .classes_n = 2,
						     .messages = &message,
						     .messages_n = 1}};
	struct far_class fewer[] = {classes[0], classes[1]};
	fewer[0].constructors_n = 3;
	ends[1].opts.classes = fewer;
	together_all(ends, 2, together_join);
	for (int i = 0; i < 2; i++)
		CHECK_STATUS(far_shard_acquire(ends[1 - i].agent, 0, &err), FAR_OK, &err);
	CHECK_STATUS(far_remote_to(ends[0].agent, to, "t::Cell", FAR_NOARGS, NULL, &cell, &err), FAR_OK, &err);
	CHECK_STATUS(far_remote_to(ends[0].agent, to, other_class, FAR_NOARGS, NULL, &other, &err), FAR_OK, &err);
	for (int i = 0; i < 100; i++)
		polls();
	for (int i = 0; i < 2; i++) /* the first calls of a function transfer its number */
		CHECK(result(function("t::plain")) == ran);
	methods();
	requests();
	named_otherwise();
	never_confirmed();
	kept_apart();
	freed();
	fan_outs();
	fan_out_mixed();
	fan_outs_apart();
	messages_with_and_without_time();
	far_rref_free(cell);
	far_rref_free(other);
	for (int i = 0; i < 100; i++)
		polls();
	for (int i = 0; i < 2; i++)
		far_shard_release(ends[1 - i].agent);
	together_all(ends, 2, together_leave);
	return 0;
}
