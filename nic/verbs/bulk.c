/* SPDX-License-Identifier: BSD-3-Clause */
/** Bulk operations: exposes memory to a peer by windows, and reads a peer's memory. Poller. */
#include "nic/verbs/bulk.h"

#include <errno.h>
#include <string.h>

/* Kind of an operation in wr_id, below the connection's generation and index. */
enum { KIND_BIND = 1, KIND_INVALIDATE, KIND_READ };
#define KIND_SHIFT 8u

static unsigned index_of(const struct verbs_bulk_op *op)
{
	return (unsigned)(op - op->conn->bulk->op);
}

static uint64_t id_of(const struct verbs_bulk_op *op, unsigned kind)
{
	return (uint64_t)op->conn->generation << 32 | (uint32_t)op->conn->index << 16 | kind << KIND_SHIFT |
	       index_of(op);
}

/* ---- operations ---- */

static struct verbs_bulk_op *op_take(struct verbs_conn *c, unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++) {
		struct verbs_bulk_op *op = &c->bulk->op[i];
		if (op->state != BULK_FREE)
			continue;
		c->queue->rc->ops_n++;
		atomic_store_explicit(&c->bulk->busy, atomic_load_explicit(&c->bulk->busy, memory_order_relaxed) + 1,
				      memory_order_relaxed);
		return op;
	}
	return NULL;
}

static void op_give(struct verbs_bulk_op *op)
{
	struct verbs_bulk *bulk = op->conn->bulk;
	op->state = BULK_FREE;
	op->conn->queue->rc->ops_n--;
	atomic_store_explicit(&bulk->busy, atomic_load_explicit(&bulk->busy, memory_order_relaxed) - 1,
			      memory_order_relaxed);
}

/* Queues an event for recv(). A later event of the same operation replaces it. */
static void queue_event(struct verbs_bulk_op *op, enum nic_bulk_event event)
{
	struct verbs_rcq *rcq = op->conn->queue->rc;
	bool listed = op->event != 0;
	op->event = (uint8_t)event;
	if (event != NIC_BULK_EXPOSED) {
		op->state = BULK_OVER;
		verbs_mem_put(op->mem);
		op->mem = NULL;
	}
	if (listed)
		return;
	op->next = NULL;
	*rcq->bulk_last = op;
	rcq->bulk_last = &op->next;
}

static void record_use(struct verbs_conn *c)
{
	struct verbs_rcq *rcq = c->queue->rc;
	uint32_t tick = atomic_load_explicit(&rcq->tick, memory_order_relaxed) + 1;
	atomic_store_explicit(&rcq->tick, tick, memory_order_relaxed);
	atomic_store_explicit(&c->used, tick, memory_order_relaxed);
}

static bool post(struct verbs_conn *c, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	wr->send_flags = IBV_SEND_SIGNALED;
	record_use(c);
	if (!ibv_post_send(c->qp, wr, &bad))
		return true;
	verbs_rc_broken(c);
	return false;
}

/* ---- nic_bulk_ops ---- */

static bool is_released(const struct verbs_queue *q)
{
	return atomic_load_explicit(&q->state, memory_order_acquire) >= VERBS_RELEASING;
}

static bool is_usable(const struct verbs_conn *c)
{
	return c->is_usable && !atomic_load_explicit(&c->broken, memory_order_relaxed);
}

static int dest_for_bulk(struct verbs_queue *q, uint32_t peer, struct verbs_dest **out)
{
	struct verbs_dest *dest = verbs_dest_of(q, peer);
	*out = dest;
	if (!dest || !dest->attached)
		return -EPIPE;
	if (!dest->remote)
		return -EOPNOTSUPP;
	return is_released(q) ? -EAGAIN : 0;
}

static int bulk_expose(struct nic_queue *queue, uint32_t peer, const void *at, uint64_t len, uint64_t user,
		       uint32_t *handle, struct nic_bulk_key *key)
{
	struct verbs_queue *q = verbs_queue_of(queue);
	struct verbs_dest *dest;
	int error = dest_for_bulk(q, peer, &dest);
	if (error)
		return error;
	if (len == 0 || len > UINT32_MAX)
		return -EINVAL;
	/* Request region and connection at once, since both may take long. */
	struct verbs_mem *mem = verbs_mem_get(q, at, len, &error);
	struct verbs_conn *c = dest->remote->conn;
	if (!c) {
		verbs_rc_request_conn(dest->remote);
		if (mem)
			verbs_mem_put(mem);
		return -EAGAIN;
	}
	if (!mem)
		return error;
	struct verbs_bulk_op *op = op_take(c, 0, VERBS_WINDOWS);
	if (!op) {
		verbs_mem_put(mem);
		return -EAGAIN;
	}
	op->rkey = ibv_inc_rkey(op->rkey);
	op->user = user;
	op->mem = mem;
	op->state = BULK_BINDING;
	struct ibv_send_wr wr = {.wr_id = id_of(op, KIND_BIND),
				 .opcode = IBV_WR_BIND_MW,
				 .bind_mw = {.mw = op->mw,
					     .rkey = op->rkey,
					     .bind_info = {.mr = mem->mr,
							   .addr = (uintptr_t)at,
							   .length = len,
							   .mw_access_flags = IBV_ACCESS_REMOTE_READ}}};
	if (!post(c, &wr)) { /* no key was handed out */
		verbs_mem_put(mem);
		op_give(op);
		return -EAGAIN;
	}
	op->mw->rkey = op->rkey; /* the next bind uses this key; libibverbs updates it for type 1 only */
	*handle = (uint32_t)c->generation << 16 | (uint32_t)c->index << 4 | index_of(op);
	*key = (struct nic_bulk_key){(uint64_t)c->qp->qp_num << 32 | op->rkey, (uintptr_t)at};
	return 0;
}

static void bulk_withdraw(struct nic_queue *queue, uint32_t handle)
{
	struct verbs_queue *q = verbs_queue_of(queue);
	uint32_t index = handle >> 4 & 0xfff;
	struct verbs_conn *c = index < q->rc->conns_n ? &q->rc->conns[index] : NULL;
	struct verbs_bulk_op *op = c ? &c->bulk->op[handle % VERBS_WINDOWS] : NULL;
	/* In these states the connection's generation cannot change. */
	if (!op || (op->state != BULK_BINDING && op->state != BULK_BOUND) || c->generation != handle >> 16)
		return;
	op->state = BULK_GOING;
	/* The end of the connection completes the operation. */
	if (is_released(q) || c->close_acked || c->destroyed || atomic_load_explicit(&c->broken, memory_order_relaxed))
		return;
	struct ibv_send_wr wr = {
		.wr_id = id_of(op, KIND_INVALIDATE), .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = op->rkey};
	post(c, &wr);
}

static struct verbs_conn *find_conn(const struct verbs_remote *r, uint32_t qpn)
{
	for (struct verbs_conn *c = r->conn; c; c = c->next_usable)
		if (atomic_load_explicit(&c->bulk->peer_qpn, memory_order_relaxed) == qpn && is_usable(c))
			return c;
	return NULL;
}

static int bulk_read(struct nic_queue *queue, uint32_t peer, const struct nic_bulk_key *key, uint64_t offset, void *to,
		     uint32_t len, uint64_t user)
{
	struct verbs_queue *q = verbs_queue_of(queue);
	struct verbs_dest *dest;
	int error = dest_for_bulk(q, peer, &dest);
	if (error)
		return error;
	if (len == 0 || offset > UINT64_MAX - key->addr || len > UINT64_MAX - key->addr - offset)
		return -EINVAL;
	struct verbs_conn *c = find_conn(dest->remote, (uint32_t)(key->key >> 32));
	if (!c)
		return -ENOTCONN;
	struct verbs_mem *mem = verbs_mem_get(q, to, len, &error);
	if (!mem)
		return -ENOMEM;
	struct verbs_bulk_op *op = op_take(c, VERBS_WINDOWS, VERBS_WINDOWS + VERBS_READS);
	if (!op) {
		verbs_mem_put(mem);
		return -EAGAIN;
	}
	op->user = user;
	op->mem = mem;
	op->state = BULK_READING;
	struct ibv_sge sge = {.addr = (uintptr_t)to, .length = len, .lkey = mem->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = id_of(op, KIND_READ),
				 .opcode = IBV_WR_RDMA_READ,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .wr.rdma = {.remote_addr = key->addr + offset, .rkey = (uint32_t)key->key}};
	if (post(c, &wr))
		return 0;
	verbs_mem_put(mem);
	op_give(op);
	return -ENOTCONN;
}

const struct nic_bulk_ops verbs_bulk_ops = {.expose = bulk_expose, .withdraw = bulk_withdraw, .read = bulk_read};

/* ---- completions ---- */

/* Validates a device's completion, too. False: no such operation is in flight. */
static bool completed(struct verbs_bulk_op *op, unsigned kind, bool fine)
{
	switch (kind) {
	case KIND_BIND:
		if (op->state == BULK_BINDING && fine) {
			op->state = BULK_BOUND;
			queue_event(op, NIC_BULK_EXPOSED);
		}
		return op->state == BULK_BOUND || op->state == BULK_BINDING || op->state == BULK_GOING;
	case KIND_INVALIDATE:
		if (op->state != BULK_GOING)
			return false;
		if (fine) /* else the end of the connection reports it */
			queue_event(op, NIC_BULK_WITHDRAWN);
		return true;
	case KIND_READ:
		if (op->state != BULK_READING)
			return false;
		queue_event(op, fine ? NIC_BULK_READ : NIC_BULK_READ_FAILED);
		return true;
	}
	return false;
}

void verbs_bulk_completed(struct verbs_conn *c, const struct ibv_wc *wc)
{
	unsigned kind = (unsigned)(wc->wr_id >> KIND_SHIFT) & 0xff, i = (unsigned)wc->wr_id & 0xff;
	bool is_read = kind == KIND_READ, fine = wc->status == IBV_WC_SUCCESS;
	if (i >= VERBS_WINDOWS + VERBS_READS || (i >= VERBS_WINDOWS) != is_read ||
	    !completed(&c->bulk->op[i], kind, fine))
		verbs_count(&c->queue->counters.malformed, 1);
	if (!fine)
		verbs_rc_broken(c);
}

void verbs_bulk_conn_destroyed(struct verbs_conn *c)
{
	for (unsigned i = 0; i < VERBS_WINDOWS + VERBS_READS; i++) {
		struct verbs_bulk_op *op = &c->bulk->op[i];
		if (op->state != BULK_FREE && op->state != BULK_OVER)
			queue_event(op, i < VERBS_WINDOWS ? NIC_BULK_WITHDRAWN : NIC_BULK_READ_FAILED);
	}
}

/* The device was closed: ends all operations. */
static void device_closed(struct verbs_queue *q)
{
	if (!atomic_load_explicit(&q->port->device_released, memory_order_acquire))
		return;
	for (unsigned i = 0; i < q->rc->conns_n; i++)
		verbs_bulk_conn_destroyed(&q->rc->conns[i]);
}

unsigned verbs_bulk_recv(struct verbs_queue *q, struct nic_pkt *pkts, unsigned max)
{
	struct verbs_rcq *rcq = q->rc;
	struct verbs_bulk_op *op;
	unsigned n = 0;
	if (is_released(q)) {
		device_closed(q);
	} else {
		if (atomic_load_explicit(&rcq->to_poller, memory_order_relaxed))
			verbs_rc_read_mail(q, false);
		if (rcq->ops_n)
			verbs_rc_reap(q);
	}
	while (n < max && (op = rcq->bulk_first)) {
		rcq->bulk_first = op->next;
		if (!rcq->bulk_first)
			rcq->bulk_last = &rcq->bulk_first;
		pkts[n++] = (struct nic_pkt){.peer = NIC_PEER_BULK, .body_len = op->event, .cookie = op->user};
		op->event = 0;
		if (op->state == BULK_OVER)
			op_give(op);
	}
	return n;
}

void verbs_bulk_arm(struct verbs_queue *q)
{
	if (q->rc->ops_n && ibv_req_notify_cq(q->rc->cq, 0))
		verbs_signal(q->event_fd); /* the queue cannot be woken: prevent the sleep */
}
