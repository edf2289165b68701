/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The cases of drivers that have bulk (struct nic_bulk_ops): what is exposed is read, by whom it was exposed to, while
 * packets go on beside it; afterwards it is not. nic_conformance.c includes it. Main thread of each process.
 */
#ifndef NIC_BULK_H
#define NIC_BULK_H

#include "nic_datagrams.h"

enum { BULK_BYTES = 4 << 20, BULK_CHUNK = 1 << 20, BULK_USERS = 64 };

/* Number of events of each kind that this end got, by `user`, since the last reset. */
static unsigned bulk_events[2][BULK_USERS][NIC_BULK_READ_FAILED + 1];

static bool bulk_is(unsigned e, uint64_t user, enum nic_bulk_event event)
{
	return bulk_events[e][user][event];
}

/* Both ends, one pass. Packets must be sound. */
static void bulk_turn(void)
{
	for (unsigned e = 0; e < 2; e++) {
		struct nic_pkt pkts[BURST];
		unsigned n = ends[e].ops->recv(ends[e].q, pkts, BURST);
		for (unsigned i = 0; i < n; i++) {
			uint64_t seq;
			if (pkts[i].peer != NIC_PEER_BULK) {
				REQUIRE(datagram_is_sound(&pkts[i], &seq));
				give(e, &pkts[i]);
				continue;
			}
			REQUIRE(!pkts[i].head && !pkts[i].body && pkts[i].cookie < BULK_USERS);
			REQUIRE(pkts[i].body_len >= NIC_BULK_EXPOSED && pkts[i].body_len <= NIC_BULK_READ_FAILED);
			bulk_events[e][pkts[i].cookie][pkts[i].body_len]++;
		}
		flush(e);
	}
	step_all();
}

static struct nic_bulk_key bulk_expose(uint8_t *at, uint64_t len, uint64_t user, uint32_t *handle)
{
	struct nic_bulk_key key = {0, 0};
	uint64_t limit = patience_limit();
	int error = -EAGAIN;
	memset(bulk_events[0][user], 0, sizeof bulk_events[0][user]);
	while (!bulk_is(0, user, NIC_BULK_EXPOSED)) {
		REQUIRE(now_ns() < limit);
		if (error || bulk_is(0, user, NIC_BULK_WITHDRAWN)) { /* of a connection that was found broken */
			bulk_events[0][user][NIC_BULK_WITHDRAWN] = 0;
			error = ends[0].ops->bulk->expose(ends[0].q, at_1, at, len, user, handle, &key);
		}
		REQUIRE(error == 0 || error == -EAGAIN);
		bulk_turn();
	}
	return key;
}

static void bulk_withdraw(uint32_t handle, uint64_t user)
{
	uint64_t limit = patience_limit();
	ends[0].ops->bulk->withdraw(ends[0].q, handle);
	while (!bulk_is(0, user, NIC_BULK_WITHDRAWN)) {
		REQUIRE(now_ns() < limit);
		bulk_turn();
	}
	REQUIRE(bulk_events[0][user][NIC_BULK_WITHDRAWN] == 1);
}

/* READ or READ_FAILED; 0: it was refused. */
static enum nic_bulk_event bulk_read(struct nic_bulk_key key, uint64_t offset, uint8_t *to, uint32_t len, uint64_t user)
{
	uint64_t limit = patience_limit();
	int error;
	memset(bulk_events[1][user], 0, sizeof bulk_events[1][user]);
	while ((error = ends[1].ops->bulk->read(ends[1].q, at_0, &key, offset, to, len, user)) == -EAGAIN) {
		REQUIRE(now_ns() < limit);
		bulk_turn();
	}
	if (error)
		return 0;
	while (!bulk_is(1, user, NIC_BULK_READ) && !bulk_is(1, user, NIC_BULK_READ_FAILED)) {
		REQUIRE(now_ns() < limit);
		bulk_turn();
	}
	return bulk_is(1, user, NIC_BULK_READ) ? NIC_BULK_READ : NIC_BULK_READ_FAILED;
}

/* All of it in chunks, some under way at once, in any order, beside packets. */
static void bulk_read_all(struct nic_bulk_key key, uint8_t *to)
{
	const struct nic_bulk_ops *ops = ends[1].ops->bulk;
	uint64_t limit = patience_limit();
	unsigned n = BULK_BYTES / BULK_CHUNK, done = 0;
	memset(bulk_events[1], 0, sizeof bulk_events[1]);
	for (unsigned i = 0; i < n; i++)
		REQUIRE(ops->read(ends[1].q, at_0, &key, (uint64_t)i * BULK_CHUNK, to + (size_t)i * BULK_CHUNK,
				  BULK_CHUNK, i) == 0);
	for (uint64_t seq = 0; done < n; seq++) {
		REQUIRE(now_ns() < limit);
		if (seq % 16 == 0)
			datagram_send(0, at_1, seq, 200);
		bulk_turn();
		done = 0;
		for (unsigned i = 0; i < n; i++) {
			REQUIRE(!bulk_is(1, i, NIC_BULK_READ_FAILED));
			done += bulk_is(1, i, NIC_BULK_READ);
		}
	}
}

static uint8_t *bulk_memory[2];

static void bulk_whole(void)
{
	struct nic_err err = {""};
	uint8_t *from = bulk_memory[0], *to = bulk_memory[1];
	uint32_t handle = 0, second = 0;
	for (uint64_t round = 0; round < repeats(6); round++) {
		body_fill(from, BULK_BYTES, round);
		struct nic_bulk_key key = bulk_expose(from, BULK_BYTES, 1, &handle);
		REQUIRE(ends[0].port_ops->mem_unregister(ends[0].port, from, BULK_BYTES, &err) == -EBUSY);
		bulk_read_all(key, to);
		REQUIRE(memcmp(from, to, BULK_BYTES) == 0);
		bulk_withdraw(handle, 1);
		memset(to, 0, BULK_BYTES);
	}
	/* Another key than the one that was said, and that one when it holds no more. */
	for (unsigned i = 0; i < 2; i++) {
		struct nic_bulk_key key = bulk_expose(from + 4096, 65536, 2, &handle), bad = key;
		REQUIRE(bulk_read(key, 100, to, 65436, 3) == NIC_BULK_READ);
		REQUIRE(memcmp(from + 4196, to, 65436) == 0);
		if (i == 0)
			bad.key += 0x100;
		else
			bulk_withdraw(handle, 2);
		memset(to, 0, BULK_BYTES);
		REQUIRE(bulk_read(bad, 0, to, 65536, 4) != NIC_BULK_READ);
		for (unsigned k = 0; k < 65536; k++)
			REQUIRE(to[k] == 0);
		if (i == 0)
			bulk_withdraw(handle, 2);
	}
	/* And goes on. */
	struct nic_bulk_key key = bulk_expose(from, BULK_BYTES, 5, &handle);
	struct nic_bulk_key other = bulk_expose(from, 4096, 6, &second);
	REQUIRE(key.key != other.key);
	bulk_read_all(key, to);
	REQUIRE(memcmp(from, to, BULK_BYTES) == 0);
	bulk_withdraw(second, 6);
	bulk_withdraw(handle, 5);
}

/* What is before and behind the bytes that were exposed, of the same region. */
static void bulk_ranges(void)
{
	uint32_t handle = 0;
	for (int i = 0; i < 2; i++) {
		struct nic_bulk_key key = bulk_expose(bulk_memory[0] + 4096, 65536, 2, &handle);
		key.addr += i ? 8 : (uint64_t)-8;
		REQUIRE(bulk_read(key, 0, bulk_memory[1], 65536, 4) != NIC_BULK_READ);
		bulk_withdraw(handle, 2);
	}
}

static void bulk_case(void (*run)(void))
{
	struct nic_err err = {""};
	if (!caps.one_sided) {
		unfit_reason = "it has no bulk";
		return;
	}
	for (unsigned e = 0; e < 2; e++)
		REQUIRE((bulk_memory[e] = aligned_alloc(4096, BULK_BYTES)));
	two_dests();
	for (unsigned e = 0; e < 2; e++)
		REQUIRE(ends[e].port_ops->mem_register(ends[e].port, bulk_memory[e], BULK_BYTES, &err) == 0);
	run();
	for (unsigned e = 0; e < 2; e++)
		REQUIRE(ends[e].port_ops->mem_unregister(ends[e].port, bulk_memory[e], BULK_BYTES, &err) == 0);
	/* Not of a case that failed: its ports are still open. */
	for (unsigned e = 0; e < 2; e++)
		end_close(e);
	for (unsigned e = 0; e < 2; e++)
		free(bulk_memory[e]);
}

static void case_bulk(void)
{
	bulk_case(bulk_whole);
}

static void case_bulk_ranges(void)
{
	bulk_case(bulk_ranges);
}

#endif
