/* SPDX-License-Identifier: BSD-3-Clause */
/** Jobs of worker threads: create, connect and destroy queue pairs. */
#include "nic/verbs/bulk.h"

#include <errno.h>
#include <string.h>

#define RETRIES     7 /* retransmissions until the connection breaks */
#define RNR_RETRIES 7 /* 7: no limit; a receiver without buffers gets new ones */

static const struct verbs_cm *cm_of(const struct verbs_conn *c)
{
	return c->queue->port->rc->cm;
}

static int modify(struct verbs_conn *c, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	int mask = 0;
	if (cm_of(c)->rdma_init_qp_attr(c->id, &attr, &mask))
		return errno ? -errno : -EIO;
	if (c->bulk && state == IBV_QPS_INIT) {
		attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
		mask |= IBV_QP_ACCESS_FLAGS;
	}
	if (c->bulk && state == IBV_QPS_RTR)
		atomic_store_explicit(&c->bulk->peer_qpn, attr.dest_qp_num, memory_order_relaxed);
	return -ibv_modify_qp(c->qp, &attr, mask);
}

int verbs_conn_start(struct verbs_conn *c)
{
	if (c->queue->port->on.iwarp) /* done by the kernel */
		return 0;
	int error = modify(c, IBV_QPS_RTR);
	return error ? error : modify(c, IBV_QPS_RTS);
}

/* The largest inline size is found by trying: devices differ, and report it only by refusing. */
static int make_pair(struct verbs_conn *c)
{
	struct verbs_queue *q = c->queue;
	for (uint32_t size = VERBS_INLINE_MAX; !c->qp; size /= 2) {
		struct ibv_qp_init_attr attr = {
			.send_cq = q->tx_cq,
			.recv_cq = q->rx_cq,
			.srq = q->rc->srq,
			.qp_type = IBV_QPT_RC,
			.cap = {.max_send_wr = VERBS_TX_RING,
				.max_recv_wr = q->rc->per_conn_buffers ? 1u << VERBS_OWN_SHIFT : 0,
				.max_send_sge = 1,
				.max_recv_sge = q->rc->per_conn_buffers,
				.max_inline_data = size >= 32 ? size : 0}};
		errno = 0;
		c->qp = ibv_create_qp(q->port->pd, &attr);
		c->inline_max = c->qp ? attr.cap.max_inline_data : 0;
		if (!c->qp && size < 32)
			return errno ? -errno : -ENOMEM;
	}
	return modify(c, IBV_QPS_INIT);
}

/* The queue pair of a bulk connection carries no packets. */
static int make_bulk_pair(struct verbs_conn *c)
{
	struct verbs_queue *q = c->queue;
	struct ibv_qp_init_attr attr = {
		.send_cq = q->rc->cq,
		.recv_cq = q->rc->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = VERBS_BULK_WRS, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	errno = 0;
	c->qp = ibv_create_qp(q->port->pd, &attr);
	if (!c->qp)
		return errno ? -errno : -ENOMEM;
	int error = verbs_bulk_prepare(c);
	return error ? error : modify(c, IBV_QPS_INIT);
}

static int fill_own(struct verbs_conn *c)
{
	struct verbs_queue *q = c->queue;
	struct ibv_recv_wr *first = NULL, *bad;
	uint32_t base = (uint32_t)c->index << VERBS_OWN_SHIFT;
	for (uint32_t slot = base + (1u << VERBS_OWN_SHIFT); slot-- > base;) {
		q->rx_posted[slot] = true;
		q->rx_wr[slot].wr_id = (uint64_t)c->generation << 32 | slot;
		q->rx_wr[slot].next = first;
		first = &q->rx_wr[slot];
	}
	return -ibv_post_recv(c->qp, first, &bad);
}

static int prepare(struct verbs_conn *c)
{
	int error = c->bulk ? make_bulk_pair(c) : make_pair(c);
	return !error && c->queue->rc->per_conn_buffers ? fill_own(c) : error;
}

/* Reads in flight in each direction. */
static uint8_t depth_of(const struct verbs_conn *c)
{
	int most = c->queue->port->limits.max_qp_rd_atom;
	return !c->bulk || most < 1 ? 1 : most < (int)VERBS_READS ? (uint8_t)most : (uint8_t)VERBS_READS;
}

static struct rdma_conn_param param_of(const struct verbs_conn *c, const void *words, uint8_t len)
{
	return (struct rdma_conn_param){.private_data = words,
					.private_data_len = len,
					.responder_resources = depth_of(c),
					.initiator_depth = depth_of(c),
					.retry_count = RETRIES,
					.rnr_retry_count = RNR_RETRIES,
					.srq = c->queue->rc->srq != NULL,
					.qp_num = c->qp->qp_num};
}

/* An iWARP device connects its TCP socket in this call. */
static int call_connect(struct verbs_conn *c, void *arg)
{
	struct rdma_conn_param *param = arg;
	errno = 0;
	return cm_of(c)->rdma_connect(c->id, param) ? (errno ? -errno : -EIO) : 0;
}

static int do_connect(struct verbs_conn *c)
{
	int error = prepare(c);
	if (error)
		return error;
	struct rdma_conn_param param = param_of(c, &c->request, sizeof c->request);
	return verbs_pool_call_cancellable(c, call_connect, &param);
}

/* Notify the poller before the peer, so that it expects the first packet. */
static int do_accept(struct verbs_conn *c)
{
	int error = prepare(c);
	if (!error)
		error = verbs_conn_start(c);
	if (error)
		return error;
	verbs_phase_set(c, CONN_ACCEPTED);
	verbs_notify_poller(c->queue, c->queue->rc, &c->to_poller);
	struct rdma_conn_param param = param_of(c, &c->accept, sizeof c->accept);
	errno = 0;
	return cm_of(c)->rdma_accept(c->id, &param) ? (errno ? -errno : -EIO) : 0;
}

void verbs_conn_destroy(struct verbs_conn *c)
{
	verbs_bulk_release(c);
	if (c->id && c->qp)
		cm_of(c)->rdma_disconnect(c->id); /* fails if the peer is gone */
	if (c->qp)
		ibv_destroy_qp(c->qp);
	c->qp = NULL;
	if (c->id)
		cm_of(c)->rdma_destroy_id(c->id);
	c->id = NULL;
}

void verbs_job_run(struct verbs_conn *c)
{
	c->job_error = 0;
	switch (c->job) {
	case JOB_CONNECT:
		c->job_error = do_connect(c);
		break;
	case JOB_ACCEPT:
		c->job_error = do_accept(c);
		break;
	case JOB_CLOSE:
		verbs_conn_destroy(c);
		break;
	case JOB_NONE:
		break;
	}
}
