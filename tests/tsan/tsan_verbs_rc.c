/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Connections of the verbs driver over the fake device: two ports of four queues, whose caches are too small for what
 * their holders, a thread each, send to; several threads connect at once, connections are closed with packets on them,
 * break, and in the end a device is removed. For a build with ThreadSanitizer.
 */
#include "fake_verbs.h"
#include "nic/verbs/rc.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PORTS = 2, QUEUES = 4, PLACES = PORTS * QUEUES, LEAST = 300, STEPS_MAX = 100000, KINDS = 2 };

#define REQUIRE(condition)                                                                                             \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                  \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static struct group_key group;

struct holder {
	struct nic_queue *q;
	pthread_t thread;
	_Atomic uint32_t up[PLACES]; /* 1 + the place; 0: not yet */
	_Atomic uint64_t received;
};

static struct nic_port *ports[PORTS];
static struct holder holders[PORTS][QUEUES];
static _Atomic bool stop;

static void pass(struct holder *h, uint64_t i, uint32_t *dests)
{
	const struct nic_queue_ops *ops = h->q->ops;
	struct nic_pkt pkts[16];
	struct nic_tx tx;
	unsigned to = i / 16 % PLACES; /* some packets to each, then another */
	if (!dests[to] && (dests[to] = atomic_load(&h->up[to])))
		REQUIRE(ops->attach(h->q, dests[to] - 1) == 0);
	if (dests[to] && ops->tx_reserve(h->q, dests[to] - 1, 100, &tx) == 0) {
		memset(tx.body, (int)i, 100);
		ops->tx_commit(h->q, &tx);
	}
	ops->flush(h->q);
	unsigned n = ops->recv(h->q, pkts, 16);
	for (unsigned k = 0; k < n; k++)
		REQUIRE(pkts[k].body_len == 100 && pkts[k].body[0] == pkts[k].body[99]);
	atomic_fetch_add(&h->received, n);
	struct pollfd fd = {.fd = ops->wake_fd(h->q), .events = POLLIN};
	ops->arm(h->q);
	if (ops->recv(h->q, pkts, 16) == 0)
		poll(&fd, 1, 1);
	ops->wake_clear(h->q);
	ops->disarm(h->q);
}

static void *hold(void *arg)
{
	uint32_t dests[PLACES] = {0};
	for (uint64_t i = 0; !atomic_load(&stop); i++)
		pass(arg, i, dests);
	return NULL;
}

static int on_event(void *ctx, const struct nic_event *ev)
{
	REQUIRE(ev->type == NIC_EVENT_UP);
	atomic_store((_Atomic uint32_t *)ev->user, ev->peer + 1);
	return 0;
}

static void open_all(const char *args)
{
	const struct nic_config config = {.queues = QUEUES, .args = args, .key = &group};
	struct nic_err err = {""};
	memset(holders, 0, sizeof holders);
	for (unsigned i = 0; i < PORTS; i++)
		REQUIRE(verbs_port_ops.open(&config, &ports[i], &err) == 0);
	for (unsigned i = 0; i < PORTS * QUEUES * PLACES; i++) {
		struct holder *h = &holders[i / PLACES / QUEUES][i / PLACES % QUEUES];
		unsigned to = i % PLACES;
		struct nic_addr addr;
		h->q = verbs_port_ops.queue(ports[i / PLACES / QUEUES], i / PLACES % QUEUES);
		verbs_port_ops.address(ports[to / QUEUES], &addr);
		REQUIRE(verbs_port_ops.connect(
				ports[i / PLACES / QUEUES],
				&(struct nic_connect){i / PLACES % QUEUES, &addr, to % QUEUES, NULL, 0, 0, &h->up[to]},
				&err) == 0);
	}
}

static void step_all(void)
{
	for (unsigned i = 0; i < PORTS; i++)
		verbs_port_ops.step(ports[i], verbs_now(), on_event, NULL);
	usleep(100);
}

static bool all_received(void)
{
	for (unsigned i = 0; i < PORTS * QUEUES; i++)
		if (atomic_load(&holders[i / QUEUES][i % QUEUES].received) < LEAST)
			return false;
	return true;
}

static void run(const char *args)
{
	open_all(args);
	atomic_store(&stop, false);
	for (unsigned i = 0; i < PORTS * QUEUES; i++) {
		struct holder *h = &holders[i / QUEUES][i % QUEUES];
		REQUIRE(pthread_create(&h->thread, NULL, hold, h) == 0);
	}
	unsigned breaks = 0;
	for (unsigned i = 0; i < STEPS_MAX && (!all_received() || breaks < 3); i++) {
		step_all();
		if (i % 1000 == 999)
			breaks += fake_verbs_break_all(IBV_QPT_RC) > 0;
	}
	REQUIRE(all_received());
	for (unsigned i = 0; i < PORTS; i++) { /* no honest request is taken for a copy */
		struct nic_stats stats;
		verbs_port_ops.stats(ports[i], &stats);
		REQUIRE(stats.refused == 0);
	}
	REQUIRE(fake_cm.connecting_most > 1 && fake_cm.connecting_most <= PORTS * VERBS_CONNECTORS_MAX);
	struct verbs_port *gone = (struct verbs_port *)ports[0];
	verbs_release_device(gone);
	for (unsigned i = 0; i < STEPS_MAX && gone->on.context; i++)
		step_all();
	REQUIRE(!gone->on.context);
	atomic_store(&stop, true);
	for (unsigned i = 0; i < PORTS * QUEUES; i++)
		pthread_join(holders[i / QUEUES][i % QUEUES].thread, NULL);
	for (unsigned i = 0; i < PORTS; i++)
		verbs_port_ops.close(ports[i]);
	REQUIRE(fake_verbs.contexts == 0 && fake_verbs.qps == 0 && fake_verbs.srqs == 0 && fake_cm.ids == 0);
}

int main(void)
{
	group_key_set(&group, &(struct auth_key){{1}}, "g");
	fake_cm.connect_delay_ms = 5;
	run("fake0,gid=2,rc=1,connections=3");
	fake_verbs.transport = IBV_TRANSPORT_IWARP;
	fake_verbs.limits.max_srq = 0;
	run("fake0,connections=3");
	return 0;
}
