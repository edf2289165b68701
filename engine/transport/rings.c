/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Ring sets: reservation by the control thread, use by the poller.
 *
 * Each connection reserves address space for one set and its messages, so a peer never waits for a set, and no deadlock
 * is possible. The free list is last in, first out, so that as few sets as possible are touched.
 */
#include "transport/rings.h"

#include "base/must.h"
#include "base/mutant.h"
#include "memory/budget.h"
#include "transport/lane.h"

#include <sys/mman.h>

/* ---- control thread ---- */

bool transport_rings_reserve(struct transport_queue *q, struct transport_peer *peer)
{
	if (peer->reserved)
		return true;
	if (q->open_n == q->segments_n * TRANSPORT_SEGMENT_PEERS) {
		void *at = mmap(NULL, sizeof(struct transport_segment), PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (at == MAP_FAILED)
			return false;
		atomic_store_explicit(&q->segments[q->segments_n++], at, memory_order_release); /* pairs with carve() */
	}
	q->open_n++;
	peer->reserved = true;
	return true;
}

/* The segments stay: other peers may use its part. */
void transport_rings_unreserve(struct transport_queue *q, struct transport_peer *peer)
{
	q->open_n -= peer->reserved;
	peer->reserved = false;
}

void transport_segments_free(struct transport_queue *q)
{
	budget_give(q->rings_carved * sizeof(struct transport_rings) + q->carved * sizeof(struct transport_message));
	while (q->segments_n)
		munmap(atomic_load_explicit(&q->segments[--q->segments_n], memory_order_relaxed),
		       sizeof(struct transport_segment));
}

/* ---- poller ---- */

static bool is_idle(const struct transport_peer *p, const struct transport_rings *r)
{
	return p->una == p->next && !r->out_next && !r->bulk_next && !p->early_n && !p->begun_n && !p->fragments &&
	       !r->held_first && !r->lane.dirty && !p->backlogged && !p->dead && !r->resent;
}

/* All lists are empty and all counts agree with that. Counts that only grow continue with the next peer: conditions
 * compare two of them, which must therefore be equal. */
bool transport_rings_are_new(const struct transport_rings *r)
{
	bool found = r->out_next || r->bulk_next || r->held_first;
	for (unsigned i = 0; i < FAR_TRANSPORT_ASSEMBLIES; i++)
		found |= r->assembling[i] != NULL;
	for (unsigned i = 0; i < FAR_TRANSPORT_WINDOW; i++)
		found |= r->arrived[i].message != NULL;
	return !found && r->small_sent == r->small_n && r->flying == 0 && r->bulk_strict == 0 && r->bulk_open == 0 &&
	       r->unordered_n == 0 && r->keep_until == 0 && !r->resent;
}

/* A new set is zeros. A used one is empty, and its counts continue: only what is compared with the peer's packet
 * numbers, or depends on the path, is initialized. */
static void begin(struct transport_queue *q, struct transport_peer *p, struct transport_rings *r)
{
	r->peer = p;
	r->held_last = &r->held_first;
	r->sent_first = p->next;
	r->probed = r->probe_out = r->probing = false;
	r->bulk_out = false;
	r->small_bytes = 0;
	r->grant_retransmits = r->retransmitted_n = 0;
	r->grant_at = 0;
	transport_lane_begin(q, p, r);
	rtt_resume(&r->rtt, &p->path);
	r->rtt.sampled_at = q->scanned_at;
	/* Reading the clock for each of many rarely active peers would be a good part of a message's cost: sample one
	 * peer between two scans, and those without an RTT. */
	if (!p->wanted || (q->timed_at == q->scanned_at && p->path.smooth_ns))
		return;
	r->rtt.watch |= RTT_WANTED;
	q->timed_at = q->scanned_at;
	p->wanted = false;
}

static void reclaim(struct transport_queue *q, const struct transport_rings *r)
{
	if (r && r->peer && r->keep_until == 0 && is_idle(r->peer, r))
		transport_rings_give(q, r->peer);
}

void transport_rings_take(struct transport_queue *q, struct transport_peer *p)
{
	uint32_t i = q->rings_taken_n++;
	reclaim(q, q->rings_taken[(i - 1) % TRANSPORT_RINGS_AGO]);
	if (q->rings_n >= TRANSPORT_RINGS_FEW)
		reclaim(q, q->rings_taken[i % TRANSPORT_RINGS_AGO]);
	struct transport_rings *r = q->rings_free;
	if (r) {
		q->rings_free = r->next_free;
	} else {
		uint32_t at = q->rings_carved++;
		r = &transport_segment_at(q, at / TRANSPORT_SEGMENT_PEERS)->rings[at % TRANSPORT_SEGMENT_PEERS];
		budget_force(sizeof *r);
	}
	debug_must(transport_rings_are_new(r));
	begin(q, p, r);
	p->rings = q->rings_taken[i % TRANSPORT_RINGS_AGO] = r;
	q->rings_n++;
}

void transport_rings_renew(struct transport_queue *q, struct transport_peer *p)
{
	struct transport_rings *r = p->rings;
	struct transport_peer *next = r->next_backlog; /* the peer may be in the backlog */
	rtt_keep(&r->rtt, &p->path);
	uint32_t left = r->small_n - r->small_sent;
	transport_lane_end(q, p, r);
	memset(r, 0, offsetof(struct transport_rings, sent));
	if (MUTANT(RINGS_LEFT))
		r->small_n = left;
	r->next_backlog = next;
	begin(q, p, r);
}

void transport_rings_give(struct transport_queue *q, struct transport_peer *p)
{
	struct transport_rings *r = p->rings;
	if (!r)
		return;
	rtt_keep(&r->rtt, &p->path);
	/* An unfinished sample is repeated. Numbers compare modulo 2^32, so retransmitted_first must not fall behind by
	 * half of that. */
	p->wanted |= (r->rtt.watch & (RTT_WANTED | RTT_TIMING)) != 0;
	if (r->retransmitted_n || p->rx_next - p->retransmitted_first > INT32_MAX / 2)
		p->retransmitted_first = p->rx_next;
	debug_must(transport_rings_are_new(r));
	transport_lane_end(q, p, r);
	p->rings = NULL;
	r->peer = NULL;
	r->next_free = q->rings_free;
	q->rings_free = r;
	q->rings_n--;
}

bool transport_rings_timer(struct transport_queue *q, struct transport_peer *p, uint64_t now)
{
	struct transport_rings *r = p->rings;
	if (r->resent)
		r->keep_until = now + FAR_TRANSPORT_RTO_NS;
	r->resent = false;
	if (r->keep_until && now >= r->keep_until)
		r->keep_until = 0;
	if (!is_idle(p, r))
		return true;
	if (r->keep_until)
		return false;
	transport_rings_give(q, p);
	return true;
}
