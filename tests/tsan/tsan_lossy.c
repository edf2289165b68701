/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The lossy driver over shm, disturbed: at either side a control thread and a shard, each a thread. Places come and go,
 * so that the connections below, which the other side is only listened to by, are attached, left and dropped while
 * packets arrive. For a build with ThreadSanitizer; without it, it still checks what arrives.
 */
#include "../e2e/check.h"
#include "base/clock.h"
#include "nic/nic.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum { PLACES = 40, PACKETS = 200, LEN = 64, BURST = 16 };

struct side {
	struct nic_port *port;
	struct nic_queue *q;
	struct nic_addr to;
	_Atomic uint32_t up;       /* peer + 1 that the shard is to send to, from its control thread */
	_Atomic uint32_t finished; /* peer + 1 that the shard has detached, from it */
	_Atomic bool stop;
	uint32_t ups;
	uint64_t arrived;
	pthread_t shard, core;
};
static struct side sides[2];
static _Atomic unsigned cores_done; /* who has made all its places still accepts the other's */
static char dir[] = "/tmp/far-tsan-lossy-XXXXXX";

static uint64_t now_ns(void)
{
	return clock_now(&clock_monotonic);
}

/* ---- the shard ---- */

static unsigned receive(struct side *s)
{
	struct nic_pkt pkts[BURST];
	unsigned n = s->q->ops->recv(s->q, pkts, BURST);
	for (unsigned i = 0; i < n; i++) {
		CHECK(pkts[i].head && pkts[i].peer == NIC_PEER_NONE && pkts[i].body_len == LEN);
		for (unsigned k = 1; k < LEN; k++)
			CHECK(pkts[i].body[k] == pkts[i].body[0]);
	}
	s->arrived += n;
	return n;
}

static bool send_one(struct side *s, uint32_t peer, unsigned number)
{
	struct nic_tx tx;
	if (s->q->ops->tx_reserve(s->q, peer, LEN, &tx))
		return false;
	memset(tx.body, (int)(number & 0xff), LEN);
	return s->q->ops->tx_commit(s->q, &tx) == 0;
}

static void sleep_once(struct side *s)
{
	struct pollfd p = {.fd = s->q->ops->wake_fd(s->q), .events = POLLIN};
	s->q->ops->arm(s->q);
	if (receive(s) == 0) {
		uint64_t at = s->q->ops->deadline(s->q), now = now_ns();
		poll(&p, 1, at <= now ? 0 : at - now > UINT64_C(2000000) ? 2 : (int)((at - now) / 1000000 + 1));
		s->q->ops->wake_clear(s->q);
	}
	s->q->ops->disarm(s->q);
}

static void *shard_main(void *arg)
{
	struct side *s = arg;
	uint32_t peer = 0;
	unsigned sent = 0;
	while (!atomic_load(&s->stop)) {
		uint32_t up = atomic_exchange(&s->up, 0);
		if (up) {
			CHECK(s->q->ops->attach(s->q, up - 1) == 0);
			peer = up;
			sent = 0;
		}
		for (unsigned i = 0; peer && i < 8 && sent < PACKETS && send_one(s, peer - 1, sent); i++)
			sent++;
		s->q->ops->flush(s->q);
		if (peer && sent == PACKETS) {
			s->q->ops->detach(s->q, peer - 1);
			atomic_store(&s->finished, peer);
			peer = 0;
		}
		if (receive(s) == 0)
			sleep_once(s);
	}
	return NULL;
}

/* ---- the control thread ---- */

static int on_event(void *ctx, const struct nic_event *ev)
{
	struct side *s = ctx;
	CHECK(ev->type == NIC_EVENT_UP && ev->user == s && ev->handshake_len == 0);
	s->ups++;
	atomic_store(&s->up, ev->peer + 1);
	s->q->ops->wake(s->q);
	return 0;
}

static void *core_main(void *arg)
{
	struct side *s = arg;
	struct nic_err err = {""};
	unsigned begun = 0, done = 0;
	while (atomic_load(&cores_done) < 2) {
		if (begun == done && begun < PLACES) {
			int error = s->port->ops->connect(
				s->port, &(struct nic_connect){0, &s->to, 0, NULL, 0, UINT64_MAX, s}, &err);
			if (error)
				fprintf(stderr, "%s\n", err.text);
			CHECK(error == 0);
			begun++;
		}
		uint64_t at = s->port->ops->step(s->port, now_ns(), on_event, s), now = now_ns();
		uint32_t finished = atomic_exchange(&s->finished, 0);
		if (finished) {
			s->port->ops->drop(s->port, finished - 1);
			if (++done == PLACES)
				atomic_fetch_add(&cores_done, 1);
			continue;
		}
		struct pollfd p = {.fd = s->port->ops->fd(s->port), .events = POLLIN};
		struct nic_stats stats;
		s->port->ops->stats(s->port, &stats);
		poll(&p, 1, at <= now ? 0 : 1);
	}
	return NULL;
}

static void remove_dir(void)
{
	DIR *d = opendir(dir);
	for (struct dirent *e; (e = readdir(d));)
		CHECK(e->d_name[0] == '.');
	closedir(d);
	rmdir(dir);
}

int main(void)
{
	alarm(HANG_GUARD_S);
	CHECK(mkdtemp(dir));
	for (unsigned i = 0; i < 2; i++) {
		struct nic_err err = {""};
		struct nic_config config = {.runtime_dir = dir,
					    .id = i + 1,
					    .queues = 1,
					    .args = "over=shm,drop=10%,duplicate=10%,delay=10%:1ms,reorder=10%,seed=5"};
		int error = nic_find("lossy", &err)->open(&config, &sides[i].port, &err);
		if (error)
			fprintf(stderr, "%s\n", err.text);
		CHECK(error == 0);
		sides[i].q = sides[i].port->ops->queue(sides[i].port, 0);
	}
	for (unsigned i = 0; i < 2; i++)
		sides[!i].port->ops->address(sides[!i].port, &sides[i].to);
	for (unsigned i = 0; i < 2; i++) {
		CHECK(pthread_create(&sides[i].shard, NULL, shard_main, &sides[i]) == 0);
		CHECK(pthread_create(&sides[i].core, NULL, core_main, &sides[i]) == 0);
	}
	for (unsigned i = 0; i < 2; i++)
		CHECK(pthread_join(sides[i].core, NULL) == 0);
	for (unsigned i = 0; i < 2; i++) {
		atomic_store(&sides[i].stop, true);
		sides[i].q->ops->wake(sides[i].q);
		CHECK(pthread_join(sides[i].shard, NULL) == 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		CHECK(sides[i].ups == PLACES);
		CHECK(sides[i].arrived > PLACES * PACKETS / 4);
		sides[i].port->ops->close(sides[i].port);
	}
	remove_dir();
	return 0;
}
