/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Life cycle of a peer: allocation, table of accepted peers, orders to the poller, set-up packets, events to the
 * engine. Control thread.
 */
#include "transport/connection.h"

#include "transport/auth.h"
#include "transport/rings.h"
#include "transport/setup.h"

#include <errno.h>
#include <stdlib.h>

/* ---- peers ---- */

/* Takes one more peer of the port's table, with its secret, from a slab. */
static bool peer_make(struct transport_port *p)
{
	uint32_t i = p->peers_n;
	struct transport_peer *made = &p->table[i];
	struct transport_secret **secrets = &p->secrets[i / TRANSPORT_SLAB_PEERS];
	if (!*secrets)
		*secrets = calloc(TRANSPORT_SLAB_PEERS, sizeof **secrets);
	if (!*secrets)
		return false;
	atomic_init(&made->due, 0);
	atomic_init(&made->news, 0);
	p->peers[p->peers_n++] = made;
	return true;
}

struct transport_peer *transport_peer_new(struct transport_port *p, unsigned queue, enum transport_state state)
{
	uint32_t i = p->peers_free;
	while (i < p->peers_n && p->peers[i]->state != TRANSPORT_FREE)
		i++;
	p->peers_free = i;
	if (i == FAR_TRANSPORT_PEERS_MAX)
		return NULL;
	struct transport_setup *setup = calloc(1, sizeof *setup);
	if (!setup)
		return NULL;
	if (i == p->peers_n && !peer_make(p)) {
		free(setup);
		return NULL;
	}
	struct transport_peer *peer = p->peers[i];
	memset(peer, 0, offsetof(struct transport_peer, due));
	memset((uint8_t *)peer + offsetof(struct transport_peer, why), 0,
	       sizeof *peer - offsetof(struct transport_peer, why));
	peer->token = (random_next(p->config.random) & ~(uint64_t)(FAR_TRANSPORT_PEERS_MAX - 1)) | i;
	if (peer->token == 0)
		peer->token = FAR_TRANSPORT_PEERS_MAX;
	peer->index = i;
	peer->state = state;
	peer->owner = (uint8_t)queue;
	peer->queue = peer->via = p->queues[queue];
	peer->lower_peer = peer->address = peer->address_old = NIC_PEER_NONE;
	peer->setup = setup;
	memset(transport_secret_of(peer), 0, sizeof(struct transport_secret));
	setup->primary.peer = peer;
	setup->reply_kind = WIRE_REJECT;
	setup->named = p->id;
	setup->deadline = setup->repeat_at = UINT64_MAX;
	setup->repeat_ns = FAR_TRANSPORT_CONNECT_NS;
	setup->next = p->setups;
	if (p->setups)
		p->setups->prev = setup;
	p->setups = setup;
	return peer;
}

static void setup_free(struct transport_port *p, struct transport_peer *peer)
{
	struct transport_setup *s = peer->setup;
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

void transport_setup_end(struct transport_port *p, struct transport_peer *peer)
{
	struct transport_setup *s = peer->setup;
	peer->settled = true;
	if (!s)
		return;
	s->deadline = s->repeat_at = UINT64_MAX;
	/* The poller may still send its last packet, and the driver below may still use it. */
	if (!peer->lower_pending && !atomic_load_explicit(&peer->setup_full, memory_order_acquire)) {
		setup_free(p, peer);
	} else {
		s->deadline = 0;
		transport_step_by(p, p->now + FAR_TRANSPORT_CONNECT_NS);
	}
}

/* ---- accepted peers: a hash table with linear probing ---- */

static uint32_t accepted_at(uint64_t id, uint64_t token)
{
	return (uint32_t)((id ^ token) * UINT64_C(0x9e3779b97f4a7c15) >> 32) % (2 * FAR_TRANSPORT_PEERS_MAX);
}

static uint32_t accepted_next(uint32_t at)
{
	return (at + 1) % (2 * FAR_TRANSPORT_PEERS_MAX);
}

struct transport_peer *transport_accepted_find(const struct transport_port *p, uint64_t id, uint64_t token)
{
	for (uint32_t at = accepted_at(id, token); p->accepted[at]; at = accepted_next(at)) {
		struct transport_peer *peer = p->peers[p->accepted[at] - 1];
		if (peer->remote_token == token && peer->remote_id == id)
			return peer;
	}
	return NULL;
}

void transport_accepted_add(struct transport_port *p, struct transport_peer *peer)
{
	uint32_t at = accepted_at(peer->remote_id, peer->remote_token);
	while (p->accepted[at])
		at = accepted_next(at);
	p->accepted[at] = peer->index + 1;
	peer->listed = true;
}

/* Moves entries behind it up that are not at their home index, so that no search ends before them. */
static void accepted_remove(struct transport_port *p, const struct transport_peer *peer)
{
	uint32_t at = accepted_at(peer->remote_id, peer->remote_token), n = 2 * FAR_TRANSPORT_PEERS_MAX;
	while (p->accepted[at] != peer->index + 1)
		at = accepted_next(at);
	for (uint32_t next = accepted_next(at); p->accepted[next]; next = accepted_next(next)) {
		const struct transport_peer *other = p->peers[p->accepted[next] - 1];
		uint32_t home = accepted_at(other->remote_id, other->remote_token);
		if ((next + n - home) % n < (next + n - at) % n)
			continue;
		p->accepted[at] = p->accepted[next];
		at = next;
	}
	p->accepted[at] = 0;
}

struct transport_peer *transport_peer_named(const struct transport_port *p, const struct wire_control *h)
{
	uint64_t token = le64_get(h->token);
	uint32_t i = TRANSPORT_INDEX(token);
	struct transport_peer *peer = i < p->peers_n ? p->peers[i] : NULL;
	return peer && peer->state != TRANSPORT_FREE && peer->token == token && le64_get(h->incarnation) == p->id
		       ? peer
		       : NULL;
}

/* The bit of the set is added last and taken first: pairs with order_serve() in queue.c. */
void transport_order_post(struct transport_peer *peer, uint32_t due)
{
	struct transport_queue *q = peer->queue;
	atomic_fetch_or_explicit(&peer->due, due, memory_order_release);
	transport_peer_set_add(&q->orders, peer->index);
	q->ops->wake(q->lower);
}

static void uncount(struct transport_port *p, struct transport_peer *peer)
{
	p->half_open_n -= peer->half_open;
	p->stateless_n -= peer->stateless;
	peer->half_open = peer->stateless = false;
}

void transport_peer_free(struct transport_port *p, struct transport_peer *peer)
{
	if (peer->listed)
		accepted_remove(p, peer);
	uncount(p, peer);
	transport_rings_unreserve(peer->queue, peer);
	setup_free(p, peer);
	auth_erase(&transport_secret_of(peer)->key, sizeof(struct auth_key));
	free(peer->paths_made);
	peer->paths_made = NULL;
	peer->state = TRANSPORT_FREE;
	if (peer->index < p->peers_free)
		p->peers_free = peer->index;
}

int transport_address_make(struct transport_port *p, struct transport_peer *peer, uint64_t deadline,
			   struct nic_err *err)
{
	struct transport_setup *s = peer->setup;
	peer->lower_pending = true;
	s->flows_tried++;
	int error = p->lower->ops->connect(p->lower,
					   &(struct nic_connect){peer->owner, &s->addr,
								 NIC_ROUTE(peer->remote_queue, s->flow), NULL, 0,
								 deadline, &s->primary},
					   err);
	if (error)
		peer->lower_pending = false;
	return error;
}

void transport_address_drop(struct transport_port *p, uint32_t *handle)
{
	if (*handle != NIC_PEER_NONE)
		p->lower->ops->drop(p->lower, *handle);
	*handle = NIC_PEER_NONE;
}

void transport_peer_release(struct transport_port *p, struct transport_peer *peer)
{
	if (!peer->closed || peer->lower_pending || transport_paths_pending(peer))
		return;
	transport_paths_drop(peer);
	transport_address_drop(p, &peer->address_old);
	transport_address_drop(p, &peer->address);
	transport_peer_free(p, peer);
}

/* While the entry exists, it rejects late copies of the CONNECT. When it is reused, cookie_floor invalidates their
 * cookies and all older ones. */
void transport_refused_keep(struct transport_port *p, const struct transport_peer *peer, int error)
{
	uint32_t at = p->refused_at++ % FAR_TRANSPORT_REFUSED_KEPT;
	if (p->refused[at].issued > p->cookie_floor)
		p->cookie_floor = p->refused[at].issued;
	p->refused[at].id = peer->remote_id;
	p->refused[at].token = peer->remote_token;
	p->refused[at].issued = transport_secret_of(peer)->issued;
	p->refused[at].error = error;
}

void transport_peer_end(struct transport_port *p, struct transport_peer *peer)
{
	if (peer->state == TRANSPORT_CLOSING)
		return;
	if (peer->accepted && (peer->state == TRANSPORT_UP || peer->state == TRANSPORT_DOWN))
		transport_refused_keep(p, peer, -ECONNRESET);
	uncount(p, peer);
	if (peer->setup)
		peer->setup->deadline = peer->setup->repeat_at = UINT64_MAX;
	peer->state = TRANSPORT_CLOSING;
	peer->closed = peer->address == NIC_PEER_NONE && !peer->loop;
	if (!peer->closed)
		transport_order_post(peer, TRANSPORT_ORDER_CLOSE);
	transport_peer_release(p, peer);
}

void transport_peer_kill(struct transport_peer *peer, int error)
{
	atomic_store_explicit(&peer->dead_why, (int16_t)error, memory_order_relaxed);
	transport_order_post(peer, TRANSPORT_ORDER_DEAD);
}

void transport_step_by(struct transport_port *p, uint64_t at)
{
	if (at < p->next_at)
		p->next_at = at;
}

/* ---- packets of the set-up ---- */

/* Returns true if the poller has sent the packet before. */
static bool setup_begin(struct transport_peer *peer)
{
	return !atomic_load_explicit(&peer->setup_full, memory_order_acquire); /* pairs with peer_setup() */
}

static void setup_post(struct transport_peer *peer, uint32_t len)
{
	peer->setup->packet_len = len;
	atomic_store_explicit(&peer->setup_full, true, memory_order_release);
	transport_order_post(peer, TRANSPORT_ORDER_SETUP);
}

void transport_post_handshake(struct transport_peer *peer, enum wire_kind kind)
{
	struct transport_setup *s = peer->setup;
	const struct transport_queue *q = peer->queue;
	/* While the address handle of the next flow is made, a packet that names that flow would leave by the one
	 * before and arrive at the wrong queue, and WRONG_QUEUE would discard a flow that was never tried. */
	if (!s || peer->lower_pending || !setup_begin(peer))
		return;
	struct transport_handshake w = {.wanted_queue = s->wanted_queue,
					.flow = s->flow,
					.issued = s->proofs.issued,
					.payload = s->payload,
					.payload_len = s->payload_len,
					.nonce = s->proofs.nonce,
					.cookie = s->proofs.cookie,
					.proof = s->proofs.proof,
					.public = s->proofs.public};
	uint32_t len = transport_handshake_write(s->packet, peer, q, kind, &w);
	transport_tag_write(transport_key(q->port), s->packet, len, q->port->id, transport_secret_of(peer)->to, q->crc);
	setup_post(peer, len);
}

void transport_post_reject(struct transport_peer *peer, enum wire_kind kind, int error, uint32_t flow)
{
	struct transport_setup *s = peer->setup;
	const struct transport_queue *q = peer->queue;
	if (!s || !setup_begin(peer))
		return;
	struct transport_reject no = {.error = error, .flow = flow, .nonce = s->proofs.nonce};
	uint32_t len = transport_reject_write(s->packet, kind, peer->remote_id, peer->remote_token, &no);
	transport_tag_write(transport_key(q->port), s->packet, len, s->named, transport_secret_of(peer)->to, q->crc);
	setup_post(peer, len);
}

void transport_setup_repeat(struct transport_port *p, struct transport_peer *peer, uint64_t now)
{
	struct transport_setup *s = peer->setup;
	transport_post_handshake(peer, peer->accepted ? WIRE_ACCEPT : WIRE_CONNECT);
	s->sent_n++;
	s->repeat_at = now + s->repeat_ns;
	s->repeat_ns += s->repeat_ns / 2;
	if (s->repeat_ns > FAR_TRANSPORT_CONNECT_NS_MAX)
		s->repeat_ns = FAR_TRANSPORT_CONNECT_NS_MAX;
	transport_step_by(p, s->repeat_at);
}

void transport_flow_next(struct transport_port *p, struct transport_peer *peer, uint32_t flow, uint64_t now)
{
	struct nic_err err = {""};
	/* It is about an earlier flow, or the next one is being made. */
	struct transport_setup *s = peer->setup;
	if (!s || flow != s->flow || peer->lower_pending || peer->address_old != NIC_PEER_NONE)
		return;
	int error = -EHOSTUNREACH;
	if (s->flows_tried < FAR_TRANSPORT_FLOWS_MAX) {
		s->flow++;
		error = transport_address_make(p, peer, now + FAR_TRANSPORT_HALF_OPEN_NS, &err);
	}
	if (!error)
		return;
	if (peer->state == TRANSPORT_CONNECTING)
		transport_connect_failed(p, peer, error);
	else
		transport_peer_kill(peer, error);
}

/* ---- events ---- */

void transport_event_failed(struct transport_port *p, struct transport_peer *peer, int error, const char *text)
{
	struct nic_event ev = {
		.type = NIC_EVENT_FAILED, .peer = NIC_PEER_NONE, .user = peer->user, .error = error, .text = text};
	transport_peer_end(p, peer);
	p->event(p->ctx, &ev);
}

void transport_connect_failed(struct transport_port *p, struct transport_peer *peer, int error)
{
	char text[2 * NIC_TEXT_BYTES_MAX], at[160];
	struct nic_err remark = {""}; /* of the driver below: a firewall, an interface that is down */
	const struct transport_setup *s = peer->setup;
	p->lower->ops->address_text(&s->addr, at, sizeof at);
	if (error == -ESTALE)
		snprintf(text, sizeof text,
			 "%s: another worker listens at %s now: the one that published this address has ended",
			 p->ops.name, at);
	else if (error == -ECHRNG)
		snprintf(text, sizeof text, "%s: connect request rejected by %s: it has no queue %u", p->ops.name, at,
			 s->wanted_queue);
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
			 s->flows_tried, at, s->wanted_queue);
	else
		snprintf(text, sizeof text, "%s: connect request rejected by %s: %s", p->ops.name, at,
			 strerror(-error));
	transport_event_failed(p, peer, error, text);
}

void transport_event_up(struct transport_port *p, struct transport_peer *peer)
{
	struct nic_event ev = {.type = NIC_EVENT_UP,
			       .peer = peer->index,
			       .queue = peer->owner,
			       .user = peer->user,
			       .handshake = peer->setup->handshake,
			       .handshake_len = peer->setup->handshake_len};
	uncount(p, peer);
	peer->state = TRANSPORT_UP;
	p->event(p->ctx, &ev);
}

void transport_event_migrated(struct transport_port *p, struct transport_peer *peer)
{
	if (p->migrated)
		p->migrated(p->migrated_ctx, peer->index);
}

void transport_event_down(struct transport_port *p, struct transport_peer *peer, int error)
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
	transport_setup_end(p, peer);
	peer->state = TRANSPORT_DOWN;
	p->event(p->ctx, &ev);
}
