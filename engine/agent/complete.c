/* SPDX-License-Identifier: BSD-3-Clause */
/** Completes futures with the results of calls, or with an error. agent_complete() on the shard, the other on any
 * thread. */
#include "agent/agent.h"
#include "base/must.h"

#include <stdio.h>
#include <string.h>

/* Fills `failure` and makes it the data of `o`. `text[0, n)` needs no NUL. */
static void fill_failure(struct failure *failure, struct completion *o, const char *origin, const char *text, size_t n)
{
	n = n < sizeof failure->text ? n : sizeof failure->text - 1;
	snprintf(failure->origin, sizeof failure->origin, "%.*s", (int)sizeof failure->origin - 1, origin);
	if (n)
		memcpy(failure->text, text, n);
	failure->text[n] = '\0';
	o->data = failure;
	o->buf = NULL; /* that of `text` */
	o->len = offsetof(struct failure, text) + n + 1;
}

__attribute__((noinline, cold)) static void complete_tree(struct far_future *f, const struct completion *o)
{
	struct completion whole = *o;
	whole.code = FUTURE_TREE;
	whole.len = 0;
	buf_ref(o->tree);
	future_complete_in(NULL, f, &whole, o->tree);
}

void agent_add_duration(char text[FAR_ERR_TEXT_MAX], uint64_t left)
{
	static const char end[] = "time-out";
	size_t n = strlen(text);
	if (left && n >= sizeof end && strcmp(text + n - (sizeof end - 1), end) == 0)
		snprintf(text + n, FAR_ERR_TEXT_MAX - n, " of %.9g ms", (double)left / (double)FAR_MS);
}

/* Of a call of the fast path, which has the default: the default of now. */
static void add_duration(const struct far_future *f, const struct far_agent *a, struct failure *failure,
			 struct completion *o)
{
	uint64_t left = future_left(f);
	if (!left && atomic_load_explicit(&f->state, memory_order_relaxed) & FUTURE_CALL)
		left = atomic_load_explicit(&a->rpc_timeout_ns, memory_order_relaxed);
	agent_add_duration(failure->text, left);
	o->len = offsetof(struct failure, text) + strlen(failure->text) + 1;
}

__attribute__((noinline, cold)) static void complete_failed(struct far_future *f, const struct completion *o)
{
	const struct far_agent *a = f->shard->config.agent;
	struct completion with_origin = *o;
	struct failure failure;
	fill_failure(&failure, &with_origin,
		     o->origin >= 0 && o->origin < a->world ? AGENT_NAME(a, o->origin) : a->name, o->data, o->len);
	if (o->status == FAR_TIMEOUT && o->executed != FAR_EXECUTED_YES)
		add_duration(f, a, &failure, &with_origin);
	future_complete(f, &with_origin);
}

void agent_complete(struct far_future *f, const struct completion *o)
{
	if (unlikely(o->status != FAR_OK))
		complete_failed(f, o);
	else if (likely(!o->tree))
		future_complete(f, o);
	else
		complete_tree(f, o);
}

void agent_done_future(void *user, const struct completion *o)
{
	agent_complete(user, o);
}

void agent_complete_error(struct future_listener *l, struct far_future *f, const struct far_err *err)
{
	struct completion o = {.status = err->status, .executed = err->executed, .code = err->code};
	struct failure failure;
	fill_failure(&failure, &o, err->origin, err->text, strnlen(err->text, sizeof err->text));
	future_complete_in(l, f, &o, NULL);
}
