/* SPDX-License-Identifier: BSD-3-Clause */
/** Rounds of far_all_gather() and far_barrier(): the gathering side. On shard 0; gathers_create() at start.
 * Shard thread of shard 0. */
#include "builtin/gather.h"

#include "agent/agent.h"
#include "base/hash.h"
#include "builtin/gather_inner.h"
#include "core/loop.h"
#include "core/shard.h"
#include "core/timer.h"

#include <stdlib.h>
#include <string.h>

#define CHECK_NS (20 * FAR_MS) /* between two checks whether the missing workers are alive */

/* A member in a round. */
struct slot {
	struct far_deferred *waits; /* its request; NULL: not received, or answered */
	bool here;                  /* the request was received */
	uint64_t deadline;          /* of its request; TIME_NEVER: none */
	struct far_val value;       /* a copy, the slot's own until the round ends */
};

/** An open round: at least one request waits in it. */
struct gather {
	struct shard_timer alarm; /* must be first */
	struct gather *next;      /* next open round of the set, by number */
	struct gather_set *set;
	struct far_buf *buf; /* its memory */
	uint64_t round;      /* number, from 0 */
	uint32_t come;       /* requests received */
	uint32_t waiting;    /* of these, not answered */
	struct slot slots[];
};

/* A member of a set. */
struct member {
	uint64_t incarnation; /* at its last request; 0: none yet */
	uint64_t rounds;      /* rounds that it has joined or skipped */
	int32_t rank;
};

/** A set of workers that gather here. */
struct gather_set {
	struct gather_set *next;
	struct far_agent *agent;
	struct far_buf *buf;
	struct gather *open; /* open rounds */
	uint64_t hash;       /* of the ranks */
	uint64_t begun;      /* rounds begun, ever */
	uint32_t n;
	struct member members[];
};

struct gathers *gathers_create(void)
{
	struct gathers *g = calloc(1, sizeof *g);
	if (g)
		pthread_mutex_init(&g->lock, NULL);
	return g;
}

void gathers_destroy(struct gathers *g)
{
	while (g->skips) {
		struct far_buf *buf = g->skips->buf;
		g->skips = g->skips->next;
		buf_unref(buf);
	}
	pthread_mutex_destroy(&g->lock);
	free(g);
}

/* ---- sets ---- */

static struct gather_set *set_find(const struct gathers *g, const int32_t *ranks, uint32_t n, uint64_t hash)
{
	struct gather_set *set = g->sets;
	for (; set; set = set->next) {
		uint32_t i = 0;
		if (set->hash != hash || set->n != n)
			continue;
		while (i < n && set->members[i].rank == ranks[i])
			i++;
		if (i == n)
			break;
	}
	return set;
}

static struct gather_set *set_of(struct far_agent *a, const int32_t *ranks, uint32_t n)
{
	struct gathers *g = a->gathers;
	uint64_t hash = hash64(ranks, n * sizeof *ranks);
	struct gather_set *set = set_find(g, ranks, n, hash);
	if (set || g->sets_n == FAR_GATHER_SETS_MAX)
		return set;
	struct far_buf *buf = buf_alloc(sizeof *set + n * sizeof *set->members);
	if (!buf)
		return NULL;
	set = buf_data(buf);
	*set = (struct gather_set){.next = g->sets, .agent = a, .buf = buf, .hash = hash, .n = n};
	for (uint32_t i = 0; i < n; i++)
		set->members[i] = (struct member){.rank = ranks[i]};
	g->sets = set;
	g->sets_n++;
	return set;
}

/* ---- rounds ---- */

static uint64_t incarnation_of(const struct gather_set *set, uint32_t i)
{
	const struct ctl_member *m = &set->agent->members[set->members[i].rank];
	return atomic_load_explicit(&m->incarnation, memory_order_relaxed);
}

/* Writes the names of the missing members, as many as fit. */
static void name_missing(const struct gather *g, char *text, size_t cap)
{
	size_t len = 0;
	uint32_t named = 0, missing = g->set->n - g->come;
	text[0] = '\0';
	for (uint32_t i = 0; i < g->set->n && named < missing; i++) {
		const char *name = AGENT_NAME(g->set->agent, g->set->members[i].rank);
		if (g->slots[i].here)
			continue;
		if (len + strlen(name) + 40 > cap)
			break;
		len += (size_t)snprintf(text + len, cap - len, "%s\"%s\"", named++ ? ", " : "", name);
	}
	if (named < missing)
		snprintf(text + len, cap - len, " and %u more", missing - named);
}

static void round_close(struct gather *g)
{
	struct gather **at = &g->set->open;
	while (*at != g)
		at = &(*at)->next;
	*at = g->next;
	timer_disarm(&g->set->agent->shards[0]->wheel, &g->alarm.timer);
	g->set->agent->gathers->open_n--;
	for (uint32_t i = 0; i < g->set->n; i++)
		far_val_fini(&g->slots[i].value);
	buf_unref(g->buf);
}

static void slot_fail(struct gather *g, struct slot *slot, enum far_status status, const char *what, const char *who)
{
	far_deferred_fail(slot->waits, status, 0, "%u of %u workers have joined this round; %s %s", g->come, g->set->n,
			  what, who);
	slot->waits = NULL;
	g->waiting--;
}

static void round_fail(struct gather *g, enum far_status status, const char *what, const char *who)
{
	for (uint32_t i = 0; i < g->set->n; i++)
		if (g->slots[i].waits)
			slot_fail(g, &g->slots[i], status, what, who);
	round_close(g);
}

static void round_complete(struct gather *g, struct far_buf *list)
{
	struct far_val *items = buf_data(list);
	for (uint32_t i = 0; i < g->set->n; i++)
		items[i] = g->slots[i].value;
	const struct far_val all = far_list(items, g->set->n);
	for (uint32_t i = 0; i < g->set->n; i++)
		if (g->slots[i].waits)
			far_deferred_return(g->slots[i].waits, &all);
	buf_unref(list);
	round_close(g);
}

/* Rank of a missing member that is lost; −1: none. */
static int dead_one(const struct gather *g)
{
	for (uint32_t i = 0; i < g->set->n; i++) {
		const struct ctl_member *m = &g->set->agent->members[g->set->members[i].rank];
		if (!g->slots[i].here && !atomic_load_explicit(&m->alive, memory_order_relaxed))
			return m->rank;
	}
	return -1;
}

static void round_arm(struct gather *g)
{
	struct shard *s = g->set->agent->shards[0];
	uint64_t at = shard_now(s) + CHECK_NS;
	for (uint32_t i = 0; i < g->set->n; i++)
		if (g->slots[i].waits && g->slots[i].deadline < at)
			at = g->slots[i].deadline;
	timer_disarm(&s->wheel, &g->alarm.timer);
	timer_arm(&s->wheel, &g->alarm.timer, at);
}

static void on_alarm(struct shard *s, struct shard_timer *alarm)
{
	struct gather *g = (struct gather *)(void *)alarm;
	uint64_t now = shard_now(s);
	char who[FAR_ERR_TEXT_MAX / 2];
	int dead = dead_one(g);
	if (dead >= 0) {
		round_fail(g, FAR_PEER_LOST, "dead is", AGENT_NAME(g->set->agent, dead));
		return;
	}
	name_missing(g, who, sizeof who);
	for (uint32_t i = 0; i < g->set->n; i++)
		if (g->slots[i].waits && g->slots[i].deadline <= now)
			slot_fail(g, &g->slots[i], FAR_TIMEOUT, "missing within the time-out:", who);
	if (g->waiting)
		round_arm(g);
	else
		round_close(g);
}

static struct gather *round_open(struct gather_set *set, uint64_t number)
{
	struct gathers *all = set->agent->gathers;
	struct far_buf *buf = all->open_n < FAR_GATHERS_OPEN_MAX
				      ? buf_alloc(sizeof(struct gather) + set->n * sizeof(struct slot))
				      : NULL;
	if (!buf)
		return NULL;
	struct gather *g = buf_data(buf), **at = &set->open;
	memset(g, 0, sizeof *g + set->n * sizeof *g->slots);
	all->open_n++;
	g->alarm.fn = on_alarm;
	g->set = set;
	g->buf = buf;
	g->round = number;
	while (*at && (*at)->round < number)
		at = &(*at)->next;
	g->next = *at;
	*at = g;
	set->begun = number + 1 > set->begun ? number + 1 : set->begun;
	return g;
}

/* The round of member i's next request. */
static uint64_t round_of(struct gather_set *set, uint32_t i, uint64_t skipped)
{
	struct member *m = &set->members[i];
	uint64_t incarnation = incarnation_of(set, i);
	if (m->incarnation != incarnation) { /* begins with the first open round without it */
		const struct gather *g = set->open;
		while (g && g->slots[i].here)
			g = g->next;
		m->rounds = g ? g->round : set->begun;
		m->incarnation = incarnation;
	} else {
		m->rounds += skipped;
	}
	return m->rounds++;
}

/* ---- the function ---- */

/* Reads the ranks, ascending. Returns the index of the caller; −1: the request was answered with an error. */
static int read_workers(struct far_req *req, const struct far_val *v, int32_t ranks[FAR_WORLD_MAX], uint32_t *n)
{
	const struct far_agent *a = far_req_agent(req);
	const uint8_t *bytes = v->u.s.data;
	int32_t from = far_req_from(req).worker, before = -1;
	int self = -1;
	*n = (uint32_t)(v->u.s.len / 2);
	bool fits = v->u.s.len % 2 == 0 && *n > 0 && *n <= (uint32_t)a->world;
	for (uint32_t i = 0; fits && i < *n; i++) {
		ranks[i] = bytes[2 * i] | bytes[2 * i + 1] << 8;
		fits = ranks[i] > before && ranks[i] < a->world;
		before = ranks[i];
		if (ranks[i] == from)
			self = (int)i;
	}
	if (fits && self >= 0 && ranks[0] == a->rank && far_req_shard(req) == 0)
		return self;
	far_fail(req, FAR_BAD_ARGS, 0, "far::gather: malformed list of ranks, or this shard does not gather for it");
	return -1;
}

static enum far_status slot_take(struct gather *g, struct slot *slot, struct far_req *req, int64_t timeout,
				 const struct far_val *value)
{
	struct far_err err;
	enum far_status status = far_val_dup(value, &slot->value, &err);
	if (status) {
		far_fail(req, status, 0, "no room to keep the value until the round is complete: %s", err.text);
		return status;
	}
	status = far_defer(req, &slot->waits);
	if (status) {
		far_fail(req, status, 0, "too many requests are open at the gathering worker (opts.deferred)");
		return status;
	}
	slot->here = true;
	slot->deadline = timeout > 0 ? shard_now(g->set->agent->shards[0]) + (uint64_t)timeout : TIME_NEVER;
	g->come++;
	g->waiting++;
	return FAR_OK;
}

static enum far_status gather(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	int32_t ranks[FAR_WORLD_MAX];
	uint32_t count;
	int i = read_workers(req, &args[0], ranks, &count);
	(void)n;
	(void)user;
	if (i < 0)
		return FAR_OK;
	struct gather_set *set = set_of(far_req_agent(req), ranks, count);
	if (!set)
		return far_fail(req, FAR_RESOURCE, 0, "no memory, or more than %u sets of workers gather here",
				FAR_GATHER_SETS_MAX);
	uint64_t number = round_of(set, (uint32_t)i, args[1].u.i > 0 ? (uint64_t)args[1].u.i : 0);
	struct gather *g = set->open;
	while (g && g->round != number)
		g = g->next;
	if (!g && number < set->begun)
		return far_fail(req, FAR_TIMEOUT, 0,
				"the other workers have left this round: not all had joined within their time-outs");
	if (!g && !(g = round_open(set, number)))
		return far_fail(req, FAR_RESOURCE, 0, "no memory, or more than %u rounds are open here",
				FAR_GATHERS_OPEN_MAX);
	if (slot_take(g, &g->slots[i], req, args[2].u.i, &args[3])) {
		round_fail(g, FAR_RESOURCE, "no room for the value of", AGENT_NAME(set->agent, ranks[i]));
		return FAR_OK;
	}
	struct far_buf *list = g->come == set->n ? buf_alloc(set->n * sizeof(struct far_val)) : NULL;
	if (list)
		round_complete(g, list);
	else if (g->come == set->n)
		round_fail(g, FAR_RESOURCE, "no memory for", "the list of their values");
	else
		round_arm(g);
	return FAR_OK;
}

const struct far_function gather_function = {"far::gather(bytes workers, int skipped, int timeout, Any value) -> Any",
					     FAR_KIND_INLINE, gather, NULL};

/* ---- shutdown ---- */

void gathers_end(struct shard *s)
{
	struct gathers *g = s->config.agent->gathers;
	if (!g || s->config.index != 0)
		return;
	while (g->sets) {
		struct gather_set *set = g->sets;
		while (set->open)
			round_fail(set->open, FAR_SHUTDOWN, "the agent that gathers", "was shut down");
		g->sets = set->next;
		buf_unref(set->buf);
	}
	g->sets_n = 0;
}
