/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests with NAMED, to the owner: "Receive X in state S. Expect Y.". The test's thread. */
#include "base/hash.h"
#include "core/call.h"
#include "core/packet.h"
#include "rref_fixture.h"

static struct far_deferred *kept_back;
static int thing;
static unsigned made_n, ended_n;

static enum far_status answers_later(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_defer(req, &kept_back);
}

static enum far_status answers_before_it_returns(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_deferred *d;
	struct far_val seven = far_int(7);
	enum far_status status = far_defer(req, &d);
	return status ? status : far_deferred_return(d, &seven);
}

static enum far_status fails(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_fail(req, FAR_REMOTE, 5, "on purpose");
}

static enum far_status new_thing(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	made_n++;
	return far_return_object(req, &thing);
}

static void end_thing(void *object, void *user)
{
	cr_assert_eq(object, &thing);
	ended_n++;
}

static enum far_status poke(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(7);
	cr_assert_eq(object, &thing);
	runs++;
	return far_return(req, &v);
}

static void setup(void)
{
	static const struct far_function functions[] = {
		{"t::later() -> int", FAR_KIND_INLINE, answers_later, NULL},
		{"t::now() -> int", FAR_KIND_INLINE, answers_before_it_returns, NULL},
		{"t::fails() -> int", FAR_KIND_INLINE, fails, NULL}};
	static const struct far_function made_by = {"t::Thing() -> t::Thing", FAR_KIND_INLINE, new_thing, NULL};
	static const struct far_method method = {"poke() -> int", FAR_KIND_INLINE, poke, NULL};
	static const struct far_class cls = {.name = "t::Thing",
					     .constructors = &made_by,
					     .constructors_n = 1,
					     .methods = &method,
					     .methods_n = 1,
					     .destroy = end_thing};
	shard_setup();
	runs = made_n = ended_n = 0;
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
		cr_assert_eq(registry_add(&registry, &functions[i], NULL), FAR_OK);
	cr_assert_eq(registry_add_class(&registry, &cls, object_enter, NULL, NULL), FAR_OK);
}

TestSuite(rref_make, .init = setup, .fini = shard_teardown);

static const struct function *function(const char *name)
{
	const struct function *fn = registry_find(&registry, name);
	cr_assert_not_null(fn);
	return fn;
}

static const struct function *poke_of_thing(void)
{
	const struct function *fn =
		registry_find_method(&registry, registry_find_class(&registry, hash64("t::Thing", 8)), "poke");
	cr_assert_not_null(fn);
	return fn;
}

/* `len` bytes of arguments, then the count. */
static void named(uint32_t number, const struct function *fn, unsigned flags, uint32_t count, uint64_t left,
		  const uint8_t *args, size_t len)
{
	uint8_t body[128];
	union packet_head h = request((uint16_t)fn->index, number, left);
	h.flags = (uint8_t)(PACKET_TYPED | PACKET_NAMED | flags);
	if (len)
		memcpy(body, args, len);
	memcpy(body + len, &count, sizeof count);
	put(NIC_PEER, h, body, len + sizeof count);
	passes(2);
}

static void make_sum(uint32_t number, uint32_t count)
{
	uint8_t args[16];
	named(number, function("t::add"), 0, count, UINT64_MAX, args, two_ints(args, 3, 4));
}

/* No arguments. */
static void make_by(uint32_t number, const char *name, uint32_t count, uint64_t left)
{
	named(number, function(name), 0, count, left, (const uint8_t[]){0}, 1);
}

static void let_go(uint32_t number, uint64_t id)
{
	control(NIC_PEER, number, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, id), ID(PEER, id + 1));
	expect_status(NIC_PEER, number, FAR_OK);
}

/* A name whose other fields differ from those of the session has no short form. */
Test(rref_make, short_forms)
{
	struct rref_named named;
	uint64_t incarnation = INCARNATION_OF(PEER);
	cr_assert(rref_named_of(rref_name(incarnation, 3, 5, 7), incarnation, 3, 5, &named) && named.count == 7);
	cr_assert(rref_named_of(rref_name(incarnation, 3, 5, UINT32_MAX), incarnation, 3, 5, &named) &&
		  named.count == UINT32_MAX);
	cr_assert(!rref_named_of(rref_name(incarnation, 3, 5, UINT64_C(1) << 32), incarnation, 3, 5, &named));
	cr_assert(!rref_named_of(rref_name(incarnation + 1, 3, 5, 7), incarnation, 3, 5, &named));
	cr_assert(!rref_named_of(rref_name(incarnation, 2, 5, 7), incarnation, 3, 5, &named));
	cr_assert(!rref_named_of(rref_name(incarnation, 3, 4, 7), incarnation, 3, 5, &named));
}

/* Send one to another incarnation of the callee than its reference says. Expect a refusal, and nothing sent. */
Test(rref_make, another_incarnation)
{
	struct result r = {0};
	struct rref_user of_before = {.rref.base.owner = INCARNATION_OF(PEER) - 1};
	struct rref_call call = {.done = take_result, .user = &r, .makes = &of_before};
	struct call_start start = {.worker = PEER,
				   .fn = (uint16_t)registry_find(&registry, "t::add")->index,
				   .typed = PACKET_TYPED | PACKET_NAMED,
				   .deadline = UINT64_MAX,
				   .left = UINT64_MAX,
				   .done = rref_call_done,
				   .user = &call,
				   .data = "\0\7\0\0\0",
				   .len = 5};
	cr_assert_eq(shard_call(shard, &start), -EPIPE);
	passes(2);
	expect_nothing();
	of_before.rref.base.owner = INCARNATION_OF(PEER);
	cr_assert_eq(shard_call(shard, &start), 0);
	passes(1);
	union packet_head h;
	sent_to(NIC_PEER, &h, PACKET_REQUEST);
	cr_assert_eq(h.flags & PACKET_NAMED, PACKET_NAMED);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	cr_assert_eq(r.n, 1u);
}

/* Receive a request to make. Expect the value under the name that the count says, kept until the next is deleted. */
Test(rref_make, made_fetched_deleted)
{
	static const uint32_t counts[] = {1, 7, UINT32_MAX};
	for (unsigned i = 0; i < 3; i++) {
		make_sum(1, counts[i]);
		expect_made(1);
		cr_assert_eq(shard->rrefs->records.n, 1u);
		fetch(NIC_PEER, 2, PEER, counts[i]);
		expect_seven(NIC_PEER, 2);
		fetch(NIC_OTHER, 3, PEER, counts[i]);
		expect_seven(NIC_OTHER, 3);
		let_go(4, counts[i]);
		expect_empty();
	}
}

/* Receive another's fetch and fork first. Expect both answered by what is made. */
Test(rref_make, expected)
{
	fetch(NIC_OTHER, 1, PEER, 7);
	expect_nothing();
	control(NIC_OTHER, 2, RREF_FORK, 0, OUR_INCARNATION, ID(PEER, 7), ID(OTHER, 9));
	expect_status(NIC_OTHER, 2, FAR_OK);
	make_sum(3, 7);
	expect_made(3);
	expect_seven(NIC_OTHER, 1);
	let_go(4, 7);
	cr_assert_eq(shard->rrefs->records.n, 1u);
	control(NIC_OTHER, 5, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, 7), ID(OTHER, 9));
	expect_status(NIC_OTHER, 5, FAR_OK);
	expect_empty();
}

/* Receive the same name again. Expect a refusal, and the value as it was. */
Test(rref_make, made_twice)
{
	make_sum(1, 7);
	expect_made(1);
	make_sum(2, 7);
	expect_error(2, FAR_INVALID, FAR_EXECUTED_NO, "made before");
	fetch(NIC_PEER, 3, PEER, 7);
	expect_seven(NIC_PEER, 3);
	let_go(4, 7);
	expect_empty();
}

/* The handler answers later, here. Expect a fetch to wait for it, and the answer then. */
Test(rref_make, answered_later)
{
	struct far_val seven = far_int(7);
	make_by(1, "t::later", 7, UINT64_MAX);
	fetch(NIC_OTHER, 2, PEER, 7);
	expect_nothing();
	cr_assert_eq(far_deferred_return(kept_back, &seven), FAR_OK);
	passes(2);
	expect_made(1);
	expect_seven(NIC_OTHER, 2);
	let_go(3, 7);
	expect_empty();
}

/* The handler defers and answers before it returns. Expect the same. */
Test(rref_make, answered_while_it_runs)
{
	make_by(1, "t::now", 7, FAR_SEC);
	expect_made(1);
	fetch(NIC_PEER, 2, PEER, 7);
	expect_seven(NIC_PEER, 2);
	let_go(3, 7);
	expect_empty();
}

/* The time passes while the handler's answer is awaited. Expect CANCELLED, the failure kept, the late answer dropped.
 */
Test(rref_make, answered_too_late)
{
	union packet_head h;
	struct far_val seven = far_int(7);
	make_by(1, "t::later", 7, FAR_MS);
	advance(2 * FAR_MS);
	sent_to(NIC_PEER, &h, PACKET_CANCELLED);
	fetch(NIC_OTHER, 2, PEER, 7);
	sent_to(NIC_OTHER, &h, PACKET_ERROR);
	cr_assert_eq(h.error.status, FAR_TIMEOUT);
	cr_assert_eq(far_deferred_return(kept_back, &seven), FAR_CANCELLED);
	passes(2);
	let_go(3, 7);
	expect_empty();
}

/* The caller's session ends while the handler's answer is awaited. Expect nothing left. */
Test(rref_make, caller_lost)
{
	struct far_val seven = far_int(7);
	make_by(1, "t::later", 7, UINT64_MAX);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	passes(2);
	cr_assert_eq(far_deferred_return(kept_back, &seven), FAR_CANCELLED);
	passes(2);
	expect_empty();
}

/* The handler fails. Expect the value's error in place of the value, and that something was made. */
Test(rref_make, making_failed)
{
	union packet_head h;
	make_by(1, "t::fails", 7, UINT64_MAX);
	expect_made(1);
	fetch(NIC_OTHER, 2, PEER, 7);
	sent_to(NIC_OTHER, &h, PACKET_ERROR);
	cr_assert_eq(h.error.status, FAR_REMOTE);
	cr_assert_eq(h.error.code, 5);
	let_go(3, 7);
	expect_empty();
}

/* Receive arguments that do not fit, or hold a reference. Expect nothing made, and no record. */
Test(rref_make, arguments_that_do_not_fit)
{
	uint8_t args[8 + RREF_WIRE_BYTES] = {1, 10};
	struct rref_wire w = {.owner = INCARNATION_OF(OTHER), .id = ID(OTHER, 3), .fork = ID(PEER, 4), .types = 1};
	named(1, function("t::add"), 0, 7, UINT64_MAX, (const uint8_t[]){1, 2, 6}, 3);
	expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed arguments");
	cr_assert_eq(shard->rrefs->records.n, 0u);
	add_function("t::known(rref r) -> int");
	rref_put(args + 2, &w);
	named(2, function("t::known"), 0, 7, UINT64_MAX, args, 2 + RREF_WIRE_BYTES);
	expect_error(2, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed arguments");
	cr_assert_eq(runs, 0u);
	expect_empty();
}

/* Receive what cannot be. Expect refusals. */
Test(rref_make, requests_that_cannot_be)
{
	union packet_head h = request((uint16_t)function("t::add")->index, 1, UINT64_MAX);
	h.flags = PACKET_TYPED | PACKET_NAMED;
	put(NIC_PEER, h, "\1\0\0", 3);
	passes(2);
	expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed");
	make_sum(2, 0);
	expect_error(2, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed");
	named(3, function("t::add"), PACKET_METHOD, 7, UINT64_MAX, (const uint8_t[]){0}, 1);
	expect_error(3, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed");
	named(4, poke_of_thing(), 0, 7, UINT64_MAX, (const uint8_t[]){0}, 1);
	expect_error(4, FAR_PROTOCOL, FAR_EXECUTED_NO, "without its object");
	h = request(FAR_FUNCTIONS_MAX - 1, 5, UINT64_MAX);
	h.flags = PACKET_TYPED | PACKET_NAMED;
	put(NIC_PEER, h, "\0\7\0\0\0", 5);
	passes(2);
	expect_error(5, FAR_PROTOCOL, FAR_EXECUTED_NO, "no function number");
	expect_empty();
}

/* Receive an object made, its method called by name, and by a name that nothing has. */
Test(rref_make, objects)
{
	make_by(1, "t::Thing", 7, UINT64_MAX);
	expect_made(1);
	cr_assert_eq(made_n, 1u);
	named(2, poke_of_thing(), PACKET_METHOD, 7, UINT64_MAX, (const uint8_t[]){0}, 1);
	expect_seven(NIC_PEER, 2);
	cr_assert_eq(runs, 1u);
	named(3, poke_of_thing(), PACKET_METHOD, 9, UINT64_MAX, (const uint8_t[]){0}, 1);
	expect_error(3, FAR_GONE, FAR_EXECUTED_NO, "destroyed");
	cr_assert_eq(ended_n, 0u);
	let_go(4, 7);
	expect_empty();
	cr_assert_eq(ended_n, 1u);
}

/* The functions' numbers are not known yet. Expect the hash behind the name. */
Test(rref_make, hashed)
{
	uint8_t body[64];
	struct rref_function f = hashes("t::add");
	size_t len = two_ints(body, 3, 4);
	union packet_head h = request(0, 1, UINT64_MAX);
	h.flags = PACKET_TYPED | PACKET_NAMED | PACKET_HASHED;
	memcpy(body + len, &(uint32_t){7}, 4);
	memcpy(body + len + 4, &f, sizeof f);
	put(NIC_PEER, h, body, len + 4 + sizeof f);
	passes(2);
	sent_to(NIC_PEER, &h, PACKET_REPLY);
	cr_assert(h.flags & PACKET_HASHED && h.reply.function == function("t::add")->index);
	fetch(NIC_PEER, 2, PEER, 7);
	expect_seven(NIC_PEER, 2);
	let_go(3, 7);
	expect_empty();
}

/* No room for another record, or fork. Expect RESOURCE, and nothing made. */
Test(rref_make, records_are_bounded)
{
	shard->rrefs->records.n = shard->rrefs->records.slots_n / 2;
	make_sum(1, 7);
	expect_error(1, FAR_RESOURCE, FAR_EXECUTED_NO, "no room");
	shard->rrefs->records.n = 0;
	shard->rrefs->forks.n = shard->rrefs->forks.slots_n / 2;
	make_sum(2, 7);
	expect_error(2, FAR_RESOURCE, FAR_EXECUTED_NO, "no room");
	shard->rrefs->forks.n = 0;
	expect_empty();
}
