/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Checks the counts of a shard, and the two ends of a session, against what they count. Simulator only, between two
 * passes. Shard thread.
 */
#include "features/audit/audit.h"

#include "core/call.h"
#include "core/deferred.h"
#include "core/fiber.h"
#include "core/fiber_pool.h"
#include "core/reply.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/waiting.h"
#include "features/faults/fault.h"
#include "features/references/rref.h"
#include "features/rendezvous/rendezvous.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void audit_printf(const struct auditor *a, const char *format, ...)
{
	char text[256];
	va_list args;
	int n = snprintf(text, sizeof text, "worker \"%s\", shard %" PRIu32 ": ", a->s->config.name,
			 a->s->config.index);
	va_start(args, format);
	if (n > 0 && (size_t)n < sizeof text)
		vsnprintf(text + n, sizeof text - (size_t)n, format, args);
	va_end(args);
	a->report(a->ctx, text);
}

static void same(const struct auditor *a, const char *what, uint64_t count, uint64_t found)
{
	if (count != found)
		audit_printf(a, "%s: counted %" PRIu64 ", found %" PRIu64, what, count, found);
}

static void same_of(const struct auditor *a, const struct session *se, const char *what, uint64_t count, uint64_t found)
{
	if (count != found)
		audit_printf(a, "session with worker %" PRIu32 ", shard %u: %s: counted %" PRIu64 ", found %" PRIu64,
			     se->worker, se->shard, what, count, found);
}

static void fits(const struct auditor *a, const struct session *se, bool yes, const char *what)
{
	if (!yes)
		audit_printf(a, "session with worker %" PRIu32 ", shard %u: %s", se->worker, se->shard, what);
}

static uint64_t counter(const _Atomic uint64_t *c)
{
	return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)c, memory_order_relaxed);
}

/* ---- calls ---- */

static uint32_t calls_of(const struct shard *s, const struct session *se)
{
	uint32_t n = 0;
	for (uint32_t slot = 0; slot < s->calls_used; slot++)
		n += s->calls[slot].state != CALL_FREE && s->calls[slot].session == se->index;
	return n;
}

static uint32_t calls_taken(const struct shard *s)
{
	uint32_t n = 0;
	for (uint32_t slot = 0; slot < s->calls_used; slot++)
		n += s->calls[slot].state != CALL_FREE;
	return n;
}

/* The list of free slots leads through all that were used and are not now. */
static void audit_free_calls(const struct auditor *a)
{
	const struct shard *s = a->s;
	uint32_t n = 0;
	const struct call *c = s->calls_free;
	for (; c && n <= s->calls_used; n++, c = c->next)
		if (c->state != CALL_FREE) {
			audit_printf(a, "call slot %" PRIu32 " is in the list of free ones and taken", c->slot);
			return;
		}
	same(a, "free call slots", s->calls_used - calls_taken(s), n);
}

static uint32_t open_of(const struct session *se)
{
	uint32_t n = 0;
	for (const struct far_deferred *d = se->open; d && n <= FAR_SESSION_REQUESTS_MAX; d = d->open_next)
		n++;
	return n;
}

static uint32_t deferred_used(const struct shard *s)
{
	uint32_t ever = 0, idle = 0;
	while (ever < s->deferred_n && s->deferred[ever].shard)
		ever++;
	for (const struct far_deferred *d = s->deferred_free; d && d->shard && idle <= ever; d = d->next)
		idle++;
	return ever - (idle <= ever ? idle : 0);
}

static uint32_t fibers_used(const struct shard *s)
{
	const struct fiber_pool *pool = fiber_pool_of(s);
	uint32_t n = 0;
	for (uint32_t i = 0; pool && i < pool->used; i++)
		n += pool->fibers[i].state != FIBER_FREE;
	return n;
}

static uint32_t rendezvous_ins_used(const struct shard *s)
{
	uint32_t idle = 0;
	for (const struct rendezvous_in *in = rendezvous_of(s)->free; in && idle <= FAR_RENDEZVOUS_IN_MAX;
	     in = in->next)
		idle++;
	return FAR_RENDEZVOUS_IN_MAX - (idle <= FAR_RENDEZVOUS_IN_MAX ? idle : 0);
}

/* ---- windows, one-way messages, fragments ---- */

static void audit_lane_in(const struct auditor *a, const struct session *se, const struct rendezvous_lane *l)
{
	if (!l->open)
		return;
	fits(a, se, !l->accepted || l->granted, "a rendezvous message has come that was not granted");
	fits(a, se, l->accepted <= l->total, "more of a rendezvous message has come than there is");
	fits(a, se, !l->in || l->in->peer == se->rendezvous, "a lane's memory is another session's");
	fits(a, se, !l->in || l->parts_n || l->in->copied <= l->accepted,
	     "more of a rendezvous message was copied than has come");
}

static void audit_lane_out(const struct auditor *a, const struct session *se, const struct rendezvous_out *o)
{
	if (!o)
		return;
	fits(a, se, !o->sent || o->granted, "a rendezvous message was sent that was not granted");
	fits(a, se, o->sent <= o->total, "more of a rendezvous message was sent than there is");
}

static void audit_windows(const struct auditor *a, const struct session *se)
{
	const struct rendezvous_peer *p = se->rendezvous;
	if (!p)
		return;
	fits(a, se, p->oneways_acked <= p->oneways_sent, "more one-way messages are acknowledged than were sent");
	fits(a, se, p->oneways_sent - p->oneways_acked <= FAR_ONEWAYS_WINDOW,
	     "more one-way messages are out than the window takes");
	fits(a, se, p->oneways_reported <= p->oneways_received, "more one-way messages were acknowledged than came");
	fits(a, se, p->oneways_received - p->oneways_reported < FAR_ONEWAYS_BATCH,
	     "a batch of one-way messages came and was not acknowledged");
	fits(a, se, p->packets_acked <= p->packets_sent, "more fragments are acknowledged than were sent");
	fits(a, se, p->packets_sent - p->packets_acked <= FAR_RENDEZVOUS_PACKETS,
	     "more fragments are out than the window takes");
	fits(a, se, p->packets_reported <= p->packets_received, "more fragments were acknowledged than came");
	fits(a, se, p->held_n <= FAR_RENDEZVOUS_PACKETS, "more fragments are held than the window takes");
	for (unsigned lane = 0; lane < FAR_RENDEZVOUS_LANES; lane++) {
		audit_lane_in(a, se, &p->in[lane]);
		audit_lane_out(a, se, p->out[lane].out);
	}
}

static void audit_session(const struct auditor *a, const struct session *se)
{
	same_of(a, se, "calls", se->calls_active, calls_of(a->s, se));
	/* A batch of control messages has a credit of its own. */
	fits(a, se, se->calls_active <= a->s->config.limits.peer_calls + (se->msgs_in_flight != NULL),
	     "more calls than credits");
	uint32_t queued = waiting_slots_used(a->s, se->index);
	fits(a, se, queued <= a->s->config.limits.peer_waiting, "more calls wait for it than may");
	fits(a, se, se->waiting_n <= queued, "calls wait for it and were not counted");
	if (se->state != SESSION_UP)
		return;
	same_of(a, se, "open requests", se->open_n, open_of(se));
	fits(a, se, se->paused_n <= FAR_SESSION_REQUESTS_MAX, "more paused requests than the caller has credits");
	audit_windows(a, se);
}

/* ---- references ---- */

static uint64_t pins_of(const struct session *se)
{
	uint64_t n = 0;
	for (const struct rref_pins *p = se->rref_pins; p; p = p->next)
		n += p->left;
	return n;
}

/* Each record is in the table and has the forks that it counts; each fork is in a session's list. */
static void audit_rrefs(const struct auditor *a)
{
	const struct shard *s = a->s;
	const struct rref_shard *rs = s->rrefs;
	uint64_t owned = 0, users = 0, forks_n = 0, forks = 0, msgs = 0;
	for (const struct far_rref *r = rs->list; r; r = r->next) {
		const struct rref_record *record = rref_as_record(r);
		owned += record != NULL;
		users += !record;
		if (!record)
			continue;
		forks_n += record->forks_n;
		if (rref_table_find(&rs->records, r->base.id) != r)
			audit_printf(a, "a record is not in the table under its name");
		if (record->settled != future_done(record->value))
			audit_printf(a, "a record is settled and its future is not complete, or the reverse");
	}
	for (const struct session *se = s->known; se; se = se->next_known) {
		for (const struct rref_fork *f = se->rref_forks; f; f = f->next) {
			forks++;
			if (rref_table_find(&rs->forks, f->id) != f)
				audit_printf(a, "a fork is not in the table under its name");
		}
		for (const struct rref_msg *n = se->msgs; n; n = n->next)
			msgs++;
		for (const struct rref_msg *n = se->msgs_in_flight; n; n = n->next)
			msgs++;
	}
	uint64_t late = 0;
	for (unsigned i = 0; i < RREF_DELAYED_QUEUES; i++)
		for (const struct rref_msg *n = rs->late[i].first; n; n = n->next)
			late++;
	same(a, "delayed control messages", rs->late_n, late);
	msgs += late;
	same(a, "records", rs->records.n, owned);
	same(a, "records, as counted", counter(&rs->owned_n), owned);
	same(a, "references held", counter(&rs->users_n), users);
	same(a, "forks", rs->forks.n, forks);
	same(a, "forks, as counted", counter(&rs->forks_n), forks);
	same(a, "forks of all records", forks_n, forks);
	same(a, "control messages", counter(&rs->msgs_n), msgs);
}

void audit_shard(const struct shard *s, audit_report *report, void *ctx)
{
	struct auditor a = {s, report, ctx};
	const struct fiber_pool *pool = fiber_pool_of(s);
	uint64_t active = 0, waiting = 0, ended = 0, requests = 0, sent = 0, bytes = 0;
	for (const struct fault_delayed *l = fault_shard(s)->late; l; l = l->next)
		waiting += !l->answer;
	for (const struct session *se = s->known; se; se = se->next_known) {
		audit_session(&a, se);
		active += se->calls_active;
		waiting += se->waiting_n;
		const struct session_counters *c = &se->counters;
		ended += c->calls_ended;
		requests += c->requests;
		bytes += c->bytes_received;
		sent += se->bytes_sent;
	}
	same(&a, "calls of all sessions", active, calls_taken(s));
	same(&a, "calls ended of all sessions", ended, counter(&s->counters.calls_ended));
	same(&a, "requests of all sessions", requests, counter(&s->counters.requests_received));
	same(&a, "bytes sent of all sessions", sent, counter(&s->counters.bytes_sent));
	same(&a, "bytes received of all sessions", bytes, counter(&s->counters.bytes_received));
	same(&a, "calls sent and not ended", counter(&s->counters.calls_sent) - counter(&s->counters.calls_ended),
	     calls_taken(s));
	same(&a, "calls that wait for a session", counter(&s->counters.calls_waiting), waiting);
	audit_free_calls(&a);
	audit_sessions(&a);
	audit_rrefs(&a);
	same(&a, "records of open requests", counter(&s->counters.requests_active), deferred_used(s));
	if (pool)
		same(&a, "fibers", pool->live, fibers_used(s));
}

/* ---- two ends ---- */

static const struct session *session_with(const struct shard *s, uint32_t rank, uint32_t shard)
{
	const struct session *se = rank < s->world ? &s->sessions[session_index(s, rank, shard)] : NULL;
	return se && se->state == SESSION_UP ? se : NULL;
}

/* A request is with the callee as an open record, or paused, or as a fiber that has not waited, or it is lost. */
static bool callee_has(const struct session *se, uint32_t slot, uint32_t gen)
{
	for (const struct far_deferred *d = se->open; d; d = d->open_next)
		if (d->call == slot && d->gen == gen)
			return true;
	for (uint32_t i = 0; i < se->paused_n; i++) {
		const struct paused_request *p = &se->paused->ring[(se->paused_head + i) % FAR_SESSION_REQUESTS_MAX];
		if (p->head.call.slot == slot && p->head.call.generation == gen)
			return true;
	}
	return false;
}

static void audit_lanes(const struct auditor *a, const struct session *here, const struct rendezvous_peer *p,
			const struct rendezvous_peer *q)
{
	for (unsigned lane = 0; lane < FAR_RENDEZVOUS_LANES; lane++) {
		const struct rendezvous_out *o = p->out[lane].out;
		const struct rendezvous_lane *l = &q->in[lane];
		if (!o && !p->out[lane].aborting) {
			fits(a, here, !l->open, "the peer awaits a rendezvous message on a lane that is free");
			continue;
		}
		fits(a, here, l->open, "a rendezvous message is being sent that the peer does not know of");
		if (!o || !l->open || !l->in)
			continue;
		same_of(a, here, "grants of a rendezvous message", o->granted, l->granted);
		same_of(a, here, "bytes sent of a rendezvous message", o->sent, l->accepted);
	}
}

void audit_pair(const struct shard *s, uint32_t rank, const struct shard *other, uint32_t other_rank,
		audit_report *report, void *ctx)
{
	struct auditor a = {s, report, ctx};
	const struct session *here = session_with(s, other_rank, other->config.index);
	const struct session *there = session_with(other, rank, s->config.index);
	if (!here || !there)
		return;
	/* One that was never needed is as one with which nothing was done. */
	static const struct rendezvous_peer none;
	const struct rendezvous_peer *p = here->rendezvous ? here->rendezvous : &none,
				     *q = there->rendezvous ? there->rendezvous : &none;
	same_of(&a, here, "one-way messages that the peer has received", p->oneways_sent, q->oneways_received);
	same_of(&a, here, "credits that the peer has returned", p->oneways_acked, q->oneways_reported);
	same_of(&a, here, "fragments that the peer is done with", p->packets_sent, q->packets_received + q->held_n);
	same_of(&a, here, "fragments that the peer has acknowledged", p->packets_acked, q->packets_reported);
	audit_lanes(&a, here, p, q);
	for (uint32_t slot = 0; slot < s->calls_used; slot++) {
		const struct call *c = &s->calls[slot];
		if ((c->state == CALL_SENT || c->state == CALL_ENDED) && c->session == here->index && !c->retry &&
		    !callee_has(there, slot, c->gen))
			audit_printf(&a,
				     "call slot %" PRIu32 " awaits an answer of worker %" PRIu32
				     ", which has no such request",
				     slot, other_rank);
	}
}

void audit_level_read(const struct shard *s, struct audit_level *out)
{
	*out = (struct audit_level){.calls = calls_taken(s),
				    .deferred = deferred_used(s),
				    .fibers = fibers_used(s),
				    .rendezvous_in = rendezvous_ins_used(s),
				    .submitted = submit_waiting(&s->submit)};
	out->rrefs = counter(&s->rrefs->owned_n) + counter(&s->rrefs->users_n) + counter(&s->rrefs->forks_n);
	out->rref_msgs = counter(&s->rrefs->msgs_n);
	for (const struct session *se = s->known; se; se = se->next_known) {
		const struct rendezvous_peer *p = se->rendezvous;
		out->rrefs += pins_of(se);
		out->waiting += se->waiting_n;
		out->backpressured += se->backpressured & SESSION_BACKPRESSURED;
		if (se->state != SESSION_UP)
			continue;
		out->paused += se->paused_n;
		if (!p)
			continue;
		for (const struct oneway *oneway = p->oneways; oneway; oneway = oneway->next)
			out->oneways++;
		for (const struct rendezvous_out *o = p->queue; o; o = o->next)
			out->rendezvous_out++;
		for (unsigned lane = 0; lane < FAR_RENDEZVOUS_LANES; lane++)
			out->rendezvous_out += p->out[lane].out || p->out[lane].aborting;
	}
	out->fanouts = atomic_load_explicit(&((struct shard *)(uintptr_t)s)->fanouts_begun, memory_order_relaxed) -
		       atomic_load_explicit(&((struct shard *)(uintptr_t)s)->fanouts_ended, memory_order_relaxed);
}
