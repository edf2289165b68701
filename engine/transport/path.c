/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Multipath: failover of a connection to secondary paths, and back. The poller, and the control thread in the second
 * half of the file.
 *
 * The token in a packet names its connection, not the address that it came from. So a connection may use any address
 * that reaches its peer; packet numbers, windows and messages do not depend on the path. Besides the primary path there
 * are secondary paths through the agent's other ports, whose queues the same shard holds. Each end selects the path for
 * what it sends, and receives by all.
 *
 * A path works if a PING by it is answered by it: that tests both directions. When two time-outs follow each other,
 * when the peer is silent, or when a packet arrives by another path than the one in use, a PING with the path's number
 * leaves by each path. If no answer arrives by the path in use within a time-out, but one by another, the connection
 * migrates to the best of those, and retransmits what is not acknowledged. It fails back when a better path answers. So
 * all failures of interfaces, here, there or between, are one case, and no driver has to report them. A peer that is
 * merely slow answers by no path, and none changes. The peer is DOWN when nothing arrives by any path.
 */
#include "transport/path.h"

#include "transport/auth.h"
#include "transport/connection.h"
#include "transport/control.h"
#include "transport/retransmit.h"
#include "transport/rings.h"
#include "transport/schedule.h"
#include "transport/send.h"
#include "transport/setup.h"

#include <errno.h>
#include <stdlib.h>

/* ---- address handles ---- */

void transport_set_failover(struct transport_queue *q, struct transport_peer *p, bool is)
{
	if (p->failed_over == is)
		return;
	p->failed_over = is;
	q->failed_over_n += is ? 1u : UINT32_MAX;
}

/* Attaches the address handle of path k: its first, or one of its next flow. */
static void path_attach(struct transport_queue *q, struct transport_peer *p, unsigned k, uint32_t lower)
{
	struct transport_path *w = &p->paths->path[k];
	struct transport_queue *via = p->paths->setup[k].port->queues[q->index];
	if (w->attached)
		w->via->ops->detach(w->via->lower, w->lower_peer);
	*w = (struct transport_path){
		.via = via, .lower_peer = lower, .attached = via->ops->attach(via->lower, lower) == 0};
	p->secondary = (uint8_t)((p->secondary & ~(1u << k)) | (unsigned)w->attached << k);
	if (p->current_path == k)
		p->lower_peer = lower;
	/* Pairs with transport_paths_released(). */
	atomic_store_explicit(&p->paths->setup[k].held, lower, memory_order_release);
	if (TRANSPORT_ID_QUEUES(p->remote_id) > 1)
		transport_report_post(q, p, TRANSPORT_REPORT_PATH_RELEASED);
}

void transport_paths_attach(struct transport_queue *q, struct transport_peer *p)
{
	if (!p->paths) {
		p->paths = p->paths_made; /* visible by the order's acquire */
		p->paths->path[0] =
			(struct transport_path){.via = q, .lower_peer = p->lower_peer, .attached = p->opened};
	}
	for (unsigned k = 1; k <= FAR_TRANSPORT_SECONDARY_PATHS_MAX; k++) {
		/* Pairs with transport_path_event(). */
		uint32_t lower = atomic_load_explicit(&p->paths->setup[k].lower_peer, memory_order_acquire);
		struct transport_path *w = &p->paths->path[k];
		if (lower == NIC_PEER_NONE || (w->attached && w->lower_peer == lower))
			continue;
		path_attach(q, p, k, lower);
	}
	transport_paths_verify(p);
}

void transport_paths_detach(struct transport_queue *q, struct transport_peer *p)
{
	if (!p->paths && p->opened)
		q->ops->detach(q->lower, p->lower_peer);
	for (unsigned k = 0; p->paths && k <= FAR_TRANSPORT_SECONDARY_PATHS_MAX; k++) {
		struct transport_path *w = &p->paths->path[k];
		if (w->attached)
			w->via->ops->detach(w->via->lower, w->lower_peer);
		w->attached = false;
	}
	p->secondary = p->probed_paths = p->answered_paths = 0;
	transport_set_failover(q, p, false);
}

/* ---- packets by a path that may not be the one in use ---- */

static void path_select(struct transport_peer *p, unsigned k)
{
	if (!p->paths)
		return;
	p->via = p->paths->path[k].via;
	p->lower_peer = p->paths->path[k].lower_peer;
	p->unchecked = p->agreed && (k == 0 || p->via->unchecked);
}

/* Flushes the packets of the selected path and selects the path in use again. */
static void path_restore(struct transport_peer *p)
{
	struct transport_queue *via = p->via;
	via->unflushed = false;
	via->ops->flush(via->lower);
	if (via->ops->kick && !via->port->lower_caps.wake)
		via->ops->kick(via->lower, p->lower_peer);
	path_select(p, p->current_path);
}

static void path_probe(struct transport_peer *p, unsigned k)
{
	uint8_t bytes[TRANSPORT_MAIL_BYTES];
	path_select(p, k);
	const uint8_t *to = k ? p->paths->setup[k].to : transport_secret_of(p)->to;
	transport_send_raw(p, bytes, transport_ping_write(bytes, p, p->via, k + 1, to));
	path_restore(p);
}

void transport_paths_verify(struct transport_peer *p)
{
	/* Until then WRONG_QUEUE refers to the set-up. */
	if (!p->paths || !p->confirmed || p->dead || TRANSPORT_ID_QUEUES(p->remote_id) == 1)
		return;
	for (unsigned k = 1; k <= FAR_TRANSPORT_SECONDARY_PATHS_MAX; k++) {
		struct transport_path *w = &p->paths->path[k];
		if (!w->attached || w->probed)
			continue;
		path_probe(p, k);
		w->probed = true;
		/* The answer arrives by another path than the one in use, which is no sign of a failure. */
		p->paths->probe_at = clock_now(p->queue->clock) + FAR_TRANSPORT_PATH_PROBE_NS;
	}
}

void transport_path_report_misrouted(struct transport_peer *p, uint32_t due)
{
	uint8_t bytes[TRANSPORT_HEAD_BYTES + sizeof(struct wire_reject)], nonce[AUTH_NONCE_BYTES];
	struct transport_secret *s = transport_secret_of(p);
	struct transport_paths *paths = p->paths_made; /* published by an order: complete when seen */
	for (unsigned k = 1; k <= FAR_TRANSPORT_SECONDARY_PATHS_MAX; k++) {
		/* Pairs with on_ping(): visible by the order's acquire. */
		uint32_t number = atomic_load_explicit(&paths->misrouted[k], memory_order_relaxed);
		if (!(due / TRANSPORT_ORDER_MISROUTED >> k & 1) || !transport_ping_fresh(s, number))
			continue;
		transport_ping_nonce(number, nonce);
		struct transport_reject no = {.error = -EXDEV, .path = k + 1, .nonce = nonce};
		uint32_t len = transport_reject_write(bytes, WIRE_WRONG_QUEUE, p->remote_id, p->remote_token, &no);
		transport_tag_write(transport_session_key(p), bytes, len, p->queue->port->id, NULL, p->via->crc);
		transport_send_raw(p, bytes, len);
	}
	path_restore(p);
}

static void send_answer(struct transport_queue *q, struct transport_peer *p, unsigned k, uint32_t path)
{
	path_select(p, k);
	transport_send_answer(q, p, path);
	path_restore(p);
}

/* ---- probes and decisions ---- */

/* Time-out of an answer: without the back-off, which the failing path may have caused. */
static uint64_t answer_ns(const struct transport_peer *p, uint64_t now)
{
	struct transport_rtt r = transport_rtt_of(p);
	r.backoff = 0;
	return rtt_timeout(&r, now);
}

void transport_paths_probe(struct transport_queue *q, struct transport_peer *p, uint64_t now)
{
	struct transport_paths *paths = p->paths;
	if (p->probed_paths || p->dead || !paths || !p->confirmed)
		return;
	p->answered_paths = 0;
	paths->decide_at = now + answer_ns(p, now);
	paths->probe_at = now + FAR_TRANSPORT_PATH_PROBE_NS;
	paths->back_at = now + FAR_TRANSPORT_FAILBACK_NS;
	transport_set_failover(q, p, true);
	for (unsigned k = 0; k <= FAR_TRANSPORT_SECONDARY_PATHS_MAX; k++) {
		if (!paths->path[k].attached)
			continue;
		p->probed_paths |= (uint8_t)(1u << k);
		path_probe(p, k);
	}
	if (!p->active)
		transport_peer_activate(q, p);
}

void transport_path_confirmed(struct transport_peer *p, uint32_t path)
{
	if (path > 0 && path <= 1 + FAR_TRANSPORT_SECONDARY_PATHS_MAX)
		p->answered_paths |= (uint8_t)(p->probed_paths & 1u << (path - 1));
}

void transport_path_observed(struct transport_queue *q, struct transport_peer *p)
{
	if (!p->secondary || p->probed_paths)
		return;
	uint64_t now = clock_now(q->clock);
	if (now >= p->paths->probe_at)
		transport_paths_probe(q, p, now);
}

bool transport_path_answer(struct transport_queue *q, struct transport_peer *p, const struct transport_queue *via,
			   uint32_t path)
{
	bool any = false;
	for (unsigned k = 0; k <= FAR_TRANSPORT_SECONDARY_PATHS_MAX && p->started && p->paths; k++) {
		if (!p->paths->path[k].attached || p->paths->path[k].via != via)
			continue;
		send_answer(q, p, k, path);
		any = true;
	}
	return any;
}

/* Migrates to path k. RTT state and path MTU start anew; packets in flight may have arrived or not. */
static void take(struct transport_queue *q, struct transport_peer *p, unsigned k)
{
	const struct transport_path *w = &p->paths->path[k];
	struct transport_rings *r = p->rings;
	p->current_path = (uint8_t)k;
	p->special = k || !p->confirmed;
	path_select(p, k);
	p->path = (struct transport_saved_rtt){.reorder = FAR_TRANSPORT_REORDER};
	p->wanted = true;
	if (r) {
		r->rtt = (struct transport_rtt){.watch = RTT_WANTED};
		r->probing = r->probed = r->probe_out = false;
		r->resends = 0;
		r->resend_at = 0;
		r->grant_at = 0;
		r->grant_retransmits = 0;
	}
	transport_unscheduled_reset(p);
	uint64_t most = w->via->ops->tx_bytes_max(w->via->lower, w->lower_peer);
	if (most > p->remote_packet_max)
		most = p->remote_packet_max;
	p->payload_max = most > TRANSPORT_PACKET_MIN ? (uint32_t)most - TRANSPORT_HEAD_BYTES
						     : TRANSPORT_PACKET_MIN - TRANSPORT_HEAD_BYTES;
	counter_bump(&q->path_migrations);
	atomic_store_explicit(&p->path_current, (uint8_t)k, memory_order_relaxed);
	transport_report_post(q, p, TRANSPORT_REPORT_MIGRATED);
	if (p->una != p->next)
		transport_retransmit(q, p, true);
	transport_backlog_add(q, p);
	transport_ack_soon(q, p);
}

static void decide(struct transport_queue *q, struct transport_peer *p)
{
	unsigned answered = p->answered_paths;
	p->probed_paths = p->answered_paths = 0;
	if (!answered)
		return;
	unsigned best = (unsigned)__builtin_ctz(answered);
	if (best < p->current_path || !(answered >> p->current_path & 1))
		take(q, p, best);
}

void transport_paths_timer(struct transport_queue *q, struct transport_peer *p, uint64_t now, bool paused)
{
	if (p->probed_paths && now >= p->paths->decide_at && !paused)
		decide(q, p);
	else if (!p->probed_paths && p->current_path && now >= p->paths->back_at)
		transport_paths_probe(q, p, now);
	transport_set_failover(q, p, p->current_path || p->probed_paths || p->rx_elsewhere);
	p->special = p->failed_over || !p->confirmed;
	p->rx_elsewhere = false;
}

/* ---- control thread ---- */

static struct transport_port *transport_of(struct nic_port *port)
{
	return transport_lower(port) == port ? NULL : (struct transport_port *)port;
}

static bool is_sibling(const struct transport_port *p, const struct transport_port *of)
{
	bool found = false;
	for (uint32_t i = 0; i < p->siblings_n; i++)
		found |= p->siblings[i] == of;
	return found;
}

void transport_join(struct nic_port *const ports[], unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct transport_port *p = transport_of(ports[i]);
		for (unsigned k = 0; p && k < n; k++) {
			struct transport_port *s = transport_of(ports[k]);
			if (!s || s == p || s->queues_n != p->queues_n || p->siblings_n == FAR_PORTS_MAX - 1)
				continue;
			p->siblings[p->siblings_n++] = s;
			for (uint32_t j = 0; j < p->queues_n; j++)
				p->queues[j]->siblings[p->queues[j]->siblings_n++] = s->queues[j];
		}
	}
}

static void path_setup_init(struct transport_path_setup *side)
{
	side->replaced = NIC_PEER_NONE;
	atomic_init(&side->lower_peer, NIC_PEER_NONE);
	atomic_init(&side->held, NIC_PEER_NONE);
}

/* Makes an address handle with the present flow. */
static int path_setup_connect(struct transport_path_setup *side, uint64_t now, struct nic_err *err)
{
	struct nic_port *lower = side->port->lower;
	side->pending = true;
	int error = lower->ops->connect(lower,
					&(struct nic_connect){side->peer->owner, &side->addr,
							      NIC_ROUTE((uint32_t)side->peer->remote_queue, side->flow),
							      NULL, 0, now + FAR_TRANSPORT_HALF_OPEN_NS, side},
					err);
	if (error)
		side->pending = false;
	return error;
}

bool transport_paths_make(struct transport_peer *peer)
{
	if (peer->paths_made)
		return true;
	peer->paths_made = calloc(1, sizeof *peer->paths_made);
	for (unsigned k = 1; peer->paths_made && k <= FAR_TRANSPORT_SECONDARY_PATHS_MAX; k++)
		path_setup_init(&peer->paths_made->setup[k]);
	return peer->paths_made != NULL;
}

int transport_path_add(struct nic_port *port, uint32_t number, struct nic_port *through, const struct nic_addr *addr,
		       uint32_t name, struct nic_err *err)
{
	struct transport_port *p = transport_of(port), *via = transport_of(through);
	struct transport_peer *peer = p && number < p->peers_n ? p->peers[number] : NULL;
	struct nic_addr lower;
	uint64_t id;
	if (!p || !via || !is_sibling(p, via))
		return transport_error(err, -EINVAL,
				       "%s: no secondary path through %s: it is no transport of the same agent",
				       port->ops->name, through->ops->name);
	if (!peer || peer->state != TRANSPORT_UP || peer->loop)
		return transport_error(err, -EINVAL, "%s: no connection %u for a secondary path", port->ops->name,
				       number);
	if (!transport_addr_split(addr, &lower, &id) || strcmp(addr->driver, via->ops.name))
		return transport_error(err, -EINVAL, "%s: malformed address", via->ops.name);
	if (!transport_paths_make(peer))
		return transport_error(err, -ENOMEM, "%s: no memory for a secondary path", via->ops.name);
	unsigned k = 1;
	while (k <= FAR_TRANSPORT_SECONDARY_PATHS_MAX && peer->paths_made->setup[k].port)
		k++;
	if (k > FAR_TRANSPORT_SECONDARY_PATHS_MAX)
		return transport_error(err, -ENOSPC, "%s: a connection has at most %u secondary paths", port->ops->name,
				       FAR_TRANSPORT_SECONDARY_PATHS_MAX);
	struct transport_path_setup *side = &peer->paths_made->setup[k];
	atomic_store_explicit(&side->lower_peer, NIC_PEER_NONE, memory_order_relaxed);
	side->peer = peer;
	side->port = via;
	side->number = name;
	side->addr = lower;
	transport_auth_address(via, lower.blob, lower.len, side->to);
	side->flow = 0;
	int error = path_setup_connect(side, clock_now(p->config.clock), err);
	if (error)
		side->port = NULL;
	return error;
}

void transport_path_next_flow(struct transport_port *p, struct transport_peer *peer, uint32_t k)
{
	struct transport_path_setup *side = peer->paths_made ? &peer->paths_made->setup[k] : NULL;
	struct nic_err err = {""};
	/* A late answer about an earlier flow costs one flow at most. */
	if (!side || !side->port || side->pending || side->replaced != NIC_PEER_NONE ||
	    atomic_load_explicit(&side->lower_peer, memory_order_relaxed) == NIC_PEER_NONE ||
	    side->flow + 1 >= FAR_TRANSPORT_FLOWS_MAX)
		return;
	side->flow++;
	path_setup_connect(side, p->now, &err); /* on error the path stays unusable */
}

void transport_paths_released(struct transport_peer *peer)
{
	for (unsigned k = 1; peer->paths_made && k <= FAR_TRANSPORT_SECONDARY_PATHS_MAX; k++) {
		struct transport_path_setup *side = &peer->paths_made->setup[k];
		/* Pairs with path_attach(). */
		if (side->replaced == NIC_PEER_NONE || !side->port ||
		    atomic_load_explicit(&side->held, memory_order_acquire) !=
			    atomic_load_explicit(&side->lower_peer, memory_order_relaxed))
			continue;
		side->port->lower->ops->drop(side->port->lower, side->replaced);
		side->replaced = NIC_PEER_NONE;
	}
}

void transport_path_event(struct transport_port *via, struct transport_path_setup *side, const struct nic_event *ev)
{
	struct transport_peer *peer = side->peer;
	uint32_t before = atomic_load_explicit(&side->lower_peer, memory_order_relaxed);
	side->pending = false;
	if (peer->state == TRANSPORT_CLOSING || ev->type != NIC_EVENT_UP) {
		if (ev->type == NIC_EVENT_UP)
			via->lower->ops->drop(via->lower, ev->peer);
		if (before == NIC_PEER_NONE)
			side->port = NULL;
		if (peer->state == TRANSPORT_CLOSING)
			transport_peer_release(peer->queue->port, peer);
		return;
	}
	side->replaced = before;
	/* Pairs with transport_paths_attach(). */
	atomic_store_explicit(&side->lower_peer, ev->peer, memory_order_release);
	transport_order_post(peer, TRANSPORT_ORDER_PATHS);
}

bool transport_paths_pending(const struct transport_peer *peer)
{
	bool pending = false;
	for (unsigned k = 1; peer->paths_made && k <= FAR_TRANSPORT_SECONDARY_PATHS_MAX; k++)
		pending |= peer->paths_made->setup[k].pending;
	return pending;
}

static void path_setup_drop(struct transport_path_setup *side)
{
	uint32_t lower = atomic_load_explicit(&side->lower_peer, memory_order_relaxed);
	if (side->port && lower != NIC_PEER_NONE)
		side->port->lower->ops->drop(side->port->lower, lower);
	if (side->port && side->replaced != NIC_PEER_NONE)
		side->port->lower->ops->drop(side->port->lower, side->replaced);
	side->replaced = NIC_PEER_NONE;
	side->port = NULL;
	side->pending = false;
	atomic_store_explicit(&side->lower_peer, NIC_PEER_NONE, memory_order_relaxed);
}

void transport_paths_drop(struct transport_peer *peer)
{
	for (unsigned k = 1; peer->paths_made && k <= FAR_TRANSPORT_SECONDARY_PATHS_MAX; k++)
		path_setup_drop(&peer->paths_made->setup[k]);
}

/* Does the poller's part, too: no poller runs any more. */
static void peer_paths_remove(struct transport_peer *peer, const struct transport_port *p)
{
	for (unsigned k = 1; peer->paths_made && k <= FAR_TRANSPORT_SECONDARY_PATHS_MAX; k++) {
		struct transport_path *w = &peer->paths_made->path[k];
		if (peer->paths_made->setup[k].port != p)
			continue;
		if (w->attached)
			w->via->ops->detach(w->via->lower, w->lower_peer);
		w->attached = false;
		peer->secondary &= (uint8_t) ~(1u << k);
		if (peer->current_path == k) {
			peer->current_path = 0;
			peer->via = peer->paths_made->path[0].via;
			peer->lower_peer = peer->paths_made->path[0].lower_peer;
		}
		path_setup_drop(&peer->paths_made->setup[k]);
	}
}

void transport_paths_part(struct transport_port *p)
{
	for (uint32_t i = 0; i < p->siblings_n; i++) {
		struct transport_port *s = p->siblings[i];
		for (uint32_t k = 0; k < s->peers_n; k++)
			if (s->peers[k]->state != TRANSPORT_FREE)
				peer_paths_remove(s->peers[k], p);
		for (uint32_t k = 0; k < s->siblings_n; k++) {
			if (s->siblings[k] != p)
				continue;
			s->siblings[k] = s->siblings[--s->siblings_n];
			for (uint32_t j = 0; j < s->queues_n; j++)
				s->queues[j]->siblings[k] = s->queues[j]->siblings[--s->queues[j]->siblings_n];
			break;
		}
	}
	p->siblings_n = 0;
}

uint32_t transport_path_current(struct nic_port *port, uint32_t number)
{
	struct transport_port *p = transport_of(port);
	struct transport_peer *peer = p && number < p->peers_n ? p->peers[number] : NULL;
	uint32_t k = peer ? atomic_load_explicit(&peer->path_current, memory_order_relaxed) : 0;
	return k && peer->paths_made->setup[k].port ? peer->paths_made->setup[k].number : TRANSPORT_PATH_PRIMARY;
}
