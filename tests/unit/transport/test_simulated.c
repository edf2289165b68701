/* SPDX-License-Identifier: BSD-3-Clause */
/** Links over simulated networks: two ends that take turns at the virtual clock. The test's thread. */
#include "sim_fixture.h"

#include "base/must.h"
#include "transport/transport.h"

#include <criterion/criterion.h>
#include <string.h>

enum { HEAD = 28, PASS_NS = 500 };

struct over {
	struct nic_port *port;
	struct nic_queue *q;
	uint32_t peer;
	unsigned ups, downs, fails, connects;
	uint64_t next; /* step() */
	uint64_t sent, got, got_bytes;
	bool bad;
};
static struct over overs[2];

TestSuite(transport_simulated, .init = sim_fixture_init, .timeout = 60);

static int on_event(void *ctx, const struct nic_event *ev)
{
	struct over *o = ctx;
	o->connects += ev->type == NIC_EVENT_CONNECT;
	o->ups += ev->type == NIC_EVENT_UP;
	o->downs += ev->type == NIC_EVENT_DOWN;
	o->fails += ev->type == NIC_EVENT_FAILED;
	if (ev->type == NIC_EVENT_CONNECT)
		*ev->reply_len = 0;
	if (ev->type == NIC_EVENT_UP)
		o->peer = ev->peer;
	return 0;
}

static void open_over(unsigned e)
{
	struct nic_err err = {""};
	const struct transport_config config = {
		.queues = 1, .head_bytes = HEAD, .clock = sim_host_clock(sim_fixture.ends[e].host)};
	memset(&overs[e], 0, sizeof overs[e]);
	must(transport_open(sim_fixture.ends[e].port, &config, &overs[e].port, &err) == 0);
	sim_fixture.ends[e].port = NULL;
	overs[e].q = overs[e].port->ops->queue(overs[e].port, 0);
}

static void close_over(unsigned e)
{
	if (overs[e].port)
		overs[e].port->ops->close(overs[e].port);
	overs[e].port = NULL;
}

/* ---- messages ---- */

static uint64_t word_of(uint64_t seq, uint64_t i)
{
	return (seq * UINT64_C(0x9e3779b97f4a7c15)) ^ (i * UINT64_C(0xd6e8feb86659fd93));
}

static uint64_t mixed_len(uint64_t seq)
{
	uint64_t x = (seq + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 20;
	return (x % 50 == 0 ? x % 1000000 : x % 5 == 0 ? x % 20000 : x % 300) & ~(uint64_t)7;
}

static bool send_next(struct over *o)
{
	uint64_t len = mixed_len(o->sent);
	struct nic_tx tx;
	if (o->q->ops->tx_reserve(o->q, o->peer, len, &tx))
		return false;
	memset(tx.head, 0, HEAD);
	memcpy(tx.head, &o->sent, 8);
	for (uint64_t i = 0; i < len; i += 8) {
		uint64_t word = word_of(o->sent, i);
		memcpy(tx.body + i, &word, 8);
	}
	if (o->q->ops->tx_commit(o->q, &tx)) {
		o->q->ops->tx_cancel(o->q, &tx);
		return false;
	}
	o->sent++;
	return true;
}

static bool is_next(const struct over *o, const struct nic_pkt *pkt)
{
	uint64_t seq, word;
	if (!pkt->head)
		return false;
	memcpy(&seq, pkt->head, 8);
	if (seq != o->got || pkt->body_len != mixed_len(seq))
		return false;
	for (uint64_t i = 0; i < pkt->body_len; i += 8) {
		memcpy(&word, pkt->body + i, 8);
		if (word != word_of(seq, i))
			return false;
	}
	return true;
}

/* true: something came. */
static bool take_all(struct over *o)
{
	struct nic_pkt pkts[16];
	unsigned n = o->q->ops->recv(o->q, pkts, 16);
	for (unsigned i = 0; i < n; i++) {
		o->bad |= !is_next(o, &pkts[i]);
		o->got++;
		o->got_bytes += pkts[i].body_len;
		if (pkts[i].cookie)
			o->q->ops->release(o->q, pkts[i].peer, pkts[i].cookie);
	}
	o->q->ops->flush(o->q);
	return n > 0;
}

/* ---- turns ---- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* A turn of every end that runs; then time passes, as far as the next thing that is to happen. */
static void turn(void)
{
	uint64_t now = sim_now(sim_fixture.sim), next = TIME_NEVER;
	for (unsigned e = 0; e < 2; e++) {
		struct over *o = &overs[e];
		struct sim_host *host = sim_fixture.ends[e].host;
		if (!o->port || sim_host_state(host) != SIM_RUNNING)
			continue;
		o->next = o->port->ops->step(o->port, clock_now(sim_host_clock(host)), on_event, o);
		if (take_all(o))
			next = now;
		next = earlier(next, sim_host_when(host, earlier(o->next, o->q->ops->deadline(o->q))));
	}
	next = earlier(next, sim_next(sim_fixture.sim));
	sim_run_until(sim_fixture.sim, next > now + PASS_NS && next != TIME_NEVER ? next : now + PASS_NS);
}

static void up(void)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	open_over(0);
	open_over(1);
	overs[1].port->ops->address(overs[1].port, &addr);
	must(overs[0].port->ops->connect(
		     overs[0].port,
		     &(struct nic_connect){0, &addr, 0, "", 0,
					   clock_now(sim_host_clock(sim_fixture.ends[0].host)) + UINT64_C(10000000000),
					   &overs[0]},
		     &err) == 0);
	uint64_t limit = sim_now(sim_fixture.sim) + UINT64_C(10000000000);
	while ((!overs[0].ups || !overs[1].ups) && sim_now(sim_fixture.sim) < limit)
		turn();
	cr_assert(overs[0].ups == 1 && overs[1].ups == 1);
	for (unsigned e = 0; e < 2; e++)
		cr_assert_eq(overs[e].q->ops->attach(overs[e].q, overs[e].peer), 0);
}

/* Both send until each has got so many bytes; false: not within so much virtual time. */
static bool exchange(uint64_t bytes, uint64_t within_ns)
{
	uint64_t limit = sim_now(sim_fixture.sim) + within_ns;
	while ((overs[0].got_bytes < bytes || overs[1].got_bytes < bytes) && sim_now(sim_fixture.sim) < limit) {
		for (unsigned e = 0; e < 2; e++)
			for (unsigned n = 0; n < 8 && sim_host_state(sim_fixture.ends[e].host) == SIM_RUNNING; n++)
				if (overs[e].sent > overs[e ^ 1].got + 1000 || !send_next(&overs[e]))
					break;
		turn();
		if (overs[0].bad || overs[1].bad || sim_failure(sim_fixture.sim))
			return false;
	}
	return overs[0].got_bytes >= bytes && overs[1].got_bytes >= bytes;
}

static void down(void)
{
	cr_assert_null(sim_failure(sim_fixture.sim));
	close_over(0);
	close_over(1);
	sim_fixture_fini();
}

static void disturb_all(const struct sim_disturbance *what)
{
	for (unsigned e = 0; e < 2; e++) {
		cr_assert_eq(sim_link_disturb(sim_uplink(sim_fixture.ends[e].host, 0), what), 0);
		cr_assert_eq(sim_pair_disturb(sim_fixture.ends[e].host, sim_fixture.ends[e ^ 1].host, what), 0);
	}
}

Test(transport_simulated, undisturbed)
{
	sim_fixture_open(2);
	up();
	cr_assert(exchange(10000000, UINT64_C(10000000000)));
	struct sim_stats s;
	sim_stats(sim_fixture.sim, &s);
	cr_assert_eq(overs[0].downs + overs[1].downs, 0);
	down();
}

/* A hundred million bytes through a network that disturbs a hundredth of the packets in each way. */
Test(transport_simulated, a_hundred_megabytes_disturbed)
{
	const struct sim_disturbance some = {.loss = SIM_CERTAIN / 200,
					     .burst_begin = SIM_CERTAIN / 4000,
					     .burst_end = SIM_CERTAIN / 10,
					     .duplicate = SIM_CERTAIN / 100,
					     .reorder = SIM_CERTAIN / 100,
					     .reorder_ns = 20000,
					     .corrupt = SIM_CERTAIN / 100,
					     .cut = SIM_CERTAIN / 100};
	sim_fixture.args = "align=4";
	sim_fixture.host.clock_offset_ns = 12345;
	sim_fixture.host.clock_skew_ppb = 40000;
	sim_fixture.config.topology.host.mtu = 9000;
	sim_fixture_open(2);
	up();
	disturb_all(&some);
	cr_assert(exchange(50000000, UINT64_C(300000000000)), "%llu and %llu bytes came",
		  (unsigned long long)overs[0].got_bytes, (unsigned long long)overs[1].got_bytes);
	cr_assert_eq(overs[0].downs + overs[1].downs, 0);
	struct sim_stats s;
	sim_stats(sim_fixture.sim, &s);
	cr_assert(s.dropped[SIM_DROP_LOSS] > s.sent / 200 && s.duplicated > s.sent / 200 && s.corrupted > s.sent / 200);
	down();
}

/* Whatever becomes of the set-up's packets too, and with hash-steered queues, held packets and kicks. */
Test(transport_simulated, set_up_over_a_bad_network)
{
	static const char *const args[] = {"hash", "hold,rx=256", "kick", "rx=32,tx=16,copy"};
	const struct sim_disturbance bad = {.loss = SIM_CERTAIN / 10,
					    .duplicate = SIM_CERTAIN / 10,
					    .reorder = SIM_CERTAIN / 10,
					    .corrupt = SIM_CERTAIN / 10};
	for (unsigned i = 0; i < 4; i++) {
		sim_fixture_init();
		sim_fixture.config.seed = 10 + i;
		sim_fixture.args = args[i];
		sim_fixture_open(2);
		disturb_all(&bad);
		up();
		cr_assert(exchange(500000, UINT64_C(300000000000)), "%s", args[i]);
		down();
	}
}

/* A partition shorter than the limit is survived, a longer one is noticed by both. */
Test(transport_simulated, partitions_are_survived_or_noticed)
{
	sim_fixture_open(2);
	up();
	cr_assert(exchange(100000, UINT64_C(10000000000)));
	sim_partition(sim_fixture.ends[0].host, sim_fixture.ends[1].host, true);
	cr_assert_not(exchange(UINT64_MAX, 300000000));
	sim_heal(sim_fixture.sim);
	cr_assert(exchange(overs[0].got_bytes + 1000000, UINT64_C(20000000000)));
	cr_assert_eq(overs[0].downs + overs[1].downs, 0);
	sim_partition(sim_fixture.ends[0].host, sim_fixture.ends[1].host, true);
	sim_partition(sim_fixture.ends[1].host, sim_fixture.ends[0].host, true);
	uint64_t limit = sim_now(sim_fixture.sim) + UINT64_C(20000000000);
	while ((!overs[0].downs || !overs[1].downs) && sim_now(sim_fixture.sim) < limit)
		turn();
	cr_assert(overs[0].downs == 1 && overs[1].downs == 1);
	down();
}

/* The path becomes narrower while messages are on their way, below what a link cuts to as well; and wide again. */
Test(transport_simulated, a_path_that_becomes_narrow)
{
	static const uint32_t mtus[] = {9000, 4000, 1500, 1400, 1000, 576, 9000};
	struct sim_shape shape;
	sim_fixture.config.topology.host.mtu = 9000;
	sim_fixture_open(2);
	up();
	for (unsigned i = 0; i < sizeof mtus / sizeof *mtus; i++) {
		for (unsigned e = 0; e < 2; e++) {
			sim_link_shape(sim_downlink(sim_fixture.ends[e].host, 0), &shape);
			shape.mtu = mtus[i];
			cr_assert_eq(sim_link_reshape(sim_downlink(sim_fixture.ends[e].host, 0), &shape), 0);
		}
		cr_assert(exchange(overs[0].got_bytes + 1000000, UINT64_C(30000000000)), "MTU %u", mtus[i]);
	}
	cr_assert_eq(overs[0].downs + overs[1].downs, 0);
	down();
}

/* A pause shorter than the limit: the receive ring overflows, and what was lost comes again. */
Test(transport_simulated, a_pause_loses_nothing)
{
	sim_fixture.args = "rx=16";
	sim_fixture_open(2);
	up();
	cr_assert(exchange(100000, UINT64_C(10000000000)));
	for (unsigned i = 0; i < 5; i++) {
		sim_host_pause(sim_fixture.ends[1].host);
		cr_assert_not(exchange(UINT64_MAX, 200000000));
		sim_host_resume(sim_fixture.ends[1].host);
		cr_assert(exchange(overs[0].got_bytes + 200000, UINT64_C(20000000000)));
	}
	struct sim_host_stats stats;
	sim_host_stats(sim_fixture.ends[1].host, &stats);
	cr_assert_gt(stats.dropped[SIM_DROP_RING], 0);
	cr_assert_eq(overs[0].downs + overs[1].downs, 0);
	down();
}

/* ---- the ring below ---- */

static void put(struct over *o, uint64_t seq, uint64_t len)
{
	struct nic_tx tx;
	must(o->q->ops->tx_reserve(o->q, o->peer, len, &tx) == 0);
	memset(tx.head, 0, HEAD);
	memcpy(tx.head, &seq, 8);
	memset(tx.body, 0, len);
	tx.order = NIC_ORDER_NONE;
	must(o->q->ops->tx_commit(o->q, &tx) == 0);
	o->q->ops->flush(o->q);
}

/* A long message leaves over a ring that has room for all of it, and small ones beside it. Expect little of it in the
 * ring at any time, small ones soon, and the wire busy all the same. */
Test(transport_simulated, little_of_a_long_message_is_in_the_ring)
{
	enum { BYTES = 8 << 20, MOST = 48 << 10, SMALL_NS = 20000 };
	sim_fixture.args = "tx=8192";
	sim_fixture_open(2);
	up();
	struct nic_port *lower = transport_lower(overs[0].port);
	struct nic_queue *q = lower->ops->queue(lower, 0);
	uint64_t begin = sim_now(sim_fixture.sim), over = 0, sent_at = 0, smalls = 0;
	bool out = false;
	put(&overs[0], 0, BYTES);
	while (!over && sim_now(sim_fixture.sim) < begin + UINT64_C(10000000)) {
		struct nic_pkt pkts[16];
		unsigned n = overs[1].q->ops->recv(overs[1].q, pkts, 16);
		for (unsigned i = 0; i < n; i++) {
			if (pkts[i].body_len == BYTES) {
				over = sim_now(sim_fixture.sim);
			} else {
				cr_assert_leq(sim_now(sim_fixture.sim) - sent_at, SMALL_NS);
				smalls++;
				out = false;
			}
			if (pkts[i].cookie)
				overs[1].q->ops->release(overs[1].q, pkts[i].peer, pkts[i].cookie);
		}
		overs[1].q->ops->flush(overs[1].q);
		take_all(&overs[0]);
		cr_assert_leq(q->ops->tx_waiting(q, UINT64_MAX), MOST);
		if (!out) {
			put(&overs[0], 1, 40);
			sent_at = sim_now(sim_fixture.sim);
			out = true;
		}
		sim_run_until(sim_fixture.sim, sim_now(sim_fixture.sim) + PASS_NS);
	}
	cr_assert(over != 0);
	cr_assert_gt(smalls, 50);
	/* 100 Gb/s, headers and the ring's beginning included. */
	cr_assert_leq(over - begin, UINT64_C(8) * BYTES / 100 * 5 / 4);
	cr_assert_eq(overs[0].downs + overs[1].downs, 0);
	down();
}
