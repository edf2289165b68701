/* SPDX-License-Identifier: BSD-3-Clause */
/** Pulls offered messages out of the sender's memory, a piece in a pass, and completes those that are read there. Shard
 * thread. */
#include "features/rendezvous/rendezvous.h"

#include "base/rref.h"
#include "core/packet.h"
#include "core/session.h"
#include "core/shard.h"

#include <string.h>

/* The parts of an offered message, which are `total` bytes in all. */
bool rendezvous_offer_fits(const struct packet_announced *a, size_t bytes, uint64_t total)
{
	if (bytes == sizeof a->head)
		return true;
	if (a->parts_n < 1 || a->parts_n > FAR_PULL_PARTS_MAX || bytes != packet_announced_bytes(a->parts_n))
		return false;
	for (unsigned i = 0; i < a->parts_n; i++) {
		if (a->parts[i].len == 0 || a->parts[i].len > total)
			return false;
		total -= a->parts[i].len;
	}
	return !total;
}

void rendezvous_offered(struct shard *s, const struct session *se, struct rendezvous_lane *l,
			const struct packet_rendezvous *h, const struct packet_announced *a)
{
	l->referred = h->flags & PACKET_REFERRED;
	if (l->referred ? !se->q->ops->map : !se->q->ops->pull)
		return;
	l->parts_n = a->parts_n;
	for (unsigned i = 0; i < l->parts_n; i++)
		l->parts[i] = (struct iovec){(void *)(uintptr_t)a->parts[i].at, a->parts[i].len};
	l->offer_at = (void *)(uintptr_t)a->offer;
	l->offer = (struct packet_offer){se->incarnation, rref_incarnation(s->config.rank, s->config.incarnation),
					 packet_offer_tag(h->lane, h->epoch, se->shard, s->config.index)};
}

/* The lane with the fewest bytes left, every fourth time the next one, so that none starves. */
static unsigned next_pulled(struct rendezvous_peer *p)
{
	unsigned best = FAR_RENDEZVOUS_LANES, first = p->pull_turn / 4;
	for (unsigned i = 0; i < FAR_RENDEZVOUS_LANES; i++) {
		unsigned lane = (first + i) % FAR_RENDEZVOUS_LANES;
		const struct rendezvous_in *in = p->in[lane].in;
		if (!rendezvous_pulls(&p->in[lane]))
			continue;
		if (best == FAR_RENDEZVOUS_LANES ||
		    in->total - in->copied < p->in[best].in->total - p->in[best].in->copied)
			best = lane;
		if (p->pull_turn % 4 == 3)
			break;
	}
	return best;
}

unsigned rendezvous_parts_of(const struct rendezvous_lane *l, uint64_t at, uint64_t len, struct iovec *out)
{
	unsigned n = 0;
	for (const struct iovec *part = l->parts; len; part++) {
		if (at >= part->iov_len) {
			at -= part->iov_len;
			continue;
		}
		uint64_t of = part->iov_len - at < len ? part->iov_len - at : len;
		out[n++] = (struct iovec){(uint8_t *)part->iov_base + at, of};
		len -= of;
		at = 0;
	}
	return n;
}

/* Pulls the next `len` bytes, with the last ones the offer. false: they are not to be had. */
static bool pull_bytes(struct session *se, const struct rendezvous_lane *l, uint64_t len)
{
	struct rendezvous_in *in = l->in;
	struct iovec from[FAR_PULL_PARTS_MAX + 1], to[2] = {{in->at + in->copied, len}};
	struct packet_offer found = {0};
	unsigned n = rendezvous_parts_of(l, in->copied, len, from), last = len == in->total - in->copied;
	if (last) {
		to[1] = (struct iovec){&found, sizeof found};
		from[n] = (struct iovec){l->offer_at, sizeof found};
	}
	return !se->q->ops->pull(se->q, se->peer, to, 1 + last, from, n + last) &&
	       !(last && memcmp(&found, &l->offer, sizeof found) != 0);
}

/* The next piece; all of it of a message that is read in place. */
static bool take_piece(struct shard *s, struct rendezvous_peer *p, const struct rendezvous_lane *l)
{
	struct rendezvous_in *in = l->in;
	uint64_t left = in->total - in->copied;
	uint64_t len = left < FAR_CHUNK_BYTES || in->view ? left : FAR_CHUNK_BYTES;
	if (!in->view && !(l->referred ? rendezvous_copy_referred(p, l, in->copied, len, in->at + in->copied)
				       : pull_bytes(p->session, l, len)))
		return false;
	in->copied += len;
	session_count_received(s, p->session, len);
	if (l->referred)
		counter_add(&s->counters.bytes_by_reference, len);
	return true;
}

bool rendezvous_pull_one(struct shard *s, struct rendezvous_peer *p)
{
	unsigned lane = next_pulled(p);
	if (lane == FAR_RENDEZVOUS_LANES)
		return false;
	struct rendezvous_lane *l = &p->in[lane];
	struct rendezvous_in *in = l->in;
	p->pull_turn++;
	if (!take_piece(s, p, l)) { /* its sender has withdrawn it, or sends it */
		l->parts_n = 0;
		in->copied = 0;
		rendezvous_grant(s, p, lane);
		return true;
	}
	if (in->copied < in->total)
		return true;
	l->in = NULL;
	l->open = false;
	l->pulled = true;
	rendezvous_send_control(s, p, lane, PACKET_GRANT, PACKET_PULLED | (in->view ? PACKET_KEPT : 0));
	rendezvous_complete(s, in);
	return true;
}
