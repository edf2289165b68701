/* SPDX-License-Identifier: BSD-3-Clause */
/* The keys of the store etcd://: what this client knows of them, reads and watches. Control thread of each member. */
#include "base/hash.h"
#include "control/store_etcd.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kv_bytes etcd_store_name_key(struct name *n, struct kv_bytes key)
{
	n->len = sizeof PREFIX - 1 + key.len;
	memcpy(n->data, PREFIX, sizeof PREFIX - 1);
	memcpy(n->data + sizeof PREFIX - 1, key.data, key.len);
	return (struct kv_bytes){n->data, n->len};
}

struct kv_bytes etcd_store_name_print(struct name *n, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	n->len = (size_t)vsnprintf((char *)n->data, sizeof n->data, format, args);
	va_end(args);
	return (struct kv_bytes){n->data, n->len};
}

bool etcd_store_is_equal(struct kv_bytes a, struct kv_bytes b)
{
	return a.len == b.len && (!a.len || memcmp(a.data, b.data, a.len) == 0);
}

void etcd_store_fail(struct etcd_store *s, int error, const char *text)
{
	s->error = error;
	snprintf(s->text, sizeof s->text, "%s", text);
}

/* ---- known keys ---- */

struct known **etcd_store_known_find(struct etcd_store *s, struct kv_bytes key)
{
	uint64_t hash = hash64(key.data, key.len);
	struct known **at = &s->known;
	while (*at && !((*at)->hash == hash && (*at)->key_len == key.len && memcmp((*at)->key, key.data, key.len) == 0))
		at = &(*at)->next;
	return at;
}

int etcd_store_known_set(struct etcd_store *s, struct kv_bytes key, int64_t revision, bool exists)
{
	struct known **at = etcd_store_known_find(s, key);
	if (!*at) {
		*at = calloc(1, sizeof **at + key.len);
		if (!*at)
			return -ENOMEM;
		(*at)->hash = hash64(key.data, key.len);
		(*at)->key_len = key.len;
		memcpy((*at)->key, key.data, key.len);
	}
	(*at)->revision = revision;
	(*at)->exists = exists;
	(*at)->load = s->load;
	return 0;
}

void etcd_store_known_forget(struct etcd_store *s, int64_t upto)
{
	struct known **at = &s->known;
	while (*at) {
		struct known *k = *at;
		if (k->exists || k->revision > upto) {
			at = &k->next;
			continue;
		}
		*at = k->next;
		free(k);
	}
}

/* The key as etcd had it at `revision`; `kv` NULL: missing. 0 or -ENOMEM. */
int etcd_store_key_apply(struct etcd_store *s, struct kv_bytes key, int64_t revision, const struct etcd_kv *kv)
{
	struct known *k = *etcd_store_known_find(s, key);
	if (k && k->revision >= revision) {
		k->load = s->load;
		return 0;
	}
	struct record r = {.kind = kv ? RECORD_VALUE : RECORD_DELETED,
			   .holder = kv ? (uint64_t)kv->lease : 0,
			   .key = key,
			   .value = kv ? kv->value : (struct kv_bytes){NULL, 0}};
	int rc = etcd_store_known_set(s, key, revision, kv != NULL);
	return rc ? rc : store_table_apply(&s->table, &r);
}

/* The key in the store of a key in etcd, without bytes if it is none of a store's. */
static struct kv_bytes key_of(const struct etcd_kv *kv)
{
	size_t prefix = sizeof PREFIX - 1;
	if (kv->key.len <= prefix || kv->key.len > KEY_BYTES || kv->value.len > FAR_STORE_VALUE_MAX ||
	    memcmp(kv->key.data, PREFIX, prefix) != 0)
		return (struct kv_bytes){NULL, 0};
	return (struct kv_bytes){kv->key.data + prefix, kv->key.len - prefix};
}

int etcd_store_kv_apply(struct etcd_store *s, const struct etcd_kv *kv)
{
	struct kv_bytes key = key_of(kv);
	if (!key.len)
		return 0;
	etcd_store_knock_answer(s, kv);
	return etcd_store_key_apply(s, key, kv->revision, kv->deleted ? NULL : kv);
}

const struct etcd_kv *etcd_store_reply_find(const struct etcd_reply *r, struct kv_bytes key)
{
	for (size_t i = 0; i < r->kvs_n; i++)
		if (etcd_store_is_equal(r->kvs[i].key, key))
			return &r->kvs[i];
	return NULL;
}

/* True if the key is held by this client. */
static bool etcd_store_is_held(struct etcd_store *s, struct kv_bytes key)
{
	const struct held *h = *store_held_find(&s->table, key);
	return h && (h->holder == (uint64_t)s->lease ||
		     (s->phase >= PHASE_NEW_LEASE && h->holder == (uint64_t)s->old_lease));
}

/* ---- all keys ---- */

static int load_end(struct etcd_store *s)
{
	const struct etcd_range all = {{(const uint8_t *)PREFIX, sizeof PREFIX - 1},
				       {(const uint8_t *)PREFIX_END, sizeof PREFIX_END - 1}};
	int rc = 0;
	bool lost = false;
	for (struct known *k = s->known; k && !rc; k = k->next) {
		struct kv_bytes key = {k->key, k->key_len};
		if (!k->exists || k->load == s->load || k->revision >= s->load_revision)
			continue;
		if (etcd_store_is_held(s, key))
			lost = true;
		else
			rc = etcd_store_key_apply(s, key, s->load_revision, NULL);
	}
	s->phase = PHASE_READY;
	s->was_ready = true;
	if (lost)
		etcd_store_lease_lose(s);
	return rc ? rc : s->ops->watch(s->etcd, &all, s->load_revision + 1);
}

static void loaded(void *user, const struct etcd_reply *r)
{
	struct etcd_store *s = user;
	int rc = 0;
	s->requested = false;
	if (r->error == -ESTALE) { /* compacted meanwhile: from the beginning */
		s->page = 0;
		return;
	}
	if (etcd_store_is_refused(s, r))
		return;
	if (!s->load_revision)
		s->load_revision = r->revision;
	for (size_t i = 0; i < r->kvs_n && !rc; i++)
		rc = etcd_store_kv_apply(s, &r->kvs[i]);
	/* No revision has changed two keys but by deletion. */
	if (!rc && r->more && r->kvs_n) {
		s->page = r->kvs[r->kvs_n - 1].revision + 1;
	} else if (!rc) {
		rc = load_end(s);
	}
	if (rc)
		etcd_store_fail(s, rc, "no memory for the keys in etcd");
}

void etcd_store_load(struct etcd_store *s)
{
	if (!s->page) {
		s->load++;
		s->load_revision = 0;
	}
	struct etcd_txn t = {.then = {{.kind = ETCD_GET,
				       .of = {{(const uint8_t *)PREFIX, sizeof PREFIX - 1},
					      {(const uint8_t *)PREFIX_END, sizeof PREFIX_END - 1}},
				       .revision_min = s->page,
				       .revision = s->load_revision,
				       .limit = PAGE_KEYS}},
			     .then_n = 1};
	etcd_store_request(s, s->ops->txn(s->etcd, &t, loaded, s));
}

/* ---- changes by other clients ---- */

void etcd_store_changes_take(struct etcd_store *s, bool *busy)
{
	struct etcd_kv kv;
	int64_t upto = 0;
	int rc = 0;
	bool any = false;
	while (!s->requested && s->phase == PHASE_READY && (rc = s->ops->change(s->etcd, &kv, &upto)) > 0) {
		struct kv_bytes key = key_of(&kv);
		any = *busy = true;
		const struct known *k = kv.deleted && key.len ? *etcd_store_known_find(s, key) : NULL;
		if (k && k->revision < kv.revision && etcd_store_is_held(s, key))
			etcd_store_lease_lose(s); /* the key is held anew */
		else if (etcd_store_kv_apply(s, &kv))
			etcd_store_fail(s, -ENOMEM, "no memory for the keys in etcd");
	}
	if (any)
		etcd_store_known_forget(s, upto);
	if (rc == -ESTALE) {
		s->page = 0;
		s->phase = PHASE_LOAD;
	} else if (rc < 0) {
		etcd_store_is_refused(s, &(struct etcd_reply){.error = rc});
	}
}
