/* SPDX-License-Identifier: BSD-3-Clause */
/** Cases of datagram drivers' ports: places, addresses, queues, sleep, processes; nic_conformance.c includes it.
 * Main thread of each process. */
#ifndef NIC_DESTS_H
#define NIC_DESTS_H

#include "nic_datagrams.h"
#include "nic_processes.h"

enum { DEST_QUEUES = 3, DESTS = 3, PATHS_TRIED = 1024, PING_PONGS = 5000 };

static bool places_n(unsigned n)
{
	if (caps.peers_max < n)
		unfit_reason = "it leads to one peer";
	return !unfit_reason;
}

static void unplace(unsigned e, uint32_t peer)
{
	ends[e].ops->detach(ends[e].q, peer);
	ends[e].port_ops->drop(ends[e].port, peer);
}

static void case_dests(void)
{
	uint32_t peers[DESTS];
	if (!places_n(DESTS))
		return;
	end_open(0);
	end_open(1);
	for (unsigned i = 0; i < DESTS; i++) {
		peers[i] = place(0, 1);
		for (unsigned k = 0; k < i; k++)
			REQUIRE(peers[k] != peers[i]);
	}
	for (unsigned i = 0; i < DESTS; i++)
		REQUIRE(deliver(0, peers[i], 1, i, 100 + i));
	unplace(0, peers[1]);
	REQUIRE(datagram_send(0, peers[1], 0, 1) == -EPIPE);
	REQUIRE(deliver(0, peers[0], 1, 10, 100) && deliver(0, peers[2], 1, 12, 100));
	/* They can be had again, as often as one likes. */
	for (unsigned i = 0; i < 200; i++)
		unplace(0, place(0, 1));
	REQUIRE(deliver(0, place(0, 1), 1, 13, 100));
	/* Dropped without having been attached. */
	ends[0].port_ops->drop(ends[0].port, dest_at(0, 0, 1, 0));
	REQUIRE(ends[1].ups == 0 && ends[1].downs == 0 && ends[0].downs == 0);
}

/* From somebody to whom we have no place, and from ourselves. */
static void case_unexpected_peers(void)
{
	if (!places_n(2))
		return;
	end_open(0);
	end_open(1);
	REQUIRE(deliver(1, place(1, 0), 0, 1, 77));
	uint32_t self = place(0, 0);
	REQUIRE(deliver(0, self, 0, 2, 88));
	REQUIRE(deliver(0, self, 0, 3, 0));
	REQUIRE(ends[0].ups == 1 && ends[1].ups == 1 && ends[0].connects == 0);
	if (driver_args_n > 1) /* there is no third */
		return;
	end_open(2);
	REQUIRE(deliver(2, place(2, 0), 0, 4, 99));
	REQUIRE(ends[0].ups == 1 && ends[0].connects == 0);
}

/* Where a packet that is sent to the place arrives: the other end's queue, or -1. */
static int arrives_at(uint32_t peer, uint64_t seq)
{
	uint64_t limit = patience_limit();
	for (unsigned tries = 0; now_ns() < limit; tries++) {
		int error = datagram_send(0, peer, seq, 64);
		REQUIRE(error == 0 || error == -EAGAIN || error == -ENOBUFS);
		flush(0);
		uint64_t until = now_ns() + (UINT64_C(500000) << (tries < 8 ? tries : 8));
		do {
			for (unsigned i = 0; i < DEST_QUEUES; i++) {
				ends[1].q = ends[1].port_ops->queue(ends[1].port, i);
				if (datagram_take(1, seq, 64))
					return (int)i;
			}
			step_all();
		} while (now_ns() < until);
	}
	return -1;
}

/* A place that leads from queue i to queue j, found by trying paths where the device steers by hash. */
static uint32_t place_to_queue(unsigned i, unsigned j, uint64_t *seq)
{
	unsigned paths = caps.steering == NIC_STEER_HASH ? PATHS_TRIED : 1;
	for (unsigned path = 0; path < paths; path++) {
		uint32_t peer = dest_at(0, i, 1, NIC_ROUTE(j, path));
		REQUIRE(ends[0].ops->attach(ends[0].q, peer) == 0);
		int at = arrives_at(peer, (*seq)++);
		REQUIRE(at >= 0);
		if (at == (int)j)
			return peer;
		REQUIRE(caps.steering == NIC_STEER_HASH);
		unplace(0, peer);
	}
	REQUIRE(!"some path leads to the queue");
	return NIC_PEER_NONE;
}

static void case_dest_queues(void)
{
	uint64_t seq = 1;
	if (caps.queues_max < DEST_QUEUES) {
		unfit_reason = "it has fewer queues";
		return;
	}
	REQUIRE(end_open_queues(0, DEST_QUEUES) == 0);
	REQUIRE(end_open_queues(1, DEST_QUEUES) == 0);
	REQUIRE(ends[0].port_ops->queue(ends[0].port, DEST_QUEUES) == NULL);
	for (unsigned i = 0; i < DEST_QUEUES; i++)
		for (unsigned j = 0; j < DEST_QUEUES; j++) {
			ends[0].q = ends[0].port_ops->queue(ends[0].port, i);
			uint32_t peer = place_to_queue(i, j, &seq);
			struct nic_queue *other = ends[0].port_ops->queue(ends[0].port, (i + 1) % DEST_QUEUES);
			REQUIRE(other->ops->attach(other, peer) == -EINVAL);
			for (unsigned k = 0; k < 20; k++)
				REQUIRE(arrives_at(peer, seq++) == (int)j);
			unplace(0, peer);
		}
}

static void case_counters(void)
{
	struct nic_stats before[2], after[2];
	two_dests();
	for (unsigned i = 0; i < 2; i++)
		ends[i].port_ops->stats(ends[i].port, &before[i]);
	for (unsigned i = 0; i < 10; i++)
		REQUIRE(deliver(0, at_1, 1, i, 1000 - i));
	for (unsigned i = 0; i < 2; i++)
		ends[i].port_ops->stats(ends[i].port, &after[i]);
	REQUIRE(after[0].tx_packets - before[0].tx_packets >= 10);
	REQUIRE(after[0].tx_bytes - before[0].tx_bytes >= 10 * 990);
	REQUIRE(after[1].rx_packets - before[1].rx_packets >= 10);
	REQUIRE(after[1].rx_bytes - before[1].rx_bytes >= 10 * 990);
	REQUIRE(after[1].rx_malformed == before[1].rx_malformed);
	REQUIRE(after[1].tx_packets - before[1].tx_packets < 10);
}

/* ---- sleep ---- */

static bool is_readable(unsigned e, int timeout_ms)
{
	struct pollfd p = {.fd = ends[e].ops->wake_fd(ends[e].q), .events = POLLIN};
	return poll_for(&p, 1, timeout_ms) == 1;
}

/* Sends, or kicks, until the other end's descriptor is readable. */
static bool rouse(uint64_t seq)
{
	uint64_t limit = patience_limit();
	for (int timeout_ms = 1; now_ns() < limit; timeout_ms += timeout_ms < 256 ? timeout_ms : 0) {
		datagram_send(0, at_1, seq, 64);
		flush(0);
		if (!caps.wake)
			ends[0].ops->kick(ends[0].q, at_1);
		if (is_readable(1, timeout_ms))
			return true;
		step_all();
	}
	return false;
}

static void case_datagram_wake(void)
{
	two_dests();
	const struct nic_queue_ops *ops = ends[1].ops;
	REQUIRE(!ops->kick == caps.wake);
	REQUIRE(deliver(0, at_1, 1, 1, 64));
	for (uint64_t round = 0; round < repeats(50); round++) {
		/* What is on its way wakes as well: it is looked for until all is quiet. */
		uint64_t limit = patience_limit();
		for (bool quiet = false; !quiet;) {
			REQUIRE(now_ns() < limit);
			ops->arm(ends[1].q);
			quiet = datagram_take(1, 0, 0) == 0 && !is_readable(1, 0);
			ops->disarm(ends[1].q);
			ops->wake_clear(ends[1].q);
			datagram_drain(1);
		}
		ops->arm(ends[1].q);
		datagram_drain(1);
		REQUIRE(rouse(round + 10));
		ops->wake_clear(ends[1].q);
		ops->disarm(ends[1].q);
		REQUIRE(deliver(0, at_1, 1, round + 100, 64));
	}
	datagram_drain(1);
	ops->wake_clear(ends[1].q); /* with nothing to clear */
	ops->wake(ends[1].q);
	REQUIRE(is_readable(1, 0));
	ops->wake_clear(ends[1].q);
	REQUIRE(!is_readable(1, 0));
}

/* What came between the last look and arm() is found by the look after arm(), or wakes. */
static void case_datagram_arm_and_look(void)
{
	two_dests();
	REQUIRE(deliver(0, at_1, 1, 1, 64));
	for (uint64_t round = 0; round < repeats(50); round++) {
		uint64_t limit = patience_limit();
		bool found = false;
		for (unsigned tries = 0; !found && now_ns() < limit; tries++) {
			datagram_drain(1);
			datagram_send(0, at_1, 100 + round, 64);
			flush(0);
			ends[1].ops->arm(ends[1].q);
			found = datagram_take(1, 100 + round, 64);
			if (!found && caps.wake && is_readable(1, 1 << (tries < 8 ? tries : 8)))
				found = datagram_take(1, 100 + round, 64);
			ends[1].ops->wake_clear(ends[1].q);
			ends[1].ops->disarm(ends[1].q);
			found = found || datagram_arrives(1, 100 + round, 64, caps.wake ? 0 : tries);
		}
		REQUIRE(found);
	}
}

/* A deadline that has come is over when recv() was called: it does not make a sleeper spin. */
static void case_deadline(void)
{
	two_dests();
	for (unsigned i = 0; i < 40; i++)
		REQUIRE(deliver(0, at_1, 1, i, 50 + i));
	for (unsigned e = 0; e < 2; e++) {
		unsigned late = 0;
		for (unsigned i = 0; i < 1000; i++) {
			uint64_t at = ends[e].ops->deadline(ends[e].q);
			late += at != UINT64_MAX && at <= now_ns();
			datagram_drain(e);
			flush(e);
		}
		REQUIRE(late < 500);
	}
}

/* ---- addresses ---- */

/* Own ones, cut short, and bytes that nobody published: an answer, with a reason when it is no. */
static void nonsense_address(struct nic_addr *addr, unsigned i)
{
	ends[1].port_ops->address(ends[1].port, addr);
	uint16_t len = addr->len;
	uint64_t r = mix(i + 1);
	if (i < len) { /* cut short */
		addr->len = (uint16_t)i;
	} else if (i < 2u * len) { /* one byte is another */
		addr->blob[i - len] ^= (uint8_t)(r | 1);
	} else {
		for (unsigned k = 0; k < sizeof addr->blob; k++)
			addr->blob[k] = (uint8_t)(mix(r + k) >> 20);
		addr->len = (uint16_t)(i % 3 ? r % (sizeof addr->blob + 1) : len);
		if (i % 7 == 0)
			addr->len = 0xffff;
	}
}

static void case_address_text(void)
{
	struct nic_addr addr;
	char text[NIC_TEXT_BYTES_MAX], small[5];
	end_open(0);
	end_open(1);
	ends[1].port_ops->address(ends[1].port, &addr);
	memset(text, 'x', sizeof text);
	driver->address_text(&addr, text, sizeof text);
	REQUIRE(memchr(text, 0, sizeof text) && strstr(text, driver->name) == text);
	REQUIRE(strlen(text) > strlen(driver->name) && !strpbrk(text, "\r\n"));
	memset(small, 'x', sizeof small);
	driver->address_text(&addr, small, sizeof small);
	REQUIRE(memchr(small, 0, sizeof small) && strncmp(small, text, sizeof small - 1) == 0);
	for (unsigned i = 0; i < 1000; i++) {
		nonsense_address(&addr, i);
		memset(text, 'x', sizeof text);
		driver->address_text(&addr, text, sizeof text);
		REQUIRE(memchr(text, 0, sizeof text) && text[0]);
		for (const char *c = text; *c; c++)
			REQUIRE((unsigned char)*c >= ' ' && *c != 0x7f);
	}
}

static void case_reach(void)
{
	struct nic_addr addr;
	end_open(0);
	end_open(1);
	for (unsigned i = 0; i < 2; i++) {
		struct nic_err err = {""};
		ends[i].port_ops->address(ends[i].port, &addr);
		int error = ends[0].port_ops->reach(ends[0].port, &addr, &err);
		if (error)
			fprintf(stderr, "reach: %s\n", err.text);
		REQUIRE(error == 0);
	}
	unsigned len = addr.len;
	for (unsigned i = 0; i < 1000; i++) {
		struct nic_err err = {""};
		nonsense_address(&addr, i);
		int error = ends[0].port_ops->reach(ends[0].port, &addr, &err);
		REQUIRE(error <= 0 && error > -4096);
		REQUIRE(!error || err.text[0]);
		REQUIRE(error || (i >= len && addr.len <= NIC_ADDR_BYTES_MAX));
	}
}

static void case_nonsense(void)
{
	unsigned started = 0;
	two_dests();
	for (unsigned i = 0; i < 600; i++) {
		struct nic_addr addr;
		struct nic_err err = {""};
		nonsense_address(&addr, i);
		unsigned len = addr.len, ups = ends[0].ups;
		int error = ends[0].port_ops->connect(
			ends[0].port, &(struct nic_connect){0, &addr, 0, NULL, 0, now_ns() + 50000000, NULL}, &err);
		REQUIRE(!error || err.text[0]);
		REQUIRE(error || len <= NIC_ADDR_BYTES_MAX);
		if (error)
			continue;
		started++;
		unsigned settled = ends[0].fails + ends[0].ups;
		uint64_t limit = patience_limit();
		while (ends[0].fails + ends[0].ups == settled && now_ns() < limit)
			step_all();
		REQUIRE(ends[0].fails + ends[0].ups == settled + 1);
		if (ends[0].ups > ups)
			ends[0].port_ops->drop(ends[0].port, ends[0].last_up);
		else
			REQUIRE(ends[0].failed_text[0]);
	}
	REQUIRE(started < 600);
	struct nic_addr addr;
	struct nic_err err = {""};
	ends[1].port_ops->address(ends[1].port, &addr);
	REQUIRE(ends[0].port_ops->connect(
			ends[0].port, &(struct nic_connect){1, &addr, 0, NULL, 0, patience_limit(), NULL}, &err) < 0);
	REQUIRE(err.text[0]);
	REQUIRE(deliver(0, at_1, 1, 1, 100));
}

/* With these arguments, or the usual ones: an error with a reason, and nothing is there. */
static void check_refused(unsigned queues, unsigned head_bytes, const char *args)
{
	struct nic_port *port = NULL;
	struct nic_err err = {""};
	struct nic_config config = {.runtime_dir = dir,
				    .id = 200,
				    .queues = queues,
				    .head_bytes = head_bytes,
				    .beyond_host = beyond_host,
				    .args = args            ? args
					    : driver_args_n ? driver_args[0]
							    : NULL};
	int error = driver->open(&config, &port, &err);
	if (!error)
		fprintf(stderr, "%u queues, heads of %u bytes, args \"%s\": opened\n", queues, head_bytes,
			config.args ? config.args : "");
	REQUIRE(error < 0 && err.text[0] && !port);
}

static void case_bad_configuration(void)
{
	check_refused(0, driver_head, NULL);
	check_refused(caps.queues_max + 1, driver_head, NULL);
	check_refused(100000, driver_head, NULL);
	if (driver_head) /* it has heads */
		check_refused(1, caps.head_bytes_max + 1, NULL);
	check_refused(1, driver_head, "no-such-word=1");
	check_refused(1, driver_head, "=,=,=:;");
	check_refused(1, driver_head, ",");
}

/* ---- ends ---- */

/* Somebody who has gone is not reported; sending there hurts nobody. */
static void case_gone(void)
{
	if (!ends_are(3))
		return;
	end_open(0);
	end_open(1);
	end_open(2);
	uint32_t gone = place(0, 1), there = place(0, 2);
	REQUIRE(deliver(0, gone, 1, 1, 100));
	end_close(1);
	for (unsigned i = 0; i < 3; i++) {
		uint64_t seq = 0;
		for (; seq < 2 * caps.slots; seq++) {
			int error = datagram_send(0, gone, seq, 32);
			REQUIRE(error == 0 || error == -EAGAIN || error == -ENOBUFS);
			if (error)
				break;
		}
		flush(0);
		step_all();
		datagram_drain(0);
		REQUIRE(deliver(0, there, 2, 1000 + i, 100));
	}
	REQUIRE(ends[0].downs == 0 && ends[0].fails == 0);
	unplace(0, gone);
	end_open(1);
	REQUIRE(deliver(0, place(0, 1), 1, 2, 100));
}

static void case_close_with_dests(void)
{
	for (unsigned round = 0; round < repeats(5); round++) {
		struct nic_addr addr;
		struct nic_err err = {""};
		two_dests();
		REQUIRE(deliver(0, at_1, 1, round, 100));
		/* One that was never stepped, packets on their way, and one in hand. */
		ends[1].port_ops->address(ends[1].port, &addr);
		if (caps.peers_max > 1)
			REQUIRE(ends[0].port_ops->connect(
					ends[0].port,
					&(struct nic_connect){0, &addr, 0, NULL, 0, patience_limit(), NULL},
					&err) == 0);
		for (unsigned i = 0; i < 5; i++)
			datagram_send(0, at_1, i, 64);
		if (round % 2)
			flush(0);
		ends[0].ops->detach(ends[0].q, at_1);
		end_close(0);
		ends[1].ops->detach(ends[1].q, at_0);
		end_close(1);
	}
}

/* ---- two processes ---- */

/* Answers each number with the next one; asleep between them where the driver wakes. */
static void play(unsigned e, uint32_t peer, bool begins)
{
	uint64_t next = begins ? 1 : 0, heard = 0, limit = now_ns() + UINT64_C(50000000000) * slow;
	/* Odd numbers are sent by the one that begins, even ones by the other. */
	while (heard < PING_PONGS) {
		struct nic_pkt pkts[BURST];
		REQUIRE(now_ns() < limit);
		if (next) {
			int error = datagram_send(e, peer, next, 16 + next % 500);
			REQUIRE(error == 0 || error == -EAGAIN || error == -ENOBUFS);
			flush(e);
		}
		uint64_t again = now_ns() + 50000000;
		for (bool news = false; !news && now_ns() < again;) {
			unsigned n = take(e, pkts, BURST);
			bool asleep = n == 0 && caps.wake;
			if (asleep) {
				ends[e].ops->arm(ends[e].q);
				n = take(e, pkts, BURST);
				if (n == 0)
					is_readable(e, 20);
				ends[e].ops->wake_clear(ends[e].q);
			}
			for (unsigned i = 0; i < n; i++) {
				uint64_t got;
				REQUIRE(datagram_is_sound(&pkts[i], &got));
				REQUIRE(pkts[i].body_len == 16 + got % 500);
				news |= got > heard;
				heard = got > heard ? got : heard;
				give(e, &pkts[i]);
			}
			if (asleep)
				ends[e].ops->disarm(ends[e].q);
			else if (n == 0)
				sched_yield();
			step_all();
		}
		next = heard ? heard + 1 : next;
	}
}

/* Goes on answering until the other end says that it is done. */
static void play_out(unsigned e, uint32_t peer, int socket)
{
	char byte;
	while (recv(socket, &byte, 1, MSG_DONTWAIT) < 0) {
		datagram_send(e, peer, PING_PONGS + 2, 16 + (PING_PONGS + 2) % 500);
		flush(e);
		datagram_drain(e);
		step_all();
		usleep(1000);
	}
}

static void play_end(unsigned e, int socket, bool begins)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	end_open(e);
	ends[e].port_ops->address(ends[e].port, &addr);
	REQUIRE(write(socket, &addr, sizeof addr) == (ssize_t)sizeof addr);
	REQUIRE(recv(socket, &addr, sizeof addr, MSG_WAITALL) == (ssize_t)sizeof addr);
	REQUIRE(ends[e].port_ops->connect(
			ends[e].port, &(struct nic_connect){0, &addr, 0, NULL, 0, patience_limit(), NULL}, &err) == 0);
	REQUIRE(step_until(&ends[e].ups, 1));
	uint32_t peer = ends[e].last_up;
	REQUIRE(ends[e].ops->attach(ends[e].q, peer) == 0);
	play(e, peer, begins);
	REQUIRE(write(socket, "", 1) == 1);
	play_out(e, peer, socket);
}

static void player_main(int socket)
{
	play_end(1, socket, true);
	end_close(1);
}

static void case_datagram_processes(void)
{
	pid_t child;
	if (other_now) {
		unfit_reason = "its world is in one process";
		return;
	}
	int socket = child_start("player", &child);
	play_end(0, socket, false);
	child_wait(child, socket);
}

#endif
