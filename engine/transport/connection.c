/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Life cycle of a peer: allocation, table of accepted peers, orders to the poller, set-up packets, events to the
 * engine. Control thread.
 */
#include "transport/port.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- peers ---- */

/* Allocates one more peer: from a slab, with its secret. */
static bool peer_make(struct link_port *p)
{
	uint32_t i = p->peers_n, in = i % LINK_SLAB_PEERS;
	struct link_peer *made =
		in ? p->peers[i - 1] + 1 : aligned_alloc(_Alignof(struct link_peer), LINK_SLAB_PEERS * sizeof *made);
	if (!made)
		return false;
	struct link_secret **secrets = &p->secrets[i / LINK_SLAB_PEERS];
	if (!*secrets)
		*secrets = calloc(LINK_SLAB_PEERS, sizeof **secrets);
	if (!*secrets) {
		if (!in)
			free(made);
		return false;
	}
	atomic_init(&made->due, 0);
	atomic_init(&made->news, 0);
	p->peers[p->peers_n++] = made;
	return true;
}

struct link_peer *link_peer_new(struct link_port *p, unsigned queue, enum link_state state)
{
	uint32_t i = p->peers_free;
	while (i < p->peers_n && p->peers[i]->state != LINK_FREE)
		i++;
	p->peers_free = i;
	if (i == FAR_LINK_PEERS_MAX)
		return NULL;
	struct link_setup *setup = calloc(1, sizeof *setup);
	if (!setup)
		return NULL;
	if (i == p->peers_n && !peer_make(p)) {
		free(setup);
		return NULL;
	}
	struct link_peer *peer = p->peers[i];
	memset(peer, 0, offsetof(struct link_peer, due));
	memset((uint8_t *)peer + offsetof(struct link_peer, why), 0, sizeof *peer - offsetof(struct link_peer, why));
	peer->token = (random_next(p->config.random) & ~(uint64_t)(FAR_LINK_PEERS_MAX - 1)) | i;
	if (peer->token == 0)
		peer->token = FAR_LINK_PEERS_MAX;
	peer->index = i;
	peer->state = state;
	peer->owner = (uint8_t)queue;
	peer->queue = peer->via = p->queues[queue];
	peer->lower_peer = peer->address = peer->way_old = NIC_PEER_NONE;
	peer->setup = setup;
	memset(link_secret_of(peer), 0, sizeof(struct link_secret));
	setup->primary.peer = peer;
	setup->reply_kind = WIRE_REFUSED;
	setup->named = p->id;
	setup->deadline = setup->repeat_at = UINT64_MAX;
	setup->repeat_ns = FAR_LINK_HELLO_NS;
	setup->next = p->setups;
	if (p->setups)
		p->setups->prev = setup;
	p->setups = setup;
	return peer;
}

static void setup_free(struct link_port *p, struct link_peer *peer)
{
	struct link_setup *s = peer->setup;
	if (!s)
		return;
	*(s->prev ? &s->prev->next : &p->setups) = s->next;
	if (s->next)
		s->next->prev = s->prev;
	if (p->setup_at == s)
		p->setup_at = s->next;
	peer->setup = NULL;
	auth_erase(&s->pair, sizeof s->pair);
	free(s);
}

void link_setup_end(struct link_port *p, struct link_peer *peer)
{
	struct link_setup *s = peer->setup;
	peer->settled = true;
	if (!s)
		return;
	s->deadline = s->repeat_at = UINT64_MAX;
	/* The poller may still send its last packet, and the driver below may still use it. */
	if (!peer->lower_pending && !atomic_load_explicit(&peer->setup_full, memory_order_acquire)) {
		setup_free(p, peer);
	} else {
		s->deadline = 0;
		link_step_soon(p, p->now + FAR_LINK_HELLO_NS);
	}
}

/* ---- accepted peers: a hash table with linear probing ---- */

static uint32_t accepted_at(uint64_t id, uint64_t token)
{
	return (uint32_t)((id ^ token) * UINT64_C(0x9e3779b97f4a7c15) >> 32) % (2 * FAR_LINK_PEERS_MAX);
}

static uint32_t accepted_next(uint32_t at)
{
	return (at + 1) % (2 * FAR_LINK_PEERS_MAX);
}

struct link_peer *link_accepted_find(const struct link_port *p, uint64_t id, uint64_t token)
{
	for (uint32_t at = accepted_at(id, token); p->accepted[at]; at = accepted_next(at)) {
		struct link_peer *peer = p->peers[p->accepted[at] - 1];
		if (peer->token_there == token && peer->id_there == id)
			return peer;
	}
	return NULL;
}

void link_accepted_add(struct link_port *p, struct link_peer *peer)
{
	uint32_t at = accepted_at(peer->id_there, peer->token_there);
	while (p->accepted[at])
		at = accepted_next(at);
	p->accepted[at] = peer->index + 1;
	peer->listed = true;
}

/* Moves entries behind it up that are not at their home index, so that no search ends before them. */
static void accepted_remove(struct link_port *p, const struct link_peer *peer)
{
	uint32_t at = accepted_at(peer->id_there, peer->token_there), n = 2 * FAR_LINK_PEERS_MAX;
	while (p->accepted[at] != peer->index + 1)
		at = accepted_next(at);
	for (uint32_t next = accepted_next(at); p->accepted[next]; next = accepted_next(next)) {
		const struct link_peer *other = p->peers[p->accepted[next] - 1];
		uint32_t home = accepted_at(other->id_there, other->token_there);
		if ((next + n - home) % n < (next + n - at) % n)
			continue;
		p->accepted[at] = p->accepted[next];
		at = next;
	}
	p->accepted[at] = 0;
}

/* The bit of the set is added last and taken first: pairs with order_serve() in queue.c. */
void link_order(struct link_peer *peer, uint32_t due)
{
	struct link_queue *q = peer->queue;
	atomic_fetch_or_explicit(&peer->due, due, memory_order_release);
	link_board_set(&q->orders, peer->index);
	q->ops->wake(q->lower);
}

static void uncount(struct link_port *p, struct link_peer *peer)
{
	p->half_open_n -= peer->half_open;
	p->strangers_n -= peer->stranger;
	peer->half_open = peer->stranger = false;
}

void link_peer_free(struct link_port *p, struct link_peer *peer)
{
	if (peer->listed)
		accepted_remove(p, peer);
	uncount(p, peer);
	link_rings_unreserve(peer->queue, peer);
	setup_free(p, peer);
	auth_erase(&link_secret_of(peer)->key, sizeof(struct auth_key));
	free(peer->paths_made);
	peer->paths_made = NULL;
	peer->state = LINK_FREE;
	if (peer->index < p->peers_free)
		p->peers_free = peer->index;
}

void link_way_drop(struct link_port *p, uint32_t *way)
{
	if (*way != NIC_PEER_NONE)
		p->lower->ops->drop(p->lower, *way);
	*way = NIC_PEER_NONE;
}

void link_peer_let_go(struct link_port *p, struct link_peer *peer)
{
	if (!peer->closed || peer->lower_pending || link_sides_pending(peer))
		return;
	link_sides_drop(peer);
	link_way_drop(p, &peer->way_old);
	link_way_drop(p, &peer->address);
	link_peer_free(p, peer);
}

/* While the entry exists, it rejects late copies of the HELLO. When it is reused, cookie_floor invalidates their
 * cookies and all older ones. */
void link_remember(struct link_port *p, const struct link_peer *peer, int error)
{
	uint32_t at = p->refused_at++ % FAR_LINK_REFUSED_KEPT;
	if (p->refused[at].issued > p->cookie_floor)
		p->cookie_floor = p->refused[at].issued;
	p->refused[at].id = peer->id_there;
	p->refused[at].token = peer->token_there;
	p->refused[at].issued = link_secret_of(peer)->issued;
	p->refused[at].error = error;
}

void link_peer_end(struct link_port *p, struct link_peer *peer)
{
	if (peer->state == LINK_CLOSING)
		return;
	if (peer->accepted && (peer->state == LINK_UP || peer->state == LINK_DOWN))
		link_remember(p, peer, -ECONNRESET);
	uncount(p, peer);
	if (peer->setup)
		peer->setup->deadline = peer->setup->repeat_at = UINT64_MAX;
	peer->state = LINK_CLOSING;
	peer->closed = peer->address == NIC_PEER_NONE && !peer->loop;
	if (!peer->closed)
		link_order(peer, LINK_DUE_CLOSE);
	link_peer_let_go(p, peer);
}

void link_peer_kill(struct link_peer *peer, int error)
{
	atomic_store_explicit(&peer->dead_why, (int16_t)error, memory_order_relaxed);
	link_order(peer, LINK_DUE_DEAD);
}

void link_step_soon(struct link_port *p, uint64_t at)
{
	if (at < p->next_at)
		p->next_at = at;
}

/* ---- packets of the set-up ---- */

/* Returns true if the poller has sent the packet before. */
static bool setup_begin(struct link_peer *peer)
{
	return !atomic_load_explicit(&peer->setup_full, memory_order_acquire); /* pairs with peer_setup() */
}

static void setup_post(struct link_peer *peer, uint32_t len)
{
	peer->setup->packet_len = len;
	atomic_store_explicit(&peer->setup_full, true, memory_order_release);
	link_order(peer, LINK_DUE_SETUP);
}

void link_say_words(struct link_peer *peer, enum wire_kind kind)
{
	struct link_setup *s = peer->setup;
	const struct link_queue *q = peer->queue;
	/* While the address handle of the next flow is made, a packet that names that flow would leave by the one
	 * before and arrive at the wrong queue, and WRONG_QUEUE would discard a flow that was never tried. */
	if (!s || peer->lower_pending || !setup_begin(peer))
		return;
	uint32_t len =
		link_words_write(s->packet, peer, q, kind, s->want, s->flow, s->payload, s->words_len, &s->proofs);
	link_seal(link_key(q->port), s->packet, len, q->port->id, link_secret_of(peer)->to, q->crc);
	setup_post(peer, len);
}

void link_say_no(struct link_peer *peer, enum wire_kind kind, int error, uint32_t path)
{
	struct link_setup *s = peer->setup;
	const struct link_queue *q = peer->queue;
	if (!s || !setup_begin(peer))
		return;
	uint32_t len = link_no_write(s->packet, kind, peer->id_there, peer->token_there, error, path, s->proofs.nonce);
	link_seal(link_key(q->port), s->packet, len, s->named, link_secret_of(peer)->to, q->crc);
	setup_post(peer, len);
}

void link_repeat(struct link_port *p, struct link_peer *peer, uint64_t now)
{
	struct link_setup *s = peer->setup;
	link_say_words(peer, peer->accepted ? WIRE_WELCOME : WIRE_HELLO);
	s->sent_n++;
	s->repeat_at = now + s->repeat_ns;
	s->repeat_ns += s->repeat_ns / 2;
	if (s->repeat_ns > FAR_LINK_HELLO_NS_MAX)
		s->repeat_ns = FAR_LINK_HELLO_NS_MAX;
	link_step_soon(p, s->repeat_at);
}

/* ---- events ---- */

void link_report_failed(struct link_port *p, struct link_peer *peer, int error, const char *text)
{
	struct nic_event ev = {
		.type = NIC_EVENT_FAILED, .peer = NIC_PEER_NONE, .user = peer->user, .error = error, .text = text};
	link_peer_end(p, peer);
	p->event(p->ctx, &ev);
}

void link_failed(struct link_port *p, struct link_peer *peer, int error)
{
	char text[2 * NIC_TEXT_BYTES_MAX], at[160];
	struct nic_err remark = {""}; /* of the driver below: a firewall, an interface that is down */
	const struct link_setup *s = peer->setup;
	p->lower->ops->address_text(&s->addr, at, sizeof at);
	if (error == -ESTALE)
		snprintf(text, sizeof text,
			 "%s: another worker listens at %s now: the one that published this address has ended",
			 p->ops.name, at);
	else if (error == -ECHRNG)
		snprintf(text, sizeof text, "%s: connect request rejected by %s: it has no queue %u", p->ops.name, at,
			 s->want);
	else if (error == -ETIMEDOUT && p->lower->ops->reach(p->lower, &s->addr, &remark) == 0 && remark.text[0])
		snprintf(text, sizeof text, "%s: no answer from %s to %u packets: %s", p->ops.name, at, s->sent_n,
			 remark.text);
	else if (error == -ETIMEDOUT)
		snprintf(text, sizeof text,
			 "%s: no answer from %s to %u packets; check that the worker is alive, %sand that the path to "
			 "it is open in both directions (firewall, address translation)",
			 p->ops.name, at, s->sent_n, p->config.key ? "that it has the same key, " : "");
	else if (error == -EHOSTUNREACH)
		snprintf(text, sizeof text, "%s: none of %u flows to %s reaches its queue %u", p->ops.name,
			 s->flows_tried, at, s->want);
	else
		snprintf(text, sizeof text, "%s: connect request rejected by %s: %s", p->ops.name, at,
			 strerror(-error));
	link_report_failed(p, peer, error, text);
}

void link_report_up(struct link_port *p, struct link_peer *peer)
{
	struct nic_event ev = {.type = NIC_EVENT_UP,
			       .peer = peer->index,
			       .queue = peer->owner,
			       .user = peer->user,
			       .hello = peer->setup->hello,
			       .hello_len = peer->setup->hello_len};
	uncount(p, peer);
	peer->state = LINK_UP;
	p->event(p->ctx, &ev);
}

void link_report_moved(struct link_port *p, struct link_peer *peer)
{
	if (p->migrated)
		p->migrated(p->migrated_ctx, peer->index);
}

void link_report_down(struct link_port *p, struct link_peer *peer, int error)
{
	char text[NIC_TEXT_BYTES_MAX];
	const char *why = error == -ECONNRESET  ? "the peer has closed the connection"
			  : error == -ESTALE    ? "the peer has no such connection any more"
			  : error == -ETIMEDOUT ? "nothing was received from the peer for too long"
			  : error == -EMSGSIZE  ? "the MTU of the path to the peer has become too small; raise it"
						: "the peer violated the protocol";
	snprintf(text, sizeof text, "%s: %s", p->ops.name, why);
	struct nic_event ev = {.type = NIC_EVENT_DOWN,
			       .peer = peer->index,
			       .queue = peer->owner,
			       .user = peer->user,
			       .error = error,
			       .text = text};
	link_setup_end(p, peer);
	peer->state = LINK_DOWN;
	p->event(p->ctx, &ev);
}
