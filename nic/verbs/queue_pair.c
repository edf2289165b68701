/* SPDX-License-Identifier: BSD-3-Clause */
/** A queue's UD queue pair and completion queues, and the state changes of the queue pair. Control thread. */
#include "nic/verbs/bulk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int out_of(const struct verbs_queue *q, const char *what, int limit, int error, struct nic_err *err)
{
	return verbs_error(err, -error,
			   "verbs: %s gives queue %u no %s: %s; it has %d in total, which other programs share: use "
			   "fewer shards, or another device",
			   q->port->on.device, q->index, what, strerror(error), limit);
}

static int open_cqs(struct verbs_queue *q, struct nic_err *err)
{
	struct verbs_port *p = q->port;
	struct ibv_context *context = p->on.context;
	int vectors = context->num_comp_vectors > 0 ? context->num_comp_vectors : 1;
	errno = 0;
	q->channel = ibv_create_comp_channel(context);
	if (!q->channel)
		return verbs_error(err, errno ? -errno : -EIO, "verbs: %s: no completion channel: %s; see `ulimit -n`",
				   p->on.device, strerror(errno));
	errno = 0;
	q->rx_cq = ibv_create_cq(context, (int)q->rx_n, q, q->channel, q->index % vectors);
	if (q->rx_cq)
		q->tx_cq = ibv_create_cq(context, VERBS_TX_RING, q, NULL, q->index % vectors);
	if (!q->tx_cq)
		return out_of(q, "completion queue", p->limits.max_cq, errno ? errno : ENOMEM, err);
	return 0;
}

/* The largest inline size is found by trying: devices differ, and report it only by refusing. */
static int open_qp(struct verbs_queue *q, struct nic_err *err)
{
	struct verbs_port *p = q->port;
	int error = 0;
	for (uint32_t size = VERBS_INLINE_MAX; !q->qp; size /= 2) {
		struct ibv_qp_init_attr attr = {.send_cq = q->tx_cq,
						.recv_cq = q->rx_cq,
						.qp_type = IBV_QPT_UD,
						.cap = {.max_send_wr = VERBS_TX_RING,
							.max_recv_wr = q->rx_n,
							.max_send_sge = 1,
							.max_recv_sge = 1,
							.max_inline_data = size >= 32 ? size : 0}};
		errno = 0;
		q->qp = ibv_create_qp(p->pd, &attr);
		q->inline_max = q->qp ? attr.cap.max_inline_data : 0;
		error = errno ? errno : ENOMEM;
		if (!q->qp && size < 32)
			return out_of(q, "queue pair", p->limits.max_qp, error, err);
	}
	return 0;
}

int verbs_qp_start(struct verbs_queue *q)
{
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT, .pkey_index = 0, .port_num = q->port->on.port, .qkey = q->qkey};
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR}, rts = {.qp_state = IBV_QPS_RTS, .sq_psn = q->qkey >> 8};
	int error = ibv_modify_qp(q->qp, &reset, IBV_QP_STATE);
	if (!error)
		error = ibv_modify_qp(q->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	if (!error)
		error = ibv_modify_qp(q->qp, &rtr, IBV_QP_STATE);
	if (!error)
		error = ibv_modify_qp(q->qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN);
	return -error;
}

int verbs_qp_open(struct verbs_queue *q, struct nic_err *err)
{
	struct verbs_port *p = q->port;
	int error = open_cqs(q, err);
	if (!error)
		error = p->on.rc ? verbs_rcq_open(q, err) : open_qp(q, err);
	if (!error && q->rc && !p->on.rc)
		error = verbs_bulk_open(q, err);
	if (error)
		return error;
	q->mr = ibv_reg_mr(p->pd, q->memory, q->memory_bytes, IBV_ACCESS_LOCAL_WRITE);
	if (!q->mr)
		return verbs_cannot_lock(p->on.device, q->memory_bytes, p->queues_n * q->memory_bytes,
					 errno ? errno : ENOMEM, "give a smaller rx_slots=", err);
	error = p->on.rc ? 0 : verbs_qp_start(q);
	if (error)
		return verbs_error(err, error, "verbs: %s: queue pair %u cannot be set up: %s", p->on.device,
				   q->qp->qp_num, strerror(-error));
	return 0;
}

void verbs_qp_close(struct verbs_queue *q)
{
	if (q->qp)
		ibv_destroy_qp(q->qp);
	if (q->mr)
		ibv_dereg_mr(q->mr);
	verbs_bulk_close(q);
	if (q->tx_cq)
		ibv_destroy_cq(q->tx_cq);
	if (q->rx_cq && q->events_unacked)
		ibv_ack_cq_events(q->rx_cq, q->events_unacked); /* destroying it waits for the acknowledgements */
	if (q->rx_cq)
		ibv_destroy_cq(q->rx_cq);
	if (q->channel)
		ibv_destroy_comp_channel(q->channel);
	q->qp = NULL;
	q->mr = NULL;
	q->rx_cq = q->tx_cq = NULL;
	q->channel = NULL;
	q->events_unacked = 0;
}
