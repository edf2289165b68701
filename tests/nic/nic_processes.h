/* SPDX-License-Identifier: BSD-3-Clause */
/** The case of two processes; nic_conformance.c includes it. */
#ifndef NIC_PROCESSES_H
#define NIC_PROCESSES_H

#include "nic_bench.h"

#include <sys/socket.h>

enum { MANY_IN_MEMORY = 1000000, MANY_OVER_NETWORK = 30000 };

static uint64_t many(void)
{
	return over_network ? MANY_OVER_NETWORK : MANY_IN_MEMORY;
}

static uint64_t many_len(uint64_t seq)
{
	uint64_t r = mix(seq * 3 + 1);
	return r % 64 ? r % 33 : r % 4096 ? (r >> 20) % 4000 : (r >> 20) % 200000;
}

/* Sends all, asleep when the ring is full: the receiver is slower. */
static void send_many(unsigned e, uint32_t peer)
{
	struct nic_pkt none;
	for (uint64_t seq = 0; seq < many();) {
		int error = send_one(e, peer, seq, many_len(seq));
		REQUIRE(error == 0 || error == -EAGAIN || error == -ENOBUFS);
		seq += error == 0;
		if (error || seq % 16 == 0)
			flush(e);
		if (error)
			sched_yield();
		if (over_network && (error || seq % 16 == 0)) /* acknowledgements */
			REQUIRE(take(e, &none, 1) == 0);
	}
	flush(e);
}

/* Until something came, 30 s at most: a lost wake-up ends here; or until the queue wants to be polled. */
static void sleep_armed(unsigned e)
{
	struct pollfd p = {.fd = ends[e].ops->wake_fd(ends[e].q), .events = POLLIN};
	uint64_t at = ends[e].ops->deadline(ends[e].q), now = now_ns();
	if (at == UINT64_MAX)
		REQUIRE(poll(&p, 1, 30000) == 1);
	else if (at > now)
		poll(&p, 1, (int)((at - now) / 1000000 + 1));
	ends[e].ops->wake_clear(ends[e].q);
}

/* Takes all, sleeping by the protocol of arm() when there is nothing. */
static void take_many(unsigned e)
{
	struct nic_pkt pkts[BURST], held[3];
	unsigned held_n = 0;
	uint64_t limit = now_ns() + UINT64_C(50000000000);
	for (uint64_t seq = 0; seq < many();) {
		REQUIRE(now_ns() < limit);
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
		n = take(e, pkts, 1);
		if (n == 0)
			sleep_armed(e);
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

static int sender_main(int socket)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	running = "the sending process";
	if (setjmp(failed_case))
		return 1;
	end_open(1);
	REQUIRE(read(socket, &addr, sizeof addr) == (ssize_t)sizeof addr);
	REQUIRE(ends[1].port_ops->connect(ends[1].port, 0, &addr, 0, "hello", 5, now_ns() + CONNECT_NS, NULL, &err) ==
		0);
	REQUIRE(step_until(&ends[1].ups, 1));
	uint32_t peer = ends[1].last_up;
	REQUIRE(ends[1].ops->attach(ends[1].q, peer) == 0);
	send_many(1, peer);
	/* Over a network what was sent is not yet there. */
	char byte;
	while (over_network && recv(socket, &byte, 1, MSG_DONTWAIT) < 0) {
		struct nic_pkt none;
		REQUIRE(take(1, &none, 1) == 0);
		flush(1);
	}
	/* The end is a process's death, not a goodbye. */
	return 0;
}

static void case_two_processes(void)
{
	int sockets[2], status = -1;
	struct nic_addr addr;
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
	pid_t child = fork();
	if (child == 0) {
		close(sockets[0]);
		alarm(60);
		_exit(sender_main(sockets[1]));
	}
	close(sockets[1]);
	end_open(0);
	ends[0].port_ops->address(ends[0].port, &addr);
	REQUIRE(write(sockets[0], &addr, sizeof addr) == (ssize_t)sizeof addr);
	REQUIRE(step_until(&ends[0].ups, 1));
	REQUIRE(ends[0].ops->attach(ends[0].q, ends[0].last_up) == 0);
	take_many(0);
	if (over_network)
		REQUIRE(write(sockets[0], "", 1) == 1);
	REQUIRE(waitpid(child, &status, 0) == child);
	close(sockets[0]);
	REQUIRE(status == 0);
	/* Over a network nobody is missed who owes nothing. */
	REQUIRE(!over_network || send_one(0, ends[0].last_up, 0, 1) == 0);
	flush(0);
	REQUIRE(step_until(&ends[0].downs, 1));
}

#endif
