/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Time. A peer is active from its first packet until nothing is unacknowledged, owed, or awaited from it; only active
 * ones are looked at, so idle connections cost nothing and say nothing. Times are set by the first look after their
 * reason came to be, at most LOOK_NS late: the path of a packet reads no clock.
 */
#include "link/link_port.h"

#include <errno.h>

#define LOOK_NS        UINT64_C(250000) /* between two looks at the active peers, unless somebody sleeps */
#define FULL_NS        UINT64_C(100000) /* the driver below is full: when to try again */
#define PROBES         4u               /* in the limit of a silent peer */
#define NARROW_RESENDS 5u               /* time-outs in a row after which a large packet is taken to be too large */

static uint64_t resend_after(uint32_t resends)
{
	uint64_t ns = FAR_LINK_RESEND_NS << (resends < 8 ? resends : 8);
	return ns < FAR_LINK_RESEND_NS_MAX ? ns : FAR_LINK_RESEND_NS_MAX;
}

/* Large packets vanish and small ones do not: a path that says nothing of its width. */
static void narrow(struct link_peer *p)
{
	if (p->resends == NARROW_RESENDS && p->answers > 1 && p->payload_max > FAR_LINK_SAFE_BYTES &&
	    p->rings->sent[p->una % FAR_LINK_WINDOW].len > FAR_LINK_SAFE_BYTES)
		p->payload_max = FAR_LINK_SAFE_BYTES;
}

static void time_out(struct link_queue *q, struct link_peer *p, uint64_t now)
{
	if (p->resends == 0)
		p->answers = 0;
	p->resends++;
	if (p->resends == 2)
		link_doubt(p);
	narrow(p);
	p->resend_at = now + resend_after(p->resends);
	link_resend(q, p, true);
	/* With our address in it, so that one who does not know us can say so. */
	if (p->silent_ns)
		link_send_ping(q, p);
	link_kick(q, p);
}

static bool is_awaited(const struct link_queue *q, const struct link_peer *p)
{
	return p->una != p->next || link_has_unsent(p) || p->early_n || p->due_message ||
	       (q->owes && p->attached && q->owes(q->owes_ctx, p->index));
}

static void listen_to(struct link_queue *q, struct link_peer *p, uint64_t gap)
{
	uint64_t probe_ns = q->limit_ns / PROBES;
	if (p->heard || p->fresh) {
		p->answers += p->heard;
		p->heard = p->fresh = false;
		p->silent_ns = 0;
		p->pings = 0;
	} else {
		/* Longer gaps are those in which nobody listened. */
		p->silent_ns += gap < probe_ns ? gap : probe_ns;
	}
}

/* false: nothing is to be done for it any more. */
static bool look_at(struct link_queue *q, struct link_peer *p, uint64_t now, uint64_t gap)
{
	if (p->dead || !p->started)
		return false;
	listen_to(q, p, gap);
	if (p->owed && p->ack_at == 0)
		p->ack_at = now + FAR_LINK_ACK_NS;
	else if (p->owed && now >= p->ack_at)
		link_ack_soon(q, p);
	if (p->una != p->next && p->resend_at == 0)
		p->resend_at = now + resend_after(p->resends);
	else if (p->una != p->next && now >= p->resend_at)
		time_out(q, p, now);
	link_backlog_add(q, p);
	if (!is_awaited(q, p)) {
		p->silent_ns = 0;
		return p->owed != 0;
	}
	if (p->silent_ns >= q->limit_ns) {
		link_peer_dead(q, p, -ETIMEDOUT);
		return false;
	}
	if (p->silent_ns >= (p->pings + 1) * (q->limit_ns / PROBES)) {
		p->pings++;
		link_send_ping(q, p);
	}
	return true;
}

void link_timers_run(struct link_queue *q)
{
	uint64_t now = clock_now(q->clock), gap = now - q->scanned_at;
	q->passes = 0;
	if (!q->look && gap < LOOK_NS)
		return;
	q->look = false;
	q->scanned_at = now;
	for (uint32_t i = q->actives_n; i-- > 0;) {
		struct link_peer *p = q->actives[i];
		if (look_at(q, p, now, gap))
			continue;
		p->active = false;
		q->actives[i] = q->actives[--q->actives_n];
		q->actives[i]->active_at = i;
	}
	link_send_acks(q);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t link_deadline(const struct nic_queue *nq)
{
	struct link_queue *q = (struct link_queue *)(uintptr_t)nq;
	uint64_t next = q->ops->deadline(q->lower);
	if (q->actives_n == 0)
		return next;
	/* Who asks will sleep so long: then recv() is to look, however few passes there were. */
	q->look = true;
	uint64_t now = clock_now(q->clock);
	if (q->backlog_first || q->acks_n)
		next = earlier(next, now + FULL_NS);
	for (uint32_t i = 0; i < q->actives_n; i++) {
		const struct link_peer *p = q->actives[i];
		uint64_t heard = now > q->scanned_at + p->silent_ns ? now - p->silent_ns : q->scanned_at;
		if (p->owed)
			next = earlier(next, p->ack_at ? p->ack_at : now + FAR_LINK_ACK_NS);
		if (p->una != p->next)
			next = earlier(next, p->resend_at ? p->resend_at : now + resend_after(p->resends));
		next = earlier(next, heard + (p->pings + 1) * (q->limit_ns / PROBES));
	}
	return next;
}
