/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_bulk.h"

#include <errno.h>
#include <string.h>

#define ADDR UINT64_C(0x5a0000000000)

struct fake_bulk fake_bulk;

static struct nic_queue_ops ops;
static unsigned (*lower_recv)(struct nic_queue *q, struct nic_pkt *pkts, unsigned max);

static struct dgram_queue *queue_of(struct nic_queue *q)
{
	return (struct dgram_queue *)q;
}

static struct fake_bulk_op *op_new(struct nic_queue *q, int state, uint64_t user)
{
	for (unsigned i = 0; i < FAKE_BULK_OPS; i++) {
		struct fake_bulk_op *op = &fake_bulk.op[i];
		if (op->state != FAKE_FREE)
			continue;
		*op = (struct fake_bulk_op){.q = queue_of(q), .user = user, .late = fake_bulk.late};
		op->state = state;
		return op;
	}
	return NULL;
}

static const struct dgram_place *place_of(struct nic_queue *q, uint32_t peer)
{
	const struct dgram_place *place = &queue_of(q)->port->places[peer];
	return peer < DGRAM_PLACES && place->attached ? place : NULL;
}

static int expose(struct nic_queue *q, uint32_t peer, const void *at, uint64_t len, uint64_t user, uint32_t *handle,
		  struct nic_bulk_key *key)
{
	const struct dgram_place *place = place_of(q, peer);
	if (!place)
		return -EPIPE;
	if (fake_bulk.expose_error)
		return fake_bulk.expose_error;
	struct fake_bulk_op *op = op_new(q, FAKE_BINDING, user);
	if (!op)
		return -EAGAIN;
	op->at = at;
	op->len = len;
	op->to_port = place->to_port;
	op->key = UINT64_C(0xfeed00000000) + ++fake_bulk.keys;
	*handle = (uint32_t)(op - fake_bulk.op);
	*key = (struct nic_bulk_key){op->key, ADDR}; /* the same in every run */
	fake_bulk.exposes++;
	return 0;
}

static void withdraw(struct nic_queue *q, uint32_t handle)
{
	struct fake_bulk_op *op = &fake_bulk.op[handle];
	if (op->q != queue_of(q) || (op->state != FAKE_BINDING && op->state != FAKE_BOUND))
		return;
	op->state = FAKE_GOING;
	op->late = fake_bulk.late;
}

static int read_begin(struct nic_queue *q, uint32_t peer, const struct nic_bulk_key *key, uint64_t offset, void *to,
		      uint32_t len, uint64_t user)
{
	if (!place_of(q, peer))
		return -EPIPE;
	if (fake_bulk.read_error) {
		int error = fake_bulk.read_error;
		if (fake_bulk.read_errors && --fake_bulk.read_errors == 0)
			fake_bulk.read_error = 0;
		return error;
	}
	struct fake_bulk_op *op = op_new(q, FAKE_READING, user);
	if (!op)
		return -EAGAIN;
	op->key = key->key;
	op->addr = key->addr + offset;
	op->to = to;
	op->len = len;
	fake_bulk.reads++;
	fake_bulk.seed = fake_bulk.seed * 1103515245u + 12345u;
	op->fails = fake_bulk.reads == fake_bulk.fail_at || (fake_bulk.seed >> 16) % 1000 < fake_bulk.fail_of;
	return 0;
}

/* By the key, within what it is of, by who it is for. */
static bool copy(const struct fake_bulk_op *read)
{
	for (unsigned i = 0; i < FAKE_BULK_OPS; i++) {
		const struct fake_bulk_op *op = &fake_bulk.op[i];
		if (op->state != FAKE_BOUND || op->key != read->key || op->to_port != read->q->port->index ||
		    read->addr < ADDR || read->addr + read->len > ADDR + op->len)
			continue;
		memcpy(read->to, op->at + (read->addr - ADDR), read->len);
		fake_bulk.bytes += read->len;
		return true;
	}
	fake_bulk.refused++;
	return false;
}

/* What happens to it in this recv(): an event, or 0. */
static unsigned event_of(struct fake_bulk_op *op)
{
	switch (op->state) {
	case FAKE_BINDING:
		if (fake_bulk.no_exposed)
			return 0;
		op->state = FAKE_BOUND;
		return NIC_BULK_EXPOSED;
	case FAKE_GOING:
		fake_bulk.withdrawn++;
		op->state = FAKE_FREE;
		return NIC_BULK_WITHDRAWN;
	case FAKE_READING: {
		if (fake_bulk.hold)
			return 0;
		bool fine = !op->fails && copy(op);
		fake_bulk.reads_done++;
		op->state = FAKE_FREE;
		return fine ? NIC_BULK_READ : NIC_BULK_READ_FAILED;
	}
	default:
		return 0;
	}
}

static unsigned recv_all(struct nic_queue *q, struct nic_pkt *pkts, unsigned max)
{
	unsigned n = 0;
	for (unsigned k = 0; k < FAKE_BULK_OPS && n < max / 2; k++) {
		struct fake_bulk_op *op = &fake_bulk.op[fake_bulk.backwards ? FAKE_BULK_OPS - 1 - k : k];
		if (op->state == FAKE_FREE || op->q != queue_of(q) || (op->late && op->late--))
			continue;
		unsigned event = event_of(op);
		if (event)
			pkts[n++] = (struct nic_pkt){.peer = NIC_PEER_BULK, .body_len = event, .cookie = op->user};
	}
	return n + lower_recv(q, pkts + n, max - n);
}

static const struct nic_bulk_ops bulk_ops = {.expose = expose, .withdraw = withdraw, .read = read_begin};

void fake_bulk_dress(struct nic_queue *q)
{
	if (fake_bulk.without & 1u << queue_of(q)->port->index)
		return;
	ops = *q->ops;
	lower_recv = q->ops->recv;
	ops.recv = recv_all;
	ops.bulk = &bulk_ops;
	q->ops = &ops;
}

void fake_bulk_break(void)
{
	for (unsigned i = 0; i < FAKE_BULK_OPS; i++) {
		struct fake_bulk_op *op = &fake_bulk.op[i];
		if (op->state == FAKE_BINDING || op->state == FAKE_BOUND)
			op->state = FAKE_GOING;
		op->fails = true;
	}
}

unsigned fake_bulk_n(void)
{
	unsigned n = 0;
	for (unsigned i = 0; i < FAKE_BULK_OPS; i++)
		n += fake_bulk.op[i].state != FAKE_FREE;
	return n;
}
