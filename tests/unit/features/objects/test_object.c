/* SPDX-License-Identifier: BSD-3-Clause */
/* The owner of objects: "Receive X in state S. Expect Y.". The test's thread. */
#include "base/hash.h"
#include "core/fiber.h"
#include "core/fiber_pool.h"
#include "core/idle.h"
#include "core/packet.h"
#include "core/session.h"
#include "rref_fixture.h"

static struct object {
	int64_t n;
	unsigned ended;
} objects[4];
static unsigned objects_n, waiting_n;
static struct far_deferred *waiting, *making;
static struct far_future *paused;

/* ---- the class ---- */

static enum far_status new_object(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	if (args[0].u.i < 0)
		return far_fail(req, FAR_REMOTE, 5, "below zero");
	cr_assert_lt(objects_n, 4u);
	objects[objects_n] = (struct object){.n = args[0].u.i};
	return far_return_object(req, &objects[objects_n++]);
}

static enum far_status new_later(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_defer(req, &making);
}

static void end_object(void *object, void *user)
{
	cr_assert_str_eq(user, "its user");
	((struct object *)object)->ended++;
}

static enum far_status method_add(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	struct object *o = object;
	cr_assert_eq(n, 1u);
	cr_assert(!o->ended && rref_as_record(far_req_rref(req))->object == o);
	runs++;
	struct far_val v = far_int(o->n += args[0].u.i);
	return far_return(req, &v);
}

static enum far_status method_later(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	waiting_n++;
	return far_defer(req, &waiting);
}

static enum far_status method_park(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	struct object *o = object;
	cr_assert(!o->ended);
	int error = shard_wait(shard, paused, TIME_NEVER);
	cr_assert(!o->ended, "ended while its method waits");
	if (error)
		return FAR_CANCELLED;
	struct far_val v = far_int(o->n);
	return far_return(req, &v);
}

static void setup(void)
{
	static const struct far_function made_by[] = {
		{"t::Thing(int n) -> t::Thing", FAR_KIND_INLINE, new_object, NULL},
		{"t::later() -> t::Thing", FAR_KIND_INLINE, new_later, NULL}};
	static const struct far_method methods[] = {{"add(int n) -> int", FAR_KIND_INLINE, method_add, NULL},
						    {"add_to(rref r, int n) -> int", FAR_KIND_INLINE, method_add, NULL},
						    {"later() -> int", FAR_KIND_INLINE, method_later, NULL},
						    {"park() -> int", FAR_KIND_FIBER, method_park, NULL}};
	static const struct far_class cls = {.name = "t::Thing",
					     .constructors = made_by,
					     .constructors_n = 2,
					     .methods = methods,
					     .methods_n = 4,
					     .destroy = end_object,
					     .user = (void *)(uintptr_t) "its user"};
	static const struct far_class other = {.name = "t::Other", .methods = methods, .methods_n = 1};
	struct far_err err;
	shard_setup();
	objects_n = runs = waiting_n = 0;
	cr_assert_eq(registry_add_class(&registry, &cls, object_enter, NULL, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(registry_add_class(&registry, &other, object_enter, NULL, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(fiber_pool_add(shard, 4, (size_t)64 << 10, &err), FAR_OK);
}

TestSuite(object, .init = setup, .fini = shard_teardown);

/* ---- requests ---- */

static const struct function *method(const char *cls, const char *name)
{
	const struct function *fn =
		registry_find_method(&registry, registry_find_class(&registry, hash64(cls, strlen(cls))), name);
	cr_assert_not_null(fn);
	return fn;
}

static size_t one_int(uint8_t *body, int64_t n)
{
	body[0] = 1;
	body[1] = 2;
	body[2] = (uint8_t)(n < 0 ? -2 * n - 1 : 2 * n);
	return 3;
}

static void construct(uint32_t number, uint64_t id, uint64_t fork, const char *function, const uint8_t *args,
		      size_t len)
{
	uint8_t body[128];
	struct rref_remote m = {
		.owner = OUR_INCARNATION, .id = ID(PEER, id), .fork = ID(PEER, fork), .function = hashes(function)};
	memcpy(body, args, len);
	memcpy(body + len, &m, sizeof m);
	from(NIC_PEER, RREF_REMOTE, number, body, len + sizeof m);
}

static void construct_int(uint32_t number, uint64_t id, uint64_t fork, int64_t n)
{
	uint8_t args[8];
	construct(number, id, fork, "t::Thing", args, one_int(args, n));
}

/* The short form. */
static void call_method(uint32_t nic, uint32_t number, const struct function *fn, struct rref_id id,
			const uint8_t *args, size_t len)
{
	uint8_t body[64];
	union packet_head h = request((uint16_t)fn->index, number, UINT64_MAX);
	h.flags = PACKET_TYPED | PACKET_METHOD;
	memcpy(body, args, len);
	memcpy(body + len, &id, sizeof id);
	put(nic, h, body, len + sizeof id);
	passes(2);
}

static void call_add(uint32_t nic, uint32_t number, uint64_t id, int64_t n)
{
	uint8_t args[8];
	call_method(nic, number, method("t::Thing", "add"), ID(PEER, id), args, one_int(args, n));
}

/* The general form. */
static void call_general(uint32_t number, const struct function *fn, uint64_t owner, uint64_t id, const uint8_t *args,
			 size_t len)
{
	uint8_t body[160];
	struct rref_method m = {owner, ID(PEER, id), {fn->signature.name_hash, fn->signature.canonical_hash}};
	memcpy(body, args, len);
	memcpy(body + len, &m, sizeof m);
	from(NIC_PEER, RREF_METHOD, number, body, len + sizeof m);
}

static void let_go(uint32_t nic, uint32_t number, uint64_t id, uint64_t fork)
{
	control(nic, number, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, id), ID(PEER, fork));
	expect_status(nic, number, FAR_OK);
}

static void expect_number(uint32_t nic, uint32_t number, int64_t n)
{
	union packet_head h;
	const uint8_t want[3] = {1, 2, (uint8_t)(n * 2)};
	const struct fake_packet *p = sent_to(nic, &h, PACKET_REPLY);
	cr_assert_eq(h.call.slot, number);
	cr_assert(p->body_len == 3 && memcmp(fake_body(p), want, 3) == 0);
}

/* ---- the lifetime of the object ---- */

/* Receive calls of both forms, from its maker and from another. Expect them run; with the last fork the destructor. */
Test(object, made_called_ended)
{
	uint8_t args[8];
	construct_int(1, 7, 8, 5);
	expect_made(1);
	call_add(NIC_PEER, 2, 7, 2);
	expect_number(NIC_PEER, 2, 7);
	call_general(3, method("t::Thing", "add"), OUR_INCARNATION, 7, args, one_int(args, 1));
	expect_number(NIC_PEER, 3, 8);
	control(NIC_OTHER, 4, RREF_FORK, 0, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 9));
	expect_status(NIC_OTHER, 4, FAR_OK);
	let_go(NIC_PEER, 5, 7, 8);
	call_add(NIC_OTHER, 6, 7, 1);
	expect_number(NIC_OTHER, 6, 9);
	cr_assert_eq(objects[0].ended, 0u);
	let_go(NIC_OTHER, 7, 7, 9);
	cr_assert_eq(objects[0].ended, 1u);
	call_add(NIC_PEER, 8, 7, 1);
	expect_error(8, FAR_GONE, FAR_EXECUTED_NO, "t::Thing.add: the object was destroyed");
	cr_assert_eq(runs, 3u);
	expect_empty();
}

/* Receive calls before it is made, by the general form, and by the short one when only its constructor has begun.
 * Expect them run in their order when it is there. */
Test(object, calls_wait_for_it)
{
	uint8_t args[8];
	const uint8_t none[] = {0};
	call_general(1, method("t::Thing", "add"), OUR_INCARNATION, 7, args, one_int(args, 1));
	construct(2, 7, 8, "t::later", none, 1);
	call_add(NIC_PEER, 3, 7, 2);
	call_add(NIC_PEER, 4, 7, 3);
	expect_nothing();
	objects[0] = (struct object){.n = 10};
	cr_assert_eq(far_deferred_return_object(making, &objects[0]), FAR_OK);
	passes(4);
	expect_made(2);
	expect_number(NIC_PEER, 1, 11);
	expect_number(NIC_PEER, 3, 13);
	expect_number(NIC_PEER, 4, 16);
	let_go(NIC_PEER, 5, 7, 8);
	cr_assert_eq(objects[0].ended, 1u);
	expect_empty();
}

/* The constructor fails. Expect the error for calls that wait and for later ones. */
Test(object, never_made)
{
	uint8_t args[8];
	call_general(1, method("t::Thing", "add"), OUR_INCARNATION, 7, args, one_int(args, 1));
	construct_int(2, 7, 8, -5);
	expect_made(2);
	expect_error(1, FAR_REMOTE, FAR_EXECUTED_NO, "below zero");
	call_add(NIC_PEER, 3, 7, 2);
	expect_error(3, FAR_REMOTE, FAR_EXECUTED_NO, "below zero");
	let_go(NIC_PEER, 4, 7, 8);
	cr_assert_eq(runs, 0u);
	expect_empty();
}

/* A constructor answers when nobody awaits it any more. Expect the object ended. */
Test(object, made_too_late)
{
	const uint8_t none[] = {0};
	union packet_head h;
	construct(1, 7, 8, "t::later", none, 1);
	put_cancel(1);
	passes(2);
	sent_to(NIC_PEER, &h, PACKET_CANCELLED);
	let_go(NIC_PEER, 2, 7, 8);
	objects[0] = (struct object){.n = 10};
	cr_assert_eq(far_deferred_return_object(making, &objects[0]), FAR_CANCELLED);
	passes(2);
	cr_assert_eq(objects[0].ended, 1u);
	expect_empty();
}

/* Its last fork is deleted while a method is deferred, of both forms. Expect it to live until the answer. */
Test(object, stays_while_deferred)
{
	const uint8_t none[] = {0};
	for (unsigned i = 0; i < 2; i++) {
		construct_int(1, 7 + i, 17 + i, 5);
		expect_made(1);
		if (i)
			call_general(2, method("t::Thing", "later"), OUR_INCARNATION, 7 + i, none, 1);
		else
			call_method(NIC_PEER, 2, method("t::Thing", "later"), ID(PEER, 7 + i), none, 1);
		let_go(NIC_PEER, 3, 7 + i, 17 + i);
		cr_assert_eq(objects[i].ended, 0u);
		struct far_val v = far_int(3);
		cr_assert_eq(far_deferred_return(waiting, &v), FAR_OK);
		passes(2);
		expect_number(NIC_PEER, 2, 3);
		passes(2);
		cr_assert_eq(objects[i].ended, 1u);
	}
	expect_empty();
}

/* The same while a fiber is parked in one; and cancelled there. */
Test(object, stays_while_parked)
{
	const uint8_t none[] = {0};
	union packet_head h;
	for (unsigned i = 0; i < 2; i++) {
		paused = future_alloc(shard);
		construct_int(1, 7 + i, 17 + i, 5);
		expect_made(1);
		call_method(NIC_PEER, 2, method("t::Thing", "park"), ID(PEER, 7 + i), none, 1);
		let_go(NIC_PEER, 3, 7 + i, 17 + i);
		cr_assert_eq(objects[i].ended, 0u);
		if (i) {
			put_cancel(2);
			passes(3);
			sent_to(NIC_PEER, &h, PACKET_CANCELLED);
		}
		shard->config.complete(paused, &(struct completion){.status = FAR_OK});
		passes(3);
		if (!i)
			expect_number(NIC_PEER, 2, 5);
		passes(2);
		cr_assert_eq(objects[i].ended, 1u);
		buf_unref(&paused->head);
	}
	expect_empty();
}

/* Cancelled while it waits for the object, or for a reference, or its caller is lost. Expect nothing run, nothing left.
 */
Test(object, given_up_while_it_waits)
{
	uint8_t args[8];
	const uint8_t none[] = {0};
	union packet_head h;
	call_general(1, method("t::Thing", "add"), OUR_INCARNATION, 7, args, one_int(args, 1));
	put_cancel(1);
	passes(2);
	sent_to(NIC_PEER, &h, PACKET_CANCELLED);
	cr_assert_eq(shard->rrefs->records.n, 0u);
	construct(2, 7, 8, "t::later", none, 1);
	call_add(NIC_PEER, 3, 7, 2);
	call_general(4, method("t::Thing", "add"), OUR_INCARNATION, 7, args, one_int(args, 1));
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	passes(2);
	objects[0] = (struct object){.n = 10};
	cr_assert_eq(far_deferred_return_object(making, &objects[0]), FAR_CANCELLED);
	passes(2);
	cr_assert_eq(objects[0].ended, 1u);
	cr_assert_eq(runs, 0u);
	expect_empty();
}

/* A method with a reference among its arguments, before the object is there. Expect it to wait for both. */
Test(object, waits_for_both)
{
	uint8_t body[128];
	struct rref_wire w = wire(OTHER, 27, 28);
	struct rref_op op;
	union packet_head fork;
	const struct function *fn = method("t::Thing", "add_to");
	body[0] = 0x82;
	body[1] = 10;
	rref_put(body + 2, &w);
	size_t len = 2 + RREF_WIRE_BYTES;
	body[len++] = 2;
	body[len++] = 4;
	call_general(1, fn, OUR_INCARNATION, 7, body, len);
	expect_controls(NIC_OTHER, &op, &fork);
	construct_int(2, 7, 8, 5);
	expect_made(2);
	cr_assert_eq(runs, 0u);
	expect_nothing();
	put_cancel(1);
	passes(2);
	union packet_head h;
	sent_to(NIC_PEER, &h, PACKET_CANCELLED);
	answer_controls(NIC_OTHER, fork, (const uint8_t[]){FAR_OK}, 1);
	expect_control(NIC_OTHER, RREF_DELETE, w.fork, FAR_OK);
	cr_assert_eq(runs, 0u);
	let_go(NIC_PEER, 3, 7, 8);
	cr_assert_eq(objects[0].ended, 1u);
	expect_empty();
}

/* ---- what must not be ---- */

/* A value, and an object of another class. */
Test(object, of_another_kind)
{
	uint8_t args[8];
	make(1, PEER, 7, 8, OUR_INCARNATION);
	expect_made(1);
	call_add(NIC_PEER, 2, 7, 2);
	expect_error(2, FAR_INVALID, FAR_EXECUTED_NO, "is not an object of t::Thing, but a int");
	construct_int(3, 9, 10, 5);
	expect_made(3);
	call_method(NIC_PEER, 4, method("t::Other", "add"), ID(PEER, 9), args, one_int(args, 1));
	expect_error(4, FAR_INVALID, FAR_EXECUTED_NO, "is not an object of t::Other, but a t::Thing");
	cr_assert_eq(runs, 0u);
	let_go(NIC_PEER, 5, 7, 8);
	let_go(NIC_PEER, 6, 9, 10);
	expect_empty();
}

/* Methods as functions, functions as methods, constructors as either. */
Test(object, called_as_what_it_is_not)
{
	uint8_t args[8], body[64];
	const struct function *add = method("t::Thing", "add"), *made = registry_find(&registry, "t::Thing"),
			      *plain = registry_find(&registry, "t::add");
	struct rref_function f = {add->signature.name_hash, add->signature.canonical_hash};
	size_t len = one_int(args, 1);
	construct_int(1, 7, 8, 5);
	expect_made(1);
	put_typed(add->index, args, len);
	passes(2);
	expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed");
	put_typed(made->index, args, len);
	passes(2);
	expect_error(1, FAR_INVALID, FAR_EXECUTED_NO, "t::Thing: it makes objects: call it with far_remote");
	memcpy(body, args, len);
	memcpy(body + len, &f, sizeof f);
	from(NIC_PEER, RREF_CALL, 2, body, len + sizeof f);
	expect_error(2, FAR_PROTOCOL, FAR_EXECUTED_NO, "without its object");
	call_general(3, made, OUR_INCARNATION, 7, args, len);
	expect_error(3, FAR_PROTOCOL, FAR_EXECUTED_NO, "not a method");
	call_method(NIC_PEER, 4, plain, ID(PEER, 7), args, len);
	expect_error(4, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed");
	cr_assert_eq(runs, 0u);
	let_go(NIC_PEER, 5, 7, 8);
	expect_empty();
}

/* Cut off, of another incarnation, of another shard. */
Test(object, requests_that_cannot_be)
{
	uint8_t args[8], body[128] = {0};
	const struct function *add = method("t::Thing", "add");
	size_t len = one_int(args, 1);
	for (uint16_t fn = RREF_METHOD; fn <= RREF_TYPE; fn++) {
		from(NIC_PEER, fn, fn, body, fn == RREF_METHOD_REMOTE ? 71 : 23);
		expect_error(fn, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed");
	}
	call_general(1, add, OUR_INCARNATION + 1, 7, args, len);
	expect_error(1, FAR_PEER_LOST, FAR_EXECUTED_NO, "former incarnation");
	call_method(NIC_PEER, 2, add, rref_name(INCARNATION_OF(PEER), 0, 3, 7), args, len);
	expect_error(2, FAR_GONE, FAR_EXECUTED_NO, "");
	construct_int(3, 7, 8, 5);
	expect_made(3);
	call_method(NIC_PEER, 4, add, ID(PEER, 7), args, 2);
	expect_error(4, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed");
	cr_assert_eq(runs, 0u);
	let_go(NIC_PEER, 5, 7, 8);
	expect_empty();
}

/* What it is, before it is there and after; and a fetch of what stays. */
Test(object, type_requested)
{
	const uint8_t none[] = {0};
	struct rref_fetch f = {OUR_INCARNATION, ID(PEER, 7)};
	union packet_head h;
	from(NIC_OTHER, RREF_TYPE, 1, &f, sizeof f);
	construct(2, 7, 8, "t::later", none, 1);
	expect_nothing();
	objects[0] = (struct object){.n = 10};
	cr_assert_eq(far_deferred_return_object(making, &objects[0]), FAR_OK);
	passes(2);
	for (int i = 0; i < 2; i++) {
		const struct fake_packet *p = fake_queue_sent(queue, &h);
		cr_assert_not_null(p);
		cr_assert_eq(h.type, PACKET_REPLY);
		if (h.call.slot == 1)
			cr_assert(p->body_len == 12 && memcmp((uint8_t *)fake_body(p) + 3, "t::Thing", 9) == 0);
	}
	fetch(NIC_PEER, 3, PEER, 7);
	expect_error(3, FAR_UNSUPPORTED, FAR_EXECUTED_YES, "an object of t::Thing stays with worker \"me\"");
	let_go(NIC_PEER, 4, 7, 8);
	expect_empty();
}

/* The agent ends while somebody holds it. Expect it ended, once: by the teardown. */
Test(object, ends_with_the_shard)
{
	construct_int(1, 7, 8, 5);
	expect_made(1);
}

static void check_ended(void)
{
	shard_teardown();
	cr_assert_eq(objects_n, 1u);
	cr_assert_eq(objects[0].ended, 1u);
}

TestSuite(object_end, .init = setup, .fini = check_ended);

Test(object_end, held_by_a_handle_here)
{
	construct_int(1, 7, 8, 5);
	expect_made(1);
	/* As an argument that a handler kept would. */
	struct rref_record *r = rref_find(shard, ID(PEER, 7));
	session_close_all(shard);
	cr_assert_eq(objects[0].ended, 0u, "a handler may be at it");
	rref_unref(&r->rref.base);
}
