/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall perf ps --rate`: pulls and pushes that begin at fixed times. The measuring thread, which polls. */
#include "ps.h"

#include <stdlib.h>

#define PENDING_MAX 64u
#define DRAIN_NS    (20 * FAR_SEC)

struct slot {
	struct slot *next;         /* free ones */
	struct far_future *future; /* NULL: free */
	uint64_t due_ns;           /* when the operation should have begun */
	uint64_t done_ns;          /* 0: pending */
	float *out;
};

struct open_loop {
	struct ps_run *r;
	struct slot slots[PENDING_MAX], *free;
	unsigned pending;
	uint64_t end_ns, in_time; /* of the time; operations answered before it */
	double medians[ROUNDS];   /* ns, of each part of the time */
	unsigned parts;           /* that have ended */
	struct far_err err;
	bool failed;
};

static void on_done(struct far_future *f, void *user)
{
	(void)f;
	((struct slot *)user)->done_ns = floor_now();
}

static void fail(struct open_loop *l, const struct far_err *err)
{
	if (!l->failed)
		l->err = *err;
	l->failed = true;
}

/* False: no room; the operation stays due. */
static bool begin(struct open_loop *l, uint64_t due_ns)
{
	struct ps_run *r = l->r;
	struct slot *slot = l->free;
	struct far_err err;
	if (!slot)
		return false;
	const uint64_t *keys = r->keys[r->turn % PS_BATCHES];
	enum far_status status =
		r->kind->writes ? far_ps_push(r->table, keys, r->kind->n, r->grads, NULL, NULL, &slot->future, &err)
				: far_ps_pull(r->table, keys, r->kind->n, NULL, slot->out, NULL, &slot->future, &err);
	if (status) {
		if (status != FAR_BUSY)
			fail(l, &err);
		return false;
	}
	r->turn++;
	l->free = slot->next;
	l->pending++;
	slot->due_ns = due_ns;
	slot->done_ns = 0;
	if (far_future_on_done(slot->future, on_done, slot, &err))
		fail(l, &err);
	return true;
}

/* Polls, and takes the operations that were answered. */
static void collect(struct open_loop *l)
{
	far_shard_poll(l->r->peer.agent);
	for (unsigned i = 0; i < PENDING_MAX && l->pending; i++) {
		struct slot *slot = &l->slots[i];
		struct far_err err;
		if (!slot->future || !slot->done_ns)
			continue;
		if (far_future_value(slot->future, NULL, &err))
			fail(l, &err);
		far_future_free(slot->future);
		slot->future = NULL;
		ps_took(l->r, &l->r->round, slot->done_ns - slot->due_ns);
		l->in_time += slot->done_ns < l->end_ns;
		slot->next = l->free;
		l->free = slot;
		l->pending--;
	}
}

static void end_part(struct open_loop *l)
{
	struct hist *part = &l->r->round;
	if (part->count && l->parts < ROUNDS)
		l->medians[l->parts++] = (double)hist_quantile(part, 0.5);
	hist_merge(&l->r->all, part);
	hist_reset(part);
}

/* Returns the operations that found no room in twice the time. */
static uint64_t run(struct open_loop *l, uint64_t rate, uint64_t due, uint64_t ns)
{
	uint64_t start = floor_now(), now = start, sent = 0, part_ns = ns / ROUNDS, next = start + part_ns;
	double each = 1e9 / (double)rate;
	l->end_ns = start + ns;
	while (!l->failed && sent < due && now < l->end_ns + ns) {
		uint64_t due_ns = start + (uint64_t)((double)sent * each);
		if (due_ns <= now && begin(l, due_ns))
			sent++;
		collect(l);
		now = floor_now();
		if (now >= next && next < l->end_ns) {
			end_part(l);
			next += part_ns;
		}
	}
	while (l->pending && now < l->end_ns + ns + DRAIN_NS) {
		collect(l);
		now = floor_now();
	}
	for (uint64_t i = sent; !l->failed && i < due; i++) /* at least so long */
		ps_took(l->r, &l->r->round, now - start - (uint64_t)((double)i * each));
	end_part(l);
	return due - sent;
}

static int loop(struct open_loop *l, struct ps_result *result)
{
	struct ps_run *r = l->r;
	uint64_t ns = r->o->duration_ns, due = (uint64_t)((double)ns * (double)result->rate / 1e9);
	if (due == 0)
		due = 1;
	hist_reset(&r->all);
	hist_reset(&r->round);
	r->late = 0;
	result->unsent = run(l, result->rate, due, ns);
	if (l->pending) {
		fprintf(stderr, "%s: operations in flight were never answered\n", r->o->what);
		exit(1); /* their memory is in use */
	}
	if (l->failed)
		return peer_complain(r->o, &l->err);
	result->ops = due - result->unsent;
	result->ops_per_s = (double)l->in_time * 1e9 / (double)ns;
	result->within = 1 - (double)r->late / (double)due;
	result->p50_ns = hist_quantile(&r->all, 0.5);
	result->p99_ns = hist_quantile(&r->all, 0.99);
	result->max_ns = r->all.max;
	result->noise = perf_noise(l->medians, l->parts);
	return 0;
}

int ps_open_loop(struct ps_run *r, struct ps_result *result)
{
	struct open_loop l = {.r = r};
	float *out = calloc((size_t)PENDING_MAX * PS_VALUES_MAX, sizeof *out);
	if (!out) {
		fprintf(stderr, "%s: no memory for %u operations\n", r->o->what, PENDING_MAX);
		return 1;
	}
	for (unsigned i = 0; i < PENDING_MAX; i++) {
		l.slots[i] = (struct slot){.next = l.free, .out = out + (size_t)i * PS_VALUES_MAX};
		l.free = &l.slots[i];
	}
	int rc = loop(&l, result);
	free(out);
	return rc;
}
