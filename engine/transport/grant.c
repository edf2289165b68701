/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Grants: what a queue lets the senders of larger messages send, all of its peers together, so that what is on its way
 * here fits the network. The first bytes of a message leave unasked; with the first packet it gets all of its memory.
 * From then on the messages with the least left are granted some bytes beyond those that have come: the shortest half
 * of what there is to grant, the next one a quarter, and so on. Should the sender of one be slow or gone, the others
 * fill the link. The oldest gets a small share whatever its length, so none waits for ever.
 *
 * What there is to grant is twice what the path was seen to hold: the least time from a grant to what came of it, times
 * the highest rate. The measured time is the least, not the mean: else what waits in the network would make for more
 * grants, and those for more that waits.
 *
 * Grants are cumulative, and are in every acknowledgement of their peer, as long as the message is not whole. When
 * nothing came of one for long, they are said again, and do not count any more: their sender may be gone.
 */
#include "transport/port.h"

#include <string.h>

static inline uint32_t out_of(const struct link_message *m)
{
	return m->granted > m->done ? m->granted - m->done : 0;
}

static inline uint32_t left_of(const struct link_message *m)
{
	return m->len - m->done;
}

/* ---- the path ---- */

static uint64_t now_of(struct link_queue *q)
{
	if (q->now == 0)
		q->now = clock_now(q->clock);
	return q->now;
}

static void timing_end(struct link_queue *q)
{
	struct link_grants *g = &q->grants;
	uint64_t now = now_of(q), ns = now > g->timed_at ? now - g->timed_at : 1;
	g->timed = NULL;
	if (g->rtt_ns && ns >= g->rtt_ns && now - g->rtt_at < FAR_LINK_GRANT_RTT_NS)
		return;
	/* What is longer than before may have waited in a queue: a path is believed to have become twice as long. */
	g->rtt_ns = g->rtt_ns && ns > 2 * g->rtt_ns ? 2 * g->rtt_ns : ns;
	g->rtt_at = now;
}

/* Over a round trip at least, so that a burst is no rate. */
static void rate_look(struct link_queue *q)
{
	struct link_grants *g = &q->grants;
	uint64_t now = now_of(q), ns = now - g->came_at;
	if (g->rtt_ns == 0 || ns < g->rtt_ns)
		return;
	uint64_t rate = ns < FAR_LINK_GRANT_RTT_NS ? g->came * UINT64_C(1000000000) / ns : 0;
	g->rate -= g->rate / 64;
	if (rate > g->rate)
		g->rate = rate;
	g->came = 0;
	g->came_at = now;
}

/* What the path was seen to hold, twice; 0: it was not. */
static uint64_t path_twice(const struct link_grants *g)
{
	uint64_t ns = g->rtt_ns < FAR_LINK_GRANT_RTT_NS ? g->rtt_ns : FAR_LINK_GRANT_RTT_NS;
	return 2 * (g->rate / 1000 * ns / 1000000);
}

/* Bytes that may be granted and not here. */
static uint64_t budget(const struct link_grants *g)
{
	uint64_t bytes = path_twice(g), least = bytes ? FAR_LINK_GRANT_LEAST : FAR_LINK_GRANT_BYTES;
	if (bytes < least)
		return least;
	return bytes < FAR_LINK_GRANT_BYTES_MAX ? bytes : FAR_LINK_GRANT_BYTES_MAX;
}

/* Bytes of a message that its sender may send before it is granted any, as it is told next: until a grant can be there.
 * More would only be out of our control: where the network has priorities, what leaves unasked comes before what was
 * granted. */
static inline uint32_t unasked(const struct link_grants *g)
{
	uint64_t senders = g->senders_n ? g->senders_n : 1, bytes = path_twice(g) / senders;
	if (bytes < FAR_LINK_UNASKED)
		bytes = FAR_LINK_UNASKED;
	return (uint32_t)(bytes < FAR_LINK_UNASKED_MAX / senders ? bytes : FAR_LINK_UNASKED_MAX / senders);
}

/* ---- the messages ---- */

bool link_grants_begin(struct link_queue *q, struct link_message *m)
{
	struct link_grants *g = &q->grants;
	struct link_peer *p = m->peer;
	if (p->begun_n == FAR_LINK_OPEN)
		return false;
	m->begun = true;
	m->in_next = NULL;
	m->in_prev = g->last;
	if (g->last)
		g->last->in_next = m;
	else
		g->first = m;
	g->last = m;
	g->n++;
	if (p->begun_n++ == 0)
		g->senders_n++;
	/* What comes unasked is on its way, too; of a longer message behind another there is only the first packet. */
	uint32_t coming = p->begun_n > 1 && m->len > FAR_LINK_UNASKED ? 0 : unasked(g);
	coming = coming < FAR_LINK_UNASKED ? coming : FAR_LINK_UNASKED;
	if (m->transfer == LINK_IN_READ) /* nothing comes that is not read */
		coming = 0;
	m->granted = coming < m->len ? coming : m->len;
	g->out += out_of(m);
	g->choose = g->due = true;
	return true;
}

void link_grants_progress(struct link_queue *q, struct link_message *m, uint32_t done)
{
	struct link_grants *g = &q->grants;
	uint32_t out = m->begun && !m->stalled ? out_of(m) : 0;
	g->came += done - m->done;
	if (m->transfer == LINK_IN_HERE && done > m->done)
		m->transfer = LINK_IN_PLAIN;
	m->done = done;
	if (!m->begun)
		return;
	if (m->stalled)
		g->choose = true;
	m->stalled = false;
	g->out += out_of(m);
	g->out -= out;
	g->due = true;
	m->peer->rings->grant_at = 0;
	m->peer->rings->regrants = 0;
	if (g->timed == m && done > g->timed_offset)
		timing_end(q);
}

void link_grants_here(struct link_queue *q, struct link_message *m)
{
	struct link_grants *g = &q->grants;
	m->transfer = LINK_IN_HERE;
	if (!m->begun)
		return;
	if (!m->stalled)
		g->out -= out_of(m);
	if (g->timed == m)
		g->timed = NULL;
	m->granted = m->done + 1;
	m->stalled = false;
	g->out += out_of(m);
	g->choose = g->due = true;
	m->peer->rings->grant_at = 0;
	link_ack_soon(q, m->peer);
	if (m->peer->asleep_there)
		link_kick(q, m->peer);
}

void link_grants_end(struct link_queue *q, struct link_message *m)
{
	struct link_grants *g = &q->grants;
	if (!m->begun)
		return;
	m->begun = false;
	*(m->in_prev ? &m->in_prev->in_next : &g->first) = m->in_next;
	*(m->in_next ? &m->in_next->in_prev : &g->last) = m->in_prev;
	g->n--;
	if (--m->peer->begun_n == 0)
		g->senders_n--;
	if (!m->stalled)
		g->out -= out_of(m);
	if (g->timed == m)
		g->timed = NULL;
	g->chosen_n = 0;
	g->choose = g->due = true;
}

void link_grants_end_all(struct link_queue *q, struct link_peer *p)
{
	for (unsigned i = 0; p->rings && i < FAR_LINK_ASSEMBLIES; i++)
		if (p->rings->assembling[i])
			link_grants_end(q, p->rings->assembling[i]);
}

/* ---- grants ---- */

/* Waits for a grant, now or later. */
static inline bool wants(const struct link_message *m)
{
	return !m->stalled && m->granted < m->len && m->done < m->len;
}

/* The least left, of those that wait for grants; the older of equal ones. */
static void choose(struct link_grants *g)
{
	unsigned n = 0;
	for (struct link_message *m = g->first; m; m = m->in_next) {
		unsigned at = n;
		if (!wants(m))
			continue;
		while (at > 0 && left_of(m) < left_of(g->chosen[at - 1]))
			at--;
		if (at == FAR_LINK_GRANTED_MAX)
			continue;
		n += n < FAR_LINK_GRANTED_MAX;
		memmove(&g->chosen[at + 1], &g->chosen[at], (n - 1 - at) * sizeof *g->chosen);
		g->chosen[at] = m;
	}
	g->chosen_n = n;
	g->choose = false;
	/* From 0 up, and no more levels than there are messages: a shorter one that begins meanwhile finds one above.
	 */
	unsigned levels = n < LINK_GRANTED + 1 ? n : LINK_GRANTED + 1;
	for (unsigned i = 0; i < n; i++)
		g->chosen[i]->priority = (uint8_t)(i < levels ? levels - 1 - i : 0);
}

/* Up to `share` bytes beyond what has come, when that is worth saying. */
static void grant(struct link_queue *q, struct link_message *m, uint64_t share, uint64_t most)
{
	struct link_grants *g = &q->grants;
	uint32_t from = m->granted > m->done ? m->granted : m->done;
	uint32_t left = (m->transfer == LINK_IN_READ ? link_read_end(m) : m->len) - from;
	uint64_t more = m->done + share > from ? m->done + share - from : 0;
	if (m->transfer == LINK_IN_READ && left == 0)
		link_read_look(q, m);
	if (g->out >= most || left == 0 || m->transfer == LINK_IN_HERE)
		return;
	if (more > most - g->out)
		more = most - g->out;
	if (more >= left)
		more = left;
	else if (more == 0 || more < share / 4)
		return;
	if (m->transfer == LINK_IN_READ && !link_read_more(q, m, from, (uint32_t)more))
		return;
	if (m->granted <= m->done && !g->timed) {
		g->timed = m;
		g->timed_offset = m->done;
		g->timed_at = now_of(q);
	}
	g->out += more;
	m->granted = from + (uint32_t)more;
	g->choose |= m->granted == m->len;
	m->peer->rings->grant_at = 0;
	if (m->transfer == LINK_IN_READ)
		return;
	link_ack_soon(q, m->peer);
	if (__builtin_expect(m->peer->asleep_there, 0))
		link_kick(q, m->peer);
}

static struct link_message *oldest(const struct link_grants *g)
{
	struct link_message *m = g->first;
	while (m && !wants(m))
		m = m->in_next;
	return m;
}

void link_grants_run(struct link_queue *q)
{
	struct link_grants *g = &q->grants;
	g->due = false;
	if (!g->first)
		return;
	if (g->choose)
		choose(g);
	rate_look(q);
	uint64_t most = budget(g), share = most;
	for (unsigned i = 0; i < g->chosen_n; i++) {
		if (i + 1 < g->chosen_n)
			share /= 2;
		grant(q, g->chosen[i], share, most);
	}
	/* Beside all others, lest they leave nothing. */
	struct link_message *old = oldest(g);
	if (old)
		grant(q, old, most / FAR_LINK_GRANT_SHARE, most + most / FAR_LINK_GRANT_SHARE);
}

static uint64_t regrant_ns(const struct link_queue *q, const struct link_peer *p, uint64_t now)
{
	const struct link_grants *g = &q->grants;
	uint64_t ns = g->rtt_ns ? 2 * g->rtt_ns + FAR_LINK_MARGIN_NS : rtt_timeout(&p->rings->rtt, now);
	ns <<= p->rings->regrants < 8 ? p->rings->regrants : 8;
	return ns < FAR_LINK_RESEND_NS_MAX ? ns : FAR_LINK_RESEND_NS_MAX;
}

void link_grants_look(struct link_queue *q, struct link_peer *p, uint64_t now)
{
	struct link_grants *g = &q->grants;
	bool waits = false;
	if (p->rings->grant_at && now < p->rings->grant_at)
		return;
	bool first = p->rings->grant_at == 0;
	p->rings->grant_at = now + regrant_ns(q, p, now);
	if (first)
		return;
	for (unsigned i = 0; i < FAR_LINK_ASSEMBLIES; i++) {
		struct link_message *m = p->rings->assembling[i];
		if (m && m->transfer == LINK_IN_READ) /* its driver says when it ends, or could not begin with it yet */
			g->due = true;
		if (!m || !m->begun || out_of(m) == 0 || m->transfer == LINK_IN_READ)
			continue;
		waits = true;
		if (m->stalled)
			continue;
		m->stalled = true;
		g->out -= out_of(m);
		g->choose = g->due = true;
	}
	if (!waits)
		return;
	p->rings->regrants++;
	counter_bump(&q->regrants);
	link_ack_soon(q, p);
	if (p->asleep_there) /* the first kick may have been lost */
		link_kick(q, p);
}

/* In packets: its sender has been told. */
static inline bool told(const struct link_message *m)
{
	return m && m->begun && m->granted && m->transfer != LINK_IN_READ;
}

bool link_grants_open(const struct link_peer *p)
{
	for (unsigned i = 0; i < FAR_LINK_ASSEMBLIES; i++)
		if (told(p->rings->assembling[i]) && out_of(p->rings->assembling[i]))
			return true;
	return false;
}

/* ---- what is said of it ---- */

uint32_t link_grants_bytes(const struct link_peer *p)
{
	uint32_t n = 0;
	for (unsigned i = 0; p->begun_n && i < FAR_LINK_ASSEMBLIES; i++)
		n += told(p->rings->assembling[i]);
	return n * (uint32_t)sizeof(struct wire_grant);
}

/* Packets of the ring below for each peer that may send now. */
static uint32_t window_of(const struct link_queue *q)
{
	uint32_t ring = q->port->ring, n = q->actives_n ? q->actives_n : 1;
	if (ring == 0)
		return FAR_LINK_WINDOW;
	ring /= n;
	if (ring < FAR_LINK_RING_LEAST)
		return FAR_LINK_RING_LEAST;
	return ring < FAR_LINK_WINDOW ? ring : FAR_LINK_WINDOW;
}

void link_grants_write(const struct link_queue *q, struct link_peer *p, struct wire_head *h, uint8_t *body)
{
	uint32_t window = window_of(q);
	h->length = be32_of(unasked(&q->grants));
	h->offset = be32_of(window);
	p->ack_every = (uint8_t)(window / 4 < FAR_LINK_ACK_EVERY ? window / 4 : FAR_LINK_ACK_EVERY);
	for (unsigned i = 0; p->begun_n && i < FAR_LINK_ASSEMBLIES; i++) {
		const struct link_message *m = p->rings->assembling[i];
		if (!told(m))
			continue;
		bool here = m->transfer == LINK_IN_HERE;
		struct wire_grant grant = {be32_of(m->first), be32_of(here ? m->done : m->granted),
					   be32_of(m->priority | (here ? WIRE_HERE : 0))};
		memcpy(body, &grant, sizeof grant);
		body += sizeof grant;
	}
}
