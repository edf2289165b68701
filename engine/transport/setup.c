/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The steps of the control thread: set-up packets that the pollers forward, events of the driver below, reports of the
 * pollers, and what is due. connect.c and accept.c have the two sides of the handshake. Control thread.
 */
#include "transport/setup.h"

#include "base/must.h"
#include "transport/accept.h"
#include "transport/audit.h"
#include "transport/auth.h"
#include "transport/connect.h"
#include "transport/connection.h"

#include <errno.h>
#include <unistd.h>

static struct transport_port *port_of(struct nic_port *port)
{
	return (struct transport_port *)port;
}

/* ---- packets that the pollers forward ---- */

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

static void on_reject(struct transport_port *p, const struct wire_control *h, const struct transport_mail *mail,
		      const struct transport_reject *no, uint64_t now)
{
	struct transport_peer *peer = transport_peer_named(p, h);
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
			transport_flow_next(p, peer, no->flow, now);
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
		counter_bump(&p->refused_n);
}

/* A PING at another queue than its connection's, or of an unknown connection. The first is not answered: messages
 * arrive at the wrong queue, too, and are lost there, so the sender must not take the connection for alive. About a
 * secondary path the answer is WRONG_QUEUE, and the sender tries another flow. */
static void on_ping(struct transport_port *p, unsigned queue, const struct wire_control *h,
		    const struct transport_handshake *w)
{
	struct transport_peer *peer = transport_peer_named(p, h);
	if (!peer || peer->state == TRANSPORT_CLOSING) {
		transport_answer_stale(p, queue, w, WIRE_RESET, le64_get(h->incarnation));
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
static void on_handshake(struct transport_port *p, unsigned queue, const struct wire_control *h,
			 const struct transport_handshake *w, uint64_t now)
{
	switch (h->kind) {
	case WIRE_CONNECT:
		transport_receive_connect(p, queue, h, w, now);
		break;
	case WIRE_CHALLENGE:
		transport_receive_challenge(p, h, w, now);
		break;
	case WIRE_ACCEPT:
		transport_receive_accept(p, queue, h, w);
		break;
	default:
		on_ping(p, queue, h, w);
	}
}

static bool has_handshake(uint8_t kind)
{
	return kind == WIRE_CONNECT || kind == WIRE_CHALLENGE || kind == WIRE_ACCEPT || kind == WIRE_PING;
}

static void on_mail(struct transport_port *p, unsigned queue, const struct transport_mail *mail, uint64_t now)
{
	struct wire_control h;
	struct transport_handshake w;
	struct transport_reject no;
	if (mail->len < TRANSPORT_HEAD_BYTES)
		return;
	memcpy(&h, mail->bytes, sizeof h);
	const uint8_t *body = mail->bytes + TRANSPORT_HEAD_BYTES;
	uint32_t len = mail->len - TRANSPORT_HEAD_BYTES;
	/* The answer to a shorter CONNECT would be longer than that. */
	bool whole = h.kind != WIRE_CONNECT || mail->len == TRANSPORT_MAIL_BYTES;
	if (has_handshake(h.kind) && whole && transport_handshake_read(body, len, &w) &&
	    transport_tag_valid(transport_key(mail->via), mail->bytes, mail->len, w.id, mail->via->own_proof))
		on_handshake(p, queue, &h, &w, now);
	else if (!has_handshake(h.kind) && transport_reject_read(body, len, &no))
		on_reject(p, &h, mail, &no, now);
	else
		counter_bump(&p->refused_n);
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
		transport_refuse(p, peer, peer->setup->refuse, now);
	else if (peer->state == TRANSPORT_ACCEPTING && peer->setup->request_queue == peer->owner)
		transport_decide(p, peer, now);
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
