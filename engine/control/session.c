/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Set-up of sessions, one for each pair of shards. Control thread. At init the higher (rank, shard) connects to the
 * lower, and each worker to itself; on demand the side connects whose shard requests the session first. When both do,
 * the higher one's attempt becomes the session: it rejects the other's connect request, and the other side waits for
 * its attempt, and tries again in case that fails.
 *
 * Never two sessions: the higher end H accepts only without an attempt of its own, and then refuses all. The lower end
 * L accepts H's attempt; H refuses L's until it learns of its success, and afterwards because it is UP. No deadlock: L
 * waits only for H's attempt. If that fails unseen, H is at NONE and accepts L's next attempt.
 */
#include "control/group.h"

#include "base/hash.h"
#include "base/mutant.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define YIELD_MIN_NS UINT64_C(2000000) /* before a yielding pair tries again; doubles up to YIELD_MAX_NS */
#define YIELD_MAX_NS UINT64_C(200000000)
/* Limit of an attempt while other paths are left: longer than a running worker takes to reply. */
#define TRY_NS UINT64_C(5000000000)
/* After this time without a reply to an attempt, and as often again, the store is queried for the member's claim. */
#define UNANSWERED_NS UINT64_C(1000000000)
/* Limit of an attempt after another path has shown that no process is there. */
#define TRY_GONE_NS UINT64_C(1000000000)

static struct handshake handshake_to(const struct pair *pair, uint64_t incarnation)
{
	const struct group *g = pair->peer->group;
	return (struct handshake){.group = g->hash,
				  .world = (uint32_t)g->url.world,
				  .rank = (uint32_t)g->url.rank,
				  .from = g->config.incarnation,
				  .to = incarnation,
				  .name = hash64(g->name, strlen(g->name)),
				  .from_shard = pair->local,
				  .to_shard = pair->remote};
}

static void pair_yield(struct pair *pair);

/* ---- set-up ---- */

/* True for errors that mean: no process has the address, or another one. */
static bool is_gone(int error)
{
	return error == -ECONNREFUSED || error == -ENOENT || error == -ECONNRESET || error == -ESTALE ||
	       error == -EPIPE;
}

/* All paths have failed: ends the join, the membership, or the calls that wait for the session. */
static void pair_failed(struct pair *pair, int error, const char *text)
{
	struct peer *p = pair->peer;
	struct group *g = p->group;
	if (group_joining(g) && !g->lazy) {
		group_fail(g, true, error == -EACCES ? FAR_DENIED : FAR_UNREACHABLE,
			   "worker \"%.100s\" cannot connect to worker \"%.100s\" (rank %d): %s", g->name,
			   g->members[p->rank].name, p->rank, text);
		return;
	}
	if (!peer_is_self(p) && (pair->left_us || (group_joining(g) && is_gone(error)))) {
		peer_lost(p, is_gone(error) ? "its process is gone" : text);
		incarnation_query(p);
	} else if (!peer_is_self(p) && is_gone(error)) {
		/* Its published address has no process, or another one: query the store for its claim. */
		peer_suspect(p, "its process is gone");
		if (!p->dead)
			pair_yield(pair);
	} else if (!peer_is_self(p) && (p->unclaimed || (g->store_lost && !g->lease_ns)) && error == -ETIMEDOUT) {
		peer_lost(p, text);
	} else {
		pair_unreachable(pair, FAR_UNREACHABLE, text);
	}
}

/* Records the error of a failed attempt. */
static void pair_add_failure(struct pair *pair, int error, const char *text)
{
	char *all = NULL;
	pair->error = error;
	pair->no_process |= is_gone(error);
	pair->left_us |= error == -EPIPE;
	if (asprintf(&all, "%s%s%s", pair->failed ? pair->failed : "", pair->failed ? "; " : "", text) < 0)
		return;
	free(pair->failed);
	pair->failed = all;
}

static void pair_reset_attempts(struct pair *pair)
{
	free(pair->failed);
	pair->failed = NULL;
	pair->tried = 0;
	pair->no_process = pair->left_us = false;
	pair->error = 0;
}

/* No path is left: fails the set-up with the errors of the attempts, or with the reasons why there was no path. */
static void pair_give_up(struct pair *pair, const struct info *info)
{
	struct peer *p = pair->peer;
	struct group *g = p->group;
	char text[FAR_ERR_TEXT_MAX];
	size_t len = 0;
	if (pair->error) {
		pair_failed(pair, pair->no_process ? -ECONNREFUSED : pair->error,
			    pair->failed ? pair->failed : "no memory");
		return;
	}
	if (group_joining(g) && !g->lazy)
		len = (size_t)snprintf(text, sizeof text, "worker \"%.60s\" and worker \"%.60s\": ", g->name,
				       g->members[p->rank].name);
	len += (size_t)snprintf(text + len, sizeof text - len,
				"%s: ", p->driver_shared ? "no NIC leads there" : "no NIC driver is shared");
	route_none(g, info, text + len, sizeof text - len);
	if (group_joining(g) && !g->lazy)
		group_fail(g, true, FAR_UNREACHABLE, "%s", text);
	else
		pair_unreachable(pair, FAR_UNREACHABLE, text);
}

static bool pair_route(const struct pair *pair, const struct info *info, unsigned from, struct route *out)
{
	if (!peer_is_self(pair->peer))
		return route_next(pair->peer->group, info, from, out);
	route_self(pair->peer->group, out);
	return from == 0;
}

/* Deadline of an attempt over one path: the last path has the rest of the time, unless an attempt found no process. */
static uint64_t try_until(const struct pair *pair, const struct info *info, const struct route *route)
{
	const struct group *g = pair->peer->group;
	uint64_t all = group_joining(g) && !g->lazy ? g->init_deadline : pair->deadline, some = TIME_NEVER;
	struct route next;
	if (pair->no_process)
		some = time_after(g->now, TRY_GONE_NS);
	else if (pair_route(pair, info, route->number + 1, &next))
		some = time_after(g->now, TRY_NS);
	return some < all ? some : all;
}

/* Tries the remaining paths until an attempt begins. */
static void pair_connect(struct pair *pair)
{
	struct peer *p = pair->peer;
	struct group *g = p->group;
	uint8_t payload[HANDSHAKE_BYTES];
	struct route route;
	struct info info;
	if (info_decode(p->info, p->bytes, &info))
		info.addrs_n = 0;
	struct handshake h = handshake_to(pair, g->members[p->rank].incarnation);
	handshake_encode(&h, payload);
	g->busy = true;
	while (pair_route(pair, &info, pair->tried, &route)) {
		struct nic_port *nic = g->config.ports[route.port];
		struct nic_err err = {.text = ""};
		pair->tried = route.number + 1;
		pair->state = PAIR_CONNECTING;
		pair->attempt = true;
		int rc = nic->ops->connect(nic,
					   &(struct nic_connect){pair->local, &route.addr, pair->remote, payload,
								 sizeof payload, try_until(pair, &info, &route), pair},
					   &err);
		if (rc == 0) {
			uint64_t check_at = time_after(g->now, UNANSWERED_NS);
			g->unanswered_at = check_at < g->unanswered_at ? check_at : g->unanswered_at;
			return;
		}
		pair->attempt = false;
		pair_add_failure(pair, rc, err.text[0] ? err.text : strerror(-rc));
	}
	pair_give_up(pair, &info);
}

/* The attempt over a path has failed: tries the next. */
static void pair_next(struct pair *pair, int error, const char *text)
{
	pair_add_failure(pair, error, text);
	pair_connect(pair);
}

void pair_begin(struct pair *pair)
{
	pair_reset_attempts(pair);
	pair_connect(pair);
}

/* Begins the set-up of a session that does not exist. Between two own shards the higher one's pair makes the attempt.
 */
static void pair_set_up(struct pair *pair)
{
	struct group *g = pair->peer->group;
	if (peer_is_self(pair->peer) && pair->local < pair->remote)
		pair = pair_get(pair->peer, pair->remote, pair->local);
	if (!pair || pair->attempt || pair->state != PAIR_NONE)
		return;
	pair->deadline = time_after(g->now, FAR_CONNECT_TIMEOUT_NS);
	pair->retry_ns = YIELD_MIN_NS;
	pair_begin(pair);
}

void pair_request(struct pair *pair)
{
	struct group *g = pair->peer->group;
	if (pair->state == PAIR_UP)
		return; /* PEER_UP is on its way */
	pair->requested = true;
	if (!pair->peer->known && g->phase >= PHASE_CONNECT) {
		incarnation_query(pair->peer);
		if (!pair->peer->querying)
			dynamic_settle(pair->peer);
		return;
	}
	if (pair->peer->dead)
		pair_unreachable(pair, FAR_PEER_LOST, "its process is gone");
	else if (g->phase >= PHASE_CONNECT && (g->lazy || !group_joining(g)))
		pair_set_up(pair);
}

void session_request(struct peer *p, unsigned local, unsigned remote)
{
	struct pair *pair = p->dead ? NULL : pair_get(p, local, remote);
	if (pair)
		pair_set_up(pair);
}

void session_probe(struct peer *p)
{
	if (!p->up_n && !peer_is_self(p))
		session_request(p, 0, 0);
}

static void session_probe_pair(struct pair *pair)
{
	pair->due_probe = true;
	mails_queue(pair);
}

bool session_probe_silent(struct peer *p)
{
	struct group *g = p->group;
	for (struct pair *pair = p->dead || peer_is_self(p) ? NULL : p->pairs; pair; pair = pair->next) {
		if (pair->state != PAIR_UP || !pair->up_posted || !(g->config.silent >> pair->port & 1))
			continue;
		session_probe_pair(pair);
		return true;
	}
	return false;
}

/* Waits for the other side's attempt; at retry_at this side tries again, in case that attempt has failed. */
static void pair_yield(struct pair *pair)
{
	struct group *g = pair->peer->group;
	if (g->now >= pair->deadline) {
		char text[FAR_ERR_TEXT_MAX];
		snprintf(text, sizeof text, "%s",
			 pair->failed ? pair->failed : "the other side's set-up did not complete");
		pair_unreachable(pair, FAR_UNREACHABLE, text);
		return;
	}
	pair->state = PAIR_YIELDING;
	if (!pair->yielded)
		g->yielding_n++;
	pair->yielded = true;
	pair->retry_at = time_after(g->now, pair->retry_ns);
	pair->retry_ns = pair->retry_ns * 2 < YIELD_MAX_NS ? pair->retry_ns * 2 : YIELD_MAX_NS;
}

static uint64_t yields_step(struct group *g)
{
	uint64_t next = TIME_NEVER;
	for (int r = 0; r < g->url.world && g->yielding_n; r++) {
		for (struct pair *pair = g->peers[r].pairs; pair; pair = pair->next) {
			if (pair->state != PAIR_YIELDING)
				continue;
			if (g->now >= pair->retry_at) {
				pair_yield_end(pair);
				pair_begin(pair);
			} else if (pair->retry_at < next) {
				next = pair->retry_at;
			}
		}
	}
	return next;
}

static bool is_unanswered(const struct peer *p)
{
	const struct pair *pair = p->dead || p->unclaimed || peer_is_self(p) ? NULL : p->pairs;
	while (pair && !(pair->state == PAIR_CONNECTING && pair->attempt))
		pair = pair->next;
	return pair;
}

/* Queries the store about members that do not reply to an attempt: a host without power sends nothing, and in a leaving
 * group the store reports ended claims to rank 0 only. */
static uint64_t unanswered_step(struct group *g)
{
	if (g->now < g->unanswered_at)
		return g->unanswered_at;
	g->unanswered_at = TIME_NEVER;
	for (int r = 0; r < g->url.world; r++) {
		if (!is_unanswered(&g->peers[r]))
			continue;
		g->unanswered_at = time_after(g->now, UNANSWERED_NS);
		if (!g->store_lost)
			peer_suspect(&g->peers[r], "its process is gone");
	}
	return g->unanswered_at;
}

/* ---- events of the ports ---- */

static bool accepts_sessions(const struct group *g)
{
	return group_joining(g) || g->phase == PHASE_READY || g->phase == PHASE_DRAIN || g->phase == PHASE_BYE;
}

static int handshake_check(const struct group *g, const struct nic_event *ev, struct handshake *h)
{
	int rc = handshake_decode(ev->handshake, ev->handshake_len, h);
	if (rc)
		return rc;
	if (h->group != g->hash || h->world != (uint32_t)g->url.world)
		return -EACCES;
	if (h->rank >= h->world || h->from_shard >= FAR_SHARDS_MAX || h->to_shard >= g->config.shards ||
	    h->to_shard != ev->queue)
		return -EPROTO;
	if (h->to != g->config.incarnation)
		return -ESTALE;
	const struct peer *p = &g->peers[h->rank];
	/* A worker that has just joined the dynamic group: its info is on its way. */
	if (g->url.dynamic && !p->known && g->phase >= PHASE_CONNECT)
		return -ESTALE;
	if (peer_is_self(p) && h->from != g->config.incarnation)
		return -ESTALE;
	/* Before the member's info is known any incarnation is accepted; session_begin() checks it. */
	if (p->known && h->from != g->members[h->rank].incarnation && !MUTANT(STALE_CONNECT_REQUEST))
		return -ESTALE;
	const char *name = g->members[h->rank].name;
	if (p->known && h->name != hash64(name, strlen(name)))
		return -EACCES;
	if (p->known && h->from_shard >= g->members[h->rank].shards)
		return -EPROTO;
	return 0;
}

/* A connect request for a session that is UP: the other side has lost the session and this side has not noticed, or the
 * packet is a late copy. A probe decides: the other side replies with a reset to a packet of an unknown session. */
static bool pair_may_be_over(const struct pair *pair)
{
	const struct group *g = pair->peer->group;
	return !peer_is_self(pair->peer) && pair->up_posted && g->config.silent >> pair->port & 1;
}

static int on_connect_request(struct group *g, const struct nic_event *ev)
{
	uint8_t reply[HANDSHAKE_BYTES];
	struct handshake h;
	if (!accepts_sessions(g))
		return -ECONNREFUSED;
	int rc = handshake_check(g, ev, &h);
	struct peer *p = rc == 0 || rc == -ESTALE ? &g->peers[h.rank] : NULL;
	if (rc == -ESTALE && h.to == g->config.incarnation && !peer_is_self(p))
		return incarnation_unknown(p, h.from);
	if (rc)
		return rc;
	struct pair *pair = p->dead ? NULL : pair_get(p, h.to_shard, h.from_shard);
	if (!pair)
		return p->dead ? -EPIPE : -ENOMEM;
	if (pair->state == PAIR_UP && pair_may_be_over(pair)) {
		session_probe_pair(pair);
		return -EINPROGRESS;
	}
	if (pair->state == PAIR_UP || pair->state == PAIR_DEAD)
		return -EACCES;
	if (peer_is_self(p)) {
		const struct pair *ours = pair_find(p, h.from_shard, h.to_shard);
		if (!ours || !ours->attempt)
			return -EACCES;
	} else if (pair->attempt && pair_is_higher(pair)) {
		return -EALREADY;
	}
	struct handshake mine = handshake_to(pair, h.from);
	handshake_encode(&mine, reply);
	memcpy(ev->reply, reply, sizeof reply);
	*ev->reply_len = sizeof reply;
	return 0;
}

static void on_up(struct group *g, struct group_port *port, const struct nic_event *ev)
{
	struct pair *pair = ev->user;
	struct handshake h;
	int rc = handshake_check(g, ev, &h);
	if (pair && pair->is_retired) {
		pair->attempt = false;
		group_port_drop(g, port->index, ev->peer);
		pair_free_if_unused(pair);
		return;
	}
	if (pair) {
		pair->attempt = false;
		if (rc == 0 &&
		    ((int)h.rank != pair->peer->rank || h.from_shard != pair->remote || h.to_shard != pair->local))
			rc = -EPROTO;
	} else if (rc == 0) {
		pair = pair_get(&g->peers[h.rank], h.to_shard, h.from_shard);
		rc = pair ? 0 : -ENOMEM;
	}
	if (rc == 0 && (pair->state == PAIR_UP || pair->state == PAIR_DEAD || !accepts_sessions(g))) {
		group_port_drop(g, port->index, ev->peer);
		return;
	}
	if (rc == 0 && !pair_register(port, ev->peer, pair))
		rc = -ENOMEM;
	if (rc) {
		group_port_drop(g, port->index, ev->peer);
		if (ev->user)
			pair_next(pair, rc == -ESTALE ? -EPROTO : rc,
				  "its reply to the connect request does not match");
		return;
	}
	pair_yield_end(pair);
	pair->state = PAIR_UP;
	pair->port = (uint16_t)port->index;
	pair->handle = ev->peer;
	pair->accepted = h.from;
	pair->initiated = ev->user != NULL;
	pair->peer->up_n++;
	g->busy = true;
	if (pair->peer->known && g->phase >= PHASE_CONNECT)
		pair_attach(pair);
}

static void on_failed(const struct nic_event *ev)
{
	struct pair *pair = ev->user;
	if (!pair)
		return;
	pair->attempt = false;
	if (pair->is_retired) {
		pair_free_if_unused(pair);
		return;
	}
	if (pair->state != PAIR_CONNECTING)
		return; /* the other side's attempt has won, or the member is dead */
	bool yields = ev->error == -EALREADY && !pair_is_higher(pair) && !peer_is_self(pair->peer);
	/* EINPROGRESS: the other side does not have this incarnation yet, or probes a former session. */
	if (yields || ev->error == -EINPROGRESS)
		pair_yield(pair);
	else
		pair_next(pair, ev->error, ev->text ? ev->text : strerror(-ev->error));
}

/*
 * True if the member stays one after its session ended with this error: it was silent, or has ended or lost the session
 * (PROTOCOL.md, "Membership"). Its claim of the rank decides; without the store it counts as lost. Drivers that are not
 * `silent` report the end of the process. After a protocol violation no session is made again. In a static group the
 * end of a session ends the join.
 */
static bool is_member_still(const struct pair *pair, int error)
{
	const struct peer *p = pair->peer;
	const struct group *g = p->group;
	bool silence = error == -ETIMEDOUT || error == -ECONNRESET || error == -ESTALE || error == -EMSGSIZE;
	return silence && g->config.silent >> pair->port & 1 && !peer_is_self(p) && !p->unclaimed &&
	       (!g->store_lost || g->lease_ns) && (g->url.dynamic || !group_joining(g));
}

/* The session has ended. The driver's diagnosis of the path is added to the reason. Without the store the member is
 * connected again at once: what does not answer there may have left. */
static void on_down(struct pair *pair, const struct nic_event *ev)
{
	struct peer *p = pair->peer;
	unsigned local = pair->local, remote = pair->remote;
	struct info info;
	char text[2 * NIC_TEXT_BYTES_MAX], remark[NIC_TEXT_BYTES_MAX] = "";
	if (!peer_is_self(p) && info_decode(p->info, p->bytes, &info) == 0)
		route_diagnosis(p->group, pair->port, &info, remark, sizeof remark);
	snprintf(text, sizeof text, "%s%s", ev->text ? ev->text : strerror(-ev->error), remark);
	if (!is_member_still(pair, ev->error) || !pair_disconnect(pair, text)) {
		if (ev->error == -ECONNRESET && !(p->group->config.silent >> pair->port & 1))
			incarnation_died(p);
		peer_lost(p, text);
		return;
	}
	group_report(p->group, p, "is not connected", text);
	if (p->group->store_lost)
		pair_set_up(pair_find(p, local, remote));
}

static int port_event(void *ctx, const struct nic_event *ev)
{
	struct group_port *port = ctx;
	struct group *g = port->group;
	struct pair *pair;
	g->busy = true;
	switch (ev->type) {
	case NIC_EVENT_CONNECT:
		return on_connect_request(g, ev);
	case NIC_EVENT_UP:
		on_up(g, port, ev);
		break;
	case NIC_EVENT_DOWN:
		pair = pair_of_handle(g, port->index, ev->peer);
		if (pair && !pair->is_retired)
			on_down(pair, ev);
		break;
	case NIC_EVENT_FAILED:
		on_failed(ev);
		break;
	case NIC_EVENT_UNREACHABLE:
		pair = ev->peer == NIC_PEER_NONE ? ev->user : pair_of_handle(g, port->index, ev->peer);
		if (pair && !pair->is_retired && !peer_is_self(pair->peer))
			peer_suspect(pair->peer, "its process is gone: its host refuses the port");
		break;
	}
	return 0;
}

/* transport_migrated_fn: from port_event()'s step(). */
void session_migrated(void *ctx, uint32_t handle)
{
	struct group_port *port = ctx;
	struct pair *pair = pair_of_handle(port->group, port->index, handle);
	port->group->busy = true;
	if (pair && !pair->is_retired && pair->state == PAIR_UP)
		pair_path_changed(pair);
}

uint64_t session_step(struct group *g)
{
	uint64_t next = TIME_NEVER;
	for (unsigned i = 0; i < g->config.ports_n; i++) {
		struct nic_port *port = g->config.ports[i];
		uint64_t at = port->ops->step(port, g->now, port_event, &g->ports[i]);
		next = at < next ? at : next;
	}
	mails_take(g);
	uint64_t at = yields_step(g);
	next = at < next ? at : next;
	at = unanswered_step(g);
	next = at < next ? at : next;
	at = mails_post(g);
	if (g->phase == PHASE_CONNECT && session_all_up(g)) {
		g->phase = PHASE_READY;
		g->introduced_by = TIME_NEVER;
		incarnation_ready(g);
		rejoin_connect(g);
		lease_ready(g);
	}
	return at < next ? at : next;
}
