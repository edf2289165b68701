/* SPDX-License-Identifier: BSD-3-Clause */
/** Control packets: received PING, RESET and BYE, set-up packets forwarded to the control thread, and sending. Poller.
 */
#include "transport/port.h"

#include "base/mutant.h"

#include <errno.h>
#include <string.h>

void link_mail_on(struct link_queue *q, const struct link_queue *via, const struct nic_pkt *lp)
{
	if (lp->body_len <= LINK_MAIL_BYTES && link_mail_put(&q->mail, via->port, lp->body, (uint32_t)lp->body_len))
		link_port_signal(q->port);
	else if (lp->body_len > LINK_MAIL_BYTES)
		counter_bump(&q->malformed);
	else
		counter_bump(&q->crowded);
}

void link_take_ping(struct link_queue *q, struct link_peer *p, const struct link_queue *via, const struct nic_pkt *lp)
{
	struct link_words w;
	if (p->dead || p->detached) {
		counter_bump(&q->ended);
		return;
	}
	if (lp->body_len > LINK_MAIL_BYTES || !link_words_read(lp->body + LINK_HEAD, lp->body_len - LINK_HEAD, &w)) {
		counter_bump(&q->malformed);
		return;
	}
	if (!link_ping_proven(p, lp->body, (uint32_t)lp->body_len, &w)) {
		counter_bump(&q->unproven);
		return;
	}
	if (!link_ping_fresh(link_secret_of(p), link_ping_number(w.nonce))) {
		counter_bump(&q->duplicates);
		return;
	}
	p->heard = true;
	if (p->secondary && w.path && link_way_answer(q, p, via, w.path))
		return;
	link_ack_soon(q, p);
}

/* Returns true for a RESET that answers WELCOME, which the control thread checks. */
static bool answers_welcome(const struct nic_pkt *lp)
{
	struct link_no no;
	return lp->body[offsetof(struct wire_head, kind)] == WIRE_RESET &&
	       link_no_read(lp->body + LINK_HEAD, lp->body_len - LINK_HEAD, &no) && !link_ping_number(no.nonce);
}

void link_take_end(struct link_queue *q, struct link_peer *p, const struct link_queue *via, const struct wire_head *h,
		   const struct nic_pkt *lp)
{
	if (p->dead)
		counter_bump(&q->ended);
	else if (answers_welcome(lp))
		link_mail_on(q, via, lp);
	else if (lp->body_len > LINK_MAIL_BYTES ||
		 (!link_end_proven(p, via->port, lp->body, (uint32_t)lp->body_len) && !MUTANT(STALE_DOWN)))
		counter_bump(&q->unproven);
	else
		link_peer_dead(q, p, h->kind == WIRE_BYE ? -ECONNRESET : -ESTALE);
}

void link_take_other(struct link_queue *q, struct link_peer *p, const struct wire_head *h, const struct nic_pkt *lp)
{
	switch (h->kind) {
	case WIRE_HELLO:
	case WIRE_CHALLENGE:
	case WIRE_WELCOME:
	case WIRE_REFUSED:
	case WIRE_WRONG_QUEUE:
		link_mail_on(q, q, lp);
		return;
	case WIRE_PING:
		if (p)
			link_take_ping(q, p, q, lp);
		else
			link_mail_on(q, q, lp);
		return;
	case WIRE_RESET:
	case WIRE_BYE:
		if (p)
			link_take_end(q, p, q, h, lp);
		else
			link_mail_on(q, q, lp);
		return;
	case WIRE_MESSAGE:
	case WIRE_ACK:
		counter_bump(&q->unknown);
		return;
	default:
		counter_bump(&q->malformed);
	}
}

int link_send_raw(struct link_peer *p, const uint8_t *bytes, uint32_t len)
{
	struct link_queue *via = p->via;
	struct nic_tx tx;
	int error = via->ops->tx_reserve(via->lower, p->lower_peer, len, &tx);
	if (error)
		return error;
	memcpy(tx.body, bytes, len);
	tx.priority = LINK_URGENT;
	error = via->ops->tx_commit(via->lower, &tx);
	if (error) {
		via->ops->tx_cancel(via->lower, &tx);
		return error;
	}
	via->unflushed = true;
	return 0;
}

void link_send_ping(struct link_queue *q, struct link_peer *p)
{
	uint8_t bytes[LINK_MAIL_BYTES];
	const uint8_t *to = p->current_path ? p->paths->setup[p->current_path].to : link_secret_of(p)->to;
	uint32_t len = link_ping_write(bytes, p, p->via, 0, to);
	link_send_raw(p, bytes, len);
	link_kick(q, p);
}
