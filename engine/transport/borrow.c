/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Borrowed messages (nic_queue_ops.tx_borrow): a larger message is sent from the caller's memory while tx_commit()
 * runs. Poller.
 *
 * tx_commit() sends packets and receives acknowledgements and grants, until all bytes have packet numbers or nothing
 * arrives for some polls. From then on each further poll copies a part of the rest, from the end, until something
 * arrives or all is copied: a peer that runs a long handler costs the copies of that time only. At the end it copies
 * the bytes that the peer has not acknowledged: of a message that the peer takes at once, that is the last window.
 * Messages that arrive meanwhile are copied and delivered by the next recv(). The
 * time is bounded: each poll without a packet counts, and each packet sent or acknowledged is one of the message.
 */
#include "transport/borrow.h"

#include "transport/port.h"
#include "transport/queue.h"
#include "transport/rings.h"
#include "transport/send.h"

#include <errno.h>
#include <string.h>

/* Consecutive polls without a packet after which the next ones copy a part each: some 50 us. */
#define IDLE_POLLS_COSTLY 128u /* a poll is a system call */
#define IDLE_POLLS        1024u
#define PART_BYTES        (32u << 10) /* a few us: the peer may be back */

int transport_tx_borrow(struct nic_queue *nq, uint32_t peer, const void *body, uint64_t body_len, struct nic_tx *tx)
{
	struct transport_queue *q = (struct transport_queue *)nq;
	const struct transport_peer *p = peer < FAR_TRANSPORT_PEERS_MAX ? q->peers[peer] : NULL;
	/* A device reads exposed memory after the commit. */
	if (!p || p->loop || p->bulk || body_len < FAR_BORROW_BYTES_MIN)
		return -EOPNOTSUPP;
	int error = nq->ops->tx_reserve(nq, peer, body_len, tx);
	if (error)
		return error;
	struct transport_message *m = tx->driver_data;
	m->borrowed = true;
	tx->body = m->body = (uint8_t *)(uintptr_t)body;
	return 0;
}

static void copy(struct transport_message *m, uint32_t from, uint32_t end)
{
	if (from < end)
		memcpy((uint8_t *)buf_data(m->buf) + from, m->body + from, end - from);
}

/* Copies a part of [m->done, end). Returns its begin. */
static uint32_t copy_part(struct transport_message *m, uint32_t end)
{
	uint32_t from = end - m->done > PART_BYTES ? end - PART_BYTES : m->done;
	copy(m, from, end);
	return from;
}

/* The memory is the caller's again: copies what may have to be sent, or sent again, below `copied`. */
static void give_back(const struct transport_peer *p, struct transport_message *m, uint32_t copied)
{
	uint32_t from = m->done;
	for (uint32_t number = p->una; number != p->next; number++) {
		const struct transport_sent *e = &p->rings->sent[number % FAR_TRANSPORT_WINDOW];
		if (!e->lines && e->message == m && e->offset < from)
			from = e->offset;
	}
	copy(m, from, copied);
	m->body = buf_data(m->buf);
	m->borrowed = false;
}

/* True if no delivered message lies in memory of the driver below, whose recv() may then be called outside of ours. */
static bool may_receive(const struct transport_queue *q)
{
	return q->lower_at == q->lower_n && !q->batch.peer && !q->below;
}

/* `borrowed` is false once the message has been acknowledged and freed: nothing else borrows meanwhile. */
void transport_borrow_send(struct transport_queue *q, struct transport_peer *p, struct transport_message *m)
{
	uint32_t most = q->port->lower_caps.poll_costs ? IDLE_POLLS_COSTLY : IDLE_POLLS, idle = 0, copied = m->len;
	bool may = may_receive(q);
	transport_send(q, p, m);
	while (m->borrowed) {
		uint32_t before = m->done;
		transport_flush(&q->base);
		if (!m->borrowed || p->dead || !may)
			break;
		idle = transport_recv_copied(q) || m->done != before ? 0 : idle + 1;
		if (!m->borrowed || m->done >= copied)
			break;
		if (idle > most)
			copied = copy_part(m, copied);
	}
	if (m->borrowed)
		give_back(p, m, copied);
}
