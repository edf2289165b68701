/* SPDX-License-Identifier: BSD-3-Clause */
/* The store's table: a chained hash table and a list by last change. Its hash is keyed with a secret, so that no client
 * can choose keys of one chain. Control thread of rank 0. */
#include "control/kv.h"

#include "base/auth.h"
#include "base/must.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <sodium/crypto_shorthash.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KV_BUCKETS 4096 /* a full table has chains of 16 */

struct kv_entry {
	struct kv_entry *next;          /* in its bucket */
	struct kv_entry *older, *newer; /* in the order of the last change */
	uint64_t hash;
	uint64_t change;
	uint64_t owner; /* 0: none */
	uint64_t why;   /* of a deleted one */
	uint8_t *value; /* NULL: empty. Owned */
	size_t value_len, key_len;
	bool deleted; /* visible to readers of changes only */
	uint8_t key[];
};

struct kv {
	size_t count, keys_max; /* entries, deleted ones included, and their bound */
	size_t deleted_n;
	uint64_t changes;
	uint64_t probes;
	bool keep;
	uint8_t secret[crypto_shorthash_KEYBYTES];
	struct kv_entry *oldest, *newest;
	struct kv_entry *buckets[KV_BUCKETS];
};

struct kv *kv_create(size_t keys_max)
{
	struct kv *kv = calloc(1, sizeof *kv);
	if (!kv)
		return NULL;
	kv->keys_max = keys_max;
	/* No result depends on it, so a simulated store uses the kernel's source, too. */
	auth_random(kv->secret, sizeof kv->secret, &random_kernel);
	return kv;
}

uint64_t kv_hash(const struct kv *kv, const void *data, size_t len)
{
	uint64_t hash;
	static_assert(sizeof hash == crypto_shorthash_BYTES, "a hash is a number");
	must(crypto_shorthash((uint8_t *)&hash, data, len, kv->secret) == 0);
	return hash;
}

uint64_t kv_probes(const struct kv *kv)
{
	return kv->probes;
}

static void entry_free(struct kv_entry *e)
{
	free(e->value);
	free(e);
}

void kv_destroy(struct kv *kv)
{
	if (!kv)
		return;
	for (size_t i = 0; i < KV_BUCKETS; i++) {
		struct kv_entry *e = kv->buckets[i];
		while (e) {
			struct kv_entry *next = e->next;
			entry_free(e);
			e = next;
		}
	}
	free(kv);
}

size_t kv_count(const struct kv *kv)
{
	return kv->count - kv->deleted_n;
}

static void order_out(struct kv *kv, struct kv_entry *e)
{
	*(e->older ? &e->older->newer : &kv->oldest) = e->newer;
	*(e->newer ? &e->newer->older : &kv->newest) = e->older;
}

/* Appends the entry as the last change. */
static void order_in(struct kv *kv, struct kv_entry *e)
{
	e->change = ++kv->changes;
	e->older = kv->newest;
	e->newer = NULL;
	*(kv->newest ? &kv->newest->newer : &kv->oldest) = e;
	kv->newest = e;
}

/* The pointer to the key's entry, or the NULL at the end of its chain. */
static struct kv_entry **slot_find(struct kv *kv, struct kv_bytes key, uint64_t hash)
{
	struct kv_entry **at = &kv->buckets[hash % KV_BUCKETS];
	for (; *at; at = &(*at)->next) {
		kv->probes++;
		if ((*at)->hash == hash && (*at)->key_len == key.len && memcmp((*at)->key, key.data, key.len) == 0)
			break;
	}
	return at;
}

int kv_set(struct kv *kv, struct kv_bytes key, struct kv_bytes value)
{
	uint64_t hash = kv_hash(kv, key.data, key.len);
	struct kv_entry **at = slot_find(kv, key, hash);
	uint8_t *copy = NULL;
	if (!*at && kv->count >= kv->keys_max)
		return -ENOSPC;
	if (value.len) {
		copy = malloc(value.len);
		if (!copy)
			return -ENOMEM;
		memcpy(copy, value.data, value.len);
	}
	if (!*at) {
		struct kv_entry *e = calloc(1, sizeof *e + key.len);
		if (!e) {
			free(copy);
			return -ENOMEM;
		}
		e->hash = hash;
		e->key_len = key.len;
		memcpy(e->key, key.data, key.len);
		*at = e;
		kv->count++;
	} else {
		order_out(kv, *at);
		kv->deleted_n -= (*at)->deleted;
	}
	free((*at)->value);
	(*at)->value = copy;
	(*at)->value_len = value.len;
	(*at)->deleted = false;
	order_in(kv, *at);
	return 0;
}

int kv_get(const struct kv *kv, struct kv_bytes key, struct kv_bytes *value)
{
	const struct kv_entry *e = *slot_find((struct kv *)kv, key, kv_hash(kv, key.data, key.len));
	if (!e || e->deleted)
		return -ENOENT;
	*value = (struct kv_bytes){e->value, e->value_len};
	return 0;
}

uint64_t kv_owner(const struct kv *kv, struct kv_bytes key)
{
	const struct kv_entry *e = *slot_find((struct kv *)kv, key, kv_hash(kv, key.data, key.len));
	return e && !e->deleted ? e->owner : 0;
}

void kv_own(struct kv *kv, struct kv_bytes key, uint64_t owner)
{
	struct kv_entry *e = *slot_find(kv, key, kv_hash(kv, key.data, key.len));
	if (e && !e->deleted)
		e->owner = owner;
}

static bool number_read(struct kv_bytes text, int64_t *out)
{
	char s[24], *end;
	if (text.len == 0 || text.len >= sizeof s)
		return false;
	memcpy(s, text.data, text.len);
	s[text.len] = '\0';
	if (s[0] != '-' && (s[0] < '0' || s[0] > '9'))
		return false;
	errno = 0;
	long long n = strtoll(s, &end, 10);
	if (errno || end != s + text.len)
		return false;
	*out = n;
	return true;
}

int kv_add(struct kv *kv, struct kv_bytes key, int64_t delta, int64_t *sum)
{
	struct kv_bytes value;
	int64_t n = 0;
	char s[24];
	if (kv_get(kv, key, &value) == 0 && !number_read(value, &n))
		return -EINVAL;
	if (__builtin_add_overflow(n, delta, &n))
		return -ERANGE;
	int len = snprintf(s, sizeof s, "%" PRId64, n);
	int rc = kv_set(kv, key, (struct kv_bytes){(const uint8_t *)s, (size_t)len});
	if (rc == 0)
		*sum = n;
	return rc;
}

int kv_cas(struct kv *kv, struct kv_bytes key, struct kv_bytes expected, struct kv_bytes value, struct kv_bytes *held)
{
	struct kv_bytes now = {NULL, 0};
	bool exists = kv_get(kv, key, &now) == 0;
	bool same = exists ? expected.len && now.len == expected.len && memcmp(now.data, expected.data, now.len) == 0
			   : expected.len == 0;
	if (!same) {
		*held = now;
		return -EEXIST;
	}
	return kv_set(kv, key, value);
}

static void entry_forget(struct kv *kv, struct kv_entry **at)
{
	struct kv_entry *e = *at;
	*at = e->next;
	order_out(kv, e);
	kv->deleted_n -= e->deleted;
	kv->count--;
	entry_free(e);
}

int kv_delete(struct kv *kv, struct kv_bytes key)
{
	return kv_delete_for(kv, key, 0);
}

int kv_delete_for(struct kv *kv, struct kv_bytes key, uint64_t why)
{
	struct kv_entry **at = slot_find(kv, key, kv_hash(kv, key.data, key.len));
	struct kv_entry *e = *at;
	if (!e || e->deleted)
		return -ENOENT;
	if (!kv->keep) {
		kv->changes++;
		entry_forget(kv, at);
		return 0;
	}
	free(e->value);
	e->value = NULL;
	e->value_len = 0;
	e->deleted = true;
	e->owner = 0;
	e->why = why;
	kv->deleted_n++;
	order_out(kv, e);
	order_in(kv, e);
	return 0;
}

/* ---- changes ---- */

uint64_t kv_changes(const struct kv *kv)
{
	return kv->changes;
}

const struct kv_entry *kv_changes_after(const struct kv *kv, uint64_t after)
{
	const struct kv_entry *e = kv->newest, *first = NULL;
	for (; e && e->change > after; e = e->older)
		first = e;
	return first;
}

const struct kv_entry *kv_change_read(const struct kv_entry *e, struct kv_change *out)
{
	*out = (struct kv_change){
		e->change, {e->key, e->key_len}, {e->value, e->value_len}, e->deleted, e->deleted ? e->why : 0};
	return e->newer;
}

void kv_deleted_keep(struct kv *kv, bool keep)
{
	kv->keep = keep;
	if (!keep)
		kv_deleted_forget(kv, UINT64_MAX);
}

size_t kv_deleted_forget(struct kv *kv, uint64_t upto)
{
	struct kv_entry *e = kv->oldest;
	while (e && kv->deleted_n && e->change <= upto) {
		struct kv_entry *newer = e->newer;
		if (e->deleted)
			entry_forget(kv, slot_find(kv, (struct kv_bytes){e->key, e->key_len}, e->hash));
		e = newer;
	}
	return kv->deleted_n;
}
