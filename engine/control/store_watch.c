/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Watches of the store's server. Control thread of rank 0. The table keeps its keys in the order of their last change
 * (kv.h), and a watch stores the number of the last change checked for it. The changes in between are still to be sent;
 * they cost no memory while the client does not read.
 */
#include "control/store_conn.h"

#include <errno.h>
#include <string.h>

int watch_begin(struct store_server *s, struct conn *c, const struct store_msg *m)
{
	if (c->watches_n == FAR_STORE_WATCHES_MAX)
		return -ENOSPC;
	struct watch *w = &c->watches[c->watches_n++];
	w->id = m->id;
	w->since = kv_changes(s->kv);
	w->checked = m->number & STORE_WATCH_FROM_NOW ? w->since : 0;
	w->exact = m->number & STORE_WATCH_EXACT;
	w->is_copy = m->op == STORE_COPY;
	w->key_len = m->key_len;
	memcpy(w->key, m->key, m->key_len);
	if (s->watches_n++ == 0)
		kv_deleted_keep(s->kv, true);
	s->checked = 0;
	return 0;
}

static void watches_uncount(struct store_server *s, struct conn *c, unsigned n)
{
	c->watches_n -= n;
	s->watches_n -= n;
	if (n && s->watches_n == 0)
		kv_deleted_keep(s->kv, false);
}

void watches_forget(struct store_server *s, struct conn *c)
{
	watches_uncount(s, c, c->watches_n);
}

static const struct watch *copy_find(const struct conn *c)
{
	const struct watch *w = c->watches;
	while (w < c->watches + c->watches_n && !w->is_copy)
		w++;
	return w < c->watches + c->watches_n ? w : NULL;
}

void watch_end_copy(struct store_server *s, struct conn *c)
{
	const struct watch *w = copy_find(c);
	if (!w)
		return;
	c->watches[w - c->watches] = c->watches[c->watches_n - 1];
	watches_uncount(s, c, 1);
}

bool watch_copy_is_complete(const struct store_server *s, const struct conn *c)
{
	const struct watch *w = copy_find(c);
	return w && w->checked == kv_changes(s->kv);
}

static bool concerns(const struct store_server *s, const struct conn *c, const struct watch *w,
		     const struct kv_change *change)
{
	if (change->key.len < w->key_len || (w->exact && change->key.len != w->key_len) ||
	    memcmp(change->key.data, w->key, w->key_len))
		return false;
	/* A key deleted before the watch began was never reported. After store_server_shut() only the local client gets
	 * deletions: in a leaving group each client would receive each other's. */
	return !change->deleted || (change->number > w->since && (!s->shut || c == &s->local));
}

static bool has_room(const struct conn *c)
{
	return send_buffer_len(&c->tx) < FAR_STORE_WATCH_BYTES;
}

static void watch_report(struct store_server *s, struct conn *c, struct watch *w)
{
	enum store_op op = w->is_copy ? STORE_COPY : STORE_WATCH;
	uint64_t shown = backup_shown(s, w);
	const struct kv_entry *at = w->checked < shown ? kv_changes_after(s->kv, w->checked) : NULL;
	while (at && has_room(c)) {
		struct kv_change change;
		at = kv_change_read(at, &change);
		if (change.number > shown)
			return;
		if (concerns(s, c, w, &change) &&
		    store_reply(c, op, w->id, change.deleted ? STORE_MISSING : STORE_OK, change.key, change.value,
				change.deleted ? (int64_t)change.why : 0))
			return; /* no room or no memory: the next step tries again */
		w->checked = change.number;
	}
	if (!at && w->checked < shown)
		w->checked = shown;
}

static uint64_t conn_report(struct store_server *s, struct conn *c, uint64_t least)
{
	for (unsigned i = 0; i < c->watches_n; i++) {
		watch_report(s, c, &c->watches[i]);
		least = c->watches[i].checked < least ? c->watches[i].checked : least;
	}
	return least;
}

static struct conn *slowest(const struct store_server *s, uint64_t checked)
{
	for (unsigned i = 0; i < s->conns_n; i++)
		for (unsigned w = 0; w < s->conns[i]->watches_n; w++)
			if (s->conns[i]->watches[w].checked == checked)
				return s->conns[i];
	return NULL;
}

struct conn *watches_report(struct store_server *s)
{
	if (!s->watches_n || s->checked == kv_changes(s->kv))
		return NULL;
	uint64_t least = conn_report(s, &s->local, UINT64_MAX);
	for (unsigned i = 0; i < s->conns_n; i++)
		least = conn_report(s, s->conns[i], least);
	s->checked = least;
	return kv_deleted_forget(s->kv, least) > FAR_STORE_DELETED_MAX ? slowest(s, least) : NULL;
}

bool watches_wait(const struct store_server *s, const struct conn *c)
{
	bool behind = false;
	for (unsigned i = 0; i < c->watches_n; i++)
		behind |= c->watches[i].checked < backup_shown(s, &c->watches[i]);
	return behind && has_room(c);
}
