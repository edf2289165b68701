/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A port of the verbs driver over the fake device, of two queues. Each queue is held by a thread that sends to itself
 * and to the other, receives and sleeps, and whose device refuses a send now and then; meanwhile the control thread
 * sets broken queues up, makes places and drops them, reads counters, has the port go down and up, and in the end the
 * device is removed. For a build with ThreadSanitizer.
 */
#include "fake_verbs.h"
#include "nic/verbs/verbs.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { QUEUES = 2, LEAST = 6000, STEPS_MAX = 200000 };

#define REQUIRE(condition)                                                                                             \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                  \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static struct nic_port *port;
static _Atomic uint32_t up[QUEUES][QUEUES]; /* 1 + the place of a queue to another; 0: not yet */
static _Atomic unsigned ups;
static _Atomic uint64_t received[QUEUES], refusals;
static _Atomic bool stop;

/* Every 1000th, in all. */
static int refuse(struct ibv_send_wr *wr)
{
	return atomic_fetch_add(&refusals, 1) % 1000 == 999 ? EIO : 0;
}

static void *hold(void *arg)
{
	unsigned index = (unsigned)(uintptr_t)arg;
	struct nic_queue *q = verbs_port_ops.queue(port, index);
	const struct nic_queue_ops *ops = q->ops;
	uint32_t dests[QUEUES] = {0};
	for (uint64_t i = 0; !atomic_load(&stop); i++) {
		struct nic_pkt pkts[16];
		struct nic_tx tx;
		unsigned to = i % QUEUES;
		if (!dests[to] && (dests[to] = atomic_load(&up[index][to])))
			REQUIRE(ops->attach(q, dests[to] - 1) == 0);
		if (dests[to] && ops->tx_reserve(q, dests[to] - 1, 100, &tx) == 0) {
			memset(tx.body, (int)i, 100);
			tx.priority = i % 8;
			ops->tx_commit(q, &tx);
		}
		ops->flush(q);
		unsigned n = ops->recv(q, pkts, 16);
		for (unsigned k = 0; k < n; k++)
			REQUIRE(pkts[k].body_len == 100 && pkts[k].body[0] == pkts[k].body[99]);
		atomic_fetch_add(&received[index], n);
		if (i % 64)
			continue;
		struct pollfd fd = {.fd = ops->wake_fd(q), .events = POLLIN};
		ops->arm(q);
		if (ops->recv(q, pkts, 16) == 0)
			poll(&fd, 1, 1);
		ops->wake_clear(q);
		ops->disarm(q);
	}
	return NULL;
}

static int on_event(void *ctx, const struct nic_event *ev)
{
	_Atomic uint32_t *at = ev->user;
	REQUIRE(ev->type == NIC_EVENT_UP);
	if (at)
		atomic_store(at, ev->peer + 1);
	else
		verbs_port_ops.drop(port, ev->peer);
	atomic_fetch_add(&ups, 1);
	return 0;
}

static void dest(unsigned from, unsigned to, void *user)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	verbs_port_ops.address(port, &addr);
	int error = verbs_port_ops.connect(port, &(struct nic_connect){from, &addr, to, NULL, 0, 0, user}, &err);
	REQUIRE(error == 0 || error == -ENETDOWN);
}

int main(void)
{
	const struct nic_config config = {.queues = QUEUES, .args = "rx_slots=64"};
	pthread_t threads[QUEUES];
	struct nic_err err = {""};
	struct nic_stats stats;
	fake_verbs.post_send = refuse;
	REQUIRE(verbs_port_ops.open(&config, &port, &err) == 0);
	for (unsigned i = 0; i < QUEUES; i++)
		REQUIRE(pthread_create(&threads[i], NULL, hold, (void *)(uintptr_t)i) == 0);
	for (unsigned i = 0; i < QUEUES * QUEUES; i++)
		dest(i / QUEUES, i % QUEUES, &up[i / QUEUES][i % QUEUES]);
	for (unsigned i = 0; i < STEPS_MAX; i++) {
		verbs_port_ops.step(port, verbs_now(), on_event, NULL);
		verbs_port_ops.stats(port, &stats);
		if (i % 100 == 50)
			dest(0, 1, NULL);
		if (i % 200 == 0) {
			fake_verbs.port_state = i % 400 ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
			fake_verbs_event(i % 400 ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
		}
		if (atomic_load(&received[0]) > LEAST && atomic_load(&received[1]) > LEAST && i > 2000)
			break;
		usleep(100);
	}
	REQUIRE(atomic_load(&received[0]) > LEAST && atomic_load(&received[1]) > LEAST);
	REQUIRE(fake_verbs.resets > QUEUES && stats.tx_dropped > 0);
	fake_verbs_event(IBV_EVENT_DEVICE_FATAL);
	for (unsigned i = 0; i < STEPS_MAX && fake_verbs.contexts; i++, usleep(100))
		verbs_port_ops.step(port, verbs_now(), on_event, NULL);
	REQUIRE(fake_verbs.contexts == 0 && fake_verbs.qps == 0 && fake_verbs.ahs == 0);
	atomic_store(&stop, true);
	for (unsigned i = 0; i < QUEUES; i++)
		pthread_join(threads[i], NULL);
	verbs_port_ops.close(port);
	return 0;
}
