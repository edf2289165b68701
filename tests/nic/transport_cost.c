/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a link adds to a message: two of them over a driver that does nothing but copy a packet from one to the other.
 * usage: transport_cost BYTES ROUNDS; a round is a message there and one back. transport_cost.sh runs it under
 * callgrind.
 *
 * Main thread of each process.
 */
#include "transport/transport.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RING = 1024, ROOM = 2048, HEAD = 28, PACKET = 1500 };

struct pipe {
	struct nic_queue base;
	struct pipe *other;
	uint8_t *rooms; /* of RING packets to be received here */
	uint64_t lens[RING];
	uint32_t written, read;
};

struct tiny_port {
	struct nic_port base;
	struct pipe pipe;
	void *user; /* connect()'s user, until step() */
	uint32_t peers;
	uint8_t name;
};

static struct tiny_port ports[2];

static uint8_t *room(const struct pipe *q, uint32_t i)
{
	return q->rooms + (size_t)(i % RING) * ROOM + 32; /* so that bodies behind the head are aligned */
}

static struct pipe *pipe_of(struct nic_queue *q)
{
	return (struct pipe *)q;
}

static int ok(struct nic_queue *nq, uint32_t peer)
{
	return 0;
}

static void ignore(struct nic_queue *nq, uint32_t peer)
{
}

static unsigned q_recv(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max)
{
	struct pipe *q = pipe_of(nq);
	unsigned n = 0;
	for (; n < max && q->read != q->written; n++, q->read++) {
		pkts[n].head = NULL;
		pkts[n].body = room(q, q->read);
		pkts[n].body_len = q->lens[q->read % RING];
		pkts[n].cookie = 0;
		pkts[n].peer = NIC_PEER_NONE;
	}
	return n;
}

static int q_reserve(struct nic_queue *nq, uint32_t peer, uint64_t len, struct nic_tx *tx)
{
	struct pipe *to = pipe_of(nq)->other;
	if (to->written - to->read == RING)
		return -EAGAIN;
	to->lens[to->written % RING] = len;
	tx->body = room(to, to->written);
	return 0;
}

static uint64_t q_most(struct nic_queue *nq, uint32_t peer)
{
	return PACKET;
}

static int q_commit(struct nic_queue *nq, struct nic_tx *tx)
{
	pipe_of(nq)->other->written++;
	return 0;
}

static void nothing(struct nic_queue *nq)
{
}

static uint64_t never(const struct nic_queue *nq)
{
	return UINT64_MAX;
}

static const struct nic_queue_ops pipe_ops = {.attach = ok,
					      .detach = ignore,
					      .recv = q_recv,
					      .tx_reserve = q_reserve,
					      .tx_bytes_max = q_most,
					      .tx_commit = q_commit,
					      .flush = nothing,
					      .arm = nothing,
					      .disarm = nothing,
					      .wake = nothing,
					      .deadline = never};

static void p_close(struct nic_port *port)
{
	(void)port; /* the other one still writes to its rooms */
}

static void p_caps(const struct nic_port *port, struct nic_caps *out)
{
	*out = (struct nic_caps){.body_bytes_max = PACKET, .wake = true, .peers_max = 64, .queues_max = 1};
	out->crc = getenv("LINK_COST_CRC") != NULL;
}

static void p_address(const struct nic_port *port, struct nic_addr *out)
{
	*out = (struct nic_addr){.driver = "tiny", .len = 1};
	out->blob[0] = ((const struct tiny_port *)port)->name;
}

static struct nic_queue *p_queue(struct nic_port *port, unsigned i)
{
	return i == 0 ? &((struct tiny_port *)port)->pipe.base : NULL;
}

static int p_connect(struct nic_port *port, const struct nic_connect *c, struct nic_err *err)
{
	((struct tiny_port *)port)->user = c->user;
	return 0;
}

static uint64_t p_step(struct nic_port *port, uint64_t now, nic_event_fn *event, void *ctx)
{
	struct tiny_port *p = (struct tiny_port *)port;
	struct nic_event ev = {.type = NIC_EVENT_UP, .peer = p->peers, .user = p->user};
	if (p->user) {
		p->user = NULL;
		p->peers++;
		event(ctx, &ev);
	}
	return UINT64_MAX;
}

static int p_fd(const struct nic_port *port)
{
	return -1;
}

static void p_drop(struct nic_port *port, uint32_t peer)
{
}

static const struct nic_port_ops tiny_ops = {.name = "tiny",
					     .close = p_close,
					     .caps = p_caps,
					     .address = p_address,
					     .queue = p_queue,
					     .connect = p_connect,
					     .step = p_step,
					     .fd = p_fd,
					     .drop = p_drop};

/* ---- the measurement ---- */

static struct nic_port *links[2];
static uint32_t ups[2];

static int on_event(void *ctx, const struct nic_event *ev)
{
	if (ev->type == NIC_EVENT_UP)
		*(uint32_t *)ctx = ev->peer + 1;
	return 0;
}

static void connect_both(void)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	struct nic_pkt pkt;
	links[1]->ops->address(links[1], &addr);
	if (links[0]->ops->connect(links[0], &(struct nic_connect){0, &addr, 0, NULL, 0, UINT64_MAX, &ups}, &err))
		abort();
	while (!ups[0] || !ups[1])
		for (unsigned i = 0; i < 2; i++) {
			struct nic_queue *q = links[i]->ops->queue(links[i], 0);
			links[i]->ops->step(links[i], 0, on_event, &ups[i]);
			q->ops->recv(q, &pkt, 1);
		}
	for (unsigned i = 0; i < 2; i++) {
		struct nic_queue *q = links[i]->ops->queue(links[i], 0);
		if (q->ops->attach(q, ups[i] - 1))
			abort();
	}
}

/* What a round costs is counted below this one. */
__attribute__((noinline)) static void measured(unsigned long rounds, uint64_t bytes)
{
	for (unsigned long i = 0; i < 2 * rounds; i++) {
		struct nic_queue *from = links[i & 1]->ops->queue(links[i & 1], 0);
		struct nic_queue *to = links[~i & 1]->ops->queue(links[~i & 1], 0);
		struct nic_tx tx;
		struct nic_pkt pkts[16];
		if (from->ops->tx_reserve(from, ups[i & 1] - 1, bytes, &tx))
			abort();
		memset(tx.head, 1, HEAD);
		if (from->ops->tx_commit(from, &tx))
			abort();
		from->ops->flush(from);
		unsigned n = to->ops->recv(to, pkts, 16);
		if (n != 1 || pkts[0].body_len != bytes)
			abort();
	}
}

int main(int argc, char **argv)
{
	struct nic_err err = {""};
	struct transport_config config = {.queues = 1, .head_bytes = HEAD};
	uint64_t bytes = argc == 3 ? strtoull(argv[1], NULL, 10) : PACKET;
	if (bytes > PACKET - 96) {
		fprintf(stderr, "usage: %s BYTES ROUNDS; at most %d bytes\n", argv[0], PACKET - 96);
		return 2;
	}
	for (unsigned i = 0; i < 2; i++) {
		ports[i].base.ops = &tiny_ops;
		ports[i].name = (uint8_t)i;
		ports[i].pipe.base.ops = &pipe_ops;
		ports[i].pipe.other = &ports[!i].pipe;
		ports[i].pipe.rooms = aligned_alloc(64, (size_t)RING * ROOM);
		if (!ports[i].pipe.rooms || transport_open(&ports[i].base, &config, &links[i], &err)) {
			fprintf(stderr, "%s\n", err.text);
			return 1;
		}
	}
	connect_both();
	measured(strtoul(argv[2], NULL, 10), bytes);
	for (unsigned i = 0; i < 2; i++) {
		struct nic_queue *q = links[i]->ops->queue(links[i], 0);
		q->ops->detach(q, ups[i] - 1);
		links[i]->ops->close(links[i]);
	}
	for (unsigned i = 0; i < 2; i++)
		free(ports[i].pipe.rooms);
	return 0;
}
