/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * References at home: records of values, forks of peers, users, and their counts of holds. Shard thread, but where
 * rref.h notes otherwise.
 */
#include "features/references/rref.h"

#include "base/must.h"
#include "base/mutant.h"
#include "core/context.h"
#include "core/loop.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/timer.h"

#include <stdlib.h>
#include <string.h>

bool rref_shard_init(struct shard *s)
{
	s->rrefs = calloc(1, sizeof *s->rrefs);
	return s->rrefs && rref_table_init(&s->rrefs->records, FAR_RREF_RECORDS) &&
	       rref_table_init(&s->rrefs->forks, FAR_RREF_FORKS);
}

/* No handler runs any more. */
static void end_objects(struct shard *s)
{
	struct far_rref *r;
	while ((r = s->rrefs->last)) {
		s->rrefs->last = r->next;
		tree_end(rref_as_record(r)->value->buf);
		rref_unref(&r->base);
	}
}

void rref_shard_free(struct shard *s)
{
	if (!s->rrefs)
		return;
	end_objects(s);
	rref_table_free(&s->rrefs->records);
	rref_table_free(&s->rrefs->forks);
	buf_unref(s->rrefs->spare);
	free(s->rrefs);
	s->rrefs = NULL;
}

uint64_t rref_names(struct shard *s, uint32_t n)
{
	/* Names have the low bits only, and 0 is none: those that would stand on both sides of it are passed over.
	 */
	uint64_t first;
	do
		first = atomic_fetch_add_explicit(&s->rrefs->count, n, memory_order_relaxed) + 1;
	while (((first - 1) & RREF_COUNT_MASK) + n > RREF_COUNT_MASK);
	return first;
}

/* Its owner has answered, or no caller waits for that any more. */
static void uncount(struct shard *s, struct rref_user *u)
{
	if (u->counted)
		counter_add_shared(&s->rrefs->unknown_n, UINT64_MAX);
	u->counted = false;
}

static void list_in(struct shard *s, struct far_rref *r)
{
	list_put(s->rrefs->list, r);
	counter_add(r->owned ? &s->rrefs->owned_n : &s->rrefs->users_n, 1);
}

static void list_out(struct shard *s, struct far_rref *r)
{
	if (!r->prev)
		return;
	list_remove(r);
	r->prev = NULL;
	counter_add(r->owned ? &s->rrefs->owned_n : &s->rrefs->users_n, UINT64_MAX);
}

/* Frees its memory and its future. */
static void forget(struct far_rref *r)
{
	struct rref_record *record = rref_as_record(r);
	buf_unref(record ? &record->value->head : &rref_as_user(r)->known->head);
	if (record)
		buf_unref(record->why);
	else if (rref_as_user(r)->own)
		buf_unref(&rref_as_user(r)->own->head);
	buf_unref(atomic_load_explicit(&r->type_name, memory_order_acquire));
	buf_unref(r->buf);
}

void rref_discard(struct rref_user *u)
{
	uncount(atomic_load_explicit(&u->rref.home, memory_order_relaxed), u);
	forget(&u->rref);
}

void rref_end(struct shard *s, struct rref_user *u)
{
	list_out(s, &u->rref);
	uncount(s, u);
	forget(&u->rref);
}

/* ---- the last hold ---- */

/* Ends a record without a hold. Only this shard could take one. */
static void record_end(struct shard *s, struct rref_record *r)
{
	const char *outer = s->context.handler;
	list_out(s, &r->rref);
	rref_table_remove(&s->rrefs->records, r->rref.base.id);
	s->context.handler = "a destructor";
	forget(&r->rref);
	s->context.handler = outer;
}

/* The same for a user's fork. If the owner has the fork, DELETE is sent first, and ends it. */
static void user_end(struct shard *s, struct rref_user *u)
{
	if ((u->failed && !u->owner_notified) || s->stopped || !future_done(u->known) || MUTANT(RREF_UNDELETED))
		rref_end(s, u);
	else
		rref_user_send(s, u, RREF_DELETE, FAR_OK);
}

/* A lookup may have taken hold of a record anew since. */
static void leave(struct shard *s, struct shard_task *e)
{
	struct far_rref *r = (struct far_rref *)(void *)((uint8_t *)e - offsetof(struct far_rref, enter));
	uint32_t refs = atomic_load_explicit(&r->base.refs, memory_order_acquire);
	for (;;) {
		if (refs == RREF_RELEASING)
			break;
		if (atomic_compare_exchange_weak_explicit(&r->base.refs, &refs, refs & ~RREF_RELEASING,
							  memory_order_acq_rel, memory_order_acquire))
			return;
	}
	if (r->owned)
		record_end(s, rref_as_record(r));
	else
		user_end(s, rref_as_user(r));
}

static void on_last(struct rref_base *base)
{
	struct far_rref *r = (struct far_rref *)(void *)base;
	struct shard *s = atomic_load_explicit(&r->home, memory_order_acquire);
	if (unlikely(!s)) {
		forget(r);
		return;
	}
	r->enter.run = leave;
	if (!shard_held(s)) {
		shard_add_task(s, &r->enter);
		return;
	}
	r->enter.next = NULL;
	if (!s->rrefs->releasing)
		s->rrefs->releasing_last = &s->rrefs->releasing;
	*s->rrefs->releasing_last = &r->enter;
	s->rrefs->releasing_last = &r->enter.next;
	s->poll_idle |= FEATURE_BIT(FEATURE_REFERENCES);
	counter_add(&s->rrefs->releasing_n, 1);
}

unsigned rref_release_all(struct shard *s)
{
	struct shard_task *e;
	unsigned n = 0;
	while ((e = s->rrefs->releasing)) {
		s->rrefs->releasing = e->next;
		if (s->rrefs->releasing_last == &e->next)
			s->rrefs->releasing_last = &s->rrefs->releasing;
		e->run(s, e);
		/* What it sent is counted before; pairs with outstanding(). */
		atomic_store_explicit(&s->rrefs->releasing_n,
				      atomic_load_explicit(&s->rrefs->releasing_n, memory_order_relaxed) - 1,
				      memory_order_release);
		n++;
	}
	s->poll_idle &= ~FEATURE_BIT(FEATURE_REFERENCES);
	return n;
}

/* Allocates a record, or a user's fork. */
static struct far_rref *rref_alloc(struct shard *s, bool owned)
{
	size_t size = owned ? sizeof(struct rref_record) : sizeof(struct rref_user);
	struct far_buf *buf = buf_alloc(size);
	if (!buf)
		return NULL;
	struct far_rref *r = buf_data(buf);
	memset(r, 0, size);
	r->buf = buf;
	r->owned = owned;
	r->base.ended = on_last;
	atomic_store_explicit(&r->base.refs, 1, memory_order_relaxed);
	atomic_store_explicit(&r->home, s, memory_order_relaxed);
	return r;
}

/* ---- users ---- */

static void entered(struct shard *s, struct shard_task *e)
{
	struct far_rref *r = (struct far_rref *)(void *)((uint8_t *)e - offsetof(struct far_rref, enter));
	list_in(s, r);
	rref_unref(&r->base); /* the task's */
}

void rref_enter(struct far_rref *r)
{
	struct shard *s = atomic_load_explicit(&r->home, memory_order_relaxed);
	if (shard_held(s)) {
		list_in(s, r);
		return;
	}
	rref_ref(&r->base);
	r->enter.run = entered;
	shard_add_task(s, &r->enter);
}

struct rref_user *rref_new(struct shard *s, const struct rref_wire *w)
{
	struct far_rref *r = rref_alloc(s, false);
	struct far_future *known = r ? future_alloc(s) : NULL;
	if (!known) {
		if (r)
			buf_unref(r->buf);
		return NULL;
	}
	r->base.id = w->id;
	r->base.owner = w->owner;
	r->types = w->types;
	rref_class_set(r, w->cls);
	struct rref_user *u = rref_as_user(r);
	u->known = known;
	u->fork = w->fork;
	u->session = session_index(s, rref_rank(w->owner), rref_owner_shard(w->id));
	u->counted = true;
	counter_add_shared(&s->rrefs->unknown_n, 1);
	return u;
}

void rref_user_send(struct shard *s, struct rref_user *u, enum rref_kind kind, enum far_status status)
{
	u->msg = (struct rref_msg){.rref = &u->rref, .kind = (uint8_t)kind, .status = (uint8_t)status, .fork = u->fork};
	rref_msg_send(s, u->session, &u->msg);
}

void rref_known_end(struct shard *s, struct rref_user *u, const struct completion *o)
{
	if (future_done(u->known))
		return;
	u->failed = o->status != FAR_OK;
	buf_ref(&u->known->head);
	s->config.complete(u->known, o);
	uncount(s, u);
	buf_unref(&u->known->head);
	struct rref_wait *w;
	while ((w = u->waits)) {
		u->waits = w->next;
		if (o->status)
			w->open->failed = (uint8_t)o->status;
		rref_open_step(s, w->open);
		buf_unref(w->buf);
	}
}

/* ---- records ---- */

static struct rref_record *hold(struct rref_record *r)
{
	if (r)
		rref_ref(&r->rref.base);
	return r;
}

struct rref_record *rref_find(struct shard *s, struct rref_id id)
{
	return hold(rref_table_find(&s->rrefs->records, id));
}

/* True if the incarnation that gave the name is known to be lost: no request of it will arrive. */
static bool creator_lost(const struct shard *s, struct rref_id id)
{
	uint32_t worker = rref_rank(id.incarnation);
	unsigned shard = rref_creator_shard(id);
	if (worker >= s->world || shard >= FAR_SHARDS_MAX)
		return false;
	const struct session *se = &s->sessions[session_index(s, worker, shard)];
	return se->incarnation == id.incarnation && !se->worker_alive;
}

static void settle_lost(struct shard *s, struct rref_record *r)
{
	static const char text[] = "the worker that was to request the value was lost before its request";
	rref_settle(s, r, &(struct completion){.status = FAR_PEER_LOST, .data = text, .len = sizeof text - 1}, false);
}

struct rref_record *rref_record(struct shard *s, struct rref_id id)
{
	struct rref_record *record = rref_find(s, id);
	if (record)
		return record;
	struct far_rref *r = rref_alloc(s, true);
	struct far_future *value = r ? future_alloc(s) : NULL;
	if (!value || !rref_table_put(&s->rrefs->records, id, r)) {
		if (value)
			buf_unref(&value->head);
		if (r)
			buf_unref(r->buf);
		return NULL;
	}
	future_mark(value, FUTURE_DERIVED | FUTURE_UNBOUNDED);
	r->types = UINT16_MAX;
	r->base.id = id;
	r->base.owner = rref_incarnation(s->config.rank, s->config.incarnation);
	rref_owner_is(r, s->config.name);
	record = rref_as_record(r);
	record->expected = true;
	record->value = value;
	list_in(s, r);
	if (creator_lost(s, id))
		settle_lost(s, record);
	return record;
}

static void keep_failure(struct rref_record *r, const struct completion *o)
{
	r->code = o->code;
	if (o->len && (r->why = buf_alloc(o->len))) {
		memcpy(buf_data(r->why), o->data, o->len);
		r->why_len = o->len;
	}
}

/* Methods run in the order in which they were called. */
static void oldest_first(struct rref_record *r)
{
	struct rref_open *open, *all = r->awaited;
	r->awaited = NULL;
	while ((open = all)) {
		all = open->next;
		list_put(r->awaited, open);
	}
}

void rref_settle(struct shard *s, struct rref_record *r, const struct completion *o, bool tree)
{
	if (r->settled)
		return;
	r->settled = true;
	r->expected = false;
	r->status = (uint8_t)o->status;
	r->executed = (uint8_t)o->executed;
	struct completion own = *o;
	own.origin = (int16_t)s->config.rank;
	if (tree && !o->status) {
		struct far_val root = tree_root(o->buf);
		r->made = object_class_of(&root);
		r->object = r->made ? root.u.custom.object : NULL;
		rref_class_set(&r->rref, r->made ? r->made->hash : 0);
	}
	if (tree)
		own.tree = o->buf;
	else if (o->status)
		keep_failure(r, o);
	rref_ref(&r->rref.base);
	s->config.complete(r->value, &own);
	struct rref_open *open;
	oldest_first(r);
	while ((open = r->awaited)) {
		list_remove(open);
		open->prev = NULL;
		rref_fetched(s, open);
	}
	rref_unref(&r->rref.base);
}

bool rref_fork_add(struct shard *s, struct rref_record *r, struct rref_id fork, uint32_t session)
{
	struct session *se = &s->sessions[session];
	struct rref_fork *f = rref_table_find(&s->rrefs->forks, fork);
	if (f && MUTANT(RREF_TWICE))
		rref_ref(&r->rref.base);
	if (f)
		return f->session == session && f->record == r;
	struct far_buf *buf = r->first.record ? buf_alloc(sizeof *f) : NULL;
	if (r->first.record && !buf)
		return false;
	f = buf ? buf_data(buf) : &r->first;
	*f = (struct rref_fork){.id = fork, .record = hold(r), .buf = buf, .session = session};
	if (!rref_table_put(&s->rrefs->forks, fork, f)) {
		f->record = NULL;
		rref_unref(&r->rref.base);
		buf_unref(buf);
		return false;
	}
	list_put(se->rref_forks, f);
	r->forks_n++;
	counter_add(&s->rrefs->forks_n, 1);
	return true;
}

void rref_fork_end(struct shard *s, struct rref_fork *f)
{
	struct rref_record *r = f->record;
	struct far_buf *buf = f->buf;
	list_remove(f);
	rref_table_remove(&s->rrefs->forks, f->id);
	r->forks_n--;
	counter_add(&s->rrefs->forks_n, UINT64_MAX);
	f->record = NULL;
	rref_unref(&r->rref.base);
	buf_unref(buf);
}

/* ---- ends ---- */

/* Settles those that this incarnation of the worker would have made; not those of its next one. */
static void end_expected(struct shard *s, const struct session *se)
{
	for (struct far_rref *r = s->rrefs->list, *next; r; r = next) {
		struct rref_record *record = rref_as_record(r);
		next = r->next;
		if (record && record->expected && r->base.id.incarnation == se->incarnation)
			settle_lost(s, record);
	}
}

void rref_session_down(struct shard *s, struct session *se)
{
	if (atomic_load_explicit(&s->rrefs->leaving, memory_order_acquire) && !s->stopped) /* far_shutdown() */
		rref_leaks_keep(s, se);
	while (se->rref_forks && !MUTANT(RREF_DEAD_KEPT))
		rref_fork_end(s, se->rref_forks);
	while (se->rref_pins && !MUTANT(RREF_FLIGHT_KEPT)) {
		struct rref_pins *p = se->rref_pins;
		se->rref_pins = p->next;
		rref_pins_release(p);
	}
	rref_msgs_drop(s, se, FAR_PEER_LOST);
	if (s->rrefs->list)
		end_expected(s, se);
}

void rref_close(struct shard *s)
{
	static const char text[] = "the agent was shut down";
	struct completion end = {.status = FAR_SHUTDOWN, .data = text, .len = sizeof text - 1};
	struct rref_leaks *leaks = atomic_load_explicit(&s->rrefs->leaks, memory_order_acquire); /* far_shutdown() */
	timer_disarm(&s->wheel, &s->rrefs->again.timer);
	timer_disarm(&s->wheel, &s->rrefs->due_timer.timer);
	s->rrefs->due_at = 0;
	rref_leaks_left(s, leaks);
	for (struct session *se = s->known; se; se = se->next_known) {
		rref_leaks_of(s, se, leaks);
		rref_session_down(s, se);
	}
	shard_take_tasks(s);
	rref_release_all(s);
	for (struct far_rref *r = s->rrefs->list, *next; r; r = next) {
		next = r->next;
		rref_ref(&r->base);
		if (leaks)
			rref_leak_report(s, r, leaks);
		if (r->owned)
			rref_settle(s, rref_as_record(r), &end, false);
		else
			rref_known_end(s, rref_as_user(r), &end);
		rref_unref(&r->base);
	}
	/* What is settled has let go of what it held. */
	shard_take_tasks(s);
	rref_release_all(s);
	struct far_rref *r;
	while ((r = s->rrefs->list)) {
		list_out(s, r);
		const struct rref_record *record = rref_as_record(r);
		if (record)
			rref_table_remove(&s->rrefs->records, r->base.id);
		if (record && record->made) { /* a handler that has not ended may be at it */
			rref_ref(&r->base);
			r->next = s->rrefs->last;
			s->rrefs->last = r;
		}
		atomic_store_explicit(&r->home, NULL, memory_order_release);
	}
}
