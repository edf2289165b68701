/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dynamic groups: members come and go. Control thread. A member holds three records in the store, which exist as long
 * as its connection: its rank, its name and its info. The watch of the infos reports every member that comes, with its
 * address, and every one that goes. It reports the infos in the order in which they were written, so this worker's own
 * info follows those of all members that joined before.
 */
#include "control/group.h"

#include "base/byteorder.h"
#include "base/hash.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Limit of the introduction: a member that does not answer learns of this worker later, by its watch. */
#define INTRODUCE_NS UINT64_C(1000000000)

static void info_seen(struct peer *p, const uint8_t *value, size_t value_len)
{
	struct group *g = p->group;
	p->unclaimed = false;
	p->evict_at = 0;
	if (!p->dead)
		p->evicted = false;
	if (g->phase != PHASE_GATHER) {
		incarnation_seen(p, value, value_len);
		return;
	}
	p->dead = p->evicted = false;
	join_info_take(p, value, value_len);
	if (peer_is_self(p) && group_joining(g))
		join_gathered(g);
}

static void info_gone(struct peer *p, bool by_lease)
{
	if (peer_is_self(p))
		return;
	p->unclaimed = true;
	p->evicted = by_lease;
	if (p->group->phase == PHASE_GATHER)
		p->dead = p->known;
	else if (p->known)
		incarnation_claim_ended(p);
}

static void info_news(void *user, int result, const struct store_msg *reply)
{
	struct group *g = user;
	struct peer *p = result ? NULL : incarnation_peer_of(g, reply, "info");
	g->busy = true;
	if (p && reply->status == STORE_OK)
		info_seen(p, reply->value, reply->value_len);
	else if (p && reply->status == STORE_MISSING)
		info_gone(p, reply->number == STORE_WATCH_LEASE);
}

static void name_claimed(void *user, int result, const struct store_msg *reply)
{
	struct group *g = user;
	if (!join_reply_counts(g, result, reply))
		return;
	if (reply->status == STORE_DIFFERS) {
		group_fail(g, false, FAR_NOT_UNIQUE,
			   "RPC worker name \"%s\" is not unique: rank %.*s of group \"%s\" has it", g->name,
			   (int)(reply->value_len < 8 ? reply->value_len : 8), (const char *)reply->value, g->group);
		return;
	}
	join_info_publish(g);
	dynamic_watch(g);
}

void dynamic_watch(struct group *g)
{
	const struct store_msg watch = {.op = STORE_WATCH};
	group_submit(g, watch, "info/", -1, TIME_NEVER, info_news, g);
}

static struct store_msg hold_request(const void *value, size_t len, int64_t how)
{
	struct store_msg m = store_request(STORE_HOLD, value, len);
	m.number = how;
	return m;
}

static void name_claim(struct group *g, int64_t how, uint64_t deadline, store_done_fn *done)
{
	char what[24], value[16];
	snprintf(what, sizeof what, "name/%016" PRIx64, hash64(g->name, strlen(g->name)));
	int len = snprintf(value, sizeof value, "%d", g->url.rank);
	group_submit(g, hold_request(value, (size_t)len, how), what, -1, deadline, done, g);
}

void dynamic_claimed(struct group *g)
{
	name_claim(g, 0, g->init_deadline, name_claimed);
}

static void reported(void *user, int result, const struct store_msg *reply)
{
	struct group *g = user;
	g->busy = true;
	if (result == 0 && reply->status == STORE_OK && g->client)
		store_client_send_copy(g->client);
}

/* Appends an incarnation that has ended; 0: none. A full frame is sent first. */
static size_t report_add(struct group *g, struct store_msg *m, uint8_t value[FAR_STORE_VALUE_MAX], int rank,
			 uint64_t incarnation)
{
	if (!incarnation)
		return m->value_len;
	if (m->value_len + 12 > FAR_STORE_VALUE_MAX) {
		store_client_submit(g->client, m, g->now, TIME_NEVER, reported, g);
		m->number = 0; /* the copy is reported */
		m->value_len = 4;
	}
	le_put(value + m->value_len, (uint64_t)rank, 4);
	le_put(value + m->value_len + 4, incarnation, 8);
	return m->value_len + 12;
}

void dynamic_report(struct group *g)
{
	uint8_t value[FAR_STORE_VALUE_MAX];
	if (g->url.scheme != URL_TCP)
		return;
	struct store_msg m = {.op = STORE_REPORT, .number = (int64_t)g->copy.version, .value = value, .value_len = 4};
	le_put(value, g->copy.version ? kv_count(g->copy.kv) : 0, 4);
	for (int r = 0; r < g->url.world; r++) {
		const struct peer *p = &g->peers[r];
		bool ended = p->dead && p->evicted && !p->lost_without_store;
		m.value_len = report_add(g, &m, value, r, ended ? g->members[r].incarnation : 0);
		m.value_len = report_add(g, &m, value, r, p->former_incarnation);
	}
	if (store_client_submit(g->client, &m, g->now, TIME_NEVER, reported, g))
		g->store_lost = true;
}

void dynamic_reclaim(struct group *g, store_done_fn *done)
{
	const struct peer *self = &g->peers[g->url.rank];
	char world[JOIN_WORLD_TEXT], claim[JOIN_CLAIM_TEXT];
	int64_t how = STORE_HOLD_AT_ONCE; /* once another has held a record, the others may know it as the member */
	group_submit(g, store_request(STORE_CAS, world, join_world_text(g, world)), "world", -1, TIME_NEVER,
		     group_ignore_reply, g);
	group_submit(g, hold_request(claim, join_claim_text(g, claim), how), "rank", g->url.rank, TIME_NEVER, done, g);
	name_claim(g, how, TIME_NEVER, done);
	group_submit(g, hold_request(self->info, self->bytes, how), "info", g->url.rank, TIME_NEVER, done, g);
}

void dynamic_introduce(struct group *g)
{
	g->introduced_by = time_after(g->now, INTRODUCE_NS);
	for (int r = 0; r < g->url.world && !g->config.lazy && g->known_n <= FAR_SESSIONS_EAGER_MAX; r++)
		if (g->peers[r].known && r != g->url.rank)
			session_request(&g->peers[r], 0, 0);
}

bool dynamic_introduced(const struct group *g)
{
	if (g->now >= g->introduced_by)
		return true;
	for (int r = 0; r < g->url.world; r++) {
		const struct pair *pair = r == g->url.rank ? NULL : pair_find(&g->peers[r], 0, 0);
		if (pair && (pair->state == PAIR_CONNECTING || pair->state == PAIR_YIELDING))
			return false;
	}
	return true;
}

void dynamic_settle(struct peer *p)
{
	for (struct pair *pair = p->pairs; pair; pair = pair->next) {
		if (!pair->requested || pair->state != PAIR_NONE)
			continue;
		if (p->known)
			pair_request(pair);
		else
			pair_unreachable(pair, FAR_UNREACHABLE, "no member of the group has this rank");
	}
}
