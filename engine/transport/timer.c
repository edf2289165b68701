/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Time. A peer is active from its first packet until nothing is unacknowledged, owed, or awaited from it; only active
 * ones are looked at, so idle connections cost nothing and say nothing. Times are set by the first look after their
 * reason came to be, a LOOK_NS late: the path of a packet reads no clock, but for the few that are timed.
 */
#include "transport/audit.h"

#include "base/must.h"

#include <errno.h>

#define LOOK_NS        UINT64_C(32000)   /* between two looks at the active peers, unless somebody sleeps */
#define LOOK_PEER_NS   UINT64_C(64)      /* and for each of them: a look takes some 15 ns */
#define FULL_NS        UINT64_C(100000)  /* the driver below is full: when to try again */
#define STALL_NS       UINT64_C(1000000) /* between two looks: this thread did not run, or was busy elsewhere */
#define NARROW_RESENDS 5u                /* time-outs in a row after which a large packet is taken to be too large */
#define AUDIT_EVERY    61u               /* of so many nanoseconds in which a look may begin, one has an audit */
#define AHEAD          6u                /* peers of the list whose lines are fetched before their turn */
/* What is owed is acknowledged by FAR_LINK_ACK_NS: one look sets the time, the next but one may be the first after. */
#define ACK_AFTER_NS (FAR_LINK_ACK_NS - 2 * LOOK_NS)

/* ---- the round trip ---- */

static uint64_t now_of(struct link_queue *q)
{
	if (q->now == 0)
		q->now = clock_now(q->clock);
	return q->now;
}

void link_timing_begin(struct link_queue *q, struct link_peer *p, uint32_t number)
{
	q->now = clock_now(q->clock); /* since recv() a handler may have run */
	struct link_rtt *rtt = &p->rings->rtt;
	rtt->watch = (uint8_t)((rtt->watch & ~RTT_WANTED) | RTT_TIMING);
	rtt->number = number;
	rtt->sent_at = rtt->sampled_at = q->now;
}

static void sample(struct link_queue *q, struct link_peer *p)
{
	struct link_rings *r = p->rings;
	const struct link_sent *e = &r->sent[r->rtt.number % FAR_LINK_WINDOW];
	r->rtt.watch &= (uint8_t)~RTT_TIMING;
	/* Which of two copies is acknowledged nobody knows: Karn's rule. */
	if (!e->arrived && !e->retransmit)
		rtt_sample(&r->rtt, now_of(q) - r->rtt.sent_at, now_of(q));
}

static void late_arrived(struct link_queue *q, struct link_peer *p)
{
	struct link_rtt *rtt = &p->rings->rtt;
	rtt->watch &= (uint8_t)~RTT_LATE;
	rtt->late_ns = now_of(q) - rtt->late_from;
	rtt->late_known = true;
}

__attribute__((noinline)) void link_timing_ack(struct link_queue *q, struct link_peer *p, uint32_t ack)
{
	struct link_rtt *rtt = &p->rings->rtt;
	if (rtt->watch & RTT_TIMING && (int32_t)(ack - rtt->number) > 0)
		sample(q, p);
	if (rtt->watch & RTT_LATE && (int32_t)(ack - rtt->late) > 0)
		late_arrived(q, p);
	if (rtt->watch & RTT_BACKED)
		rtt_progress(rtt, now_of(q));
}

void link_timing_arrived(struct link_queue *q, struct link_peer *p, uint32_t number)
{
	struct link_rtt *rtt = &p->rings->rtt;
	if (rtt->watch & RTT_TIMING && number == rtt->number)
		sample(q, p);
	if (rtt->watch & RTT_LATE && number == rtt->late)
		late_arrived(q, p);
}

__attribute__((noinline)) void link_sent_twice(struct link_queue *q, struct link_peer *p, uint32_t number, bool untold)
{
	struct link_rings *r = p->rings;
	if (p->next - number - 1 >= FAR_LINK_WINDOW || !r || (int32_t)(number - r->sent_first) < 0)
		return; /* of long ago */
	struct link_sent *e = &r->sent[number % FAR_LINK_WINDOW];
	if (!e->retransmit)
		return;
	counter_bump(&q->needless);
	if (e->retransmit & LINK_BY_EVIDENCE) {
		p->path.reorder *= 2;
		if (p->path.reorder > FAR_LINK_REORDER_MAX)
			p->path.reorder = FAR_LINK_REORDER_MAX;
	}
	/* It was late, or its acknowledgement was. Else that was lost: then this one says nothing of the time. */
	if (number == r->rtt.late && e->retransmit & LINK_BY_TIME) {
		if (untold && r->rtt.watch & RTT_LATE)
			late_arrived(q, p);
		if (r->rtt.late_known)
			rtt_mend(&r->rtt, r->rtt.late_ns, now_of(q));
	}
	e->retransmit = 0;
}

/* The last packet that was sent again by time: should that prove needless, how long it took is known. */
static void late_begin(struct link_peer *p, uint32_t number)
{
	struct link_rtt *rtt = &p->rings->rtt;
	if (rtt->watch & RTT_LATE)
		return;
	rtt->watch |= RTT_LATE;
	rtt->late = number;
	rtt->late_from = p->rings->armed_at;
	rtt->late_known = false;
}

/* ---- what is unacknowledged ---- */

/* Large packets vanish and small ones do not: a path that says nothing of its width. */
static void narrow(struct link_peer *p)
{
	const struct link_rings *r = p->rings;
	if (r->resends == NARROW_RESENDS && r->answers > 1 && p->payload_max > FAR_LINK_SAFE_BYTES &&
	    r->sent[p->una % FAR_LINK_WINDOW].len > FAR_LINK_SAFE_BYTES)
		p->payload_max = FAR_LINK_SAFE_BYTES;
}

/* From the first look after something was acknowledged, or after the first packet left. A host that is known to be slow
 * is not probed. */
static void arm(struct link_peer *p, uint64_t now)
{
	struct link_rings *r = p->rings;
	bool may = !r->resends && !r->rtt.backoff && !(r->probed && r->probed_una == p->una);
	uint64_t probe = may ? rtt_probe(&r->rtt, now) : 0;
	r->probing = probe != 0;
	r->probe_out = false;
	r->armed_at = now;
	r->resend_at = now + (probe ? probe : rtt_timeout(&r->rtt, now));
}

static void probe(struct link_queue *q, struct link_peer *p, uint64_t now)
{
	struct link_rings *r = p->rings;
	r->probing = false;
	r->probed = true;
	r->probed_una = p->una;
	r->resend_at = now + rtt_timeout(&r->rtt, now);
	link_probe(q, p);
	if (r->probe_out)
		late_begin(p, r->probe_number);
	link_kick(q, p);
}

static void time_out(struct link_queue *q, struct link_peer *p, uint64_t now)
{
	struct link_rings *r = p->rings;
	if (r->resends == 0)
		r->answers = 0;
	late_begin(p, p->una);
	r->resends++;
	p->path.reorder = FAR_LINK_REORDER;
	counter_bump(&q->timeouts);
	if (r->resends == 2)
		link_doubt(p);
	narrow(p);
	rtt_back_off(&r->rtt, now);
	r->resend_at = now + rtt_timeout(&r->rtt, now);
	link_resend(q, p, true);
	if (p->secondary && r->resends > 1)
		link_way_ask(q, p, now);
	/* With our address in it, so that one who does not know us can say so. */
	if (p->silent_ns)
		link_send_ping(q, p);
	link_kick(q, p);
}

static void look_at_unacked(struct link_queue *q, struct link_peer *p, uint64_t now, bool paused)
{
	const struct link_rings *r = p->rings;
	if (r->resend_at == 0)
		arm(p, now);
	else if (now >= r->resend_at && !paused && r->probing)
		probe(q, p, now);
	else if (now >= r->resend_at && !paused)
		time_out(q, p, now);
}

/* ---- silence ---- */

static bool is_awaited(const struct link_queue *q, const struct link_peer *p)
{
	return p->una != p->next || link_has_unsent(p) || p->early_n || p->begun_n ||
	       (q->owes && p->attached && q->owes(q->owes_ctx, p->index));
}

/* Silent for so long, it is pinged: after a quarter of the limit, then after each eighth. */
static uint64_t ping_after(const struct link_queue *q, const struct link_peer *p)
{
	return q->limit_ns / 4 + p->pings * (q->limit_ns / 8);
}

static void count_silence(struct link_queue *q, struct link_peer *p, uint64_t gap)
{
	uint64_t most = q->limit_ns / 4;
	if (p->heard || p->fresh) {
		if (p->rings)
			p->rings->answers += p->heard;
		p->heard = p->fresh = false;
		p->silent_ns = 0;
		p->pings = 0;
	} else {
		/* Longer gaps are those in which nobody listened. */
		p->silent_ns += gap < most ? gap : most;
	}
}

/* Nothing is known of its path any more that was not measured again. */
static void idle(struct link_peer *p)
{
	p->wanted = true;
	link_bulk_forget(p);
}

/* ---- those that are only owed something ---- */

static struct link_owing *delayed_ack_at(struct link_queue *q, uint32_t i)
{
	return &q->owing[(q->owing_first + i) % FAR_LINK_PEERS_MAX];
}

/* false: there is no room, or it would have to be before others: it is looked at as before. */
static bool delayed_ack_add(struct link_queue *q, struct link_peer *p)
{
	uint32_t n = q->owing_n;
	if (n == FAR_LINK_PEERS_MAX || (n && delayed_ack_at(q, n - 1)->at > p->ack_at))
		return false;
	*delayed_ack_at(q, n) = (struct link_owing){p, p->ack_at};
	q->owing_n = n + 1;
	return true;
}

void link_owing_run(struct link_queue *q, uint64_t until)
{
	while (q->owing_n && delayed_ack_at(q, 0)->at <= until) {
		struct link_owing o = *delayed_ack_at(q, 0);
		if (q->owing_n > AHEAD)
			link_peer_fetch(delayed_ack_at(q, AHEAD)->peer);
		q->owing_first++;
		q->owing_n--;
		if (o.peer->ack_at != o.at || !o.peer->owed || !o.peer->started || o.peer->dead)
			continue;
		link_ack_soon(q, o.peer);
		if (o.peer->active)
			continue;
		if (o.peer->owed && !o.peer->ack_now) /* the driver below is full */
			link_peer_activate(q, o.peer);
		else
			idle(o.peer);
	}
}

/* ---- looks ---- */

/* true: the set is kept, though nothing is under way. */
static bool look_at_rings(struct link_queue *q, struct link_peer *p, uint64_t now)
{
	struct link_rtt *rtt = &p->rings->rtt;
	if (!(rtt->watch & (RTT_WANTED | RTT_TIMING)) && now - rtt->sampled_at >= FAR_LINK_SAMPLE_NS)
		rtt->watch |= RTT_WANTED;
	return !link_rings_look(q, p, now);
}

/* false: nothing is to be done for it any more. */
static bool peer_scan(struct link_queue *q, struct link_peer *p, uint64_t now, uint64_t gap, bool paused)
{
	if (p->dead || !p->started)
		return false;
	count_silence(q, p, gap);
	if (p->owed && p->ack_at == 0)
		p->ack_at = now + ACK_AFTER_NS;
	else if (p->owed && now >= p->ack_at)
		link_ack_soon(q, p);
	if (p->una != p->next)
		look_at_unacked(q, p, now, paused);
	if (p->begun_n)
		link_grants_look(q, p, now);
	if (__builtin_expect(p->secondary, 0))
		link_way_look(q, p, now, paused);
	link_backlog_add(q, p);
	bool kept = p->rings && look_at_rings(q, p, now);
	if (!is_awaited(q, p)) {
		p->silent_ns = 0;
		/* A failure to send what is in `acks` makes it active again. */
		return (p->owed && !p->ack_now && !delayed_ack_add(q, p)) || p->probed_paths != 0 ||
		       (p->abroad && !p->current_path) || kept;
	}
	if (p->silent_ns >= q->limit_ns) {
		link_peer_dead(q, p, -ETIMEDOUT);
		return false;
	}
	if (p->silent_ns >= ping_after(q, p)) {
		p->pings++;
		link_send_ping(q, p);
		if (p->secondary)
			link_way_ask(q, p, now);
	}
	return true;
}

void link_timers_run(struct link_queue *q)
{
	uint64_t now = clock_now(q->clock), gap = now - q->scanned_at;
	q->passes = 0;
	q->now = now;
	if (!q->look && gap < LOOK_NS + q->actives_n * LOOK_PEER_NS)
		return;
	/* After a pause what has arrived is taken before anything is believed to be late; but not for ever. */
	q->paused = !q->look && gap > STALL_NS && !q->paused;
	q->look = false;
	q->scanned_at = now;
	for (uint32_t i = q->actives_n; i-- > 0;) {
		struct link_peer *p = q->actives[i];
		if (i >= AHEAD)
			link_peer_fetch(q->actives[i - AHEAD]);
		if (peer_scan(q, p, now, gap, q->paused))
			continue;
		p->active = false;
		if (!p->owed || p->ack_now)
			idle(p);
		q->actives[i] = q->actives[--q->actives_n];
		q->actives[i]->active_at = i;
	}
	link_owing_run(q, now);
	if (q->onesided.n)
		link_offers_look(q, now);
	if (q->grants.due)
		link_grants_run(q);
	link_send_acks(q);
	debug_must(now % AUDIT_EVERY || link_audit_agrees(q));
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t link_deadline(const struct nic_queue *nq)
{
	struct link_queue *q = (struct link_queue *)(uintptr_t)nq;
	uint64_t next = q->ops->deadline(q->lower);
	if (q->actives_n == 0 && q->owing_n == 0)
		return next;
	/* Who asks will sleep so long: then recv() is to look, however few passes there were. */
	q->look = true;
	uint64_t now = clock_now(q->clock);
	if (q->backlog_first || q->acks_n)
		next = earlier(next, now + FULL_NS);
	if (q->owing_n)
		next = earlier(next, delayed_ack_at(q, 0)->at);
	if (q->onesided.n)
		next = earlier(next, now + FAR_LINK_ONESIDED_NS / 8);
	for (uint32_t i = 0; i < q->actives_n; i++) {
		struct link_peer *p = q->actives[i];
		uint64_t heard = now > q->scanned_at + p->silent_ns ? now - p->silent_ns : q->scanned_at;
		if (p->owed)
			next = earlier(next, p->ack_at ? p->ack_at : now + ACK_AFTER_NS);
		if (p->una != p->next && p->rings->resend_at == 0)
			arm(p, now);
		if (p->una != p->next)
			next = earlier(next, p->rings->resend_at);
		if (p->begun_n)
			next = earlier(next, p->rings->grant_at ? p->rings->grant_at : now + FAR_LINK_MARGIN_NS);
		if (p->probed_paths)
			next = earlier(next, p->paths->decide_at);
		next = earlier(next, heard + ping_after(q, p));
	}
	return next;
}
