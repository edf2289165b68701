/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The accepting side of the handshake, and answers to packets of no connection. Control thread.
 *
 * The first CONNECT is answered CHALLENGE; the next one must carry the cookie of that. Then this side makes an address
 * handle to the address in CONNECT, reports NIC_EVENT_CONNECT, and answers ACCEPT or REJECT. It repeats ACCEPT until a
 * packet with its token arrives; until then its messages wait. A CONNECT that arrives at another queue than the one in
 * it is answered WRONG_QUEUE, and the sender tries the next flow.
 *
 * With a key nothing is sent to a sender that does not prove it (auth.c). A CONNECT without a cookie takes one of
 * FAR_TRANSPORT_STATELESS_MAX entries until its one answer is sent; without a free entry it is not answered. So
 * replayed packets of a member cause packets to that member only, and never more bytes than arrived. A sender that
 * returns a cookie receives at the address that it has published; all of them together have at most
 * FAR_TRANSPORT_HALF_OPEN_MAX undecided set-ups.
 */
#include "transport/accept.h"

#include "transport/auth.h"
#include "transport/connection.h"
#include "transport/rings.h"
#include "transport/setup.h"

#include <errno.h>

static int refused_before(const struct transport_port *p, uint64_t id, uint64_t token)
{
	for (unsigned i = 0; i < FAR_TRANSPORT_REFUSED_KEPT; i++)
		if (p->refused[i].token == token && p->refused[i].id == id)
			return p->refused[i].error;
	return 0;
}

void transport_refuse(struct transport_port *p, struct transport_peer *peer, int error, uint64_t now)
{
	if (!peer->stateless && !refused_before(p, peer->remote_id, peer->remote_token))
		transport_refused_keep(p, peer, error);
	peer->state = TRANSPORT_REJECTING;
	peer->setup->refuse = error;
	peer->setup->deadline = now + FAR_TRANSPORT_HALF_OPEN_NS;
	if (peer->address == NIC_PEER_NONE)
		return;
	if (peer->setup->reply_kind == WIRE_CHALLENGE)
		transport_post_handshake(peer, WIRE_CHALLENGE);
	else
		transport_post_reject(peer, peer->setup->reply_kind, error, 0);
	/* Orders are served in this sequence: the packet leaves before the peer is closed. */
	transport_peer_end(p, peer);
}

void transport_decide(struct transport_port *p, struct transport_peer *peer, uint64_t now)
{
	struct transport_setup *s = peer->setup;
	size_t len = 0;
	struct nic_event ev = {.type = NIC_EVENT_CONNECT,
			       .peer = NIC_PEER_NONE,
			       .queue = peer->owner,
			       .handshake = s->handshake,
			       .handshake_len = s->handshake_len,
			       .reply = s->payload,
			       .reply_len = &len};
	int error = transport_rings_reserve(peer->queue, peer) ? p->event(p->ctx, &ev) : -ENOMEM;
	s->payload_len = (uint16_t)(len < NIC_HANDSHAKE_BYTES_MAX ? len : NIC_HANDSHAKE_BYTES_MAX);
	if (!error && p->config.key) {
		auth_pair_make(&s->pair, p->config.random);
		memcpy(s->proofs.public, s->pair.public, sizeof s->proofs.public);
		error = transport_session_begin(p, peer, s->proofs.proof) ? 0 : -EPROTO;
	}
	if (error) {
		transport_refuse(p, peer, error, now);
		return;
	}
	s->deadline = now + FAR_CONNECT_TIMEOUT_NS;
	transport_step_by(p, s->deadline);
	transport_features_agree(peer);
	transport_order_post(peer, TRANSPORT_ORDER_START);
	transport_setup_repeat(p, peer, now);
	transport_event_up(p, peer);
}

/* Takes a peer to answer a sender without a connection. NULL: too many. `member`: the sender has returned a cookie. */
static struct transport_peer *peer_answering(struct transport_port *p, unsigned queue, enum transport_state state,
					     const struct transport_handshake *w, bool member, uint64_t now)
{
	uint32_t most = member ? FAR_TRANSPORT_HALF_OPEN_MAX : FAR_TRANSPORT_STATELESS_MAX;
	bool room = (member ? p->half_open_n : p->stateless_n) < most;
	struct transport_peer *peer = room ? transport_peer_new(p, queue, state) : NULL;
	if (!peer) {
		counter_bump(&p->backlog_drops_n);
		return NULL;
	}
	*(member ? &peer->half_open : &peer->stateless) = true;
	p->half_open_n += peer->half_open;
	p->stateless_n += peer->stateless;
	peer->accepted = true;
	peer->remote_id = w->id;
	peer->remote_token = w->token;
	peer->remote_queue = (uint8_t)w->queue;
	peer->remote_packet_max = w->packet_max;
	if (member)
		transport_accepted_add(p, peer);
	struct transport_setup *s = peer->setup;
	s->handshake_len = (uint16_t)w->payload_len;
	if (w->payload_len)
		memcpy(s->handshake, w->payload, w->payload_len);
	snprintf(s->addr.driver, sizeof s->addr.driver, "%s", p->lower->ops->name);
	s->addr.len = (uint16_t)w->addr_len;
	memcpy(s->addr.blob, w->addr, w->addr_len);
	memcpy(s->proofs.nonce, w->nonce, sizeof s->proofs.nonce);
	memcpy(s->remote_public, w->public, sizeof s->remote_public);
	transport_auth_address(p, w->addr, w->addr_len, transport_secret_of(peer)->to);
	s->deadline = now + FAR_TRANSPORT_HALF_OPEN_NS;
	transport_step_by(p, s->deadline);
	return peer;
}

static void answer_begin(struct transport_port *p, struct transport_peer *peer)
{
	struct nic_err err = {""};
	if (transport_address_make(p, peer, peer->setup->deadline, &err))
		transport_peer_end(p, peer);
}

/* Takes a peer for one stateless answer: RESET, REJECT or CHALLENGE. */
static struct transport_peer *answer_once(struct transport_port *p, unsigned queue, const struct transport_handshake *w,
					  enum wire_kind answer)
{
	struct transport_peer *peer = peer_answering(p, queue, TRANSPORT_REJECTING, w, false, p->now);
	if (peer)
		peer->setup->reply_kind = (uint8_t)answer;
	return peer;
}

void transport_answer_stale(struct transport_port *p, unsigned queue, const struct transport_handshake *w,
			    enum wire_kind answer, uint64_t named)
{
	counter_bump(&p->refused_n);
	struct transport_peer *peer = answer_once(p, queue, w, answer);
	if (!peer)
		return;
	peer->setup->refuse = -ESTALE;
	peer->setup->named = named;
	answer_begin(p, peer);
}

/* Answers CHALLENGE. */
static void challenge(struct transport_port *p, unsigned queue, const struct transport_handshake *w, uint64_t now)
{
	struct transport_peer *peer = answer_once(p, queue, w, WIRE_CHALLENGE);
	if (!peer)
		return;
	struct transport_setup *s = peer->setup;
	s->proofs.issued = now;
	transport_cookie(p, w, now, s->proofs.cookie);
	s->handshake_len = 0;
	answer_begin(p, peer);
}

static void on_repeated_connect(struct transport_port *p, struct transport_peer *peer, unsigned queue, uint32_t flow,
				uint64_t now)
{
	counter_bump(&p->repeated_n);
	if (peer->state == TRANSPORT_UP && !peer->settled)
		transport_post_handshake(peer, WIRE_ACCEPT);
	if (peer->state != TRANSPORT_ACCEPTING || peer->address == NIC_PEER_NONE || peer->lower_pending)
		return;
	if (queue == peer->owner)
		transport_decide(p, peer, now);
	else
		transport_post_reject(peer, WIRE_WRONG_QUEUE, -EXDEV, flow);
}

void transport_receive_connect(struct transport_port *p, unsigned queue, const struct wire_control *h,
			       const struct transport_handshake *w, uint64_t now)
{
	if (le64_get(h->incarnation) != p->id) {
		transport_answer_stale(p, queue, w, WIRE_REJECT, le64_get(h->incarnation));
		return;
	}
	struct transport_peer *peer = transport_accepted_find(p, w->id, w->token);
	if (peer) {
		on_repeated_connect(p, peer, queue, w->flow, now);
		return;
	}
	int error = refused_before(p, w->id, w->token);
	if (error) {
		counter_bump(&p->refused_n);
	} else if (!transport_cookie_valid(p, w, now)) {
		challenge(p, queue, w, now);
		return;
	}
	if (!error && w->wanted_queue >= p->queues_n)
		error = -ECHRNG;
	unsigned owner = w->wanted_queue < p->queues_n ? w->wanted_queue : 0;
	peer = peer_answering(p, owner, error ? TRANSPORT_REJECTING : TRANSPORT_ACCEPTING, w, true, now);
	if (!peer)
		return; /* the sender repeats CONNECT */
	/* Now, not the time of its cookie: it may have newer ones. */
	transport_secret_of(peer)->issued = now;
	transport_features_read(peer, h);
	/* Used once the address handle exists. */
	peer->setup->refuse = error;
	peer->setup->request_queue = queue;
	peer->setup->request_flow = w->flow;
	answer_begin(p, peer);
}
