/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Set-up of connections. Control thread.
 *
 * The connecting side makes an address handle and repeats HELLO until it is answered. The accepting side answers the
 * first one with CHALLENGE; the next HELLO must carry the cookie of that. It then makes an address handle to the
 * address in HELLO, reports NIC_EVENT_HELLO, and answers WELCOME or REFUSED. It repeats WELCOME until a packet with its
 * token arrives; until then its messages wait.
 *
 * If a hash of the flow selects the queue that receives a packet, either side answers WRONG_QUEUE to a HELLO or WELCOME
 * that arrives at another queue than the one in it, and the sender tries the next flow.
 *
 * With a key nothing is sent to a sender that does not prove it (auth.c). A HELLO without a cookie takes one of
 * FAR_LINK_STRANGERS_MAX entries until its one answer is sent; without a free entry it is not answered. So replayed
 * packets of a member cause packets to that member only, and never more bytes than arrived. A sender that returns a
 * cookie receives at the address that it has published; all of them together have at most FAR_LINK_HALF_OPEN_MAX
 * undecided set-ups.
 */
#include "transport/audit.h"

#include "base/must.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct link_port *port_of(struct nic_port *port)
{
	return (struct link_port *)port;
}

/* ---- address handles ---- */

static int address_make(struct link_port *p, struct link_peer *peer, uint64_t deadline, struct nic_err *err)
{
	struct link_setup *s = peer->setup;
	peer->lower_pending = true;
	s->flows_tried++;
	int error = p->lower->ops->connect(p->lower, peer->owner, &s->addr, NIC_ROUTE(peer->their_queue, s->flow), NULL,
					   0, deadline, &s->primary, err);
	if (error)
		peer->lower_pending = false;
	return error;
}

/* WRONG_QUEUE arrived: tries the next flow. */
static void flow_next(struct link_port *p, struct link_peer *peer, uint32_t path, uint64_t now)
{
	struct nic_err err = {""};
	/* It is about an earlier flow, or the next one is being made. */
	struct link_setup *s = peer->setup;
	if (!s || path != s->flow || peer->lower_pending || peer->way_old != NIC_PEER_NONE)
		return;
	int error = -EHOSTUNREACH;
	if (s->flows_tried < FAR_LINK_PATHS_MAX) {
		s->flow++;
		error = address_make(p, peer, now + FAR_LINK_HALF_OPEN_NS, &err);
	}
	if (!error)
		return;
	if (peer->state == LINK_CONNECTING)
		link_failed(p, peer, error);
	else
		link_peer_kill(peer, error);
}

/* ---- connect ---- */

/* Nonce and keys of this connect request. */
static void request_begin(struct link_port *p, struct link_peer *peer)
{
	struct link_setup *s = peer->setup;
	link_key_look(p);
	auth_random(s->proofs.nonce, sizeof s->proofs.nonce, p->config.random);
	link_auth_address(p, s->addr.blob, s->addr.len, link_secret_of(peer)->to);
	if (!p->config.key)
		return;
	auth_pair_make(&s->pair, p->config.random);
	memcpy(s->proofs.public, s->pair.public, sizeof s->proofs.public);
}

int link_connect(struct nic_port *port, unsigned queue, const struct nic_addr *addr, unsigned remote_queue,
		 const void *hello, size_t hello_len, uint64_t deadline, void *user, struct nic_err *err)
{
	struct link_port *p = port_of(port);
	struct nic_addr lower;
	uint64_t id;
	if (queue >= p->queues_n)
		return link_error(err, -EINVAL, "%s: there is no queue %u; the port has %u", p->ops.name, queue,
				  p->queues_n);
	if (remote_queue >= FAR_LINK_QUEUES_MAX)
		return link_error(err, -EINVAL, "%s: no port has a queue %u; [0, %u)", p->ops.name, remote_queue,
				  FAR_LINK_QUEUES_MAX);
	if (hello_len > NIC_HELLO_BYTES_MAX)
		return link_error(err, -EINVAL, "%s: handshake payload of %zu bytes; at most %u", p->ops.name,
				  hello_len, NIC_HELLO_BYTES_MAX);
	if (!link_addr_split(addr, &lower, &id) || id == 0 || strcmp(addr->driver, p->ops.name))
		return link_error(err, -EINVAL, "%s: malformed address", p->ops.name);
	struct link_peer *peer = link_peer_new(p, queue, LINK_CONNECTING);
	if (!peer || !link_rings_reserve(peer->queue, peer)) {
		if (peer)
			link_peer_free(p, peer);
		return link_error(err, peer ? -ENOMEM : -ENOSPC, "%s: more than %u peers, or no memory for one more",
				  p->ops.name, FAR_LINK_PEERS_MAX);
	}
	struct link_setup *s = peer->setup;
	s->addr = lower;
	s->want = remote_queue;
	s->deadline = deadline;
	s->words_len = (uint16_t)hello_len;
	if (hello_len)
		memcpy(s->payload, hello, hello_len);
	peer->id_there = id;
	peer->their_queue = (uint8_t)remote_queue;
	peer->user = user;
	request_begin(p, peer);
	link_step_soon(p, deadline);
	if (id == p->id && queue == remote_queue) {
		peer->loop = true;
		peer->state = LINK_LOOPING;
		s->hello_len = s->words_len;
		memcpy(s->hello, s->payload, hello_len);
		link_order(peer, LINK_DUE_OPEN | LINK_DUE_START);
		link_step_soon(p, 0);
		link_port_signal(p);
		return 0;
	}
	int error = 0;
	if (remote_queue >= LINK_ID_QUEUES(id)) { /* the peer has no such queue */
		s->refuse = -ECHRNG;
		s->deadline = 0;
		link_step_soon(p, 0);
		link_port_signal(p);
	} else {
		error = address_make(p, peer, deadline, err);
	}
	if (error)
		link_peer_free(p, peer);
	return error;
}

/* ---- accepting ---- */

static int refused_before(const struct link_port *p, uint64_t id, uint64_t token)
{
	for (unsigned i = 0; i < FAR_LINK_REFUSED_KEPT; i++)
		if (p->refused[i].token == token && p->refused[i].id == id)
			return p->refused[i].error;
	return 0;
}

static void refuse(struct link_port *p, struct link_peer *peer, int error, uint64_t now)
{
	if (!peer->stranger && !refused_before(p, peer->id_there, peer->token_there))
		link_remember(p, peer, error);
	peer->state = LINK_REFUSING;
	peer->setup->refuse = error;
	peer->setup->deadline = now + FAR_LINK_HALF_OPEN_NS;
	if (peer->address == NIC_PEER_NONE)
		return;
	if (peer->setup->reply_kind == WIRE_CHALLENGE)
		link_say_words(peer, WIRE_CHALLENGE);
	else
		link_say_no(peer, peer->setup->reply_kind, error, 0);
	/* Orders are served in this sequence: the packet leaves before the peer is closed. */
	link_peer_end(p, peer);
}

/* HELLO arrived at its queue, and the address handle exists: reports it to the engine, and accepts or rejects. */
static void decide(struct link_port *p, struct link_peer *peer, uint64_t now)
{
	struct link_setup *s = peer->setup;
	size_t len = 0;
	struct nic_event ev = {.type = NIC_EVENT_HELLO,
			       .peer = NIC_PEER_NONE,
			       .queue = peer->owner,
			       .hello = s->hello,
			       .hello_len = s->hello_len,
			       .reply = s->payload,
			       .reply_len = &len};
	int error = link_rings_reserve(peer->queue, peer) ? p->event(p->ctx, &ev) : -ENOMEM;
	s->words_len = (uint16_t)(len < NIC_HELLO_BYTES_MAX ? len : NIC_HELLO_BYTES_MAX);
	if (!error && p->config.key) {
		auth_pair_make(&s->pair, p->config.random);
		memcpy(s->proofs.public, s->pair.public, sizeof s->proofs.public);
		error = link_session_begin(p, peer, s->proofs.proof) ? 0 : -EPROTO;
	}
	if (error) {
		refuse(p, peer, error, now);
		return;
	}
	s->deadline = now + FAR_CONNECT_TIMEOUT_NS;
	link_step_soon(p, s->deadline);
	link_order(peer, LINK_DUE_START);
	link_repeat(p, peer, now);
	link_report_up(p, peer);
}

static void count_refused(struct link_port *p)
{
	counter_bump(&p->refused_n);
}

/* Takes a peer to answer a sender without a connection. NULL: too many. `member`: the sender has returned a cookie. */
static struct link_peer *peer_answering(struct link_port *p, unsigned queue, enum link_state state,
					const struct link_words *w, bool member, uint64_t now)
{
	uint32_t most = member ? FAR_LINK_HALF_OPEN_MAX : FAR_LINK_STRANGERS_MAX;
	bool room = (member ? p->half_open_n : p->strangers_n) < most;
	struct link_peer *peer = room ? link_peer_new(p, queue, state) : NULL;
	if (!peer) {
		counter_bump(&p->crowded_n);
		return NULL;
	}
	*(member ? &peer->half_open : &peer->stranger) = true;
	p->half_open_n += peer->half_open;
	p->strangers_n += peer->stranger;
	peer->accepted = true;
	peer->id_there = w->id;
	peer->token_there = w->token;
	peer->their_queue = (uint8_t)w->queue;
	peer->packet_max_there = w->packet_max;
	if (member)
		link_accepted_add(p, peer);
	struct link_setup *s = peer->setup;
	s->hello_len = (uint16_t)w->words_len;
	if (w->words_len)
		memcpy(s->hello, w->words, w->words_len);
	snprintf(s->addr.driver, sizeof s->addr.driver, "%s", p->lower->ops->name);
	s->addr.len = (uint16_t)w->addr_len;
	memcpy(s->addr.blob, w->addr, w->addr_len);
	memcpy(s->proofs.nonce, w->nonce, sizeof s->proofs.nonce);
	memcpy(s->public_there, w->public, sizeof s->public_there);
	link_auth_address(p, w->addr, w->addr_len, link_secret_of(peer)->to);
	s->deadline = now + FAR_LINK_HALF_OPEN_NS;
	link_step_soon(p, s->deadline);
	return peer;
}

static void answer_begin(struct link_port *p, struct link_peer *peer)
{
	struct nic_err err = {""};
	if (address_make(p, peer, peer->setup->deadline, &err))
		link_peer_end(p, peer);
}

/* Takes a peer for one stateless answer: RESET, REFUSED or CHALLENGE. */
static struct link_peer *answer_once(struct link_port *p, unsigned queue, const struct link_words *w,
				     enum wire_kind answer)
{
	struct link_peer *peer = peer_answering(p, queue, LINK_REFUSING, w, false, p->now);
	if (peer)
		peer->setup->reply_kind = (uint8_t)answer;
	return peer;
}

/* `named`: the identity in the packet, which the answer repeats. */
static void answer_no(struct link_port *p, unsigned queue, const struct link_words *w, enum wire_kind answer,
		      uint64_t named)
{
	count_refused(p);
	struct link_peer *peer = answer_once(p, queue, w, answer);
	if (!peer)
		return;
	peer->setup->refuse = -ESTALE;
	peer->setup->named = named;
	answer_begin(p, peer);
}

/* Answers CHALLENGE. */
static void challenge(struct link_port *p, unsigned queue, const struct link_words *w, uint64_t now)
{
	struct link_peer *peer = answer_once(p, queue, w, WIRE_CHALLENGE);
	if (!peer)
		return;
	struct link_setup *s = peer->setup;
	s->proofs.issued = now;
	link_cookie(p, w, now, s->proofs.proof);
	s->hello_len = 0;
	answer_begin(p, peer);
}

static void on_repeated_connect(struct link_port *p, struct link_peer *peer, unsigned queue, uint32_t path,
				uint64_t now)
{
	counter_bump(&p->repeated_n);
	if (peer->state == LINK_UP && !peer->settled)
		link_say_words(peer, WIRE_WELCOME);
	if (peer->state != LINK_ACCEPTING || peer->address == NIC_PEER_NONE || peer->lower_pending)
		return;
	if (queue == peer->owner)
		decide(p, peer, now);
	else
		link_say_no(peer, WIRE_WRONG_QUEUE, -EXDEV, path);
}

/* Reads from HELLO or WELCOME what peer_start() needs: features, first packet number, and window (0: not stated). */
static void first_words(struct link_peer *peer, const struct wire_head *h)
{
	uint32_t window = be32_get(h->offset);
	peer->rx_next = be32_get(h->packet);
	peer->unchecked = be32_get(h->length) & WIRE_UNCHECKED;
	peer->bulk = be32_get(h->length) & WIRE_BULK;
	peer->window = (uint16_t)(window < FAR_LINK_WINDOW ? window : FAR_LINK_WINDOW);
}

static void on_connect(struct link_port *p, unsigned queue, const struct wire_head *h, const struct link_words *w,
		       uint64_t now)
{
	if (be64_get(h->incarnation) != p->id) {
		answer_no(p, queue, w, WIRE_REFUSED, be64_get(h->incarnation));
		return;
	}
	struct link_peer *peer = link_accepted_find(p, w->id, w->token);
	if (peer) {
		on_repeated_connect(p, peer, queue, w->path, now);
		return;
	}
	int error = refused_before(p, w->id, w->token);
	if (error) {
		count_refused(p);
	} else if (!link_cookie_holds(p, w, now)) {
		challenge(p, queue, w, now);
		return;
	}
	if (!error && w->want >= p->queues_n)
		error = -ECHRNG;
	unsigned owner = w->want < p->queues_n ? w->want : 0;
	peer = peer_answering(p, owner, error ? LINK_REFUSING : LINK_ACCEPTING, w, true, now);
	if (!peer)
		return; /* the sender repeats HELLO */
	/* Now, not the time of its cookie: it may have newer ones. */
	link_secret_of(peer)->issued = now;
	first_words(peer, h);
	/* Used once the address handle exists. */
	peer->setup->refuse = error;
	peer->setup->request_queue = queue;
	peer->setup->request_flow = w->path;
	answer_begin(p, peer);
}

/* ---- answers to us ---- */

static struct link_peer *peer_named(const struct link_port *p, const struct wire_head *h)
{
	uint64_t token = be64_get(h->token);
	uint32_t i = LINK_INDEX(token);
	struct link_peer *peer = i < p->peers_n ? p->peers[i] : NULL;
	return peer && peer->state != LINK_FREE && peer->token == token && be64_get(h->incarnation) == p->id ? peer
													     : NULL;
}

/* Stores the cookie for the next HELLO. A cookie that is not newer is a replay. */
static void on_challenge(struct link_port *p, const struct wire_head *h, const struct link_words *w, uint64_t now)
{
	struct link_peer *peer = peer_named(p, h);
	struct link_setup *s = peer ? peer->setup : NULL;
	if (!s || peer->state != LINK_CONNECTING || w->id != peer->id_there || w->issued <= s->proofs.issued ||
	    memcmp(w->nonce, s->proofs.nonce, sizeof s->proofs.nonce) != 0) {
		counter_bump(peer ? &p->repeated_n : &p->unknown_n);
		return;
	}
	s->proofs.issued = w->issued;
	memcpy(s->proofs.proof, w->proof, sizeof s->proofs.proof);
	link_repeat(p, peer, now);
}

/* Derives the session key and checks the peer's proof of it. */
static bool accept_authentic(struct link_port *p, struct link_peer *peer, const struct link_words *w)
{
	struct link_setup *s = peer->setup;
	uint8_t confirm[AUTH_PROOF_BYTES];
	s->hello_len = (uint16_t)w->words_len;
	if (w->words_len)
		memcpy(s->hello, w->words, w->words_len);
	memcpy(s->public_there, w->public, sizeof s->public_there);
	return link_session_begin(p, peer, confirm) && (!p->config.key || auth_equal(confirm, w->proof));
}

static void on_accept(struct link_port *p, unsigned queue, const struct wire_head *h, const struct link_words *w)
{
	struct link_peer *peer = peer_named(p, h);
	if (!peer || peer->state == LINK_CLOSING || w->id != peer->id_there) {
		/* Our set-up has ended: the peer must not keep its connection. */
		answer_no(p, queue, w, WIRE_RESET, be64_get(h->incarnation));
		return;
	}
	if (peer->state == LINK_UP && !peer->accepted && queue == peer->owner)
		link_order(peer, LINK_DUE_ACK);
	if (peer->state != LINK_CONNECTING) {
		counter_bump(&p->repeated_n);
		return;
	}
	if (memcmp(w->nonce, peer->setup->proofs.nonce, sizeof peer->setup->proofs.nonce) != 0) {
		count_refused(p);
		return;
	}
	peer->token_there = w->token;
	if (queue != peer->owner) {
		link_say_no(peer, WIRE_WRONG_QUEUE, -EXDEV, w->path);
		return;
	}
	struct link_setup *s = peer->setup;
	if (!accept_authentic(p, peer, w)) {
		count_refused(p);
		return;
	}
	peer->packet_max_there = w->packet_max;
	first_words(peer, h);
	s->repeat_at = s->deadline = UINT64_MAX;
	peer->settled = true;
	link_order(peer, LINK_DUE_START | LINK_DUE_ACK);
	link_report_up(p, peer);
	if (peer->settled)
		link_setup_end(p, peer);
}

/* Checks that a reject answers a packet of this set-up. */
static bool reject_authentic(const struct link_peer *peer, const struct link_mail *mail, const struct link_no *no)
{
	return peer->setup && memcmp(no->nonce, peer->setup->proofs.nonce, AUTH_NONCE_BYTES) == 0 &&
	       link_sealed(link_key(mail->via), mail->bytes, mail->len, peer->id_there, mail->via->own_proof);
}

/* Checks that WRONG_QUEUE answers the last PING about this path, and accepts it once. */
static bool misrouted_authentic(const struct link_peer *peer, const struct link_mail *mail, const struct link_no *no)
{
	uint32_t number = link_ping_number(no->nonce);
	return number && peer->paths_made &&
	       link_sealed(link_session_key(peer), mail->bytes, mail->len, peer->id_there, NULL) &&
	       atomic_compare_exchange_strong_explicit(&peer->paths_made->probe[no->path - 1], &number, 0,
						       memory_order_relaxed, memory_order_relaxed);
}

static void on_no(struct link_port *p, const struct wire_head *h, const struct link_mail *mail,
		  const struct link_no *no, uint64_t now)
{
	struct link_peer *peer = peer_named(p, h);
	if (!peer) {
		counter_bump(&p->unknown_n);
		return;
	}
	bool up = peer->state == LINK_UP, of_way = no->path > 1 && no->path <= 1 + FAR_LINK_WAYS_MAX;
	bool setting_up = peer->state == LINK_CONNECTING || (up && !peer->settled), proven = false;
	if (h->kind == WIRE_REFUSED && peer->state == LINK_CONNECTING) {
		proven = reject_authentic(peer, mail, no);
		if (proven)
			link_failed(p, peer, no->error);
	} else if (h->kind == WIRE_WRONG_QUEUE && setting_up) {
		proven = reject_authentic(peer, mail, no);
		if (proven)
			flow_next(p, peer, no->path, now);
	} else if (h->kind == WIRE_WRONG_QUEUE && up && of_way) {
		proven = misrouted_authentic(peer, mail, no);
		if (proven)
			link_side_astray(p, peer, no->path - 1);
	} else if ((h->kind == WIRE_RESET || h->kind == WIRE_BYE) && up) {
		/* It arrived at another queue, or answers WELCOME. */
		proven = link_end_proven(peer, mail->via, mail->bytes, mail->len) ||
			 (h->kind == WIRE_RESET && reject_authentic(peer, mail, no));
		if (proven)
			link_peer_kill(peer, h->kind == WIRE_BYE ? -ECONNRESET : -ESTALE);
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
static void on_ping(struct link_port *p, unsigned queue, const struct wire_head *h, const struct link_words *w)
{
	struct link_peer *peer = peer_named(p, h);
	if (!peer || peer->state == LINK_CLOSING) {
		answer_no(p, queue, w, WIRE_RESET, be64_get(h->incarnation));
	} else if (peer->state == LINK_UP && queue == peer->owner) {
		link_order(peer, LINK_DUE_ACK);
	} else if (peer->state == LINK_UP && w->path > 1 && w->path <= 1 + FAR_LINK_WAYS_MAX && link_sides_make(peer)) {
		/* Pairs with link_way_astray(). */
		atomic_store_explicit(&peer->paths_made->misrouted[w->path - 1], link_ping_number(w->nonce),
				      memory_order_relaxed);
		link_order(peer, (uint32_t)LINK_DUE_ASTRAY << (w->path - 1));
	} else {
		counter_bump(queue == peer->owner ? &p->repeated_n : &p->unknown_n);
	}
}

/* Processes a packet with a struct wire_words and a valid tag. */
static void on_words(struct link_port *p, unsigned queue, const struct wire_head *h, const struct link_words *w,
		     uint64_t now)
{
	switch (h->kind) {
	case WIRE_HELLO:
		on_connect(p, queue, h, w, now);
		break;
	case WIRE_CHALLENGE:
		on_challenge(p, h, w, now);
		break;
	case WIRE_WELCOME:
		on_accept(p, queue, h, w);
		break;
	default:
		on_ping(p, queue, h, w);
	}
}

static bool has_words(uint8_t kind)
{
	return kind == WIRE_HELLO || kind == WIRE_CHALLENGE || kind == WIRE_WELCOME || kind == WIRE_PING;
}

static void on_mail(struct link_port *p, unsigned queue, const struct link_mail *mail, uint64_t now)
{
	struct wire_head h;
	struct link_words w;
	struct link_no no;
	if (mail->len < LINK_HEAD)
		return;
	memcpy(&h, mail->bytes, sizeof h);
	const uint8_t *body = mail->bytes + LINK_HEAD;
	uint32_t len = mail->len - LINK_HEAD;
	/* The answer to a shorter HELLO would be longer than that. */
	bool whole = h.kind != WIRE_HELLO || mail->len == LINK_MAIL_BYTES;
	if (has_words(h.kind) && whole && link_words_read(body, len, &w) &&
	    link_sealed(link_key(mail->via), mail->bytes, mail->len, w.id, mail->via->own_proof))
		on_words(p, queue, &h, &w, now);
	else if (!has_words(h.kind) && link_no_read(body, len, &no))
		on_no(p, &h, mail, &no, now);
	else
		count_refused(p);
}

/* ---- the driver below ---- */

static void way_up(struct link_port *p, struct link_peer *peer, uint32_t lower_peer, uint64_t now)
{
	bool another = peer->address != NIC_PEER_NONE;
	peer->way_old = peer->address;
	peer->address = lower_peer;
	link_order(peer, another ? LINK_DUE_MOVE : LINK_DUE_OPEN);
	if (peer->state == LINK_CONNECTING || (peer->state == LINK_UP && !peer->settled))
		link_repeat(p, peer, now);
	else if (peer->state == LINK_REFUSING)
		refuse(p, peer, peer->setup->refuse, now);
	else if (peer->state == LINK_ACCEPTING && peer->setup->request_queue == peer->owner)
		decide(p, peer, now);
	else if (peer->state == LINK_ACCEPTING)
		link_say_no(peer, WIRE_WRONG_QUEUE, -EXDEV, peer->setup->request_flow);
}

/* Finds the peer by its address handle, since `user` of connect() is a set-up that may be freed. Secondary paths are
 * not searched: the primary path is probed whenever one of them fails. */
static void lower_refused(struct link_port *p, uint32_t lower_peer)
{
	for (uint32_t i = 0; i < p->peers_n; i++) {
		struct link_peer *peer = p->peers[i];
		bool up = peer->state == LINK_UP;
		if (peer->address != lower_peer || !(up || peer->state == LINK_CONNECTING))
			continue;
		struct nic_event ev = {.type = NIC_EVENT_REFUSED,
				       .peer = up ? peer->index : NIC_PEER_NONE,
				       .queue = peer->owner,
				       .user = peer->user};
		p->event(p->ctx, &ev);
		return;
	}
}

static int lower_event(void *ctx, const struct nic_event *ev)
{
	struct link_port *p = ctx;
	if (ev->type == NIC_EVENT_REFUSED) {
		lower_refused(p, ev->peer);
		return 0;
	}
	struct link_side *side = ev->user;
	if (!side || (ev->type != NIC_EVENT_UP && ev->type != NIC_EVENT_FAILED))
		return -EPROTO;
	struct link_peer *peer = side->peer;
	if (!peer->setup || side != &peer->setup->primary) {
		link_side_event(p, side, ev);
		return 0;
	}
	peer->lower_pending = false;
	if (peer->state == LINK_CLOSING) {
		if (ev->type == NIC_EVENT_UP)
			p->lower->ops->drop(p->lower, ev->peer);
		link_peer_let_go(p, peer);
	} else if (peer->settled) { /* handle of an earlier flow */
		if (ev->type == NIC_EVENT_UP)
			p->lower->ops->drop(p->lower, ev->peer);
	} else if (ev->type == NIC_EVENT_UP) {
		way_up(p, peer, ev->peer, p->now);
	} else if (peer->state == LINK_CONNECTING) {
		link_report_failed(p, peer, ev->error, ev->text);
	} else if (peer->state == LINK_UP) {
		link_peer_kill(peer, ev->error);
	} else {
		link_peer_end(p, peer);
	}
	return 0;
}

/* ---- step ---- */

static void news_take(struct link_port *p, struct link_peer *peer)
{
	uint32_t news = atomic_exchange_explicit(&peer->news, 0, memory_order_acquire);
	if (news & LINK_NEWS_MOVED)
		link_way_drop(p, &peer->way_old);
	if (news & LINK_NEWS_SIDE)
		link_sides_moved(peer);
	if (news & LINK_NEWS_CONFIRMED)
		link_setup_end(p, peer);
	if (news & LINK_NEWS_WAY && peer->state == LINK_UP)
		link_report_moved(p, peer);
	if (news & LINK_NEWS_DOWN && peer->state == LINK_UP)
		link_report_down(p, peer, atomic_load_explicit(&peer->why, memory_order_relaxed));
	if (news & LINK_NEWS_CLOSED && peer->state == LINK_CLOSING) {
		peer->closed = true;
		link_peer_let_go(p, peer);
	}
}

static void queue_step(struct link_port *p, struct link_queue *q, uint64_t now)
{
	const struct link_mail *mail;
	uint32_t i;
	while ((i = link_board_take(&q->news)) != UINT32_MAX)
		news_take(p, p->peers[i]);
	for (unsigned n = 0; n < LINK_MAIL_SLOTS && (mail = link_mail_get(&q->mail)); n++) {
		on_mail(p, q->index, mail, now);
		link_mail_done(&q->mail);
	}
	if (link_mail_get(&q->mail)) /* other queues first */
		link_port_signal(p);
}

static void setup_due(struct link_port *p, struct link_peer *peer)
{
	struct link_setup *s = peer->setup;
	s->deadline = UINT64_MAX;
	if (peer->state == LINK_CONNECTING)
		link_failed(p, peer, s->refuse ? s->refuse : -ETIMEDOUT);
	else if (peer->state == LINK_UP)
		link_peer_kill(peer, -ETIMEDOUT);
	else
		link_peer_end(p, peer);
}

/* Does what is due for a set-up. May free it. */
static void setup_step(struct link_port *p, struct link_setup *s, uint64_t now)
{
	struct link_peer *peer = s->primary.peer;
	if (peer->state == LINK_LOOPING) {
		peer->settled = true;
		link_report_up(p, peer);
	}
	if (peer->settled) {
		link_setup_end(p, peer);
	} else if (now >= s->deadline) {
		setup_due(p, peer);
	} else {
		if (now >= s->repeat_at)
			link_repeat(p, peer, now);
		link_step_soon(p, s->deadline < s->repeat_at ? s->deadline : s->repeat_at);
	}
}

uint64_t link_step(struct nic_port *port, uint64_t now, nic_event_fn *event, void *ctx)
{
	struct link_port *p = port_of(port);
	uint64_t count;
	if (!p->config.signal) {
		ssize_t cleared = read(p->event_fd, &count, sizeof count);
		(void)cleared; /* EAGAIN: nothing to clear */
	}
	if (now == 0)
		now = clock_now(p->config.clock);
	link_key_look(p);
	p->event = event;
	p->ctx = ctx;
	p->now = now;
	uint64_t next = p->lower->ops->step(p->lower, now, lower_event, p);
	for (uint32_t i = 0; i < p->queues_n; i++)
		queue_step(p, p->queues[i], now);
	if (now >= p->next_at) {
		p->next_at = UINT64_MAX;
		for (struct link_setup *s = p->setups; s; s = p->setup_at) {
			p->setup_at = s->next;
			setup_step(p, s, now);
		}
	}
	return next < p->next_at ? next : p->next_at;
}

void link_drop(struct nic_port *port, uint32_t number)
{
	struct link_port *p = port_of(port);
	struct link_peer *peer = number < p->peers_n ? p->peers[number] : NULL;
	if (peer && (peer->state == LINK_UP || peer->state == LINK_DOWN))
		link_peer_end(p, peer);
}

/* ---- the end ---- */

void link_leave(struct link_port *p)
{
	/* No poller runs any more: serve pending orders here. */
	for (uint32_t i = 0; i < p->queues_n; i++)
		link_orders_serve(p->queues[i]);
	link_part(p);
	/* Before the peers end: afterwards the caller may hold loopback messages, which are in no count. */
	for (uint32_t i = 0; i < p->queues_n; i++)
		debug_must(link_audit_agrees(p->queues[i]));
	for (uint32_t i = 0; i < p->peers_n; i++) {
		struct link_peer *peer = p->peers[i];
		if (peer->state == LINK_FREE)
			continue;
		if (peer->queue->peers[peer->index] == peer)
			link_queue_end(peer->queue, peer);
		link_sides_drop(peer);
		link_way_drop(p, &peer->way_old);
		link_way_drop(p, &peer->address);
	}
}
