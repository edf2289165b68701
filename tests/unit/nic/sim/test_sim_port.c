/* SPDX-License-Identifier: BSD-3-Clause */
/** A host's NIC: rings, sleep, pause, crash and restart, addresses. The test's thread. */
#include "sim_fixture.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

TestSuite(sim_port, .init = sim_fixture_init, .fini = sim_fixture_fini);

static struct sim_host_stats stats_of(unsigned e)
{
	struct sim_host_stats stats;
	sim_host_stats(sim_fixture.ends[e].host, &stats);
	return stats;
}

static void send_many(unsigned from, uint32_t place, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		cr_assert_eq(sim_fixture_send(from, place, i, 64), 0);
	sim_fixture_run(1000000);
}

static bool is_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	cr_assert_geq(fd, 0);
	return poll(&p, 1, 0) == 1;
}

Test(sim_port, a_receive_ring_overflows)
{
	sim_fixture.args = "rx=8";
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	send_many(0, at_1, 20);
	cr_assert_eq(stats_of(1).dropped[SIM_DROP_RING], 12);
	cr_assert_eq(stats_of(1).rx_packets, 8);
	struct nic_stats port;
	sim_fixture.ends[1].port->ops->stats(sim_fixture.ends[1].port, &port);
	cr_assert(port.rx_missed == 12 && port.rx_packets == 8);
	/* The oldest are kept, and what is in hand keeps its slot until the next recv(). */
	struct nic_queue *q = sim_fixture.ends[1].q;
	struct nic_pkt pkts[16];
	cr_assert_eq(q->ops->recv(q, pkts, 5), 5);
	send_many(0, at_1, 20);
	cr_assert_eq(stats_of(1).dropped[SIM_DROP_RING], 32);
	cr_assert_eq(q->ops->recv(q, pkts, 16), 3);
	send_many(0, at_1, 20);
	cr_assert_eq(q->ops->recv(q, pkts, 16), 5);
	cr_assert_eq(q->ops->recv(q, pkts, 16), 0);
	cr_assert_eq(stats_of(1).rx_taken, 13);
	struct sim_stats s;
	sim_stats(sim_fixture.sim, &s);
	cr_assert_eq(s.sent, s.arrived + s.dropped[SIM_DROP_RING]);
}

Test(sim_port, held_packets_keep_their_slots)
{
	sim_fixture.args = "rx=8,hold";
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	struct nic_queue *q = sim_fixture.ends[1].q;
	struct nic_pkt pkts[16], more[16];
	struct nic_caps caps;
	sim_fixture.ends[1].port->ops->caps(sim_fixture.ends[1].port, &caps);
	cr_assert(caps.zero_copy_rx);
	send_many(0, at_1, 8);
	cr_assert_eq(q->ops->recv(q, pkts, 16), 8);
	send_many(0, at_1, 8);
	cr_assert_eq(q->ops->recv(q, more, 16), 0);
	cr_assert_eq(stats_of(1).dropped[SIM_DROP_RING], 8);
	for (unsigned i = 0; i < 8; i++) {
		uint64_t seq;
		memcpy(&seq, pkts[i].body, 8);
		cr_assert(seq == i && pkts[i].cookie);
	}
	q->ops->release(q, NIC_PEER_NONE, pkts[3].cookie);
	q->ops->release(q, NIC_PEER_NONE, pkts[3].cookie); /* a mistake without effect */
	q->ops->release(q, NIC_PEER_NONE, 4711);
	q->ops->release(q, NIC_PEER_NONE, 0);
	send_many(0, at_1, 8);
	cr_assert_eq(q->ops->recv(q, more, 16), 1);
	/* Those that are still held at close are freed. */
}

Test(sim_port, bodies_are_no_more_aligned_than_promised)
{
	static const char *const args[] = {"align=1", "align=2", "align=4", "align=32", "align=64"};
	static const unsigned aligns[] = {1, 2, 4, 32, 64};
	for (unsigned i = 0; i < 5; i++) {
		sim_fixture_init();
		sim_fixture.args = args[i];
		sim_fixture_open(2);
		uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
		struct nic_pkt pkt;
		for (unsigned len = 8; len < 80; len++) {
			uint64_t seq;
			bool intact;
			cr_assert_eq(sim_fixture_send(0, at_1, len, len), 0);
			sim_fixture_run(10000);
			cr_assert(sim_fixture_take(1, &seq, &intact) && intact && seq == len);
			cr_assert_eq(sim_fixture_send(0, at_1, len, len), 0);
			sim_fixture_run(10000);
			cr_assert_eq(sim_fixture.ends[1].q->ops->recv(sim_fixture.ends[1].q, &pkt, 1), 1);
			cr_assert_eq((uintptr_t)pkt.body % aligns[i], 0);
			cr_assert(aligns[i] == 64 || (uintptr_t)pkt.body % (2 * aligns[i]));
		}
		sim_fixture_fini();
	}
}

/* ---- pause, crash, restart ---- */

Test(sim_port, a_paused_host_is_still_and_its_nic_is_not)
{
	sim_fixture.args = "rx=8";
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0), at_0 = sim_fixture_dest(1, 0, 0, 0);
	for (unsigned i = 0; i < 3; i++)
		cr_assert_eq(sim_fixture_send(1, at_0, i, 64), 0);
	sim_host_pause(sim_fixture.ends[1].host);
	cr_assert_eq(sim_host_state(sim_fixture.ends[1].host), SIM_PAUSED);
	unsigned wakes = sim_fixture.ends[1].wakes;
	send_many(0, at_1, 12);
	cr_assert_eq(sim_fixture_drain(0), 3);
	cr_assert_eq(sim_fixture_drain(1), 0);
	cr_assert_eq(sim_fixture_send(1, at_0, 4, 64), -EAGAIN);
	cr_assert_eq(sim_fixture.ends[1].q->ops->tx_room(sim_fixture.ends[1].q, at_0), 0);
	cr_assert_eq(stats_of(1).dropped[SIM_DROP_RING], 4);
	cr_assert_eq(sim_fixture.ends[1].wakes, wakes);
	sim_host_resume(sim_fixture.ends[1].host);
	cr_assert_eq(sim_fixture.ends[1].wakes, wakes + 1);
	cr_assert_eq(sim_fixture_drain(1), 8);
	cr_assert_eq(sim_fixture_send(1, at_0, 4, 64), 0);
	sim_fixture_run(100000);
	cr_assert_eq(sim_fixture_drain(0), 1);
}

Test(sim_port, a_crash_ends_rings_and_a_restart_begins_anew)
{
	sim_fixture.config.topology.host.rate_bps = 1000000000;
	sim_fixture_open(2);
	struct nic_err err = {""};
	struct nic_port *dead = sim_fixture.ends[1].port, *refused = NULL;
	struct nic_queue *dead_q = sim_fixture.ends[1].q;
	const struct nic_config config = {.queues = 1};
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0), at_0 = sim_fixture_dest(1, 0, 0, 0);
	send_many(0, at_1, 3);
	for (unsigned i = 0; i < 10; i++)
		cr_assert_eq(sim_fixture_send(1, at_0, i, 1184), 0); /* 10 us each, and as much to come */
	sim_fixture_run(25000);
	struct nic_tx open;
	cr_assert_eq(dead_q->ops->tx_reserve(dead_q, at_0, 100, &open), 0);
	sim_host_crash(sim_fixture.ends[1].host);
	cr_assert_eq(stats_of(1).dropped[SIM_DROP_CRASHED], 8 + 3);
	/* Nothing comes of the old port. */
	struct nic_pkt pkt;
	cr_assert_eq(dead_q->ops->recv(dead_q, &pkt, 1), 0);
	cr_assert_eq(dead_q->ops->tx_commit(dead_q, &open), 0);
	cr_assert_eq(sim_fixture_send(1, at_0, 77, 64), 0);
	send_many(0, at_1, 5);
	cr_assert_eq(stats_of(1).dropped[SIM_DROP_CRASHED], 8 + 3 + 5);
	cr_assert_eq(sim_fixture_drain(0), 2);
	cr_assert_eq(sim_port_open(sim_fixture.ends[1].host, 0, &config, &refused, &err), -EPIPE);
	cr_assert(strstr(err.text, "crashed"));
	/* Under the same address, with the old port still to be closed. What is sent meanwhile nobody has. */
	sim_host_restart(sim_fixture.ends[1].host);
	cr_assert_eq(sim_host_incarnation(sim_fixture.ends[1].host), 1);
	send_many(0, at_1, 2);
	cr_assert_eq(stats_of(1).dropped[SIM_DROP_UNEXPECTED], 2);
	sim_fixture_port_open(1);
	send_many(0, at_1, 4);
	cr_assert_eq(dead_q->ops->recv(dead_q, &pkt, 1), 0);
	cr_assert_eq(sim_fixture_drain(1), 4);
	dead->ops->close(dead);
	at_0 = sim_fixture_dest(1, 0, 0, 0);
	send_many(1, at_0, 4);
	cr_assert_eq(sim_fixture_drain(0), 4);
	cr_assert_eq(sim_port_open(sim_fixture.ends[1].host, 0, &config, &refused, &err), -EBUSY);
	struct sim_stats s;
	sim_stats(sim_fixture.sim, &s);
	cr_assert_eq(s.in_flight, 0);
}

/* Packets that an earlier incarnation has sent still arrive, at a later one too. */
Test(sim_port, packets_outlive_their_sender_and_their_receiver)
{
	sim_fixture.config.topology.host.delay_ns = 1000000;
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	cr_assert_eq(sim_fixture_send(0, at_1, 7, 64), 0);
	sim_fixture_run(1000);
	sim_host_crash(sim_fixture.ends[0].host);
	sim_host_crash(sim_fixture.ends[1].host);
	sim_fixture_port_close(1);
	sim_host_restart(sim_fixture.ends[1].host);
	sim_fixture_port_open(1);
	sim_fixture_run(10000000);
	cr_assert_eq(sim_fixture_drain(1), 1);
}

/* ---- steering ---- */

Test(sim_port, queues_are_steered_by_number)
{
	sim_fixture.queues = 4;
	sim_fixture_open(2);
	for (unsigned i = 0; i < 4; i++)
		for (unsigned k = 0; k < 4; k++) {
			uint32_t place = sim_fixture_dest(0, i, 1, k);
			uint64_t seq;
			bool intact;
			cr_assert_eq(sim_fixture_send_from(0, i, place, i * 4 + k, 64), 0);
			sim_fixture_run(10000);
			cr_assert(sim_fixture_take_from(1, k, &seq, &intact));
			cr_assert_eq(seq, i * 4 + k);
		}
	cr_assert_eq(sim_fixture_drain(1), 0);
	cr_assert_eq(sim_fixture_dest(0, 0, 1, 4), NIC_PEER_NONE);
	cr_assert(strstr(sim_fixture.ends[0].text, "no queue 4"), "%s", sim_fixture.ends[0].text);
	cr_assert_eq(sim_fixture_dest(0, 0, 1, NIC_ROUTE(1, 3)), NIC_PEER_NONE);
	/* A port that came back with fewer. */
	uint32_t place = sim_fixture_dest(0, 0, 1, 3);
	sim_fixture_port_close(1);
	sim_fixture.queues = 2;
	sim_fixture_port_open(1);
	cr_assert_eq(sim_fixture_send(0, place, 1, 64), 0);
	sim_fixture_run(10000);
	cr_assert_eq(stats_of(1).dropped[SIM_DROP_UNEXPECTED], 1);
}

Test(sim_port, a_hash_steers_paths)
{
	unsigned hits[4] = {0};
	sim_fixture.queues = 4;
	sim_fixture.args = "hash";
	sim_fixture_open(2);
	for (unsigned path = 0; path < 200; path++) {
		uint32_t place = sim_fixture_dest(0, 0, 1, NIC_ROUTE(2, path));
		uint64_t seq;
		bool intact;
		unsigned at = 4;
		for (unsigned n = 0; n < 3; n++) {
			cr_assert_eq(sim_fixture_send(0, place, path, 64), 0);
			sim_fixture_run(10000);
			for (unsigned q = 0; q < 4; q++)
				if (sim_fixture_take_from(1, q, &seq, &intact)) {
					cr_assert(n == 0 || q == at, "the same way every time");
					at = q;
				}
		}
		cr_assert_lt(at, 4);
		hits[at]++;
	}
	for (unsigned q = 0; q < 4; q++)
		cr_assert(hits[q] > 30 && hits[q] < 75);
}

/* ---- sleep ---- */

/* A committed packet waits until its last bit is on the wire. Expect the number of bytes that wait, and the time of the
 * next check. */
Test(sim_port, says_what_waits_for_the_wire)
{
	sim_fixture.config.topology.host.rate_bps = UINT64_C(8000000000); /* a byte in a nanosecond */
	sim_fixture_open(2);
	struct nic_queue *q = sim_fixture.ends[0].q;
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	cr_assert_eq(q->ops->tx_waiting(q, 0), 0);
	cr_assert_eq(q->ops->deadline(q), UINT64_MAX);
	for (unsigned i = 0; i < 5; i++)
		cr_assert_eq(sim_fixture_send(0, at_1, i, 1000), 0);
	uint64_t begin = sim_now(sim_fixture.sim);
	for (unsigned left = 5; left > 0; left--) {
		unsigned wakes = sim_fixture.ends[0].wakes;
		cr_assert_eq(q->ops->tx_waiting(q, left * 1000), left * 1000);
		cr_assert_eq(q->ops->deadline(q), UINT64_MAX, "no more than that wait");
		cr_assert_eq(q->ops->tx_waiting(q, left * 1000 - 1), left * 1000);
		uint64_t when = q->ops->deadline(q);
		cr_assert_eq(when - begin, (6 - left) * 1066);
		sim_fixture_run(when - 1 - sim_now(sim_fixture.sim));
		cr_assert_eq(q->ops->tx_waiting(q, left * 1000 - 1), left * 1000);
		cr_assert_eq(sim_fixture.ends[0].wakes, wakes);
		sim_fixture_run(1);
		cr_assert_eq(sim_fixture.ends[0].wakes, wakes + 1);
		cr_assert_eq(q->ops->deadline(q), UINT64_MAX);
	}
	/* What is cancelled does not wait. */
	struct nic_tx tx;
	cr_assert_eq(q->ops->tx_reserve(q, at_1, 700, &tx), 0);
	cr_assert_eq(q->ops->tx_waiting(q, 0), 700);
	q->ops->tx_cancel(q, &tx);
	cr_assert_eq(q->ops->tx_waiting(q, 0), 0);
}

Test(sim_port, an_armed_queue_wakes)
{
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	struct nic_queue *q = sim_fixture.ends[1].q;
	cr_assert_null(q->ops->kick);
	q->ops->arm(q);
	cr_assert_not(sim_queue_is_woken(q));
	send_many(0, at_1, 1); /* before the first use of the descriptor */
	cr_assert(sim_queue_is_woken(q) && sim_queue_waiting(q) == 1);
	cr_assert(is_readable(q->ops->wake_fd(q)));
	q->ops->wake_clear(q);
	cr_assert_not(sim_queue_is_woken(q));
	cr_assert_not(is_readable(q->ops->wake_fd(q)));
	unsigned wakes = sim_fixture.ends[1].wakes;
	send_many(0, at_1, 1);
	cr_assert(is_readable(q->ops->wake_fd(q)));
	cr_assert_eq(sim_fixture.ends[1].wakes, wakes + 1);
	q->ops->wake_clear(q);
	q->ops->disarm(q);
	send_many(0, at_1, 1);
	cr_assert_not(is_readable(q->ops->wake_fd(q)));
	q->ops->wake(q);
	cr_assert(is_readable(q->ops->wake_fd(q)));
	q->ops->wake_clear(q);
	cr_assert_eq(sim_fixture_drain(1), 3);
}

Test(sim_port, without_wake_kicks_do)
{
	sim_fixture.args = "kick";
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	struct nic_queue *q = sim_fixture.ends[1].q;
	struct nic_caps caps;
	sim_fixture.ends[1].port->ops->caps(sim_fixture.ends[1].port, &caps);
	cr_assert(!caps.wake && q->ops->kick);
	q->ops->arm(q);
	send_many(0, at_1, 1);
	cr_assert_not(is_readable(q->ops->wake_fd(q)));
	sim_fixture.ends[0].q->ops->kick(sim_fixture.ends[0].q, at_1);
	cr_assert_not(is_readable(q->ops->wake_fd(q)));
	sim_fixture_run(100000);
	cr_assert(is_readable(q->ops->wake_fd(q)));
	q->ops->wake_clear(q);
	cr_assert_eq(sim_fixture_drain(1), 1);
	/* One that the network loses. */
	sim_partition(sim_fixture.ends[0].host, sim_fixture.ends[1].host, true);
	sim_fixture.ends[0].q->ops->kick(sim_fixture.ends[0].q, at_1);
	sim_fixture_run(100000);
	cr_assert_not(is_readable(q->ops->wake_fd(q)));
	struct sim_stats s;
	sim_stats(sim_fixture.sim, &s);
	cr_assert_eq(s.sent, s.arrived + s.dropped[SIM_DROP_PARTITION]);
}

/* ---- set-up ---- */

Test(sim_port, arguments_are_read_word_by_word)
{
	static const struct {
		const char *args, *word;
	} bad[] = {
		{"rx", "\"rx\""},          {"rx=", "rx="},           {"rx=0", "rx="},
		{"rx=1x", "rx="},          {"tx=-1", "tx="},         {"tx=99999999999", "tx="},
		{"align=3", "align=3"},    {"align=128", "align="},  {"queues=17", "queues="},
		{"hash,,hold", "none of"}, {"Hash", "\"Hash\""},     {",", "none of"},
		{"peers=0", "peers="},     {"loss=1", "\"loss=1\""},
	};
	sim_fixture.args = "rx=5,tx=6,align=2,queues=3,peers=7,hash,hold,kick";
	sim_fixture_open(1);
	struct nic_caps caps;
	sim_fixture.ends[0].port->ops->caps(sim_fixture.ends[0].port, &caps);
	cr_assert(caps.slots == 6 && caps.body_align == 2 && caps.queues_max == 3 && caps.peers_max == 7);
	cr_assert(caps.steering == NIC_STEER_HASH && caps.zero_copy_rx && !caps.wake && !caps.connected);
	sim_fixture_port_close(0);
	for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
		const struct nic_config config = {.queues = 1, .args = bad[i].args};
		struct nic_err err = {""};
		struct nic_port *port = NULL;
		cr_assert_eq(sim_port_open(sim_fixture.ends[0].host, 0, &config, &port, &err), -EINVAL, "%s",
			     bad[i].args);
		cr_assert(strstr(err.text, bad[i].word), "%s: %s", bad[i].args, err.text);
		cr_assert_null(port);
	}
	const struct nic_config heads = {.queues = 1, .head_bytes = 28}, many = {.queues = 17}, none = {0};
	struct nic_err err;
	struct nic_port *port;
	cr_assert_eq(sim_port_open(sim_fixture.ends[0].host, 0, &heads, &port, &err), -EINVAL);
	cr_assert_eq(sim_port_open(sim_fixture.ends[0].host, 0, &many, &port, &err), -EINVAL);
	cr_assert_eq(sim_port_open(sim_fixture.ends[0].host, 0, &none, &port, &err), -EINVAL);
	cr_assert_eq(sim_port_ops(0)->open(&none, &port, &err), -EINVAL);
	cr_assert_null(sim_port_ops(4));
}

Test(sim_port, addresses_of_others_are_refused)
{
	struct nic_addr addr, bad;
	struct nic_err err = {""};
	unsigned host, rail;
	char text[NIC_TEXT_BYTES_MAX];
	sim_fixture.queues = 2;
	sim_fixture_open(2);
	struct nic_port *port = sim_fixture.ends[0].port;
	sim_fixture.ends[1].port->ops->address(sim_fixture.ends[1].port, &addr);
	cr_assert_eq(sim_address_host(&addr, &host, &rail), 0);
	cr_assert(host == 1 && rail == 0);
	port->ops->address_text(&addr, text, sizeof text);
	cr_assert_str_eq(text, "sim host 1, queues 0 to 1");
	for (unsigned i = 0; i < addr.len; i++) {
		bad = addr;
		bad.blob[i] ^= 1;
		cr_assert_eq(port->ops->reach(port, &bad, &err), -EINVAL);
		cr_assert_eq(sim_address_host(&bad, &host, &rail), -EINVAL);
		bad = addr;
		bad.len = (uint16_t)i;
		cr_assert_eq(port->ops->reach(port, &bad, &err), -EINVAL);
	}
	/* Another world, and a host that is not there. */
	struct sim_config config;
	struct sim_host_config hc;
	sim_config_init(&config, 2);
	sim_host_config_init(&hc);
	for (uint64_t seed = 1; seed <= 2; seed++) {
		config.seed = seed;
		struct sim *other = sim_create(&config, &err);
		for (unsigned i = 0; i < 3; i++)
			sim_host_add(other, &hc, &err);
		const struct nic_config nc = {.queues = 1};
		struct nic_port *theirs;
		cr_assert_eq(sim_port_open(sim_host(other, 2), 0, &nc, &theirs, &err), 0);
		theirs->ops->address(theirs, &bad);
		cr_assert_eq(port->ops->reach(port, &bad, &err), seed == 1 ? -EHOSTUNREACH : -ENETUNREACH);
		theirs->ops->close(theirs);
		sim_destroy(other);
	}
}

Test(sim_port, places_are_numbered_from_the_lowest)
{
	sim_fixture.args = "peers=40";
	sim_fixture_open(2);
	struct nic_port *port = sim_fixture.ends[0].port;
	struct nic_queue *q = sim_fixture.ends[0].q;
	for (uint32_t i = 0; i < 40; i++)
		cr_assert_eq(sim_fixture_dest(0, 0, 1, 0), i);
	struct nic_addr addr;
	struct nic_err err = {""};
	sim_fixture.ends[1].port->ops->address(sim_fixture.ends[1].port, &addr);
	cr_assert_eq(port->ops->connect(port, &(struct nic_connect){0, &addr, 0, NULL, 0, 0, NULL}, &err), -ENOSPC);
	cr_assert(strstr(err.text, "40"));
	const uint32_t dropped[] = {30, 7, 12};
	for (unsigned i = 0; i < 3; i++) {
		q->ops->detach(q, dropped[i]);
		port->ops->drop(port, dropped[i]);
	}
	cr_assert_eq(sim_fixture_dest(0, 0, 1, 0), 7);
	cr_assert_eq(sim_fixture_dest(0, 0, 1, 0), 12);
	cr_assert_eq(sim_fixture_dest(0, 0, 1, 0), 30);
	cr_assert_eq(sim_fixture_send(0, 40, 0, 64), -EPIPE);
	cr_assert_eq(sim_fixture_send(0, NIC_PEER_NONE, 0, 64), -EPIPE);
}

/* What takes more memory than was allowed ends the run, and says so. */
Test(sim_port, packets_are_bounded)
{
	sim_fixture.config.packet_bytes_max = 100000;
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	int error = 0;
	unsigned n = 0;
	for (; n < 200 && !error; n++)
		error = sim_fixture_send(0, at_1, n, 1400);
	cr_assert_eq(error, -ENOBUFS);
	cr_assert(n > 50 && n < 72);
	cr_assert(strstr(sim_failure(sim_fixture.sim), "packet_bytes_max"));
	cr_assert_not(sim_step(sim_fixture.sim));
}

static unsigned open_descriptors(void)
{
	unsigned n = 0;
	DIR *d = opendir("/proc/self/fd");
	cr_assert(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Ports have no descriptors before the first use. */
Test(sim_port, a_thousand_hosts)
{
	enum { THOUSAND = 1000 };
	static struct nic_port *ports[THOUSAND];
	struct nic_err err = {""};
	const struct nic_config config = {.queues = 4};
	unsigned before = open_descriptors();
	sim_fixture_open(1);
	sim_fixture.host.hooks = (struct sim_hooks){0};
	for (unsigned i = 1; i < THOUSAND; i++)
		cr_assert(sim_host_add(sim_fixture.sim, &sim_fixture.host, &err), "%s", err.text);
	for (unsigned i = 1; i < THOUSAND; i++)
		cr_assert_eq(sim_port_open(sim_host(sim_fixture.sim, i), 0, &config, &ports[i], &err), 0, "%s",
			     err.text);
	/* All of them send to the first. */
	for (unsigned i = 1; i < THOUSAND; i++) {
		sim_fixture.ends[1] = (struct sim_end){.host = sim_host(sim_fixture.sim, i), .port = ports[i]};
		uint32_t place = sim_fixture_dest(1, 3, 0, 0);
		cr_assert_eq(sim_fixture_send_from(1, 3, place, i, 1000), 0);
	}
	sim_fixture.ends[1] = (struct sim_end){0};
	sim_fixture_run(1000000);
	cr_assert_eq(sim_fixture_drain(0), THOUSAND - 1);
	cr_assert_eq(open_descriptors(), before);
	for (unsigned i = 1; i < THOUSAND; i++)
		ports[i]->ops->close(ports[i]);
}
