/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tracks the incarnations of members. Control thread. A restarted worker has the same rank, name and number of shards,
 * and another incarnation; in a dynamic group the rank may have another worker then. Members notice it by their watches
 * of the store, or by a connect request with an unknown incarnation, which causes a query of the store. Sessions with
 * the former incarnation end; later calls request sessions with the new one.
 *
 *   rank/<r> deleted   the process or its connection to the store is gone. If a driver reports the end of the process,
 *                      it decides; other sessions are probed; a member without sessions is lost
 *   info/<r> changed   a new incarnation
 */
#include "base/hash.h"
#include "control/group.h"
#include "control/lease.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool tracks_incarnations(const struct group *g)
{
	return g->phase >= PHASE_CONNECT && g->phase <= PHASE_BYE;
}

/* Its session is up, and etcd has ended its lease: it may do so after a time in which it did not run, and then the
 * member holds its records anew (lease.c gives it half of this time). */
static void evict_later(struct peer *p)
{
	struct group *g = p->group;
	session_probe_silent(p);
	if (!g->url.dynamic)
		return;
	p->evict_at = time_after(g->now, 2 * lease_interval(g->config.lease_ns));
	g->evict_at = p->evict_at < g->evict_at ? p->evict_at : g->evict_at;
}

uint64_t incarnation_evict(struct group *g)
{
	uint64_t next = TIME_NEVER;
	if (g->now < g->evict_at)
		return g->evict_at;
	for (int r = 0; r < g->url.world; r++) {
		struct peer *p = &g->peers[r];
		if (p->evict_at > g->now && p->evict_at < next)
			next = p->evict_at;
		if (!p->evict_at || p->evict_at > g->now)
			continue;
		p->evict_at = 0;
		if (p->dead || !p->unclaimed)
			continue;
		p->evicted = true;
		peer_lost(p, "its lease has run out");
		p->lost_without_store = true; /* it holds its records again if its own clock allows that */
	}
	g->evict_at = next;
	return next;
}

void incarnation_claim_ended(struct peer *p)
{
	struct group *g = p->group;
	/* While joining, the sessions end or fail to come up, with a better reason. */
	if (p->dead || (group_joining(g) && !g->url.dynamic))
		return;
	if (g->url.dynamic && g->url.scheme != URL_ETCD)
		peer_lost(p, p->evicted ? "its lease has run out" : "its process is gone, or it has left the group");
	else if (p->up_n)
		evict_later(p);
	else
		peer_lost(p, "its process is gone, or its connection to the store");
}

/* ---- a new incarnation ---- */

/* True if the fields that are constant for the group are the same. */
static bool is_same_member(const struct ctl_member *m, const struct info *info)
{
	return strcmp(m->name, info->name) == 0 && m->shards == info->shards;
}

static void incarnation_begin(struct peer *p, const struct info *info, const uint8_t *value, size_t value_len)
{
	struct group *g = p->group;
	struct ctl_member *m = &g->members[p->rank];
	bool known = p->known;
	if (known)
		peer_lost(p, "peer restarted");
	if (group_joining(g) && !g->lazy)
		return; /* peer_lost() has failed the join */
	uint64_t former = m->incarnation;
	if (join_info_store(p, info, value, value_len))
		return; /* without memory it stays lost; the next request of a session queries again */
	p->former_incarnation = former == info->incarnation ? p->former_incarnation : former;
	p->dead = p->probed = p->evicted = p->lost_without_store = false;
	if (known)
		peer_restarted(p);
	else
		dynamic_settle(p);
	group_report(g, p, known ? "is back" : "has joined", "");
	member_set_alive(p, true);
	leave_peer_restarted(p);
	g->busy = true;
}

void incarnation_seen(struct peer *p, const uint8_t *value, size_t value_len)
{
	struct group *g = p->group;
	const struct ctl_member *m = &g->members[p->rank];
	struct info info;
	if (!tracks_incarnations(g) || (!p->known && !g->url.dynamic) || peer_is_self(p) ||
	    join_info_decode(g, p->rank, value, value_len, &info))
		return;
	/* A member that was lost while there was no store, or without records, has them in the store again. */
	bool is_back = p->dead && p->lost_without_store && info.incarnation == m->incarnation;
	if ((info.incarnation == m->incarnation && !is_back) || info.incarnation == p->former_incarnation ||
	    (!g->url.dynamic && !is_same_member(m, &info)) || ctl_check_name(info.name, NULL))
		return;
	incarnation_begin(p, &info, value, value_len);
}

/* ---- watches and queries of the store ---- */

struct peer *incarnation_peer_of(struct group *g, const struct store_msg *reply, const char *what)
{
	size_t group = strlen(g->group), word = strlen(what), at = group + word + 2;
	int rank = 0;
	if (reply->key_len <= at || reply->key_len > at + 4 || memcmp(reply->key + group + 1, what, word))
		return NULL;
	for (; at < reply->key_len; at++) {
		if (reply->key[at] < '0' || reply->key[at] > '9')
			return NULL;
		rank = 10 * rank + reply->key[at] - '0';
	}
	return rank < g->url.world ? &g->peers[rank] : NULL;
}

static void info_news(void *user, int result, const struct store_msg *reply)
{
	struct group *g = user;
	struct peer *p = result || reply->status != STORE_OK ? NULL : incarnation_peer_of(g, reply, "info");
	g->busy = true;
	if (p)
		incarnation_seen(p, reply->value, reply->value_len);
}

static void rank_news(void *user, int result, const struct store_msg *reply)
{
	struct group *g = user;
	struct peer *p = result ? NULL : incarnation_peer_of(g, reply, "rank");
	g->busy = true;
	if (!p || peer_is_self(p))
		return;
	p->unclaimed = reply->status == STORE_MISSING;
	if (p->unclaimed && tracks_incarnations(g))
		incarnation_claim_ended(p);
}

static void watch(struct group *g, const char *what, bool from_now, store_done_fn *news)
{
	struct store_msg m = {.op = STORE_WATCH, .number = from_now ? STORE_WATCH_FROM_NOW : 0};
	group_submit(g, m, what, -1, TIME_NEVER, news, g);
}

/* In a large group a watch from the start would report every join to every member: there the watches begin when all
 * infos are read, and set-ups that fail show what has changed before. */
void incarnation_watch_claims(struct group *g, bool complete)
{
	if (complete == list_used(g))
		watch(g, "rank/", true, rank_news);
}

void incarnation_watch_infos(struct group *g)
{
	watch(g, "info/", list_used(g), info_news);
}

void incarnation_ready(struct group *g)
{
	for (int r = 0; r < g->url.world; r++)
		if (g->peers[r].unclaimed)
			incarnation_claim_ended(&g->peers[r]);
}

static void incarnation_read(void *user, int result, const struct store_msg *reply)
{
	struct peer *p = user;
	p->querying = false;
	p->group->busy = true;
	if (result == 0 && reply->status == STORE_OK)
		incarnation_seen(p, reply->value, reply->value_len);
	if (!p->known)
		dynamic_settle(p);
}

/* ---- loss of a member ---- */

static void claim_read(void *user, int result, const struct store_msg *reply)
{
	struct peer *p = user;
	char incarnation[17] = "";
	p->suspected = false;
	p->group->busy = true;
	if (result || !tracks_incarnations(p->group) || group_joining(p->group))
		return;
	if (reply->status == STORE_MISSING) {
		p->unclaimed = true;
		peer_lost(p, "its process is gone");
		incarnation_query(p);
	} else if (reply->status == STORE_OK && reply->value_len >= sizeof incarnation - 1) {
		memcpy(incarnation, reply->value, sizeof incarnation - 1);
		if (strtoull(incarnation, NULL, 16) != p->group->members[p->rank].incarnation)
			incarnation_query(p);
	}
}

void incarnation_died(struct peer *p)
{
	struct group *g = p->group;
	const struct ctl_member *m = &g->members[p->rank];
	char claim[JOIN_CLAIM_TEXT];
	if (g->url.scheme != URL_ETCD || p->dead || peer_is_self(p) || g->store_lost || !tracks_incarnations(g))
		return;
	int len = snprintf(claim, sizeof claim, "%016" PRIx64 " %s", m->incarnation, m->name);
	struct store_msg end = {.op = STORE_CAS, .expected = (const uint8_t *)claim, .expected_len = (size_t)len};
	group_submit(g, end, "rank", p->rank, time_after(g->now, FAR_CONNECT_TIMEOUT_NS), group_ignore_reply, g);
}

void peer_suspect(struct peer *p, const char *why)
{
	struct group *g = p->group;
	if (p->dead || p->suspected || !tracks_incarnations(g) || group_joining(g))
		return;
	if (p->unclaimed || g->store_lost) {
		peer_lost(p, why);
		incarnation_query(p);
		return;
	}
	p->suspected = true;
	group_request(g, STORE_GET, "rank", p->rank, time_after(g->now, FAR_CONNECT_TIMEOUT_NS), claim_read, p);
}

void incarnation_query(struct peer *p)
{
	struct group *g = p->group;
	if (p->querying || g->store_lost || !tracks_incarnations(g) || (group_joining(g) && !g->url.dynamic))
		return;
	p->querying = true;
	group_request(g, STORE_GET, "info", p->rank, time_after(g->now, FAR_CONNECT_TIMEOUT_NS), incarnation_read, p);
}

int incarnation_unknown(struct peer *p, uint64_t incarnation)
{
	struct group *g = p->group;
	if (incarnation == p->former_incarnation || g->store_lost || (group_joining(g) && !g->rejoining))
		return -ESTALE;
	if (group_joining(g))
		return -EINPROGRESS; /* the table may be older than the member's incarnation */
	/* The store was queried for this incarnation, and has another. */
	if (incarnation == p->claimed_incarnation && !p->querying)
		return -ESTALE;
	if (!p->querying)
		p->claimed_incarnation = incarnation;
	incarnation_query(p);
	return -EINPROGRESS;
}
