/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of a store that no server hosts: its changes, holders and groups. Control thread of each member. */
#include "control/store_table.h"

#include "base/byteorder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct held **store_held_find(struct store_table *t, struct kv_bytes key)
{
	struct held **at = &t->held;
	while (*at && !((*at)->key_len == key.len && memcmp((*at)->key, key.data, key.len) == 0))
		at = &(*at)->next;
	return at;
}

int store_held_set(struct store_table *t, struct kv_bytes key, uint64_t holder)
{
	struct held **at = store_held_find(t, key), *h = *at;
	if (h && !holder) {
		*at = h->next;
		free(h);
	} else if (h) {
		h->holder = holder;
	} else if (holder) {
		h = malloc(sizeof *h + key.len);
		if (!h)
			return -ENOMEM;
		*h = (struct held){.next = NULL, .holder = holder, .key_len = key.len};
		memcpy(h->key, key.data, key.len);
		*at = h;
	}
	return 0;
}

void store_table_free(struct store_table *t)
{
	store_server_destroy(t->server);
	while (t->held) {
		struct held *next = t->held->next;
		free(t->held);
		t->held = next;
	}
	*t = (struct store_table){.server = NULL};
}

/* ---- leases ---- */

static bool is_client_key(struct kv_bytes key)
{
	static const char word[] = "/client/";
	return memmem(key.data, key.len, word, sizeof word - 1) != NULL;
}

static void lease_note(struct store_table *t, const struct record *r)
{
	struct held *h =
		r->value.len == STORE_LEASE_BYTES && is_client_key(r->key) ? *store_held_find(t, r->key) : NULL;
	if (!h)
		return;
	h->lease_ns = le_get(r->value.data, 8);
	h->renewed = true;
}

void store_leases_look(struct store_table *t, uint64_t now, bool all)
{
	for (struct held *h = t->held; h; h = h->next) {
		if (h->renewed || all)
			h->seen_at = now;
		h->renewed = false;
	}
}

bool store_lease_is_over(const struct store_table *t, uint64_t holder, uint64_t now)
{
	const struct held *h = t->held;
	while (h && !(h->holder == holder && h->lease_ns))
		h = h->next;
	return h && !h->renewed && now >= time_after(h->seen_at, lease_with_margin(h->lease_ns));
}

/* ---- changes ---- */

int store_table_apply(struct store_table *t, const struct record *r)
{
	struct store_server *s = t->server;
	struct kv_bytes now;
	bool exists = kv_get(s->kv, r->key, &now) == 0, deleted = r->kind == RECORD_DELETED;
	int rc = store_held_set(t, r->key, deleted ? 0 : r->holder);
	if (rc)
		return rc;
	lease_note(t, r);
	if (deleted) {
		hold_end(s, r->key); /* first: the key may be in the entry that is deleted */
		kv_delete_for(s->kv, r->key, r->holder);
		return 0;
	}
	if (exists && now.len == r->value.len && (!now.len || memcmp(now.data, r->value.data, now.len) == 0))
		return 0;
	rc = kv_set(s->kv, r->key, r->value);
	if (!rc)
		store_written(s, r->key);
	return rc;
}

int store_table_begin(struct store_table *t)
{
	*t = (struct store_table){.server = store_server_create(NULL, -1)};
	return t->server ? 0 : -ENOMEM;
}

int store_table_become(struct store_table *t, struct store_table *to)
{
	struct kv_change c;
	int rc = 0;
	for (const struct kv_entry *e = kv_changes_after(t->server->kv, 0); e && !rc;) {
		struct kv_bytes held;
		e = kv_change_read(e, &c);
		if (!c.deleted && kv_get(to->server->kv, c.key, &held) != 0)
			rc = store_table_apply(t, &(struct record){.kind = RECORD_DELETED, .key = c.key});
	}
	for (const struct kv_entry *e = kv_changes_after(to->server->kv, 0); e && !rc;) {
		e = kv_change_read(e, &c);
		const struct held *h = *store_held_find(to, c.key);
		if (!c.deleted)
			rc = store_table_apply(t, &(struct record){.kind = RECORD_VALUE,
								   .holder = h ? h->holder : 0,
								   .key = c.key,
								   .value = c.value});
	}
	t->at = to->at;
	return rc;
}

void store_table_answer(struct store_table *t, const uint8_t *frame, size_t len, uint64_t now)
{
	struct store_server *s = t->server;
	bool busy;
	do {
		long n = store_server_local_send(s, frame, len);
		frame += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
		store_server_step(s, now, &busy);
	} while (len);
}

bool store_table_has_members(const struct store_table *t, const char *group, uint64_t but)
{
	char prefix[FAR_NAME_MAX + 16];
	size_t len = (size_t)snprintf(prefix, sizeof prefix, "%s/client/", group);
	const struct held *h = t->held;
	while (h && (h->holder == but || h->key_len <= len || memcmp(h->key, prefix, len) != 0))
		h = h->next;
	return h != NULL;
}

bool store_table_group_is_closed(const struct store_table *t, const char *group)
{
	char key[FAR_NAME_MAX + 16];
	struct kv_bytes value;
	size_t len = (size_t)snprintf(key, sizeof key, "%s/closed", group);
	return kv_get(t->server->kv, (struct kv_bytes){(const uint8_t *)key, len}, &value) == 0;
}
