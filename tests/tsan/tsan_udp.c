/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Ports of the udp driver, of two queues each. Every queue is held by two threads in turn, which attach places, send,
 * receive and detach; meanwhile the control thread makes address handles and drops them, computes paths and reads
 * counters. Some places lead to a port that is closed, so that errors come back. For a build with ThreadSanitizer.
 */
#include "nic/nic.h"
#include "own_address.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PORTS = 2, QUEUES = 2, THREADS = 2, ROUNDS = 300, HELD = 4, BURST = 16, LEN = 200 };

#define REQUIRE(condition)                                                                                             \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                  \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

struct list {
	uint32_t at[ROUNDS];
	unsigned n;
};

/* A queue, with the lists between its holder and the control thread. */
static struct holder {
	pthread_mutex_t token;
	struct nic_queue *q;
	uint32_t held[HELD];
	unsigned held_n;
	uint64_t received;
	pthread_mutex_t mail;
	struct list up, gone;
} holders[PORTS * QUEUES];

static struct nic_port *ports[PORTS];
static _Atomic bool stop;

static void list_add(struct holder *h, struct list *list, uint32_t peer)
{
	pthread_mutex_lock(&h->mail);
	REQUIRE(list->n < ROUNDS);
	list->at[list->n++] = peer;
	pthread_mutex_unlock(&h->mail);
}

static uint32_t hear(struct holder *h, struct list *list)
{
	pthread_mutex_lock(&h->mail);
	uint32_t peer = list->n ? list->at[--list->n] : NIC_PEER_NONE;
	pthread_mutex_unlock(&h->mail);
	return peer;
}

static void send_some(struct holder *h)
{
	const struct nic_queue_ops *ops = h->q->ops;
	for (unsigned i = 0; i < h->held_n; i++)
		for (unsigned k = 0; k <= i; k++) {
			struct nic_tx tx;
			if (ops->tx_reserve(h->q, h->held[i], LEN, &tx))
				break;
			memset(tx.body, 0x5a, LEN);
			REQUIRE(ops->tx_commit(h->q, &tx) == 0);
		}
	ops->flush(h->q);
}

static void receive_some(struct holder *h)
{
	struct nic_pkt pkts[BURST];
	unsigned n = h->q->ops->recv(h->q, pkts, BURST);
	for (unsigned i = 0; i < n; i++)
		REQUIRE(pkts[i].body_len == LEN && pkts[i].body[0] == 0x5a && pkts[i].body[LEN - 1] == 0x5a);
	h->received += n;
}

static void *hold(void *arg)
{
	struct holder *h = arg;
	const struct nic_queue_ops *ops = h->q->ops;
	while (!atomic_load(&stop)) {
		pthread_mutex_lock(&h->token);
		uint32_t peer = hear(h, &h->up);
		if (peer != NIC_PEER_NONE) {
			if (h->held_n == HELD) {
				ops->detach(h->q, h->held[0]);
				list_add(h, &h->gone, h->held[0]);
				memmove(h->held, h->held + 1, --h->held_n * sizeof *h->held);
			}
			REQUIRE(ops->attach(h->q, peer) == 0);
			h->held[h->held_n++] = peer;
		}
		send_some(h);
		ops->arm(h->q);
		receive_some(h);
		ops->disarm(h->q);
		pthread_mutex_unlock(&h->token);
	}
	return NULL;
}

static int on_event(void *ctx, const struct nic_event *ev)
{
	if (ev->type == NIC_EVENT_UNREACHABLE) /* by the port that is closed */
		return 0;
	REQUIRE(ev->type == NIC_EVENT_UP);
	struct holder *h = ev->user;
	list_add(h, &h->up, ev->peer);
	return 0;
}

static struct nic_port *port_open(void)
{
	struct nic_err err = {""};
	struct nic_config config = {.queues = QUEUES, .listen = own_address()};
	struct nic_port *port = NULL;
	if (nic_udp_port_ops.open(&config, &port, &err))
		fprintf(stderr, "%s\n", err.text);
	REQUIRE(port);
	return port;
}

static void control_round(unsigned round, const struct nic_addr *addrs, const struct nic_addr *closed)
{
	unsigned from = round % PORTS, queue = round / PORTS % QUEUES;
	struct holder *h = &holders[from * QUEUES + queue];
	struct nic_err err = {""};
	struct nic_stats stats;
	const struct nic_addr *to = round % 3 ? &addrs[1 - from] : closed;
	REQUIRE(nic_udp_port_ops.reach(ports[from], to, &err) == 0);
	REQUIRE(nic_udp_port_ops.connect(
			ports[from], &(struct nic_connect){queue, to, round / (PORTS * QUEUES) % QUEUES, NULL, 0, 0, h},
			&err) == 0);
	nic_udp_port_ops.step(ports[from], 0, on_event, NULL);
	for (uint32_t peer; (peer = hear(h, &h->gone)) != NIC_PEER_NONE;)
		nic_udp_port_ops.drop(ports[from], peer);
	nic_udp_port_ops.stats(ports[from], &stats);
	h->q->ops->wake(h->q);
}

int main(void)
{
	pthread_t threads[PORTS * QUEUES * THREADS];
	struct nic_addr addrs[PORTS], closed;
	struct nic_port *short_lived = port_open();
	nic_udp_port_ops.address(short_lived, &closed);
	nic_udp_port_ops.close(short_lived);
	for (unsigned i = 0; i < PORTS; i++) {
		ports[i] = port_open();
		nic_udp_port_ops.address(ports[i], &addrs[i]);
	}
	for (unsigned i = 0; i < PORTS * QUEUES; i++) {
		pthread_mutex_init(&holders[i].token, NULL);
		pthread_mutex_init(&holders[i].mail, NULL);
		holders[i].q = nic_udp_port_ops.queue(ports[i / QUEUES], i % QUEUES);
	}
	for (unsigned i = 0; i < PORTS * QUEUES * THREADS; i++)
		REQUIRE(pthread_create(&threads[i], NULL, hold, &holders[i / THREADS]) == 0);
	const struct timespec nap = {.tv_nsec = 1000000};
	for (unsigned round = 0; round < ROUNDS; round++) {
		control_round(round, addrs, &closed);
		nanosleep(&nap, NULL);
	}
	/* However slow the machine: until every queue has received. */
	for (unsigned i = 0; i < PORTS * QUEUES; i++)
		for (uint64_t received = 0; !received;) {
			pthread_mutex_lock(&holders[i].token);
			received = holders[i].received;
			pthread_mutex_unlock(&holders[i].token);
			nanosleep(&nap, NULL);
		}
	atomic_store(&stop, true);
	for (unsigned i = 0; i < PORTS * QUEUES * THREADS; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < PORTS; i++)
		nic_udp_port_ops.close(ports[i]);
	return 0;
}
