/* SPDX-License-Identifier: BSD-3-Clause */
/** The case of two processes; nic_conformance.c includes it. Main thread of each process. */
#ifndef NIC_PROCESSES_H
#define NIC_PROCESSES_H

#include "nic_fixture.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

enum { MANY_IN_MEMORY = 1000000, MANY_OVER_NETWORK = 30000 };

static uint64_t many(void)
{
	return repeats(over_network ? MANY_OVER_NETWORK : MANY_IN_MEMORY);
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
	uint64_t limit = now_ns() + UINT64_C(50000000000) * slow;
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

/* ---- the other process ---- */

extern char **environ;

/** The first message to the other process. */
struct facts {
	struct nic_caps caps;
	unsigned driver_head, case_head;
	bool over_network;
	uint64_t patience_ns;
};

/**
 * The program itself with the driver's options and `--child NAME`: a fork would share what a driver keeps per process.
 * Its end of a stream between both is its standard input; the other end is returned.
 */
static int child_start(const char *name, pid_t *child)
{
	char *argv[2 * ARGS_MAX + 13], slow_text[16];
	unsigned n = 0;
	int sockets[2];
	argv[n++] = (char *)(uintptr_t) "nic_conformance";
	argv[n++] = (char *)(uintptr_t) "--driver";
	argv[n++] = (char *)(uintptr_t)driver->name;
	for (unsigned i = 0; i < driver_args_n; i++) {
		argv[n++] = (char *)(uintptr_t) "--args";
		argv[n++] = (char *)(uintptr_t)driver_args[i];
	}
	if (beyond_host)
		argv[n++] = (char *)(uintptr_t) "--open";
	if (brief)
		argv[n++] = (char *)(uintptr_t) "--brief";
	snprintf(slow_text, sizeof slow_text, "%u", (unsigned)slow);
	argv[n++] = (char *)(uintptr_t) "--slow";
	argv[n++] = slow_text;
	argv[n++] = (char *)(uintptr_t) "--child";
	argv[n++] = (char *)(uintptr_t)name;
	argv[n++] = dir;
	argv[n] = NULL;
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
	*child = fork();
	if (*child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(sockets[1], 0);
		execve("/proc/self/exe", argv, environ);
		_exit(127);
	}
	close(sockets[1]);
	REQUIRE(*child > 0);
	struct facts facts = {.caps = caps,
			      .driver_head = driver_head,
			      .case_head = case_head,
			      .over_network = over_network,
			      .patience_ns = patience_ns};
	REQUIRE(write(sockets[0], &facts, sizeof facts) == (ssize_t)sizeof facts);
	return sockets[0];
}

static void child_wait(pid_t child, int socket)
{
	int status = -1;
	REQUIRE(waitpid(child, &status, 0) == child);
	close(socket);
	REQUIRE(status == 0);
}

static void sender_main(int socket)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	end_open(1);
	REQUIRE(recv(socket, &addr, sizeof addr, MSG_WAITALL) == (ssize_t)sizeof addr);
	REQUIRE(ends[1].port_ops->connect(ends[1].port,
					  &(struct nic_connect){0, &addr, 0, "hello", 5, now_ns() + CONNECT_NS, NULL},
					  &err) == 0);
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
	_exit(0);
}

static void case_two_processes(void)
{
	struct nic_addr addr;
	pid_t child;
	if (other_now) {
		unfit_reason = "its world is in one process";
		return;
	}
	int socket = child_start("sender", &child);
	end_open(0);
	ends[0].port_ops->address(ends[0].port, &addr);
	REQUIRE(write(socket, &addr, sizeof addr) == (ssize_t)sizeof addr);
	REQUIRE(step_until(&ends[0].ups, 1));
	REQUIRE(ends[0].ops->attach(ends[0].q, ends[0].last_up) == 0);
	take_many(0);
	if (over_network)
		REQUIRE(write(socket, "", 1) == 1);
	child_wait(child, socket);
	/* Over a network nobody is missed who owes nothing. */
	REQUIRE(!over_network || send_one(0, ends[0].last_up, 0, 1) == 0);
	flush(0);
	REQUIRE(step_until(&ends[0].downs, 1));
}

#endif
