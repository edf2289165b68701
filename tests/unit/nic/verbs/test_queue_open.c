/* SPDX-License-Identifier: BSD-3-Clause */
/** The memory of a queue: where its buffers are, which keys it has, and what is left of one that did not open.
 * The test's thread. */
#include "verbs_fixture.h"

#include "nic/verbs/bulk.h"
#include "open_files.h"

#include <stdlib.h>

/* Buffers are aligned, apart from each other, and within the memory that is registered. */
static void buffers_of(const char *args, uint32_t grh)
{
	struct verbs_port *p = fixture_open(args, 1);
	const struct verbs_queue *q = p->queues[0];
	cr_assert_eq(q->mr->addr, q->memory);
	cr_assert_eq(q->mr->length, q->memory_bytes);
	uintptr_t end = (uintptr_t)q->memory;
	for (uint32_t i = 0; i < q->rx_n; i++) {
		const struct ibv_sge *sge = &q->rx_sge[i];
		cr_assert_geq(sge->addr, end);
		cr_assert_eq((sge->addr + grh) % 64, VERBS_BODY_ALIGN);
		cr_assert(sge->length == grh + p->mtu && sge->lkey == q->mr->lkey);
		cr_assert(q->rx_wr[i].sg_list == sge && q->rx_wr[i].num_sge == 1);
		end = (uintptr_t)sge->addr + sge->length;
	}
	cr_assert_leq(end, (uintptr_t)q->tx_memory);
	cr_assert_geq(q->tx_stride, p->mtu);
	bool seen[VERBS_TX_RING] = {false};
	cr_assert_eq(q->tx_free_n, VERBS_TX_RING);
	for (uint32_t i = 0; i < VERBS_TX_RING; i++) {
		cr_assert(q->tx_free[i] < VERBS_TX_RING && !seen[q->tx_free[i]]);
		seen[q->tx_free[i]] = true;
		cr_assert_eq(q->tx_sge[i].addr % 64, 0u);
		cr_assert_eq(q->tx_sge[i].addr, (uintptr_t)q->tx_memory + i * q->tx_stride);
	}
	cr_assert_leq((uintptr_t)q->tx_memory + VERBS_TX_RING * q->tx_stride, (uintptr_t)q->memory + q->memory_bytes);
	fixture_close(p);
}

Test(verbs_queue_open, buffers)
{
	buffers_of("bulk=off", VERBS_GRH_BYTES);
	buffers_of("fake0,gid=2,rx_slots=64,mtu=1024", VERBS_GRH_BYTES);
	fake_verbs.port.active_mtu = IBV_MTU_2048;
	buffers_of("fake0,gid=2,rx_slots=100,mtu=1100", VERBS_GRH_BYTES);
	buffers_of("fake0,gid=2,rc=1", 0);
}

/* Names cannot be guessed: each queue draws its own, and a device would replace none. */
Test(verbs_queue_open, keys)
{
	struct verbs_port *p = fixture_open("fake0,gid=2,rc=1,connections=2", VERBS_QUEUES_MAX);
	for (unsigned i = 0; i < VERBS_QUEUES_MAX; i++) {
		const struct verbs_queue *q = p->queues[i];
		cr_assert_eq(q->qkey & VERBS_QKEY_CONTROLLED, 0u);
		cr_assert(q->rc_qpn >= 2 && q->rc_qpn < VERBS_QPN_MULTICAST);
		cr_assert_eq(p->blob.queue[i].qkey, q->qkey);
		for (unsigned k = 0; k < i; k++)
			cr_assert(q->qkey != p->queues[k]->qkey || q->rc_qpn != p->queues[k]->rc_qpn);
	}
	fixture_close(p);
	p = fixture_open("bulk=off", 1);
	cr_assert_eq(p->queues[0]->rc_qpn, p->queues[0]->qp->qp_num, "of datagrams it is the queue pair's number");
	fixture_close(p);
}

static int refuse_buffer(struct ibv_recv_wr *wr)
{
	return ENOMEM;
}

/* Descriptors and memory of a queue whose buffers the device does not accept are given back. */
Test(verbs_queue_open, buffers_that_are_not_accepted)
{
	const struct nic_config config = {.queues = 2, .args = "fake0,gid=2,bulk=off,rx_slots=64"};
	struct nic_port *port = NULL;
	unsigned files = open_files();
	fake_verbs.post_recv = refuse_buffer;
	cr_assert_eq(verbs_port_ops.open(&config, &port, &err), -ENOMEM);
	cr_assert(strstr(err.text, "fake0 does not accept 64 receive buffers"), "%s", err.text);
	cr_assert_eq(open_files(), files);
	cr_assert(!port && fake_verbs.qps == 0 && fake_verbs.cqs == 0 && fake_verbs.mrs == 0 && fake_verbs.pds == 0);
}
