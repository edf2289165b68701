/* SPDX-License-Identifier: BSD-3-Clause */
/** The bench of nic_conformance.c and recv_cost.c: ports, connections, and packets whose contents can be checked. One
 * program includes it.
 */
#ifndef NIC_BENCH_H
#define NIC_BENCH_H

#include "nic/nic.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HEAD = 28, PEERS = 4, BURST = 16 };
#define CONNECT_NS UINT64_C(20000000000)

struct end {
	struct nic_port *port;
	struct nic_queue *q;
	const struct nic_queue_ops *ops;
	int refuse;
	unsigned ups, downs, fails, hellos;
	uint32_t last_up, last_down, up_queue, hello_queue;
	uint32_t accepted; /* the last UP without a user */
	char failed_text[NIC_TEXT_BYTES_MAX];
	void *last_user;
	char hello[NIC_HELLO_BYTES_MAX];
};

static const struct nic_port_ops *driver;
static struct nic_caps caps;
static struct end ends[PEERS + 1];
static char dir[] = "/tmp/far-nic-XXXXXX";
static jmp_buf out;
static const char *running;
static const char *skip_reason;

#define REQUIRE(condition)                                                                                             \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s: %s does not hold\n", __FILE__, __LINE__, running, #condition);     \
			longjmp(out, 1);                                                                               \
		}                                                                                                      \
	} while (0)

static uint64_t now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

/* ---- ports ---- */

static int on_event(void *ctx, const struct nic_event *ev)
{
	struct end *e = ctx;
	switch (ev->type) {
	case NIC_EVENT_HELLO:
		e->hellos++;
		e->hello_queue = ev->queue;
		memcpy(ev->reply, "reply", 5);
		*ev->reply_len = 5;
		return e->refuse;
	case NIC_EVENT_UP:
		e->ups++;
		e->last_up = ev->peer;
		e->up_queue = ev->queue;
		if (!ev->user)
			e->accepted = ev->peer;
		e->last_user = ev->user;
		snprintf(e->hello, sizeof e->hello, "%.*s", (int)ev->hello_len, (const char *)ev->hello);
		break;
	case NIC_EVENT_DOWN:
		e->downs++;
		e->last_down = ev->peer;
		break;
	case NIC_EVENT_FAILED:
		e->fails++;
		e->last_user = ev->user;
		snprintf(e->failed_text, sizeof e->failed_text, "%s", ev->text ? ev->text : "");
		break;
	}
	return 0;
}

static inline void step_all(void)
{
	for (unsigned i = 0; i <= PEERS; i++)
		if (ends[i].port)
			ends[i].port->ops->step(ends[i].port, now_ns(), on_event, &ends[i]);
}

/* Waits, on what step() and fd() promise, until *count has come to `at_least`. */
static bool step_until(const unsigned *count, unsigned at_least)
{
	uint64_t limit = now_ns() + CONNECT_NS;
	while (*count < at_least && now_ns() < limit) {
		struct pollfd fds[PEERS + 1];
		unsigned n = 0;
		uint64_t next = now_ns() + UINT64_C(1000000000);
		for (unsigned i = 0; i <= PEERS; i++) {
			if (!ends[i].port)
				continue;
			uint64_t at = ends[i].port->ops->step(ends[i].port, now_ns(), on_event, &ends[i]);
			next = at < next ? at : next;
			fds[n++] = (struct pollfd){.fd = ends[i].port->ops->fd(ends[i].port), .events = POLLIN};
		}
		uint64_t now = now_ns();
		if (*count < at_least && next > now)
			poll(fds, n, (int)((next - now) / 1000000 + 1));
	}
	return *count >= at_least;
}

/* -EINVAL: the driver has fewer queues. */
static int end_open_queues(unsigned i, unsigned queues)
{
	struct nic_err err = {""};
	struct nic_config config = {.runtime_dir = dir, .id = 100 + i, .queues = queues, .head_bytes = HEAD};
	memset(&ends[i], 0, sizeof ends[i]);
	int error = driver->open(&config, &ends[i].port, &err);
	if (error == -EINVAL)
		return error;
	if (error)
		fprintf(stderr, "open: %s\n", err.text);
	REQUIRE(error == 0);
	ends[i].q = driver->queue(ends[i].port, 0);
	REQUIRE(ends[i].q);
	ends[i].ops = ends[i].q->ops;
	return 0;
}

static void end_open(unsigned i)
{
	REQUIRE(end_open_queues(i, 1) == 0);
}

static void end_close(unsigned i)
{
	if (ends[i].port)
		driver->close(ends[i].port);
	ends[i].port = NULL;
}

static void start_connect(unsigned from, unsigned to, uint64_t deadline)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	driver->address(ends[to].port, &addr);
	REQUIRE(strcmp(addr.driver, driver->name) == 0);
	REQUIRE(addr.len <= NIC_ADDR_BYTES_MAX);
	REQUIRE(driver->connect(ends[from].port, 0, &addr, 0, "hello", 5, deadline, &ends[from], &err) == 0);
}

/* Connects and attaches both; what each end calls the other. */
static void pair_up(unsigned from, unsigned to, uint32_t *name_of_to, uint32_t *name_of_from)
{
	unsigned up_from = ends[from].ups, up_to = ends[to].ups;
	start_connect(from, to, now_ns() + CONNECT_NS);
	REQUIRE(step_until(&ends[from].ups, up_from + 1));
	REQUIRE(from == to || step_until(&ends[to].ups, up_to + 1));
	*name_of_to = ends[from].last_up;
	*name_of_from = ends[to].last_up;
	REQUIRE(ends[from].ops->attach(ends[from].q, *name_of_to) == 0);
	REQUIRE(from == to || ends[to].ops->attach(ends[to].q, *name_of_from) == 0);
}

static uint32_t at_1, at_0; /* 0's name for 1, 1's name for 0 */

static inline void two(void)
{
	end_open(0);
	end_open(1);
	pair_up(0, 1, &at_1, &at_0);
}

/* ---- packets with contents that can be checked ---- */

static uint64_t mix(uint64_t x)
{
	x *= UINT64_C(0x9e3779b97f4a7c15);
	return x ^ x >> 29;
}

static void body_fill(uint8_t *body, uint64_t len, uint64_t seed)
{
	uint64_t i = 0, word = mix(seed);
	for (; i + 8 <= len; i += 8, word = mix(word + i))
		memcpy(body + i, &word, 8);
	for (; i < len; i++)
		body[i] = (uint8_t)(word >> (i % 8 * 8));
}

static bool body_is(const uint8_t *body, uint64_t len, uint64_t seed)
{
	uint64_t i = 0, word = mix(seed);
	for (; i + 8 <= len; i += 8, word = mix(word + i))
		if (memcmp(body + i, &word, 8) != 0)
			return false;
	for (; i < len; i++)
		if (body[i] != (uint8_t)(word >> (i % 8 * 8)))
			return false;
	return true;
}

static void head_fill(uint8_t *head, uint64_t seq, uint64_t len)
{
	memset(head, 0x3c, HEAD);
	memcpy(head, &seq, 8);
	memcpy(head + 8, &len, 8);
}

static inline int send_one(unsigned e, uint32_t peer, uint64_t seq, uint64_t len)
{
	struct nic_tx tx;
	int error = ends[e].ops->tx_reserve(ends[e].q, peer, len, &tx);
	if (error)
		return error;
	head_fill(tx.head, seq, len);
	body_fill(tx.body, len, seq);
	return ends[e].ops->tx_commit(ends[e].q, &tx);
}

static void flush(unsigned e)
{
	ends[e].ops->flush(ends[e].q);
}

static void pkt_check(const struct nic_pkt *pkt, uint64_t seq, uint64_t len)
{
	uint64_t got_seq, got_len;
	REQUIRE(pkt->head);
	memcpy(&got_seq, pkt->head, 8);
	memcpy(&got_len, pkt->head + 8, 8);
	REQUIRE(got_seq == seq);
	REQUIRE(got_len == len);
	REQUIRE(pkt->head[HEAD - 1] == 0x3c);
	REQUIRE(pkt->body_len == len);
	REQUIRE(len == 0 || pkt->body);
	REQUIRE(len || !pkt->body);
	bool same_line = HEAD + len <= caps.inline_bytes_max;
	REQUIRE(len == 0 || (uintptr_t)pkt->body % (same_line ? 32 : 64) == 0);
	REQUIRE(body_is(pkt->body, len, seq));
}

static unsigned take(unsigned e, struct nic_pkt *pkts, unsigned max)
{
	return ends[e].ops->recv(ends[e].q, pkts, max);
}

static void give(unsigned e, const struct nic_pkt *pkt)
{
	if (pkt->cookie)
		ends[e].ops->release(ends[e].q, pkt->peer, pkt->cookie);
}

/* Exactly one packet waits: it is taken, checked and given back. */
static inline void expect_one(unsigned e, uint32_t peer, uint64_t seq, uint64_t len)
{
	struct nic_pkt pkts[2];
	REQUIRE(take(e, pkts, 2) == 1);
	REQUIRE(pkts[0].peer == peer);
	pkt_check(&pkts[0], seq, len);
	give(e, &pkts[0]);
}

#endif
