/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Cases of datagram drivers' queues; nic_conformance.c includes it. Nothing promises that a packet arrives, so each is
 * sent again until it does; but what arrives is what was sent. Main thread of each process.
 */
#ifndef NIC_DATAGRAMS_H
#define NIC_DATAGRAMS_H

#include "nic_fixture.h"

#include <stdalign.h>
#include <sys/mman.h>

enum { DATAGRAM_STAMP = 16 };

/* Of so many bytes: {seq, len} as far as they fit, then what follows from both. */
static void datagram_fill(uint8_t *body, uint64_t seq, uint64_t len)
{
	uint64_t stamp[2] = {seq, len};
	if (len < DATAGRAM_STAMP) {
		body_fill(body, len, len);
		return;
	}
	memcpy(body, stamp, DATAGRAM_STAMP);
	body_fill(body + DATAGRAM_STAMP, len - DATAGRAM_STAMP, seq);
}

/* One that we sent, and as we sent it; its number, when it has one. */
static bool datagram_is_sound(const struct nic_pkt *pkt, uint64_t *seq)
{
	uint64_t stamp[2] = {0, pkt->body_len};
	uint64_t len = pkt->body_len;
	if (!pkt->head || pkt->peer != NIC_PEER_NONE || !pkt->body != !len || len > caps.body_bytes_max)
		return false;
	if (len && (uintptr_t)pkt->body % caps.body_align)
		return false;
	*seq = len;
	if (len < DATAGRAM_STAMP)
		return body_is(pkt->body, len, len);
	memcpy(stamp, pkt->body, DATAGRAM_STAMP);
	*seq = stamp[0];
	return stamp[1] == len && body_is(pkt->body + DATAGRAM_STAMP, len - DATAGRAM_STAMP, *seq);
}

static int datagram_send_at(unsigned e, uint32_t peer, uint64_t seq, uint64_t len, int priority)
{
	struct nic_tx tx;
	memset(&tx, 0xa5, sizeof tx);
	int error = ends[e].ops->tx_reserve(ends[e].q, peer, len, &tx);
	if (error)
		return error;
	datagram_fill(tx.body, seq, len);
	if (priority >= 0)
		tx.priority = (uint8_t)priority;
	error = ends[e].ops->tx_commit(ends[e].q, &tx);
	if (error)
		ends[e].ops->tx_cancel(ends[e].q, &tx);
	return error;
}

/* Nothing is said of how urgent it is. */
static int datagram_send(unsigned e, uint32_t peer, uint64_t seq, uint64_t len)
{
	return datagram_send_at(e, peer, seq, len, -1);
}

/* How many of a burst at this end are that one; all of them must be sound. */
static unsigned datagram_take(unsigned e, uint64_t seq, uint64_t len)
{
	struct nic_pkt pkts[BURST];
	unsigned found = 0, n = take(e, pkts, BURST);
	for (unsigned i = 0; i < n; i++) {
		uint64_t got;
		REQUIRE(datagram_is_sound(&pkts[i], &got));
		found += pkts[i].body_len == len && (len < DATAGRAM_STAMP || got == seq);
	}
	for (unsigned i = 0; i < n; i++)
		give(e, &pkts[i]);
	return found;
}

static void datagram_drain(unsigned e)
{
	struct nic_pkt pkts[BURST];
	unsigned n;
	while ((n = take(e, pkts, BURST)))
		for (unsigned i = 0; i < n; i++) {
			uint64_t got;
			REQUIRE(datagram_is_sound(&pkts[i], &got));
			give(e, &pkts[i]);
		}
}

/* Waits for it, longer with each try. */
static bool datagram_arrives(unsigned e, uint64_t seq, uint64_t len, unsigned tries)
{
	uint64_t limit = now_ns() + (UINT64_C(1000000) << (tries < 8 ? tries : 8));
	do {
		if (datagram_take(e, seq, len))
			return true;
		step_all();
		sched_yield();
	} while (now_ns() < limit);
	return false;
}

static uint64_t patience_limit(void)
{
	return now_ns() + patience_ns;
}

/* Sent until it arrives; false: it never did. */
static bool deliver(unsigned from, uint32_t peer, unsigned to, uint64_t seq, uint64_t len)
{
	uint64_t limit = patience_limit();
	for (unsigned tries = 0; now_ns() < limit; tries++) {
		int error = datagram_send(from, peer, seq, len);
		if (error && error != -EAGAIN && error != -ENOBUFS) {
			fprintf(stderr, "sending %lu bytes: %s\n", (unsigned long)len, strerror(-error));
			return false;
		}
		flush(from);
		if (datagram_arrives(to, seq, len, tries))
			return true;
	}
	return false;
}

/* A place, by the number of an end, its queue and the other's. */
static uint32_t dest_at(unsigned from, unsigned queue, unsigned to, unsigned route)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	unsigned ups = ends[from].ups, fails = ends[from].fails, others = ends[to].ups;
	ends[to].port_ops->address(ends[to].port, &addr);
	REQUIRE(strcmp(addr.driver, driver->name) == 0);
	REQUIRE(addr.len <= NIC_ADDR_BYTES_MAX);
	int error = ends[from].port_ops->connect(
		ends[from].port,
		&(struct nic_connect){queue, &addr, route, "hello", 5, now_ns() + CONNECT_NS, &ends[from]}, &err);
	if (error)
		fprintf(stderr, "connect: %s\n", err.text);
	REQUIRE(error == 0);
	REQUIRE(step_until(&ends[from].ups, ups + 1));
	REQUIRE(ends[from].fails == fails && ends[from].ups == ups + 1);
	REQUIRE(ends[from].connects == 0 && ends[to].connects == 0);
	REQUIRE(from == to || ends[to].ups == others);
	REQUIRE(ends[from].last_user == &ends[from]);
	REQUIRE(ends[from].handshake_len == 0);
	REQUIRE(ends[from].up_queue == queue);
	REQUIRE(ends[from].last_up < caps.peers_max);
	return ends[from].last_up;
}

static uint32_t place(unsigned from, unsigned to)
{
	uint32_t peer = dest_at(from, 0, to, 0);
	REQUIRE(ends[from].ops->attach(ends[from].q, peer) == 0);
	return peer;
}

static void two_dests(void)
{
	end_open(0);
	end_open(1);
	at_1 = place(0, 1);
	at_0 = place(1, 0);
}

/* ---- packets ---- */

static void case_datagram_sizes(void)
{
	two_dests();
	uint64_t max = ends[0].ops->tx_bytes_max(ends[0].q, at_1);
	uint64_t in_line = caps.inline_bytes_max;
	uint64_t sizes[] = {0,    1,    2,    7,    8,    15,   16,      17,          45,      46,      47,
			    59,   60,   61,   63,   64,   65,   96,      255,         256,     257,     1399,
			    1400, 1471, 1472, 1473, 4095, 4096, in_line, in_line + 1, max / 2, max - 1, max};
	REQUIRE(max >= 512 && max <= caps.body_bytes_max);
	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		if (sizes[i] > max)
			continue;
		/* What is left of the ones before must not pass for this one. */
		datagram_drain(1);
		datagram_drain(0);
		REQUIRE(deliver(0, at_1, 1, i, sizes[i]));
		REQUIRE(deliver(1, at_0, 0, i, sizes[i]));
	}
}

static void case_datagram_too_large(void)
{
	two_dests();
	uint64_t max = ends[0].ops->tx_bytes_max(ends[0].q, at_1);
	REQUIRE(datagram_send(0, at_1, 0, max + 1) == -EMSGSIZE);
	REQUIRE(datagram_send(0, at_1, 0, caps.body_bytes_max + 1) == -EMSGSIZE);
	REQUIRE(datagram_send(0, at_1, 0, UINT64_MAX) == -EMSGSIZE);
	REQUIRE(datagram_send(0, at_1, 0, UINT64_C(1) << 32) == -EMSGSIZE);
	REQUIRE(deliver(0, at_1, 1, 5, 100));
}

static void case_datagram_not_attached(void)
{
	struct nic_queue *q;
	two_dests();
	q = ends[0].q;
	REQUIRE(datagram_send(0, at_1 + 1, 0, 1) == -EPIPE);
	REQUIRE(datagram_send(0, NIC_PEER_NONE, 0, 1) == -EPIPE);
	REQUIRE(ends[0].ops->attach(q, at_1) == -EINVAL);
	REQUIRE(ends[0].ops->attach(q, at_1 + 1) == -EINVAL);
	REQUIRE(ends[0].ops->attach(q, NIC_PEER_NONE) == -EINVAL);
	ends[0].ops->detach(q, at_1);
	REQUIRE(datagram_send(0, at_1, 0, 1) == -EPIPE);
	REQUIRE(datagram_send(0, at_1, 0, 512) == -EPIPE);
	REQUIRE(ends[0].ops->tx_room(q, at_1) == 0);
	ends[0].ops->detach(q, at_1);
	/* What others send arrives all the same. */
	REQUIRE(deliver(1, at_0, 0, 1, 100));
	REQUIRE(ends[0].ops->attach(q, at_1) == 0);
	REQUIRE(deliver(0, at_1, 1, 2, 100));
}

/* All of a burst is readable until the next recv(). */
static void case_datagram_bursts(void)
{
	uint64_t limit = patience_limit(), got = 0, seq = 0;
	unsigned largest = 0;
	two_dests();
	uint64_t max = ends[0].ops->tx_bytes_max(ends[0].q, at_1);
	while (got < repeats(20000)) {
		unsigned n = (unsigned)(seq % 40) + 1;
		for (unsigned i = 0; i < n; i++, seq++)
			if (datagram_send(0, at_1, seq, mix(seq) % (seq % 9 ? 200 : max)))
				break;
		flush(0);
		struct nic_pkt pkts[BURST];
		while ((n = take(1, pkts, (unsigned)(got % BURST) + 1))) {
			uint64_t number;
			REQUIRE(n <= got % BURST + 1);
			for (unsigned i = 0; i < n; i++) {
				REQUIRE(datagram_is_sound(&pkts[n - 1 - i], &number));
				REQUIRE(number < seq || number < DATAGRAM_STAMP);
				give(1, &pkts[n - 1 - i]);
			}
			got += n;
			largest = n > largest ? n : largest;
		}
		step_all();
		REQUIRE(now_ns() < limit);
	}
	REQUIRE(largest > 1);
}

/* The end of each packet is sent from elsewhere, and written over once the flush has returned. */
static void case_datagram_referred(void)
{
	enum { PACKETS = 40, MEMORY = 65536 };
	static uint8_t memory[PACKETS][MEMORY];
	uint64_t limit = patience_limit(), got = 0, seq = 0;
	two_dests();
	if (!ends[0].ops->tx_refer) {
		unfit_reason = "it copies what it sends";
		return;
	}
	uint64_t max = ends[0].ops->tx_bytes_max(ends[0].q, at_1);
	while (got < repeats(4000)) {
		unsigned n = mix(seq + 3) % 3 ? 1 + (unsigned)(mix(seq) % PACKETS) : 1;
		for (unsigned i = 0; i < n; i++, seq++) {
			struct nic_tx tx;
			uint64_t len = seq / 64 % 2 ? max : DATAGRAM_STAMP + mix(seq) % (max - DATAGRAM_STAMP + 1);
			uint64_t tail = seq % 7 ? mix(seq + 7) % (len + 1) : 0;
			if (ends[0].ops->tx_reserve(ends[0].q, at_1, len, &tx))
				break;
			tx.priority = seq % 2 ? NIC_PRIORITY_MAX : 0;
			datagram_fill(memory[i], seq, len);
			memcpy(tx.body, memory[i], len - tail);
			if (tail)
				ends[0].ops->tx_refer(ends[0].q, &tx, memory[i] + len - tail, (uint32_t)tail);
			if (seq % 11 == 0)
				ends[0].ops->tx_cancel(ends[0].q, &tx);
			else
				REQUIRE(ends[0].ops->tx_commit(ends[0].q, &tx) == 0);
		}
		flush(0);
		memset(memory, 0x77, sizeof memory[0] * n);
		struct nic_pkt pkts[BURST];
		while ((n = take(1, pkts, BURST)))
			for (unsigned i = 0; i < n; i++) {
				uint64_t number;
				REQUIRE(datagram_is_sound(&pkts[i], &number));
				REQUIRE(number % 11);
				got++;
				give(1, &pkts[i]);
			}
		step_all();
		REQUIRE(now_ns() < limit);
	}
}

/* Packets that leave without a flush, while none is reserved. */
static void case_datagram_at_once(void)
{
	static uint8_t memory[65536];
	uint64_t limit = patience_limit(), got = 0, seq = 0;
	struct nic_tx tx;
	two_dests();
	if (!ends[0].ops->tx_now) {
		unfit_reason = "it sends at the flush";
		return;
	}
	uint64_t max = ends[0].ops->tx_bytes_max(ends[0].q, at_1);
	while (got < repeats(4000)) {
		uint64_t len = seq % 8 ? DATAGRAM_STAMP + mix(seq) % 200 : max;
		datagram_fill(memory, seq, len);
		bool now = ends[0].ops->tx_now(ends[0].q, at_1, memory, (uint32_t)len, NIC_PRIORITY_MAX);
		memset(memory, 0x77, len);
		seq += now;
		struct nic_pkt pkts[BURST];
		for (unsigned n; (n = take(1, pkts, BURST));)
			for (unsigned i = 0; i < n; i++) {
				uint64_t number;
				REQUIRE(datagram_is_sound(&pkts[i], &number));
				got++;
				give(1, &pkts[i]);
			}
		step_all();
		REQUIRE(now_ns() < limit);
	}
	/* Not before what was committed, nor beyond the path, nor without an address. */
	REQUIRE(ends[0].ops->tx_reserve(ends[0].q, at_1, 64, &tx) == 0);
	datagram_fill(tx.body, seq, 64);
	datagram_fill(memory, seq + 1, 64);
	REQUIRE(!ends[0].ops->tx_now(ends[0].q, at_1, memory, 64, NIC_PRIORITY_MAX));
	REQUIRE(ends[0].ops->tx_commit(ends[0].q, &tx) == 0);
	REQUIRE(!ends[0].ops->tx_now(ends[0].q, at_1, memory, 64, NIC_PRIORITY_MAX));
	flush(0);
	REQUIRE(!ends[0].ops->tx_now(ends[0].q, at_1, memory, (uint32_t)max + 1, NIC_PRIORITY_MAX));
	REQUIRE(!ends[0].ops->tx_now(ends[0].q, at_1 + 1, memory, 64, NIC_PRIORITY_MAX));
}

/* Number `i` of a burst: it lies in its place, or as without one. */
static bool take_from_place(struct nic_pkt *pkt, unsigned i, uint8_t *at, uint32_t bytes, uint32_t each)
{
	uint64_t number;
	bool placed = pkt->body && pkt->head != pkt->body;
	if (placed && pkt->body_len > DATAGRAM_STAMP) {
		uint64_t len = pkt->body_len - DATAGRAM_STAMP;
		REQUIRE(pkt->head == at + (size_t)i * each && len <= each && (size_t)i * each + len <= bytes);
		memcpy((uint8_t *)(uintptr_t)pkt->body + DATAGRAM_STAMP, pkt->head, len);
	}
	REQUIRE(datagram_is_sound(pkt, &number));
	return placed;
}

/* Packets as expected, shorter, longer, and other ones between them; places for fewer packets than arrive, and more. */
static void case_datagram_dests(void)
{
	enum { ROOM = 1 << 20, GUARD = 4096 };
	static alignas(GUARD) uint8_t memory[GUARD + ROOM + GUARD];
	static uint8_t guard[GUARD];
	uint64_t limit = patience_limit(), got = 0, seq = 0, placed = 0;
	two_dests();
	if (!ends[1].ops->rx_place) {
		unfit_reason = "it writes packets into memory of its own";
		return;
	}
	uint64_t max = ends[0].ops->tx_bytes_max(ends[0].q, at_1);
	memset(guard, 0x5c, sizeof guard);
	while (got < repeats(6000)) {
		uint32_t each = (uint32_t)(seq / 50 % 3 == 0 ? max - DATAGRAM_STAMP : 1 + mix(seq) % 1400);
		uint32_t bytes = (uint32_t)(1 + mix(seq + 1) % (30 * each < ROOM ? 30 * each : ROOM));
		unsigned n = (unsigned)(seq % 40) + 1;
		for (unsigned i = 0; i < n; i++, seq++) {
			uint64_t len = DATAGRAM_STAMP + each, odd = mix(seq) % 24;
			len = odd == 0 ? seq % 60 : odd == 1 ? len - mix(seq) % each : odd == 2 ? len + seq % 9 : len;
			if (datagram_send(0, at_1, seq, len < max ? len : max))
				break;
		}
		flush(0);
		struct nic_pkt pkts[BURST];
		/* In front of it bytes that the driver restores, or a page that it cannot touch. */
		uint32_t before = (uint32_t)(mix(seq + 2) % 2) * GUARD;
		uint8_t *at = before ? memory + GUARD + ROOM - bytes : memory + GUARD;
		do {
			REQUIRE(mprotect(memory, GUARD, before ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
			if (before)
				memcpy(at - GUARD, guard, GUARD);
			memcpy(at + bytes, guard, GUARD);
			ends[1].ops->rx_place(ends[1].q, DATAGRAM_STAMP, at, bytes, each, before);
			n = take(1, pkts, (unsigned)(seq % BURST) + 1);
			REQUIRE((!before || memcmp(at - GUARD, guard, GUARD) == 0) &&
				memcmp(at + bytes, guard, GUARD) == 0);
			for (unsigned i = 0; i < n; i++)
				placed += take_from_place(&pkts[i], i, at, bytes, each);
			got += n;
			for (unsigned i = 0; i < n; i++)
				give(1, &pkts[i]);
		} while (n);
		step_all();
		REQUIRE(now_ns() < limit);
	}
	REQUIRE(mprotect(memory, GUARD, PROT_READ | PROT_WRITE) == 0);
	REQUIRE(placed > got / 8);
}

/* Of every priority, several of one flush. Expect all of them, as they were sent, whatever passes what. */
static void case_datagram_priorities(void)
{
	enum { PRIORITIES = NIC_PRIORITY_MAX + 1, ROUNDS = 30 };
	two_dests();
	for (unsigned round = 0; round < repeats(ROUNDS); round++) {
		uint64_t limit = patience_limit(), first = 1000 + round * PRIORITIES, got;
		unsigned came = 0, n;
		while (came != (1u << PRIORITIES) - 1) {
			struct nic_pkt pkts[BURST];
			for (unsigned i = 0; i < PRIORITIES; i++)
				if (!(came >> i & 1))
					datagram_send_at(0, at_1, first + i, 100 + (round + i) % 3,
							 (int)((round + i) % PRIORITIES));
			flush(0);
			while ((n = take(1, pkts, BURST)))
				for (unsigned i = 0; i < n; i++) {
					REQUIRE(datagram_is_sound(&pkts[i], &got));
					if (got >= first && got < first + PRIORITIES)
						came |= 1u << (got - first);
					give(1, &pkts[i]);
				}
			step_all();
			REQUIRE(now_ns() < limit);
		}
	}
}

/* Held ones stay as they are while others come and go. */
static void case_datagram_held(void)
{
	enum { HELD = 16 };
	struct nic_pkt held[HELD], pkt;
	uint64_t seqs[HELD], limit = patience_limit();
	unsigned n = 0;
	two_dests();
	for (uint64_t seq = 0; seq < 4 * caps.slots + 1000; seq++) {
		datagram_send(0, at_1, seq, 64 + seq % 900);
		flush(0);
		REQUIRE(now_ns() < limit);
		while (take(1, &pkt, 1)) {
			uint64_t got;
			REQUIRE(datagram_is_sound(&pkt, &got));
			if (pkt.cookie && n < HELD) {
				seqs[n] = got;
				held[n++] = pkt;
			} else {
				give(1, &pkt);
			}
		}
	}
	for (unsigned i = 0; i < n; i++) {
		uint64_t got;
		const struct nic_pkt *p = &held[(i * 7 + 3) % n];
		REQUIRE(datagram_is_sound(p, &got));
		REQUIRE(got == seqs[(i * 7 + 3) % n]);
	}
	for (unsigned i = 0; i < n; i++)
		give(1, &held[n - 1 - i]);
	REQUIRE(deliver(0, at_1, 1, 1 << 20, 700));
}

/* As much as is promised fits, whatever the other side does; a full ring says so, and has room again. */
static void case_datagram_full(void)
{
	int error = -EAGAIN;
	two_dests();
	REQUIRE(caps.slots > 0);
	for (unsigned round = 0; round < 3; round++) {
		uint64_t limit = patience_limit(), sent = 0;
		REQUIRE(deliver(0, at_1, 1, 1, 40)); /* for those that begin when the device is up */
		while (ends[0].ops->tx_room(ends[0].q, at_1) < caps.slots) {
			flush(0);
			datagram_drain(1);
			step_all();
			REQUIRE(now_ns() < limit);
		}
		uint32_t room = ends[0].ops->tx_room(ends[0].q, at_1);
		if (!error)
			return; /* What has room for so many never fills: another round shows the same. */
		for (; sent < 200000 && (error = datagram_send(0, at_1, sent, 32)) == 0; sent++)
			;
		REQUIRE(error == 0 || error == -EAGAIN || error == -ENOBUFS);
		REQUIRE(!error || ends[0].ops->tx_room(ends[0].q, at_1) == 0);
		REQUIRE(sent >= caps.slots);
		REQUIRE(sent >= (room < 200000 ? room : 200000));
		flush(0);
		while (datagram_send(0, at_1, sent, 32)) {
			flush(0);
			datagram_drain(1);
			step_all();
			REQUIRE(now_ns() < limit);
		}
		flush(0);
		datagram_drain(1);
	}
}

static void case_datagram_cancel(void)
{
	enum { OPEN = 1024 };
	static struct nic_tx tx[OPEN];
	unsigned first = 0;
	two_dests();
	uint64_t len = ends[0].ops->tx_bytes_max(ends[0].q, at_1);
	REQUIRE(deliver(0, at_1, 1, 1, 40));
	for (unsigned round = 0; round < 5; round++) {
		unsigned n = 0;
		while (n < OPEN && ends[0].ops->tx_reserve(ends[0].q, at_1, len, &tx[n]) == 0)
			memset(tx[n++].body, 0xee, len);
		REQUIRE(n > 1);
		REQUIRE(round == 0 || n == first);
		first = n;
		for (unsigned i = 0; i < n; i++)
			ends[0].ops->tx_cancel(ends[0].q, &tx[(i + round) % n]);
		flush(0);
	}
	for (unsigned i = 0; i < 3 * caps.slots; i++) {
		REQUIRE(ends[0].ops->tx_reserve(ends[0].q, at_1, 3, &tx[0]) == 0);
		memset(tx[0].body, 0xee, 3);
		ends[0].ops->tx_cancel(ends[0].q, &tx[0]);
	}
	/* None of them arrives: datagram_take() would not know it. */
	REQUIRE(deliver(0, at_1, 1, 9, 300));
	datagram_drain(1);
}

/* Bit i: number i of so many, of len + i bytes, is in a burst at this end. */
static unsigned stamped(unsigned e, unsigned n, uint64_t len)
{
	struct nic_pkt pkts[BURST];
	unsigned bits = 0, got_n = take(e, pkts, BURST);
	for (unsigned i = 0; i < got_n; i++) {
		uint64_t got;
		REQUIRE(datagram_is_sound(&pkts[i], &got));
		if (got < n && pkts[i].body_len == len + got)
			bits |= 1u << got;
		give(e, &pkts[i]);
	}
	return bits;
}

/* Those above a line are open side by side, and leave in any order. */
static void case_datagram_side_by_side(void)
{
	enum { OPEN = 8 };
	struct nic_tx tx[OPEN];
	uint64_t limit = patience_limit();
	two_dests();
	uint64_t len = ends[0].ops->tx_bytes_max(ends[0].q, at_1) - OPEN;
	unsigned missing = (1u << OPEN) - 1;
	REQUIRE(len > caps.inline_bytes_max);
	while (missing) {
		REQUIRE(now_ns() < limit);
		bool open = true;
		for (unsigned i = 0; i < OPEN; i++) {
			int error = open ? ends[0].ops->tx_reserve(ends[0].q, at_1, len + i, &tx[i]) : -EAGAIN;
			for (unsigned k = i; open && error && k--;)
				ends[0].ops->tx_cancel(ends[0].q, &tx[k]);
			open &= !error;
			REQUIRE(open || error == -EAGAIN || error == -ENOBUFS);
		}
		for (unsigned i = 0; open && i < OPEN; i++)
			datagram_fill(tx[i].body, i, len + i);
		REQUIRE(!open || datagram_send(0, at_1, 100, 50) == 0);
		for (unsigned i = OPEN; open && i--;)
			if (ends[0].ops->tx_commit(ends[0].q, &tx[i]))
				ends[0].ops->tx_cancel(ends[0].q, &tx[i]);
		flush(0);
		for (uint64_t until = now_ns() + 2000000; missing && now_ns() < until; step_all())
			missing &= ~stamped(1, OPEN, len);
	}
}

#endif
