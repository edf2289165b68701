/* SPDX-License-Identifier: BSD-3-Clause */
#include "value_trees.h"

#include "base/hash.h"
#include "base/must.h"

#include <farcall/message.h>
#include <stdlib.h>

struct test_block {
	struct test_block *next;
	void *bytes;
};

static void *more(struct values_arena *arena, size_t bytes)
{
	struct test_arena *a = (struct test_arena *)arena;
	if (bytes > a->bytes_max)
		return NULL;
	struct test_block *b = malloc(sizeof *b);
	must(b);
	b->bytes = NULL;
	must(posix_memalign(&b->bytes, 64, bytes ? bytes : 1) == 0);
	memset(b->bytes, 0xee, bytes);
	b->next = a->blocks;
	a->blocks = b;
	return b->bytes;
}

void test_arena_init(struct test_arena *a, bool copied)
{
	a->arena = (struct values_arena){
		.strings = copied ? a->strings : NULL, .strings_cap = copied ? sizeof a->strings : 0, .more = more};
	a->blocks = NULL;
	a->bytes_max = SIZE_MAX;
}

void test_arena_fini(struct test_arena *a)
{
	while (a->blocks) {
		struct test_block *b = a->blocks;
		a->blocks = b->next;
		free(b->bytes);
		free(b);
	}
}

/* ---- a custom type ---- */

unsigned test_custom_alive;

static size_t object_size(void *user, const void *object)
{
	(void)user;
	return ((const struct test_object *)object)->len;
}

static void object_encode(void *user, const void *object, void *dst, size_t len)
{
	(void)user;
	must((uintptr_t)dst % 8 == 0);
	memcpy(dst, ((const struct test_object *)object)->bytes, len);
}

static enum far_status object_decode(void *user, const void *src, size_t len, void **object)
{
	(void)user;
	struct test_object *o = calloc(1, sizeof *o);
	if (!o || len > sizeof o->bytes || (uintptr_t)src % 8 != 0) {
		free(o);
		return FAR_TOO_LARGE;
	}
	o->len = (uint32_t)len;
	if (len)
		memcpy(o->bytes, src, len);
	test_custom_alive++;
	*object = o;
	return FAR_OK;
}

static void object_destroy(void *user, void *object)
{
	(void)user;
	test_custom_alive--;
	free(object);
}

const struct far_custom_type test_custom = {"test::Object", object_size,    object_encode,
					    object_decode,  object_destroy, NULL};

/** The encoded bytes of a custom: sent (an object), decoded, or as it arrived. */
static const void *custom_bytes(const struct far_val *v, size_t *len, uint64_t *hash)
{
	if (!v->u.custom.type) {
		*len = v->u.custom.len;
		*hash = v->u.custom.hash;
		return v->u.custom.object;
	}
	const struct test_object *o = v->u.custom.object;
	*len = o->len;
	*hash = hash64(v->u.custom.type->name, strlen(v->u.custom.type->name));
	return o->bytes;
}

/* ---- comparing ---- */

static const uint8_t *element_of(const struct far_tensor *t, size_t i)
{
	size_t size = far_dtype_size((enum far_dtype)t->dtype);
	ptrdiff_t at = (ptrdiff_t)i;
	if (t->strides) {
		at = 0;
		for (unsigned k = t->ndim; k-- > 0; i /= t->shape[k])
			at += (ptrdiff_t)(i % t->shape[k]) * t->strides[k];
	}
	return (const uint8_t *)t->data + at * (ptrdiff_t)size;
}

static bool tensor_same(const struct far_tensor *a, const struct far_tensor *b)
{
	if (a->dtype != b->dtype || a->ndim != b->ndim || memcmp(a->shape, b->shape, a->ndim * sizeof a->shape[0]) != 0)
		return false;
	size_t n = far_tensor_count(a);
	for (size_t i = 0; i < n; i++)
		if (memcmp(element_of(a, i), element_of(b, i), far_dtype_size((enum far_dtype)a->dtype)) != 0)
			return false;
	return true;
}

static bool custom_same(const struct far_val *a, const struct far_val *b)
{
	size_t len_a, len_b;
	uint64_t hash_a, hash_b;
	const void *bytes_a = custom_bytes(a, &len_a, &hash_a), *bytes_b = custom_bytes(b, &len_b, &hash_b);
	return len_a == len_b && hash_a == hash_b && (len_a == 0 || memcmp(bytes_a, bytes_b, len_a) == 0);
}

static bool items_same(const struct far_val *a, const struct far_val *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!tree_same(&a[i], &b[i]))
			return false;
	return true;
}

bool tree_same(const struct far_val *a, const struct far_val *b)
{
	if (a->type != b->type)
		return false;
	switch ((enum far_type)a->type) {
	case FAR_TYPE_NONE:
		return true;
	case FAR_TYPE_BOOL:
		return a->u.b == b->u.b;
	case FAR_TYPE_INT:
		return a->u.i == b->u.i;
	case FAR_TYPE_FLOAT:
		return memcmp(&a->u.f, &b->u.f, sizeof a->u.f) == 0;
	case FAR_TYPE_STRING:
	case FAR_TYPE_BYTES:
		return a->u.s.len == b->u.s.len &&
		       (a->u.s.len == 0 || memcmp(a->u.s.data, b->u.s.data, a->u.s.len) == 0);
	case FAR_TYPE_TENSOR:
		return tensor_same(&a->u.t, &b->u.t);
	case FAR_TYPE_LIST:
		return a->u.list.n == b->u.list.n && items_same(a->u.list.items, b->u.list.items, a->u.list.n);
	case FAR_TYPE_DICT:
		return a->u.dict.n == b->u.dict.n &&
		       items_same((const struct far_val *)a->u.dict.entries, (const struct far_val *)b->u.dict.entries,
				  2 * a->u.dict.n);
	case FAR_TYPE_CUSTOM:
		return custom_same(a, b);
	case FAR_TYPE_RREF:
		return a->u.rref == b->u.rref;
	case FAR_TYPE_COUNT:
		break;
	}
	return false;
}

static bool bytes_inside(const void *p, size_t len, size_t align, const uint8_t *src, size_t size)
{
	uintptr_t at = (uintptr_t)p, from = (uintptr_t)src;
	return at % align == 0 && at >= from && at <= from + size && len <= from + size - at;
}

bool tree_inside(const struct far_val *v, size_t n, const uint8_t *src, size_t size, bool strings_inside)
{
	size_t wide = size > 32 ? 64 : 0;
	bool ok = true;
	for (size_t i = 0; i < n && ok; i++) {
		const struct far_tensor *t = &v[i].u.t;
		ok = !v[i].kw && !v[i].own;
		if (v[i].type == FAR_TYPE_TENSOR)
			ok = ok && t->ndim <= FAR_DIMS_MAX && t->domain == 0 && !t->strides &&
			     far_dtype_size((enum far_dtype)t->dtype) > 0 &&
			     bytes_inside(t->data, far_tensor_bytes(t),
					  wide ? wide : far_dtype_size((enum far_dtype)t->dtype), src, size);
		else if (v[i].type == FAR_TYPE_BYTES)
			ok = ok && bytes_inside(v[i].u.s.data, v[i].u.s.len, 1, src, size);
		else if (v[i].type == FAR_TYPE_STRING)
			ok = ok && ((const char *)v[i].u.s.data)[v[i].u.s.len] == '\0' &&
			     (!strings_inside || bytes_inside(v[i].u.s.data, v[i].u.s.len + 1, 1, src, size));
		else if (v[i].type == FAR_TYPE_CUSTOM)
			ok = ok &&
			     (!strings_inside || bytes_inside(v[i].u.custom.object, v[i].u.custom.len, 8, src, size));
		else if (v[i].type == FAR_TYPE_LIST)
			ok = ok && tree_inside(v[i].u.list.items, v[i].u.list.n, src, size, strings_inside);
		else if (v[i].type == FAR_TYPE_DICT)
			ok = ok && tree_inside((const struct far_val *)v[i].u.dict.entries, 2 * v[i].u.dict.n, src,
					       size, strings_inside);
		else
			ok = ok && v[i].type < FAR_TYPE_COUNT;
	}
	return ok;
}

/* ---- random trees ---- */

uint64_t tree_random_u64(uint64_t *seed)
{
	uint64_t z = (*seed += UINT64_C(0x9e3779b97f4a7c15));
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static unsigned below(uint64_t *seed, unsigned n)
{
	return (unsigned)(tree_random_u64(seed) % n);
}

static void *random_bytes(uint64_t *seed, size_t n, struct test_arena *a)
{
	uint8_t *p = more(&a->arena, n);
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)tree_random_u64(seed);
	return p;
}

/** Strides of a view at random, and where it begins in memory that holds all it reaches. */
static void random_view(uint64_t *seed, struct far_tensor *t, struct test_arena *a)
{
	int64_t *strides = more(&a->arena, FAR_DIMS_MAX * sizeof *strides);
	size_t element = far_dtype_size((enum far_dtype)t->dtype), before = 0, after = 0;
	for (unsigned k = 0; k < t->ndim; k++) {
		strides[k] = (int64_t)below(seed, 7) - 3;
		uint64_t reach = t->shape[k] ? (t->shape[k] - 1) * (uint64_t)llabs(strides[k]) : 0;
		*(strides[k] < 0 ? &before : &after) += reach;
	}
	uint8_t *all = random_bytes(seed, (before + after + 1) * element, a);
	t->data = all + before * element;
	t->strides = strides;
}

static struct far_val random_tensor(uint64_t *seed, struct test_arena *a)
{
	uint64_t shape[FAR_DIMS_MAX];
	unsigned ndim = below(seed, 5) == 0 ? FAR_DIMS_MAX : below(seed, 4);
	for (unsigned k = 0; k < ndim; k++)
		shape[k] = ndim > 4 ? 1 + below(seed, 2) : below(seed, 20) == 0 ? 0 : 1 + below(seed, 5);
	struct far_tensor t =
		far_tensor_nd((enum far_dtype)(1 + below(seed, FAR_DTYPE_COUNT - 1)), NULL, ndim, shape, NULL);
	if (below(seed, 2))
		random_view(seed, &t, a);
	else
		t.data = random_bytes(seed, far_tensor_bytes(&t), a);
	return far_tensor_val(&t);
}

static struct far_val random_text(uint64_t *seed, struct test_arena *a)
{
	size_t n = below(seed, 12);
	char *s = random_bytes(seed, n + 1, a);
	struct far_val v = far_bytes(s, n);
	s[n] = '\0';
	v.type = below(seed, 2) ? FAR_TYPE_STRING : FAR_TYPE_BYTES;
	return v;
}

static struct far_val random_scalar(uint64_t *seed)
{
	uint64_t bits = tree_random_u64(seed);
	double f;
	memcpy(&f, &bits, sizeof f);
	switch (below(seed, 4)) {
	case 0:
		return far_none();
	case 1:
		return far_bool(bits & 1);
	case 2:
		return far_int((int64_t)(bits >> below(seed, 64)));
	default:
		return far_float(f);
	}
}

/** A key that no other entry of the dict has: its number decides. */
static struct far_val random_key(uint64_t *seed, size_t number, struct test_arena *a)
{
	char *s = more(&a->arena, 32);
	switch (number > 1 ? 1 + below(seed, 3) : below(seed, 4)) {
	case 0:
		return far_bool(number == 1);
	case 1:
		return far_int((int64_t)number - 3);
	case 2:
		return far_float((double)number * 0.5);
	default:
		snprintf(s, 32, "key %zu", number);
		return far_str(s);
	}
}

static struct far_val random_dict(uint64_t *seed, unsigned depth, struct test_arena *a)
{
	size_t n = below(seed, 30) == 0 ? 40 : below(seed, 5);
	struct far_dict_entry *entries = more(&a->arena, n * sizeof *entries);
	for (size_t i = 0; i < n; i++)
		entries[i] = far_entry(random_key(seed, i, a), tree_random(seed, depth - 1, a));
	return far_dict(entries, n);
}

static struct far_val random_list(uint64_t *seed, unsigned depth, struct test_arena *a)
{
	size_t n = below(seed, 6);
	struct far_val *items = more(&a->arena, n * sizeof *items);
	for (size_t i = 0; i < n; i++)
		items[i] = tree_random(seed, depth - 1, a);
	return far_list(items, n);
}

static struct far_val random_custom(uint64_t *seed, struct test_arena *a)
{
	struct test_object *o = random_bytes(seed, sizeof *o, a);
	o->len = below(seed, sizeof o->bytes + 1);
	return far_custom(&test_custom, o);
}

struct far_val tree_random(uint64_t *seed, unsigned depth, struct test_arena *a)
{
	switch (below(seed, depth > 0 ? 8 : 5)) {
	case 0:
		return random_tensor(seed, a);
	case 1:
		return random_text(seed, a);
	case 2:
		return random_custom(seed, a);
	case 3:
	case 4:
		return random_scalar(seed);
	case 5:
		return random_dict(seed, depth, a);
	default:
		return random_list(seed, depth, a);
	}
}
