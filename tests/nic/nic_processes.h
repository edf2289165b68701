/* SPDX-License-Identifier: BSD-3-Clause */
/** The case of two processes; nic_conformance.c includes it. */
#ifndef NIC_PROCESSES_H
#define NIC_PROCESSES_H

#include "nic_bench.h"

enum { MANY = 1000000 };

static uint64_t many_len(uint64_t seq)
{
	uint64_t r = mix(seq * 3 + 1);
	return r % 64 ? r % 33 : r % 4096 ? (r >> 20) % 4000 : (r >> 20) % 200000;
}

/* Sends all, asleep when the ring is full: the receiver is slower. */
static void send_many(unsigned e, uint32_t peer)
{
	for (uint64_t seq = 0; seq < MANY;) {
		int error = send_one(e, peer, seq, many_len(seq));
		REQUIRE(error == 0 || error == -EAGAIN || error == -ENOBUFS);
		seq += error == 0;
		if (error || seq % 16 == 0)
			flush(e);
		if (error)
			sched_yield();
	}
	flush(e);
}

/* Takes all, sleeping by the protocol of arm() when there is nothing. */
static void take_many(unsigned e)
{
	struct nic_pkt pkts[BURST], held[3];
	unsigned held_n = 0;
	for (uint64_t seq = 0; seq < MANY;) {
		unsigned n = take(e, pkts, BURST);
		for (unsigned i = 0; i < n; i++, seq++) {
			pkt_check(&pkts[i], seq, many_len(seq));
			if (!pkts[i].cookie)
				continue;
			if (held_n == 3) {
				give(e, &held[seq % 3]);
				held[seq % 3] = pkts[i];
			} else {
				held[held_n++] = pkts[i];
			}
		}
		if (n || !caps.wake)
			continue;
		ends[e].ops->arm(ends[e].q);
		struct pollfd p = {.fd = ends[e].ops->wake_fd(ends[e].q), .events = POLLIN};
		n = take(e, pkts, 1);
		if (n == 0) {
			REQUIRE(poll(&p, 1, 30000) == 1); /* a lost wake-up ends here */
			ends[e].ops->wake_clear(ends[e].q);
		}
		ends[e].ops->disarm(ends[e].q);
		if (n) {
			pkt_check(&pkts[0], seq, many_len(seq));
			give(e, &pkts[0]);
			seq++;
		}
	}
	while (held_n)
		give(e, &held[--held_n]);
}

static int sender_main(int address_fd)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	running = "the sending process";
	if (setjmp(out))
		return 1;
	end_open(1);
	REQUIRE(read(address_fd, &addr, sizeof addr) == (ssize_t)sizeof addr);
	REQUIRE(ends[1].port_ops->connect(ends[1].port, 0, &addr, 0, "hello", 5, now_ns() + CONNECT_NS, NULL, &err) ==
		0);
	REQUIRE(step_until(&ends[1].ups, 1));
	uint32_t peer = ends[1].last_up;
	REQUIRE(ends[1].ops->attach(ends[1].q, peer) == 0);
	send_many(1, peer);
	/* The end is a process's death, not a goodbye. */
	return 0;
}

static void case_two_processes(void)
{
	int to_child[2], status = -1;
	struct nic_addr addr;
	REQUIRE(pipe(to_child) == 0);
	pid_t child = fork();
	if (child == 0) {
		close(to_child[1]);
		alarm(60);
		_exit(sender_main(to_child[0]));
	}
	close(to_child[0]);
	end_open(0);
	ends[0].port_ops->address(ends[0].port, &addr);
	REQUIRE(write(to_child[1], &addr, sizeof addr) == (ssize_t)sizeof addr);
	close(to_child[1]);
	REQUIRE(step_until(&ends[0].ups, 1));
	REQUIRE(ends[0].ops->attach(ends[0].q, ends[0].last_up) == 0);
	take_many(0);
	REQUIRE(waitpid(child, &status, 0) == child);
	REQUIRE(status == 0);
	REQUIRE(step_until(&ends[0].downs, 1));
}

#endif
