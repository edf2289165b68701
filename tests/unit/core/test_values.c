/* SPDX-License-Identifier: BSD-3-Clause */
/** Requests whose arguments hold others, or objects of custom types: what they take is given back on every way out.
 * The test's thread. */
#include "core/packet.h"
#include "shard_fixture.h"
#include "value/encoding.h"
#include "value_trees.h"

#include <criterion/criterion.h>
#include <string.h>

static unsigned seen; /* objects alive while the handler ran */
static const struct function *any, *over;

static enum far_status on_any(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int((int64_t)far_len(&args[0]));
	seen = test_custom_alive;
	ran++;
	return far_return(req, &v);
}

static void setup(void)
{
	static struct far_function f[] = {{"t::any(List|Dict|test::Object x) -> int", FAR_KIND_INLINE, on_any, NULL},
					  {"t::over(int x) -> int", FAR_KIND_INLINE, on_any, NULL},
					  {"t::over(List x) -> int", FAR_KIND_INLINE, on_any, NULL}};
	struct far_err err;
	shard_setup();
	cr_assert_eq(registry_add_type(&registry, &test_custom, &err), FAR_OK, "%s", err.text);
	for (size_t i = 0; i < sizeof f / sizeof *f; i++)
		cr_assert_eq(registry_add(&registry, &f[i], &err), FAR_OK, "%s", err.text);
	any = registry_find(&registry, "t::any");
	over = registry_find(&registry, "t::over");
}

static void teardown(void)
{
	cr_expect_eq(test_custom_alive, 0);
	cr_expect_null(shard->arena.held);
	shard_teardown();
}

TestSuite(core_values, .init = setup, .fini = teardown);

static uint8_t body[1024];

static size_t encode(struct far_val v)
{
	struct values_plan plan;
	struct far_err err;
	size_t len = values_size(&v, 1, &plan, &err);
	cr_assert(len <= sizeof body, "%s", err.text);
	values_write(&v, 1, &plan, body);
	return len;
}

static void expect_int(int64_t i)
{
	uint8_t want[16];
	struct far_val v = far_int(i);
	struct values_plan plan;
	size_t len = values_size(&v, 1, &plan, NULL);
	values_write(&v, 1, &plan, want);
	expect_reply(1, want, len);
}

Test(core_values, a_tree_reaches_its_handler)
{
	struct test_object o = {2, {1, 2}};
	struct far_val object = far_custom(&test_custom, &o);
	size_t len =
		encode(FAR_DICT(FAR_ENTRY("a", FAR_LIST(object, 1)), FAR_ENTRY("b", object), FAR_ENTRY(1, "text")));
	put_typed(any->index, body, len);
	passes(1);
	expect_int(3);
	cr_expect_eq(seen, 2);
	len = encode(object);
	put_typed(any->index, body, len);
	passes(1);
	expect_int(0);
	cr_expect_eq(seen, 1);
	cr_expect_eq(ran, 2);
}

Test(core_values, what_is_refused_is_given_back)
{
	struct test_object o = {2, {1, 2}};
	struct far_custom_type unregistered = test_custom;
	unregistered.name = "test::Unregistered";
	/* A list where an int is taken: its items were read already. */
	size_t len = encode(FAR_LIST(1, 2, 3));
	put_typed(over->index, body, len);
	passes(1);
	expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed arguments for t::over(int)->int");
	cr_expect_null(shard->arena.held);
	/* A type that is not registered here, after one that is. */
	len = encode(FAR_LIST(far_custom(&test_custom, &o), far_custom(&unregistered, &o)));
	put_typed(any->index, body, len);
	passes(1);
	expect_error(1, FAR_UNSUPPORTED, FAR_EXECUTED_NO, "t::any: an argument holds a value of a custom type (hash ");
	/* At the top the signature refuses it. */
	len = encode(far_custom(&unregistered, &o));
	put_typed(any->index, body, len);
	passes(1);
	expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed arguments for t::any");
	/* One byte more than the type takes: 60 become 61 by the length alone. */
	o.len = 60;
	len = encode(FAR_LIST(far_custom(&test_custom, &o), far_bytes("x", 1)));
	cr_assert_eq(body[13], 60);
	body[13] = 61;
	memset(body + len, 0, 1);
	cr_assert_eq(body[15], 1);
	body[15] = 0;
	put_typed(any->index, body, 64 + 61);
	passes(1);
	expect_error(1, FAR_BAD_ARGS, FAR_EXECUTED_NO,
		     "t::any: an argument holds type test::Object refused to decode 61");
	/* Cut anywhere. */
	len = encode(FAR_LIST(far_custom(&test_custom, &o), FAR_LIST("text", 1)));
	for (size_t cut = 1; cut < len; cut++) {
		put_typed(any->index, body, cut);
		passes(1);
		expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed arguments");
		cr_assert_null(shard->arena.held);
	}
	cr_expect_eq(ran, 0);
}

static void put_hashed(const struct function *fn, uint64_t signature, size_t len)
{
	struct packet_hash hash = {fn->signature.name_hash, signature};
	memcpy(body + len, &hash, sizeof hash);
	union packet_head h = request(0, 1, UINT64_MAX);
	h.flags = PACKET_TYPED | PACKET_HASHED;
	put(NIC_PEER, h, body, len + sizeof hash);
	passes(1);
}

Test(core_values, an_overload_is_found_by_its_hash)
{
	union packet_head h;
	const struct function *list = registry_next(over);
	put_hashed(over, list->signature.canonical_hash, encode(FAR_LIST(1, 2)));
	expect(&h, PACKET_REPLY, 1);
	cr_expect_eq(h.reply.function, list->index);
	put_hashed(over, over->signature.canonical_hash, encode(far_int(1)));
	expect(&h, PACKET_REPLY, 1);
	cr_expect_eq(h.reply.function, over->index);
	put_hashed(over, 1234, encode(far_int(1)));
	expect_error(1, FAR_SIGNATURE, FAR_EXECUTED_NO, "t::over(int)->int; t::over(List)->int");
	cr_expect_eq(ran, 2);
}
