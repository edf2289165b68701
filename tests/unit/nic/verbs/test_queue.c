/* SPDX-License-Identifier: BSD-3-Clause */
/** The verbs driver's queues over a device that does what it should, and one that does not. The test's thread. */
#include "verbs_self.h"

Test(verbs_queue, small_ones_inline_some_signalled_all_in_one_post)
{
	uint64_t got[32];
	open_self("mtu=1100,bulk=off");
	for (uint64_t i = 0; i < 10; i++)
		cr_assert_eq(fixture_commit(p, self, i, i < 5 ? fake_verbs.inline_max : fake_verbs.inline_max + 1, 0),
			     0);
	cr_assert(fake_verbs.sent == 0 && fake_verbs.oneways == 0);
	fixture_flush(p);
	cr_assert(fake_verbs.oneways == 1 && fake_verbs.sent == 10 && fake_verbs.sent_inline == 5);
	cr_assert_eq(fixture_take_all(p, 0, 10, got), 10);
	for (uint64_t i = 0; i < 10; i++)
		cr_assert_eq(got[i], i);
	for (unsigned round = 0; round < 100; round++)
		goes_round(round);
	cr_assert_eq(fake_verbs.signalled, (10 + 100) / VERBS_SIGNAL_EVERY);
	cr_assert_eq(fixture_commit(p, self, 0, 1025, 0), -EMSGSIZE);
	fixture_close(p);
}

/* Buffers of a burst are the reader's until the next recv(), which gives all of them back in one post. */
Test(verbs_queue, receive_ring)
{
	struct nic_pkt pkts[64];
	unsigned oneways;
	open_self("rx_slots=64");
	/* More than fit are lost with the device, here they wait in the socket. */
	one_burst(100, 20, VERBS_BURST, pkts, &oneways);
	cr_assert_eq(fake_verbs.recv_posts, oneways);
	for (uint64_t i = 0; i < VERBS_BURST; i++)
		cr_assert_eq(memcmp(pkts[i].body, &i, sizeof i), 0);
	cr_assert_eq(verbs_queue_ops.recv(&p->queues[0]->base, pkts, 64), VERBS_BURST);
	cr_assert_eq(fake_verbs.recv_posts, oneways + 1);
	cr_assert_eq(p->queues[0]->held, VERBS_BURST);
	fixture_close(p);
}

Test(verbs_queue, classes_of_service)
{
	uint64_t got[32];
	open_self("dscp=0/8/10/18/26/34/46/46");
	cr_assert_eq(fake_verbs.ahs, 7); /* two priorities share one */
	for (uint8_t i = 0; i < 8; i++)
		cr_assert_eq(fixture_commit(p, self, i, 20, i), 0);
	cr_assert_eq(fixture_commit(p, self, 8, 20, 255), 0); /* nothing is believed of the caller */
	fixture_flush(p);
	static const uint8_t tos[] = {0, 32, 40, 72, 104, 136, 184, 184, 184};
	for (unsigned i = 0; i < sizeof tos; i++)
		cr_assert_eq(fake_verbs.classes[i], tos[i]);
	cr_assert_eq(fixture_take_all(p, 0, 9, got), 9);
	fixture_close(p);
}

/* InfiniBand has no global route: local identifiers and service levels. */
Test(verbs_queue, infiniband)
{
	struct nic_addr addr;
	char text[64];
	fake_verbs.port.link_layer = IBV_LINK_LAYER_INFINIBAND;
	fake_verbs.port.lid = 7;
	for (unsigned i = 0; i < fake_verbs.gids_n; i++)
		fake_verbs.gids[i].gid_type = IBV_GID_TYPE_IB;
	const struct nic_config config = {.queues = 1, .args = "sl=0/1/2/3/4/5/6/7", .beyond_host = true};
	struct nic_port *port;
	cr_assert_eq(verbs_port_ops.open(&config, &port, &err), 0, "%s", err.text);
	p = (struct verbs_port *)port;
	self = fixture_dest(p, p, 0);
	for (uint8_t i = 0; i < 8; i++)
		cr_assert_eq(fixture_commit(p, self, i, 20, i), 0);
	fixture_flush(p);
	for (uint8_t i = 0; i < 8; i++)
		cr_assert_eq(fake_verbs.classes[i], i);
	verbs_port_ops.address(port, &addr);
	verbs_port_ops.address_text(&addr, text, sizeof text);
	cr_assert_eq(strncmp(text, "verbs lid 7:", 12), 0, "%s", text);
	struct verbs_blob other;
	memcpy(&other, addr.blob, sizeof other);
	other.queue[0].qkey ^= 1;
	other.gid[0] ^= 1;
	memcpy(addr.blob, &other, sizeof other);
	cr_assert_eq(verbs_port_ops.reach(port, &addr, &err), -EHOSTUNREACH);
	cr_assert(strstr(err.text, "another InfiniBand subnet"));
	fixture_close(p);
}

/* Each queue has a key of its own, which others must know. */
Test(verbs_queue, unexpected_keys)
{
	uint64_t got[32], number = 5;
	open_self(NULL);
	const struct verbs_blob *b = &p->blob;
	cr_assert_neq(b->queue[0].qkey, b->queue[1].qkey);
	cr_assert_eq(b->queue[0].qkey & VERBS_QKEY_CONTROLLED, 0);
	fake_verbs_inject(b->queue[0].qpn, b->queue[0].qkey ^ 1, &number, sizeof number);
	fake_verbs_inject(b->queue[0].qpn, b->queue[1].qkey, &number, sizeof number);
	for (unsigned i = 0; i < 30000 && fake_verbs.qkey_violations < 2; i++, usleep(1000))
		cr_assert_eq(fixture_take(p, 0, got), 0);
	cr_assert_eq(fixture_take(p, 0, got), 0);
	cr_assert_eq(fake_verbs.qkey_violations, 2);
	fake_verbs_inject(b->queue[0].qpn, b->queue[0].qkey, &number, sizeof number);
	cr_assert_eq(fixture_take_all(p, 0, 1, got), 1);
	fixture_close(p);
}

/* ---- completions that cannot be ---- */

static unsigned spoils;
static uint64_t real_id;

static bool wrong_opcode(struct ibv_wc *wc)
{
	wc->opcode = IBV_WC_RECV_RDMA_WITH_IMM;
	return true;
}

static bool no_header(struct ibv_wc *wc)
{
	wc->byte_len = VERBS_GRH_BYTES - 1;
	return true;
}

static bool too_long(struct ibv_wc *wc)
{
	wc->byte_len = VERBS_GRH_BYTES + p->mtu + 1;
	return true;
}

static bool beyond_slots(struct ibv_wc *wc)
{
	wc->wr_id = (wc->wr_id & ~UINT64_C(0xffffffff)) | p->queues[0]->rx_n;
	return true;
}

static bool other_generation(struct ibv_wc *wc)
{
	wc->wr_id += UINT64_C(1) << 32;
	return true;
}

/* The second says it is the first's. */
static bool twice(struct ibv_wc *wc)
{
	if (spoils++ % 2 == 0)
		real_id = wc->wr_id;
	else
		wc->wr_id = real_id;
	return true;
}

static bool with_immediate(struct ibv_wc *wc)
{
	wc->wc_flags |= IBV_WC_WITH_IMM;
	return true;
}

/* Until the next has been given. */
static bool held_back(struct ibv_wc *wc)
{
	return false;
}

/* Of two packets so many arrive; the others are counted, and nobody is the worse for it. */
static void spoilt(bool (*how)(struct ibv_wc *), unsigned arrive, unsigned malformed, unsigned unexpected)
{
	uint64_t got[32];
	fake_verbs.spoil_rx = how;
	struct nic_stats before = fixture_stats(p);
	fixture_commit(p, self, 1, 100, 0);
	fixture_commit(p, self, 2, 100, 0);
	fixture_flush(p);
	struct nic_stats after = before;
	unsigned n = 0;
	for (unsigned i = 0; i < 30000; i++, usleep(1000)) {
		n += fixture_take(p, 0, got);
		after = fixture_stats(p);
		if (n + after.rx_malformed - before.rx_malformed + after.rx_unexpected - before.rx_unexpected >= 2)
			break;
	}
	cr_assert_eq(n, arrive);
	cr_assert_eq(after.rx_malformed - before.rx_malformed, malformed);
	cr_assert_eq(after.rx_unexpected - before.rx_unexpected, unexpected);
	fake_verbs.spoil_rx = NULL;
	goes_round(3);
}

Test(verbs_queue, completions_that_cannot_be)
{
	open_self(NULL);
	spoilt(wrong_opcode, 0, 2, 0);
	spoilt(no_header, 0, 2, 0);
	spoilt(too_long, 0, 2, 0);
	spoilt(beyond_slots, 0, 2, 0);
	spoilt(other_generation, 0, 2, 0);
	spoilt(twice, 1, 1, 0);
	spoilt(with_immediate, 0, 0, 2);
	fixture_close(p);
}

Test(verbs_queue, completions_out_of_order)
{
	uint64_t got[32];
	open_self(NULL);
	fake_verbs.spoil_rx = held_back;
	for (uint64_t i = 0; i < 10; i++)
		fixture_commit(p, self, i, 100, 0);
	fixture_flush(p);
	cr_assert_eq(fixture_take_all(p, 0, 10, got), 10);
	for (uint64_t i = 0; i < 10; i++)
		cr_assert_eq(got[i], i ^ 1);
	fake_verbs.spoil_rx = NULL;
	/* Of sends: what completes late is done already. */
	fake_verbs.spoil_tx = held_back;
	for (uint64_t i = 0; i < 3 * VERBS_TX_RING; i++) {
		cr_assert_eq(fixture_commit(p, self, i, 100, 0), 0);
		fixture_flush(p);
		fixture_take(p, 0, got);
	}
	cr_assert_eq(fixture_state(p, 0), VERBS_RUNNING);
	cr_assert(verbs_queue_ops.tx_room(&p->queues[0]->base, self) >= VERBS_TX_SLOTS - VERBS_SIGNAL_EVERY);
	fixture_close(p);
}

/* ---- a device that refuses ---- */

/* Its ring is full: what it did not take waits, in order, and is tried again. */
Test(verbs_queue, full_for_now)
{
	uint64_t got[32];
	open_self(NULL);
	for (int sign = -1; sign <= 1; sign += 2) {
		refusal = sign * ENOMEM;
		accepted = 3;
		fake_verbs.post_send = refuse_after;
		for (uint64_t i = 0; i < 10; i++)
			cr_assert_eq(fixture_commit(p, self, i, 100, 0), 0);
		cr_assert_eq(verbs_queue_ops.deadline(&p->queues[0]->base), UINT64_MAX);
		fixture_flush(p);
		cr_assert_neq(verbs_queue_ops.deadline(&p->queues[0]->base), UINT64_MAX);
		cr_assert_eq(fixture_state(p, 0), VERBS_RUNNING);
		fake_verbs.post_send = NULL;
		unsigned n = fixture_take_all(p, 0, 10, got); /* it pushes as well */
		cr_assert_eq(n, 10);
		for (uint64_t i = 0; i < n; i++)
			cr_assert_eq(got[i], i);
		cr_assert_eq(verbs_queue_ops.deadline(&p->queues[0]->base), UINT64_MAX);
	}
	fixture_close(p);
}

/* A place is let go of while the device takes nothing: its handle must not be in what is sent later. */
Test(verbs_queue, full_when_a_place_goes)
{
	open_self(NULL);
	refusal = ENOMEM;
	accepted = 0;
	fake_verbs.post_send = refuse_after;
	fixture_commit(p, self, 1, 100, 0);
	fixture_flush(p);
	accepted = 0;
	verbs_queue_ops.detach(&p->queues[0]->base, self);
	cr_assert(p->queues[0]->tx_first == NULL);
	cr_assert_eq(fixture_stats(p).tx_dropped, 1);
	verbs_port_ops.drop(&p->base, self);
	fake_verbs.post_send = NULL;
	is_repaired(0);
	self = fixture_dest(p, p, 0);
	goes_round(4);
	fixture_close(p);
}
