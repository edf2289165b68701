/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Set-up of connections. Control thread.
 *
 * The connecting side makes an address handle and repeats CONNECT until it is answered. The accepting side answers the
 * first one with CHALLENGE; the next CONNECT must carry the cookie of that. It then makes an address handle to the
 * address in CONNECT, reports NIC_EVENT_CONNECT, and answers ACCEPT or REJECT. It repeats ACCEPT until a packet with
 * its token arrives; until then its messages wait.
 *
 * If a hash of the flow selects the queue that receives a packet, either side answers WRONG_QUEUE to a CONNECT or
 * ACCEPT that arrives at another queue than the one in it, and the sender tries the next flow.
 *
 * With a key nothing is sent to a sender that does not prove it (auth.c). A CONNECT without a cookie takes one of
 * FAR_TRANSPORT_STATELESS_MAX entries until its one answer is sent; without a free entry it is not answered. So
 * replayed packets of a member cause packets to that member only, and never more bytes than arrived. A sender that
 * returns a cookie receives at the address that it has published; all of them together have at most
 * FAR_TRANSPORT_HALF_OPEN_MAX undecided set-ups.
 */
#include "transport/audit.h"

#include "base/must.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct transport_port *port_of(struct nic_port *port)
{
	return (struct transport_port *)port;
}

/* ---- address handles ---- */

static int address_make(struct transport_port *p, struct transport_peer *peer, uint64_t deadline, struct nic_err *err)
{
	struct transport_setup *s = peer->setup;
	peer->lower_pending = true;
	s->flows_tried++;
	int error = p->lower->ops->connect(p->lower, peer->owner, &s->addr, NIC_ROUTE(peer->remote_queue, s->flow),
					   NULL, 0, deadline, &s->primary, err);
	if (error)
		peer->lower_pending = false;
	return error;
}

/* WRONG_QUEUE arrived: tries the next flow. */
static void flow_next(struct transport_port *p, struct transport_peer *peer, uint32_t path, uint64_t now)
{
	struct nic_err err = {""};
	/* It is about an earlier flow, or the next one is being made. */
	struct transport_setup *s = peer->setup;
	if (!s || path != s->flow || peer->lower_pending || peer->address_old != NIC_PEER_NONE)
		return;
	int error = -EHOSTUNREACH;
	if (s->flows_tried < FAR_TRANSPORT_FLOWS_MAX) {
		s->flow++;
		error = address_make(p, peer, now + FAR_TRANSPORT_HALF_OPEN_NS, &err);
	}
	if (!error)
		return;
	if (peer->state == TRANSPORT_CONNECTING)
		transport_connect_failed(p, peer, error);
	else
		transport_peer_kill(peer, error);
}

/* ---- connect ---- */

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

int transport_connect(struct nic_port *port, unsigned queue, const struct nic_addr *addr, unsigned remote_queue,
		      const void *handshake, size_t handshake_len, uint64_t deadline, void *user, struct nic_err *err)
{
	struct transport_port *p = port_of(port);
	struct nic_addr lower;
	uint64_t id;
	if (queue >= p->queues_n)
		return transport_error(err, -EINVAL, "%s: there is no queue %u; the port has %u", p->ops.name, queue,
				       p->queues_n);
	if (remote_queue >= FAR_TRANSPORT_QUEUES_MAX)
		return transport_error(err, -EINVAL, "%s: no port has a queue %u; [0, %u)", p->ops.name, remote_queue,
				       FAR_TRANSPORT_QUEUES_MAX);
	if (handshake_len > NIC_HANDSHAKE_BYTES_MAX)
		return transport_error(err, -EINVAL, "%s: handshake payload of %zu bytes; at most %u", p->ops.name,
				       handshake_len, NIC_HANDSHAKE_BYTES_MAX);
	if (!transport_addr_split(addr, &lower, &id) || id == 0 || strcmp(addr->driver, p->ops.name))
		return transport_error(err, -EINVAL, "%s: malformed address", p->ops.name);
	struct transport_peer *peer = transport_peer_new(p, queue, TRANSPORT_CONNECTING);
	if (!peer || !transport_rings_reserve(peer->queue, peer)) {
		if (peer)
			transport_peer_free(p, peer);
		return transport_error(err, peer ? -ENOMEM : -ENOSPC,
				       "%s: more than %u peers, or no memory for one more", p->ops.name,
				       FAR_TRANSPORT_PEERS_MAX);
	}
	struct transport_setup *s = peer->setup;
	s->addr = lower;
	s->want = remote_queue;
	s->deadline = deadline;
	s->payload_len = (uint16_t)handshake_len;
	if (handshake_len)
		memcpy(s->payload, handshake, handshake_len);
	peer->remote_id = id;
	peer->remote_queue = (uint8_t)remote_queue;
	peer->user = user;
	request_begin(p, peer);
	transport_step_by(p, deadline);
	if (id == p->id && queue == remote_queue) {
		peer->loop = true;
		peer->state = TRANSPORT_LOOPBACK;
		s->handshake_len = s->payload_len;
		memcpy(s->handshake, s->payload, handshake_len);
		transport_order_post(peer, TRANSPORT_ORDER_OPEN | TRANSPORT_ORDER_START);
		transport_step_by(p, 0);
		transport_port_signal(p);
		return 0;
	}
	int error = 0;
	if (remote_queue >= TRANSPORT_ID_QUEUES(id)) { /* the peer has no such queue */
		s->refuse = -ECHRNG;
		s->deadline = 0;
		transport_step_by(p, 0);
		transport_port_signal(p);
	} else {
		error = address_make(p, peer, deadline, err);
	}
	if (error)
		transport_peer_free(p, peer);
	return error;
}

/* ---- accepting ---- */

static int refused_before(const struct transport_port *p, uint64_t id, uint64_t token)
{
	for (unsigned i = 0; i < FAR_TRANSPORT_REFUSED_KEPT; i++)
		if (p->refused[i].token == token && p->refused[i].id == id)
			return p->refused[i].error;
	return 0;
}

static void refuse(struct transport_port *p, struct transport_peer *peer, int error, uint64_t now)
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

/* CONNECT arrived at its queue, and the address handle exists: reports it to the engine, and accepts or rejects. */
static void decide(struct transport_port *p, struct transport_peer *peer, uint64_t now)
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
		refuse(p, peer, error, now);
		return;
	}
	s->deadline = now + FAR_CONNECT_TIMEOUT_NS;
	transport_step_by(p, s->deadline);
	transport_order_post(peer, TRANSPORT_ORDER_START);
	transport_setup_repeat(p, peer, now);
	transport_event_up(p, peer);
}

static void count_refused(struct transport_port *p)
{
	counter_bump(&p->refused_n);
}

/* Takes a peer to answer a sender without a connection. NULL: too many. `member`: the sender has returned a cookie. */
static struct transport_peer *peer_answering(struct transport_port *p, unsigned queue, enum transport_state state,
					     const struct transport_handshake *w, bool member, uint64_t now)
{
	uint32_t most = member ? FAR_TRANSPORT_HALF_OPEN_MAX : FAR_TRANSPORT_STATELESS_MAX;
	bool room = (member ? p->half_open_n : p->stateless_n) < most;
	struct transport_peer *peer = room ? transport_peer_new(p, queue, state) : NULL;
	if (!peer) {
		counter_bump(&p->crowded_n);
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
		memcpy(s->handshake, w->words, w->payload_len);
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
	if (address_make(p, peer, peer->setup->deadline, &err))
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

/* `named`: the identity in the packet, which the answer repeats. */
static void answer_no(struct transport_port *p, unsigned queue, const struct transport_handshake *w,
		      enum wire_kind answer, uint64_t named)
{
	count_refused(p);
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
	transport_cookie(p, w, now, s->proofs.proof);
	s->handshake_len = 0;
	answer_begin(p, peer);
}

static void on_repeated_connect(struct transport_port *p, struct transport_peer *peer, unsigned queue, uint32_t path,
				uint64_t now)
{
	counter_bump(&p->repeated_n);
	if (peer->state == TRANSPORT_UP && !peer->settled)
		transport_post_handshake(peer, WIRE_ACCEPT);
	if (peer->state != TRANSPORT_ACCEPTING || peer->address == NIC_PEER_NONE || peer->lower_pending)
		return;
	if (queue == peer->owner)
		decide(p, peer, now);
	else
		transport_post_reject(peer, WIRE_WRONG_QUEUE, -EXDEV, path);
}

/* Reads from CONNECT or ACCEPT what peer_start() needs: features, first packet number, and window (0: not stated). */
static void first_words(struct transport_peer *peer, const struct wire_head *h)
{
	uint32_t window = be32_get(h->offset);
	peer->rx_next = be32_get(h->packet);
	peer->unchecked = be32_get(h->length) & WIRE_UNCHECKED;
	peer->bulk = be32_get(h->length) & WIRE_BULK;
	peer->window = (uint16_t)(window < FAR_TRANSPORT_WINDOW ? window : FAR_TRANSPORT_WINDOW);
}

static void on_connect(struct transport_port *p, unsigned queue, const struct wire_head *h,
		       const struct transport_handshake *w, uint64_t now)
{
	if (be64_get(h->incarnation) != p->id) {
		answer_no(p, queue, w, WIRE_REJECT, be64_get(h->incarnation));
		return;
	}
	struct transport_peer *peer = transport_accepted_find(p, w->id, w->token);
	if (peer) {
		on_repeated_connect(p, peer, queue, w->path, now);
		return;
	}
	int error = refused_before(p, w->id, w->token);
	if (error) {
		count_refused(p);
	} else if (!transport_cookie_valid(p, w, now)) {
		challenge(p, queue, w, now);
		return;
	}
	if (!error && w->want >= p->queues_n)
		error = -ECHRNG;
	unsigned owner = w->want < p->queues_n ? w->want : 0;
	peer = peer_answering(p, owner, error ? TRANSPORT_REJECTING : TRANSPORT_ACCEPTING, w, true, now);
	if (!peer)
		return; /* the sender repeats CONNECT */
	/* Now, not the time of its cookie: it may have newer ones. */
	transport_secret_of(peer)->issued = now;
	first_words(peer, h);
	/* Used once the address handle exists. */
	peer->setup->refuse = error;
	peer->setup->request_queue = queue;
	peer->setup->request_flow = w->path;
	answer_begin(p, peer);
}

/* ---- answers to us ---- */

static struct transport_peer *peer_named(const struct transport_port *p, const struct wire_head *h)
{
	uint64_t token = be64_get(h->token);
	uint32_t i = TRANSPORT_INDEX(token);
	struct transport_peer *peer = i < p->peers_n ? p->peers[i] : NULL;
	return peer && peer->state != TRANSPORT_FREE && peer->token == token && be64_get(h->incarnation) == p->id
		       ? peer
		       : NULL;
}

/* Stores the cookie for the next CONNECT. A cookie that is not newer is a replay. */
static void on_challenge(struct transport_port *p, const struct wire_head *h, const struct transport_handshake *w,
			 uint64_t now)
{
	struct transport_peer *peer = peer_named(p, h);
	struct transport_setup *s = peer ? peer->setup : NULL;
	if (!s || peer->state != TRANSPORT_CONNECTING || w->id != peer->remote_id || w->issued <= s->proofs.issued ||
	    memcmp(w->nonce, s->proofs.nonce, sizeof s->proofs.nonce) != 0) {
		counter_bump(peer ? &p->repeated_n : &p->unknown_n);
		return;
	}
	s->proofs.issued = w->issued;
	memcpy(s->proofs.proof, w->proof, sizeof s->proofs.proof);
	transport_setup_repeat(p, peer, now);
}

/* Derives the session key and checks the peer's proof of it. */
static bool accept_authentic(struct transport_port *p, struct transport_peer *peer, const struct transport_handshake *w)
{
	struct transport_setup *s = peer->setup;
	uint8_t confirm[AUTH_PROOF_BYTES];
	s->handshake_len = (uint16_t)w->payload_len;
	if (w->payload_len)
		memcpy(s->handshake, w->words, w->payload_len);
	memcpy(s->remote_public, w->public, sizeof s->remote_public);
	return transport_session_begin(p, peer, confirm) && (!p->config.key || auth_equal(confirm, w->proof));
}

static void on_accept(struct transport_port *p, unsigned queue, const struct wire_head *h,
		      const struct transport_handshake *w)
{
	struct transport_peer *peer = peer_named(p, h);
	if (!peer || peer->state == TRANSPORT_CLOSING || w->id != peer->remote_id) {
		/* Our set-up has ended: the peer must not keep its connection. */
		answer_no(p, queue, w, WIRE_RESET, be64_get(h->incarnation));
		return;
	}
	if (peer->state == TRANSPORT_UP && !peer->accepted && queue == peer->owner)
		transport_order_post(peer, TRANSPORT_ORDER_ACK);
	if (peer->state != TRANSPORT_CONNECTING) {
		counter_bump(&p->repeated_n);
		return;
	}
	if (memcmp(w->nonce, peer->setup->proofs.nonce, sizeof peer->setup->proofs.nonce) != 0) {
		count_refused(p);
		return;
	}
	peer->remote_token = w->token;
	if (queue != peer->owner) {
		transport_post_reject(peer, WIRE_WRONG_QUEUE, -EXDEV, w->path);
		return;
	}
	struct transport_setup *s = peer->setup;
	if (!accept_authentic(p, peer, w)) {
		count_refused(p);
		return;
	}
	peer->remote_packet_max = w->packet_max;
	first_words(peer, h);
	s->repeat_at = s->deadline = UINT64_MAX;
	peer->settled = true;
	transport_order_post(peer, TRANSPORT_ORDER_START | TRANSPORT_ORDER_ACK);
	transport_event_up(p, peer);
	if (peer->settled)
		transport_setup_end(p, peer);
}

/* Checks that a reject answers a packet of this set-up. */
static bool reject_authentic(const struct transport_peer *peer, const struct transport_mail *mail,
			     const struct transport_reject *no)
{
	return peer->setup && memcmp(no->nonce, peer->setup->proofs.nonce, AUTH_NONCE_BYTES) == 0 &&
	       transport_tag_valid(transport_key(mail->via), mail->bytes, mail->len, peer->remote_id,
				   mail->via->own_proof);
}

/* Checks that WRONG_QUEUE answers the last PING about this path, and accepts it once. */
static bool misrouted_authentic(const struct transport_peer *peer, const struct transport_mail *mail,
				const struct transport_reject *no)
{
	uint32_t number = transport_ping_number(no->nonce);
	return number && peer->paths_made &&
	       transport_tag_valid(transport_session_key(peer), mail->bytes, mail->len, peer->remote_id, NULL) &&
	       atomic_compare_exchange_strong_explicit(&peer->paths_made->probe[no->path - 1], &number, 0,
						       memory_order_relaxed, memory_order_relaxed);
}

static void on_no(struct transport_port *p, const struct wire_head *h, const struct transport_mail *mail,
		  const struct transport_reject *no, uint64_t now)
{
	struct transport_peer *peer = peer_named(p, h);
	if (!peer) {
		counter_bump(&p->unknown_n);
		return;
	}
	bool up = peer->state == TRANSPORT_UP,
	     of_way = no->path > 1 && no->path <= 1 + FAR_TRANSPORT_SECONDARY_PATHS_MAX;
	bool setting_up = peer->state == TRANSPORT_CONNECTING || (up && !peer->settled), proven = false;
	if (h->kind == WIRE_REJECT && peer->state == TRANSPORT_CONNECTING) {
		proven = reject_authentic(peer, mail, no);
		if (proven)
			transport_connect_failed(p, peer, no->error);
	} else if (h->kind == WIRE_WRONG_QUEUE && setting_up) {
		proven = reject_authentic(peer, mail, no);
		if (proven)
			flow_next(p, peer, no->path, now);
	} else if (h->kind == WIRE_WRONG_QUEUE && up && of_way) {
		proven = misrouted_authentic(peer, mail, no);
		if (proven)
			transport_path_next_flow(p, peer, no->path - 1);
	} else if ((h->kind == WIRE_RESET || h->kind == WIRE_CLOSE) && up) {
		/* It arrived at another queue, or answers ACCEPT. */
		proven = transport_end_authentic(peer, mail->via, mail->bytes, mail->len) ||
			 (h->kind == WIRE_RESET && reject_authentic(peer, mail, no));
		if (proven)
			transport_peer_kill(peer, h->kind == WIRE_CLOSE ? -ECONNRESET : -ESTALE);
	} else {
		counter_bump(&p->repeated_n);
		return;
	}
	if (!proven)
		count_refused(p);
}

/* A PING at another queue than its connection's, or of an unknown connection. The first is not answered: messages
 * arrive at the wrong queue, too, and are lost there, so the sender must not take the connection for alive. About a
 * secondary path the answer is WRONG_QUEUE, and the sender tries another flow. */
static void on_ping(struct transport_port *p, unsigned queue, const struct wire_head *h,
		    const struct transport_handshake *w)
{
	struct transport_peer *peer = peer_named(p, h);
	if (!peer || peer->state == TRANSPORT_CLOSING) {
		answer_no(p, queue, w, WIRE_RESET, be64_get(h->incarnation));
	} else if (peer->state == TRANSPORT_UP && queue == peer->owner) {
		transport_order_post(peer, TRANSPORT_ORDER_ACK);
	} else if (peer->state == TRANSPORT_UP && w->path > 1 && w->path <= 1 + FAR_TRANSPORT_SECONDARY_PATHS_MAX &&
		   transport_paths_make(peer)) {
		/* Pairs with transport_path_report_misrouted(). */
		atomic_store_explicit(&peer->paths_made->misrouted[w->path - 1], transport_ping_number(w->nonce),
				      memory_order_relaxed);
		transport_order_post(peer, (uint32_t)TRANSPORT_ORDER_MISROUTED << (w->path - 1));
	} else {
		counter_bump(queue == peer->owner ? &p->repeated_n : &p->unknown_n);
	}
}

/* Processes a packet with a struct wire_handshake and a valid tag. */
static void on_words(struct transport_port *p, unsigned queue, const struct wire_head *h,
		     const struct transport_handshake *w, uint64_t now)
{
	switch (h->kind) {
	case WIRE_CONNECT:
		on_connect(p, queue, h, w, now);
		break;
	case WIRE_CHALLENGE:
		on_challenge(p, h, w, now);
		break;
	case WIRE_ACCEPT:
		on_accept(p, queue, h, w);
		break;
	default:
		on_ping(p, queue, h, w);
	}
}

static bool has_words(uint8_t kind)
{
	return kind == WIRE_CONNECT || kind == WIRE_CHALLENGE || kind == WIRE_ACCEPT || kind == WIRE_PING;
}

static void on_mail(struct transport_port *p, unsigned queue, const struct transport_mail *mail, uint64_t now)
{
	struct wire_head h;
	struct transport_handshake w;
	struct transport_reject no;
	if (mail->len < TRANSPORT_HEAD_BYTES)
		return;
	memcpy(&h, mail->bytes, sizeof h);
	const uint8_t *body = mail->bytes + TRANSPORT_HEAD_BYTES;
	uint32_t len = mail->len - TRANSPORT_HEAD_BYTES;
	/* The answer to a shorter CONNECT would be longer than that. */
	bool whole = h.kind != WIRE_CONNECT || mail->len == TRANSPORT_MAIL_BYTES;
	if (has_words(h.kind) && whole && transport_handshake_read(body, len, &w) &&
	    transport_tag_valid(transport_key(mail->via), mail->bytes, mail->len, w.id, mail->via->own_proof))
		on_words(p, queue, &h, &w, now);
	else if (!has_words(h.kind) && transport_reject_read(body, len, &no))
		on_no(p, &h, mail, &no, now);
	else
		count_refused(p);
}

/* ---- the driver below ---- */

static void way_up(struct transport_port *p, struct transport_peer *peer, uint32_t lower_peer, uint64_t now)
{
	bool another = peer->address != NIC_PEER_NONE;
	peer->address_old = peer->address;
	peer->address = lower_peer;
	transport_order_post(peer, another ? TRANSPORT_ORDER_REROUTE : TRANSPORT_ORDER_OPEN);
	if (peer->state == TRANSPORT_CONNECTING || (peer->state == TRANSPORT_UP && !peer->settled))
		transport_setup_repeat(p, peer, now);
	else if (peer->state == TRANSPORT_REJECTING)
		refuse(p, peer, peer->setup->refuse, now);
	else if (peer->state == TRANSPORT_ACCEPTING && peer->setup->request_queue == peer->owner)
		decide(p, peer, now);
	else if (peer->state == TRANSPORT_ACCEPTING)
		transport_post_reject(peer, WIRE_WRONG_QUEUE, -EXDEV, peer->setup->request_flow);
}

/* Finds the peer by its address handle, since `user` of connect() is a set-up that may be freed. Secondary paths are
 * not searched: the primary path is probed whenever one of them fails. */
static void lower_refused(struct transport_port *p, uint32_t lower_peer)
{
	for (uint32_t i = 0; i < p->peers_n; i++) {
		struct transport_peer *peer = p->peers[i];
		bool up = peer->state == TRANSPORT_UP;
		if (peer->address != lower_peer || !(up || peer->state == TRANSPORT_CONNECTING))
			continue;
		struct nic_event ev = {.type = NIC_EVENT_UNREACHABLE,
				       .peer = up ? peer->index : NIC_PEER_NONE,
				       .queue = peer->owner,
				       .user = peer->user};
		p->event(p->ctx, &ev);
		return;
	}
}

static int lower_event(void *ctx, const struct nic_event *ev)
{
	struct transport_port *p = ctx;
	if (ev->type == NIC_EVENT_UNREACHABLE) {
		lower_refused(p, ev->peer);
		return 0;
	}
	struct transport_path_setup *side = ev->user;
	if (!side || (ev->type != NIC_EVENT_UP && ev->type != NIC_EVENT_FAILED))
		return -EPROTO;
	struct transport_peer *peer = side->peer;
	if (!peer->setup || side != &peer->setup->primary) {
		transport_path_event(p, side, ev);
		return 0;
	}
	peer->lower_pending = false;
	if (peer->state == TRANSPORT_CLOSING) {
		if (ev->type == NIC_EVENT_UP)
			p->lower->ops->drop(p->lower, ev->peer);
		transport_peer_release(p, peer);
	} else if (peer->settled) { /* handle of an earlier flow */
		if (ev->type == NIC_EVENT_UP)
			p->lower->ops->drop(p->lower, ev->peer);
	} else if (ev->type == NIC_EVENT_UP) {
		way_up(p, peer, ev->peer, p->now);
	} else if (peer->state == TRANSPORT_CONNECTING) {
		transport_event_failed(p, peer, ev->error, ev->text);
	} else if (peer->state == TRANSPORT_UP) {
		transport_peer_kill(peer, ev->error);
	} else {
		transport_peer_end(p, peer);
	}
	return 0;
}

/* ---- step ---- */

static void news_take(struct transport_port *p, struct transport_peer *peer)
{
	uint32_t news = atomic_exchange_explicit(&peer->news, 0, memory_order_acquire);
	if (news & TRANSPORT_REPORT_REROUTED)
		transport_address_drop(p, &peer->address_old);
	if (news & TRANSPORT_REPORT_PATH_RELEASED)
		transport_paths_released(peer);
	if (news & TRANSPORT_REPORT_CONFIRMED)
		transport_setup_end(p, peer);
	if (news & TRANSPORT_REPORT_MIGRATED && peer->state == TRANSPORT_UP)
		transport_event_migrated(p, peer);
	if (news & TRANSPORT_REPORT_DOWN && peer->state == TRANSPORT_UP)
		transport_event_down(p, peer, atomic_load_explicit(&peer->why, memory_order_relaxed));
	if (news & TRANSPORT_REPORT_CLOSED && peer->state == TRANSPORT_CLOSING) {
		peer->closed = true;
		transport_peer_release(p, peer);
	}
}

static void queue_step(struct transport_port *p, struct transport_queue *q, uint64_t now)
{
	const struct transport_mail *mail;
	uint32_t i;
	while ((i = transport_peer_set_take(&q->news)) != UINT32_MAX)
		news_take(p, p->peers[i]);
	for (unsigned n = 0; n < TRANSPORT_MAIL_SLOTS && (mail = transport_mail_get(&q->mail)); n++) {
		on_mail(p, q->index, mail, now);
		transport_mail_done(&q->mail);
	}
	if (transport_mail_get(&q->mail)) /* other queues first */
		transport_port_signal(p);
}

static void setup_due(struct transport_port *p, struct transport_peer *peer)
{
	struct transport_setup *s = peer->setup;
	s->deadline = UINT64_MAX;
	if (peer->state == TRANSPORT_CONNECTING)
		transport_connect_failed(p, peer, s->refuse ? s->refuse : -ETIMEDOUT);
	else if (peer->state == TRANSPORT_UP)
		transport_peer_kill(peer, -ETIMEDOUT);
	else
		transport_peer_end(p, peer);
}

/* Does what is due for a set-up. May free it. */
static void setup_step(struct transport_port *p, struct transport_setup *s, uint64_t now)
{
	struct transport_peer *peer = s->primary.peer;
	if (peer->state == TRANSPORT_LOOPBACK) {
		peer->settled = true;
		transport_event_up(p, peer);
	}
	if (peer->settled) {
		transport_setup_end(p, peer);
	} else if (now >= s->deadline) {
		setup_due(p, peer);
	} else {
		if (now >= s->repeat_at)
			transport_setup_repeat(p, peer, now);
		transport_step_by(p, s->deadline < s->repeat_at ? s->deadline : s->repeat_at);
	}
}

uint64_t transport_step(struct nic_port *port, uint64_t now, nic_event_fn *event, void *ctx)
{
	struct transport_port *p = port_of(port);
	uint64_t count;
	if (!p->config.signal) {
		ssize_t cleared = read(p->event_fd, &count, sizeof count);
		(void)cleared; /* EAGAIN: nothing to clear */
	}
	if (now == 0)
		now = clock_now(p->config.clock);
	transport_key_update(p);
	p->event = event;
	p->ctx = ctx;
	p->now = now;
	uint64_t next = p->lower->ops->step(p->lower, now, lower_event, p);
	for (uint32_t i = 0; i < p->queues_n; i++)
		queue_step(p, p->queues[i], now);
	if (now >= p->next_at) {
		p->next_at = UINT64_MAX;
		for (struct transport_setup *s = p->setups; s; s = p->setup_at) {
			p->setup_at = s->next;
			setup_step(p, s, now);
		}
	}
	return next < p->next_at ? next : p->next_at;
}

void transport_drop(struct nic_port *port, uint32_t number)
{
	struct transport_port *p = port_of(port);
	struct transport_peer *peer = number < p->peers_n ? p->peers[number] : NULL;
	if (peer && (peer->state == TRANSPORT_UP || peer->state == TRANSPORT_DOWN))
		transport_peer_end(p, peer);
}

/* ---- the end ---- */

void transport_port_leave(struct transport_port *p)
{
	/* No poller runs any more: serve pending orders here. */
	for (uint32_t i = 0; i < p->queues_n; i++)
		transport_orders_run(p->queues[i]);
	transport_paths_part(p);
	/* Before the peers end: afterwards the caller may hold loopback messages, which are in no count. */
	for (uint32_t i = 0; i < p->queues_n; i++)
		debug_must(transport_audit_agrees(p->queues[i]));
	for (uint32_t i = 0; i < p->peers_n; i++) {
		struct transport_peer *peer = p->peers[i];
		if (peer->state == TRANSPORT_FREE)
			continue;
		if (peer->queue->peers[peer->index] == peer)
			transport_queue_end(peer->queue, peer);
		transport_paths_drop(peer);
		transport_address_drop(p, &peer->address_old);
		transport_address_drop(p, &peer->address);
	}
}
