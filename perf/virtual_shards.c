/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A datagram driver that accepts every connection and answers every request itself, for the cost of one end alone.
 * Shard and control thread.
 */
#include "virtual_shards.h"

#include "core/packet.h"
#include "transport/transport.h"
#include "transport/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RING   256u /* answers that wait, and those that were handed out last */
#define ROOM   2048u
#define PACKET 1500u
#define NAME   "virtual"
/* Of the port that all of them seem to have: the last bits are its queues − 1. */
#define REMOTE_ID (UINT64_C(0x5ead0f5a7e11a000) | (VIRTUAL_SHARDS_EACH - 1))
/* What it is called by is made of what it calls us, and so is found without a table. */
#define TOKEN_OF(ours) ((ours) ^ UINT64_C(0x9b97c6a51e6fd35b))

struct virtual_port {
	struct nic_port base;
	struct nic_queue queue;
	uint64_t our_id; /* of the link above */
	void *connecting[VIRTUAL_CONNECTS];
	uint32_t connecting_n, peers;
	uint32_t read, written, held; /* held: what was handed out by the last recv() begins there */
	uint64_t acks;
	uint32_t lens[RING];
	uint8_t *rooms;
	uint8_t *tx;
};

static struct virtual_port *port_of(const struct nic_port *p)
{
	return (struct virtual_port *)(uintptr_t)p;
}

static struct virtual_port *owner(struct nic_queue *q)
{
	return (struct virtual_port *)(void *)((char *)q - offsetof(struct virtual_port, queue));
}

/* Bodies behind the head are aligned. */
static uint8_t *room(const struct virtual_port *p, uint32_t i)
{
	return p->rooms + (size_t)(i % RING) * ROOM + 32;
}

/* ---- the other side ---- */

static void accept_connect(struct virtual_port *p, uint8_t *out, const uint8_t *in, uint32_t len)
{
	struct wire_control h;
	struct wire_handshake w;
	memcpy(out, in, len);
	memcpy(&h, in, sizeof h);
	memcpy(&w, in + sizeof h, sizeof w);
	uint64_t token = le64_get(w.token);
	p->our_id = le64_get(w.incarnation);
	h.kind = WIRE_ACCEPT;
	h.incarnation = w.incarnation;
	h.token = w.token;
	w.incarnation = le64_of(REMOTE_ID);
	w.token = le64_of(TOKEN_OF(token));
	le16 queue = w.queue;
	w.queue = w.wanted_queue;
	w.wanted_queue = queue;
	memcpy(out, &h, sizeof h);
	memcpy(out + sizeof h, &w, sizeof w);
}

/* Turns the head of a request into that of its reply. */
static void reply_to(uint8_t call[sizeof(union packet_head)])
{
	union packet_head h;
	memcpy(&h, call, sizeof h);
	h.type = PACKET_REPLY;
	h.reply.function = 0;
	h.reply.zeros[0] = h.reply.zeros[1] = 0;
	memcpy(call, &h, sizeof h);
}

/* Packet number n answers packet number n, and acknowledges it. */
static void answer(const struct virtual_port *p, uint8_t *out, const uint8_t *in, uint32_t len)
{
	memcpy(out, in, len);
	struct wire_message *h = (struct wire_message *)(void *)out;
	h->flags &= WIRE_BATCH;
	h->incarnation = le64_of(p->our_id);
	h->token = le64_of(TOKEN_OF(le64_get(h->token)));
	h->ack = le32_of(le32_get(h->packet) + 1);
	h->ack_bits = le64_of(0);
	reply_to(h->call);
	if (!(h->flags & WIRE_BATCH))
		return;
	/* The others of a packet of several. */
	for (uint32_t end = le32_get(h->length), all = len - (uint32_t)sizeof *h; end < all;) {
		uint32_t sub = (end + 31) & ~31u;
		struct wire_sub *s = (struct wire_sub *)(void *)(out + sizeof *h + sub);
		uint32_t at = sub + (uint32_t)sizeof *s, bytes = le32_get(s->length);
		reply_to(s->call);
		end = (bytes > FAR_LINE_PAYLOAD ? (at + 63) & ~63u : at) + bytes;
	}
}

/* ---- the queue ---- */

static int q_attach(struct nic_queue *q, uint32_t peer)
{
	(void)q;
	(void)peer;
	return 0;
}

static void q_ignore(struct nic_queue *q, uint32_t peer)
{
	(void)q;
	(void)peer;
}

static void q_nothing(struct nic_queue *q)
{
	(void)q;
}

static unsigned q_recv(struct nic_queue *q, struct nic_pkt *pkts, unsigned max)
{
	struct virtual_port *p = owner(q);
	unsigned n = 0;
	p->held = p->read;
	for (; n < max && p->read != p->written; n++, p->read++)
		pkts[n] = (struct nic_pkt){
			.body = room(p, p->read), .body_len = p->lens[p->read % RING], .peer = NIC_PEER_NONE};
	return n;
}

static int q_reserve(struct nic_queue *q, uint32_t peer, uint64_t len, struct nic_tx *tx)
{
	struct virtual_port *p = owner(q);
	(void)peer;
	if (p->written - p->held == RING)
		return -EAGAIN;
	tx->body = p->tx + 32;
	tx->body_len = len;
	return 0;
}

static int q_commit(struct nic_queue *q, struct nic_tx *tx)
{
	struct virtual_port *p = owner(q);
	const struct wire_head *h = (const struct wire_head *)(void *)tx->body;
	uint32_t len = (uint32_t)tx->body_len;
	if (h->kind == WIRE_CONNECT)
		accept_connect(p, room(p, p->written), tx->body, len);
	else if (h->kind == WIRE_MESSAGE)
		answer(p, room(p, p->written), tx->body, len);
	else {
		p->acks += h->kind == WIRE_ACK;
		return 0;
	}
	p->lens[p->written++ % RING] = len;
	return 0;
}

static uint64_t q_most(struct nic_queue *q, uint32_t peer)
{
	(void)q;
	(void)peer;
	return PACKET;
}

static uint64_t q_deadline(const struct nic_queue *q)
{
	(void)q;
	return UINT64_MAX;
}

static const struct nic_queue_ops queue_ops = {.attach = q_attach,
					       .detach = q_ignore,
					       .recv = q_recv,
					       .tx_reserve = q_reserve,
					       .tx_bytes_max = q_most,
					       .tx_commit = q_commit,
					       .flush = q_nothing,
					       .arm = q_nothing,
					       .disarm = q_nothing,
					       .wake = q_nothing,
					       .deadline = q_deadline};

/* ---- the port ---- */

static void p_close(struct nic_port *port)
{
	struct virtual_port *p = port_of(port);
	free(p->rooms);
	free(p->tx);
	free(p);
}

static void p_caps(const struct nic_port *port, struct nic_caps *out)
{
	(void)port;
	*out = (struct nic_caps){
		.crc = true, .wake = true, .body_bytes_max = PACKET, .peers_max = 1u << 20, .queues_max = 1};
}

static void p_address(const struct nic_port *port, struct nic_addr *out)
{
	(void)port;
	*out = (struct nic_addr){.driver = NAME, .len = 1};
}

static void p_address_text(const struct nic_addr *addr, char *out, size_t cap)
{
	(void)addr;
	snprintf(out, cap, NAME);
}

static struct nic_queue *p_queue(struct nic_port *port, unsigned i)
{
	return i == 0 ? &port_of(port)->queue : NULL;
}

static int p_connect(struct nic_port *port, const struct nic_connect *c, struct nic_err *err)
{
	struct virtual_port *p = port_of(port);
	if (p->connecting_n == VIRTUAL_CONNECTS) {
		snprintf(err->text, sizeof err->text, NAME ": more than %u connections at once", VIRTUAL_CONNECTS);
		return -ENOSPC;
	}
	p->connecting[p->connecting_n++] = c->user;
	return 0;
}

static uint64_t p_step(struct nic_port *port, uint64_t now, nic_event_fn *event, void *ctx)
{
	struct virtual_port *p = port_of(port);
	(void)now;
	for (uint32_t n = p->connecting_n, i = p->connecting_n = 0; i < n; i++) {
		struct nic_event ev = {.type = NIC_EVENT_UP, .peer = p->peers++, .user = p->connecting[i]};
		event(ctx, &ev);
	}
	return UINT64_MAX;
}

static int p_fd(const struct nic_port *port)
{
	(void)port;
	return -1;
}

static void p_drop(struct nic_port *port, uint32_t peer)
{
	(void)port;
	(void)peer;
}

static const struct nic_port_ops port_ops = {.name = NAME,
					     .close = p_close,
					     .caps = p_caps,
					     .address = p_address,
					     .address_text = p_address_text,
					     .queue = p_queue,
					     .connect = p_connect,
					     .step = p_step,
					     .fd = p_fd,
					     .drop = p_drop};

struct nic_port *virtual_shards_open(void)
{
	struct virtual_port *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->base.ops = &port_ops;
	p->queue.ops = &queue_ops;
	p->rooms = aligned_alloc(64, (size_t)RING * ROOM);
	p->tx = aligned_alloc(64, ROOM);
	if (p->rooms && p->tx)
		return &p->base;
	p_close(&p->base);
	return NULL;
}

void virtual_shards_address(struct nic_addr *out)
{
	le64 id = le64_of(REMOTE_ID);
	*out = (struct nic_addr){.driver = NAME, .len = 1 + sizeof id};
	memcpy(out->blob + 1, &id, sizeof id);
}

uint64_t virtual_shards_acks(const struct nic_port *port)
{
	return port_of(port)->acks;
}
