/* SPDX-License-Identifier: BSD-3-Clause */
/** far_all_gather() and far_barrier(): the side of each member (builtin/gather.c is the gathering side). Any thread
 * that may wait. */
#include "agent/agent.h"
#include "base/error.h"
#include "builtin/gather.h"
#include "builtin/gather_inner.h"

#include <farcall/group.h>
#include <stdlib.h>
#include <string.h>

/* A caller waits so much longer than its time-out for the gathering worker's error, which names the missing workers. */
#define SLACK_NS (500 * FAR_MS)

struct workers {
	const char *what; /* the function, for error texts */
	uint32_t n;
	int32_t ranks[FAR_WORLD_MAX];     /* ascending */
	uint8_t bytes[2 * FAR_WORLD_MAX]; /* the same, as an argument: 16 bits each, little-endian */
};

/* ---- skipped rounds: given up before the gathering worker counted them ---- */

static struct gather_skips *skips_find(const struct gathers *g, const struct workers *w)
{
	struct gather_skips *s = g->skips;
	while (s && (s->n != w->n || memcmp(s->ranks, w->ranks, w->n * sizeof *w->ranks) != 0))
		s = s->next;
	return s;
}

static uint64_t skips_take(struct gathers *g, const struct workers *w)
{
	uint64_t rounds = 0;
	if (atomic_load_explicit(&g->skips_n, memory_order_relaxed) == 0)
		return 0;
	pthread_mutex_lock(&g->lock);
	struct gather_skips *s = skips_find(g, w);
	if (s) {
		rounds = s->rounds;
		s->rounds = 0;
	}
	pthread_mutex_unlock(&g->lock);
	return rounds;
}

/* Without memory the count is lost, and the next round fails by its time-out. */
static void skips_add(struct gathers *g, const struct workers *w, uint64_t rounds)
{
	pthread_mutex_lock(&g->lock);
	struct gather_skips *s = skips_find(g, w);
	struct far_buf *buf = s ? NULL : buf_alloc(sizeof *s + w->n * sizeof *w->ranks);
	if (buf) {
		s = buf_data(buf);
		*s = (struct gather_skips){.next = g->skips, .buf = buf, .n = w->n};
		memcpy(s->ranks, w->ranks, w->n * sizeof *w->ranks);
		g->skips = s;
		atomic_fetch_add_explicit(&g->skips_n, 1, memory_order_relaxed);
	}
	if (s)
		s->rounds += rounds;
	pthread_mutex_unlock(&g->lock);
}

/* ---- the workers ---- */

static int by_rank(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
	return (x > y) - (x < y);
}

static enum far_status find_workers(const struct far_agent *a, const char *const *names, size_t n, const char *what,
				    struct workers *w, struct far_err *err)
{
	bool self = !names;
	if (!a)
		return err_set(err, FAR_SHUTDOWN, "RPC has not been initialized: the agent is NULL");
	w->what = what;
	if (names && n == 0)
		return err_set(err, FAR_INVALID, "%s: no workers; NULL stands for the whole group", what);
	if (self && a->dynamic)
		return err_set(err, FAR_INVALID, "%s: the members of a dynamic group change; name the workers", what);
	if (n > (size_t)a->world)
		return err_set(err, FAR_INVALID, "%s: %zu workers of a group of %d", what, n, a->world);
	w->n = names ? (uint32_t)n : (uint32_t)a->world;
	for (uint32_t i = 0; i < w->n; i++) {
		w->ranks[i] = names ? agent_find_worker(a, names[i], err) : (int32_t)i;
		if (w->ranks[i] < 0)
			return FAR_UNKNOWN_WORKER;
		self |= w->ranks[i] == a->rank;
	}
	if (!self)
		return err_set(err, FAR_INVALID, "%s: \"%s\" itself is not among the workers; add it", what, a->name);
	if (names)
		qsort(w->ranks, w->n, sizeof *w->ranks, by_rank);
	for (uint32_t i = 0; i < w->n; i++) {
		if (i && w->ranks[i] == w->ranks[i - 1])
			return err_set(err, FAR_INVALID, "%s: \"%s\" is named twice", what, AGENT_NAME(a, w->ranks[i]));
		w->bytes[2 * i] = (uint8_t)w->ranks[i];
		w->bytes[2 * i + 1] = (uint8_t)(w->ranks[i] >> 8);
	}
	return FAR_OK;
}

static enum far_status meet(struct far_agent *a, const struct workers *w, const struct far_val *value,
			    uint64_t timeout_ns, struct far_val *out, struct far_err *err)
{
	struct far_err own = {0};
	if (timeout_ns == 0)
		timeout_ns = atomic_load(&a->rpc_timeout_ns);
	bool limited = timeout_ns != 0 && timeout_ns < INT64_MAX - SLACK_NS;
	struct far_call_opts opts = {.timeout_ns = limited ? timeout_ns + SLACK_NS : FAR_FOREVER};
	uint64_t skipped = skips_take(a->gathers, w);
	const struct far_val args[] = {far_bytes(w->bytes, 2 * (size_t)w->n), far_int((int64_t)skipped),
				       far_int(limited ? (int64_t)timeout_ns : 0), value ? *value : far_none()};
	enum far_status status =
		far_rpc_sync_to(a, (struct far_to){w->ranks[0], 0}, gather_function_name, args, 4, &opts, out, &own);
	if (status == FAR_OK)
		return FAR_OK;
	if (own.executed == FAR_EXECUTED_NO)
		skips_add(a->gathers, w, skipped + 1);
	if (err) {
		*err = own;
		snprintf(err->text, sizeof err->text, "%s: %.*s", w->what,
			 (int)(sizeof err->text - strlen(w->what) - 3), own.text);
	}
	return status;
}

enum far_status far_all_gather(struct far_agent *agent, const char *const *workers, size_t workers_n,
			       const struct far_val *value, uint64_t timeout_ns, struct far_val *out,
			       struct far_err *err)
{
	struct workers w;
	enum far_status status = find_workers(agent, workers, workers_n, "far_all_gather", &w, err);
	return status ? status : meet(agent, &w, value, timeout_ns, out, err);
}

enum far_status far_barrier(struct far_agent *agent, const char *const *workers, size_t workers_n, uint64_t timeout_ns,
			    struct far_err *err)
{
	struct workers w;
	enum far_status status = find_workers(agent, workers, workers_n, "far_barrier", &w, err);
	return status ? status : meet(agent, &w, NULL, timeout_ns, NULL, err);
}
