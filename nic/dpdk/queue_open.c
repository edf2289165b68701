/* SPDX-License-Identifier: BSD-3-Clause */
/** Creates and frees queues, and keeps them out of the device. Control thread. */
#include "nic/dpdk/dpdk.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_kick(struct dpdk_port *p, unsigned index, struct nic_err *err)
{
	if (p->args.class == DPDK_MEMIF)
		return dpdk_memif_kick_open(p, index, err);
	if (p->args.class != DPDK_IFACE || index >= p->kicks.n)
		return -1;
	int fd = p->kicks.fds[index]; /* ownership moves to the queue */
	p->kicks.fds[index] = -1;
	return fd;
}

static void queue_lanes(struct dpdk_queue *q)
{
	bool memif = q->port->args.class == DPDK_MEMIF;
	for (unsigned i = 0; i < q->tx_queues_n; i++)
		q->tx_queues[i].ring = (uint16_t)(memif                  ? q->index * q->queues_n + i
						  : q->port->shares_ring ? 0
									 : q->index);
	q->rx_first = q->port->shares_ring ? 0 : q->index;
	q->turn = q->port->shares_ring ? &q->port->ring_taken : NULL;
	q->rx_step = (uint16_t)q->queues_n;
	unsigned xdp_rings = q->port->xdp_rings;
	q->rx_rings = (uint16_t)(memif       ? q->queues_n
				 : xdp_rings ? (xdp_rings - q->index + q->queues_n - 1) / q->queues_n
					     : 1);
}

int dpdk_queue_open(struct dpdk_port *p, unsigned index, struct nic_err *err)
{
	struct dpdk_queue *q = aligned_alloc(64, (sizeof *q + 63) / 64 * 64);
	if (!q)
		return dpdk_error(err, -ENOMEM, "dpdk: out of memory");
	memset(q, 0, sizeof *q);
	p->queues[index] = q;
	q->base.ops = p->args.class == DPDK_OWN     ? &dpdk_timer_queue_ops
		      : p->args.class == DPDK_MEMIF ? &dpdk_memif_queue_ops
						    : &dpdk_queue_ops;
	q->port = p;
	q->ethdev = p->ethdev;
	q->index = (uint16_t)index;
	q->queues_n = p->queues_n;
	q->pool = p->pools[index];
	q->me = dpdk_blob_frame_addr(&p->blob);
	q->tx_queues_n = (uint16_t)(p->args.class == DPDK_MEMIF ? p->queues_n : 1);
	q->wake = (struct host_wake){.fd = -1, .event = -1, .kick = -1, .timer = -1};
	q->sender = -1;
	q->tx_queues = calloc(q->tx_queues_n, sizeof *q->tx_queues);
	if (!q->tx_queues)
		return dpdk_error(err, -ENOMEM, "dpdk: out of memory");
	queue_lanes(q);
	unsigned tag_len = p->args.vlan ? DPDK_TAG_BYTES : 0;
	unsigned least = RTE_PKTMBUF_HEADROOM + tag_len + p->head_len + p->rx_shift;
	q->body_at = (uint16_t)(least + (64 + DPDK_BODY_ALIGN - least % 64) % 64 - p->rx_shift);
	q->sum = p->udp_sums ? FRAME_SUM_PSEUDO : p->args.class == DPDK_MEMIF ? FRAME_SUM_NONE : FRAME_SUM_FULL;
	if (p->udp_sums) {
		struct rte_mbuf m = {.l2_len = FRAME_MAC_BYTES + tag_len,
				     .l3_len = p->head_len - FRAME_MAC_BYTES - FRAME_UDP_BYTES};
		q->tx_flags = (p->blob.v6 ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4) | RTE_MBUF_F_TX_UDP_CKSUM;
		q->tx_offload = m.tx_offload;
	}
	if (tag_len) {
		uint8_t tag[DPDK_TAG_BYTES] = {0x81, 0, (uint8_t)(p->args.vlan >> 8), (uint8_t)p->args.vlan};
		memcpy(&q->tag, tag, sizeof tag);
	}
	int error = p->args.class == DPDK_MEMIF ? dpdk_refer_open(q, err) : 0;
	if (!error && p->args.class == DPDK_MEMIF)
		error = dpdk_places_open(q, err);
	if (error)
		return error;
	q->fence = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0;
	int kick = open_kick(p, index, err);
	if (kick < -1)
		return kick;
	error = host_wake_open(&q->wake, kick, err);
	if (error && kick >= 0)
		close(kick);
	if (!error && p->args.class == DPDK_OWN && host_wake_timer_open(&q->wake))
		error = dpdk_error(err, -errno, "dpdk: cannot create a wake-up timer: %s; see `ulimit -n`",
				   strerror(errno));
	return error;
}

void dpdk_queue_close(struct dpdk_queue *q)
{
	if (q->wake.kick >= 0 && q->port->args.class == DPDK_MEMIF)
		dpdk_memif_kick_unlink(q->port, q->index);
	host_wake_close(&q->wake);
	if (q->sender >= 0)
		close(q->sender);
	for (unsigned i = 0; i < DPDK_QUEUES_MAX; i++)
		free(atomic_load_explicit(&q->forward_rings[i], memory_order_relaxed));
	rte_mempool_free(q->tails);
	free(q->places);
	free(q->tx_queues);
	free(q->exception_path);
	free(q);
}

int dpdk_queues_forward(struct dpdk_port *p, struct nic_err *err)
{
	for (unsigned i = 0; i < p->queues_n; i++) {
		for (unsigned j = 0; j < p->queues_n; j++)
			if (i != j && !dpdk_queue_forward_ring(p->queues[i], j))
				return dpdk_error(err, -ENOMEM, "dpdk: out of memory");
		p->queues[i]->forwards_rx = p->queues_n > 1;
	}
	return 0;
}

struct forward_ring *dpdk_queue_forward_ring(struct dpdk_queue *q, unsigned from)
{
	struct forward_ring *l = atomic_load_explicit(&q->forward_rings[from], memory_order_relaxed);
	if (l)
		return l;
	uint32_t slot = (uint32_t)(DPDK_BODY_ALIGN + q->port->body_max + 63) / 64 * 64;
	size_t bytes = sizeof *l + (size_t)FORWARD_SLOTS * slot;
	l = aligned_alloc(64, (bytes + 63) / 64 * 64);
	if (!l)
		return NULL;
	memset(l, 0, sizeof *l);
	l->slot_bytes = slot;
	l->body_at = DPDK_BODY_ALIGN;
	atomic_store_explicit(&q->forward_rings[from], l, memory_order_release);
	if (atomic_load_explicit(&q->forward_rings_n, memory_order_relaxed) <= from)
		atomic_store_explicit(&q->forward_rings_n, from + 1, memory_order_release);
	return l;
}

int dpdk_shut(struct dpdk_port *p, enum dpdk_shut how)
{
	uint64_t limit = dpdk_now() + UINT64_C(1000000000);
	atomic_store_explicit(&p->shut, (uint32_t)how, memory_order_seq_cst);
	atomic_thread_fence(memory_order_seq_cst);
	/* Partner: dpdk_enter(). After it each queue has seen `shut`, or is seen busy below. */
	syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
	for (unsigned i = 0; i < p->queues_n; i++)
		while (p->queues[i] && atomic_load_explicit(&p->queues[i]->busy, memory_order_acquire)) {
			if (dpdk_now() > limit)
				return -ETIMEDOUT;
			sched_yield();
		}
	return 0;
}
