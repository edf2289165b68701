/* SPDX-License-Identifier: BSD-3-Clause */
/** Keeps requests until their clock or view has come; those of barriers wait there. The thread that polls the shard. */
#include "psv_job.h"

#include "ps_mutant.h"
#include "pst_fail.h"
#include <farcall/rpc.h>
#include <stdlib.h>
#include <string.h>

/* True for a request that is to wait: its view is newer than this one, rows are being erased, or a clock is behind. */
bool psv_must_wait(struct psv_shard *s, const struct psv_request *q)
{
	if (q->kind == PSV_VIEW || q->epoch < s->view->epoch)
		return false;
	if (q->epoch > s->view->epoch || q->kind == PSV_BARRIER)
		return true;
	if (s->clearing && (psv_has_keys(q->kind) || q->kind == PSV_SCAN || q->kind == PSV_STATS))
		return true;
	if (q->kind != PSV_PULL && q->kind != PSV_EXISTS && q->kind != PSV_BAGS && q->kind != PSV_GET_VALUES)
		return false;
	struct psv_table *t = psv_find_table(s, q->table);
	return t && t->schema.workers && q->clock > t->clock + (PS_MUTANT(CLOCK_BEHIND) ? 1 : 0);
}

/* ---- Answers ---- */

static void release(struct psv_shard *s, struct psv_waiter *w)
{
	s->waiters_n--;
	s->waiters_bytes -= w->len;
	atomic_fetch_sub_explicit(&s->server->waiting, 1, memory_order_relaxed);
	free(w);
}

bool psv_waiter_serve(struct psv_shard *s, struct psv_waiter *w)
{
	bool again = psv_serve(s, w->data, w->len, &(struct psv_reply_to){.reply = w->reply, .from = w->from});
	release(s, w);
	return again;
}

void psv_waiter_fail(struct psv_shard *s, struct psv_waiter *w, const struct far_err *err)
{
	far_deferred_fail(w->reply, err->status, err->code, "%s", err->text);
	release(s, w);
}

/* ---- Waits for a clock or a view ---- */

static bool is_barrier(const struct psv_shard *s, const struct psv_request *q)
{
	return q->kind == PSV_BARRIER && q->epoch == s->view->epoch;
}

/* Takes a request out of the list that need not wait any more, and answers it, or brings it to its barrier. True:
 * others may go on by that. */
static bool go_on(struct psv_shard *s, struct psv_waiter *w, bool stopping, bool late)
{
	const struct psv_request *q = (const struct psv_request *)(const void *)w->data;
	struct far_err err;
	if (stopping)
		(void)pst_fail(&err, FAR_SHUTDOWN, 0, "service \"%s\" stops", s->server->name);
	else if (late)
		(void)pst_fail(&err, FAR_TIMEOUT, 0, "the request waited until its deadline");
	if (stopping || late)
		psv_waiter_fail(s, w, &err);
	else if (is_barrier(s, q))
		psv_barrier_arrive(s, w);
	else
		return psv_waiter_serve(s, w);
	return false;
}

/* True: others may go on. */
static bool wake_once(struct psv_shard *s, bool stopping)
{
	bool again = false;
	uint64_t now = psv_now_ns();
	for (struct psv_waiter **at = &s->waiters; *at;) {
		struct psv_waiter *w = *at;
		const struct psv_request *q = (const struct psv_request *)(const void *)w->data;
		bool late = now >= w->deadline_ns;
		if (!stopping && !late && !is_barrier(s, q) && psv_must_wait(s, q)) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		if (!w->next)
			s->waiters_end = at;
		again = go_on(s, w, stopping, late) || again;
	}
	return again;
}

void psv_wake(struct psv_shard *s)
{
	bool stopping = atomic_load_explicit(&s->server->stopping, memory_order_acquire);
	psv_barriers_look(s, stopping);
	while (wake_once(s, stopping))
		;
}

/* A copy of a request. NULL: there is no room. */
static struct psv_waiter *copy_of(struct psv_shard *s, struct far_req *req, const void *data, size_t len)
{
	if (s->waiters_n >= PSV_WAITERS_MAX || s->waiters_bytes + len > PSV_WAITER_BYTES_MAX)
		psv_wake(s); /* removes late ones */
	struct psv_waiter *w = NULL;
	if (s->waiters_n < PSV_WAITERS_MAX && s->waiters_bytes + len <= PSV_WAITER_BYTES_MAX)
		w = malloc(sizeof *w + len);
	if (!w || far_defer(req, &w->reply)) {
		free(w);
		return NULL;
	}
	const struct psv_request *q = data;
	uint64_t left = far_req_time_left_ns(req);
	if (q->kind == PSV_BARRIER && q->clock < left)
		left = q->clock; /* so that its answer is in time */
	w->next = NULL;
	w->from = far_req_from(req);
	w->deadline_ns = left == FAR_FOREVER ? UINT64_MAX : psv_now_ns() + left;
	w->len = len;
	memcpy(w->data, data, len);
	s->waiters_n++;
	s->waiters_bytes += len;
	atomic_fetch_add_explicit(&s->server->waiting, 1, memory_order_relaxed);
	return w;
}

void psv_park(struct psv_shard *s, struct far_req *req, const void *data, size_t len)
{
	struct psv_waiter *w = copy_of(s, req, data, len);
	if (!w) {
		far_fail(req, FAR_RESOURCE, 0, "%u requests wait for a clock, a view or a barrier", s->waiters_n);
	} else if (is_barrier(s, data)) {
		psv_barrier_arrive(s, w);
	} else {
		*s->waiters_end = w;
		s->waiters_end = &w->next;
	}
}
