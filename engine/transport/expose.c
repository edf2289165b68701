/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Sent messages that the receiver reads from this process's memory. Poller.
 *
 * The driver below exposes the message before its first packet leaves. That packet carries the key. No other follows
 * until the receiver sends how many bytes it has read (WIRE_HERE): the rest leaves in packets, usually a few bytes at
 * the end, or all that could not be read. If the receiver sends a grant instead, it does not read.
 *
 * Nothing waits for slow operations: while the driver below sets up a connection or registers memory, messages leave in
 * packets. The exposure is withdrawn as soon as reading has ended, or with the message.
 */
#include "transport/port.h"

#include <string.h>

static void plain(struct link_message *m, struct link_queue *q)
{
	m->onesided = 0;
	m->transfer = LINK_OUT_PLAIN;
	link_backlog_add(q, m->peer);
}

bool link_offer(struct link_queue *q, struct link_peer *p, struct link_message *m)
{
	uint32_t entry;
	if (!m->buf || m->transfer != LINK_OUT_NEW)
		return false;
	m->transfer = LINK_OUT_PLAIN;
	/* A zero-copy body is part of a larger message, so bulk_bytes_min does not apply. */
	if ((m->len < q->port->lower_caps.bulk_bytes_min && !m->lent) || m->len < 2 * p->payload_max + LINK_REST ||
	    p->via != q)
		return false;
	if (q->now == 0)
		q->now = clock_now(q->clock);
	if (link_onesided_expose(&q->onesided, q->lower, p->lower_peer, m->buf, m->body, m->len, m, q->now, &entry))
		return false;
	m->peer = p;
	m->onesided = (uint8_t)(entry + 1);
	m->transfer = LINK_OUT_WAITS;
	if (!p->active)
		link_peer_activate(q, p);
	return true;
}

void link_offer_write(const struct link_queue *q, const struct link_message *m, uint8_t *out)
{
	const struct nic_bulk_key *key = &q->onesided.entry[m->onesided - 1].key;
	struct wire_key k = {be64_of(key->key), be64_of(key->addr)};
	memcpy(out, &k, sizeof k);
}

static void withdraw(struct link_queue *q, struct link_message *m)
{
	if (m->onesided)
		link_onesided_withdraw(&q->onesided, q->lower, m->onesided - 1u);
	m->onesided = 0;
}

bool link_offer_granted(struct link_queue *q, struct link_message *m, uint32_t offset, bool here)
{
	if (!here) {
		if (m->transfer == LINK_OUT_ANNOUNCED) {
			withdraw(q, m);
			m->transfer = LINK_OUT_PLAIN;
		}
		return true;
	}
	if ((m->transfer != LINK_OUT_ANNOUNCED && m->transfer != LINK_OUT_TOLD) || offset >= m->len)
		return false;
	if (m->transfer == LINK_OUT_TOLD) /* a repetition */
		return offset <= m->done;
	withdraw(q, m);
	m->transfer = LINK_OUT_TOLD;
	if (offset > m->done)
		m->done = offset;
	return true;
}

void link_offer_end(struct link_queue *q, struct link_message *m)
{
	link_onesided_forget(&q->onesided, q->lower, m);
	m->onesided = 0;
}

void link_onesided_take(struct link_queue *q, const struct nic_pkt *lp)
{
	struct link_onesided_news news;
	struct link_message *m = link_onesided_event(&q->onesided, lp, &news);
	q->grants.due = true; /* an entry is free: another read may start */
	if (!m)
		return;
	switch (news.event) {
	case NIC_BULK_EXPOSED:
		m->transfer = LINK_OUT_EXPOSED;
		link_backlog_add(q, m->peer);
		break;
	case NIC_BULK_WITHDRAWN: /* its connection broke; an announced message continues when the receiver sends
				    WIRE_HERE */
		m->onesided = 0;
		if (m->transfer == LINK_OUT_WAITS || m->transfer == LINK_OUT_EXPOSED)
			plain(m, q);
		break;
	case NIC_BULK_READ:
	case NIC_BULK_READ_FAILED:
		link_read_event(q, m, &news);
		break;
	}
}

void link_offers_look(struct link_queue *q, uint64_t now)
{
	for (uint32_t i = 0; i < FAR_LINK_ONESIDED; i++) {
		const struct link_onesided *e = &q->onesided.entry[i];
		struct link_message *m = e->owner;
		if (e->state != LINK_ONESIDED_ASKED || !m || now - e->since < FAR_LINK_ONESIDED_NS)
			continue;
		link_onesided_withdraw(&q->onesided, q->lower, i);
		plain(m, q);
	}
}
