/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The way out. A member that has nothing outstanding sets its bye key, and goes when everybody has: nobody loses a
 * server that it still calls. The store outlives the sessions of whoever it serves: rank 0 closes it last.
 *
 * A member closes its sessions only after its bye is in the store, and requests of one client are answered in order.
 * So when a session ends, one question to the store decides whether its member left or died.
 */
#include "base/error.h"
#include "ctl/group.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DRAIN_POLL_NS UINT64_C(1000000) /* how often outstanding calls are counted while there are some */

static void left(struct group *g)
{
	group_close(g);
	g->phase = PHASE_LEFT;
	g->busy = true;
}

static void bye_heard(void *user, int result, const struct store_msg *reply)
{
	struct peer *p = user;
	if (result == 0 && reply->status == STORE_OK)
		p->bye = BYE_SAID;
	p->group->busy = true;
}

static void bye_answered(void *user, int result, const struct store_msg *reply)
{
	struct peer *p = user;
	bye_heard(user, result, reply);
	if (result == 0 && reply->status == STORE_MISSING && p->bye == BYE_UNKNOWN)
		p->bye = BYE_NEVER;
}

void leave_ask_bye(struct peer *p)
{
	if (p->bye == BYE_UNKNOWN && p->rank != p->group->url.rank)
		group_ask(p->group, STORE_GET, "bye", p->rank, NULL, 0, p->group->leave_deadline, bye_answered, p);
}

static void bye_stored(void *user, int result, const struct store_msg *reply)
{
	struct group *g = user;
	g->bye_done = result == 0 && reply->status == STORE_OK;
	if (g->bye_done)
		g->peers[g->url.rank].bye = BYE_SAID;
	g->busy = true;
}

void leave_begin(struct group *g)
{
	g->phase = PHASE_DRAIN;
	/* A process that begins anew at the same address must not find this store: nobody of this group needs to
	 * connect any more, and it cannot begin before our own bye. */
	if (g->server)
		store_server_shut(g->server);
	for (int r = 0; r < g->url.world && !g->store_lost; r++) {
		struct peer *p = &g->peers[r];
		if (r == g->url.rank)
			continue;
		if (p->dead)
			leave_ask_bye(p);
		else
			group_ask(g, STORE_WAIT, "bye", r, NULL, 0, g->leave_deadline, bye_heard, p);
	}
}

/* ---- results ---- */

static void members_with(const struct group *g, enum peer_bye bye, struct names *names)
{
	for (int r = 0; r < g->url.world; r++) {
		if (r != g->url.rank && g->peers[r].bye == bye)
			names_add(names, r, g->members[r].name);
	}
}

static void finish(struct group *g)
{
	struct names lost = {.text = ""};
	members_with(g, BYE_NEVER, &lost);
	if (lost.n)
		err_set(&g->err, FAR_PEER_LOST, "lost before the shutdown: %s", names_end(&lost));
}

static void finish_late(struct group *g)
{
	struct names missing = {.text = ""}, lost = {.text = ""};
	uint64_t calls = g->config.outstanding(g->config.ctx);
	char own[64] = "";
	members_with(g, BYE_UNKNOWN, &missing);
	members_with(g, BYE_NEVER, &lost);
	if (calls)
		snprintf(own, sizeof own, "; %" PRIu64 " calls of this worker are outstanding", calls);
	if (missing.n || calls)
		err_set(&g->err, FAR_TIMEOUT, "the shutdown's deadline passed%s%s%s%s%s",
			missing.n ? "; did not come: " : "", missing.n ? names_end(&missing) : "", own,
			lost.n ? "; lost before: " : "", lost.n ? names_end(&lost) : "");
	else if (lost.n)
		finish(g);
	else
		err_set(&g->err, FAR_TIMEOUT, "the shutdown's deadline passed before the store at %s answered",
			g->store);
}

/* Without the store nobody's bye can be heard any more: the only thing left to tell is whether rank 0 left in order. */
static void finish_without_store(struct group *g)
{
	struct names missing = {.text = ""};
	members_with(g, BYE_UNKNOWN, &missing);
	if (g->peers[0].bye != BYE_SAID)
		err_set(&g->err, FAR_PEER_LOST,
			"worker \"%s\" (rank 0), which hosts the store at %s, was lost before the shutdown",
			g->members[0].name, g->store);
	else if (missing.n)
		err_set(&g->err, FAR_TIMEOUT, "rank 0 has closed the store; until then did not come: %s",
			names_end(&missing));
	else
		finish(g);
}

/* ---- steps ---- */

static bool byes_complete(const struct group *g)
{
	for (int r = 0; r < g->url.world; r++) {
		if (r != g->url.rank && g->peers[r].bye == BYE_UNKNOWN)
			return false;
	}
	return g->bye_done;
}

static void bye_step(struct group *g)
{
	if (!g->bye_sent) {
		g->bye_sent = true;
		group_ask(g, STORE_SET, "bye", g->url.rank, "1", 1, g->leave_deadline, bye_stored, g);
	}
	if (byes_complete(g)) {
		finish(g);
		g->phase = PHASE_CLOSE;
	}
}

static uint64_t drain_step(struct group *g)
{
	if (g->config.outstanding(g->config.ctx))
		return g->now + DRAIN_POLL_NS;
	g->phase = PHASE_BYE;
	return TIME_NEVER;
}

uint64_t leave_step(struct group *g)
{
	uint64_t next = TIME_NEVER;
	if (!group_leaving(g))
		return TIME_NEVER;
	if (g->phase == PHASE_DRAIN)
		next = drain_step(g);
	if (g->phase == PHASE_BYE && !g->store_lost)
		bye_step(g);
	if (g->phase == PHASE_BYE && g->store_lost) {
		finish_without_store(g);
		left(g);
	} else if (g->phase == PHASE_CLOSE) {
		if (!g->server || !store_server_clients(g->server) || g->now >= g->leave_deadline)
			left(g);
	} else if (g->now >= g->leave_deadline) {
		finish_late(g);
		left(g);
	}
	return g->leave_deadline < next && group_leaving(g) ? g->leave_deadline : next;
}
