/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The connecting side of the handshake. Control thread.
 *
 * It makes an address handle and repeats CONNECT until it is answered: CHALLENGE brings the cookie of the next one,
 * ACCEPT ends the handshake, REJECT (setup.c) ends the attempt. An ACCEPT that arrives at another queue than the one in
 * it is answered WRONG_QUEUE.
 */
#include "transport/connect.h"

#include "transport/accept.h"
#include "transport/auth.h"
#include "transport/connection.h"
#include "transport/rings.h"
#include "transport/setup.h"

#include <errno.h>

/* Nonce and keys of this connect request. */
static void request_begin(struct transport_port *p, struct transport_peer *peer)
{
	struct transport_setup *s = peer->setup;
	transport_key_update(p);
	auth_random(s->proofs.nonce, sizeof s->proofs.nonce, p->config.random);
	transport_auth_address(p, s->addr.blob, s->addr.len, transport_secret_of(peer)->to);
	if (!p->config.key)
		return;
	auth_pair_make(&s->pair, p->config.random);
	memcpy(s->proofs.public, s->pair.public, sizeof s->proofs.public);
}

int transport_connect(struct nic_port *port, const struct nic_connect *c, struct nic_err *err)
{
	struct transport_port *p = (struct transport_port *)port;
	struct nic_addr lower;
	uint64_t id;
	if (c->queue >= p->queues_n)
		return transport_error(err, -EINVAL, "%s: there is no queue %u; the port has %u", p->ops.name, c->queue,
				       p->queues_n);
	if (c->remote_queue >= FAR_TRANSPORT_QUEUES_MAX)
		return transport_error(err, -EINVAL, "%s: no port has a queue %u; [0, %u)", p->ops.name,
				       c->remote_queue, FAR_TRANSPORT_QUEUES_MAX);
	if (c->handshake_len > NIC_HANDSHAKE_BYTES_MAX)
		return transport_error(err, -EINVAL, "%s: handshake payload of %zu bytes; at most %u", p->ops.name,
				       c->handshake_len, NIC_HANDSHAKE_BYTES_MAX);
	if (!transport_addr_split(c->addr, &lower, &id) || id == 0 || strcmp(c->addr->driver, p->ops.name))
		return transport_error(err, -EINVAL, "%s: malformed address", p->ops.name);
	struct transport_peer *peer = transport_peer_new(p, c->queue, TRANSPORT_CONNECTING);
	if (!peer || !transport_rings_reserve(peer->queue, peer)) {
		if (peer)
			transport_peer_free(p, peer);
		return transport_error(err, peer ? -ENOMEM : -ENOSPC,
				       "%s: more than %u peers, or no memory for one more", p->ops.name,
				       FAR_TRANSPORT_PEERS_MAX);
	}
	struct transport_setup *s = peer->setup;
	s->addr = lower;
	s->wanted_queue = c->remote_queue;
	s->deadline = c->deadline;
	s->payload_len = (uint16_t)c->handshake_len;
	if (c->handshake_len)
		memcpy(s->payload, c->handshake, c->handshake_len);
	peer->remote_id = id;
	peer->remote_queue = (uint8_t)c->remote_queue;
	peer->user = c->user;
	request_begin(p, peer);
	transport_step_by(p, c->deadline);
	if (id == p->id && c->queue == c->remote_queue) {
		peer->loop = true;
		peer->state = TRANSPORT_LOOPBACK;
		s->handshake_len = s->payload_len;
		memcpy(s->handshake, s->payload, c->handshake_len);
		transport_order_post(peer, TRANSPORT_ORDER_OPEN | TRANSPORT_ORDER_START);
		transport_step_by(p, 0);
		transport_port_signal(p);
		return 0;
	}
	int error = 0;
	if (c->remote_queue >= TRANSPORT_ID_QUEUES(id)) { /* the peer has no such queue */
		s->refuse = -ECHRNG;
		s->deadline = 0;
		transport_step_by(p, 0);
		transport_port_signal(p);
	} else {
		error = transport_address_make(p, peer, c->deadline, err);
	}
	if (error)
		transport_peer_free(p, peer);
	return error;
}

/* A cookie that is not newer is a replay. */
void transport_receive_challenge(struct transport_port *p, const struct wire_control *h,
				 const struct transport_handshake *w, uint64_t now)
{
	struct transport_peer *peer = transport_peer_named(p, h);
	struct transport_setup *s = peer ? peer->setup : NULL;
	if (!s || peer->state != TRANSPORT_CONNECTING || w->id != peer->remote_id || w->issued <= s->proofs.issued ||
	    memcmp(w->nonce, s->proofs.nonce, sizeof s->proofs.nonce) != 0) {
		counter_bump(peer ? &p->repeated_n : &p->unknown_n);
		return;
	}
	s->proofs.issued = w->issued;
	memcpy(s->proofs.cookie, w->cookie, sizeof s->proofs.cookie);
	transport_setup_repeat(p, peer, now);
}

/* Derives the session key and checks the peer's proof of it. */
static bool accept_authentic(struct transport_port *p, struct transport_peer *peer, const struct transport_handshake *w)
{
	struct transport_setup *s = peer->setup;
	uint8_t confirm[AUTH_PROOF_BYTES];
	s->handshake_len = (uint16_t)w->payload_len;
	if (w->payload_len)
		memcpy(s->handshake, w->payload, w->payload_len);
	memcpy(s->remote_public, w->public, sizeof s->remote_public);
	return transport_session_begin(p, peer, confirm) && (!p->config.key || auth_equal(confirm, w->proof));
}

void transport_receive_accept(struct transport_port *p, unsigned queue, const struct wire_control *h,
			      const struct transport_handshake *w)
{
	struct transport_peer *peer = transport_peer_named(p, h);
	if (!peer || peer->state == TRANSPORT_CLOSING || w->id != peer->remote_id) {
		/* Our set-up has ended: the peer must not keep its connection. */
		transport_answer_stale(p, queue, w, WIRE_RESET, le64_get(h->incarnation));
		return;
	}
	if (peer->state == TRANSPORT_UP && !peer->accepted && queue == peer->owner)
		transport_order_post(peer, TRANSPORT_ORDER_ACK);
	if (peer->state != TRANSPORT_CONNECTING) {
		counter_bump(&p->repeated_n);
		return;
	}
	if (memcmp(w->nonce, peer->setup->proofs.nonce, sizeof peer->setup->proofs.nonce) != 0) {
		counter_bump(&p->refused_n);
		return;
	}
	peer->remote_token = w->token;
	if (queue != peer->owner) {
		transport_post_reject(peer, WIRE_WRONG_QUEUE, -EXDEV, w->flow);
		return;
	}
	struct transport_setup *s = peer->setup;
	if (!accept_authentic(p, peer, w)) {
		counter_bump(&p->refused_n);
		return;
	}
	peer->remote_packet_max = w->packet_max;
	transport_features_read(peer, h);
	s->repeat_at = s->deadline = UINT64_MAX;
	peer->settled = true;
	transport_features_agree(peer);
	transport_order_post(peer, TRANSPORT_ORDER_START | TRANSPORT_ORDER_ACK);
	transport_event_up(p, peer);
	if (peer->settled)
		transport_setup_end(p, peer);
}
