/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rejoin: a new incarnation of a member joins the running group. Control thread. The claim of its rank has ended with
 * the former incarnation's connection to the store; the infos of all members are still there. The new incarnation is
 * READY when it has read them, without waiting for other members; these notice it by their watches (incarnation.c).
 */
#include "base/error.h"
#include "control/group.h"

#include <stdatomic.h>
#include <string.h>

static void running_read(void *user, int result, const struct store_msg *reply)
{
	struct group *g = user;
	if (join_reply_counts(g, result, reply))
		g->rejoining = reply->status == STORE_OK;
}

void rejoin_query(struct group *g)
{
	if (!group_hosts_store(g)) /* a store that this worker has just made: the group is not running */
		group_request(g, STORE_GET, "running", -1, g->init_deadline, running_read, g);
}

/* `done` of the GET for a member's claim: without a claim its process has ended, and its info is a former one. */
static void holder_read(void *user, int result, const struct store_msg *reply)
{
	struct peer *p = user;
	if (join_reply_counts(p->group, result, reply) && reply->status == STORE_MISSING)
		p->dead = true;
}

static bool same_as_before(struct group *g, const struct info *before)
{
	if (strcmp(before->name, g->name) != 0)
		group_fail(g, false, FAR_NOT_UNIQUE,
			   "rank %d of group \"%s\" is worker \"%.100s\", whose process has ended; its successor must "
			   "have the same name, not \"%.100s\"",
			   g->url.rank, g->group, before->name, g->name);
	else if (before->shards != g->config.shards)
		group_fail(g, false, FAR_INVALID,
			   "worker \"%.100s\" had %u shard%s before its restart, and the group's tables are made for "
			   "that; start it with as many, not %u",
			   g->name, before->shards, before->shards == 1 ? "" : "s", g->config.shards);
	return group_joining(g);
}

static void former_read(void *user, int result, const struct store_msg *reply)
{
	struct group *g = user;
	struct info before;
	if (!join_reply_counts(g, result, reply))
		return;
	if (reply->status == STORE_OK &&
	    join_info_decode(g, g->url.rank, reply->value, reply->value_len, &before) == 0 &&
	    !same_as_before(g, &before))
		return;
	/* The bye of the former incarnation does not count for this one. */
	group_request(g, STORE_DELETE, "bye", g->url.rank, g->init_deadline, group_ignore_reply, g);
	join_info_publish(g);
	/* Each claim after the info, so that a member that joins in between does not count as dead; this worker's own
	 * info last, since the last info completes the table. */
	for (int r = 0; r < g->url.world; r++) {
		if (r == g->url.rank)
			continue;
		group_request(g, STORE_WAIT, "info", r, g->init_deadline, join_info_read, &g->peers[r]);
		group_request(g, STORE_GET, "rank", r, g->init_deadline, holder_read, &g->peers[r]);
	}
	group_request(g, STORE_WAIT, "info", g->url.rank, g->init_deadline, join_info_read, &g->peers[g->url.rank]);
}

void rejoin_claimed(struct group *g)
{
	group_request(g, STORE_GET, "info", g->url.rank, g->init_deadline, former_read, g);
}

void rejoin_connect(struct group *g)
{
	if (g->url.rank == 0 && !g->url.dynamic)
		group_submit(g, store_request(STORE_SET, "1", 1), "running", -1, TIME_NEVER, group_ignore_reply, g);
	for (int r = 0; r < g->url.world && g->eager_rejoin; r++) {
		for (unsigned local = 0; local < g->config.shards && r != g->url.rank; local++)
			for (unsigned remote = 0; remote < g->members[r].shards; remote++)
				session_request(&g->peers[r], local, remote);
	}
	g->eager_rejoin = false;
}
