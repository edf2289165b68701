/* SPDX-License-Identifier: BSD-3-Clause */
/** Cases of several queues and of many links; nic_conformance.c includes it. Main thread of each process. */
#ifndef NIC_LINKS_H
#define NIC_LINKS_H

#include "nic_fixture.h"
#include "nic_many.h"

#include <poll.h>

enum { QUEUES = 3, THOUSAND = 1024 };

/* The queue of an end that the helpers of nic_fixture.h work on. */
static void use_queue(unsigned e, unsigned i)
{
	ends[e].q = ends[e].port_ops->queue(ends[e].port, i);
	REQUIRE(ends[e].q);
}

static void connect_queues(unsigned from, unsigned i, unsigned to, unsigned j)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	ends[to].port_ops->address(ends[to].port, &addr);
	REQUIRE(ends[from].port_ops->connect(
			ends[from].port,
			&(struct nic_connect){i, &addr, j, "hello", 5, now_ns() + CONNECT_NS, &ends[from]}, &err) == 0);
}

static bool queues_open(unsigned ports)
{
	for (unsigned i = 0; i < ports; i++)
		if (end_open_queues(i, QUEUES)) {
			unfit_reason = "it has one queue";
			return false;
		}
	return true;
}

static void case_several_queues(void)
{
	uint32_t there[QUEUES][QUEUES], here[QUEUES][QUEUES];
	if (!queues_open(2))
		return;
	REQUIRE(ends[0].port_ops->queue(ends[0].port, QUEUES) == NULL);
	for (unsigned i = 0; i < QUEUES; i++)
		for (unsigned j = 0; j < QUEUES; j++) {
			unsigned ups = ends[1].ups;
			connect_queues(0, i, 1, j);
			REQUIRE(step_until(&ends[0].ups, i * QUEUES + j + 1) && step_until(&ends[1].ups, ups + 1));
			REQUIRE(ends[0].up_queue == i && ends[1].up_queue == j && ends[1].connect_queue == j);
			there[i][j] = ends[0].last_up;
			here[i][j] = ends[1].last_up;
			use_queue(0, (i + 1) % QUEUES);
			REQUIRE(ends[0].ops->attach(ends[0].q, there[i][j]) == -EINVAL);
			use_queue(0, i);
			use_queue(1, j);
			REQUIRE(ends[0].ops->attach(ends[0].q, there[i][j]) == 0);
			REQUIRE(ends[1].ops->attach(ends[1].q, here[i][j]) == 0);
		}
	for (unsigned i = 0; i < QUEUES; i++)
		for (unsigned j = 0; j < QUEUES; j++) {
			struct nic_pkt pkt;
			use_queue(0, i);
			REQUIRE(send_one(0, there[i][j], i * 10 + j, 20) == 0);
			flush(0);
			use_queue(1, (j + 1) % QUEUES);
			REQUIRE(take(1, &pkt, 1) == 0);
			use_queue(1, j);
			expect_one(1, here[i][j], i * 10 + j, 20);
			REQUIRE(send_one(1, here[i][j], 9, 5000) == 0);
			flush(1);
			expect_one(0, there[i][j], 9, 5000);
		}
	unsigned fails = ends[0].fails;
	connect_queues(0, 0, 1, QUEUES);
	REQUIRE(step_until(&ends[0].fails, fails + 1));
	REQUIRE(ends[0].failed_text[0]);
}

/* Two queues of one port are two peers, with the events of both sides; one queue is one. */
static void case_own_queues(void)
{
	if (!queues_open(1))
		return;
	for (unsigned i = 0; i < QUEUES; i++)
		for (unsigned j = 0; j < QUEUES; j++) {
			unsigned ups = ends[0].ups, connects = ends[0].connects;
			connect_queues(0, i, 0, j);
			REQUIRE(step_until(&ends[0].ups, ups + (i == j ? 1 : 2)));
			REQUIRE(ends[0].connects == connects + (i != j));
			uint32_t at_i = ends[0].last_up, at_j = i == j ? at_i : ends[0].accepted;
			REQUIRE((at_i == at_j) == (i == j));
			REQUIRE(ends[0].up_queue == i);
			use_queue(0, i);
			REQUIRE(ends[0].ops->attach(ends[0].q, at_i) == 0);
			use_queue(0, j);
			REQUIRE(i == j || ends[0].ops->attach(ends[0].q, at_j) == 0);
			use_queue(0, i);
			REQUIRE(send_one(0, at_i, 3, 30) == 0);
			flush(0);
			use_queue(0, j);
			expect_one(0, at_j, 3, 30);
		}
}

static bool thousand_up(void)
{
	end_open(0);
	end_open(1);
	return many_up(THOUSAND);
}

/* Traffic that wanders over all links: in order on each, and complete. */
static void case_thousand_links(void)
{
	static uint64_t sent[THOUSAND], got[THOUSAND];
	struct nic_pkt pkts[BURST];
	uint64_t total = 0, want = 0;
	if (!thousand_up())
		return;
	memset(sent, 0, sizeof sent);
	memset(got, 0, sizeof got);
	uint64_t limit = now_ns() + 2 * patience_ns;
	for (uint64_t round = 0; round < repeats(20000) || total < want; round++) {
		REQUIRE(over_network ? now_ns() < limit : round < 200000);
		for (unsigned k = 0; k < 4 && round < 20000; k++) {
			/* Some links often, the others now and then. */
			unsigned i = (unsigned)(mix(round * 4 + k) % (round % 4 ? 40 : THOUSAND));
			if (send_one(1, many_there[i], sent[i], sent[i] % 37) == 0) {
				sent[i]++;
				want++;
			}
		}
		flush(1);
		if (over_network)
			pump(ends[0].q);
		unsigned n = take(0, pkts, BURST);
		for (unsigned k = 0; k < n; k++) {
			unsigned i = 0;
			while (i < THOUSAND && many_here[i] != pkts[k].peer)
				i++;
			REQUIRE(i < THOUSAND);
			pkt_check(&pkts[k], got[i], got[i] % 37);
			got[i]++;
			give(0, &pkts[k]);
		}
		total += n;
	}
	for (unsigned i = 0; i < THOUSAND; i++)
		REQUIRE(got[i] == sent[i]);
}

static void case_thousand_asleep(void)
{
	struct nic_pkt pkts[BURST];
	if (!caps.wake) {
		unfit_reason = "it cannot wake";
		return;
	}
	if (!thousand_up())
		return;
	for (unsigned i = 0; i < THOUSAND; i += 3) {
		struct pollfd p = {.fd = ends[0].ops->wake_fd(ends[0].q), .events = POLLIN};
		ends[0].ops->arm(ends[0].q);
		REQUIRE(take(0, pkts, BURST) == 0);
		REQUIRE(over_network || poll_for(&p, 1, 0) == 0);
		REQUIRE(send_one(1, many_there[i], i, 8) == 0);
		flush(1);
		uint64_t limit = now_ns() + patience_ns;
		while (over_network && poll_for(&p, 1, 1) != 1 && now_ns() < limit)
			pump(ends[0].q);
		REQUIRE(poll_for(&p, 1, 10000) == 1);
		ends[0].ops->wake_clear(ends[0].q);
		expect_one(0, many_here[i], i, 8);
		ends[0].ops->disarm(ends[0].q);
	}
}

#endif
