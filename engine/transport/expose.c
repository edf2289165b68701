/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Sent messages that the receiver reads from this process's memory. Poller.
 *
 * The driver below exposes the message before its first packet leaves. That packet carries the key. No other follows
 * until the receiver sends how many bytes it has read (WIRE_READ_DONE): the rest leaves in packets, usually a few bytes
 * at the end, or all that could not be read. If the receiver sends a grant instead, it does not read.
 *
 * Nothing waits for slow operations: while the driver below sets up a connection or registers memory, messages leave in
 * packets. The exposure is withdrawn as soon as reading has ended, or with the message.
 */
#include "transport/expose.h"

#include "transport/port.h"
#include "transport/read.h"
#include "transport/send.h"

static void plain(struct transport_message *m, struct transport_queue *q)
{
	m->onesided = 0;
	m->transfer = TRANSPORT_TX_PACKETS;
	transport_backlog_add(q, m->peer);
}

bool transport_offer(struct transport_queue *q, struct transport_peer *p, struct transport_message *m)
{
	uint32_t entry;
	if (!m->buf || m->transfer != TRANSPORT_TX_UNDECIDED)
		return false;
	m->transfer = TRANSPORT_TX_PACKETS;
	/* A zero-copy body is part of a larger message, so bulk_bytes_min does not apply. */
	if ((m->len < q->port->lower_caps.bulk_bytes_min && !m->zero_copy) ||
	    m->len < 2 * p->payload_max + TRANSPORT_TAIL_BYTES || p->via != q)
		return false;
	struct transport_onesided_request request = {q->lower, p->lower_peer, m->len, m->buf, m->body, m};
	if (transport_onesided_expose(&q->onesided, &request, transport_now(q), &entry))
		return false;
	m->peer = p;
	m->onesided = (uint8_t)(entry + 1);
	m->transfer = TRANSPORT_TX_EXPOSING;
	if (!p->active)
		transport_peer_activate(q, p);
	return true;
}

void transport_offer_write(const struct transport_queue *q, const struct transport_message *m, uint8_t *out)
{
	const struct nic_bulk_key *key = &q->onesided.entry[m->onesided - 1].key;
	struct wire_key k = {le64_of(key->key), le64_of(key->addr)};
	memcpy(out, &k, sizeof k);
}

static void withdraw(struct transport_queue *q, struct transport_message *m)
{
	if (m->onesided)
		transport_onesided_withdraw(&q->onesided, q->lower, m->onesided - 1u);
	m->onesided = 0;
}

bool transport_offer_granted(struct transport_queue *q, struct transport_message *m, uint32_t offset, bool here)
{
	if (!here) {
		if (m->transfer == TRANSPORT_TX_ANNOUNCED) {
			withdraw(q, m);
			m->transfer = TRANSPORT_TX_PACKETS;
		}
		return true;
	}
	if ((m->transfer != TRANSPORT_TX_ANNOUNCED && m->transfer != TRANSPORT_TX_ANSWERED) || offset >= m->len)
		return false;
	if (m->transfer == TRANSPORT_TX_ANSWERED) /* a repetition */
		return offset <= m->done;
	withdraw(q, m);
	m->transfer = TRANSPORT_TX_ANSWERED;
	if (offset > m->done)
		m->done = offset;
	return true;
}

void transport_offer_end(struct transport_queue *q, struct transport_message *m)
{
	transport_onesided_forget(&q->onesided, q->lower, m);
	m->onesided = 0;
}

void transport_receive_onesided(struct transport_queue *q, const struct nic_pkt *lp)
{
	struct transport_onesided_result news;
	struct transport_message *m = transport_onesided_event(&q->onesided, lp, &news);
	q->grants.due = true; /* an entry is free: another read may start */
	if (!m)
		return;
	switch (news.event) {
	case NIC_BULK_EXPOSED:
		m->transfer = TRANSPORT_TX_EXPOSED;
		transport_backlog_add(q, m->peer);
		break;
	case NIC_BULK_WITHDRAWN: /* its connection broke; an announced message continues when the receiver sends
				    WIRE_READ_DONE */
		m->onesided = 0;
		if (m->transfer == TRANSPORT_TX_EXPOSING || m->transfer == TRANSPORT_TX_EXPOSED)
			plain(m, q);
		break;
	case NIC_BULK_READ:
	case NIC_BULK_READ_FAILED:
		transport_read_event(q, m, &news);
		break;
	}
}

void transport_offers_timer(struct transport_queue *q, uint64_t now)
{
	for (uint32_t i = 0; i < FAR_TRANSPORT_ONESIDED; i++) {
		const struct transport_onesided *e = &q->onesided.entry[i];
		struct transport_message *m = e->owner;
		if (e->state != TRANSPORT_ONESIDED_EXPOSING || !m || now - e->since < FAR_TRANSPORT_ONESIDED_NS)
			continue;
		transport_onesided_withdraw(&q->onesided, q->lower, i);
		plain(m, q);
	}
}
