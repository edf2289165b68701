/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The lease of a member of a dynamic group whose store another process hosts. Control thread. PROTOCOL.md, "Leases".
 *
 * The store's client renews the lease (store_client.c); this file publishes its end to the shards, which stop by
 * themselves then (core/lease.c). A member without a connection to the store serves on until that time. It connects
 * again, and gives a store that has begun anew its records; a store that has ended its lease makes it come back as
 * another incarnation. A refused connection shows that there is no store, so nobody can end the lease meanwhile.
 */
#include "control/lease.h"
#include "base/log.h"
#include "base/mutant.h"
#include "base/random.h"
#include "control/group.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_NS  UINT64_C(200000000)   /* between two attempts to be a member again */
#define REPORT_NS UINT64_C(10000000000) /* between two log lines about attempts that failed */

static const char run_out[] = "the lease of this worker has run out";

/* Extends the lease, unless a shard has found that it is over. */
static void lease_publish(struct group *g, uint64_t until)
{
	uint64_t before = g->lease_until;
	/* Release: pairs with lease_until() of the shards. */
	if (atomic_compare_exchange_strong_explicit(g->config.lease, &before, until, memory_order_release,
						    memory_order_relaxed))
		g->lease_until = until;
}

/* Follows the acknowledged renewals, those that wait in the host of a store that does not run, and refusals while there
 * is no store. */
static void lease_follow(struct group *g)
{
	uint64_t from = g->client && !g->reclaiming ? store_client_kept(g->client) : 0;
	uint64_t arrived = g->client && !g->reclaiming && g->now < g->lease_until ? store_client_arrived(g->client) : 0;
	uint64_t refused = g->client ? store_client_refused(g->client) : 0;
	uint64_t own = g->client ? store_client_own_lease(g->client) : 0;
	if (own)
		g->lease_ns = own;
	if (arrived > from)
		from = arrived;
	if (refused > from)
		from = refused;
	uint64_t until = time_after(from, g->lease_ns);
	if (from && (g->lease_until == TIME_NEVER || until > g->lease_until))
		lease_publish(g, until);
}

/* ---- a member that is none any more ---- */

static void incarnation_renew(struct group *g)
{
	struct ctl_member *self = &g->members[g->url.rank];
	const struct random_source *random = g->config.random ? g->config.random : &random_kernel;
	if (MUTANT(EVICTED_SAME))
		return;
	g->config.incarnation = random_next(random);
	atomic_store_explicit(&self->incarnation, g->config.incarnation, memory_order_relaxed);
	if (g->config.renewed)
		g->config.renewed(g->config.ctx, g->config.incarnation);
	g->renewal_due = (1u << g->config.shards) - 1;
}

static void peers_forget(struct group *g, const char *why)
{
	for (int r = 0; r < g->url.world; r++) {
		struct peer *p = &g->peers[r];
		bool self = peer_is_self(p);
		if (!self && !p->dead && p->known)
			peer_lost(p, why);
		peer_end_sessions(p, why);
		peer_restarted(p);
		p->known = p->dead = p->suspected = p->querying = p->unclaimed = p->evicted = false;
		p->evict_at = 0;
		p->former_incarnation = 0;
		if (!self) /* the same incarnation is a new one for this one */
			atomic_store_explicit(&g->members[r].incarnation, 0, memory_order_relaxed);
	}
	g->known_n = 0;
	g->shards_all = g->shards_max = 0;
}

static void client_end(struct group *g)
{
	store_client_destroy(g->client);
	g->client = NULL;
	g->store_lost = g->reclaiming = g->reclaim_sent = false;
}

void lease_lose(struct group *g, const char *why)
{
	const struct far_log_field fields[] = {{"worker", g->name}, {"group", g->group}, {"reason", why}};
	if (g->away || !g->lease_ns)
		return;
	log_fields(
		FAR_LOG_WARNING, fields, sizeof fields / sizeof *fields,
		"worker \"%s\" is no member of group \"%s\" any more and serves nobody: %s; it joins again as soon as "
		"it can",
		g->name, g->group, why);
	/* The shards stop before they read the mails. */
	atomic_store_explicit(g->config.lease, LEASE_OVER, memory_order_release);
	g->lease_until = LEASE_OVER;
	g->away = true;
	g->client_is_over = true; /* replies of it are being handled, perhaps */
	peers_forget(g, why);
	incarnation_renew(g);
	g->phase = PHASE_START;
	g->join_at = g->now;
	g->report_at = time_after(g->now, REPORT_NS);
	g->busy = true;
}

void lease_is_over_at_shard(struct group *g, struct peer *p)
{
	if (g->phase == PHASE_READY)
		lease_lose(g, run_out);
	else
		peer_lost(p, run_out);
}

/* The next try to join is another incarnation: members may have seen the end of this one. */
void lease_join_failed(struct group *g)
{
	if (g->now >= g->report_at) {
		log_line(FAR_LOG_WARNING, "worker \"%s\" still cannot join group \"%s\" again: %s", g->name, g->group,
			 g->err.text);
		g->report_at = time_after(g->now, REPORT_NS);
	}
	memset(&g->err, 0, sizeof g->err);
	g->phase = PHASE_START;
	g->client_is_over = true;
	g->join_at = time_after(g->now, RETRY_NS);
	for (int r = 0; r < g->url.world; r++) {
		if (g->peers[r].known && r != g->url.rank)
			member_set_alive(&g->peers[r], false);
	}
	peers_forget(g, "");
	incarnation_renew(g);
}

void lease_gathered(struct group *g)
{
	for (int r = 0; r < g->url.world; r++)
		dynamic_settle(&g->peers[r]);
}

void lease_ready(struct group *g)
{
	if (!g->away)
		return;
	g->away = false;
	log_line(FAR_LOG_INFO, "worker \"%s\" is a member of group \"%s\" again, as incarnation %016" PRIx64, g->name,
		 g->group, g->config.incarnation);
}

static uint64_t away_step(struct group *g)
{
	if (g->client_is_over) {
		client_end(g);
		g->client_is_over = false;
	}
	if (g->leave_requested) {
		client_end(g);
		g->away = false;
		g->phase = PHASE_LEFT;
		g->busy = true;
		return TIME_NEVER;
	}
	if (g->phase != PHASE_START)
		return TIME_NEVER;
	if (g->now < g->join_at)
		return g->join_at;
	join_start(g);
	return TIME_NEVER;
}

/* ---- a member that has lost its connection to the store ---- */

static void reclaimed(void *user, int result, const struct store_msg *reply)
{
	struct group *g = user;
	g->busy = true;
	if (result || g->away)
		return;
	if (reply->status != STORE_OK) {
		lease_lose(g, reply->status == STORE_DIFFERS ? "another worker has taken its rank or name meanwhile"
							     : "the store does not take its records");
		return;
	}
	if (--g->reclaims_n || !g->reclaiming)
		return;
	g->reclaiming = g->store_lost = g->reclaim_sent = false;
	log_line(FAR_LOG_INFO, "worker \"%s\" has its records in the store at %s again", g->name, g->store);
	dynamic_watch(g);
}

static void own_info_read(void *user, int result, const struct store_msg *reply)
{
	struct group *g = user;
	const struct peer *self = &g->peers[g->url.rank];
	g->busy = true;
	if (result || g->away)
		return;
	bool there = reply->status == STORE_OK && reply->value_len == self->bytes &&
		     memcmp(reply->value, self->info, self->bytes) == 0;
	if (!there && !g->store_is_new && !MUTANT(EVICTED_RECLAIMS)) {
		lease_lose(g, "the store has ended its lease");
		return;
	}
	g->reclaims_n = 3;
	dynamic_reclaim(g, reclaimed);
}

/* The host's incarnation shows whether this is the same store. */
static void host_read(void *user, int result, const struct store_msg *reply)
{
	struct group *g = user;
	char text[17] = "";
	if (result || g->away)
		return;
	if (reply->status == STORE_OK && reply->value_len >= sizeof text - 1)
		memcpy(text, reply->value, sizeof text - 1);
	g->store_is_new = g->url.scheme == URL_TCP && strtoull(text, NULL, 16) != g->members[0].incarnation;
}

static void reclaim_step(struct group *g)
{
	struct peer *host = &g->peers[0];
	if (g->url.scheme == URL_TCP && g->reclaiming && g->client && store_client_refused(g->client) && host->known &&
	    !host->dead)
		peer_lost(host, "its process is gone: its host refuses connections to the store");
	if (!g->client || store_client_connection(g->client) == STORE_LOST) {
		if (g->now < g->join_at)
			return;
		if (!g->reclaiming)
			log_line(FAR_LOG_WARNING,
				 "worker \"%s\" has lost the store at %s; calls go on, joins wait until it is back",
				 g->name, g->store);
		g->join_at = time_after(g->now, RETRY_NS);
		client_end(g);
		g->reclaiming = g->store_lost = true;
		g->client = join_client(g);
		if (g->client)
			join_login(g);
		g->busy = true;
	} else if (store_client_connection(g->client) == STORE_CONNECTED && !g->reclaim_sent) {
		g->reclaim_sent = true;
		dynamic_report(g);
		group_request(g, STORE_GET, "rank", 0, TIME_NEVER, host_read, g);
		group_request(g, STORE_GET, "info", g->url.rank, TIME_NEVER, own_info_read, g);
	}
}

/* Over etcd: true once another client has taken the records of a lease that is over, or they are not held anew in time.
 * Sets *until to the end of that time. */
static bool records_are_lost(const struct group *g, uint64_t *until)
{
	uint64_t lost_at = g->client ? store_client_lease_lost(g->client) : 0;
	*until = lost_at ? time_after(lost_at, lease_interval(g->lease_ns)) : TIME_NEVER;
	return g->now >= *until || (g->store_lost && g->client && store_client_error(g->client) == -ESTALE);
}

uint64_t lease_step(struct group *g)
{
	uint64_t until;
	if (!g->lease_ns)
		return TIME_NEVER;
	if (g->phase == PHASE_GATHER || g->phase == PHASE_CONNECT || g->phase == PHASE_READY || g->phase == PHASE_DRAIN)
		lease_follow(g);
	if (g->away)
		return away_step(g);
	if (g->phase != PHASE_READY)
		return TIME_NEVER;
	if (g->now >= g->lease_until || atomic_load_explicit(g->config.lease, memory_order_relaxed) == LEASE_OVER) {
		lease_lose(g, run_out);
		return g->now;
	}
	if (records_are_lost(g, &until)) {
		lease_lose(g, "the store has ended its lease");
		return g->now;
	}
	if (g->store_lost)
		reclaim_step(g);
	until = g->lease_until < until ? g->lease_until : until;
	return g->store_lost && g->join_at > g->now && g->join_at < until ? g->join_at : until;
}
