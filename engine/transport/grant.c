/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Grants: how many bytes a queue allows the senders of larger messages to send, all of its peers together, so that the
 * bytes in flight fit the network. Poller.
 *
 * The first bytes of a message are unscheduled: they leave without a grant. With its first packet a message gets all of
 * its memory. Then the messages with the fewest bytes left are granted bytes beyond those that arrived: the shortest
 * one half of the budget, the next one a quarter, and so on. If the sender of one is slow or gone, the others fill the
 * link. The oldest message gets a small share whatever its length, so none starves.
 *
 * The budget is twice the bandwidth-delay product: the least time from a grant to its bytes, times the highest rate.
 * The time is the least, not the mean: otherwise packets that wait in the network would raise the budget, and that the
 * number of packets that wait.
 *
 * Grants are cumulative. Every acknowledgement of the peer contains them until the message is complete. When no granted
 * byte arrives for long, they are repeated and do not count against the budget any more: the sender may be gone.
 */
#include "transport/grant.h"

#include "transport/placement.h"
#include "transport/port.h"
#include "transport/read.h"
#include "transport/rings.h"
#include "transport/send.h"

/* As many as the window has of the largest packets. */
#define GRANT_PACKETS_MIN 4u

static inline uint32_t out_of(const struct transport_message *m)
{
	return m->granted > m->done ? m->granted - m->done : 0;
}

static inline uint32_t left_of(const struct transport_message *m)
{
	return m->len - m->done;
}

/* ---- estimate of the path ---- */

static void timing_end(struct transport_queue *q)
{
	struct transport_grants *g = &q->grants;
	uint64_t now = transport_now(q), ns = now > g->timed_at ? now - g->timed_at : 1;
	g->timed = NULL;
	if (g->rtt_ns && ns >= g->rtt_ns && now - g->rtt_at < FAR_TRANSPORT_GRANT_RTT_NS)
		return;
	/* A longer time may be queueing: the estimate at most doubles. */
	g->rtt_ns = g->rtt_ns && ns > 2 * g->rtt_ns ? 2 * g->rtt_ns : ns;
	g->rtt_at = now;
}

/* Measures the rate over at least a round trip, so that a burst does not count as one. */
static void rate_look(struct transport_queue *q)
{
	struct transport_grants *g = &q->grants;
	uint64_t now = transport_now(q), ns = now - g->came_at;
	if (g->rtt_ns == 0 || ns < g->rtt_ns)
		return;
	uint64_t rate = ns < FAR_TRANSPORT_GRANT_RTT_NS ? g->came * UINT64_C(1000000000) / ns : 0;
	g->rate -= g->rate / 64;
	if (rate > g->rate)
		g->rate = rate;
	g->came = 0;
	g->came_at = now;
}

/* Twice the bandwidth-delay product. 0: not measured. */
static uint64_t path_twice(const struct transport_grants *g)
{
	uint64_t ns = g->rtt_ns < FAR_TRANSPORT_GRANT_RTT_NS ? g->rtt_ns : FAR_TRANSPORT_GRANT_RTT_NS;
	return 2 * (g->rate / 1000 * ns / 1000000);
}

/* Bytes that may be granted and not arrived: some packets at least, of a path with large ones, so that the sender
 * writes one while another is read; and a window where nothing else fills the ring in which they wait, so that the
 * sender goes on while a handler runs here. */
static uint64_t budget(const struct transport_queue *q)
{
	const struct transport_grants *g = &q->grants;
	uint64_t bytes = path_twice(g), least = bytes ? FAR_TRANSPORT_GRANT_BYTES_MIN : FAR_TRANSPORT_GRANT_BYTES;
	if (bytes && q->port->lower_caps.pair_rings)
		least = FAR_TRANSPORT_WINDOW_BYTES;
	uint64_t packets = g->chosen_n ? GRANT_PACKETS_MIN * (uint64_t)g->chosen[0]->peer->payload_max : 0;
	if (least < packets)
		least = packets;
	if (bytes < least)
		return least;
	return bytes < FAR_TRANSPORT_GRANT_BYTES_MAX ? bytes : FAR_TRANSPORT_GRANT_BYTES_MAX;
}

/* Unscheduled bytes of a message, as the next ACK states them: as many as leave before a grant can arrive. More would
 * escape the grants: in a network with priorities unscheduled packets overtake granted ones. */
static inline uint32_t unscheduled_bytes(const struct transport_queue *q, const struct transport_peer *p)
{
	const struct transport_grants *g = &q->grants;
	uint64_t senders = g->senders_n ? g->senders_n : 1;
	uint64_t bytes =
		p->via->port->lower_caps.pair_rings ? FAR_TRANSPORT_UNSCHEDULED_BYTES_MAX : path_twice(g) / senders;
	if (bytes < FAR_TRANSPORT_UNSCHEDULED_BYTES)
		bytes = FAR_TRANSPORT_UNSCHEDULED_BYTES;
	return (uint32_t)(bytes < FAR_TRANSPORT_UNSCHEDULED_BYTES_MAX / senders
				  ? bytes
				  : FAR_TRANSPORT_UNSCHEDULED_BYTES_MAX / senders);
}

/* ---- the messages ---- */

bool transport_grants_begin(struct transport_queue *q, struct transport_message *m)
{
	struct transport_grants *g = &q->grants;
	struct transport_peer *p = m->peer;
	if (p->begun_n == FAR_TRANSPORT_OPEN_MAX)
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
	/* Unscheduled bytes are in flight, too; a longer message behind another one sends only its first packet
	 * unscheduled. */
	uint32_t coming = p->begun_n > 1 && m->len > FAR_TRANSPORT_UNSCHEDULED_BYTES ? 0 : unscheduled_bytes(q, p);
	coming = coming < FAR_TRANSPORT_UNSCHEDULED_BYTES ? coming : FAR_TRANSPORT_UNSCHEDULED_BYTES;
	if (m->transfer == TRANSPORT_RX_READING) /* all of it is read */
		coming = 0;
	m->granted = coming < m->len ? coming : m->len;
	g->out += out_of(m);
	g->choose = g->due = true;
	return true;
}

void transport_grants_progress(struct transport_queue *q, struct transport_message *m, uint32_t done)
{
	struct transport_grants *g = &q->grants;
	uint32_t out = m->begun && !m->stalled ? out_of(m) : 0;
	g->came += done - m->done;
	if (m->transfer == TRANSPORT_RX_READ_DONE && done > m->done)
		m->transfer = TRANSPORT_RX_PACKETS;
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
	m->peer->rings->grant_retransmits = 0;
	if (g->timed == m && done > g->timed_offset)
		timing_end(q);
}

void transport_grants_read_done(struct transport_queue *q, struct transport_message *m)
{
	struct transport_grants *g = &q->grants;
	m->transfer = TRANSPORT_RX_READ_DONE;
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
	transport_ack_soon(q, m->peer);
	if (m->peer->remote_asleep)
		transport_kick(q, m->peer);
}

void transport_grants_end(struct transport_queue *q, struct transport_message *m)
{
	struct transport_grants *g = &q->grants;
	if (!m->begun)
		return;
	m->begun = false;
	transport_placement_end(q, m);
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

void transport_grants_end_all(struct transport_queue *q, struct transport_peer *p)
{
	for (unsigned i = 0; p->rings && i < FAR_TRANSPORT_ASSEMBLIES; i++)
		if (p->rings->assembling[i])
			transport_grants_end(q, p->rings->assembling[i]);
}

/* ---- grants ---- */

/* Returns true if the message needs a grant, now or later. */
static inline bool wants(const struct transport_message *m)
{
	return !m->stalled && m->granted < m->len && m->done < m->len;
}

/* Selects the messages with the fewest bytes left that need grants; of equal ones the older. */
static void choose(struct transport_grants *g)
{
	unsigned n = 0;
	for (struct transport_message *m = g->first; m; m = m->in_next) {
		unsigned at = n;
		if (!wants(m))
			continue;
		while (at > 0 && left_of(m) < left_of(g->chosen[at - 1]))
			at--;
		if (at == FAR_TRANSPORT_GRANTED_MAX)
			continue;
		n += n < FAR_TRANSPORT_GRANTED_MAX;
		memmove(&g->chosen[at + 1], &g->chosen[at], (n - 1 - at) * sizeof *g->chosen);
		g->chosen[at] = m;
	}
	g->chosen_n = n;
	g->choose = false;
	/* Priorities from 0 up, as many levels as messages: a shorter message that begins later finds a higher one. */
	unsigned levels = n < TRANSPORT_PRIORITY_GRANTED_MAX + 1 ? n : TRANSPORT_PRIORITY_GRANTED_MAX + 1;
	for (unsigned i = 0; i < n; i++)
		g->chosen[i]->priority = (uint8_t)(i < levels ? levels - 1 - i : 0);
}

/* Grants up to `share` bytes beyond those that arrived, if that is enough for an ACK. */
static void grant(struct transport_queue *q, struct transport_message *m, uint64_t share, uint64_t most)
{
	struct transport_grants *g = &q->grants;
	uint32_t from = m->granted > m->done ? m->granted : m->done;
	uint32_t left = (m->transfer == TRANSPORT_RX_READING ? transport_read_end(m) : m->len) - from;
	uint64_t more = m->done + share > from ? m->done + share - from : 0;
	if (m->transfer == TRANSPORT_RX_READING && left == 0)
		transport_read_check(q, m);
	if (g->out >= most || left == 0 || m->transfer == TRANSPORT_RX_READ_DONE)
		return;
	if (more > most - g->out)
		more = most - g->out;
	if (more >= left)
		more = left;
	else if (more == 0 || more < share / 4)
		return;
	if (m->transfer == TRANSPORT_RX_READING && !transport_read_more(q, m, from, (uint32_t)more))
		return;
	if (m->granted <= m->done && !g->timed) {
		g->timed = m;
		g->timed_offset = m->done;
		g->timed_at = transport_now(q);
	}
	g->out += more;
	m->granted = from + (uint32_t)more;
	g->choose |= m->granted == m->len;
	m->peer->rings->grant_at = 0;
	if (m->transfer == TRANSPORT_RX_READING)
		return;
	transport_ack_soon(q, m->peer);
	if (__builtin_expect(m->peer->remote_asleep, 0))
		transport_kick(q, m->peer);
}

static struct transport_message *oldest(const struct transport_grants *g)
{
	struct transport_message *m = g->first;
	while (m && !wants(m))
		m = m->in_next;
	return m;
}

void transport_grants_run(struct transport_queue *q)
{
	struct transport_grants *g = &q->grants;
	g->due = false;
	if (!g->first)
		return;
	if (g->choose)
		choose(g);
	rate_look(q);
	uint64_t most = budget(q), share = most;
	for (unsigned i = 0; i < g->chosen_n; i++) {
		if (i + 1 < g->chosen_n)
			share /= 2;
		grant(q, g->chosen[i], share, most);
	}
	/* In addition to all others, so that it does not starve. */
	struct transport_message *old = oldest(g);
	if (old)
		grant(q, old, most / FAR_TRANSPORT_GRANT_SHARE, most + most / FAR_TRANSPORT_GRANT_SHARE);
}

static uint64_t grant_repeat_ns(const struct transport_queue *q, const struct transport_peer *p, uint64_t now)
{
	const struct transport_grants *g = &q->grants;
	uint64_t ns = g->rtt_ns ? 2 * g->rtt_ns + FAR_TRANSPORT_MARGIN_NS : rtt_timeout(&p->rings->rtt, now);
	ns <<= p->rings->grant_retransmits < 8 ? p->rings->grant_retransmits : 8;
	return ns < FAR_TRANSPORT_RTO_NS_MAX ? ns : FAR_TRANSPORT_RTO_NS_MAX;
}

void transport_grants_timer(struct transport_queue *q, struct transport_peer *p, uint64_t now)
{
	struct transport_grants *g = &q->grants;
	bool waits = false;
	if (p->rings->grant_at && now < p->rings->grant_at)
		return;
	bool first = p->rings->grant_at == 0;
	p->rings->grant_at = now + grant_repeat_ns(q, p, now);
	if (first)
		return;
	for (unsigned i = 0; i < FAR_TRANSPORT_ASSEMBLIES; i++) {
		struct transport_message *m = p->rings->assembling[i];
		if (m &&
		    m->transfer == TRANSPORT_RX_READING) /* the driver reports its end, or could not start it yet */
			g->due = true;
		if (!m || !m->begun || out_of(m) == 0 || m->transfer == TRANSPORT_RX_READING)
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
	p->rings->grant_retransmits++;
	counter_bump(&q->grant_retransmits);
	transport_ack_soon(q, p);
	if (p->remote_asleep) /* the first kick may have been lost */
		transport_kick(q, p);
}

/* Returns true if the ACK contains a grant of this message: it arrives in packets. */
static inline bool in_ack(const struct transport_message *m)
{
	return m && m->begun && m->granted && m->transfer != TRANSPORT_RX_READING;
}

bool transport_grants_open(const struct transport_peer *p)
{
	for (unsigned i = 0; i < FAR_TRANSPORT_ASSEMBLIES; i++)
		if (in_ack(p->rings->assembling[i]) && out_of(p->rings->assembling[i]))
			return true;
	return false;
}

/* ---- grants in an ACK ---- */

uint32_t transport_grants_bytes(const struct transport_peer *p)
{
	uint32_t n = 0;
	for (unsigned i = 0; p->begun_n && i < FAR_TRANSPORT_ASSEMBLIES; i++)
		n += in_ack(p->rings->assembling[i]);
	return n * (uint32_t)sizeof(struct wire_grant);
}

/* Window: share of the receive ring below for each peer that may send now. */
static uint32_t window_of(const struct transport_queue *q)
{
	uint32_t ring = q->port->ring, n = q->actives_n ? q->actives_n : 1;
	if (ring == 0)
		return FAR_TRANSPORT_WINDOW;
	ring /= n;
	if (ring < FAR_TRANSPORT_RING_SHARE_MIN)
		return FAR_TRANSPORT_RING_SHARE_MIN;
	return ring < FAR_TRANSPORT_WINDOW ? ring : FAR_TRANSPORT_WINDOW;
}

void transport_grants_write(const struct transport_queue *q, struct transport_peer *p, struct wire_ack *h,
			    uint8_t *body)
{
	uint32_t window = window_of(q);
	h->unscheduled_bytes = le32_of(unscheduled_bytes(q, p));
	h->window = le32_of(window);
	p->ack_every = (uint8_t)(window / 4 < FAR_TRANSPORT_ACK_EVERY ? window / 4 : FAR_TRANSPORT_ACK_EVERY);
	for (unsigned i = 0; p->begun_n && i < FAR_TRANSPORT_ASSEMBLIES; i++) {
		const struct transport_message *m = p->rings->assembling[i];
		if (!in_ack(m))
			continue;
		bool here = m->transfer == TRANSPORT_RX_READ_DONE;
		struct wire_grant grant = {le32_of(m->first), le32_of(here ? m->done : m->granted),
					   le32_of(m->priority | (here ? WIRE_READ_DONE : 0))};
		memcpy(body, &grant, sizeof grant);
		body += sizeof grant;
	}
}
