/* SPDX-License-Identifier: BSD-3-Clause */
/** Links over a datagram driver in memory, which loses packets: a control thread and a shard at either side, each a
 * thread, with sleeps; connections come up, carry messages, and are dropped, again and again. For a build with
 * ThreadSanitizer; without it, it still checks order, and that nobody sleeps for ever. */
#include "../e2e/check.h"
#include "fake_dgram.h"
#include "transport/transport.h"
#include "transport/wire.h"

#include <poll.h>
#include <pthread.h>

enum { ROUNDS = 12, MESSAGES = 300, HEAD = 28, BURST = 16 };

struct side {
	struct nic_port *port;
	struct nic_queue *q;
	_Atomic uint32_t up; /* peer + 1 that the shard is to attach, from its control thread */
	_Atomic bool down;   /* it is to let go of it */
	_Atomic unsigned let_go;
	_Atomic bool stop;
	_Atomic unsigned ended; /* peers that the control thread has dropped */
	bool connects;
	uint32_t peer;
	pthread_t shard, core;
	uint64_t sleeps;
};
static struct side sides[2];
static struct dgram_fabric fabric;

static bool lose(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	static _Atomic unsigned n;
	/* Who awaits nothing does not miss a BYE. */
	return bytes[1] == WIRE_CLOSE || atomic_fetch_add(&n, 1) % 50 != 0;
}

static uint64_t now_ns(void)
{
	return clock_now(&clock_monotonic);
}

/* ---- the shard ---- */

static void receive(struct side *s, uint64_t *got)
{
	struct nic_pkt pkts[BURST];
	unsigned n = s->q->ops->recv(s->q, pkts, BURST);
	for (unsigned i = 0; i < n; i++, ++*got) {
		uint64_t seq;
		memcpy(&seq, pkts[i].head, sizeof seq);
		CHECK(seq == *got);
		CHECK(pkts[i].body_len == (seq * 37) % 4000);
		CHECK(pkts[i].body_len == 0 || pkts[i].body[pkts[i].body_len - 1] == (uint8_t)seq);
		if (pkts[i].cookie)
			s->q->ops->release(s->q, pkts[i].peer, pkts[i].cookie);
	}
}

static bool send_one(struct side *s, uint32_t peer, uint64_t seq)
{
	struct nic_tx tx;
	uint64_t len = (seq * 37) % 4000;
	if (s->q->ops->tx_reserve(s->q, peer, len, &tx))
		return false;
	memset(tx.head, 0, HEAD);
	memcpy(tx.head, &seq, sizeof seq);
	if (len)
		memset(tx.body, (int)(uint8_t)seq, len);
	return s->q->ops->tx_commit(s->q, &tx) == 0;
}

static void sleep_once(struct side *s, uint64_t *got)
{
	struct pollfd p = {.fd = s->q->ops->wake_fd(s->q), .events = POLLIN};
	uint64_t before = *got;
	s->q->ops->arm(s->q);
	receive(s, got);
	if (*got == before) {
		uint64_t at = s->q->ops->deadline(s->q), now = now_ns();
		int ms = at == UINT64_MAX ? 20 : at > now ? (int)((at - now) / 1000000 + 1) : 0;
		poll(&p, 1, ms);
		s->q->ops->wake_clear(s->q);
		s->sleeps++;
	}
	s->q->ops->disarm(s->q);
}

static void *shard_main(void *arg)
{
	struct side *s = arg;
	uint64_t sent = 0, got = 0;
	uint32_t peer = 0;
	while (!atomic_load(&s->stop)) {
		uint32_t up = atomic_exchange(&s->up, 0);
		if (up) {
			CHECK(s->q->ops->attach(s->q, up - 1) == 0);
			peer = up;
			sent = got = 0;
		}
		for (unsigned i = 0; peer && i < 8 && sent < MESSAGES && send_one(s, peer - 1, sent); i++)
			sent++;
		uint64_t before = got;
		receive(s, &got);
		s->q->ops->flush(s->q);
		/* One side ends it when it has all and all of its own has been taken. */
		bool complete =
			peer && got == MESSAGES && sent == MESSAGES && s->q->ops->tx_room(s->q, peer - 1) == 1024;
		if (peer && ((s->connects && complete) || atomic_exchange(&s->down, false))) {
			CHECK(got == MESSAGES);
			s->q->ops->detach(s->q, peer - 1);
			atomic_fetch_add(&s->let_go, 1);
			peer = 0;
		} else if (got == before) {
			sleep_once(s, &got);
		}
	}
	return NULL;
}

/* ---- the control thread ---- */

static int on_event(void *ctx, const struct nic_event *ev)
{
	struct side *s = ctx;
	if (ev->type == NIC_EVENT_CONNECT) {
		*ev->reply_len = 0;
		return 0;
	}
	if (ev->type == NIC_EVENT_UP) {
		s->peer = ev->peer;
		atomic_store(&s->up, ev->peer + 1);
		s->q->ops->wake(s->q);
	} else if (ev->type == NIC_EVENT_DOWN) {
		CHECK(!s->connects);
		atomic_store(&s->down, true);
		s->q->ops->wake(s->q);
	}
	CHECK(ev->type != NIC_EVENT_FAILED);
	return 0;
}

static void connect_once(struct side *s)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	sides[0].port->ops->address(sides[0].port, &addr);
	CHECK(s->port->ops->connect(s->port,
				    &(struct nic_connect){0, &addr, 0, NULL, 0, now_ns() + UINT64_C(30000000000), s},
				    &err) == 0);
}

static void *core_main(void *arg)
{
	struct side *s = arg;
	unsigned ended = 0, connected = 0;
	while (!atomic_load(&s->stop)) {
		/* The next one when both have dropped the one before. */
		if (s->connects && connected < ROUNDS && connected == ended && atomic_load(&sides[0].ended) == ended) {
			connect_once(s);
			connected++;
		}
		uint64_t at = s->port->ops->step(s->port, now_ns(), on_event, s), now = now_ns();
		if (atomic_load(&s->let_go) > ended) {
			ended++;
			s->port->ops->drop(s->port, s->peer);
			atomic_store(&s->ended, ended);
			continue;
		}
		struct pollfd p = {.fd = s->port->ops->fd(s->port), .events = POLLIN};
		poll(&p, 1, at <= now ? 0 : 2);
	}
	return NULL;
}

int main(void)
{
	alarm(HANG_GUARD_S);
	dgram_fabric_init(&fabric);
	fabric.hook = lose;
	for (unsigned i = 0; i < 2; i++) {
		struct nic_err err = {""};
		struct transport_config config = {.queues = 1,
						  .head_bytes = HEAD,
						  .limit_ns = UINT64_C(20000000000),
						  .first_packet = UINT32_MAX - 9};
		struct side *s = &sides[i];
		CHECK(transport_open(dgram_open(&fabric, 1), &config, &s->port, &err) == 0);
		s->q = s->port->ops->queue(s->port, 0);
		s->connects = i == 1;
	}
	for (unsigned i = 0; i < 2; i++) {
		CHECK(pthread_create(&sides[i].shard, NULL, shard_main, &sides[i]) == 0);
		CHECK(pthread_create(&sides[i].core, NULL, core_main, &sides[i]) == 0);
	}
	while (atomic_load(&sides[0].ended) < ROUNDS || atomic_load(&sides[1].ended) < ROUNDS)
		usleep(1000);
	for (unsigned i = 0; i < 2; i++) {
		atomic_store(&sides[i].stop, true);
		sides[i].q->ops->wake(sides[i].q);
		pthread_join(sides[i].shard, NULL);
		pthread_join(sides[i].core, NULL);
	}
	for (unsigned i = 0; i < 2; i++)
		sides[i].port->ops->close(sides[i].port);
	printf("%d connections, %llu and %llu sleeps\n", ROUNDS, (unsigned long long)sides[0].sleeps,
	       (unsigned long long)sides[1].sleeps);
	return 0;
}
