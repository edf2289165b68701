/* SPDX-License-Identifier: BSD-3-Clause */
/** Lists, dicts, custom types and views as bytes. The test's thread. */
#include "base/hash.h"
#include "base/limits.h"
#include "encoded.h"
#include "value_trees.h"

#include <errno.h>
#include <farcall/message.h>
#include <math.h>

static int decode_in(const uint8_t *bytes, size_t size, struct far_val *v, struct test_arena *a)
{
	size_t n;
	return decode(bytes, size, v, FAR_ARGS_MAX, &n, &a->arena);
}

static struct test_arena arena, made;

static void round_trip(const struct far_val *v, size_t n)
{
	struct far_val out[FAR_ARGS_MAX];
	size_t size, n_out = 99;
	uint8_t *p = encode(v, n, &size);
	for (int copied = 0; copied < 2; copied++) {
		test_arena_init(&arena, copied);
		cr_assert_eq(values_read(p, size, out, FAR_ARGS_MAX, &n_out, &arena.arena), 0);
		cr_assert_eq(n_out, n);
		cr_assert(tree_inside(out, n, p, size, !copied));
		for (size_t i = 0; i < n; i++)
			cr_assert(tree_same(&v[i], &out[i]), "value %zu", i);
		test_arena_fini(&arena);
	}
	/* Cut anywhere or one byte longer it is malformed. */
	test_arena_init(&arena, true);
	for (size_t cut = 0; cut < size && size < 2000; cut++)
		cr_assert_eq(decode_in(p, cut, out, &arena), -EBADMSG, "cut to %zu of %zu", cut, size);
	uint8_t *longer = payload_alloc(size + 1);
	memcpy(longer, p, size);
	longer[size] = 0;
	cr_assert_eq(decode_in(longer, size + 1, out, &arena), -EBADMSG);
	test_arena_fini(&arena);
	free(longer);
	free(p);
}

static void expect_bytes(struct far_val v, const uint8_t *want, size_t n)
{
	size_t size;
	uint8_t *p = encode(&v, 1, &size);
	cr_expect_eq(size, n);
	cr_expect(size == n && memcmp(p, want, n) == 0);
	free(p);
	round_trip(&v, 1);
}

#define EXPECT_BYTES(v, ...) expect_bytes(v, (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

Test(encoding_trees, the_documented_bytes)
{
	EXPECT_BYTES(far_list(NULL, 0), 1, 7, 0);
	EXPECT_BYTES(far_dict(NULL, 0), 1, 8, 0);
	EXPECT_BYTES(FAR_LIST(1, "a", far_none()), 0x21, 3, 7, 3, 2, 2, 4, 1, 'a', 0, 0);
	EXPECT_BYTES(FAR_LIST(FAR_LIST(far_bool(true)), far_list(NULL, 0)), 0x21, 3, 7, 2, 7, 1, 1, 1, 7, 0);
	EXPECT_BYTES(FAR_DICT(FAR_ENTRY("k", 1), FAR_ENTRY(2, far_none())), 0x21, 4, 8, 2, 4, 1, 'k', 0, 2, 2, 2, 4, 0);
	struct far_tensor t = far_tensor_1d(FAR_I16, "\1\0\2", 2);
	EXPECT_BYTES(FAR_LIST(&t, far_bytes("xyz", 3)), 0x21, 2, 7, 2, 6, 0x41, 0, 2, 5, 3, 1, 0, 2, 0, 'x', 'y', 'z');
	struct test_object o = {3, {1, 2, 3}};
	uint64_t hash = hash64("test::Object", 12);
	uint8_t want[19] = {1, 9, [10] = 3, [16] = 1, 2, 3};
	memcpy(want + 2, &hash, 8);
	expect_bytes(far_custom(&test_custom, &o), want, sizeof want);
}

Test(encoding_trees, many_tensors_lie_apart_and_aligned)
{
	enum { N = 500 };
	static double data[N];
	static struct far_val items[N];
	for (size_t i = 0; i < N; i++) {
		struct far_tensor t = far_tensor_1d((enum far_dtype)(1 + i % (FAR_DTYPE_COUNT - 1)), data, i % 40);
		data[i] = (double)i;
		items[i] = far_tensor_val(&t);
	}
	struct far_val v[2] = {far_list(items, N), far_int(3)};
	round_trip(v, 2);
}

Test(encoding_trees, random_trees_come_back)
{
	for (uint64_t seed = 1; seed <= 1000; seed++) {
		uint64_t state = seed;
		test_arena_init(&made, false);
		struct far_val v[4];
		size_t n = tree_random_u64(&state) % 5;
		for (size_t i = 0; i < n; i++)
			v[i] = tree_random(&state, 4, &made);
		round_trip(v, n);
		test_arena_fini(&made);
	}
}

Test(encoding_trees, any_byte_of_a_tree_may_change)
{
	struct far_val out[FAR_ARGS_MAX];
	test_arena_init(&made, false);
	for (uint64_t seed = 1; seed <= 60; seed++) {
		uint64_t state = seed;
		struct far_val v = tree_random(&state, 3, &made);
		size_t size, n;
		uint8_t *p = encode(&v, 1, &size);
		for (size_t at = 0; at < size && at < 300; at++) {
			uint8_t old = p[at];
			for (unsigned bit = 0; bit < 8; bit++) {
				p[at] = (uint8_t)(old ^ 1u << bit);
				test_arena_init(&arena, bit % 2);
				if (values_read(p, size, out, FAR_ARGS_MAX, &n, &arena.arena) == 0)
					cr_assert(tree_inside(out, n, p, size, !(bit % 2)));
				test_arena_fini(&arena);
			}
			p[at] = old;
		}
		free(p);
	}
	test_arena_fini(&made);
}

/** A list around a list around … `depth` of them. */
static struct far_val nested(struct far_val *items, unsigned depth)
{
	for (unsigned i = 0; i < depth; i++)
		items[i + 1] = far_list(&items[i], 1);
	return items[depth];
}

Test(encoding_trees, depth_is_bounded)
{
	struct far_val items[FAR_DEPTH_MAX + 2] = {far_int(1)};
	struct far_val v = nested(items, FAR_DEPTH_MAX);
	struct values_plan plan;
	struct far_err err;
	round_trip(&v, 1);
	v = nested(items, FAR_DEPTH_MAX + 1);
	cr_expect_eq(values_size(&v, 1, &plan, &err), SIZE_MAX);
	cr_expect_eq(err.status, FAR_TOO_LARGE);
	cr_expect_str_eq(err.text, "argument 1, inside it: lists and dicts nested more than 32 deep");
	/* A value that contains itself. */
	items[0] = far_list(&items[0], 1);
	cr_expect_eq(values_size(items, 1, &plan, &err), SIZE_MAX);
}

static int decode_nested(uint8_t *bytes, size_t head, size_t depth)
{
	struct far_val v;
	size_t at = head;
	for (size_t i = 0; i < depth; i++) {
		bytes[at++] = 7;
		bytes[at++] = 1;
	}
	bytes[at++] = 0;
	test_arena_init(&arena, true);
	int rc = decode_in(bytes, at, &v, &arena);
	test_arena_fini(&arena);
	return rc;
}

Test(encoding_trees, a_deep_payload_is_refused)
{
	static uint8_t bytes[80010] = {0xa1, FAR_DEPTH_MAX};
	cr_expect_eq(decode_nested(bytes, 2, FAR_DEPTH_MAX), 0);
	bytes[1] = FAR_DEPTH_MAX + 1;
	cr_expect_eq(decode_nested(bytes, 2, FAR_DEPTH_MAX + 1), -EBADMSG);
	bytes[1] = 0x80 | (40000 & 127), bytes[2] = 0x80 | (40000 >> 7 & 127), bytes[3] = 40000 >> 14;
	cr_expect_eq(decode_nested(bytes, 4, 40000), -EBADMSG);
}

Test(encoding_trees, items_are_bounded)
{
	static struct far_val items[FAR_ITEMS_MAX + 1];
	struct values_plan plan;
	struct far_err err;
	struct far_val v[2] = {far_list(items, FAR_ITEMS_MAX - 1), far_list(items, 1)};
	round_trip(v, 2);
	v[1].u.list.n = 2;
	cr_expect_eq(values_size(v, 2, &plan, &err), SIZE_MAX);
	cr_expect_eq(err.status, FAR_TOO_LARGE);
	cr_expect_not_null(strstr(err.text, "argument 2: the lists and dicts of a message have more than 65536 items"),
			   "%s", err.text);
	v[0].u.list.n = SIZE_MAX;
	cr_expect_eq(values_size(v, 1, &plan, &err), SIZE_MAX);
	static struct far_dict_entry entries[FAR_DICT_MAX + 1];
	for (size_t i = 0; i <= FAR_DICT_MAX; i++)
		entries[i] = far_entry(far_int((int64_t)i), far_none());
	v[0] = far_dict(entries, FAR_DICT_MAX);
	round_trip(v, 1);
	v[0].u.dict.n++;
	cr_expect_eq(values_size(v, 1, &plan, &err), SIZE_MAX);
	cr_expect_not_null(strstr(err.text, "a dict of 1025 entries, at most 1024"), "%s", err.text);
}

/** A payload with a list of n values that the bytes of `item` describe. */
static int decode_list(uint64_t n, const uint8_t *item, size_t item_len)
{
	static uint8_t bytes[16 + (FAR_ITEMS_MAX + 1) * 10];
	struct far_val v;
	size_t at = 0;
	bytes[at++] = 0xa1;
	for (int twice = 0; twice < 2; twice++) {
		for (uint64_t x = n; x >= 0x80; x >>= 7)
			bytes[at++] = (uint8_t)(x | 0x80);
		bytes[at++] = (uint8_t)(n >> (n >= 1 << 14 ? 14 : 7));
		if (!twice)
			bytes[at++] = 7;
	}
	for (uint64_t i = 0; i < n; i++, at += item_len)
		memcpy(bytes + at, item, item_len);
	test_arena_init(&arena, true);
	int rc = decode_in(bytes, at, &v, &arena);
	test_arena_fini(&arena);
	return rc;
}

Test(encoding_trees, the_reader_has_the_bounds_of_the_writer)
{
	static const uint8_t none[1] = {0}, custom[10] = {9, 1, 2, 3, 4, 5, 6, 7, 8, 0};
	cr_expect_eq(decode_list(FAR_ITEMS_MAX, none, 1), 0);
	cr_expect_eq(decode_list(FAR_ITEMS_MAX + 1, none, 1), -EBADMSG);
	cr_expect_eq(decode_list(FAR_CUSTOMS_MAX, custom, 10), 0);
	cr_expect_eq(decode_list(FAR_CUSTOMS_MAX + 1, custom, 10), -EBADMSG);
}

Test(encoding_trees, a_short_payload_cannot_ask_for_much_memory)
{
	struct far_val v[FAR_ARGS_MAX];
	static const uint8_t many[] = {0x21, 0xff, 0xff, 3, 7, 0xff, 0xff, 3, 0};
	static const uint8_t three[] = {0x21, 3, 7, 3, 0, 0, 0};
	test_arena_init(&arena, true);
	arena.bytes_max = 0;
	cr_expect_eq(decode_in(many, sizeof many, v, &arena), -EBADMSG, "refused before memory is allocated");
	cr_expect_eq(decode_in(three, sizeof three, v, &arena), -ENOMEM);
	arena.bytes_max = 3 * sizeof v[0];
	cr_expect_eq(decode_in(three, sizeof three, v, &arena), 0);
	test_arena_fini(&arena);
	/* Without an arena there are no items and no customs, but empty lists. */
	size_t n;
	static const uint8_t custom[] = {1, 9, 1, 2, 3, 4, 5, 6, 7, 8, 0};
	static const uint8_t empty[] = {2, 7, 0, 8, 0};
	cr_expect_eq(values_read(three, sizeof three, v, 4, &n, NULL), -ENOMEM);
	cr_expect_eq(values_read(custom, sizeof custom, v, 4, &n, NULL), -ENOMEM);
	cr_expect_eq(values_read(empty, sizeof empty, v, 4, &n, NULL), 0);
	cr_expect(v[0].u.list.n == 0 && v[1].u.dict.n == 0);
}

#define BYTES(...)                                                                                                     \
	sizeof((const uint8_t[]){__VA_ARGS__}),                                                                        \
	{                                                                                                              \
		__VA_ARGS__                                                                                            \
	}

Test(encoding_trees, malformed_trees_are_refused)
{
	static const struct {
		const char *what;
		size_t size;
		uint8_t data[32];
	} table[] = {
		{"items announced, none there", BYTES(0x21, 0, 7, 0)},
		{"more items announced than there are", BYTES(0x21, 2, 7, 1, 0)},
		{"an item beyond those announced", BYTES(0x21, 1, 7, 2, 0, 0)},
		{"items, none announced", BYTES(1, 7, 1, 0)},
		{"a count of 2^64-1", BYTES(0x21, 1, 7, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0)},
		{"a dict's count that wraps when doubled",
		 BYTES(0x21, 1, 8, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 0)},
		{"half an entry", BYTES(0x21, 1, 8, 1, 2, 0)},
		{"a list's items cut", BYTES(0x21, 2, 7, 2, 0)},
		{"a key twice", BYTES(0x21, 4, 8, 2, 2, 2, 0, 2, 2, 0)},
		{"a key that is NaN", BYTES(0x21, 2, 8, 1, 3, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f, 0)},
		{"a key that is none", BYTES(0x21, 2, 8, 1, 0, 0)},
		{"a key that is bytes", BYTES(0x21, 2, 8, 1, 5, 0, 0)},
		{"a key that is a list", BYTES(0x21, 2, 8, 1, 7, 0, 0)},
		{"a key that is a tensor", BYTES(0x21, 2, 8, 1, 6, 0x71, 0, 0, 0)},
		{"a custom's hash cut", BYTES(1, 9, 1, 2, 3, 4, 5, 6, 7)},
		{"a custom past the end", BYTES(1, 9, 1, 2, 3, 4, 5, 6, 7, 8, 1)},
		{"a custom of 2^64-1",
		 BYTES(1, 9, 1, 2, 3, 4, 5, 6, 7, 8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1)},
		{"bit 6 of the head", BYTES(0x61, 1, 7, 1, 0)},
		{"a tensor in a list past the end", BYTES(0x21, 1, 7, 1, 6, 0x71, 0, 2, 1)},
	};
	struct far_val v[FAR_ARGS_MAX];
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		for (int copied = 0; copied < 2; copied++) {
			test_arena_init(&arena, copied);
			cr_expect_eq(decode_in(table[i].data, table[i].size, v, &arena), -EBADMSG, "%s", table[i].what);
			test_arena_fini(&arena);
		}
	}
}

static void expect_refused(struct far_val v, enum far_status status, const char *text)
{
	struct far_err err = {0};
	struct values_plan plan;
	cr_expect_eq(values_size(&v, 1, &plan, &err), SIZE_MAX, "%s", text);
	cr_expect_eq(err.status, status, "%s", text);
	cr_expect_not_null(strstr(err.text, text), "%s", err.text);
	struct far_val list = far_list(&v, 1);
	cr_expect_eq(values_size(&list, 1, &plan, &err), SIZE_MAX, "%s", text);
	cr_expect_eq(strncmp(err.text, "argument 1, inside it: ", 23), 0, "%s", err.text);
	cr_expect_eq(values_size(&list, 1, &plan, NULL), SIZE_MAX);
}

Test(encoding_trees, what_an_application_got_wrong_is_named)
{
	struct test_object o = {0, {0}};
	struct far_custom_type type = test_custom;
	expect_refused(FAR_LIST(FAR_KW("x", 1)), FAR_INVALID, "keyword \"x\" is not allowed here");
	expect_refused(far_list(NULL, 1), FAR_INVALID, "a list or dict of 1 whose items are NULL");
	expect_refused(far_dict(NULL, 1), FAR_INVALID, "a list or dict of 1 whose items are NULL");
	expect_refused(FAR_DICT(FAR_ENTRY(1, 1), FAR_ENTRY(1, 2)), FAR_INVALID, "key 2 of a dict is a duplicate");
	expect_refused(FAR_DICT(FAR_ENTRY((double)NAN, 2)), FAR_INVALID, "key 1 of a dict is NaN");
	expect_refused(FAR_DICT(FAR_ENTRY(far_none(), 2)), FAR_INVALID, "key 1 of a dict is a none, keys are");
	expect_refused(far_custom(NULL, &o), FAR_INVALID, "a value of a custom type whose type");
	type.encode = NULL;
	expect_refused(far_custom(&type, &o), FAR_INVALID, "a value of a custom type whose type");
	static struct far_val customs[FAR_CUSTOMS_MAX + 1];
	for (size_t i = 0; i <= FAR_CUSTOMS_MAX; i++)
		customs[i] = far_custom(&test_custom, &o);
	struct far_val v = far_list(customs, FAR_CUSTOMS_MAX);
	round_trip(&v, 1);
	expect_refused(far_list(customs, FAR_CUSTOMS_MAX + 1), FAR_TOO_LARGE, "more than 256 values of custom types");
}

static size_t no_size(const void *object, void *user)
{
	return *(size_t *)user;
}

Test(encoding_trees, an_object_that_cannot_be_sent)
{
	size_t size = SIZE_MAX;
	struct far_custom_type type = test_custom;
	type.size = no_size;
	type.user = &size;
	expect_refused(far_custom(&type, &size), FAR_INVALID, "this object of type test::Object cannot be sent");
	size = FAR_MSG_BYTES_MAX + 1;
	expect_refused(far_custom(&type, &size), FAR_TOO_LARGE, "the object of a custom type is larger");
}

Test(encoding_trees, views_travel_compactly)
{
	float matrix[6][5];
	for (int i = 0; i < 30; i++)
		matrix[i / 5][i % 5] = (float)i;
	uint64_t shape[2] = {5, 6};
	int64_t transposed[2] = {1, 5};
	struct far_tensor t = far_tensor_nd(FAR_F32, matrix, 2, shape, transposed);
	struct far_val v = far_tensor_val(&t);
	size_t size;
	free(encode(&v, 1, &size));
	cr_expect_eq(size, 64 + 120);
	round_trip(&v, 1);
	/* One column, backwards; then one element, repeated. */
	uint64_t six[1] = {6};
	int64_t back[1] = {-5}, still[1] = {0};
	t = far_tensor_nd(FAR_F32, &matrix[5][2], 1, six, back);
	v = far_tensor_val(&t);
	uint8_t *p = encode(&v, 1, &size);
	cr_expect_eq(size, 29 + 3);
	cr_expect_eq(memcmp(p + 8, (const float[]){27, 22, 17, 12, 7, 2}, 24), 0);
	free(p);
	t = far_tensor_nd(FAR_F32, &matrix[1][1], 1, six, still);
	v = far_tensor_val(&t);
	round_trip(&v, 1);
	t.ndim = FAR_DIMS_MAX + 1;
	expect_refused(far_tensor_val(&t), FAR_INVALID, "dimensions");
}

/* A tensor by reference, at any depth, is encoded as its copy is. */
Test(encoding_trees, tensors_by_reference)
{
	float data[3] = {1, 2, 3};
	struct far_tensor t = far_tensor_1d(FAR_F32, data, 3), *none = NULL;
	struct far_val copies[] = {far_tensor_val(&t), far_val_copy(FAR_LIST(far_tensor_val(&t), 2))};
	struct far_val refs[] = {far_tensor_ref(&t), far_val_copy(FAR_LIST(&t, 2))};
	for (size_t n = 1; n <= 2; n++) {
		size_t size, same;
		uint8_t *a = encode(copies, n, &size), *b = encode(refs, n, &same);
		cr_assert_eq(size, same);
		cr_assert_arr_eq(a, b, size);
		free(a);
		free(b);
	}
	cr_assert(refs[0].by_ref && refs[1].u.list.items[0].by_ref);
	struct values_plan plan;
	struct far_err err;
	struct far_val v = far_tensor_ref(none);
	cr_assert_eq(values_size(&v, 1, &plan, &err), SIZE_MAX);
	cr_assert_eq(err.status, FAR_INVALID);
	cr_assert_str_eq(err.text, "argument 1: a pointer to a tensor that is NULL");
}
