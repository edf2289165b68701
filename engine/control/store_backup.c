/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The backup: a member that holds a copy of the application's keys, which begin with '/'. Control thread of rank 0.
 *
 * Members with leases, those of dynamic groups, connect again when rank 0 has restarted. The one of the lowest rank is
 * the backup. It gets all keys and then each change (COPY), by a watch of the table, and COPY without a key when the
 * watch has reached the last change: then the copy is complete, and has a version. No reply, WAIT or watch shows a
 * change before the backup has acknowledged a version with it. When the backup is lost, or owes an acknowledgement for
 * FAR_STORE_COPY_NS while another member is there, the next one takes its place; replies wait for that one's copy.
 * A single member holds the keys alone.
 *
 * A server of a dynamic group begins by rebuilding: requests for keys of the application wait. Members that had a
 * connection to the former store report the version of their copies; the newest is read. Without a report this takes
 * FAR_STORE_REBUILD_NS; with reports, but no copy, at most a lease, in which the backup comes back or has ended.
 * Reports also name incarnations that have ended, which the new store refuses.
 */
#include "base/byteorder.h"
#include "base/mutant.h"
#include "control/store_conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ENDED_BYTES 12 /* rank, incarnation */
#define ENDED_MAX   (2 * FAR_WORLD_MAX)

void backup_init(struct store_server *s)
{
	s->backup.last = &s->backup.first;
}

void backup_fini(struct store_server *s)
{
	kv_destroy(s->backup.best);
	kv_destroy(s->backup.coming);
	free(s->backup.ended);
}

bool backup_holds_back(const struct store_server *s, const struct store_msg *m)
{
	return s->backup.is_rebuilding && m->op != STORE_COPY && m->op != STORE_WATCH &&
	       backup_concerns(m->key, m->key_len);
}

/* ---- replies ---- */

bool backup_is_awaited(const struct store_server *s)
{
	return s->backup.conn && s->backup.changed > s->backup.acked && !MUTANT(COPY_UNAWAITED);
}

void backup_changed(struct store_server *s, const struct store_msg *m)
{
	if (backup_concerns(m->key, m->key_len))
		s->backup.changed = kv_changes(s->kv);
}

int backup_reply(struct store_server *s, struct conn *c, const struct store_msg *m, enum store_status status,
		 struct kv_bytes value, int64_t number)
{
	struct backup *b = &s->backup;
	if (!backup_concerns(m->key, m->key_len) || !backup_is_awaited(s))
		return store_reply(c, m->op, m->id, status, (struct kv_bytes){0}, value, number);
	struct deferred *d = malloc(sizeof *d + value.len);
	if (!d)
		return -ENOMEM;
	*d = (struct deferred){.conn = c,
			       .op = m->op,
			       .status = status,
			       .id = m->id,
			       .change = b->changed,
			       .number = number,
			       .value_len = value.len};
	if (value.len)
		memcpy(d->value, value.data, value.len);
	*b->last = d;
	b->last = &d->next;
	b->is_unsettled = true;
	c->deferred_bytes += sizeof *d + value.len;
	return 0;
}

static void deferred_end(struct backup *b, struct deferred **at)
{
	struct deferred *d = *at;
	d->conn->deferred_bytes -= sizeof *d + d->value_len;
	*at = d->next;
	if (!d->next)
		b->last = at;
	free(d);
}

/* The backup has everything up to this change, or there is none: sends what has waited for it. */
static void settle(struct store_server *s, uint64_t change)
{
	struct backup *b = &s->backup;
	struct kv_change c;
	const struct kv_entry *e = b->is_unsettled ? kv_changes_after(s->kv, b->acked) : NULL;
	b->acked = change;
	while (e) {
		e = kv_change_read(e, &c);
		if (c.number > change)
			break;
		if (!c.deleted && backup_concerns(c.key.data, c.key.len))
			waits_answer(s, c.key);
	}
	while (b->first && b->first->change <= change) {
		struct deferred *d = b->first;
		store_reply(d->conn, d->op, d->id, d->status, (struct kv_bytes){0},
			    (struct kv_bytes){d->value, d->value_len}, d->number);
		deferred_end(b, &b->first);
	}
	b->is_unsettled = b->changed > b->acked;
}

uint64_t backup_shown(const struct store_server *s, const struct watch *w)
{
	bool waits = !w->is_copy && backup_concerns(w->key, w->key_len) && backup_is_awaited(s);
	return waits ? s->backup.acked : kv_changes(s->kv);
}

/* ---- the backup ---- */

static bool is_eligible(const struct conn *c)
{
	return c->admitted && c->lease_ns && !c->broken && !c->drop_pending && c->who.rank > 0;
}

/* The member of the lowest rank among those that have acknowledged in time, or that are late. */
static struct conn *member_lowest(const struct store_server *s, bool late)
{
	struct conn *found = NULL;
	for (unsigned i = 0; i < s->conns_n; i++) {
		struct conn *c = s->conns[i];
		if (is_eligible(c) && c->is_late == late && (!found || c->who.rank < found->who.rank))
			found = c;
	}
	return found;
}

/* Sends `c` all keys; the watch goes on with the changes. */
static bool appoint(struct store_server *s, struct conn *c, uint64_t now)
{
	const struct store_msg watch = {.op = STORE_COPY, .key = (const uint8_t *)"/", .key_len = 1};
	struct kv_bytes none = {NULL, 0};
	if (store_reply(c, STORE_COPY, 0, STORE_MISSING, none, none, 0) || watch_begin(s, c, &watch))
		return false;
	s->backup.conn = c;
	s->backup.is_due = s->backup.is_new = true;
	s->backup.since = now;
	c->is_late = false;
	return true;
}

/* Replaces the backup if it owes an acknowledgement for too long and another member is there. */
static void check_late(struct store_server *s, uint64_t now, uint64_t *until)
{
	struct backup *b = &s->backup;
	if (!backup_is_awaited(s) && !b->is_due) {
		b->since = now;
		return;
	}
	uint64_t late_at = b->since + FAR_STORE_COPY_NS;
	if (now < late_at) {
		*until = late_at < *until ? late_at : *until;
		return;
	}
	b->since = now;
	b->conn->is_late = true;
	if (!member_lowest(s, false)) {
		b->conn->is_late = false;
		*until = now + FAR_STORE_COPY_NS < *until ? now + FAR_STORE_COPY_NS : *until;
		return;
	}
	watch_end_copy(s, b->conn);
	b->conn = NULL;
}

void backup_complete(struct store_server *s)
{
	struct backup *b = &s->backup;
	struct kv_bytes none = {NULL, 0};
	uint64_t change = kv_changes(s->kv);
	if (!b->conn || (!b->is_due && b->changed <= b->sent) || !watch_copy_is_complete(s, b->conn) ||
	    store_reply(b->conn, STORE_COPY, 0, STORE_OK, none, none, (int64_t)(b->base + change)))
		return;
	b->sent = change;
	b->is_due = false;
}

static void copy_forget(struct conn *c)
{
	struct kv_bytes none = {NULL, 0};
	store_reply(c, STORE_COPY, 0, STORE_DIFFERS, none, none, 0);
}

/* The backup has a complete copy: others that members may have are out of date. */
static void copies_forget(struct store_server *s)
{
	for (unsigned i = 0; i < s->conns_n; i++)
		if (s->conns[i] != s->backup.conn && is_eligible(s->conns[i]))
			copy_forget(s->conns[i]);
}

static void acknowledged(struct store_server *s, struct conn *c, uint64_t version)
{
	struct backup *b = &s->backup;
	c->is_late = false;
	if (c != b->conn || version < b->base || version - b->base > b->sent)
		return;
	if (b->is_new)
		copies_forget(s);
	b->is_new = false;
	if (version - b->base > b->acked)
		settle(s, version - b->base);
}

/* ---- rebuilding ---- */

void store_server_rebuild(struct store_server *s, uint64_t now, uint64_t lease_ns)
{
	s->backup.is_rebuilding = true;
	s->backup.until = time_after(now, FAR_STORE_REBUILD_NS);
	s->backup.limit = time_after(s->backup.until, lease_with_margin(lease_ns));
}

static void coming_end(struct backup *b)
{
	kv_destroy(b->coming);
	b->coming = NULL;
	b->source = NULL;
}

/* The copy that `source` sends is complete if nothing is left. */
static void coming_check(struct backup *b)
{
	if (b->coming_left)
		return;
	kv_destroy(b->best);
	b->best = b->coming;
	b->best_version = b->coming_version;
	b->coming = NULL;
	b->source = NULL;
}

static void part_take(struct store_server *s, struct conn *c, const struct store_msg *m)
{
	struct backup *b = &s->backup;
	if (c != b->source)
		return;
	if (kv_set(b->coming, (struct kv_bytes){m->key, m->key_len}, (struct kv_bytes){m->value, m->value_len})) {
		coming_end(b);
		return;
	}
	b->coming_left--;
	coming_check(b);
}

bool backup_has_ended(const struct store_server *s, const struct store_identity *who)
{
	for (unsigned i = 0; i < s->backup.ended_n; i++)
		if (s->backup.ended[i].rank == who->rank && s->backup.ended[i].incarnation == who->incarnation)
			return !MUTANT(EVICTED_RECLAIMS);
	return false;
}

/* A client of an incarnation that has ended is dropped, as if its lease had ended here. */
static void ended_take(struct store_server *s, int rank, uint64_t incarnation)
{
	struct backup *b = &s->backup;
	if (!b->ended)
		b->ended = malloc(ENDED_MAX * sizeof *b->ended);
	if (!b->ended || b->ended_n == ENDED_MAX ||
	    backup_has_ended(s, &(struct store_identity){.rank = rank, .incarnation = incarnation}))
		return;
	b->ended[b->ended_n++] = (struct ended){rank, incarnation};
	for (unsigned i = 0; i < s->conns_n; i++)
		if (s->conns[i]->who.rank == rank && s->conns[i]->who.incarnation == incarnation &&
		    !MUTANT(EVICTED_RECLAIMS))
			conn_drop_later(s->conns[i], STORE_DROP_LEASE);
}

/* True if the store is to have the copy that the member reports. */
static bool is_wanted(struct backup *b, uint64_t version)
{
	if (MUTANT(COPY_OLDER))
		return version && (b->best ? version < b->best_version : !b->source || version < b->coming_version);
	return version > b->best_version && (!b->source || version > b->coming_version);
}

static int report_take(struct store_server *s, struct conn *c, const struct store_msg *m)
{
	struct backup *b = &s->backup;
	uint64_t version = (uint64_t)m->number;
	if (m->value_len < 4 || (m->value_len - 4) % ENDED_BYTES)
		return STORE_DROP_MALFORMED + 1;
	b->is_restart = true;
	for (size_t at = 4; at < m->value_len; at += ENDED_BYTES)
		ended_take(s, (int)le_get(m->value + at, 4), le_get(m->value + at + 4, 8));
	bool wanted = b->is_rebuilding && is_wanted(b, version);
	if (wanted) {
		coming_end(b);
		b->coming = kv_create(FAR_STORE_KEYS_MAX);
		wanted = b->coming != NULL;
	}
	if (wanted) {
		b->source = c;
		b->coming_version = version;
		b->coming_left = (uint32_t)le_get(m->value, 4);
		coming_check(b);
	} else if (!b->is_rebuilding && version >= b->base + kv_changes(s->kv)) {
		b->base = version; /* too late: what the store has is newer */
		b->is_due = true;
	}
	if (!b->is_rebuilding && b->conn && b->conn != c && !b->is_new)
		copy_forget(c);
	struct kv_bytes none = {NULL, 0};
	return store_reply(c, STORE_REPORT, m->id, wanted ? STORE_OK : STORE_DIFFERS, none, none, 0)
		       ? STORE_DROP_BACKLOG + 1
		       : 0;
}

int backup_take(struct store_server *s, struct conn *c, const struct store_msg *m)
{
	if (c->who.rank < 0)
		return STORE_DROP_MALFORMED + 1;
	if (m->op == STORE_REPORT)
		return report_take(s, c, m);
	if (m->key_len)
		part_take(s, c, m);
	else
		acknowledged(s, c, (uint64_t)m->number);
	return 0;
}

static void rebuild_end(struct store_server *s)
{
	struct backup *b = &s->backup;
	struct kv_change c;
	for (const struct kv_entry *e = b->best ? kv_changes_after(b->best, 0) : NULL; e;) {
		e = kv_change_read(e, &c);
		kv_set(s->kv, c.key, c.value); /* a key without memory is lost */
	}
	b->base = b->best_version;
	b->changed = b->acked = kv_changes(s->kv);
	kv_destroy(b->best);
	b->best = NULL;
	b->is_rebuilding = false;
}

static void rebuild_step(struct store_server *s, uint64_t now, uint64_t *until, bool *busy)
{
	struct backup *b = &s->backup;
	uint64_t end = b->source || (b->is_restart && !b->best) ? b->limit : b->until;
	if (now < end) {
		*until = end < *until ? end : *until;
		return;
	}
	coming_end(b);
	rebuild_end(s);
	*busy = true; /* requests go on */
}

/* ---- steps ---- */

void backup_step(struct store_server *s, uint64_t now, uint64_t *until, bool *busy)
{
	struct backup *b = &s->backup;
	if (b->is_rebuilding)
		rebuild_step(s, now, until, busy);
	if (b->conn && !is_eligible(b->conn)) {
		watch_end_copy(s, b->conn);
		b->conn = NULL;
	}
	if (b->conn)
		check_late(s, now, until);
	if (b->conn || b->is_rebuilding)
		return;
	struct conn *c = member_lowest(s, false);
	c = c ? c : member_lowest(s, true);
	if (c && appoint(s, c, now))
		*busy = true;
	else
		settle(s, kv_changes(s->kv)); /* one member holds all */
}

void backup_forget(struct store_server *s, struct conn *c)
{
	struct backup *b = &s->backup;
	for (struct deferred **at = &b->first; *at;) {
		if ((*at)->conn == c)
			deferred_end(b, at);
		else
			at = &(*at)->next;
	}
	if (b->conn == c)
		b->conn = NULL;
	if (b->source == c)
		coming_end(b);
}
