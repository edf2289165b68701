/* SPDX-License-Identifier: BSD-3-Clause */
/** Packets of a connection that another queue of its shard receives, since the connection uses a path of another port.
 * Poller. */
#include "transport/sibling.h"

#include "transport/assemble.h"
#include "transport/control.h"
#include "transport/mail.h"
#include "transport/path.h"
#include "transport/peer.h"
#include "transport/port.h"
#include "transport/queue.h"
#include "transport/recv.h"
#include "transport/schedule.h"
#include "transport/send.h"
#include "transport/timer.h"

void transport_sibling_receive(struct transport_queue *q, struct transport_queue *via, struct transport_peer *p,
			       const union wire_packet *h, const struct nic_pkt *lp)
{
	if (!p) {
		if (h->head.kind == WIRE_PING || h->head.kind == WIRE_WRONG_QUEUE || h->head.kind == WIRE_RESET ||
		    h->head.kind == WIRE_CLOSE)
			transport_mail_forward(q, via, lp);
		else
			counter_bump(&q->unknown_connection_drops);
		return;
	}
	if (h->head.kind == WIRE_PING) {
		transport_receive_ping(q, p, via, lp);
	} else if (h->head.kind == WIRE_RESET || h->head.kind == WIRE_CLOSE) {
		transport_receive_end(q, p, via, &h->head, lp);
	} else if (h->head.kind == WIRE_WRONG_QUEUE) {
		transport_mail_forward(q, via, lp);
	} else if (h->head.kind != WIRE_MESSAGE && h->head.kind != WIRE_ACK) {
		counter_bump(&q->unknown_connection_drops);
	} else if (p->dead || p->detached) {
		counter_bump(&q->closed_connection_drops);
	} else {
		q->now = 0; /* it is of the last recv() */
		transport_set_failover(q, p, p->secondary != 0);
		transport_receive_elsewhere(q, via, p, h, lp);
	}
	/* Send and deliver the results now: this queue may not be polled soon. */
	if (q->grants.due)
		transport_grants_run(q);
	if (q->acks_n)
		transport_send_acks(q);
	transport_flush(&q->base);
	if (q->ready_first && q->armed)
		q->ops->wake(q->lower);
}

/* Polls a sibling queue whose own burst is processed. All messages are copied. */
static void poll_sibling(struct transport_queue *s)
{
	unsigned n = transport_recv_copied(s);
	s->empty_polls = n ? 0 : s->empty_polls + 1;
	if (s->unflushed && n)
		transport_flush(&s->base);
	/* Its own messages are delivered by its own recv(). */
	if (s->ready_first && s->armed)
		s->ops->wake(s->lower);
}

void transport_siblings_poll(struct transport_queue *q)
{
	for (uint32_t i = 0; i < q->siblings_n; i++) {
		struct transport_queue *s = q->siblings[i];
		if (s->lower_at != s->lower_n || s->lines_n || s->batch.peer)
			continue;
		if (s->port->lower_caps.poll_costs && s->empty_polls > FAR_TRANSPORT_EMPTY_POLLS &&
		    s->empty_polls % 16 != 0)
			s->empty_polls++;
		else
			poll_sibling(s);
	}
}
