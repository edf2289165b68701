/* SPDX-License-Identifier: BSD-3-Clause */
/* run: -n 2. Main thread of each process; handlers on shard threads. */
/** Interceptors: fields with calls of every mode and size, handlers of every kind, flows, refusals. */
#include "check.h"

#include <farcall/intercept.h>
#include <stdatomic.h>

enum { ID_MSG = 1, ID_FIBER, ID_BLOCKING, ID_ONEWAY };
enum { TYPE = 0x200, TYPE_BACK, TYPE_PLAIN, LARGE = 17 << 20 };

static struct far_agent *agent;
static struct far_err err;
static _Atomic uint64_t number; /* sent with the next call */
static _Atomic uint64_t outs, ins, ends, overs, replies_out, replies_in, errors_in, args_seen, values_seen;
static _Atomic uint64_t oneway_seen;
static _Atomic bool fail_out, mandatory, quiet;
static _Atomic int mode_seen, mode_in;
static unsigned id;

/* ---- the interceptor, at both ends ---- */

static enum far_status call_out(const struct far_call_info *call, struct far_tlv_out *out, void **cookie,
				struct far_err *e, void *user)
{
	uint64_t n = atomic_load(&number);
	CHECK(user == &number && call->agent == agent && call->from.worker == check_rank());
	if (fail_out) {
		snprintf(e->text, sizeof e->text, "not today");
		return FAR_DENIED;
	}
	if (call->args_n)
		atomic_fetch_add(&args_seen, 1);
	CHECK(far_tlv_put(out, 0x100, &n, sizeof n) == FAR_INVALID);
	if (!quiet)
		CHECK(far_tlv_put(out, mandatory ? 0x2ff | FAR_TLV_MANDATORY : TYPE, &n, sizeof n) == FAR_OK);
	*cookie = (void *)(uintptr_t)(n + 1);
	mode_seen = (int)call->mode;
	atomic_fetch_add(&outs, 1);
	return FAR_OK;
}

static void reply_in(const struct far_call_info *call, const struct far_tlv_in *in, const struct far_err *e,
		     void *cookie, void *user)
{
	const void *value;
	size_t len;
	uint64_t back;
	CHECK(cookie != NULL && user == &number && call->args == NULL);
	if (e)
		atomic_fetch_add(&errors_in, 1);
	if (far_tlv_find(in, TYPE_BACK, &value, &len)) {
		CHECK(len == sizeof back);
		memcpy(&back, value, sizeof back);
		CHECK(back == (uintptr_t)cookie - 1);
		atomic_fetch_add(&replies_in, 1);
	}
}

static enum far_status request_in(const struct far_call_info *call, const struct far_tlv_in *in, void **cookie,
				  struct far_err *e, void *user)
{
	size_t cursor = 0, len;
	const void *value;
	uint16_t type;
	uint64_t n;
	CHECK(far_tlv_next(in, &cursor, &type, &value, &len) && type == TYPE && len == sizeof n);
	CHECK(!far_tlv_next(in, &cursor, &type, &value, &len));
	memcpy(&n, value, sizeof n);
	if (n == 666) {
		snprintf(e->text, sizeof e->text, "no entry");
		e->code = 7;
		return FAR_DENIED;
	}
	if (call->mode != FAR_CALL_FETCH) {
		CHECK(far_flow_get(id) == NULL);
		CHECK(far_flow_set(id, (void *)(uintptr_t)(n + 1)) == FAR_OK);
	}
	*cookie = (void *)(uintptr_t)(n + 1);
	mode_in = (int)call->mode;
	atomic_fetch_add(&ins, 1);
	return FAR_OK;
}

static void request_end(const struct far_call_info *call, enum far_status status, void *cookie, void *user)
{
	CHECK(far_flow_get(id) == cookie || call->mode == FAR_CALL_FETCH);
	atomic_fetch_add(&ends, 1);
}

static void reply_out(const struct far_call_info *call, const struct far_val *value, const struct far_err *e,
		      struct far_tlv_out *out, void *cookie, void *user)
{
	uint64_t n = (uintptr_t)cookie - 1;
	CHECK(!value || !e);
	if (value)
		atomic_fetch_add(&values_seen, 1);
	CHECK(far_tlv_put(out, TYPE_BACK, &n, sizeof n) == FAR_OK);
	atomic_fetch_add(&replies_out, 1);
}

static void request_over(void *cookie, void *user)
{
	CHECK(cookie != NULL);
	atomic_fetch_add(&overs, 1);
}

static const struct far_interceptor interceptor = {.name = "test",
						   .tlv_first = TYPE,
						   .tlv_last = 0x2ff - 1,
						   .user = &number,
						   .call_out = call_out,
						   .reply_in = reply_in,
						   .request_in = request_in,
						   .request_end = request_end,
						   .reply_out = reply_out,
						   .request_over = request_over};

/* ---- handlers ---- */

/* Returns the number that its flow has. */
static enum far_status flow(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int((int64_t)(uintptr_t)far_flow_get(id));
	return far_return(req, &v);
}

/* The same after a wait, in which the fiber may have moved. */
static enum far_status flow_waits(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_future *f;
	struct far_err e;
	CHECK_STATUS(far_rpc_async(far_req_agent(req), "worker0", "far::identity", FAR_ARGS(1), NULL, &f, &e), FAR_OK,
		     &e);
	CHECK_STATUS(far_future_wait(f, 0, NULL, &e), FAR_OK, &e);
	far_future_free(f);
	return flow(req, args, n, user);
}

static enum far_status later(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_deferred *d;
	struct far_val v = far_int(5);
	CHECK(far_defer(req, &d) == FAR_OK);
	return far_deferred_return(d, &v);
}

static enum far_status echo(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_return(req, &args[0]);
}

static enum far_status fails(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_fail(req, FAR_BAD_ARGS, 3, "on request");
}

static enum far_status counts(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int((int64_t)(args[0].u.i == 0   ? atomic_load(&ins)
					     : args[0].u.i == 1 ? atomic_load(&ends)
					     : args[0].u.i == 2 ? atomic_load(&overs)
								: atomic_load(&oneway_seen)));
	return far_return(req, &v);
}

static void on_message(struct far_req *req, const void *data, size_t len, void *user)
{
	uint64_t n = (uintptr_t)far_flow_get(id);
	if (user)
		atomic_store(&oneway_seen, n);
	else
		CHECK(far_reply(req, &n, sizeof n) == FAR_OK);
}

/* ---- the caller ---- */

static int64_t count_there(int64_t which)
{
	struct far_val out;
	quiet = true;
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::counts", FAR_ARGS(which), NULL, &out, &err), FAR_OK, &err);
	quiet = false;
	return out.u.i;
}

static void typed(void)
{
	static const char *const functions[] = {"t::flow", "t::flow_fiber", "t::flow_blocking", "t::flow_waits"};
	struct far_val out;
	for (uint64_t i = 0; i < 4; i++)
		for (uint64_t round = 0; round < 3; round++) {
			atomic_store(&number, 10 * i + round);
			uint64_t in = atomic_load(&replies_in);
			CHECK_STATUS(far_rpc_sync(agent, "worker1", functions[i], FAR_NOARGS, NULL, &out, &err), FAR_OK,
				     &err);
			CHECK(out.u.i == (int64_t)(10 * i + round + 1));
			CHECK(atomic_load(&replies_in) == in + 1 && mode_seen == FAR_CALL_SYNC);
		}
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::later", FAR_NOARGS, NULL, &out, &err), FAR_OK, &err);
	struct far_call_opts again = {.retry = true};
	uint64_t in = atomic_load(&replies_in);
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::flow", FAR_NOARGS, &again, &out, &err), FAR_OK, &err);
	CHECK(out.u.i == (int64_t)atomic_load(&number) + 1 && atomic_load(&replies_in) == in + 1);
	CHECK(far_rpc_sync(agent, "worker1", "t::fails", FAR_NOARGS, NULL, &out, &err) == FAR_BAD_ARGS &&
	      err.code == 3);
	CHECK(atomic_load(&replies_in) == in + 2 && atomic_load(&errors_in) == 1);
}

static void messages(void)
{
	uint64_t reply;
	size_t len;
	char *large = calloc(1, LARGE);
	for (uint16_t m = ID_MSG; m <= ID_BLOCKING; m++)
		for (int size = 0; size < 2; size++) {
			atomic_store(&number, 100u + m);
			uint64_t in = atomic_load(&replies_in);
			CHECK_STATUS(far_msg_call(agent, (struct far_to){1, -1}, m, large, size ? LARGE : 8, NULL,
						  &reply, sizeof reply, &len, &err),
				     FAR_OK, &err);
			CHECK(len == 8 && reply == 100u + m + 1 && atomic_load(&replies_in) == in + 1);
		}
	for (int size = 0; size < 2; size++) {
		atomic_store(&number, 200u + (unsigned)size);
		CHECK_STATUS(
			far_msg_oneway(agent, (struct far_to){1, -1}, ID_ONEWAY, large, size ? LARGE : 8, NULL, &err),
			FAR_OK, &err);
		while (count_there(3) != 201 + size)
			;
	}
	free(large);
}

static void large_values(void)
{
	struct far_val out, b = far_bytes(calloc(1, LARGE), LARGE);
	uint64_t in = atomic_load(&replies_in);
	memset((void *)(uintptr_t)b.u.s.data, 7, LARGE);
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::echo", &b, 1, NULL, &out, &err), FAR_OK, &err);
	CHECK(out.u.s.len == LARGE && memcmp(out.u.s.data, b.u.s.data, LARGE) == 0);
	CHECK(atomic_load(&replies_in) == in + 1);
	far_val_fini(&out);
	/* An eager message that its fields make too long. */
	b.u.s.len = (16 << 20) - 64;
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::echo", &b, 1, NULL, &out, &err), FAR_OK, &err);
	CHECK(out.u.s.len == b.u.s.len && atomic_load(&replies_in) == in + 2);
	far_val_fini(&out);
	free((void *)(uintptr_t)b.u.s.data);
}

static void references(void)
{
	struct far_rref *r;
	struct far_val out;
	uint64_t o = atomic_load(&outs), in = atomic_load(&replies_in);
	CHECK_STATUS(far_remote(agent, "worker1", "t::flow", FAR_NOARGS, NULL, &r, &err), FAR_OK, &err);
	CHECK(mode_seen == FAR_CALL_REMOTE);
	CHECK_STATUS(far_rref_to_here(r, 0, &out, &err), FAR_OK, &err);
	CHECK(out.u.i == (int64_t)atomic_load(&number) + 1 && mode_seen == FAR_CALL_FETCH);
	struct far_val arg = far_rref_val(r);
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::takes", &arg, 1, NULL, &out, &err), FAR_OK, &err);
	CHECK(out.u.i == (int64_t)atomic_load(&number) + 1);
	CHECK(atomic_load(&outs) == o + 3 && atomic_load(&replies_in) == in + 3);
	far_rref_free(r);
}

static void fanout(void)
{
	struct far_target targets[3] = {{.to = {1, -1}}, {.to = {0, -1}}, {.to = {1, -1}}};
	struct far_future *f;
	uint64_t o = atomic_load(&outs), in = atomic_load(&replies_in);
	CHECK_STATUS(far_rpc_fanout(agent, "t::flow", FAR_NOARGS, targets, 3, NULL, NULL, &f, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_OK, &err);
	far_future_free(f);
	CHECK(atomic_load(&outs) == o + 3 && atomic_load(&replies_in) == in + 3);
}

static void refusals(void)
{
	struct far_val out;
	uint64_t o = atomic_load(&outs), in = atomic_load(&replies_in);
	fail_out = true;
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::flow", FAR_NOARGS, NULL, &out, &err), FAR_DENIED, &err);
	CHECK(strcmp(err.text, "not today") == 0 && atomic_load(&outs) == o);
	fail_out = false;
	atomic_store(&number, 666);
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::flow_fiber", FAR_NOARGS, NULL, &out, &err), FAR_DENIED, &err);
	CHECK(strcmp(err.text, "no entry") == 0 && err.code == 7 && err.executed == FAR_EXECUTED_NO);
	atomic_store(&number, 1);
	CHECK(atomic_load(&replies_in) == in);
}

/* Of a type that nobody has: skipped, unless it is mandatory. */
static enum far_status other_out(const struct far_call_info *call, struct far_tlv_out *out, void **cookie,
				 struct far_err *e, void *user)
{
	char bytes[FAR_TLV_BYTES_MAX];
	memset(bytes, 1, sizeof bytes);
	CHECK(far_tlv_put(out, 0x300, bytes, sizeof bytes) == FAR_TOO_LARGE);
	return far_tlv_put(out, *(bool *)user ? 0x300 | FAR_TLV_MANDATORY : 0x300, bytes, 900);
}

static void unknown(void)
{
	static bool must;
	static const struct far_interceptor other = {
		.name = "other", .tlv_first = 0x300, .tlv_last = 0x300, .user = &must, .call_out = other_out};
	static const struct far_interceptor overlaps = {.name = "overlaps", .tlv_first = 0x1ff, .tlv_last = TYPE};
	struct far_val out;
	unsigned second;
	CHECK(far_interceptor_add(&overlaps, &second, &err) == FAR_INVALID);
	CHECK_STATUS(far_interceptor_add(&other, &second, &err), FAR_OK, &err);
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::flow", FAR_NOARGS, NULL, &out, &err), FAR_OK, &err);
	CHECK(out.u.i == 2);
	must = true;
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::flow", FAR_NOARGS, NULL, &out, &err), FAR_UNSUPPORTED, &err);
	CHECK_TEXT(&err, "0x300");
	CHECK(err.executed == FAR_EXECUTED_NO);
	CHECK_STATUS(far_interceptor_remove(second, &err), FAR_OK, &err);
	CHECK(far_interceptor_remove(second, &err) == FAR_INVALID);
}

static _Atomic(void *) flow_in_callback;
static void on_done(struct far_future *f, void *user)
{
	void *flow_here = far_flow_get(id);
	atomic_store(&flow_in_callback, flow_here ? flow_here : user);
}

static void flows(void)
{
	struct far_future *f;
	CHECK(far_flow_get(id) == NULL && far_flow_set(id, &f) == FAR_OK && far_flow_get(id) == &f);
	CHECK(far_flow_set(FAR_INTERCEPTORS_MAX, NULL) == FAR_INVALID);
	CHECK_STATUS(far_rpc_async(agent, "worker1", "t::flow", FAR_NOARGS, NULL, &f, &err), FAR_OK, &err);
	CHECK(mode_seen == FAR_CALL_ASYNC);
	CHECK_STATUS(far_future_on_done(f, on_done, &number, &err), FAR_OK, &err);
	CHECK(far_flow_set(id, NULL) == FAR_OK);
	CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_OK, &err);
	while (!atomic_load(&flow_in_callback)) /* it may run after the wait has returned */
		usleep(100);
	CHECK(atomic_load(&flow_in_callback) == &f && far_flow_get(id) == NULL);
	far_future_free(f);
}

int main(void)
{
	static const struct far_function table[] = {
		{"t::flow() -> int", FAR_KIND_INLINE, flow, NULL},
		{"t::takes(rref r) -> int", FAR_KIND_INLINE, flow, NULL},
		{"t::flow_fiber() -> int", FAR_KIND_FIBER, flow, NULL},
		{"t::flow_blocking() -> int", FAR_KIND_BLOCKING, flow, NULL},
		{"t::flow_waits() -> int", FAR_KIND_FIBER, flow_waits, NULL},
		{"t::later() -> int", FAR_KIND_INLINE, later, NULL},
		{"t::echo(bytes b) -> bytes", FAR_KIND_FIBER, echo, NULL},
		{"t::fails() -> int", FAR_KIND_INLINE, fails, NULL},
		{"t::counts(int which) -> int", FAR_KIND_INLINE, counts, NULL},
	};
	static const struct far_msg_handler handlers[] = {{ID_MSG, FAR_KIND_INLINE, on_message, NULL},
							  {ID_FIBER, FAR_KIND_FIBER, on_message, NULL},
							  {ID_BLOCKING, FAR_KIND_BLOCKING, on_message, NULL},
							  {ID_ONEWAY, FAR_KIND_FIBER, on_message, &number}};
	struct far_opts opts = {.functions = table,
				.functions_n = sizeof table / sizeof *table,
				.messages = handlers,
				.messages_n = sizeof handlers / sizeof *handlers};
	struct far_counters c;
	CHECK_STATUS(far_interceptor_add(&interceptor, &id, &err), FAR_OK, &err);
	agent = check_join(&opts);
	if (check_rank() == 0) {
		typed();
		messages();
		large_values();
		references();
		fanout();
		refusals();
		unknown();
		flows();
		CHECK(atomic_load(&args_seen) > 0);
		CHECK(count_there(0) == count_there(1) || count_there(0) > 0);
		far_counters_read(agent, &c);
		CHECK(c.calls_active == 0 && c.packets_dropped == 0);
	}
	check_leave(agent);
	if (check_rank() == 1) {
		CHECK(atomic_load(&ins) == atomic_load(&overs) && atomic_load(&values_seen) > 0);
		CHECK(atomic_load(&replies_out) > 0);
	}
	return 0;
}
