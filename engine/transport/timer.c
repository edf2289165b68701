/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Timers: the scan of active peers, and RTT samples. Poller.
 *
 * A peer is active from its first packet until nothing is unacknowledged, to be acknowledged, or awaited from it. The
 * scan includes active peers only: idle connections cost nothing and send nothing. Timers are armed by the next scan,
 * up to LOOK_NS late, so that the fast path reads no clock, except for RTT samples.
 */
#include "transport/timer.h"

#include "base/must.h"
#include "transport/audit.h"
#include "transport/control.h"
#include "transport/expose.h"
#include "transport/path.h"
#include "transport/retransmit.h"
#include "transport/rings.h"
#include "transport/schedule.h"
#include "transport/send.h"

#include <errno.h>

#define LOOK_NS      UINT64_C(32000)   /* between two scans, unless the caller sleeps */
#define LOOK_PEER_NS UINT64_C(64)      /* and for each active peer: scanning one takes some 15 ns */
#define FULL_NS      UINT64_C(100000)  /* retry after the driver below was full */
#define STALL_NS     UINT64_C(1000000) /* between two scans: this thread was descheduled or busy elsewhere */
#define PMTU_RESENDS 5u                /* consecutive time-outs after which the path MTU is assumed to have shrunk */
#define AUDIT_EVERY  61u               /* one scan in so many is audited in debug builds */
#define AHEAD        6u                /* peers of the list that are prefetched ahead */
/* An ACK leaves by FAR_TRANSPORT_ACK_NS: one scan sets its time, and the second after that may be the first to find it
 * due.
 */
#define ACK_AFTER_NS (FAR_TRANSPORT_ACK_NS - 2 * LOOK_NS)

/* ---- RTT samples ---- */

void transport_timing_begin(struct transport_queue *q, struct transport_peer *p, uint32_t number)
{
	q->now = clock_now(q->clock); /* a handler may have run since recv() */
	struct transport_rtt *rtt = &p->rings->rtt;
	rtt->watch = (uint8_t)((rtt->watch & ~RTT_WANTED) | RTT_TIMING);
	rtt->number = number;
	rtt->sent_at = rtt->sampled_at = q->now;
}

static void sample(struct transport_queue *q, struct transport_peer *p)
{
	struct transport_rings *r = p->rings;
	const struct transport_sent *e = &r->sent[r->rtt.number % FAR_TRANSPORT_WINDOW];
	r->rtt.watch &= (uint8_t)~RTT_TIMING;
	/* Karn's rule: a retransmitted packet is no sample. */
	if (!e->arrived && !e->retransmit)
		rtt_sample(&r->rtt, transport_now(q) - r->rtt.sent_at, transport_now(q));
}

static void late_arrived(struct transport_queue *q, struct transport_peer *p)
{
	struct transport_rtt *rtt = &p->rings->rtt;
	rtt->watch &= (uint8_t)~RTT_LATE;
	rtt->late_ns = transport_now(q) - rtt->late_from;
	rtt->late_known = true;
}

__attribute__((noinline)) void transport_timing_ack(struct transport_queue *q, struct transport_peer *p, uint32_t ack)
{
	struct transport_rtt *rtt = &p->rings->rtt;
	if (rtt->watch & RTT_TIMING && (int32_t)(ack - rtt->number) > 0)
		sample(q, p);
	if (rtt->watch & RTT_LATE && (int32_t)(ack - rtt->late) > 0)
		late_arrived(q, p);
	if (rtt->watch & RTT_BACKED)
		rtt_progress(rtt, transport_now(q));
}

void transport_timing_arrived(struct transport_queue *q, struct transport_peer *p, uint32_t number)
{
	struct transport_rtt *rtt = &p->rings->rtt;
	if (rtt->watch & RTT_TIMING && number == rtt->number)
		sample(q, p);
	if (rtt->watch & RTT_LATE && number == rtt->late)
		late_arrived(q, p);
}

__attribute__((noinline)) void transport_sent_duplicate(struct transport_queue *q, struct transport_peer *p,
							uint32_t number, bool first)
{
	struct transport_rings *r = p->rings;
	if (p->next - number - 1 >= FAR_TRANSPORT_WINDOW || !r || (int32_t)(number - r->sent_first) < 0)
		return; /* too old */
	struct transport_sent *e = &r->sent[number % FAR_TRANSPORT_WINDOW];
	if (!e->retransmit)
		return;
	counter_bump(&q->spurious_retransmits);
	if (e->retransmit & TRANSPORT_RETRANSMIT_LOSS) {
		p->path.reorder *= 2;
		if (p->path.reorder > FAR_TRANSPORT_REORDER_MAX)
			p->path.reorder = FAR_TRANSPORT_REORDER_MAX;
	}
	/* The time-out was too short if the ACK is late; if the ACK was lost, nothing follows for the time-out. */
	if (number == r->rtt.late && e->retransmit & TRANSPORT_RETRANSMIT_TIMEOUT) {
		if (first && r->rtt.watch & RTT_LATE)
			late_arrived(q, p);
		if (r->rtt.late_known)
			rtt_mend(&r->rtt, r->rtt.late_ns, transport_now(q));
	}
	e->retransmit = 0;
}

/* Starts to time the delay of a packet retransmitted by time-out, in case that proves spurious. */
static void late_begin(struct transport_peer *p, uint32_t number)
{
	struct transport_rtt *rtt = &p->rings->rtt;
	if (rtt->watch & RTT_LATE)
		return;
	rtt->watch |= RTT_LATE;
	rtt->late = number;
	rtt->late_from = p->rings->armed_at;
	rtt->late_known = false;
}

/* ---- unacknowledged packets ---- */

/* Large packets are lost and small ones are not: assume that the path MTU shrank, without an ICMP error. */
static void assume_smaller_pmtu(struct transport_peer *p)
{
	const struct transport_rings *r = p->rings;
	if (r->resends == PMTU_RESENDS && r->answers > 1 && p->payload_max > FAR_TRANSPORT_MTU_MIN &&
	    r->sent[p->una % FAR_TRANSPORT_WINDOW].len > FAR_TRANSPORT_MTU_MIN)
		p->payload_max = FAR_TRANSPORT_MTU_MIN;
}

/* Arms the retransmission timer: by the first scan after an acknowledgement, or after the first packet. No tail loss
 * probe during a back-off. */
static void arm(struct transport_peer *p, uint64_t now)
{
	struct transport_rings *r = p->rings;
	bool may = !r->resends && !r->rtt.backoff && !(r->probed && r->probed_una == p->una);
	uint64_t probe = may ? rtt_probe(&r->rtt, now) : 0;
	r->probing = probe != 0;
	r->probe_out = false;
	r->armed_at = now;
	r->resend_at = now + (probe ? probe : rtt_timeout(&r->rtt, now));
}

static void probe(struct transport_queue *q, struct transport_peer *p, uint64_t now)
{
	struct transport_rings *r = p->rings;
	r->probing = false;
	r->probed = true;
	r->probed_una = p->una;
	r->resend_at = now + rtt_timeout(&r->rtt, now);
	transport_tail_probe(q, p);
	if (r->probe_out)
		late_begin(p, r->probe_number);
	transport_kick(q, p);
}

static void time_out(struct transport_queue *q, struct transport_peer *p, uint64_t now)
{
	struct transport_rings *r = p->rings;
	if (r->resends == 0)
		r->answers = 0;
	late_begin(p, p->una);
	r->resends++;
	p->path.reorder = FAR_TRANSPORT_REORDER;
	counter_bump(&q->timeouts);
	if (r->resends == 2)
		transport_ack_bits_forget(p);
	assume_smaller_pmtu(p);
	rtt_back_off(&r->rtt, now);
	r->resend_at = now + rtt_timeout(&r->rtt, now);
	transport_retransmit(q, p, true);
	if (p->secondary && r->resends > 1)
		transport_paths_probe(q, p, now);
	/* A PING contains our address, so that a restarted peer can answer RESET. */
	if (p->silent_ns)
		transport_send_ping(q, p);
	transport_kick(q, p);
}

static void look_at_unacked(struct transport_queue *q, struct transport_peer *p, uint64_t now, bool paused)
{
	const struct transport_rings *r = p->rings;
	if (r->resend_at == 0)
		arm(p, now);
	else if (now >= r->resend_at && !paused && r->probing)
		probe(q, p, now);
	else if (now >= r->resend_at && !paused)
		time_out(q, p, now);
}

/* ---- silence ---- */

static bool is_awaited(const struct transport_queue *q, const struct transport_peer *p)
{
	return p->una != p->next || transport_has_unsent(p) || p->early_n || p->begun_n ||
	       (q->awaits_reply && p->attached && q->awaits_reply(q->awaits_reply_ctx, p->index));
}

/* Silence before the next PING: a quarter of the limit, then an eighth more each time. */
static uint64_t ping_after(const struct transport_queue *q, const struct transport_peer *p)
{
	return q->limit_ns / 4 + p->pings * (q->limit_ns / 8);
}

static void count_silence(struct transport_queue *q, struct transport_peer *p, uint64_t gap)
{
	uint64_t most = q->limit_ns / 4;
	if (p->heard || p->fresh) {
		if (p->rings)
			p->rings->answers += p->heard;
		p->heard = p->fresh = false;
		p->silent_ns = 0;
		p->pings = 0;
	} else {
		/* In longer gaps this thread did not receive. */
		p->silent_ns += gap < most ? gap : most;
	}
}

/* The peer leaves the scan: its next packet is an RTT sample. */
static void idle(struct transport_peer *p)
{
	p->wanted = true;
	transport_unscheduled_reset(p);
}

/* ---- delayed acknowledgements of inactive peers ---- */

static struct transport_delayed_ack *delayed_ack_at(struct transport_queue *q, uint32_t i)
{
	return &q->delayed[(q->delayed_first + i) % FAR_TRANSPORT_PEERS_MAX];
}

/* false: the ring is full, or the entry would not be in order: the peer stays active. */
static bool delayed_ack_add(struct transport_queue *q, struct transport_peer *p)
{
	uint32_t n = q->delayed_n;
	if (n == FAR_TRANSPORT_PEERS_MAX || (n && delayed_ack_at(q, n - 1)->at > p->ack_at))
		return false;
	*delayed_ack_at(q, n) = (struct transport_delayed_ack){p, p->ack_at};
	q->delayed_n = n + 1;
	return true;
}

void transport_delayed_acks_run(struct transport_queue *q, uint64_t until)
{
	while (q->delayed_n && delayed_ack_at(q, 0)->at <= until) {
		struct transport_delayed_ack o = *delayed_ack_at(q, 0);
		if (q->delayed_n > AHEAD)
			transport_peer_fetch(delayed_ack_at(q, AHEAD)->peer);
		q->delayed_first++;
		q->delayed_n--;
		if (o.peer->ack_at != o.at || !o.peer->owed || !o.peer->started || o.peer->dead)
			continue;
		transport_ack_soon(q, o.peer);
		if (o.peer->active)
			continue;
		if (o.peer->owed && !o.peer->ack_now) /* the driver below is full */
			transport_peer_activate(q, o.peer);
		else
			idle(o.peer);
	}
}

/* ---- the scan ---- */

/* true: the ring set is kept though nothing is in flight. */
static bool look_at_rings(struct transport_queue *q, struct transport_peer *p, uint64_t now)
{
	struct transport_rtt *rtt = &p->rings->rtt;
	if (!(rtt->watch & (RTT_WANTED | RTT_TIMING)) && now - rtt->sampled_at >= FAR_TRANSPORT_SAMPLE_NS)
		rtt->watch |= RTT_WANTED;
	return !transport_rings_timer(q, p, now);
}

/* false: the peer becomes inactive. */
static bool peer_scan(struct transport_queue *q, struct transport_peer *p, uint64_t now, uint64_t gap, bool paused)
{
	if (p->dead || !p->started)
		return false;
	count_silence(q, p, gap);
	if (p->owed && p->ack_at == 0)
		p->ack_at = now + ACK_AFTER_NS;
	else if (p->owed && now >= p->ack_at)
		transport_ack_soon(q, p);
	if (p->una != p->next)
		look_at_unacked(q, p, now, paused);
	if (p->begun_n)
		transport_grants_timer(q, p, now);
	if (__builtin_expect(p->secondary, 0))
		transport_paths_timer(q, p, now, paused);
	transport_backlog_add(q, p);
	bool kept = p->rings && look_at_rings(q, p, now);
	if (!is_awaited(q, p)) {
		p->silent_ns = 0;
		/* transport_send_acks() activates it again if the ACK cannot be sent. */
		return (p->owed && !p->ack_now && !delayed_ack_add(q, p)) || p->probed_paths != 0 ||
		       (p->failed_over && !p->current_path) || kept;
	}
	if (p->silent_ns >= q->limit_ns) {
		transport_peer_dead(q, p, -ETIMEDOUT);
		return false;
	}
	if (p->silent_ns >= ping_after(q, p)) {
		p->pings++;
		transport_send_ping(q, p);
		if (p->secondary)
			transport_paths_probe(q, p, now);
	}
	return true;
}

void transport_timers_run(struct transport_queue *q)
{
	uint64_t now = clock_now(q->clock), gap = now - q->scanned_at;
	q->passes = 0;
	q->now = now;
	if (!q->look && gap < LOOK_NS + q->actives_n * LOOK_PEER_NS)
		return;
	/* After a pause process arrived packets before any time-out, but skip at most one scan. */
	q->paused = !q->look && gap > STALL_NS && !q->paused;
	q->look = false;
	q->scanned_at = now;
	for (uint32_t i = q->actives_n; i-- > 0;) {
		struct transport_peer *p = q->actives[i];
		if (i >= AHEAD)
			transport_peer_fetch(q->actives[i - AHEAD]);
		if (peer_scan(q, p, now, gap, q->paused))
			continue;
		p->active = false;
		if (!p->owed || p->ack_now)
			idle(p);
		q->actives[i] = q->actives[--q->actives_n];
		q->actives[i]->active_at = i;
	}
	transport_delayed_acks_run(q, now);
	if (q->onesided.n)
		transport_offers_timer(q, now);
	if (q->grants.due)
		transport_grants_run(q);
	transport_send_acks(q);
	debug_must(now % AUDIT_EVERY || transport_audit_agrees(q));
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t transport_deadline(const struct nic_queue *nq)
{
	struct transport_queue *q = (struct transport_queue *)(uintptr_t)nq;
	uint64_t next = q->ops->deadline(q->lower);
	if (q->actives_n == 0 && q->delayed_n == 0)
		return next;
	/* The caller will sleep until then: the next recv() has to scan. */
	q->look = true;
	uint64_t now = clock_now(q->clock);
	if (q->backlog_first || q->acks_n)
		next = earlier(next, now + FULL_NS);
	if (q->delayed_n)
		next = earlier(next, delayed_ack_at(q, 0)->at);
	if (q->onesided.n)
		next = earlier(next, now + FAR_TRANSPORT_ONESIDED_NS / 8);
	for (uint32_t i = 0; i < q->actives_n; i++) {
		struct transport_peer *p = q->actives[i];
		uint64_t heard = now > q->scanned_at + p->silent_ns ? now - p->silent_ns : q->scanned_at;
		if (p->owed)
			next = earlier(next, p->ack_at ? p->ack_at : now + ACK_AFTER_NS);
		if (p->una != p->next && p->rings->resend_at == 0)
			arm(p, now);
		if (p->una != p->next)
			next = earlier(next, p->rings->resend_at);
		if (p->begun_n)
			next = earlier(next, p->rings->grant_at ? p->rings->grant_at : now + FAR_TRANSPORT_MARGIN_NS);
		if (p->probed_paths)
			next = earlier(next, p->paths->decide_at);
		next = earlier(next, heard + ping_after(q, p));
	}
	return next;
}
