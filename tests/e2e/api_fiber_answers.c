/* SPDX-License-Identifier: BSD-3-Clause */
/** How handlers that wait answer: before, after and instead of a wait, with much or nothing; on fibers and on threads.
 */
#include "api_gate.h"

enum { BIG = 1 << 18 /* floats: 1 MiB */, MSG_FIBER = 1, MSG_BLOCKING, CROWD = 20 };

static struct far_agent *agent;
static struct far_err err;
static const char *me;

#define EXPECT(condition)                                                                                              \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			return far_fail(req, FAR_REMOTE, __LINE__, "%s does not hold", #condition);                    \
	} while (0)

/* A wait that ends when the gate of this worker is opened. */
static enum far_status pass_gate(struct far_req *req)
{
	struct far_err e;
	struct far_val out = {0};
	return far_rpc_sync(far_req_agent(req), me, "gate::wait", FAR_NOARGS, NULL, &out, &e);
}

/* A short wait. */
static enum far_status turn(struct far_req *req)
{
	struct far_err e;
	struct far_val out = {0};
	enum far_status status = far_rpc_sync(far_req_agent(req), me, "far::add", FAR_ARGS(1, 2), NULL, &out, &e);
	if (status)
		far_err_print(stderr, &e);
	return status;
}

static void *answer_later(void *deferred)
{
	struct far_val v = far_int(5);
	usleep(1000);
	CHECK(far_deferred_return(deferred, &v) == FAR_OK);
	return NULL;
}

static enum far_status hand_over(struct far_deferred *d)
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, answer_later, d) == 0);
	return pthread_detach(thread) ? FAR_SYSTEM : FAR_OK;
}

/* ---- the ways ---- */

enum way {
	DEFERS_AFTER,
	DEFERS_BEFORE,
	DEFERS_HERE,
	ANSWERS_BEFORE,
	ANSWERS_TWICE,
	FAILS_AFTER,
	FAILS_BEFORE,
	STATUS_AFTER,
	NOTHING_AFTER,
	DROPS_AFTER,
	WRONG_TYPE,
	WAYS
};

static enum far_status in_way(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_deferred *d = NULL;
	struct far_val v = far_int(5), wrong = far_str("no int");
	switch ((enum way)args[0].u.i) {
	case DEFERS_AFTER:
		EXPECT(turn(req) == FAR_OK && far_defer(req, &d) == FAR_OK);
		CHECK(far_return(req, &v) == FAR_INVALID && far_defer(req, &d) == FAR_INVALID);
		return hand_over(d);
	case DEFERS_BEFORE:
		EXPECT(far_defer(req, &d) == FAR_OK);
		CHECK(turn(req) == FAR_OK && turn(req) == FAR_OK);
		return hand_over(d);
	case DEFERS_HERE:
		EXPECT(turn(req) == FAR_OK && far_defer(req, &d) == FAR_OK);
		CHECK(turn(req) == FAR_OK && far_deferred_return(d, &v) == FAR_OK && turn(req) == FAR_OK);
		return FAR_OK;
	case ANSWERS_BEFORE:
		CHECK(far_return(req, &v) == FAR_OK && pass_gate(req) == FAR_OK);
		return FAR_OK;
	case ANSWERS_TWICE:
		CHECK(far_return(req, &v) == FAR_OK && turn(req) == FAR_OK);
		CHECK(far_return(req, &v) == FAR_INVALID && far_fail(req, FAR_REMOTE, 0, "no") == FAR_INVALID);
		CHECK(far_defer(req, &d) == FAR_INVALID);
		return FAR_REMOTE; /* without effect: it has answered */
	case FAILS_AFTER:
		EXPECT(turn(req) == FAR_OK);
		return far_fail(req, FAR_BAD_ARGS, 17, "after a wait");
	case FAILS_BEFORE:
		CHECK(far_fail(req, FAR_BAD_ARGS, 17, "after a wait") == FAR_OK && turn(req) == FAR_OK);
		return FAR_OK;
	case STATUS_AFTER:
		EXPECT(turn(req) == FAR_OK);
		return FAR_BUSY;
	case DROPS_AFTER:
		EXPECT(turn(req) == FAR_OK && far_defer(req, &d) == FAR_OK);
		far_deferred_drop(d);
		return FAR_OK;
	case WRONG_TYPE:
		EXPECT(turn(req) == FAR_OK);
		return far_return(req, &wrong);
	default:
		EXPECT(turn(req) == FAR_OK);
		return FAR_OK;
	}
}

static void expect_way(const char *fn, enum way way, enum far_status want, const char *text)
{
	struct far_val out = {0};
	CHECK_STATUS(far_rpc_sync(agent, "worker1", fn, FAR_ARGS((int)way), NULL, &out, &err), want, &err);
	if (want == FAR_OK) {
		CHECK(out.u.i == 5);
		return;
	}
	CHECK(err.executed == FAR_EXECUTED_YES && strcmp(err.origin, "worker1") == 0);
	CHECK_TEXT(&err, text);
}

static void ways(const char *fn)
{
	expect_way(fn, DEFERS_AFTER, FAR_OK, "");
	expect_way(fn, DEFERS_BEFORE, FAR_OK, "");
	expect_way(fn, DEFERS_HERE, FAR_OK, "");
	expect_way(fn, ANSWERS_TWICE, FAR_OK, "");
	expect_way(fn, FAILS_AFTER, FAR_BAD_ARGS, "after a wait");
	CHECK(err.code == 17);
	expect_way(fn, FAILS_BEFORE, FAR_BAD_ARGS, "after a wait");
	expect_way(fn, STATUS_AFTER, FAR_BUSY, fn);
	expect_way(fn, NOTHING_AFTER, FAR_REMOTE, "without an answer");
	expect_way(fn, DROPS_AFTER, FAR_REMOTE, "dropped");
	expect_way(fn, WRONG_TYPE, FAR_SIGNATURE, "returned a str");
}

/* A fiber's answer leaves at its next wait, a long one too. */
static void early(void)
{
	struct far_future *f[CROWD];
	for (int i = 0; i < CROWD; i++)
		CHECK_STATUS(far_rpc_async(agent, "worker1", "t::fiber_way", FAR_ARGS((int)ANSWERS_BEFORE), NULL, &f[i],
					   &err),
			     FAR_OK, &err);
	CHECK_STATUS(far_future_wait_all(f, CROWD, 0, &err), FAR_OK, &err);
	for (int i = 0; i < CROWD; i++)
		far_future_free(f[i]);
	gate_await(agent, "worker1", CROWD);
	CHECK(query(agent, "worker1", "gate::open", FAR_ARGS(0)) == CROWD);
	gate_await(agent, "worker1", 0);
}

/* ---- big ones ---- */

/* What came with the request is still there after other requests have come and gone. */
static enum far_status scale(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const struct far_tensor *in = &args[0].u.t;
	float *data;
	EXPECT(n == 4 && far_tensor_count(in) == BIG);
	EXPECT(pass_gate(req) == FAR_OK);
	EXPECT(strcmp(args[2].u.s.data, "some text") == 0 && args[2].u.s.len == 9);
	EXPECT(strcmp(args[3].u.s.data, "") == 0);
	const float *from = in->data;
	EXPECT(far_return_tensor(req, FAR_F32, 1, in->shape, (void **)&data) == FAR_OK);
	for (size_t i = 0; i < BIG; i++)
		data[i] = from[i] * (float)args[1].u.f;
	if (user) /* what is written before the wait is sent */
		CHECK(turn(req) == FAR_OK);
	return FAR_OK;
}

static void big(const char *fn)
{
	static float data[4][BIG];
	struct far_future *f[4];
	for (int k = 0; k < 4; k++) {
		for (size_t i = 0; i < BIG; i++)
			data[k][i] = (float)((i + (size_t)k * 1000) % 4096);
		struct far_tensor t = far_tensor_1d(FAR_F32, data[k], BIG);
		CHECK_STATUS(
			far_rpc_async(agent, "worker1", fn, FAR_ARGS(&t, k + 2, "some text", ""), NULL, &f[k], &err),
			FAR_OK, &err);
	}
	gate_await(agent, "worker1", 4);
	query(agent, "worker1", "gate::open", FAR_ARGS(0));
	for (int k = 0; k < 4; k++) {
		struct far_val out = {0};
		CHECK_STATUS(far_future_wait(f[k], 0, &out, &err), FAR_OK, &err);
		CHECK(far_tensor_count(&out.u.t) == BIG);
		const float *got = out.u.t.data;
		for (size_t i = 0; i < BIG; i++)
			CHECK(got[i] == data[k][i] * (float)(k + 2));
		far_val_fini(&out);
		far_future_free(f[k]);
	}
}

/* Turns the bytes round, in place, after a wait; of none, one byte. */
static void turn_round(struct far_req *req, const void *data, size_t len, void *user)
{
	char *at;
	CHECK(turn(req) == FAR_OK);
	enum far_status status = far_reply_alloc(req, len ? len : 1, (void **)&at);
	if (status) {
		far_fail(req, status, 0, "no room");
		return;
	}
	at[0] = 'n';
	for (size_t i = 0; i < len; i++)
		at[i] = ((const char *)data)[len - 1 - i];
	CHECK(len > 0 || !data);
}

static void sizes(uint16_t id)
{
	static const size_t lengths[] = {0, 1, 31, 32, 33, 64, 65, 1000, 4096, 100000, FAR_MSG_EAGER_MAX};
	static char data[FAR_MSG_EAGER_MAX], reply[FAR_MSG_EAGER_MAX];
	for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
		size_t len = lengths[k], got = 0;
		for (size_t i = 0; i < len; i++)
			data[i] = (char)(i * 7 + k);
		CHECK_STATUS(far_msg_call(agent, (struct far_to){1, -1}, id, data, len, NULL, reply, sizeof reply, &got,
					  &err),
			     FAR_OK, &err);
		CHECK(got == (len ? len : 1) && (len || reply[0] == 'n'));
		for (size_t i = 0; i < len; i++)
			CHECK(reply[i] == data[len - 1 - i]);
	}
}

static int worker(int rank)
{
	static const struct far_function functions[] = {
		{"t::fiber_way(int way) -> int", FAR_KIND_FIBER, in_way, NULL},
		{"t::blocking_way(int way) -> int", FAR_KIND_BLOCKING, in_way, NULL},
		{"t::fiber_scale(Tensor t, float by, str a, str b) -> Tensor", FAR_KIND_FIBER, scale, NULL},
		{"t::fiber_early(Tensor t, float by, str a, str b) -> Tensor", FAR_KIND_FIBER, scale, &agent},
		{"t::blocking_scale(Tensor t, float by, str a, str b) -> Tensor", FAR_KIND_BLOCKING, scale, NULL},
		GATE_FUNCTIONS,
	};
	static const struct far_msg_handler messages[] = {
		{MSG_FIBER, FAR_KIND_FIBER, turn_round, NULL},
		{MSG_BLOCKING, FAR_KIND_BLOCKING, turn_round, NULL},
	};
	me = rank ? "worker1" : "worker0";
	agent = join_mode((struct far_opts){.functions = functions,
					    .functions_n = sizeof functions / sizeof *functions,
					    .messages = messages,
					    .messages_n = 2});
	if (rank == 0) {
		ways("t::fiber_way");
		ways("t::blocking_way");
		early();
		big("t::fiber_scale");
		big("t::fiber_early");
		big("t::blocking_scale");
		sizes(MSG_FIBER);
		sizes(MSG_BLOCKING);
		query(agent, "worker1", "gate::open", FAR_ARGS(0));
	}
	struct far_counters c;
	far_counters_read(agent, &c);
	CHECK(c.packets_dropped == 0);
	check_leave(agent);
	return 0;
}

int main(void)
{
	return spawn_modes(2, worker, -1);
}
