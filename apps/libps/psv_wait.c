/* SPDX-License-Identifier: BSD-3-Clause */
/** Keeps requests until their clock or view has come. The thread that polls the shard. */
#include "psv_job.h"

#include "ps_mutant.h"
#include <farcall/rpc.h>
#include <stdlib.h>
#include <string.h>

/* True for a request that is to wait: its view is newer than this one, or a clock is behind. */
bool psv_must_wait(struct psv_shard *s, const struct psv_request *q)
{
	if (q->kind == PSV_VIEW || q->epoch < s->view->epoch)
		return false;
	if (q->epoch > s->view->epoch || q->kind == PSV_BARRIER)
		return true;
	if (q->kind != PSV_PULL && q->kind != PSV_EXISTS && q->kind != PSV_BAGS)
		return false;
	struct psv_table *t = psv_find_table(s, q->table);
	return t && t->schema.workers && q->clock > t->clock + (PS_MUTANT(CLOCK_BEHIND) ? 1 : 0);
}

/* Likewise of one that waits. */
static bool must_go_on_waiting(struct psv_shard *s, struct psv_waiter *w, enum far_status *status, struct far_err *err)
{
	const struct psv_request *q = (const struct psv_request *)(const void *)w->data;
	*status = FAR_OK;
	if (q->kind == PSV_BARRIER && q->epoch == s->view->epoch)
		return psv_barrier_waits(s, w, status, err);
	return psv_must_wait(s, q);
}

static void fail_late(struct psv_shard *s, const struct psv_waiter *w)
{
	char text[256] = "the request waited until its deadline";
	if (((const struct psv_request *)(const void *)w->data)->kind == PSV_BARRIER)
		psv_barrier_late(s, w, text, sizeof text);
	far_deferred_fail(w->reply, FAR_TIMEOUT, 0, "%s", text);
}

/* Answers those that need not wait any more. True: others may go on by that. */
static bool wake_once(struct psv_shard *s)
{
	bool stopping = atomic_load_explicit(&s->server->stopping, memory_order_acquire), again = false;
	uint64_t now = psv_now_ns();
	enum far_status status;
	struct far_err err;
	for (struct psv_waiter **at = &s->waiters; *at;) {
		struct psv_waiter *w = *at;
		bool late = now >= w->deadline_ns;
		if (!stopping && !late && must_go_on_waiting(s, w, &status, &err)) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		s->waiters_n--;
		atomic_fetch_sub_explicit(&s->server->waiting, 1, memory_order_relaxed);
		s->waiters_bytes -= w->len;
		if (stopping)
			far_deferred_fail(w->reply, FAR_SHUTDOWN, 0, "service \"%s\" stops", s->server->name);
		else if (late)
			fail_late(s, w);
		else if (status)
			far_deferred_fail(w->reply, status, err.code, "%s", err.text);
		else
			again = psv_serve(s, w->data, w->len,
					  &(struct psv_reply_to){.reply = w->reply, .from = w->from}) ||
				again;
		free(w);
	}
	return psv_barriers_look(s) || again;
}

void psv_wake(struct psv_shard *s)
{
	while (wake_once(s))
		;
}

bool psv_park(struct psv_shard *s, struct far_req *req, const void *data, size_t len)
{
	if (s->waiters_n >= PSV_WAITERS_MAX || s->waiters_bytes + len > PSV_WAITER_BYTES_MAX)
		psv_wake(s); /* removes late ones */
	struct psv_waiter *w = NULL;
	if (s->waiters_n < PSV_WAITERS_MAX && s->waiters_bytes + len <= PSV_WAITER_BYTES_MAX)
		w = malloc(sizeof *w + len);
	if (!w || far_defer(req, &w->reply)) {
		free(w);
		far_fail(req, FAR_RESOURCE, 0, "%u requests wait for a clock or a view", s->waiters_n);
		return false;
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
	if (q->kind == PSV_BARRIER)
		((struct psv_request *)(void *)w->data)->token = 0;
	struct psv_waiter **at = &s->waiters;
	while (*at)
		at = &(*at)->next;
	*at = w;
	s->waiters_n++;
	atomic_fetch_add_explicit(&s->server->waiting, 1, memory_order_relaxed);
	s->waiters_bytes += len;
	return q->kind == PSV_BARRIER;
}
