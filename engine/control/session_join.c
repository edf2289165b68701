/* SPDX-License-Identifier: BSD-3-Clause */
/** Sessions while a worker joins: those that it accepted early, and those that it makes at once. Control thread. */
#include "control/group.h"

/* Sessions accepted before the member's info was known: those of another incarnation are dropped. */
static void early_check(struct peer *p)
{
	const struct ctl_member *m = &p->group->members[p->rank];
	for (struct pair *pair = p->pairs; pair; pair = pair->next) {
		if (pair->state != PAIR_UP)
			continue;
		if (pair->accepted == m->incarnation && pair->remote < m->shards) {
			pair_attach(pair);
			continue;
		}
		pair_drop(pair);
		pair->state = PAIR_NONE;
		p->up_n--;
	}
}

static void connect_all(struct peer *p)
{
	struct group *g = p->group;
	for (unsigned local = 0; local < g->config.shards && group_joining(g); local++) {
		for (unsigned remote = 0; remote < g->members[p->rank].shards && group_joining(g); remote++) {
			struct pair *pair = pair_get(p, local, remote);
			if (!pair)
				group_fail(g, true, FAR_RESOURCE, "no memory for the sessions");
			else if (pair_is_higher(pair) || (peer_is_self(p) && local == remote) || !p->driver_shared)
				if (pair->state == PAIR_NONE)
					pair_begin(pair);
		}
	}
}

void session_set_info(struct peer *p, const struct info *info)
{
	struct route route;
	char why[192];
	p->driver_shared = peer_is_self(p) || route_common(p->group, info);
	if (peer_is_self(p)) {
		route_self(p->group, &route);
		route_publish(p, &route, "sessions of a worker with itself stay in the process");
		return;
	}
	bool found = route_next(p->group, info, 0, &route);
	route_why(p->group, info, found ? &route : NULL, "", why, sizeof why);
	route_publish(p, found ? &route : NULL, why);
}

void session_begin(struct group *g)
{
	for (int r = 0; r < g->url.world && group_joining(g); r++) {
		if (!g->peers[r].known)
			continue;
		member_set_alive(&g->peers[r], !g->peers[r].dead);
		early_check(&g->peers[r]);
		if (!g->lazy)
			connect_all(&g->peers[r]);
	}
}

bool session_all_up(const struct group *g)
{
	if (g->url.dynamic)
		return dynamic_introduced(g);
	return g->lazy || g->ups_posted == g->config.shards * g->shards_all;
}
