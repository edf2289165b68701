/* SPDX-License-Identifier: BSD-3-Clause */
/** Allocates and frees the bulk part of queues (control thread) and connections (the port's threads). */
#include "nic/verbs/bulk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool verbs_has_windows(const struct ibv_device_attr *limits)
{
	return limits->device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B) &&
	       limits->max_mw >= (int)VERBS_WINDOWS;
}

int verbs_bulk_check(const struct verbs_port *p, struct nic_err *err)
{
	if (p->on.rc || !p->on.ethernet)
		return verbs_error(
			err, -EPROTONOSUPPORT,
			"verbs: bulk= needs RoCE v2 with datagrams, but %s %s: leave bulk= out, messages go in packets",
			p->on.device, p->on.rc ? "sends over connections" : "is InfiniBand");
	if (!verbs_has_windows(&p->limits))
		return verbs_error(err, -EOPNOTSUPP,
				   "verbs: %s has no memory windows of type 2, which bulk= needs: leave bulk= out, "
				   "messages go in packets",
				   p->on.device);
	return 0;
}

int verbs_bulk_open(struct verbs_queue *q, struct nic_err *err)
{
	struct verbs_port *p = q->port;
	struct ibv_context *context = p->on.context;
	int vectors = context->num_comp_vectors > 0 ? context->num_comp_vectors : 1;
	struct verbs_bulk *bulk = calloc(q->rc->conns_n, sizeof *bulk);
	if (!bulk)
		return verbs_error(err, -ENOMEM, "verbs: out of memory");
	for (unsigned i = 0; i < q->rc->conns_n; i++) {
		q->rc->conns[i].bulk = &bulk[i];
		for (unsigned k = 0; k < VERBS_WINDOWS + VERBS_READS; k++)
			bulk[i].op[k].conn = &q->rc->conns[i];
	}
	q->rc->bulk_last = &q->rc->bulk_first;
	errno = 0;
	q->rc->cq = ibv_create_cq(context, (int)(q->rc->conns_n * VERBS_BULK_WRS), q, q->channel, q->index % vectors);
	if (!q->rc->cq)
		return verbs_error(err, errno ? -errno : -ENOMEM,
				   "verbs: %s cannot create a completion queue for queue %u with %u entries for bulk: "
				   "%s; give a smaller connections=, or leave bulk= out",
				   p->on.device, q->index, q->rc->conns_n * VERBS_BULK_WRS,
				   strerror(errno ? errno : ENOMEM));
	return 0;
}

void verbs_bulk_close(struct verbs_queue *q)
{
	struct verbs_rcq *rcq = q->rc;
	if (!rcq || !rcq->cq)
		return;
	if (rcq->events_unacked)
		ibv_ack_cq_events(rcq->cq, rcq->events_unacked);
	rcq->events_unacked = 0;
	ibv_destroy_cq(rcq->cq);
	rcq->cq = NULL;
}

void verbs_bulk_free(struct verbs_queue *q)
{
	if (q->rc && q->rc->conns)
		free(q->rc->conns[0].bulk);
}

int verbs_bulk_prepare(struct verbs_conn *c)
{
	for (unsigned i = 0; i < VERBS_WINDOWS; i++) {
		struct verbs_bulk_op *op = &c->bulk->op[i];
		errno = 0;
		op->mw = ibv_alloc_mw(c->queue->port->pd, IBV_MW_TYPE_2);
		if (!op->mw)
			return errno ? -errno : -ENOMEM;
		op->rkey = op->mw->rkey;
	}
	return 0;
}

void verbs_bulk_release(struct verbs_conn *c)
{
	for (unsigned i = 0; c->bulk && i < VERBS_WINDOWS; i++) {
		struct verbs_bulk_op *op = &c->bulk->op[i];
		if (op->mw)
			ibv_dealloc_mw(op->mw);
		op->mw = NULL;
	}
}
