/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The way back in: another life of a member whose process ended while the group runs. The claim of its rank went with
 * its connection to the store; what it published is still there, and what the others have published too. It is READY as
 * soon as it has read that: nobody waits for anybody, as with sessions on demand, and the others learn of it by their
 * watches (incarnation.c).
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
	if (g->url.rank != 0) /* whose store it is: it has just begun */
		group_request(g, STORE_GET, "running", -1, NULL, 0, g->init_deadline, running_read, g);
}

/* A member that nobody holds the rank of: its process is gone, and what it published is what it was. */
static void holder_read(void *user, int result, const struct store_msg *reply)
{
	struct peer *p = user;
	if (join_reply_counts(p->group, result, reply) && reply->status == STORE_MISSING)
		p->dead = true;
}

static bool same_as_before(struct group *g, const struct info *before)
{
	if (strcmp(before->name, g->name) != 0)
		group_fail(
			g, false, FAR_NOT_UNIQUE,
			"rank %d of group \"%s\" is worker \"%.100s\", whose process is gone; who takes its place has "
			"its name, not \"%.100s\"",
			g->url.rank, g->group, before->name, g->name);
	else if (before->shards != g->config.shards)
		group_fail(g, false, FAR_INVALID,
			   "worker \"%.100s\" had %u shard%s before it was started again, which the others count on; "
			   "start it with as many, not %u",
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
	/* What it said at the end of its life before is not said of this one. */
	group_request(g, STORE_DELETE, "bye", g->url.rank, NULL, 0, g->init_deadline, group_ignore_reply, g);
	join_info_publish(g);
	/* The holder after what he published, so that one who comes meanwhile is not taken for dead; ours last, since
	 * the table is complete with the last info. */
	for (int r = 0; r < g->url.world; r++) {
		if (r == g->url.rank)
			continue;
		group_request(g, STORE_WAIT, "info", r, NULL, 0, g->init_deadline, join_info_read, &g->peers[r]);
		group_request(g, STORE_GET, "rank", r, NULL, 0, g->init_deadline, holder_read, &g->peers[r]);
	}
	group_request(g, STORE_WAIT, "info", g->url.rank, NULL, 0, g->init_deadline, join_info_read,
		      &g->peers[g->url.rank]);
}

void rejoin_claimed(struct group *g)
{
	group_request(g, STORE_GET, "info", g->url.rank, NULL, 0, g->init_deadline, former_read, g);
}

void rejoin_connect(struct group *g)
{
	if (g->url.rank == 0)
		group_request(g, STORE_SET, "running", -1, "1", 1, TIME_NEVER, group_ignore_reply, g);
	for (int r = 0; r < g->url.world && g->eager_rejoin; r++) {
		for (unsigned local = 0; local < g->config.shards && r != g->url.rank; local++)
			for (unsigned remote = 0; remote < g->members[r].shards; remote++)
				session_request(&g->peers[r], local, remote);
	}
	g->eager_rejoin = false;
}
