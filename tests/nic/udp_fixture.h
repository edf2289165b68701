/* SPDX-License-Identifier: BSD-3-Clause */
/** The fixture of udp_socket.c and udp_netns.c: ports of the udp driver, places, packets. One program includes it.
 * Main thread of each process. */
#ifndef UDP_FIXTURE_H
#define UDP_FIXTURE_H

#include "nic/nic.h"
#include "nic/udp/udp_port.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ENDS = 3, BURST = 16, WAIT_MS = 20000 };

struct end {
	struct nic_port *port;
	struct nic_queue *q;
	const struct nic_queue_ops *ops;
	unsigned ups, fails, refusals;
	uint32_t refused;
	uint32_t last_up;
	void *last_user;
	char failed_text[NIC_TEXT_BYTES_MAX];
};

static struct end ends[ENDS];
static jmp_buf out;
static const char *running;
static const struct nic_port_ops *const driver = &nic_udp_port_ops;

#define REQUIRE(condition)                                                                                             \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s: %s does not hold\n", __FILE__, __LINE__, running, #condition);     \
			longjmp(out, 1);                                                                               \
		}                                                                                                      \
	} while (0)

static int on_event(void *ctx, const struct nic_event *ev)
{
	struct end *e = ctx;
	if (ev->type == NIC_EVENT_UP) {
		e->ups++;
		e->last_up = ev->peer;
	} else if (ev->type == NIC_EVENT_UNREACHABLE) {
		e->refusals++;
		e->refused = ev->peer;
		return 0;
	} else {
		e->fails++;
		snprintf(e->failed_text, sizeof e->failed_text, "%s", ev->text ? ev->text : "");
	}
	e->last_user = ev->user;
	return 0;
}

static int end_open_config(unsigned i, const struct nic_config *config, struct nic_err *err)
{
	memset(&ends[i], 0, sizeof ends[i]);
	int error = driver->open(config, &ends[i].port, err);
	if (error)
		return error;
	ends[i].q = driver->queue(ends[i].port, 0);
	ends[i].ops = ends[i].q->ops;
	return 0;
}

static inline void end_open_at(unsigned i, const char *listen, const char *args, unsigned queues)
{
	struct nic_err err = {""};
	struct nic_config config = {.queues = queues, .listen = listen, .args = args, .id = i + 1};
	int error = end_open_config(i, &config, &err);
	if (error)
		fprintf(stderr, "open: %s\n", err.text);
	REQUIRE(error == 0);
}

static void end_close(unsigned i)
{
	if (ends[i].port)
		driver->close(ends[i].port);
	ends[i].port = NULL;
}

static inline uint32_t dest_up(unsigned from, const struct nic_addr *addr, unsigned queue, unsigned remote_queue)
{
	struct end *e = &ends[from];
	struct nic_err err = {""};
	unsigned ups = e->ups;
	int error = driver->connect(e->port, &(struct nic_connect){queue, addr, remote_queue, NULL, 0, UINT64_MAX, e},
				    &err);
	if (error)
		fprintf(stderr, "connect: %s\n", err.text);
	REQUIRE(error == 0);
	struct pollfd p = {.fd = driver->fd(e->port), .events = POLLIN};
	REQUIRE(poll(&p, 1, WAIT_MS) == 1);
	REQUIRE(driver->step(e->port, 0, on_event, e) == UINT64_MAX);
	REQUIRE(e->ups == ups + 1 && e->last_user == e);
	return e->last_up;
}

static inline uint32_t connect_attach(unsigned from, unsigned to)
{
	struct nic_addr addr;
	driver->address(ends[to].port, &addr);
	uint32_t peer = dest_up(from, &addr, 0, 0);
	REQUIRE(ends[from].ops->attach(ends[from].q, peer) == 0);
	return peer;
}

static inline void fill(uint8_t *body, uint64_t len, uint64_t seed)
{
	for (uint64_t i = 0; i < len; i++)
		body[i] = (uint8_t)((seed + i) * 131 >> 3);
}

static inline int send_one(unsigned e, uint32_t peer, uint64_t seed, uint64_t len)
{
	struct nic_tx tx;
	int error = ends[e].ops->tx_reserve(ends[e].q, peer, len, &tx);
	if (error)
		return error;
	REQUIRE((uintptr_t)tx.body % UDP_ALIGN == 0);
	fill(tx.body, len, seed);
	return ends[e].ops->tx_commit(ends[e].q, &tx);
}

static inline void flush(unsigned e)
{
	ends[e].ops->flush(ends[e].q);
}

static inline bool pkt_is(const struct nic_pkt *pkt, uint64_t seed, uint64_t len)
{
	if (pkt->peer != NIC_PEER_NONE || !pkt->head || pkt->cookie || pkt->body_len != len || (len == 0) != !pkt->body)
		return false;
	for (uint64_t i = 0; i < len; i++)
		if (pkt->body[i] != (uint8_t)((seed + i) * 131 >> 3))
			return false;
	return true;
}

static inline unsigned take(unsigned e, struct nic_pkt *pkts, unsigned max)
{
	return ends[e].ops->recv(ends[e].q, pkts, max);
}

/* Sleeps, as the engine does, until something can be received, at most `ms`. */
static inline unsigned take_within(unsigned e, struct nic_pkt *pkts, unsigned max, int ms)
{
	struct pollfd p = {.fd = ends[e].ops->wake_fd(ends[e].q), .events = POLLIN};
	ends[e].ops->arm(ends[e].q);
	unsigned n = take(e, pkts, max);
	while (!n && poll(&p, 1, ms) == 1) {
		ends[e].ops->wake_clear(ends[e].q);
		n = take(e, pkts, max);
	}
	ends[e].ops->disarm(ends[e].q);
	return n;
}

static inline void expect_one(unsigned e, uint64_t seed, uint64_t len)
{
	struct nic_pkt pkts[2];
	REQUIRE(take_within(e, pkts, 2, WAIT_MS) == 1);
	REQUIRE(pkt_is(&pkts[0], seed, len));
}

static uint32_t at_1, at_0;

static inline void two(const char *listen, const char *args)
{
	end_close(0);
	end_close(1);
	end_open_at(0, listen, args, 1);
	end_open_at(1, listen, args, 1);
	at_1 = connect_attach(0, 1);
	at_0 = connect_attach(1, 0);
}

static inline void expect_row(unsigned e, uint64_t first, unsigned n, unsigned len)
{
	struct nic_pkt pkts[BURST];
	for (unsigned got = 0; got < n;) {
		unsigned more = take_within(e, pkts, BURST, WAIT_MS);
		REQUIRE(more > 0 && got + more <= n);
		for (unsigned i = 0; i < more; i++)
			REQUIRE(pkt_is(&pkts[i], first + got + i, len));
		got += more;
	}
	REQUIRE(take(e, pkts, BURST) == 0);
}

struct test_case {
	const char *name;
	void (*run)(void);
};

static bool run_case(const struct test_case *c)
{
	running = c->name;
	alarm(150);
	bool ok = setjmp(out) == 0;
	if (ok)
		c->run();
	for (unsigned k = 0; k < ENDS; k++)
		end_close(k);
	alarm(0);
	printf("%s: %s\n", running, ok ? "ok" : "FAILED");
	fflush(stdout);
	return ok;
}

/* Runs them; the exit status. */
static int run_cases(const struct test_case *cases, unsigned n)
{
	unsigned failed = 0;
	for (unsigned i = 0; i < n; i++)
		failed += !run_case(&cases[i]);
	printf("%u passed, %u failed, 0 skipped\n", n - failed, failed);
	return failed != 0;
}

#endif
