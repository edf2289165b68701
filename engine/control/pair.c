/* SPDX-License-Identifier: BSD-3-Clause */
/* Pairs of a local shard and a member's shard: lookup, changes of state, end. Control thread. */
#include "control/group.h"
#include "transport/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lookup ---- */

struct pair *pair_find(const struct peer *p, unsigned local, unsigned remote)
{
	struct pair *pair = p->pairs;
	while (pair && (pair->local != local || pair->remote != remote))
		pair = pair->next;
	return pair;
}

struct pair *pair_get(struct peer *p, unsigned local, unsigned remote)
{
	struct pair *pair = pair_find(p, local, remote);
	if (pair || !(pair = calloc(1, sizeof *pair)))
		return pair;
	pair->peer = p;
	pair->local = (uint8_t)local;
	pair->remote = (uint8_t)remote;
	pair->handle = NIC_PEER_NONE;
	pair->next = p->pairs;
	p->pairs = pair;
	return pair;
}

bool pair_register(struct group_port *port, uint32_t handle, struct pair *pair)
{
	if (handle >= port->peers_n) {
		uint32_t n = port->peers_n ? port->peers_n : 16;
		while (n <= handle)
			n *= 2;
		struct pair **grown = realloc(port->by_peer, n * sizeof(struct pair *));
		if (!grown)
			return false;
		memset(grown + port->peers_n, 0, (n - port->peers_n) * sizeof(struct pair *));
		port->by_peer = grown;
		port->peers_n = n;
	}
	port->by_peer[handle] = pair;
	return true;
}

struct pair *pair_of_handle(const struct group *g, unsigned port, uint32_t handle)
{
	return port < g->config.ports_n && handle < g->ports[port].peers_n ? g->ports[port].by_peer[handle] : NULL;
}

void pair_drop(struct pair *pair)
{
	struct group *g = pair->peer->group;
	if (pair->handle == NIC_PEER_NONE)
		return;
	g->ports[pair->port].by_peer[pair->handle] = NULL;
	group_port_drop(g, pair->port, pair->handle);
	pair->handle = NIC_PEER_NONE;
}

static void pair_free(struct pair *pair)
{
	free(pair->failed);
	free(pair->text);
	free(pair);
}

static void pairs_free(struct pair *list)
{
	while (list) {
		struct pair *pair = list;
		list = pair->next;
		pair_free(pair);
	}
}

/* A retired pair stays until the port has reported its attempt, the shard has detached, and its mails are posted. */
void pair_free_if_unused(struct pair *pair)
{
	struct pair **at = &pair->peer->retired;
	if (!pair->is_retired || pair->attempt || pair->queued || pair->handle != NIC_PEER_NONE)
		return;
	while (*at != pair)
		at = &(*at)->next;
	*at = pair->next;
	pair_free(pair);
}

void session_free(struct group *g)
{
	for (int r = 0; g->peers && r < g->url.world; r++) {
		pairs_free(g->peers[r].pairs);
		pairs_free(g->peers[r].retired);
		g->peers[r].pairs = g->peers[r].retired = NULL;
	}
	for (unsigned i = 0; i < INFO_PORTS_MAX; i++) {
		free(g->ports[i].by_peer);
		g->ports[i].by_peer = NULL;
		g->ports[i].peers_n = 0;
	}
}

/* ---- changes of state ---- */

/* Publishes the path of the session and why it is this one, as far as this side's attempts show. */
static void pair_publish_route(const struct pair *pair)
{
	struct peer *p = pair->peer;
	struct group *g = p->group;
	struct route route = {.port = pair->port};
	char why[192];
	struct info info;
	/* session_set_info() has published the path to this worker itself. */
	if (peer_is_self(p) || info_decode(p->info, p->bytes, &info))
		return;
	bool found = pair->initiated && pair->tried && route_next(g, &info, pair->tried - 1, &route);
	for (unsigned from = 0; !found && route_next(g, &info, from, &route); from = route.number + 1)
		found = route.port == pair->port;
	route.port = pair->port;
	route_why(g, &info, &route, pair->failed ? pair->failed : "", why, sizeof why);
	route_publish(p, &route, found ? why : "the other side connected by it");
}

/* Adds the paths over the other ports as alternatives, which the transport uses when the session's path fails. */
static void pair_add_paths(const struct pair *pair)
{
	struct group *g = pair->peer->group;
	struct nic_port *own = g->config.ports[pair->port];
	struct route route;
	struct info info;
	if (peer_is_self(pair->peer) || info_decode(pair->peer->info, pair->peer->bytes, &info))
		return;
	for (unsigned from = 0; route_next(g, &info, from, &route); from = route.number + 1) {
		struct nic_err err;
		/* An error means that the port cannot be an alternative, such as shm: it is left out. */
		if (route.port != pair->port)
			transport_path_add(own, pair->handle, g->config.ports[route.port], &route.addr, route.number,
					   &err);
	}
}

void pair_path_changed(struct pair *pair)
{
	struct peer *p = pair->peer;
	struct group *g = p->group;
	struct nic_port *own = g->config.ports[pair->port];
	uint32_t number = transport_path_current(own, pair->handle);
	struct route route;
	struct info info;
	char why[192];
	if (number == TRANSPORT_PATH_PRIMARY) {
		pair_publish_route(pair);
	} else if (!info_decode(p->info, p->bytes, &info) && route_next(g, &info, number, &route)) {
		snprintf(why, sizeof why, "no reply over its first path, %s", own->ops->name);
		route_publish(p, &route, why);
	}
}

void pair_attach(struct pair *pair)
{
	pair_publish_route(pair);
	pair_add_paths(pair);
	pair->up_posted = true;
	pair->requested = pair->leftover = false;
	pair->due_up = true;
	mails_queue(pair);
}

void pair_yield_end(struct pair *pair)
{
	if (pair->yielded)
		pair->peer->group->yielding_n--;
	pair->yielded = false;
}

void pair_unreachable(struct pair *pair, enum far_status status, const char *text)
{
	struct group *g = pair->peer->group;
	pair_yield_end(pair);
	pair->state = status == FAR_PEER_LOST ? PAIR_DEAD : PAIR_NONE;
	g->busy = true;
	if (pair->requested) {
		pair->requested = false;
		pair->due_unreachable = true;
		pair->status = (uint8_t)status;
		free(pair->text);
		pair->text = strdup(text);
		mails_queue(pair);
	}
	/* Between two shards of this worker one pair makes the attempt for both. */
	struct pair *other = peer_is_self(pair->peer) ? pair_find(pair->peer, pair->remote, pair->local) : NULL;
	if (other && other->requested && !other->attempt)
		pair_unreachable(other, status, text);
}

/* Ends the session with PEER_LOST; if the shard has it, the shard detaches before the handle is dropped. */
static void pair_end(struct pair *pair, const char *why)
{
	bool up = pair->state == PAIR_UP;
	if (pair->state == PAIR_DEAD)
		return;
	pair->requested |= pair->leftover;
	pair_unreachable(pair, FAR_PEER_LOST, why);
	pair->status = FAR_PEER_LOST;
	if (up && pair->up_posted) {
		free(pair->text);
		pair->text = strdup(why);
		pair->due_down = true;
		mails_queue(pair);
	} else if (up) {
		pair_drop(pair);
	}
}

/* Moves the pair to the retired ones, until port, shard and mail queue release it. */
static void pair_retire(struct pair *pair)
{
	pair->is_retired = true;
	pair->next = pair->peer->retired;
	pair->peer->retired = pair;
}

bool pair_disconnect(struct pair *pair, const char *why)
{
	struct peer *p = pair->peer;
	struct pair **at = &p->pairs, *fresh;
	while (*at != pair)
		at = &(*at)->next;
	*at = pair->next;
	fresh = pair_get(p, pair->local, pair->remote);
	if (!fresh) {
		pair->next = p->pairs;
		p->pairs = pair;
		return false;
	}
	fresh->leftover = pair->up_posted;
	pair->state = PAIR_DEAD;
	p->up_n--;
	p->group->busy = true;
	pair_retire(pair);
	if (pair->up_posted) {
		free(pair->text);
		pair->text = strdup(why);
		pair->status = FAR_UNREACHABLE;
		pair->due_down = true;
		mails_queue(pair);
	} else {
		pair_drop(pair);
	}
	pair_free_if_unused(pair);
	return true;
}

void member_set_alive(const struct peer *p, bool alive)
{
	const struct ctl_config *c = &p->group->config;
	/* After the other fields: a reader of `alive` sees the incarnation. Pairs with describe() in api/workers.c. */
	atomic_store_explicit(&p->group->members[p->rank].alive, alive, memory_order_release);
	if (c->members_changed)
		c->members_changed(c->ctx);
}

void peer_end_sessions(struct peer *p, const char *why)
{
	for (struct pair *pair = p->pairs; pair; pair = pair->next)
		pair_end(pair, why);
}

void peer_lost(struct peer *p, const char *why)
{
	struct group *g = p->group;
	if (p->dead)
		return;
	p->dead = true;
	group_report(g, p, "is lost", why);
	/* Records that a store lacks may be those of a member that has not connected to it yet. */
	p->lost_without_store = g->store_lost || (g->url.dynamic && p->unclaimed && !p->evicted);
	struct ctl_member *m = &g->members[p->rank];
	atomic_store_explicit(&m->lost_by_lease, p->evicted, memory_order_relaxed);
	atomic_store_explicit(&m->lost_incarnation, atomic_load_explicit(&m->incarnation, memory_order_relaxed),
			      memory_order_relaxed);
	member_set_alive(p, false);
	g->busy = true;
	peer_end_sessions(p, why);
	if (group_joining(g) && !g->url.dynamic)
		group_fail(g, true, FAR_PEER_LOST, "worker \"%s\" (rank %d) was lost while joining: %s",
			   g->members[p->rank].name, p->rank, why);
	else if (group_leaving(g))
		leave_query_bye(p);
}

/* The mails of the retired pairs are queued before those of the new ones, so a shard receives the end first. */
void peer_restarted(struct peer *p)
{
	struct pair *list = p->pairs;
	p->pairs = NULL;
	p->up_n = 0;
	while (list) {
		struct pair *old = list;
		list = old->next;
		struct pair *new = pair_get(p, old->local, old->remote);
		pair_retire(old);
		/* NULL: no memory; calls end with PEER_LOST as before. */
		if (new) {
			new->due_restarted = true;
			mails_queue(new);
		}
		pair_free_if_unused(old);
	}
}
