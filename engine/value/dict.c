/* SPDX-License-Identifier: BSD-3-Clause */
/** Checks the keys of dicts, and the lookups of <farcall/value.h> in lists and dicts. Any thread. */
#include "value/dict.h"

#include "base/hash.h"

#include <assert.h>

/* Entries up to which all pairs are compared: cheaper than clearing a table. */
#define PAIRS_MAX 16
#define SLOTS     (2 * FAR_DICT_MAX)
static_assert((SLOTS & (SLOTS - 1)) == 0 && SLOTS <= 65536, "a mask; indexes of entries have 16 bits");

bool dict_key_same(const struct far_val *a, const struct far_val *b)
{
	if (a->type != b->type)
		return false;
	switch ((enum far_type)a->type) {
	case FAR_TYPE_BOOL:
		return a->u.b == b->u.b;
	case FAR_TYPE_INT:
		return a->u.i == b->u.i;
	case FAR_TYPE_FLOAT:
		return a->u.f == b->u.f;
	case FAR_TYPE_STRING:
		return a->u.s.len == b->u.s.len &&
		       (a->u.s.len == 0 || memcmp(a->u.s.data, b->u.s.data, a->u.s.len) == 0);
	default:
		return false;
	}
}

static enum dict_fault key_fault(const struct far_val *key)
{
	switch ((enum far_type)key->type) {
	case FAR_TYPE_BOOL:
	case FAR_TYPE_INT:
	case FAR_TYPE_STRING:
		return DICT_OK;
	case FAR_TYPE_FLOAT:
		return key->u.f != key->u.f ? DICT_KEY_NAN : DICT_OK;
	default:
		return DICT_KEY_TYPE;
	}
}

static uint64_t key_hash(const struct far_val *key)
{
	double f;
	switch ((enum far_type)key->type) {
	case FAR_TYPE_INT:
		return hash64(&key->u.i, sizeof key->u.i);
	case FAR_TYPE_FLOAT:
		f = key->u.f + 0.0; /* the two zeros are one key */
		return hash64(&f, sizeof f);
	case FAR_TYPE_STRING:
		return hash64(key->u.s.data, key->u.s.len);
	default:
		return key->u.b;
	}
}

/* Checks for duplicates with a hash table of indexes. Colliding keys of an attacker cost at most FAR_DICT_MAX² / 2
 * comparisons: some milliseconds, since the strings of a request have 64 KiB at most. */
static __attribute__((noinline)) enum dict_fault check_long(const struct far_dict_entry *entries, size_t n, size_t *at)
{
	uint16_t slots[SLOTS]; /* index + 1; 0: free */
	size_t used = 2 * PAIRS_MAX;
	while (used < 2 * n)
		used *= 2;
	memset(slots, 0, used * sizeof slots[0]);
	for (size_t i = 0; i < n; i++) {
		size_t p = key_hash(&entries[i].key) & (used - 1);
		for (; slots[p]; p = (p + 1) & (used - 1)) {
			if (dict_key_same(&entries[slots[p] - 1].key, &entries[i].key)) {
				*at = i;
				return DICT_KEY_DUPLICATE;
			}
		}
		slots[p] = (uint16_t)(i + 1);
	}
	return DICT_OK;
}

enum dict_fault dict_check(const struct far_dict_entry *entries, size_t n, size_t *at)
{
	*at = 0;
	if (n > FAR_DICT_MAX)
		return DICT_TOO_LONG;
	for (size_t i = 0; i < n; i++) {
		enum dict_fault fault = key_fault(&entries[i].key);
		*at = i;
		if (fault)
			return fault;
	}
	if (n > PAIRS_MAX)
		return check_long(entries, n, at);
	for (size_t i = 1; i < n; i++) {
		for (size_t k = 0; k < i; k++) {
			if (dict_key_same(&entries[k].key, &entries[i].key)) {
				*at = i;
				return DICT_KEY_DUPLICATE;
			}
		}
	}
	return DICT_OK;
}

/* ---- public lookups ---- */

size_t far_len(const struct far_val *v)
{
	switch ((enum far_type)v->type) {
	case FAR_TYPE_LIST:
		return v->u.list.n;
	case FAR_TYPE_DICT:
		return v->u.dict.n;
	case FAR_TYPE_STRING:
	case FAR_TYPE_BYTES:
		return v->u.s.len;
	case FAR_TYPE_TENSOR:
		return far_tensor_count(far_val_tensor(v));
	default:
		return 0;
	}
}

const struct far_val *far_list_get(const struct far_val *v, size_t i)
{
	return v->type == FAR_TYPE_LIST && i < v->u.list.n ? &v->u.list.items[i] : NULL;
}

const struct far_val *far_dict_find(const struct far_val *v, const struct far_val *key)
{
	for (size_t i = 0; v->type == FAR_TYPE_DICT && i < v->u.dict.n; i++)
		if (dict_key_same(&v->u.dict.entries[i].key, key))
			return &v->u.dict.entries[i].value;
	return NULL;
}

const struct far_val *far_dict_get(const struct far_val *v, const char *key)
{
	struct far_val k = far_str(key);
	return far_dict_find(v, &k);
}

const struct far_val *far_dict_get_int(const struct far_val *v, int64_t key)
{
	struct far_val k = far_int(key);
	return far_dict_find(v, &k);
}
