/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Ports of the dpdk driver for tests, by its tables alone, and a second process: the program itself, run as
 * `PROGRAM --echo ARGS QUEUES`, which sends back what its queues receive. It reads the other's address from its
 * standard input and writes its own to its standard output. Main thread of each process.
 */
#ifndef DPDK_ENDS_H
#define DPDK_ENDS_H

#include "nic/nic.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REQUIRE(condition)                                                                                             \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                  \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

#define QUEUES  4
#define BURST   16
#define HANG_NS UINT64_C(20000000000) /* what takes longer never comes */

struct end {
	struct nic_port *port;
	const struct nic_port_ops *ops;
	struct nic_queue *q[QUEUES];
	unsigned queues, ups;
	uint32_t up;
	struct nic_caps caps;
};

static inline uint64_t now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

static inline const struct nic_port_ops *dpdk_ops(void)
{
	struct nic_err err = {""};
	const struct nic_port_ops *ops = nic_find("dpdk", &err);
	if (!ops) {
		fprintf(stderr, "%s\n", err.text);
		exit(77);
	}
	return ops;
}

static inline int end_try(struct end *e, const char *args, unsigned queues, struct nic_err *err)
{
	struct nic_config config = {.id = 1, .queues = queues, .args = args};
	memset(e, 0, sizeof *e);
	e->ops = dpdk_ops();
	e->queues = queues;
	err->text[0] = 0;
	int error = e->ops->open(&config, &e->port, err);
	for (unsigned i = 0; !error && i < queues; i++)
		e->q[i] = e->ops->queue(e->port, i);
	if (!error)
		e->ops->caps(e->port, &e->caps);
	return error;
}

static inline void end_open(struct end *e, const char *args, unsigned queues)
{
	struct nic_err err;
	int error = end_try(e, args, queues, &err);
	if (error)
		fprintf(stderr, "%s: %d, %s\n", args, error, err.text);
	REQUIRE(!error);
}

static inline int end_on_event(void *ctx, const struct nic_event *event)
{
	struct end *e = ctx;
	REQUIRE(event->type == NIC_EVENT_UP);
	e->ups++;
	e->up = event->peer;
	return 0;
}

/* Now and then, as a control thread would: it costs system calls. */
static inline void end_step(struct end *e)
{
	struct pollfd p = {.fd = e->ops->fd(e->port), .events = POLLIN};
	static uint64_t next[8];
	uint64_t *at = &next[(unsigned)p.fd % 8], now = now_ns();
	if (poll(&p, 1, 0) > 0 || now >= *at) {
		uint64_t due = e->ops->step(e->port, now, end_on_event, e);
		*at = due < now + 10000000 ? due : now + 10000000;
	}
}

/* A place to send to, attached. */
static inline uint32_t end_connect(struct end *e, unsigned queue, const struct nic_addr *addr, unsigned remote)
{
	struct nic_err err = {""};
	unsigned before = e->ups;
	int error = e->ops->connect(
		e->port, &(struct nic_connect){queue, addr, remote, NULL, 0, now_ns() + HANG_NS, NULL}, &err);
	if (error)
		fprintf(stderr, "connect: %s\n", err.text);
	REQUIRE(!error);
	while (e->ups == before)
		e->ops->step(e->port, now_ns(), end_on_event, e);
	REQUIRE(e->q[queue]->ops->attach(e->q[queue], e->up) == 0);
	return e->up;
}

static inline uint8_t pattern(uint64_t seq, size_t i)
{
	return (uint8_t)(seq * 131 + i * 7 + i / 251);
}

/* A datagram of `len` bytes, 16 at least: its number, who is to get it, and what follows from them. 0 or -errno. */
static inline int send_urgent(struct end *e, unsigned queue, uint32_t peer, uint64_t seq, size_t len, uint8_t priority)
{
	struct nic_tx tx;
	struct nic_queue *q = e->q[queue];
	int error = q->ops->tx_reserve(q, peer, len, &tx);
	if (error)
		return error;
	uint64_t head[2] = {seq, queue};
	memcpy(tx.body, head, sizeof head);
	for (size_t i = sizeof head; i < len; i++)
		tx.body[i] = pattern(seq, i);
	tx.priority = priority;
	error = q->ops->tx_commit(q, &tx);
	if (error)
		q->ops->tx_cancel(q, &tx);
	return error;
}

static inline int send_one(struct end *e, unsigned queue, uint32_t peer, uint64_t seq, size_t len)
{
	return send_urgent(e, queue, peer, seq, len, 0);
}

static inline bool is_whole(const struct nic_pkt *pkt, uint64_t *seq)
{
	if (pkt->body_len < 16)
		return false;
	memcpy(seq, pkt->body, sizeof *seq);
	for (size_t i = 16; i < pkt->body_len; i++)
		if (pkt->body[i] != pattern(*seq, i))
			return false;
	return true;
}

static inline void flush(struct end *e, unsigned queue)
{
	e->q[queue]->ops->flush(e->q[queue]);
}

/* Datagrams with the numbers from `seq` on: `n` of them, 64 at most, of `len` bytes, `len` + 1, … */
struct burst {
	uint64_t seq;
	unsigned n;
	size_t len;
};

/* Sends each until it, or its echo, arrives at `to`; whatever else arrives is passed over. On a loaded machine a
 * process that has to run first costs milliseconds, whether it is for one datagram or for many. */
static inline void exchange_burst(struct end *from, unsigned queue, uint32_t peer, struct end *to, unsigned to_queue,
				  struct burst b)
{
	uint64_t end = now_ns() + HANG_NS, again = 0, wait = 2000000, missing = ~UINT64_C(0) >> (64 - b.n), got;
	while (missing) {
		uint64_t now = now_ns();
		REQUIRE(now < end);
		if (now >= again) {
			for (unsigned i = 0; i < b.n; i++) {
				if (!(missing >> i & 1))
					continue;
				int error = send_one(from, queue, peer, b.seq + i, b.len + i);
				REQUIRE(error == 0 || error == -EAGAIN || error == -ENOBUFS);
			}
			flush(from, queue);
			again = now + wait;
			wait *= 2;
		}
		struct nic_pkt pkts[BURST];
		unsigned n = to->q[to_queue]->ops->recv(to->q[to_queue], pkts, BURST);
		for (unsigned i = 0; i < n; i++) {
			REQUIRE(pkts[i].peer == NIC_PEER_NONE && pkts[i].cookie == 0);
			REQUIRE(is_whole(&pkts[i], &got));
			if (got - b.seq < b.n && pkts[i].body_len == b.len + (got - b.seq))
				missing &= ~(UINT64_C(1) << (got - b.seq));
		}
		end_step(from);
		if (to != from)
			end_step(to);
	}
}

static inline void exchange(struct end *from, unsigned queue, uint32_t peer, struct end *to, unsigned to_queue,
			    uint64_t seq, size_t len)
{
	exchange_burst(from, queue, peer, to, to_queue, (struct burst){seq, 1, len});
}

/* ---- the other process ---- */

struct other {
	pid_t pid;
	int in, out;
	struct nic_addr addr;
};

extern char **environ;

static inline void other_start(struct other *o, const char *args, unsigned queues, const struct nic_addr *ours)
{
	int to[2], from[2];
	char n[16];
	posix_spawn_file_actions_t actions;
	REQUIRE(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, to[0], 0);
	posix_spawn_file_actions_adddup2(&actions, from[1], 1);
	snprintf(n, sizeof n, "%u", queues);
	char self[] = "/proc/self/exe", echo[] = "--echo";
	char *argv[] = {self, echo, (char *)(uintptr_t)args, n, NULL};
	REQUIRE(posix_spawn(&o->pid, self, &actions, NULL, argv, environ) == 0);
	posix_spawn_file_actions_destroy(&actions);
	close(to[0]);
	close(from[1]);
	o->in = to[1];
	o->out = from[0];
	REQUIRE(write(o->in, ours, sizeof *ours) == (ssize_t)sizeof *ours);
	REQUIRE(read(o->out, &o->addr, sizeof o->addr) == (ssize_t)sizeof o->addr);
}

static inline void other_end(struct other *o, int how)
{
	int status;
	if (how)
		kill(o->pid, how);
	close(o->in); /* which ends an echo */
	REQUIRE(waitpid(o->pid, &status, 0) == o->pid);
	REQUIRE(how ? WIFSIGNALED(status) && WTERMSIG(status) == how : status == 0);
	close(o->out);
}

static inline void echo_all(struct end *e, unsigned queue, uint32_t peer)
{
	struct nic_pkt pkts[BURST];
	struct nic_queue *q = e->q[queue];
	unsigned n = q->ops->recv(q, pkts, BURST);
	for (unsigned i = 0; i < n; i++) {
		struct nic_tx tx;
		if (q->ops->tx_reserve(q, peer, pkts[i].body_len, &tx))
			continue;
		if (pkts[i].body_len)
			memcpy(tx.body, pkts[i].body, pkts[i].body_len);
		REQUIRE(q->ops->tx_commit(q, &tx) == 0);
	}
	flush(e, queue);
}

/* Queue i of this process sends to queue i of the other. Ends with its standard input. */
static inline int echo_main(const char *args, unsigned queues)
{
	struct end e;
	struct nic_addr ours, theirs;
	uint32_t peers[QUEUES];
	end_open(&e, args, queues);
	REQUIRE(read(0, &theirs, sizeof theirs) == (ssize_t)sizeof theirs);
	e.ops->address(e.port, &ours);
	for (unsigned i = 0; i < queues; i++)
		peers[i] = end_connect(&e, i, &theirs, i);
	REQUIRE(write(1, &ours, sizeof ours) == (ssize_t)sizeof ours);
	struct pollfd in = {.fd = 0, .events = POLLIN};
	for (uint64_t turn = 0; turn % 64 || poll(&in, 1, 0) == 0; turn++) {
		for (unsigned i = 0; i < queues; i++)
			echo_all(&e, i, peers[i]);
		end_step(&e);
	}
	for (unsigned i = 0; i < queues; i++) {
		e.q[i]->ops->detach(e.q[i], peers[i]);
		e.ops->drop(e.port, peers[i]);
	}
	e.ops->close(e.port);
	return 0;
}

#endif
