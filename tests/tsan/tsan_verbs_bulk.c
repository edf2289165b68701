/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Bulk of the verbs driver over the fake device: two ports of two queues, whose holders, a thread each, expose memory
 * to each other, read it, and write it anew as soon as it is withdrawn; connections break meanwhile, and in the end a
 * device is removed. For a build with ThreadSanitizer, which sees reads of memory that is no longer exposed.
 */
#include "fake_verbs.h"
#include "nic/verbs/bulk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PORTS = 2, QUEUES = 2, BYTES = 65536, LEAST = 60, STEPS_MAX = 100000, EXPOSE = 1, READ = 2 };

#define REQUIRE(condition)                                                                                             \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                  \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

/* What a holder says to its partner, in place of packets. */
struct post {
	pthread_mutex_t lock;
	enum { NOTHING, OFFERED, BEING_READ, WAS_READ } state;
	struct nic_bulk_key key;
};

struct holder {
	struct nic_queue *q;
	struct holder *partner;
	pthread_t thread;
	_Atomic uint32_t up; /* 1 + the place; 0: not yet */
	_Atomic unsigned reads;
	struct post post;
	/* The thread's. */
	bool exposed, reading;
	uint32_t handle;
	struct nic_bulk_key key;
	uint8_t *from, *to;
	uint8_t seq;
};

static struct nic_port *ports[PORTS];
static struct holder holders[PORTS][QUEUES];
static _Atomic bool stop;

static void post_set(struct post *post, int state)
{
	pthread_mutex_lock(&post->lock);
	post->state = state;
	pthread_mutex_unlock(&post->lock);
}

static int post_state(struct post *post)
{
	pthread_mutex_lock(&post->lock);
	int state = post->state;
	pthread_mutex_unlock(&post->lock);
	return state;
}

static void offer(struct holder *h)
{
	pthread_mutex_lock(&h->post.lock);
	h->post.key = h->key;
	h->post.state = OFFERED;
	pthread_mutex_unlock(&h->post.lock);
}

static bool take_offer(struct holder *h, struct nic_bulk_key *key)
{
	pthread_mutex_lock(&h->post.lock);
	bool offered = h->post.state == OFFERED;
	if (offered)
		h->post.state = BEING_READ;
	*key = h->post.key;
	pthread_mutex_unlock(&h->post.lock);
	return offered;
}

/* It is ours again: other bytes. What was offered and not taken is taken back. */
static void withdrawn(struct holder *h)
{
	pthread_mutex_lock(&h->post.lock);
	if (h->post.state == OFFERED)
		h->post.state = NOTHING;
	pthread_mutex_unlock(&h->post.lock);
	h->exposed = false;
	memset(h->from, ++h->seq, BYTES);
}

static void take_event(struct holder *h, const struct nic_pkt *pkt)
{
	REQUIRE(pkt->peer == NIC_PEER_BULK);
	switch ((enum nic_bulk_event)pkt->body_len) {
	case NIC_BULK_EXPOSED:
		if (h->exposed)
			offer(h);
		break;
	case NIC_BULK_WITHDRAWN:
		withdrawn(h);
		break;
	case NIC_BULK_READ:
		for (unsigned i = 1; i < BYTES; i++)
			REQUIRE(h->to[i] == h->to[0]);
		atomic_fetch_add(&h->reads, 1);
		/* fall through */
	case NIC_BULK_READ_FAILED:
		h->reading = false;
		post_set(&h->partner->post, WAS_READ);
		break;
	}
}

static void begin(struct holder *h, uint32_t dest)
{
	const struct nic_bulk_ops *bulk = h->q->ops->bulk;
	struct nic_bulk_key key;
	int state = post_state(&h->post);
	if (!h->exposed && (state == NOTHING || state == WAS_READ)) {
		post_set(&h->post, NOTHING);
		h->exposed = bulk->expose(h->q, dest, h->from, BYTES, EXPOSE, &h->handle, &h->key) == 0;
	} else if (h->exposed && (state == WAS_READ || (state == BEING_READ && h->seq % 3 == 0))) {
		/* Some in the midst of being read. */
		bulk->withdraw(h->q, h->handle);
	}
	if (!h->reading && take_offer(h->partner, &key)) {
		h->reading = bulk->read(h->q, dest, &key, 0, h->to, BYTES, READ) == 0;
		if (!h->reading)
			post_set(&h->partner->post, WAS_READ);
	}
}

static void *hold(void *arg)
{
	struct holder *h = arg;
	bool attached = false;
	while (!atomic_load(&stop)) {
		struct nic_pkt pkts[4];
		uint32_t up = atomic_load(&h->up);
		if (up && !attached) {
			REQUIRE(h->q->ops->attach(h->q, up - 1) == 0);
			attached = true;
		}
		if (attached)
			begin(h, up - 1);
		unsigned n = h->q->ops->recv(h->q, pkts, 4);
		for (unsigned i = 0; i < n; i++)
			take_event(h, &pkts[i]);
		if (!n)
			usleep(50);
	}
	return NULL;
}

static int on_event(void *ctx, const struct nic_event *ev)
{
	REQUIRE(ev->type == NIC_EVENT_UP);
	atomic_store((_Atomic uint32_t *)ev->user, ev->peer + 1);
	return 0;
}

static void step_all(void)
{
	for (unsigned i = 0; i < PORTS; i++)
		verbs_port_ops.step(ports[i], verbs_now(), on_event, NULL);
	usleep(100);
}

static void open_all(void)
{
	const struct nic_config config = {.queues = QUEUES, .args = "fake0,gid=2,bulk=16384,connections=2"};
	struct nic_err err = {""};
	struct nic_addr addr;
	for (unsigned i = 0; i < PORTS; i++)
		REQUIRE(verbs_port_ops.open(&config, &ports[i], &err) == 0);
	for (unsigned i = 0; i < PORTS * QUEUES; i++) {
		struct holder *h = &holders[i / QUEUES][i % QUEUES];
		h->q = verbs_port_ops.queue(ports[i / QUEUES], i % QUEUES);
		h->partner = &holders[1 - i / QUEUES][i % QUEUES];
		h->from = calloc(2, BYTES);
		h->to = h->from + BYTES;
		REQUIRE(pthread_mutex_init(&h->post.lock, NULL) == 0);
		REQUIRE(verbs_port_ops.mem_register(ports[i / QUEUES], h->from, (size_t)2 * BYTES, &err) == 0);
		verbs_port_ops.address(ports[1 - i / QUEUES], &addr);
		REQUIRE(verbs_port_ops.connect(ports[i / QUEUES],
					       &(struct nic_connect){i % QUEUES, &addr, i % QUEUES, NULL, 0, 0, &h->up},
					       &err) == 0);
	}
}

static bool all_read(void)
{
	for (unsigned i = 0; i < PORTS * QUEUES; i++)
		if (atomic_load(&holders[i / QUEUES][i % QUEUES].reads) < LEAST)
			return false;
	return true;
}

int main(void)
{
	open_all();
	for (unsigned i = 0; i < PORTS * QUEUES; i++) {
		struct holder *h = &holders[i / QUEUES][i % QUEUES];
		REQUIRE(pthread_create(&h->thread, NULL, hold, h) == 0);
	}
	unsigned breaks = 0;
	for (unsigned i = 0; i < STEPS_MAX && (!all_read() || breaks < 3); i++) {
		step_all();
		if (i % 500 == 499)
			breaks += fake_verbs_break_all(IBV_QPT_RC) > 0;
	}
	REQUIRE(all_read());
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
	for (unsigned i = 0; i < PORTS * QUEUES; i++)
		free(holders[i / QUEUES][i % QUEUES].from);
	REQUIRE(fake_verbs.contexts == 0 && fake_verbs.qps == 0 && fake_verbs.mws == 0 && fake_verbs.mrs == 0);
	return 0;
}
