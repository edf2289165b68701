/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The fixture of nic_conformance.c and recv_cost.c: ports, connections, and packets whose contents can be checked. One
 * program includes it. Main thread of each process.
 *
 * Each end is opened with arguments of its own where several are given. Over a network what was flushed is not there
 * at once, and comes only when both ends are polled: what the other queues receive while one is waited for is kept for
 * them (struct kept).
 */
#ifndef NIC_FIXTURE_H
#define NIC_FIXTURE_H

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

enum { HEAD = 28, PEERS = 4, BURST = 16, ARGS_MAX = PEERS + 1, QUEUES_MAX = 16 };
#define CONNECT_NS (UINT64_C(20000000000) * slow)
#define LINK_NS    UINT64_C(4000000000) /* a silent peer of a link is down */

/* A packet that came while another queue was waited for. */
struct kept {
	struct kept *next;
	struct nic_queue *q;
	struct nic_pkt pkt;
	uint8_t *bytes;
	bool taken;
};

struct end {
	struct nic_port *port;
	struct nic_queue *q;
	const struct nic_queue_ops *ops;
	int refuse;
	unsigned ups, downs, fails, connects, refusals;
	uint32_t refused;
	uint32_t last_up, last_down, up_queue, connect_queue;
	uint32_t accepted; /* the last UP without a user */
	char failed_text[NIC_TEXT_BYTES_MAX];
	void *last_user;
	char handshake[NIC_HANDSHAKE_BYTES_MAX];
	size_t handshake_len;
	unsigned queues;
	const struct nic_port_ops *port_ops;
};

static const struct nic_port_ops *driver; /* whose ports are opened */
static const char *driver_args[ARGS_MAX];
static unsigned driver_args_n;
static bool beyond_host;     /* nic_config.beyond_host */
static unsigned driver_head; /* nic_config.head_bytes that it takes */
static unsigned case_head;   /* bytes of heads that the cases see: HEAD, or 0 of datagrams */
/* Puts something on top of the port of an end, when not NULL. */
static int (*port_wrap)(struct nic_port *lower, unsigned queues, struct nic_port **out, struct nic_err *err);
static bool over_network; /* packets take their time */
static uint64_t slow = 1; /* how many times longer everything may take: an emulated machine */
static bool brief;        /* fewer repetitions */
static uint64_t patience_ns = UINT64_C(20000000000);
static struct nic_caps caps; /* of what the cases see */
static struct end ends[PEERS + 1];
static struct kept *kept;
static char dir[] = "/tmp/far-nic-XXXXXX";
static jmp_buf failed_case;
static const char *running;
static const char *skip_reason;  /* the machine cannot run the case */
static const char *unfit_reason; /* the driver promises less than the case needs: it is none of its cases */

#define REQUIRE(condition)                                                                                             \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s: %s does not hold\n", __FILE__, __LINE__, running, #condition);     \
			longjmp(failed_case, 1);                                                                       \
		}                                                                                                      \
	} while (0)

/* Of a driver whose time is not the machine's; NULL: it is. Looking at the clock lets time pass. */
static uint64_t (*other_now)(void);
static int (*other_poll)(struct pollfd *fds, nfds_t n, int timeout_ms);

/* How often something is repeated: so many times, or a third of it, twice at least. */
static inline uint64_t repeats(uint64_t n)
{
	return !brief ? n : n < 6 ? 2 : n / 3;
}

static uint64_t now_ns(void)
{
	struct timespec ts;
	if (other_now)
		return other_now();
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

static inline int poll_for(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	return other_poll ? other_poll(fds, n, timeout_ms) : poll(fds, n, timeout_ms);
}

/* ---- ports ---- */

static int on_event(void *ctx, const struct nic_event *ev)
{
	struct end *e = ctx;
	switch (ev->type) {
	case NIC_EVENT_CONNECT:
		e->connects++;
		e->connect_queue = ev->queue;
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
		e->handshake_len = ev->handshake_len;
		snprintf(e->handshake, sizeof e->handshake, "%.*s", (int)ev->handshake_len,
			 ev->handshake_len ? (const char *)ev->handshake : "");
		break;
	case NIC_EVENT_DOWN:
		e->downs++;
		e->last_down = ev->peer;
		break;
	case NIC_EVENT_UNREACHABLE:
		e->refusals++;
		e->refused = ev->peer;
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
			ends[i].port_ops->step(ends[i].port, now_ns(), on_event, &ends[i]);
}

/* ---- what comes while something else is waited for ---- */

static void keep(struct nic_queue *q, const struct nic_pkt *pkt)
{
	struct kept *k = calloc(1, sizeof *k), **at = &kept;
	uint64_t room = pkt->body_len / 64 * 64 + 128;
	k->q = q;
	k->pkt = *pkt;
	k->bytes = aligned_alloc(64, room);
	if (pkt->head)
		memcpy(k->bytes, pkt->head, case_head);
	memcpy(k->bytes + 64, pkt->body_len ? pkt->body : k->bytes, pkt->body_len);
	k->pkt.head = pkt->head ? k->bytes : NULL;
	k->pkt.body = pkt->body_len ? k->bytes + 64 : NULL;
	k->pkt.cookie = 0;
	if (pkt->cookie)
		q->ops->release(q, pkt->peer, pkt->cookie);
	while (*at)
		at = &(*at)->next;
	*at = k;
}

/* Those that were taken, or all. */
static void kept_free(bool all)
{
	for (struct kept **at = &kept, *k; (k = *at);) {
		if (!all && !k->taken) {
			at = &k->next;
			continue;
		}
		*at = k->next;
		free(k->bytes);
		free(k);
	}
}

static unsigned kept_take(struct nic_queue *q, struct nic_pkt *pkts, unsigned max)
{
	unsigned n = 0;
	kept_free(false);
	for (struct kept *k = kept; k && n < max; k = k->next)
		if (k->q == q) {
			k->taken = true;
			pkts[n++] = k->pkt;
		}
	return n;
}

/* All queues but this one, which somebody waits for, have their turn. */
static void pump(const struct nic_queue *but)
{
	struct nic_pkt pkts[BURST];
	for (unsigned e = 0; e <= PEERS; e++)
		for (unsigned i = 0; ends[e].port && i < ends[e].queues; i++) {
			struct nic_queue *q = ends[e].port_ops->queue(ends[e].port, i);
			if (q == but)
				continue;
			unsigned n = q->ops->recv(q, pkts, BURST);
			for (unsigned k = 0; k < n; k++)
				keep(q, &pkts[k]);
			q->ops->flush(q);
		}
}

/* Waits, on what step() and fd() promise, until *count has come to `at_least`. */
static bool step_until(const unsigned *count, unsigned at_least)
{
	uint64_t limit = now_ns() + patience_ns;
	while (*count < at_least && now_ns() < limit) {
		struct pollfd fds[PEERS + 1];
		unsigned n = 0;
		uint64_t next = now_ns() + UINT64_C(1000000000);
		if (over_network) {
			pump(NULL);
			next = 0;
		}
		for (unsigned i = 0; i <= PEERS; i++) {
			if (!ends[i].port)
				continue;
			uint64_t at = ends[i].port_ops->step(ends[i].port, now_ns(), on_event, &ends[i]);
			next = at < next ? at : next;
			fds[n++] = (struct pollfd){.fd = ends[i].port_ops->fd(ends[i].port), .events = POLLIN};
		}
		uint64_t now = now_ns();
		if (*count < at_least && next > now)
			poll_for(fds, n, (int)((next - now) / 1000000 + 1));
	}
	return *count >= at_least;
}

/* -EINVAL: the driver has fewer queues. */
static int end_open_queues(unsigned i, unsigned queues)
{
	struct nic_err err = {""};
	unsigned which = i < driver_args_n ? i : driver_args_n - 1;
	struct nic_config config = {.runtime_dir = dir,
				    .id = 100 + i,
				    .queues = queues,
				    .head_bytes = driver_head,
				    .beyond_host = beyond_host,
				    .args = driver_args_n ? driver_args[which] : NULL};
	struct nic_port *port;
	memset(&ends[i], 0, sizeof ends[i]);
	int error = driver->open(&config, &port, &err);
	if (error == -EINVAL)
		return error;
	if (!error && port_wrap) {
		struct nic_port *lower = port;
		error = port_wrap(lower, queues, &port, &err);
		if (error)
			driver->close(lower);
	}
	if (error)
		fprintf(stderr, "open: %s\n", err.text);
	REQUIRE(error == 0);
	ends[i].port = port;
	ends[i].port_ops = port->ops;
	ends[i].queues = queues;
	ends[i].q = ends[i].port_ops->queue(ends[i].port, 0);
	REQUIRE(ends[i].q);
	ends[i].ops = ends[i].q->ops;
	return 0;
}

/* Where each end has arguments of its own there are no more ends than those. */
static inline bool ends_are(unsigned n)
{
	if (driver_args_n > 1 && driver_args_n < n)
		unfit_reason = "it has fewer ends";
	else if (caps.peers_max < n - 1)
		unfit_reason = "it has fewer peers";
	return !unfit_reason;
}

static void end_open(unsigned i)
{
	REQUIRE(end_open_queues(i, 1) == 0);
}

static void end_close(unsigned i)
{
	if (ends[i].port)
		ends[i].port_ops->close(ends[i].port);
	ends[i].port = NULL;
}

static void start_connect(unsigned from, unsigned to, uint64_t deadline)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	ends[to].port_ops->address(ends[to].port, &addr);
	REQUIRE(strcmp(addr.driver, driver->name) == 0);
	REQUIRE(addr.len <= NIC_ADDR_BYTES_MAX);
	REQUIRE(ends[from].port_ops->connect(ends[from].port,
					     &(struct nic_connect){0, &addr, 0, "hello", 5, deadline, &ends[from]},
					     &err) == 0);
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
	/* What is not in the head's line, where there is such a thing, begins one. */
	bool own_line = caps.inline_bytes_max && HEAD + len > caps.inline_bytes_max;
	REQUIRE(len == 0 || (uintptr_t)pkt->body % (own_line ? 64 : caps.body_align) == 0);
	REQUIRE(body_is(pkt->body, len, seq));
}

static unsigned take(unsigned e, struct nic_pkt *pkts, unsigned max)
{
	unsigned n = kept ? kept_take(ends[e].q, pkts, max) : 0;
	return n ? n : ends[e].ops->recv(ends[e].q, pkts, max);
}

/* What was flushed is there at once, or over a network soon. */
static inline unsigned take_soon(unsigned e, struct nic_pkt *pkts, unsigned max)
{
	unsigned n = take(e, pkts, max);
	uint64_t limit = now_ns() + patience_ns;
	for (unsigned rounds = 0; !n && over_network && now_ns() < limit; rounds++) {
		pump(ends[e].q);
		if (rounds % 64 == 63) {
			step_all();
			sched_yield();
		}
		n = take(e, pkts, max);
		ends[e].ops->flush(ends[e].q);
	}
	return n;
}

/* Where the ring is full until acknowledgements have come, waits for them. */
static inline bool send_soon(unsigned e, uint32_t peer, uint64_t seq, uint64_t len)
{
	uint64_t limit = now_ns() + patience_ns;
	int error;
	while ((error = send_one(e, peer, seq, len)) && over_network && now_ns() < limit) {
		REQUIRE(error == -EAGAIN || error == -ENOBUFS);
		flush(e);
		pump(NULL);
	}
	return error == 0;
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
	REQUIRE(take_soon(e, pkts, 2) == 1);
	REQUIRE(pkts[0].peer == peer);
	pkt_check(&pkts[0], seq, len);
	give(e, &pkts[0]);
}

#endif
