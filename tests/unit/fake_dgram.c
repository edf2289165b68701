/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_dgram.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { PACKET_MAX = 65536 };

static struct dgram_port *port_of(const struct nic_port *p)
{
	return (struct dgram_port *)(uintptr_t)p;
}

static struct dgram_queue *queue_of(const struct nic_queue *q)
{
	return (struct dgram_queue *)(uintptr_t)q;
}

static void poke(int fd)
{
	uint64_t one = 1;
	ssize_t n = write(fd, &one, sizeof one);
	(void)n;
}

static void clear(int fd)
{
	uint64_t count;
	ssize_t n = read(fd, &count, sizeof count);
	(void)n;
}

void dgram_fabric_init(struct dgram_fabric *f)
{
	memset(f, 0, sizeof *f);
	f->seed = 1;
	f->packet_max = 1400;
	f->room = 100000;
	f->wake = true;
}

/* [0, n) */
static unsigned dice(struct dgram_fabric *f, unsigned n)
{
	f->seed = f->seed * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (unsigned)((f->seed >> 33) % n);
}

/* ---- packets ---- */

static void packet_free(struct dgram_packet *p)
{
	free((uint8_t *)((uintptr_t)p->bytes & ~(uintptr_t)63));
	free(p);
}

static void list_free(struct dgram_packet *p)
{
	while (p) {
		struct dgram_packet *next = p->next;
		packet_free(p);
		p = next;
	}
}

static struct dgram_packet *packet_new(const struct dgram_fabric *f, const void *bytes, uint32_t len)
{
	struct dgram_packet *p = malloc(sizeof *p);
	uint8_t *room = aligned_alloc(64, (len + f->misalign + 127) & ~63u);
	p->bytes = room + f->misalign;
	p->len = len;
	p->next = NULL;
	memcpy(p->bytes, bytes, len);
	return p;
}

/* `ahead`: of how many that wait already. */
static void enqueue(struct dgram_queue *q, struct dgram_packet *p, unsigned ahead)
{
	pthread_mutex_lock(&q->lock);
	if (q->waiting >= q->port->fabric->room) {
		pthread_mutex_unlock(&q->lock);
		packet_free(p);
		return;
	}
	struct dgram_packet **at = &q->first;
	for (unsigned i = 0; *at && i + ahead < q->waiting; i++)
		at = &(*at)->next;
	p->next = *at;
	*at = p;
	if (!p->next)
		q->last = &p->next;
	q->waiting++;
	bool armed = atomic_load(&q->armed);
	pthread_mutex_unlock(&q->lock);
	if (armed && q->port->fabric->wake)
		poke(q->wake_fd);
}

void dgram_inject(struct dgram_fabric *f, unsigned port, unsigned queue, const void *bytes, uint32_t len)
{
	enqueue(&f->ports[port]->queues[queue], packet_new(f, bytes, len), 0);
}

unsigned dgram_waiting(struct dgram_fabric *f)
{
	unsigned n = 0;
	for (unsigned i = 0; i < f->ports_n; i++)
		for (unsigned k = 0; f->ports[i] && k < f->ports[i]->queues_n; k++)
			n += f->ports[i]->queues[k].waiting;
	return n;
}

static unsigned arrival(const struct dgram_fabric *f, const struct dgram_port *to, const struct dgram_place *place)
{
	if (!f->hash)
		return NIC_ROUTE_QUEUE(place->route);
	uint64_t x = (NIC_ROUTE_PATH(place->route) + 1) * UINT64_C(0x9e3779b97f4a7c15) + place->queue * 977;
	return (unsigned)(((x >> 40) + f->respread) % to->queues_n);
}

static void deliver(struct dgram_queue *q, const struct dgram_place *place, uint8_t *bytes, uint32_t len)
{
	struct dgram_fabric *f = q->port->fabric;
	struct dgram_port *to = f->ports[place->to_port];
	atomic_fetch_add(&f->sent, 1);
	if (!to || (f->black_hole && len > f->black_hole))
		return;
	unsigned at = arrival(f, to, place);
	if (at >= to->queues_n || (f->hook && !f->hook(f->hook_ctx, q->port->index, to->index, at, bytes, &len)))
		return;
	/* The dice are for one thread. */
	if (f->drop && dice(f, 1000) < f->drop)
		return;
	unsigned copies = f->repeat && dice(f, 1000) < f->repeat ? 2 : 1;
	for (unsigned i = 0; i < copies; i++) {
		struct dgram_packet *p = packet_new(f, bytes, len);
		if (f->damage && dice(f, 1000) < f->damage)
			p->bytes[dice(f, len)] ^= (uint8_t)(1u << dice(f, 8));
		enqueue(&to->queues[at], p, f->overtake && dice(f, 1000) < f->overtake ? 1 + dice(f, 30) : 0);
	}
}

/* ---- queue ---- */

static int q_attach(struct nic_queue *nq, uint32_t peer)
{
	struct dgram_queue *q = queue_of(nq);
	struct dgram_place *place = &q->port->places[peer];
	if (peer >= DGRAM_PLACES || !place->used || place->attached || place->queue != q->index)
		return -EINVAL;
	place->attached = true;
	return 0;
}

static void q_detach(struct nic_queue *nq, uint32_t peer)
{
	queue_of(nq)->port->places[peer].attached = false;
}

static unsigned q_recv(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max)
{
	struct dgram_queue *q = queue_of(nq);
	unsigned n = 0;
	list_free(q->taken);
	q->taken = NULL;
	pthread_mutex_lock(&q->lock);
	while (n < max && q->first) {
		struct dgram_packet *p = q->first;
		q->first = p->next;
		if (!q->first)
			q->last = &q->first;
		q->waiting--;
		p->next = q->taken;
		q->taken = p;
		pkts[n++] = (struct nic_pkt){.body = p->bytes, .body_len = p->len, .peer = NIC_PEER_NONE};
	}
	pthread_mutex_unlock(&q->lock);
	return n;
}

static void q_release(struct nic_queue *nq, uint32_t peer, uint64_t cookie)
{
	(void)nq;
	(void)peer;
	(void)cookie;
}

static uint32_t packet_max(const struct dgram_queue *q)
{
	struct dgram_fabric *f = q->port->fabric;
	uint32_t most = atomic_load(&f->packet_max), narrow = f->narrow[q->port->index];
	return narrow && narrow < most ? narrow : most;
}

static int q_reserve(struct nic_queue *nq, uint32_t peer, uint64_t body_len, struct nic_tx *tx)
{
	struct dgram_queue *q = queue_of(nq);
	struct dgram_fabric *f = q->port->fabric;
	if (peer >= DGRAM_PLACES || !q->port->places[peer].attached)
		return -EPIPE;
	if (body_len > packet_max(q))
		return -EMSGSIZE;
	if (f->full_every && atomic_fetch_add(&f->reserves, 1) % f->full_every == 0)
		return -EAGAIN;
	tx->peer = peer;
	tx->body = q->room;
	tx->body_len = body_len;
	tx->cookie = 0;
	tx->priority = 0;
	return 0;
}

static uint64_t q_waiting(struct nic_queue *nq, uint64_t most)
{
	(void)most;
	return queue_of(nq)->port->fabric->waiting;
}

static uint32_t q_room(struct nic_queue *nq, uint32_t peer)
{
	(void)nq;
	(void)peer;
	return 16;
}

static uint64_t q_bytes_max(struct nic_queue *nq, uint32_t peer)
{
	(void)peer;
	return packet_max(queue_of(nq));
}

static int q_commit(struct nic_queue *nq, struct nic_tx *tx)
{
	struct dgram_queue *q = queue_of(nq);
	if (q->port->fabric->hook)
		q->port->fabric->priority = tx->priority;
	deliver(q, &q->port->places[tx->peer], q->room, (uint32_t)tx->body_len);
	return 0;
}

static void q_cancel(struct nic_queue *nq, struct nic_tx *tx)
{
	(void)nq;
	(void)tx;
}

static void q_flush(struct nic_queue *nq)
{
	(void)nq;
}

static void q_arm(struct nic_queue *nq)
{
	pthread_mutex_lock(&queue_of(nq)->lock);
	atomic_store(&queue_of(nq)->armed, 1);
	pthread_mutex_unlock(&queue_of(nq)->lock);
}

static void q_disarm(struct nic_queue *nq)
{
	atomic_store(&queue_of(nq)->armed, 0);
}

static int q_wake_fd(const struct nic_queue *nq)
{
	return queue_of(nq)->wake_fd;
}

static void q_wake_clear(struct nic_queue *nq)
{
	clear(queue_of(nq)->wake_fd);
}

static void q_wake(struct nic_queue *nq)
{
	poke(queue_of(nq)->wake_fd);
}

static void q_kick(struct nic_queue *nq, uint32_t peer)
{
	struct dgram_queue *q = queue_of(nq);
	struct dgram_fabric *f = q->port->fabric;
	struct dgram_place *place = &q->port->places[peer];
	struct dgram_port *to = f->ports[place->to_port];
	atomic_fetch_add(&f->kicks, 1);
	if (to)
		poke(to->queues[arrival(f, to, place)].wake_fd);
}

static uint64_t q_deadline(const struct nic_queue *nq)
{
	(void)nq;
	return UINT64_MAX;
}

static void q_watch(struct nic_queue *nq, bool (*owes)(void *ctx, uint32_t peer), void *ctx)
{
	(void)nq;
	(void)owes;
	(void)ctx;
}

static const struct nic_queue_ops waking_ops = {
	.attach = q_attach,
	.detach = q_detach,
	.recv = q_recv,
	.release = q_release,
	.tx_reserve = q_reserve,
	.tx_room = q_room,
	.tx_waiting = q_waiting,
	.tx_bytes_max = q_bytes_max,
	.tx_commit = q_commit,
	.tx_cancel = q_cancel,
	.flush = q_flush,
	.arm = q_arm,
	.disarm = q_disarm,
	.wake_fd = q_wake_fd,
	.wake_clear = q_wake_clear,
	.wake = q_wake,
	.deadline = q_deadline,
	.watch = q_watch,
};

static struct nic_queue_ops kicking_ops;
static pthread_once_t kicking_once = PTHREAD_ONCE_INIT;

static void kicking_make(void)
{
	kicking_ops = waking_ops;
	kicking_ops.kick = q_kick;
}

/* ---- port ---- */

static void p_close(struct nic_port *port)
{
	struct dgram_port *p = port_of(port);
	p->fabric->ports[p->index] = NULL;
	for (unsigned i = 0; i < p->queues_n; i++) {
		list_free(p->queues[i].first);
		list_free(p->queues[i].taken);
		free(p->queues[i].room);
		close(p->queues[i].wake_fd);
	}
	close(p->event_fd);
	free(p);
}

static void p_caps(const struct nic_port *port, struct nic_caps *out)
{
	const struct dgram_fabric *f = port_of(port)->fabric;
	*out = (struct nic_caps){
		.crc = f->crc,
		.wake = f->wake,
		.steering = f->hash ? NIC_STEER_HASH : NIC_STEER_QUEUE,
		.body_align = 1,
		.body_bytes_max = PACKET_MAX - 128,
		.slots = 16,
		.peers_max = DGRAM_PLACES,
		.queues_max = DGRAM_QUEUES,
	};
}

void dgram_address_of(unsigned port, struct nic_addr *out)
{
	memset(out, 0, sizeof *out);
	snprintf(out->driver, sizeof out->driver, "dgram");
	out->blob[0] = 0xad;
	out->blob[1] = (uint8_t)port;
	out->len = 2;
}

static void p_address(const struct nic_port *port, struct nic_addr *out)
{
	dgram_address_of(port_of(port)->index, out);
}

static void p_address_text(const struct nic_addr *addr, char *out, size_t cap)
{
	snprintf(out, cap, "dgram %u", addr->blob[1]);
}

static int p_reach(const struct nic_port *port, const struct nic_addr *addr, struct nic_err *err)
{
	(void)port;
	(void)err;
	return addr->len == 2 ? 0 : -EINVAL;
}

static void p_stats(const struct nic_port *port, struct nic_stats *out)
{
	*out = (struct nic_stats){.tx_packets = atomic_load(&port_of(port)->fabric->sent)};
}

static struct nic_queue *p_queue(struct nic_port *port, unsigned i)
{
	return i < port_of(port)->queues_n ? &port_of(port)->queues[i].base : NULL;
}

static int p_connect(struct nic_port *port, unsigned queue, const struct nic_addr *addr, unsigned remote_queue,
		     const void *hello, size_t hello_len, uint64_t deadline, void *user, struct nic_err *err)
{
	struct dgram_port *p = port_of(port);
	(void)hello;
	(void)hello_len;
	(void)deadline;
	if (addr->len != 2 || addr->blob[0] != 0xad || addr->blob[1] >= DGRAM_PORTS) {
		snprintf(err->text, sizeof err->text, "dgram: malformed address");
		return -EINVAL;
	}
	for (unsigned i = p->lowest; i < DGRAM_PLACES; i++) {
		if (p->places[i].used)
			continue;
		p->lowest = i + 1;
		p->waiting++;
		p->places[i] = (struct dgram_place){
			.used = true, .queue = queue, .to_port = addr->blob[1], .route = remote_queue, .user = user};
		poke(p->event_fd);
		return 0;
	}
	snprintf(err->text, sizeof err->text, "dgram: no place left");
	return -ENOSPC;
}

static uint64_t p_step(struct nic_port *port, uint64_t now, nic_event_fn *event, void *ctx)
{
	struct dgram_port *p = port_of(port);
	(void)now;
	clear(p->event_fd);
	for (uint32_t i = 0; i < DGRAM_PLACES && p->waiting && !p->fabric->unready; i++) {
		struct dgram_place *place = &p->places[i];
		if (!place->used || place->up)
			continue;
		place->up = true;
		p->waiting--;
		struct nic_event ev = {.type = NIC_EVENT_UP, .peer = i, .queue = place->queue, .user = place->user};
		event(ctx, &ev);
	}
	return UINT64_MAX;
}

static int p_fd(const struct nic_port *port)
{
	return port_of(port)->event_fd;
}

static void p_drop(struct nic_port *port, uint32_t peer)
{
	struct dgram_port *p = port_of(port);
	p->waiting -= !p->places[peer].up;
	p->places[peer].used = false;
	if (peer < p->lowest)
		p->lowest = peer;
}

static const struct nic_port_ops dgram_ops = {
	.name = "dgram",
	.close = p_close,
	.caps = p_caps,
	.address = p_address,
	.address_text = p_address_text,
	.reach = p_reach,
	.stats = p_stats,
	.queue = p_queue,
	.connect = p_connect,
	.step = p_step,
	.fd = p_fd,
	.drop = p_drop,
};

struct nic_port *dgram_open(struct dgram_fabric *f, unsigned queues)
{
	struct dgram_port *p = calloc(1, sizeof *p);
	pthread_once(&kicking_once, kicking_make);
	p->base.ops = &dgram_ops;
	p->fabric = f;
	while (f->ports[p->index])
		p->index++;
	f->ports[p->index] = p;
	if (p->index >= f->ports_n)
		f->ports_n = p->index + 1;
	p->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	p->queues_n = queues;
	for (unsigned i = 0; i < queues; i++) {
		struct dgram_queue *q = &p->queues[i];
		q->base.ops = f->wake ? &waking_ops : &kicking_ops;
		q->port = p;
		q->index = i;
		q->last = &q->first;
		q->room = aligned_alloc(64, PACKET_MAX);
		q->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		pthread_mutex_init(&q->lock, NULL);
		if (f->dress)
			f->dress(&q->base);
	}
	return &p->base;
}
