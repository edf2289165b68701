/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Lines of requests and replies that the fast path must leave to the general code: of fibers, methods and objects that
 * are not there, late ones, replies of other calls. The test's thread.
 */
#include "core/fiber_pool.h"
#include "lane_fixture.h"
#include "value/classes.h"

#include <stdlib.h>

static const struct object_class thing = {.hash = 1};
static unsigned on_fiber, found;

static enum far_status returns_busy(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	ran++;
	return FAR_BUSY;
}

static enum far_status fiber_first(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	ran++;
	on_fiber += shard->context.fiber != NULL;
	return far_return(req, &args[0]);
}

static void fiber_message(struct far_req *req, const void *data, size_t len, void *user)
{
	on_fiber += shard->context.fiber != NULL;
	far_reply(req, data, len);
}

/* Answers with a tensor, in a message handler too, and once more. */
static void message_tensor(struct far_req *req, const void *data, size_t len, void *user)
{
	const uint64_t shape[] = {2};
	void *at;
	cr_assert_eq(far_return_tensor(req, FAR_F32, 1, shape, &at), FAR_INVALID);
	far_reply(req, "bytes", 5);
}

static enum far_status tensor_twice(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const uint64_t shape[] = {2}, other[] = {1};
	void *at, *again;
	cr_assert_eq(far_return_tensor(req, FAR_F32, 1, shape, &at), FAR_OK);
	memcpy(at, args[0].u.t.data, 2 * sizeof(float));
	cr_assert_eq(far_return_tensor(req, FAR_F32, 1, other, &again), FAR_INVALID);
	return FAR_OK;
}

static enum far_status tensor_of_one_dim(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const uint64_t shape[] = {2};
	void *at;
	return far_return_tensor(req, FAR_F32, 1, shape, &at);
}

static enum far_status tensor_of_two_dims(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const uint64_t shape[] = {2, 1};
	void *at;
	enum far_status status = far_return_tensor(req, FAR_F32, 2, shape, &at);
	if (!status)
		memcpy(at, args[0].u.t.data, 2 * sizeof(float));
	return status;
}

/* Whatever a peer calls is there. */
static bool finds(struct shard *s, const struct session *se, const struct function *fn, uint32_t count)
{
	found++;
	return true;
}

static struct function *add(const char *signature, enum far_kind kind, far_fn *fn, bool method)
{
	const struct far_function f = {signature, kind, fn, NULL};
	struct method *m = method ? calloc(1, sizeof *m) : NULL;
	cr_assert(!method || m);
	if (m)
		*m = (struct method){.kind = kind, .cls = &thing};
	cr_assert_eq(registry_add_of(&registry, &f, NULL, m, NULL, NULL), FAR_OK);
	return atomic_load(&registry.functions[registry.functions_n - 1]);
}

static void setup(void)
{
	lane_setup();
	on_fiber = found = 0;
}

TestSuite(core_receive_lane_guards, .init = setup, .fini = lane_teardown);

static union packet_head method_of(const struct function *fn, uint32_t call)
{
	union packet_head h = typed_of(fn, call);
	h.flags = PACKET_TYPED | PACKET_METHOD | PACKET_NAMED;
	return h;
}

/* Behind the arguments, the number of an object that is not there. */
static size_t method_floats(uint8_t body[FAR_LINE_PAYLOAD])
{
	static const uint32_t count = 77;
	size_t len = floats(body);
	cr_assert_leq(len + sizeof count, FAR_LINE_PAYLOAD);
	memcpy(body + len, &count, sizeof count);
	return len + sizeof count;
}

/* Receive a reply of an earlier call of the slot, and one of another session than the call's. Expect both dropped, and
 * the call completed by its own. */
Test(core_receive_lane_guards, replies_of_other_calls)
{
	struct plain p;
	union packet_head right = sent(&p), wrong = right;
	wrong.reply.generation--;
	put_line(wrong, "no", 2);
	passes(1);
	cr_assert(p.n == 0 && dropped() == 1, "of an earlier call");
	lane.user = &shard->sessions[OTHER];
	put_line(right, "no", 2);
	passes(1);
	lane.user = session();
	cr_assert(p.n == 0 && dropped() == 2, "of another session");
	put_line(right, "yes", 3);
	passes(1);
	cr_assert(p.n == 1 && p.len == 3);
	cr_assert_eq(session()->calls_active, 0);
	cr_assert_eq(shard->sessions[OTHER].calls_active, 0);
}

/* Receive requests of a message handler and of a function that run on fibers. Expect them there. */
Test(core_receive_lane_guards, handlers_on_fibers)
{
	const struct far_msg_handler m = {MSG_CALL + 1, FAR_KIND_FIBER, fiber_message, NULL};
	uint8_t body[FAR_LINE_PAYLOAD];
	size_t len = floats(body);
	struct far_err err;
	cr_assert_eq(fiber_pool_add(shard, 2, (size_t)64 << 10, &err), FAR_OK);
	cr_assert_eq(registry_add_message(&registry, &m, NULL), FAR_OK);
	const struct function *fn = add("t::fiber(Tensor a) -> Tensor", FAR_KIND_FIBER, fiber_first, false);
	put_line(request(MSG_CALL + 1, 1, UINT64_MAX), "on it", 5);
	put_line(typed_of(fn, 2), body, len);
	passes(2);
	cr_assert_eq(on_fiber, 2u);
	expect_line(1, "on it", 5);
	expect_reply(2, body, len);
}

/* Receive a late request, one of a function number that nobody has, and a cancellation that has a request's fields.
 * Expect none run. */
Test(core_receive_lane_guards, requests_that_do_not_run)
{
	uint8_t body[FAR_LINE_PAYLOAD];
	size_t len = floats(body);
	union packet_head late = typed(1), none = typed(2), cancel = typed(3);
	cancel.type = PACKET_CANCEL;
	put_line(cancel, body, len);
	passes(1);
	cr_assert_eq(ran, 0u);
	late.request.time_left = 0;
	none.request.handler = UINT16_MAX;
	put_line(late, body, len);
	put_line(none, body, len);
	passes(1);
	expect_error(1, FAR_TIMEOUT, FAR_EXECUTED_NO, "deadline");
	expect_error(2, FAR_PROTOCOL, FAR_EXECUTED_NO, "function number");
	cr_assert_eq(ran, 0u);
	expect_no_line();
	put_line(typed(4), body, len);
	passes(1);
	expect_line(4, body, len);
}

/* Receive a request of a handler that returns an error. Expect the caller to get it. */
Test(core_receive_lane_guards, a_handler_that_fails)
{
	uint8_t body[FAR_LINE_PAYLOAD];
	size_t len = floats(body);
	const struct function *fn = add("t::busy1(Tensor a) -> Tensor", FAR_KIND_INLINE, returns_busy, false);
	put_line(typed_of(fn, 1), body, len);
	passes(1);
	expect_error(1, FAR_BUSY, FAR_EXECUTED_YES, "t::busy1 failed");
	cr_assert_eq(ran, 1u);
	expect_no_line();
}

static void expect_refused(uint32_t call, enum far_status status)
{
	union packet_head h;
	expect(&h, PACKET_ERROR, call);
	cr_assert_eq(h.error.status, status, "%s", far_status_name((enum far_status)h.error.status));
	cr_assert_eq(ran, 0u);
	expect_no_line();
}

/* Receive a request of a method of an object that is not there. Expect it refused, its handler not run. */
Test(core_receive_lane_guards, an_object_that_is_gone)
{
	uint8_t body[FAR_LINE_PAYLOAD];
	size_t len = method_floats(body);
	const struct function *fn = add("t::at(Tensor a) -> Tensor", FAR_KIND_INLINE, return_first, true);
	put_line(method_of(fn, 1), body, len);
	passes(1);
	expect_refused(1, FAR_GONE);
}

/* Receive requests as of methods: of a function, of a method on a fiber, and of one that makes an object. Expect the
 * general code to take each, though the fast path would find the object. */
Test(core_receive_lane_guards, methods_of_other_kinds)
{
	uint8_t body[FAR_LINE_PAYLOAD];
	size_t len = method_floats(body);
	const struct function *fiber = add("t::m1(Tensor a) -> Tensor", FAR_KIND_FIBER, return_first, true);
	struct function *makes = add("t::m2(Tensor a) -> Tensor", FAR_KIND_INLINE, return_first, true);
	makes->makes = &thing;
	shard->hooks.object_find = finds;
	put_line(method_of(first, 1), body, len);
	passes(1);
	expect_refused(1, FAR_PROTOCOL);
	put_line(method_of(fiber, 2), body, len);
	passes(1);
	expect_refused(2, FAR_GONE);
	put_line(method_of(makes, 3), body, len);
	passes(1);
	expect_refused(3, FAR_GONE);
	cr_assert_eq(found, 0u);
}

/* Receive a request of a function, then the same bytes as of a method. Expect the latter refused. */
Test(core_receive_lane_guards, the_same_bytes_of_another_kind)
{
	uint8_t body[FAR_LINE_PAYLOAD];
	size_t len = floats(body);
	put_line(typed(1), body, len);
	passes(1);
	expect_line(1, body, len);
	cr_assert_eq(ran, 1u);
	ran = 0;
	put_line(method_of(first, 2), body, len);
	passes(1);
	expect_refused(2, FAR_PROTOCOL);
}

/* Receive a message whose handler answers twice. Expect one answer. */
Test(core_receive_lane_guards, one_answer_of_a_message)
{
	put_line(request(MSG_TWICE, 1, UINT64_MAX), NULL, 0);
	passes(1);
	cr_assert_eq(second_answer, FAR_INVALID);
	expect_line(1, "one", 3);
	expect_no_line();
	expect_nothing();
}

/* Receive requests whose handlers return tensors in place: of a message, twice, for another type of result, of two
 * dimensions. Expect the caller to get what the general code gives. */
Test(core_receive_lane_guards, tensors_in_place)
{
	const struct far_msg_handler m = {MSG_CALL + 1, FAR_KIND_INLINE, message_tensor, NULL};
	uint8_t body[FAR_LINE_PAYLOAD], flat[FAR_LINE_PAYLOAD];
	size_t len = floats(body);
	float data[] = {1, 2};
	struct values_plan plan;
	struct far_err err;
	cr_assert_eq(registry_add_message(&registry, &m, NULL), FAR_OK);
	put_line(request(MSG_CALL + 1, 1, UINT64_MAX), "x", 1);
	put_line(typed_of(add("t::twice2(Tensor a) -> Tensor", FAR_KIND_INLINE, tensor_twice, false), 2), body, len);
	passes(1);
	expect_line(1, "bytes", 5);
	expect_line(2, body, len);
	put_line(typed_of(add("t::no(Tensor a) -> int", FAR_KIND_INLINE, tensor_of_one_dim, false), 3), body, len);
	passes(1);
	expect_error(3, FAR_SIGNATURE, FAR_EXECUTED_YES, "t::no");
	const struct far_val v = {.type = FAR_TYPE_TENSOR,
				  .u.t = {.data = data, .dtype = FAR_F32, .ndim = 2, .shape = {2, 1}}};
	size_t size = values_size(&v, 1, &plan, &err);
	cr_assert_leq(size, sizeof flat);
	values_write(&v, 1, &plan, flat);
	put_line(typed_of(add("t::two(Tensor a) -> Tensor", FAR_KIND_INLINE, tensor_of_two_dims, false), 5), body, len);
	passes(1);
	expect_line(5, flat, size);
}
