/* SPDX-License-Identifier: BSD-3-Clause */
/** The verbs driver's queues over a device that does what it should, and one that does not. The test's thread. */
#include "verbs_fixture.h"

static struct verbs_port *p;
static uint32_t self;

static void open_self(const char *args)
{
	p = fixture_open(args, 2);
	self = fixture_dest(p, p, 0);
}

/* One packet goes round. */
static void goes_round(uint64_t number)
{
	uint64_t got[32];
	cr_assert_eq(fixture_commit(p, self, number, 100, 0), 0);
	fixture_flush(p);
	cr_assert_eq(fixture_take_all(p, 0, 1, got), 1);
	cr_assert_eq(got[0], number);
}

/* The same, behind what was sent before the pair broke and was on its way until now. */
static void comes_behind(uint64_t number)
{
	uint64_t got[16];
	bool here = false;
	cr_assert_eq(fixture_commit(p, self, number, 100, 0), 0);
	fixture_flush(p);
	for (unsigned i = 0; i < 30000 && !here; i++, usleep(1000))
		for (unsigned n = fixture_take(p, 0, got); n && !here; n--)
			here = got[n - 1] == number;
	cr_assert(here);
}

/* The control thread sets a broken pair up, and its holder goes on. */
static void is_repaired(unsigned queue)
{
	struct nic_pkt pkts[16];
	cr_assert_eq(fixture_state(p, queue), VERBS_BROKEN);
	cr_assert_eq(verbs_queue_ops.recv(&p->queues[queue]->base, pkts, 16), 0);
	for (unsigned i = 0; i < 5000 && fixture_state(p, queue) == VERBS_BROKEN; i++, usleep(1000))
		fixture_step(p);
	cr_assert_eq(fixture_state(p, queue), VERBS_RECOVERED);
	verbs_queue_ops.recv(&p->queues[queue]->base, pkts, 16);
	cr_assert_eq(fixture_state(p, queue), VERBS_RUNNING);
	cr_assert_eq(p->queues[queue]->tx_free_n, VERBS_TX_RING);
}

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

/* All of them in one burst: sent again, and waited for a little longer, until they have come by the first look. */
static void one_burst(uint64_t sent, uint64_t len, unsigned want, struct nic_pkt pkts[64], unsigned *oneways)
{
	unsigned n = 0;
	for (unsigned tries = 0; tries < 14 && n != want; tries++) {
		while (verbs_queue_ops.recv(&p->queues[0]->base, pkts, 64))
			;
		for (uint64_t i = 0; i < sent; i++)
			cr_assert_eq(fixture_commit(p, self, i, len, 0), 0);
		fixture_flush(p);
		usleep(500u << tries);
		*oneways = fake_verbs.recv_posts;
		n = verbs_queue_ops.recv(&p->queues[0]->base, pkts, 64);
	}
	cr_assert_eq(n, want);
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

static int refusal;
static unsigned accepted;

static int refuse_after(struct ibv_send_wr *wr)
{
	return accepted-- ? 0 : refusal;
}

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

static void breaks_and_mends(void)
{
	cr_assert_eq(fixture_state(p, 0), VERBS_BROKEN);
	/* Meanwhile what is sent is lost, and counted. */
	uint64_t dropped = fixture_stats(p).tx_dropped;
	for (uint64_t i = 0; i < 4 * VERBS_TX_RING; i++) {
		int error = fixture_commit(p, self, i, 50, 0);
		cr_assert(error == 0 || error == -EAGAIN);
	}
	fixture_flush(p);
	cr_assert(fixture_stats(p).tx_dropped > dropped);
	is_repaired(0);
	comes_behind(9);
	goes_round(10);
	for (uint64_t i = 0; i < 2 * p->queues[0]->rx_n; i++) /* all buffers are there */
		goes_round(i);
}

Test(verbs_queue, send_is_refused)
{
	open_self(NULL);
	refusal = EINVAL;
	accepted = 2;
	fake_verbs.post_send = refuse_after;
	for (uint64_t i = 0; i < 5; i++)
		cr_assert_eq(fixture_commit(p, self, i, 100, 0), 0);
	fixture_flush(p);
	fake_verbs.post_send = NULL;
	cr_assert_eq(fixture_stats(p).tx_dropped, 3);
	breaks_and_mends();
	fixture_close(p);
}

static int refuse_buffer(struct ibv_recv_wr *wr)
{
	return EIO;
}

Test(verbs_queue, buffers_are_refused)
{
	uint64_t got[32];
	open_self(NULL);
	goes_round(1);
	fake_verbs.post_recv = refuse_buffer;
	cr_assert_eq(fixture_take(p, 0, got), 0);
	fake_verbs.post_recv = NULL;
	breaks_and_mends();
	fixture_close(p);
}

/* The device gives up: all that was posted comes back, in this generation and after it. */
Test(verbs_queue, error_state)
{
	uint64_t got[32];
	open_self("rx_slots=100");
	for (unsigned round = 0; round < 3; round++) {
		goes_round(1);
		fake_verbs_break(p->queues[0]->qp->qp_num);
		fixture_commit(p, self, 1, 100, 0);
		fixture_flush(p);
		for (unsigned i = 0; i < 10 && fixture_state(p, 0) == VERBS_RUNNING; i++)
			cr_assert_eq(fixture_take(p, 0, got), 0);
		breaks_and_mends();
	}
	cr_assert_eq(p->queues[0]->epoch, 3);
	cr_assert_eq(fixture_state(p, 1), VERBS_RUNNING); /* the other queue is none the worse */
	fixture_close(p);
}

/* What is readable when the pair is repaired stays so until the next recv(). */
Test(verbs_queue, a_burst_outlives_a_repair)
{
	struct nic_pkt pkts[64];
	uint8_t before[3][200];
	unsigned oneways;
	open_self("rx_slots=64");
	one_burst(3, 200, 3, pkts, &oneways);
	for (unsigned i = 0; i < 3; i++)
		memcpy(before[i], pkts[i].body, 200);
	verbs_queue_broken(p->queues[0]);
	while (fixture_state(p, 0) == VERBS_BROKEN)
		fixture_step(p);
	for (unsigned i = 0; i < 200; i++) { /* commit looks at the state too */
		fixture_commit(p, self, i, 200, 0);
		fixture_flush(p);
	}
	cr_assert_eq(fixture_state(p, 0), VERBS_RUNNING);
	for (unsigned i = 0; i < 3; i++)
		cr_assert_eq(memcmp(before[i], pkts[i].body, 200), 0);
	unsigned posted = 0;
	for (unsigned i = 0; i < 64; i++)
		posted += p->queues[0]->rx_posted[i];
	cr_assert_eq(posted, 61);
	fixture_close(p);
}

/* ---- raw packets ---- */

static int full_error; /* of every fourth that is posted */

static int takes_three(struct ibv_send_wr *wr)
{
	return wr->wr_id % 4 == 3 ? full_error : 0;
}

static unsigned raw_take(uint64_t *last, unsigned want)
{
	unsigned n = 0;
	for (unsigned i = 0; i < 30000 && n < want; i++) {
		unsigned some = verbs_raw_ops.rx(&p->queues[0]->base, 64, last);
		n += some;
		if (!some)
			usleep(1000);
	}
	return n;
}

/* Beside packets of the engine's, in one post each way, for as long as one likes. */
Test(verbs_queue, raw_packets)
{
	uint64_t last = 0, number = 1;
	open_self(NULL);
	struct nic_queue *q = &p->queues[0]->base;
	cr_assert_eq(q->ops->raw, &verbs_raw_ops);
	for (unsigned round = 0; round < 100; round++) {
		unsigned n = 1 + round % 20, oneways = fake_verbs.oneways, recv_posts = fake_verbs.recv_posts;
		cr_assert_eq(q->ops->raw->tx(q, self, number, n, 16 + round), n);
		cr_assert_eq(fake_verbs.oneways, oneways + 1);
		number += n;
		cr_assert_eq(raw_take(&last, n), n);
		cr_assert_eq(last, number - 1);
		cr_assert_gt(fake_verbs.recv_posts, recv_posts);
		if (round % 10 == 0)
			goes_round(round);
	}
	cr_assert_eq(fake_verbs.signalled, (unsigned)(number - 1 + 10) / VERBS_SIGNAL_EVERY);
	/* What is no raw packet is lost here. */
	cr_assert_eq(fixture_commit(p, self, 7, 100, 0), 0);
	fixture_flush(p);
	cr_assert_eq(q->ops->raw->tx(q, self, number, 1, 16), 1);
	cr_assert_eq(raw_take(&last, 1), 1);
	cr_assert_eq(last, number);
	goes_round(8);
	/* Too small, too large, nowhere. */
	cr_assert_eq(q->ops->raw->tx(q, self, 1, 1, 15), 0);
	cr_assert_eq(q->ops->raw->tx(q, self, 1, 1, (unsigned)q->ops->tx_bytes_max(q, self) + 1), 0);
	cr_assert_eq(q->ops->raw->tx(q, self + 1, 1, 1, 16), 0);
	cr_assert_eq(q->ops->raw->tx(q, UINT32_MAX, 1, 1, 16), 0);
	cr_assert_eq(q->ops->raw->tx(&p->queues[1]->base, self, 1, 1, 16), 0, "another queue's");
	fixture_close(p);
}

/* The device takes some of a burst, or breaks: nothing is lost of the rings. */
Test(verbs_queue, raw_packets_that_the_device_does_not_take)
{
	uint64_t last = 0;
	open_self(NULL);
	struct nic_queue *q = &p->queues[0]->base;
	full_error = ENOMEM;
	fake_verbs.post_send = takes_three;
	cr_assert_eq(q->ops->raw->tx(q, self, 1, 10, 16), 3);
	cr_assert_eq(q->ops->raw->tx(q, self, 4, 10, 16), 0);
	fake_verbs.post_send = NULL;
	cr_assert_eq(raw_take(&last, 3), 3);
	cr_assert_eq(last, 3);
	cr_assert_eq(p->queues[0]->tx_free_n, VERBS_TX_RING - 3);
	for (uint64_t i = 0; i < 3 * VERBS_TX_RING; i += 10) {
		cr_assert_eq(q->ops->raw->tx(q, self, i, 10, 16), 10);
		cr_assert_eq(raw_take(&last, 10), 10);
	}
	full_error = EIO;
	fake_verbs.post_send = takes_three;
	cr_assert_lt(q->ops->raw->tx(q, self, 1, 10, 16), 4);
	cr_assert_eq(fixture_state(p, 0), VERBS_BROKEN);
	cr_assert_eq(q->ops->raw->tx(q, self, 1, 10, 16), 0);
	cr_assert_eq(q->ops->raw->rx(q, 10, &last), 0);
	fake_verbs.post_send = NULL;
	is_repaired(0);
	goes_round(1);
	fixture_close(p);
}
