/* SPDX-License-Identifier: BSD-3-Clause */
/** Trees of values: copies, parts, ends. The test's thread. */
#include "value/encoding.h"
#include "value/tree.h"
#include "value/types.h"
#include "value_trees.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static struct test_arena made;

static void register_type(void)
{
	const struct custom_type *t;
	struct far_err err;
	cr_assert_eq(types_add(&test_custom, &t, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(types_find(t->hash), t);
}

static bool knows(const void *ctx, uint32_t type)
{
	return ctx != NULL;
}

Test(tree, copies_of_random_trees_live_on)
{
	register_type();
	for (uint64_t seed = 1; seed <= 500; seed++) {
		uint64_t state = seed;
		struct far_val v, copy, again;
		struct far_err err;
		test_arena_init(&made, false);
		v = tree_random(&state, 4, &made);
		cr_assert_eq(far_val_dup(&v, &copy, &err), FAR_OK, "%s", err.text);
		cr_assert(tree_same(&v, &copy));
		cr_assert_eq(far_val_dup(&copy, &again, &err), FAR_OK, "%s", err.text);
		far_val_fini(&copy);
		cr_assert(tree_same(&v, &again));
		far_val_fini(&again);
		cr_assert_eq(again.type, FAR_TYPE_NONE);
		cr_assert_eq(test_custom_alive, 0, "seed %zu", (size_t)seed);
		test_arena_fini(&made);
	}
}

Test(tree, a_part_can_be_kept)
{
	struct far_val v = FAR_DICT(FAR_ENTRY("a", FAR_LIST(1, "two")), FAR_ENTRY("b", 3)), copy, part;
	cr_assert_eq(far_val_dup(&v, &copy, NULL), FAR_OK);
	cr_assert_eq(far_val_dup(far_dict_get(&copy, "a"), &part, NULL), FAR_OK);
	far_val_fini(&copy);
	cr_assert_eq(part.u.list.n, 2);
	cr_assert_str_eq(part.u.list.items[1].u.s.data, "two");
	far_val_fini(&part);
	v = far_kw("alpha", far_int(3));
	cr_assert_eq(far_val_dup(&v, &copy, NULL), FAR_OK);
	cr_assert(copy.u.i == 3 && !copy.kw);
	far_val_fini(&copy);
}

Test(tree, what_cannot_be_copied)
{
	struct far_val v = far_list(NULL, 1), copy = far_int(9);
	struct far_err err;
	cr_expect_eq(far_val_dup(&v, &copy, &err), FAR_INVALID);
	struct test_object o = {2, {1, 2}};
	struct far_custom_type other = test_custom;
	other.name = "test::Unknown";
	v = far_custom(&other, &o);
	cr_expect_eq(far_val_dup(&v, &copy, &err), FAR_UNSUPPORTED);
	cr_expect_not_null(strstr(err.text, "not registered"), "%s", err.text);
	cr_expect_eq(copy.u.i, 9, "set on success only");
}

static uint8_t payload[512] __attribute__((aligned(64)));

static size_t encode(const struct far_val *v, size_t n)
{
	struct values_plan plan;
	struct far_err err;
	size_t size = values_size(v, n, &plan, &err);
	cr_assert(size <= sizeof payload, "%s", err.text);
	values_write(v, n, &plan, payload);
	return size;
}

Test(tree, arguments_are_decoded_and_ended)
{
	register_type();
	struct test_object o[3] = {{1, {1}}, {0, {0}}, {60, {3}}};
	char text[FAR_ERR_TEXT_MAX];
	struct far_val v[2] = {FAR_LIST(far_custom(&test_custom, &o[0]), 1),
			       FAR_DICT(FAR_ENTRY(1, FAR_LIST(far_custom(&test_custom, &o[1]))),
					FAR_ENTRY(2, far_custom(&test_custom, &o[2])))};
	char strings[64];
	struct values_arena arena = {.strings = strings, .strings_cap = sizeof strings, .more = tree_more};
	struct far_val out[2];
	size_t n, size = encode(v, 2);
	cr_assert_eq(values_read(payload, size, out, 2, &n, &arena), 0);
	cr_assert_not_null(arena.held);
	memset(payload, 0xff, sizeof payload); /* customs were copied before they are decoded */
	cr_assert_eq(tree_decode(out, 2, knows, &o, text), FAR_OK, "%s", text);
	cr_assert_eq(test_custom_alive, 3);
	cr_assert(tree_same(&v[0], &out[0]) && tree_same(&v[1], &out[1]));
	tree_release(out, 2, &arena);
	cr_assert_eq(test_custom_alive, 0);
	cr_assert_null(arena.held);
}

Test(tree, an_object_that_is_refused_ends_those_before)
{
	register_type();
	struct test_object o[2] = {{1, {1}}, {59, {2}}};
	char text[FAR_ERR_TEXT_MAX];
	struct far_val v = FAR_LIST(far_custom(&test_custom, &o[0]), far_custom(&test_custom, &o[1]), FAR_LIST("x")),
		       out;
	struct values_arena arena = {.more = tree_more};
	size_t n, size = encode(&v, 1);
	cr_assert_eq(values_read(payload, size, &out, 1, &n, &arena), 0);
	((struct far_val *)(uintptr_t)out.u.list.items)[1].u.custom.len = 61; /* more than the type takes */
	cr_assert_eq(tree_decode(&out, 1, NULL, NULL, text), FAR_BAD_ARGS);
	cr_assert_str_eq(text, "type test::Object refused to decode 61 bytes: message too large");
	cr_assert_eq(test_custom_alive, 0);
	tree_release(NULL, 0, &arena);
	cr_assert_eq(values_read(payload, size, &out, 1, &n, &arena), 0);
	cr_assert_eq(tree_decode(&out, 1, knows, NULL, text), FAR_UNSUPPORTED);
	cr_assert_not_null(strstr(text, "test::Object, which is not registered there"), "%s", text);
	tree_release(NULL, 0, &arena);
}

Test(tree, a_result_keeps_its_payload)
{
	register_type();
	struct test_object o = {4, {1, 2, 3, 4}};
	struct far_val v = FAR_LIST("text", far_bytes("abc", 3), far_custom(&test_custom, &o)), out;
	size_t size = encode(&v, 1);
	struct far_buf *b = buf_alloc(size);
	struct far_err err;
	memcpy(buf_data(b), payload, size);
	cr_assert_eq(tree_read(buf_data(b), size, b, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(atomic_load(&b->refs), 2);
	cr_assert_eq(test_custom_alive, 1);
	cr_assert(tree_same(&v, &out));
	far_val_fini(&out);
	cr_assert_eq(test_custom_alive, 0);
	cr_assert_eq(atomic_load(&b->refs), 1);
	/* A malformed one leaves nothing behind. */
	((uint8_t *)buf_data(b))[1]++;
	cr_assert_eq(tree_read(buf_data(b), size, b, &out, &err), FAR_PROTOCOL);
	cr_assert_eq(out.type, FAR_TYPE_NONE);
	cr_assert_eq(atomic_load(&b->refs), 1);
	buf_unref(b);
}
