/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_port.h"

#include "base/must.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEERS_MAX  512
#define EVENTS_MAX 512

struct fake_peer {
	bool used;
	struct fake_port *other; /* NULL: gone */
	uint32_t other_peer;
	uint32_t queue;
};

enum queued_type { QUEUED_CONNECT, QUEUED_UP, QUEUED_FAILED, QUEUED_DOWN, QUEUED_REFUSED };

struct queued {
	enum queued_type type;
	uint32_t peer;
	void *user;
	int error;
	struct fake_port *from;     /* CONNECT; NULL: has gone meanwhile */
	uint32_t queue, from_queue; /* queue: of the port that gets the event */
	uint8_t hello[NIC_HELLO_BYTES_MAX];
	size_t len;
};

struct fake_port {
	struct nic_port base;
	struct fake_fabric *fabric;
	char driver[16];
	uint64_t id;
	struct fake_peer peers[PEERS_MAX];
	struct queued events[EVENTS_MAX];
	unsigned head, tail, allowed;
};

static void queue_put(struct fake_port *p, struct queued q)
{
	p->events[p->tail++ % EVENTS_MAX] = q;
}

static uint32_t peer_new(struct fake_port *p, uint32_t queue)
{
	uint32_t i = 0;
	while (i < PEERS_MAX && p->peers[i].used)
		i++;
	must(i < PEERS_MAX);
	p->peers[i] = (struct fake_peer){.used = true, .queue = queue};
	return i;
}

static void fake_address(const struct nic_port *port, struct nic_addr *out)
{
	const struct fake_port *p = (const struct fake_port *)port;
	memset(out, 0, sizeof *out);
	memcpy(out->driver, p->driver, sizeof out->driver);
	memcpy(out->blob, &p->id, sizeof p->id);
	out->len = sizeof p->id;
}

static void fake_address_text(const struct nic_addr *addr, char *out, size_t cap)
{
	uint64_t id;
	memcpy(&id, addr->blob, sizeof id);
	snprintf(out, cap, "%.15s %llx", addr->driver, (unsigned long long)id);
}

static int fake_reach(const struct nic_port *port, const struct nic_addr *addr, struct nic_err *err)
{
	const struct fake_port *p = (const struct fake_port *)port;
	uint64_t id;
	memcpy(&id, addr->blob, sizeof id);
	bool far = p->fabric->far_driver && strcmp(p->fabric->far_driver, p->driver) == 0;
	if (p->fabric->remarkable == p->id)
		snprintf(err->text, sizeof err->text, "%.15s: the link of %llx is down", p->driver,
			 (unsigned long long)p->id);
	if (!far && (p->fabric->unreachable == 0 || p->fabric->unreachable != id))
		return 0;
	snprintf(err->text, sizeof err->text, "%.15s: %llx is out of reach", p->driver, (unsigned long long)id);
	return -ENETUNREACH;
}

static int fake_connect(struct nic_port *port, unsigned queue, const struct nic_addr *addr, unsigned remote_queue,
			const void *hello, size_t hello_len, uint64_t deadline, void *user, struct nic_err *err)
{
	struct fake_port *p = (struct fake_port *)port;
	uint64_t id;
	bool is_other = strcmp(p->driver, "other") == 0;
	p->fabric->connects[is_other]++;
	p->fabric->deadline[is_other] = deadline;
	(void)err;
	memcpy(&id, addr->blob, sizeof id);
	struct queued q = {.user = user, .from = p, .len = hello_len, .queue = remote_queue, .from_queue = queue};
	memcpy(q.hello, hello, hello_len);
	if (p->fabric->lose_next) {
		p->fabric->lose_next = false;
		queue_put(p, (struct queued){.type = QUEUED_FAILED, .user = user, .error = -ETIMEDOUT});
		return 0;
	}
	if (p->fabric->deaf_driver && strcmp(p->fabric->deaf_driver, p->driver) == 0) {
		queue_put(p, (struct queued){.type = QUEUED_FAILED, .user = user, .error = p->fabric->deaf});
		return 0;
	}
	int refuse = p->fabric->refuse;
	if (p->fabric->refuse_driver && strcmp(p->fabric->refuse_driver, p->driver) != 0)
		refuse = 0;
	if (refuse) {
		p->fabric->refuse = p->fabric->refuse_next;
		return refuse;
	}
	if (id == p->id && queue == remote_queue) {
		q.type = QUEUED_UP;
		q.peer = peer_new(p, queue);
		queue_put(p, q);
		return 0;
	}
	if (p->fabric->mute)
		return 0;
	for (int i = 0; i < FAKE_PORTS_MAX; i++) {
		if (p->fabric->ports[i] && p->fabric->ports[i]->id == id &&
		    p->fabric->ports[i]->base.ops == p->base.ops) {
			q.type = QUEUED_CONNECT;
			queue_put(p->fabric->ports[i], q);
			return 0;
		}
	}
	return -ECONNREFUSED;
}

static void handle_connect(struct fake_port *p, struct queued *q, nic_event_fn *event, void *ctx)
{
	uint8_t reply[NIC_HELLO_BYTES_MAX];
	size_t reply_len = 0;
	struct nic_event ev = {.type = NIC_EVENT_HELLO,
			       .peer = NIC_PEER_NONE,
			       .queue = q->queue,
			       .hello = q->hello,
			       .hello_len = q->len,
			       .reply = reply,
			       .reply_len = &reply_len};
	if (!q->from)
		return;
	int rc = event(ctx, &ev);
	if (rc) {
		queue_put(q->from, (struct queued){.type = QUEUED_FAILED, .user = q->user, .error = rc});
		return;
	}
	uint32_t here = peer_new(p, q->queue), there = peer_new(q->from, q->from_queue);
	p->peers[here].other = q->from;
	p->peers[here].other_peer = there;
	q->from->peers[there].other = p;
	q->from->peers[there].other_peer = here;
	struct queued up = {
		.type = QUEUED_UP, .user = q->user, .peer = there, .queue = q->from_queue, .len = reply_len};
	memcpy(up.hello, reply, reply_len);
	queue_put(q->from, up);
	ev = (struct nic_event){
		.type = NIC_EVENT_UP, .peer = here, .queue = q->queue, .hello = q->hello, .hello_len = q->len};
	event(ctx, &ev);
}

static uint64_t fake_step(struct nic_port *port, uint64_t now, nic_event_fn *event, void *ctx)
{
	struct fake_port *p = (struct fake_port *)port;
	(void)now;
	while (p->head != p->tail && (!p->fabric->stepwise || p->allowed)) {
		if (p->allowed)
			p->allowed--;
		struct queued q = p->events[p->head++ % EVENTS_MAX];
		struct nic_event ev = {
			.peer = q.peer, .queue = q.queue, .user = q.user, .hello = q.hello, .hello_len = q.len};
		switch (q.type) {
		case QUEUED_CONNECT:
			handle_connect(p, &q, event, ctx);
			continue;
		case QUEUED_UP:
			ev.type = NIC_EVENT_UP;
			break;
		case QUEUED_FAILED:
			ev.type = NIC_EVENT_FAILED;
			ev.peer = NIC_PEER_NONE;
			ev.error = q.error;
			break;
		case QUEUED_REFUSED:
			ev.type = NIC_EVENT_REFUSED;
			break;
		case QUEUED_DOWN:
			ev.type = NIC_EVENT_DOWN;
			ev.error = -ECONNRESET;
			ev.text = "fake: gone";
			if (!p->peers[q.peer].used)
				continue;
			break;
		}
		event(ctx, &ev);
	}
	return UINT64_MAX;
}

static int fake_fd(const struct nic_port *port)
{
	(void)port;
	return -1;
}

static void peer_part(struct fake_peer *peer)
{
	if (!peer->other)
		return;
	peer->other->peers[peer->other_peer].other = NULL;
	queue_put(peer->other, (struct queued){.type = QUEUED_DOWN, .peer = peer->other_peer});
	peer->other = NULL;
}

static void fake_drop(struct nic_port *port, uint32_t peer)
{
	struct fake_port *p = (struct fake_port *)port;
	peer_part(&p->peers[peer]);
	p->peers[peer].used = false;
}

void fake_port_cut(struct nic_port *port, uint32_t peer)
{
	struct fake_port *p = (struct fake_port *)port;
	peer_part(&p->peers[peer]);
	queue_put(p, (struct queued){.type = QUEUED_DOWN, .peer = peer});
}

void fake_port_refuse(struct nic_port *port, uint32_t peer)
{
	queue_put((struct fake_port *)port, (struct queued){.type = QUEUED_REFUSED, .peer = peer});
}

void fake_port_allow(struct nic_port *port)
{
	((struct fake_port *)port)->allowed = 1;
}

unsigned fake_port_peers(const struct nic_port *port)
{
	unsigned n = 0;
	for (int i = 0; i < PEERS_MAX; i++)
		n += ((const struct fake_port *)port)->peers[i].used;
	return n;
}

#define FAKE_OPS(title)                                                                                                \
	{                                                                                                              \
		.name = title, .address = fake_address, .connect = fake_connect, .step = fake_step, .fd = fake_fd,     \
		.drop = fake_drop, .address_text = fake_address_text, .reach = fake_reach                              \
	}
static const struct nic_port_ops fake_ops = FAKE_OPS("fake");
static const struct nic_port_ops other_ops = FAKE_OPS("other");

struct nic_port *fake_port_create(struct fake_fabric *f, const char *driver, uint64_t id)
{
	struct fake_port *p = calloc(1, sizeof *p);
	p->base.ops = strcmp(driver, "other") == 0 ? &other_ops : &fake_ops;
	p->fabric = f;
	p->id = id;
	memcpy(p->driver, p->base.ops->name, strlen(p->base.ops->name));
	int i = 0;
	while (f->ports[i])
		i++;
	f->ports[i] = p;
	return &p->base;
}

void fake_port_destroy(struct nic_port *port)
{
	struct fake_port *p = (struct fake_port *)port;
	for (int i = 0; i < PEERS_MAX; i++)
		peer_part(&p->peers[i]);
	for (int i = 0; i < FAKE_PORTS_MAX; i++) {
		struct fake_port *o = p->fabric->ports[i];
		for (unsigned e = o ? o->head : 0; o && e != o->tail; e++) {
			if (o->events[e % EVENTS_MAX].from == p)
				o->events[e % EVENTS_MAX].from = NULL;
		}
		if (o == p)
			p->fabric->ports[i] = NULL;
	}
	free(p);
}
