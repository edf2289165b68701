/* SPDX-License-Identifier: BSD-3-Clause */
/** Allocates and frees all memory of a queue. Control thread. */
#include "nic/verbs/bulk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

static uint32_t rx_stride(const struct verbs_port *p)
{
	return (VERBS_RX_BODY_AT + p->mtu + 63) / 64 * 64;
}

static uint32_t tx_stride(const struct verbs_port *p)
{
	return (p->mtu + 63) / 64 * 64;
}

static size_t bytes_of(const struct verbs_queue *q)
{
	return (size_t)q->rx_n * q->rx_stride + (size_t)VERBS_TX_RING * q->tx_stride;
}

static int open_memory(struct verbs_queue *q)
{
	const struct verbs_port *p = q->port;
	q->rx_n = p->args.rx_slots;
	if (p->rc && verbs_rcq_alloc(q))
		return -ENOMEM;
	q->rx_stride = rx_stride(p);
	q->tx_stride = tx_stride(p);
	q->rx_held = calloc(q->rx_n, sizeof *q->rx_held);
	q->rx_posted = calloc(q->rx_n, sizeof *q->rx_posted);
	q->rx_wr = calloc(q->rx_n, sizeof *q->rx_wr);
	q->rx_sge = calloc(q->rx_n, sizeof *q->rx_sge);
	size_t bytes = bytes_of(q);
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at != MAP_FAILED) {
		q->memory = at;
		q->memory_bytes = bytes;
		q->tx_memory = q->memory + (size_t)q->rx_n * q->rx_stride;
	}
	return q->rx_held && q->rx_posted && q->rx_wr && q->rx_sge && q->memory ? 0 : -ENOMEM;
}

/* Fills the constant fields of the work requests. */
static void prepare(struct verbs_queue *q)
{
	uint32_t grh = q->port->on.rc ? 0 : VERBS_GRH_BYTES;
	for (uint32_t i = 0; i < q->rx_n; i++) {
		uint8_t *slot = q->memory + (size_t)i * q->rx_stride;
		q->rx_sge[i] = (struct ibv_sge){.addr = (uintptr_t)(slot + VERBS_RX_BODY_AT - grh),
						.length = grh + q->port->mtu,
						.lkey = q->mr->lkey};
		q->rx_wr[i] = (struct ibv_recv_wr){.sg_list = &q->rx_sge[i], .num_sge = 1};
	}
	for (uint32_t i = 0; i < VERBS_TX_RING; i++) {
		q->tx_sge[i] = (struct ibv_sge){.addr = (uintptr_t)(q->tx_memory + (size_t)i * q->tx_stride),
						.lkey = q->mr->lkey};
		q->tx_wr[i] = (struct ibv_send_wr){.sg_list = &q->tx_sge[i], .opcode = IBV_WR_SEND};
		q->tx_free[i] = (uint16_t)(VERBS_TX_RING - 1 - i);
	}
	q->tx_free_n = VERBS_TX_RING;
}

static int open_wake(struct verbs_queue *q, struct nic_err *err)
{
	struct epoll_event ev = {.events = EPOLLIN};
	q->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	q->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	int flags = fcntl(q->channel->fd, F_GETFL);
	if (q->event_fd < 0 || q->epoll_fd < 0 || flags < 0 || fcntl(q->channel->fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
	    epoll_ctl(q->epoll_fd, EPOLL_CTL_ADD, q->event_fd, &ev) < 0 ||
	    epoll_ctl(q->epoll_fd, EPOLL_CTL_ADD, q->channel->fd, &ev) < 0)
		return verbs_error(err, -errno, "verbs: cannot create a wake-up descriptor: %s; see `ulimit -n`",
				   strerror(errno));
	return 0;
}

static uint32_t draw(void)
{
	uint32_t key = 0;
	while (getrandom(&key, sizeof key, 0) != (ssize_t)sizeof key)
		;
	return key;
}

int verbs_queue_open(struct verbs_port *p, unsigned index, struct nic_err *err)
{
	struct verbs_queue *q = aligned_alloc(64, (sizeof *q + 63) / 64 * 64);
	if (!q)
		return verbs_error(err, -ENOMEM, "verbs: out of memory");
	memset(q, 0, sizeof *q);
	p->queues[index] = q;
	q->base.ops = p->on.rc ? &verbs_rc_queue_ops : p->rc ? &verbs_bulk_queue_ops : &verbs_queue_ops;
	q->port = p;
	q->index = (uint16_t)index;
	q->event_fd = q->epoll_fd = -1;
	q->qkey = draw() & ~VERBS_QKEY_CONTROLLED;
	q->rc_qpn = draw() % (VERBS_QPN_MULTICAST - 2) + 2;
	q->recovery_ns = VERBS_RECOVERY_NS;
	if (open_memory(q))
		return verbs_error(err, -ENOMEM, "verbs: no memory for %u receive buffers; give a smaller rx_slots=",
				   p->args.rx_slots);
	int error = verbs_qp_open(q, err);
	if (!error)
		error = open_wake(q, err);
	if (error)
		return error;
	if (!p->on.rc)
		q->rc_qpn = q->qp->qp_num;
	prepare(q);
	atomic_init(&q->state, VERBS_RUNNING);
	error = p->on.rc && q->rc->per_conn_buffers ? 0 : verbs_rx_fill(q);
	if (error)
		return verbs_error(err, error, "verbs: %s does not accept %u receive buffers: %s", p->on.device,
				   q->rx_n, strerror(-error));
	return 0;
}

void verbs_queue_close(struct verbs_queue *q)
{
	verbs_qp_close(q);
	if (q->epoll_fd >= 0)
		close(q->epoll_fd);
	if (q->event_fd >= 0)
		close(q->event_fd);
	if (q->memory)
		munmap(q->memory, q->memory_bytes);
	free(q->rx_held);
	free(q->rx_posted);
	free(q->rx_wr);
	free(q->rx_sge);
	verbs_bulk_free(q);
	if (q->rc)
		free(q->rc->conns);
	free(q->rc);
	free(q);
}
