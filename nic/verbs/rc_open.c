/* SPDX-License-Identifier: BSD-3-Clause */
/** Allocates the connections and the shared receive queue of a queue. Control thread. */
#include "nic/verbs/rc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static unsigned bound_of(const struct verbs_port *p)
{
	return p->args.connections ? p->args.connections : VERBS_CONNS;
}

int verbs_rcq_alloc(struct verbs_queue *q)
{
	const struct verbs_port *p = q->port;
	struct verbs_rcq *rcq = aligned_alloc(alignof(struct verbs_rcq), sizeof *rcq);
	if (!rcq)
		return -ENOMEM;
	memset(rcq, 0, sizeof *rcq);
	q->rc = rcq;
	rcq->bound = bound_of(p);
	rcq->conns_n = rcq->bound + VERBS_CONNS_CLOSING;
	rcq->per_conn_buffers = p->limits.max_srq <= 0 || p->limits.max_srq_wr < (int)p->args.rx_slots;
	rcq->wanted_last = &rcq->wanted_first;
	rcq->waiting_last = &rcq->waiting;
	memset(rcq->slot_conn, 0xff, sizeof rcq->slot_conn);
	rcq->conns = calloc(rcq->conns_n, sizeof *rcq->conns);
	if (!rcq->conns)
		return -ENOMEM;
	for (unsigned i = 0; i < rcq->conns_n; i++) {
		struct verbs_conn *c = &rcq->conns[i];
		c->to_poller.is_conn = c->to_control.is_conn = true;
		c->queue = q;
		c->index = (uint16_t)i;
		c->out_first = c->out_last = VERBS_SLOT_NONE;
	}
	if (!p->on.rc) /* datagrams have the queue's buffers */
		rcq->per_conn_buffers = false;
	else
		q->rx_n = rcq->per_conn_buffers ? rcq->conns_n << VERBS_OWN_SHIFT : p->args.rx_slots;
	return 0;
}

int verbs_rcq_open(struct verbs_queue *q, struct nic_err *err)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = q->rx_n, .max_sge = 1}};
	if (q->rc->per_conn_buffers)
		return 0;
	errno = 0;
	q->rc->srq = ibv_create_srq(q->port->pd, &attr);
	if (!q->rc->srq)
		return verbs_error(err, errno ? -errno : -ENOMEM,
				   "verbs: %s gives queue %u no shared receive queue of %u buffers: %s; it has %d in "
				   "total, which other programs share: use fewer shards, or a smaller rx_slots=",
				   q->port->on.device, q->index, q->rx_n, strerror(errno ? errno : ENOMEM),
				   q->port->limits.max_srq);
	return 0;
}

void verbs_rcq_close(struct verbs_queue *q)
{
	if (q->rc && q->rc->srq)
		ibv_destroy_srq(q->rc->srq);
	if (q->rc)
		q->rc->srq = NULL;
}
