/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Neighbours that ask for our address, and pings: a shard puts what may be a question aside, the control core answers,
 * the shard sends. For devices whose address is not the kernel's.
 */
#include "nic/dpdk/dpdk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

int dpdk_neighbour_open(struct dpdk_port *p, struct nic_err *err)
{
	for (unsigned i = 0; i < p->queues_n; i++) {
		struct aside *a = aligned_alloc(_Alignof(struct aside), sizeof *a);
		if (!a)
			return dpdk_error(err, -ENOMEM, "dpdk: out of memory");
		memset(a, 0, sizeof *a);
		p->queues[i]->aside = a;
	}
	return 0;
}

int dpdk_neighbour_listen(struct dpdk_port *p, struct nic_err *err)
{
	const uint8_t *ip = p->blob.ip;
	struct rte_ether_addr group = {{0x33, 0x33, 0xff, ip[13], ip[14], ip[15]}};
	if (!p->blob.v6 || rte_eth_dev_set_mc_addr_list(p->ethdev, &group, 1) == 0)
		return 0;
	int error = rte_eth_allmulticast_enable(p->ethdev);
	return error && error != -ENOTSUP
		       ? dpdk_error(err, error, "dpdk: %s takes no groups, where IPv6 asks for addresses: %s; use IPv4",
				    p->args.name, strerror(-error))
		       : 0;
}

void dpdk_neighbour_note(struct dpdk_queue *q, const uint8_t *frame, unsigned len)
{
	struct aside_ring *in = &q->aside->in;
	struct aside_frame *to;
	if (!answer_wanted(&q->me, frame, len) || !(to = aside_room(in)))
		return;
	to->len = len;
	memcpy(to->bytes, frame, len);
	aside_put(in);
	/* One write for all that comes before it is looked at. Partner: the exchange in dpdk_neighbour_step(). */
	if (!atomic_exchange_explicit(&q->aside->told, 1, memory_order_acq_rel))
		eventfd_write(q->port->event_fd, 1);
}

void dpdk_neighbour_step(struct dpdk_port *p)
{
	for (unsigned i = 0; i < p->queues_n; i++) {
		struct dpdk_queue *q = p->queues[i];
		const struct aside_frame *asked;
		struct aside_frame *to;
		bool any = false;
		if (q->aside)
			atomic_exchange_explicit(&q->aside->told, 0, memory_order_acq_rel);
		while (q->aside && (asked = aside_next(&q->aside->in))) {
			if ((to = aside_room(&q->aside->out)) &&
			    (to->len = answer_write(&q->me, asked->bytes, asked->len, to->bytes)) > 0) {
				aside_put(&q->aside->out);
				any = true;
			}
			aside_give(&q->aside->in);
		}
		if (any)
			host_wake_signal(&q->wake);
	}
}

void dpdk_neighbour_send(struct dpdk_queue *q)
{
	struct dpdk_lane *lane = &q->lanes[0];
	const struct aside_frame *from;
	void *got;
	/* What is reserved has its room. */
	while (lane->n + q->open < DPDK_TX_MAX && (from = aside_next(&q->aside->out)) &&
	       rte_mempool_generic_get(q->pool, &got, 1, NULL) == 0) {
		struct rte_mbuf *m = got;
		uint32_t tag_len = q->tag ? DPDK_TAG_BYTES : 0;
		m->ol_flags = 0;
		m->tx_offload = 0;
		m->data_off = RTE_PKTMBUF_HEADROOM;
		m->pkt_len = from->len + tag_len;
		m->data_len = (uint16_t)m->pkt_len;
		uint8_t *frame = rte_pktmbuf_mtod_offset(m, uint8_t *, tag_len);
		memcpy(frame, from->bytes, from->len);
		if (q->tag)
			dpdk_tag_put(frame, q->tag);
		aside_give(&q->aside->out);
		lane->m[lane->n++] = m;
		q->waiting++;
	}
}
