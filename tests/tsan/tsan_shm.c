/* SPDX-License-Identifier: BSD-3-Clause */
/** Queues of shm driven by a thread each, over more links than are hot, with sleeps; the control thread meanwhile sets
 * up links and drops them. For a build with ThreadSanitizer; without it, it still checks order and that nobody sleeps
 * over a packet. */
#include "../e2e/check.h"
#include "base/clock.h"
#include "nic/nic.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum { DRIVERS = 3, PER_PAIR = 12, LINKS = PER_PAIR * (DRIVERS - 1), PACKETS = 400, BURST = 16, HEAD = 28 };

struct driver {
	struct nic_queue *q;
	uint32_t peer[LINKS], sent[LINKS], got[LINKS];
	unsigned links_n;
	uint64_t seed, sleeps;
	pthread_t thread;
};
static struct driver drivers[DRIVERS];
static struct nic_port *ports[2];
static uint32_t ups[2][2]; /* of each port: accepted, connected */
static unsigned ups_n, dropped, fails;
static bool keep; /* main only */
static _Atomic unsigned finished;

static int on_event(void *ctx, const struct nic_event *ev)
{
	struct nic_port *const *port = ctx;
	unsigned i = (unsigned)(port - ports);
	if (ev->type == NIC_EVENT_UP && keep) {
		ups[i][ev->user != NULL] = ev->peer;
		ups_n++;
	} else if (ev->type == NIC_EVENT_UP || ev->type == NIC_EVENT_DOWN) {
		(*port)->ops->drop(*port, ev->peer);
		dropped++;
	} else if (ev->type == NIC_EVENT_FAILED) {
		fails++;
	}
	return 0;
}

static void step(void)
{
	for (unsigned i = 0; i < 2; i++)
		ports[i]->ops->step(ports[i], clock_now(&clock_monotonic), on_event, &ports[i]);
}

static void start(unsigned from, unsigned qf, unsigned to, unsigned qt)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	ports[to]->ops->address(ports[to], &addr);
	CHECK(ports[from]->ops->connect(ports[from], &(struct nic_connect){qf, &addr, qt, NULL, 0, UINT64_MAX, drivers},
					&err) == 0);
}

static void attach(struct driver *d, uint32_t peer)
{
	CHECK(d->q->ops->attach(d->q, peer) == 0);
	d->peer[d->links_n++] = peer;
}

/* Drivers 0 and 1 are the queues of port 0, driver 2 is port 1's. */
static void link_up(unsigned a, unsigned b)
{
	unsigned from = a / 2, to = b / 2;
	ups_n = 0;
	start(from, a % 2, to, b % 2);
	while (ups_n < 2)
		step();
	attach(&drivers[a], ups[from][1]);
	attach(&drivers[b], ups[to][0]);
}

static bool send_some(struct driver *d)
{
	bool all = true;
	for (unsigned i = 0; i < LINKS; i++) {
		d->seed = d->seed * UINT64_C(6364136223846793005) + 1442695040888963407;
		if (d->sent[i] == PACKETS)
			continue;
		all = false;
		if (d->seed >> 33 & 7)
			continue;
		struct nic_tx tx;
		uint64_t len = d->seed >> 40 & 31 ? d->seed >> 50 & 31 : 300;
		if (d->q->ops->tx_reserve(d->q, d->peer[i], len, &tx))
			continue;
		memset(tx.head, 0, HEAD);
		memcpy(tx.head, &d->sent[i], 4);
		if (len)
			memset(tx.body, (int)(d->sent[i] & 0x7f), len);
		if (d->q->ops->tx_commit(d->q, &tx) == 0)
			d->sent[i]++;
	}
	d->q->ops->flush(d->q);
	return all;
}

static unsigned receive(struct driver *d)
{
	struct nic_pkt pkts[BURST];
	unsigned n = d->q->ops->recv(d->q, pkts, BURST);
	for (unsigned k = 0; k < n; k++) {
		unsigned i = 0;
		uint32_t seq;
		while (i < LINKS && d->peer[i] != pkts[k].peer)
			i++;
		CHECK(i < LINKS && pkts[k].head);
		memcpy(&seq, pkts[k].head, 4);
		CHECK(seq == d->got[i]);
		CHECK(pkts[k].body_len == 0 || pkts[k].body[pkts[k].body_len - 1] == (seq & 0x7f));
		d->got[i]++;
		if (pkts[k].cookie)
			d->q->ops->release(d->q, pkts[k].peer, pkts[k].cookie);
	}
	return n;
}

static void sleep_once(struct driver *d)
{
	struct pollfd p = {.fd = d->q->ops->wake_fd(d->q), .events = POLLIN};
	d->q->ops->arm(d->q);
	if (receive(d) == 0) {
		CHECK(poll(&p, 1, 30000) == 1); /* a lost wake-up ends here */
		d->q->ops->wake_clear(d->q);
		d->sleeps++;
	}
	d->q->ops->disarm(d->q);
}

static void *drive(void *arg)
{
	struct driver *d = arg;
	unsigned got = 0;
	while (got < LINKS) {
		bool sent = send_some(d);
		unsigned n = receive(d);
		got = 0;
		for (unsigned i = 0; i < LINKS; i++)
			got += d->got[i] == PACKETS;
		if (n == 0 && sent && got < LINKS)
			sleep_once(d);
	}
	while (!send_some(d))
		;
	atomic_fetch_add(&finished, 1);
	return NULL;
}

static void open_ports(const char *dir)
{
	struct nic_err err = {""};
	for (unsigned i = 0; i < 2; i++) {
		struct nic_config config = {.runtime_dir = dir, .id = 1 + i, .queues = i ? 1 : 2, .head_bytes = HEAD};
		CHECK(nic_shm_port_ops.open(&config, &ports[i], &err) == 0);
	}
	for (unsigned i = 0; i < DRIVERS; i++) {
		drivers[i].q = ports[i / 2]->ops->queue(ports[i / 2], i % 2);
		drivers[i].seed = i;
	}
}

int main(void)
{
	char dir[] = "/tmp/far-tsan-XXXXXX";
	uint64_t sleeps = 0;
	alarm(HANG_GUARD_S);
	CHECK(mkdtemp(dir));
	open_ports(dir);
	keep = true;
	for (unsigned i = 0; i < PER_PAIR; i++) {
		link_up(0, 1);
		link_up(0, 2);
		link_up(1, 2);
	}
	keep = false;
	for (unsigned i = 0; i < DRIVERS; i++)
		CHECK(pthread_create(&drivers[i].thread, NULL, drive, &drivers[i]) == 0);
	/* The first are there while the drivers run, whatever the machine does. */
	for (unsigned round = 0; round < 20 || atomic_load(&finished) < DRIVERS; round++) {
		if (round < 200)
			start(round % 2, 0, round / 2 % 2, round % 4 == 2);
		step();
		usleep(1000);
	}
	for (unsigned i = 0; i < DRIVERS; i++) {
		pthread_join(drivers[i].thread, NULL);
		sleeps += drivers[i].sleeps;
		for (unsigned k = 0; k < LINKS; k++)
			CHECK(drivers[i].sent[k] == PACKETS && drivers[i].got[k] == PACKETS);
	}
	CHECK(dropped > 0);
	for (unsigned i = 0; i < 2; i++)
		ports[i]->ops->close(ports[i]);
	CHECK(rmdir(dir) == 0);
	printf("%u links dropped, %u refused, %llu sleeps\n", dropped, fails, (unsigned long long)sleeps);
	return 0;
}
