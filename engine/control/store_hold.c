/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Held keys, which exist as long as their client's connection. Control thread of rank 0. When a second client requests
 * a held key, the server sends a PING to the holder, since a connection can outlive its peer's machine by hours. A
 * request with STORE_HOLD_AT_ONCE does not wait for that.
 */
#include "base/clock.h"
#include "base/hash.h"
#include "base/mutant.h"
#include "control/store_conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct hold **hold_find(struct store_server *s, struct kv_bytes key)
{
	uint64_t hash = hash64(key.data, key.len);
	struct hold **at = &s->holds;
	while (*at && !((*at)->hash == hash && (*at)->key_len == key.len && memcmp((*at)->key, key.data, key.len) == 0))
		at = &(*at)->next;
	return at;
}

bool hold_exists(struct store_server *s, struct kv_bytes key)
{
	return *hold_find(s, key) != NULL;
}

bool hold_is_of(struct store_server *s, const struct conn *c, struct kv_bytes key)
{
	const struct hold *h = *hold_find(s, key);
	return h && h->conn == c;
}

static int hold_begin(struct store_server *s, struct conn *c, struct kv_bytes key, struct kv_bytes value)
{
	struct hold *h = malloc(sizeof *h + key.len);
	if (!h)
		return -ENOMEM;
	int rc = kv_set(s->kv, key, value);
	if (rc) {
		free(h);
		return rc;
	}
	h->conn = c;
	h->hash = hash64(key.data, key.len);
	h->key_len = key.len;
	memcpy(h->key, key.data, key.len);
	h->next = s->holds;
	s->holds = h;
	return 0;
}

/* ---- contests ---- */

/* A holder without room for the PING does not read, and is dropped as silent. */
static bool holder_ping(struct conn *c, uint64_t now)
{
	struct kv_bytes none = {NULL, 0};
	if (c->pinged)
		return false;
	c->pinged = true;
	c->pinged_at = now;
	store_reply(c, STORE_PING, 0, STORE_OK, none, none, 0);
	return true;
}

static int contest_begin(struct store_server *s, struct conn *c, struct hold *over, const struct store_msg *m,
			 uint64_t now)
{
	struct contest **at = &s->contests;
	if (c->contests_n == FAR_STORE_CONTESTS_MAX)
		return -ENOSPC;
	struct contest *k = malloc(sizeof *k + m->value_len);
	if (!k)
		return -ENOMEM;
	*k = (struct contest){.conn = c, .over = over, .id = m->id, .value_len = m->value_len};
	k->deadline = time_after(now, m->timeout_ns);
	if (m->value_len)
		memcpy(k->value, m->value, m->value_len);
	while (*at)
		at = &(*at)->next;
	*at = k;
	c->contests_n++;
	holder_ping(over->conn, now);
	return 0;
}

/* If the reply finds no room, the client's own deadline ends its request. */
static void contest_end(struct store_server *s, struct contest **at, enum store_status status)
{
	struct contest *k = *at;
	struct kv_bytes held = {NULL, 0};
	if (status == STORE_DIFFERS)
		kv_get(s->kv, (struct kv_bytes){k->over->key, k->over->key_len}, &held);
	store_reply(k->conn, STORE_HOLD, k->id, status, (struct kv_bytes){0}, held, 0);
	k->conn->contests_n--;
	*at = k->next;
	free(k);
}

void holds_alive(struct store_server *s, struct conn *c)
{
	struct contest **at = &s->contests;
	if (!c->pinged)
		return;
	c->pinged = false;
	while (*at) {
		if ((*at)->over->conn == c)
			contest_end(s, at, STORE_DIFFERS);
		else
			at = &(*at)->next;
	}
}

struct conn *contests_expire(struct store_server *s, uint64_t now, uint64_t *until, bool *busy)
{
	struct contest **at = &s->contests;
	while (*at) {
		struct contest *k = *at;
		*busy |= holder_ping(k->over->conn, now); /* the key has passed to this client, which may be dead */
		uint64_t silent_at = k->over->conn->lease_ns ? conn_lease_end(k->over->conn)
							     : k->over->conn->pinged_at + FAR_STORE_SILENT_NS;
		if (now >= silent_at)
			return k->over->conn;
		if (now >= k->deadline) {
			contest_end(s, at, STORE_TIMEOUT);
			*busy = true;
			continue;
		}
		*until = silent_at < *until ? silent_at : *until;
		*until = k->deadline < *until ? k->deadline : *until;
		at = &k->next;
	}
	return NULL;
}

static void contests_forget(struct store_server *s, struct conn *c)
{
	struct contest **at = &s->contests;
	while (c->contests_n && *at) {
		struct contest *k = *at;
		if (k->conn != c) {
			at = &k->next;
			continue;
		}
		*at = k->next;
		free(k);
		c->contests_n--;
	}
}

/* ---- holds ---- */

static bool is_same_incarnation(const struct store_identity *a, const struct store_identity *b)
{
	return a->rank >= 0 && a->rank == b->rank && a->incarnation == b->incarnation &&
	       strcmp(a->group, b->group) == 0 && strcmp(a->name, b->name) == 0;
}

/* Passes all holds of a connection to another one of the same member, whose lease goes on. */
static void holds_move(struct store_server *s, const struct conn *from, struct conn *to)
{
	for (struct hold *h = s->holds; h; h = h->next)
		if (h->conn == from)
			h->conn = to;
}

/* Where the last incarnation of this client's rank is noted; NULL: it is no member of the reserved group. */
static uint64_t *rank_last(struct store_server *s, const struct conn *c)
{
	size_t len = strlen(c->who.group);
	bool member = c->who.rank >= 0 && c->who.rank < FAR_WORLD_MAX && len + 1 == s->prefix_len &&
		      memcmp(c->who.group, s->prefix, len) == 0;
	return member ? &s->rank_last[c->who.rank] : NULL;
}

static void rank_taken(struct store_server *s, const struct conn *c)
{
	uint64_t *last = rank_last(s, c);
	if (last)
		*last = c->who.incarnation;
}

/* True if another incarnation has had its rank in this store, even if that has ended: others may have seen it. */
static bool is_replaced(struct store_server *s, const struct conn *c)
{
	const uint64_t *last = rank_last(s, c);
	return last && *last && *last != c->who.incarnation;
}

/* True if the holder's member has connected again, as the same incarnation. */
static bool is_back(const struct conn *holder, const struct conn *c)
{
	return holder != c && holder->lease_ns && c->lease_ns && is_same_incarnation(&holder->who, &c->who);
}

int hold_run(struct store_server *s, struct conn *c, const struct store_msg *m, uint64_t now, enum store_status *status,
	     struct kv_bytes *held)
{
	struct kv_bytes key = {m->key, m->key_len}, value = {m->value, m->value_len};
	struct hold *h = *hold_find(s, key);
	if (h && is_back(h->conn, c))
		holds_move(s, h->conn, c);
	bool returns = m->number == STORE_HOLD_AT_ONCE;
	if (h && h->conn != c && h->conn != &s->local && !returns && !MUTANT(CLAIM_REFUSED))
		return contest_begin(s, c, h, m, now);
	bool exists = kv_get(s->kv, key, held) == 0;
	*status = STORE_DIFFERS;
	if ((h ? h->conn != c : exists) || (returns && is_replaced(s, c)))
		return 1;
	*held = (struct kv_bytes){NULL, 0};
	int rc = h ? kv_set(s->kv, key, value) : hold_begin(s, c, key, value);
	*status = rc ? STORE_FULL : STORE_OK;
	if (!rc)
		rank_taken(s, c);
	return 1;
}

/* Passes a hold to the first client that requests the key; false: there is none. */
static bool hold_pass(struct store_server *s, struct hold *h)
{
	struct kv_bytes key = {h->key, h->key_len};
	struct contest **at = &s->contests;
	while (*at && (*at)->over != h)
		at = &(*at)->next;
	if (!*at)
		return false;
	struct contest *k = *at;
	h->conn = k->conn;
	int rc = kv_set(s->kv, key, (struct kv_bytes){k->value, k->value_len});
	contest_end(s, at, rc ? STORE_FULL : STORE_OK);
	if (rc)
		return hold_pass(s, h);
	rank_taken(s, h->conn);
	return true;
}

/* Rejects the pending requests of a hold: its holder is this process, or has deleted the key. */
static void contests_reject(struct store_server *s, const struct hold *h)
{
	struct contest **at = &s->contests;
	while (*at) {
		if ((*at)->over == h)
			contest_end(s, at, STORE_DIFFERS);
		else
			at = &(*at)->next;
	}
}

void holds_release(struct store_server *s, struct conn *c)
{
	struct hold **at = &s->holds;
	contests_forget(s, c);
	while (*at) {
		struct hold *h = *at;
		struct kv_bytes key = {h->key, h->key_len};
		if (h->conn != c) {
			at = &h->next;
			continue;
		}
		kv_delete_for(s->kv, key, c->drop_pending == STORE_DROP_LEASE + 1 ? STORE_WATCH_LEASE : 0);
		if (hold_pass(s, h)) {
			store_written(s, key);
			if (h->conn == &s->local || MUTANT(LEASE_PASSED))
				contests_reject(s, h);
			at = &h->next;
			continue;
		}
		*at = h->next;
		free(h);
	}
}

void hold_end(struct store_server *s, struct kv_bytes key)
{
	struct hold **at = hold_find(s, key), *h = *at;
	if (!h)
		return;
	contests_reject(s, h);
	*at = h->next;
	free(h);
}
