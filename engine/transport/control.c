/* SPDX-License-Identifier: BSD-3-Clause */
/** Control packets: received PING, RESET and CLOSE, set-up packets forwarded to the control thread, and sending.
 * Poller.
 */
#include "transport/control.h"

#include "base/mutant.h"
#include "transport/auth.h"
#include "transport/message.h"
#include "transport/path.h"
#include "transport/send.h"

#include <errno.h>

void transport_mail_forward(struct transport_queue *q, const struct transport_queue *via, const struct nic_pkt *lp)
{
	if (lp->body_len <= TRANSPORT_MAIL_BYTES &&
	    transport_mail_put(&q->mail, via->port, lp->body, (uint32_t)lp->body_len))
		transport_port_signal(q->port);
	else if (lp->body_len > TRANSPORT_MAIL_BYTES)
		counter_bump(&q->malformed);
	else
		counter_bump(&q->handshake_backlog_drops);
}

void transport_receive_ping(struct transport_queue *q, struct transport_peer *p, const struct transport_queue *via,
			    const struct nic_pkt *lp)
{
	struct transport_handshake w;
	if (p->dead || p->detached) {
		counter_bump(&q->closed_connection_drops);
		return;
	}
	if (lp->body_len > TRANSPORT_MAIL_BYTES ||
	    !transport_handshake_read(lp->body + TRANSPORT_HEAD_BYTES, lp->body_len - TRANSPORT_HEAD_BYTES, &w)) {
		counter_bump(&q->malformed);
		return;
	}
	if (!transport_ping_authentic(p, lp->body, (uint32_t)lp->body_len, &w)) {
		counter_bump(&q->unproven);
		return;
	}
	if (!transport_ping_fresh(transport_secret_of(p), transport_ping_number(w.nonce))) {
		counter_bump(&q->duplicates);
		return;
	}
	p->heard = true;
	if (p->secondary && w.path && transport_path_answer(q, p, via, w.path))
		return;
	transport_ack_soon(q, p);
}

/* Returns true for a RESET that answers ACCEPT, which the control thread checks. */
static bool answers_accept(const struct nic_pkt *lp)
{
	struct transport_reject no;
	return lp->body[offsetof(struct wire_head, kind)] == WIRE_RESET &&
	       transport_reject_read(lp->body + TRANSPORT_HEAD_BYTES, lp->body_len - TRANSPORT_HEAD_BYTES, &no) &&
	       !transport_ping_number(no.nonce);
}

void transport_receive_end(struct transport_queue *q, struct transport_peer *p, const struct transport_queue *via,
			   const struct wire_head *h, const struct nic_pkt *lp)
{
	if (p->dead)
		counter_bump(&q->closed_connection_drops);
	else if (answers_accept(lp))
		transport_mail_forward(q, via, lp);
	else if (lp->body_len > TRANSPORT_MAIL_BYTES ||
		 (!transport_end_authentic(p, via->port, lp->body, (uint32_t)lp->body_len) && !MUTANT(STALE_DOWN)))
		counter_bump(&q->unproven);
	else
		transport_peer_dead(q, p, h->kind == WIRE_CLOSE ? -ECONNRESET : -ESTALE);
}

void transport_receive_control(struct transport_queue *q, struct transport_peer *p, const struct wire_head *h,
			       const struct nic_pkt *lp)
{
	switch (h->kind) {
	case WIRE_CONNECT:
	case WIRE_CHALLENGE:
	case WIRE_ACCEPT:
	case WIRE_REJECT:
	case WIRE_WRONG_QUEUE:
		transport_mail_forward(q, q, lp);
		return;
	case WIRE_PING:
		if (p)
			transport_receive_ping(q, p, q, lp);
		else
			transport_mail_forward(q, q, lp);
		return;
	case WIRE_RESET:
	case WIRE_CLOSE:
		if (p)
			transport_receive_end(q, p, q, h, lp);
		else
			transport_mail_forward(q, q, lp);
		return;
	case WIRE_MESSAGE:
	case WIRE_ACK:
		counter_bump(&q->unknown_connection_drops);
		return;
	default:
		counter_bump(&q->malformed);
	}
}

int transport_send_raw(struct transport_peer *p, const uint8_t *bytes, uint32_t len)
{
	struct transport_queue *via = p->via;
	struct nic_tx tx;
	int error = via->ops->tx_reserve(via->lower, p->lower_peer, len, &tx);
	if (error)
		return error;
	memcpy(tx.body, bytes, len);
	tx.priority = TRANSPORT_PRIORITY_URGENT;
	error = via->ops->tx_commit(via->lower, &tx);
	if (error) {
		via->ops->tx_cancel(via->lower, &tx);
		return error;
	}
	via->unflushed = true;
	return 0;
}

void transport_send_ping(struct transport_queue *q, struct transport_peer *p)
{
	uint8_t bytes[TRANSPORT_MAIL_BYTES];
	const uint8_t *to = p->current_path ? p->paths->setup[p->current_path].to : transport_secret_of(p)->to;
	uint32_t len = transport_ping_write(bytes, p, p->via, 0, to);
	transport_send_raw(p, bytes, len);
	transport_kick(q, p);
}
