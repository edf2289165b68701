/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A driver that breaks one promise: a shim over one that keeps them. `nic_conformance --driver NAME --defects` runs the
 * cases against each of them; every one must be found. nic_conformance.c includes it. Main thread of each process.
 */
#ifndef NIC_DEFECTS_H
#define NIC_DEFECTS_H

#include "nic_fixture.h"

enum defect {
	DEFECT_NONE, /* the shim itself passes */
	DEFECT_NO_FLUSH,
	DEFECT_LOSES,
	DEFECT_CORRUPTS,
	DEFECT_WRONG_LENGTH,
	DEFECT_BODY_OF_NOTHING,
	DEFECT_WRONG_PEER,
	DEFECT_FEW_SLOTS,
	DEFECT_ROOM_TOO_HIGH,
	DEFECT_WRONG_ERROR,
	DEFECT_SENDS_CANCELLED,
	DEFECT_LEAKS_CANCELLED,
	DEFECT_SHORT_LIVED,
	DEFECT_CANNOT_WAKE,
	DEFECT_NOT_CLEARED,
	DEFECT_NOT_WOKEN,
	DEFECT_UP_TWICE,
	DEFECT_NO_USER,
	DEFECT_FAILED_MUTE,
	DEFECT_WRONG_QUEUE,
	DEFECT_ATTACHES_ANYWHERE,
	DEFECT_ONE_QUEUE_MORE,
	DEFECT_STEERS_WRONG,
	DEFECT_DROPS_NOTHING,
	DEFECT_OPENS_ANYTHING,
	DEFECTS_COMMON,
	/* of connected drivers only */
	DEFECT_REORDERS = DEFECTS_COMMON,
	DEFECT_REPEATS,
	DEFECT_LEAKS_RELEASED,
	DEFECT_NO_WORDS,
	DEFECT_NO_DOWN,
	DEFECT_LEAKS_PEERS,
	DEFECTS_CONNECTED,
	/* of datagram drivers only */
	DEFECT_NAMES_PEER = DEFECTS_CONNECTED,
	DEFECT_COUNTS_NOTHING,
	DEFECT_ALWAYS_LATE,
	DEFECT_TEXT_UNENDED,
	DEFECT_REACHES_ANYTHING,
	DEFECT_CONNECTS_TO_ANYTHING,
	DEFECT_WORDS,
	DEFECT_REPORTS_GONE,
	DEFECTS
};

static const char *const defect_names[DEFECTS] = {
	[DEFECT_NONE] = "none",
	[DEFECT_NO_FLUSH] = "flush() does nothing",
	[DEFECT_LOSES] = "every packet after the first hundred is lost",
	[DEFECT_CORRUPTS] = "a bit of some bodies is another one",
	[DEFECT_WRONG_LENGTH] = "bodies of 8 bytes have 9",
	[DEFECT_BODY_OF_NOTHING] = "an empty packet has a body",
	[DEFECT_WRONG_PEER] = "packets are from the next peer",
	[DEFECT_FEW_SLOTS] = "the ring is full before all slots are used",
	[DEFECT_ROOM_TOO_HIGH] = "tx_room() says one too many",
	[DEFECT_WRONG_ERROR] = "too large is -EINVAL",
	[DEFECT_SENDS_CANCELLED] = "tx_cancel() sends",
	[DEFECT_LEAKS_CANCELLED] = "tx_cancel() does nothing",
	[DEFECT_SHORT_LIVED] = "a packet does not live as long as promised",
	[DEFECT_CANNOT_WAKE] = "arm() does nothing",
	[DEFECT_NOT_CLEARED] = "wake_clear() does nothing",
	[DEFECT_NOT_WOKEN] = "wake() does nothing",
	[DEFECT_UP_TWICE] = "UP comes twice",
	[DEFECT_NO_USER] = "UP forgets the user",
	[DEFECT_FAILED_MUTE] = "a failed connect() has no reason",
	[DEFECT_WRONG_QUEUE] = "UP is always at queue 0",
	[DEFECT_ATTACHES_ANYWHERE] = "attach() takes any peer",
	[DEFECT_ONE_QUEUE_MORE] = "queue() has one more",
	[DEFECT_STEERS_WRONG] = "all that is sent arrives at queue 0",
	[DEFECT_DROPS_NOTHING] = "what was detached can still be sent to",
	[DEFECT_OPENS_ANYTHING] = "a wrong number of queues is corrected",
	[DEFECT_REORDERS] = "a burst comes in reverse order",
	[DEFECT_REPEATS] = "some packets arrive twice",
	[DEFECT_LEAKS_RELEASED] = "release() does nothing",
	[DEFECT_NO_WORDS] = "UP has no words",
	[DEFECT_NO_DOWN] = "DOWN is not reported",
	[DEFECT_LEAKS_PEERS] = "drop() does nothing",
	[DEFECT_NAMES_PEER] = "packets name a peer",
	[DEFECT_COUNTS_NOTHING] = "counters stay 0",
	[DEFECT_ALWAYS_LATE] = "deadline() has always passed",
	[DEFECT_TEXT_UNENDED] = "address_text() fills all of the room",
	[DEFECT_REACHES_ANYTHING] = "reach() takes every address",
	[DEFECT_CONNECTS_TO_ANYTHING] = "connect() takes every address",
	[DEFECT_WORDS] = "UP has words",
	[DEFECT_REPORTS_GONE] = "the end of a peer is reported",
};

static enum defect defect;
static const struct nic_port_ops *sound; /* the driver below */

struct broken_queue {
	struct nic_queue base;
	struct nic_queue_ops ops;
	struct nic_queue *lower;
	unsigned got;
	struct nic_pkt again;
	bool repeat;
};

struct broken_port {
	struct nic_port base;
	struct nic_port *lower;
	unsigned queues_n;
	struct broken_queue queues[QUEUES_MAX];
	nic_event_fn *event;
	void *ctx;
};

/* ---- queues ---- */

static struct broken_queue *broken(struct nic_queue *q)
{
	return (struct broken_queue *)q;
}

static int broken_attach(struct nic_queue *q, uint32_t peer)
{
	int error = broken(q)->lower->ops->attach(broken(q)->lower, peer);
	return defect == DEFECT_ATTACHES_ANYWHERE ? 0 : error;
}

static void broken_detach(struct nic_queue *q, uint32_t peer)
{
	if (defect != DEFECT_DROPS_NOTHING)
		broken(q)->lower->ops->detach(broken(q)->lower, peer);
}

/* In memory that the peer can write, so that it can be written here. */
static void spoil(struct nic_pkt *pkt)
{
	((uint8_t *)(uintptr_t)pkt->body)[pkt->body_len / 2] ^= 4;
}

static void break_packet(struct broken_queue *q, struct nic_pkt *pkt)
{
	if (defect == DEFECT_CORRUPTS && q->got % 50 == 49 && pkt->body_len)
		spoil(pkt);
	if (defect == DEFECT_WRONG_LENGTH && pkt->body_len == 8)
		pkt->body_len = 9;
	if (defect == DEFECT_BODY_OF_NOTHING && pkt->body_len == 0)
		pkt->body = pkt->head;
	if (defect == DEFECT_WRONG_PEER)
		pkt->peer++;
	if (defect == DEFECT_NAMES_PEER)
		pkt->peer = 0;
	if (defect == DEFECT_SHORT_LIVED && pkt->cookie)
		q->lower->ops->release(q->lower, pkt->peer, pkt->cookie);
	else if (defect == DEFECT_SHORT_LIVED && pkt->body_len > 64)
		spoil(pkt);
}

static void reverse(struct nic_pkt *pkts, unsigned n)
{
	for (unsigned i = 0; i < n / 2; i++) {
		struct nic_pkt pkt = pkts[i];
		pkts[i] = pkts[n - 1 - i];
		pkts[n - 1 - i] = pkt;
	}
}

static unsigned broken_recv(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max)
{
	struct broken_queue *q = broken(nq);
	if (q->repeat) {
		q->repeat = false;
		pkts[0] = q->again;
		return 1;
	}
	unsigned n = q->lower->ops->recv(q->lower, pkts, max);
	for (unsigned i = 0; i < n; i++, q->got++)
		break_packet(q, &pkts[i]);
	if (defect == DEFECT_REORDERS)
		reverse(pkts, n);
	/* One that is still readable: the next recv() of the lower driver is to come. */
	if (defect == DEFECT_REPEATS && n && !pkts[n - 1].cookie && q->got % 7 == 6) {
		q->again = pkts[n - 1];
		q->repeat = true;
	}
	return defect == DEFECT_LOSES && q->got > 100 ? 0 : n;
}

static void broken_release(struct nic_queue *q, uint32_t peer, uint64_t cookie)
{
	if (defect != DEFECT_LEAKS_RELEASED)
		broken(q)->lower->ops->release(broken(q)->lower, peer, cookie);
}

static int broken_reserve(struct nic_queue *nq, uint32_t peer, uint64_t body_len, struct nic_tx *tx)
{
	struct nic_queue *lower = broken(nq)->lower;
	uint32_t room = lower->ops->tx_room(lower, peer);
	if (defect == DEFECT_FEW_SLOTS && room && room < 200)
		return -EAGAIN;
	int error = lower->ops->tx_reserve(lower, peer, body_len, tx);
	return defect == DEFECT_WRONG_ERROR && error == -EMSGSIZE ? -EINVAL : error;
}

static uint32_t broken_room(struct nic_queue *nq, uint32_t peer)
{
	struct nic_queue *lower = broken(nq)->lower;
	return lower->ops->tx_room(lower, peer) + (defect == DEFECT_ROOM_TOO_HIGH);
}

static uint64_t broken_bytes_max(struct nic_queue *nq, uint32_t peer)
{
	struct nic_queue *lower = broken(nq)->lower;
	return lower->ops->tx_bytes_max(lower, peer);
}

static int broken_commit(struct nic_queue *nq, struct nic_tx *tx)
{
	struct nic_queue *lower = broken(nq)->lower;
	return lower->ops->tx_commit(lower, tx);
}

static void broken_cancel(struct nic_queue *nq, struct nic_tx *tx)
{
	struct nic_queue *lower = broken(nq)->lower;
	if (defect == DEFECT_SENDS_CANCELLED)
		lower->ops->tx_commit(lower, tx);
	else if (defect != DEFECT_LEAKS_CANCELLED)
		lower->ops->tx_cancel(lower, tx);
}

static void broken_flush(struct nic_queue *nq)
{
	if (defect != DEFECT_NO_FLUSH)
		broken(nq)->lower->ops->flush(broken(nq)->lower);
}

static void broken_arm(struct nic_queue *nq)
{
	if (defect != DEFECT_CANNOT_WAKE)
		broken(nq)->lower->ops->arm(broken(nq)->lower);
}

static void broken_disarm(struct nic_queue *nq)
{
	broken(nq)->lower->ops->disarm(broken(nq)->lower);
}

static int broken_wake_fd(const struct nic_queue *nq)
{
	const struct nic_queue *lower = ((const struct broken_queue *)nq)->lower;
	return lower->ops->wake_fd(lower);
}

static void broken_wake_clear(struct nic_queue *nq)
{
	if (defect != DEFECT_NOT_CLEARED)
		broken(nq)->lower->ops->wake_clear(broken(nq)->lower);
}

static void broken_wake(struct nic_queue *nq)
{
	if (defect != DEFECT_NOT_WOKEN)
		broken(nq)->lower->ops->wake(broken(nq)->lower);
}

static uint64_t broken_deadline(const struct nic_queue *nq)
{
	const struct nic_queue *lower = ((const struct broken_queue *)nq)->lower;
	return defect == DEFECT_ALWAYS_LATE ? 1 : lower->ops->deadline(lower);
}

static const struct nic_queue_ops broken_queue_ops = {
	.attach = broken_attach,
	.detach = broken_detach,
	.recv = broken_recv,
	.release = broken_release,
	.tx_reserve = broken_reserve,
	.tx_room = broken_room,
	.tx_bytes_max = broken_bytes_max,
	.tx_commit = broken_commit,
	.tx_cancel = broken_cancel,
	.flush = broken_flush,
	.arm = broken_arm,
	.disarm = broken_disarm,
	.wake_fd = broken_wake_fd,
	.wake_clear = broken_wake_clear,
	.wake = broken_wake,
	.deadline = broken_deadline,
};

/* ---- ports ---- */

static struct nic_port_ops broken_port_ops;

static struct nic_port *below(const struct nic_port *port)
{
	return ((const struct broken_port *)port)->lower;
}

static int broken_open(const struct nic_config *config, struct nic_port **out, struct nic_err *err)
{
	struct nic_config c = *config;
	struct nic_port *lower;
	if (defect == DEFECT_OPENS_ANYTHING && (c.queues == 0 || c.queues > QUEUES_MAX))
		c.queues = 1;
	int error = sound->open(&c, &lower, err);
	if (error)
		return error;
	struct broken_port *p = calloc(1, sizeof *p);
	p->base.ops = &broken_port_ops;
	p->lower = lower;
	p->queues_n = c.queues;
	for (unsigned i = 0; i < c.queues; i++) {
		struct broken_queue *q = &p->queues[i];
		q->lower = sound->queue(lower, i);
		q->ops = broken_queue_ops;
		q->base.ops = &q->ops;
	}
	*out = &p->base;
	return 0;
}

static void broken_close(struct nic_port *port)
{
	sound->close(below(port));
	free(port);
}

static void broken_caps(const struct nic_port *port, struct nic_caps *out)
{
	sound->caps(below(port), out);
}

static void broken_address(const struct nic_port *port, struct nic_addr *out)
{
	sound->address(below(port), out);
}

static void broken_address_text(const struct nic_addr *addr, char *out, size_t cap)
{
	sound->address_text(addr, out, cap);
	if (defect == DEFECT_TEXT_UNENDED)
		memset(out + strnlen(out, cap), 'x', cap - strnlen(out, cap));
}

static int broken_reach(const struct nic_port *port, const struct nic_addr *addr, struct nic_err *err)
{
	return defect == DEFECT_REACHES_ANYTHING ? 0 : sound->reach(below(port), addr, err);
}

static void broken_stats(const struct nic_port *port, struct nic_stats *out)
{
	sound->stats(below(port), out);
	if (defect == DEFECT_COUNTS_NOTHING)
		memset(out, 0, sizeof *out);
}

static struct nic_queue *broken_queue_at(struct nic_port *port, unsigned i)
{
	struct broken_port *p = (struct broken_port *)port;
	if (i >= p->queues_n && defect == DEFECT_ONE_QUEUE_MORE)
		i = 0;
	return i < p->queues_n ? &p->queues[i].base : NULL;
}

static int broken_connect(struct nic_port *port, const struct nic_connect *c, struct nic_err *err)
{
	int error = sound->connect(below(port),
				   &(struct nic_connect){c->queue, c->addr,
							 defect == DEFECT_STEERS_WRONG ? 0 : c->remote_queue,
							 c->handshake, c->handshake_len, c->deadline, c->user},
				   err);
	if (defect == DEFECT_FAILED_MUTE)
		err->text[0] = 0;
	return defect == DEFECT_CONNECTS_TO_ANYTHING ? 0 : error;
}

static int broken_event(void *ctx, const struct nic_event *ev)
{
	struct broken_port *p = ctx;
	struct nic_event e = *ev;
	if (ev->type == NIC_EVENT_UP) {
		if (defect == DEFECT_NO_USER)
			e.user = NULL;
		if (defect == DEFECT_WRONG_QUEUE)
			e.queue = 0;
		if (defect == DEFECT_NO_WORDS)
			e.handshake_len = 0;
		if (defect == DEFECT_WORDS) {
			e.handshake = "words";
			e.handshake_len = 5;
		}
		if (defect == DEFECT_UP_TWICE)
			p->event(p->ctx, &e);
	}
	if (ev->type == NIC_EVENT_FAILED && defect == DEFECT_FAILED_MUTE)
		e.text = NULL;
	if (ev->type == NIC_EVENT_DOWN && defect == DEFECT_NO_DOWN)
		return 0;
	int answer = p->event(p->ctx, &e);
	if (ev->type == NIC_EVENT_UP && defect == DEFECT_REPORTS_GONE) {
		e.type = NIC_EVENT_DOWN;
		p->event(p->ctx, &e);
	}
	return answer;
}

static uint64_t broken_step(struct nic_port *port, uint64_t now, nic_event_fn *event, void *ctx)
{
	struct broken_port *p = (struct broken_port *)port;
	p->event = event;
	p->ctx = ctx;
	return sound->step(p->lower, now, broken_event, p);
}

static int broken_fd(const struct nic_port *port)
{
	return sound->fd(below(port));
}

static void broken_drop(struct nic_port *port, uint32_t peer)
{
	if (defect != DEFECT_LEAKS_PEERS)
		sound->drop(below(port), peer);
}

/* From now on `driver` is the one below it, with a defect. */
static void driver_break(enum defect which)
{
	defect = which;
	if (!sound)
		sound = driver;
	broken_port_ops = (struct nic_port_ops){
		.name = sound->name,
		.probe = sound->probe,
		.open = broken_open,
		.close = broken_close,
		.caps = broken_caps,
		.address = broken_address,
		.address_text = broken_address_text,
		.reach = broken_reach,
		.stats = broken_stats,
		.queue = broken_queue_at,
		.connect = broken_connect,
		.step = broken_step,
		.fd = broken_fd,
		.drop = broken_drop,
	};
	driver = &broken_port_ops;
}

#endif
