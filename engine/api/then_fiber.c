/* SPDX-License-Identifier: BSD-3-Clause */
/** Continuations that may wait. Any thread adds one; the fiber that waits for the parent runs it, on the shard. */
#include "agent/agent.h"
#include "base/error.h"
#include "core/spawn.h"

/* At the start of its own buffer `self`. `parent` and `child`: a reference each. */
struct continuation {
	struct shard_task task;
	struct far_buf *self;
	far_then_fn *fn;
	void *user;
	struct far_future *parent, *child;
};
static_assert(sizeof(struct continuation) <= 1u << BUF_CLASS_MIN, "a callback fits the smallest buffer");

static void end(struct continuation *c)
{
	buf_unref(&c->parent->head);
	buf_unref(&c->child->head);
	buf_unref(c->self);
}

static void fail(struct continuation *c, enum far_status status, const char *text)
{
	struct far_err err;
	err_set(&err, status, "%s", text);
	agent_complete_error(NULL, c->child, &err);
}

static void on_fiber(void *arg)
{
	struct continuation *c = arg;
	agent_wait_future(c->parent, TIME_NEVER);
	if (future_done(c->parent))
		agent_run_then(NULL, c->fn, c->user, c->parent, c->child);
	else /* all fibers are cancelled */
		fail(c, FAR_SHUTDOWN, "the agent was shut down before the parent was complete");
	end(c);
}

static void start(struct shard *s, struct shard_task *task)
{
	struct continuation *c = (struct continuation *)(void *)task;
	if (fiber_spawn(s, on_fiber, c) == 0)
		return;
	if (s->stopped)
		fail(c, FAR_SHUTDOWN, "the agent was shut down before a fiber waited for the parent");
	else
		fail(c, FAR_RESOURCE, "no fiber is free for the callback; try later, or raise opts.fibers");
	end(c);
}

/* The fiber waits for a child of the parent: a reference of its own to the parent would keep a user-made future from
 * ending when nobody can complete it any more. */
static enum far_status pass(struct far_future *parent, struct far_val *out, struct far_err *err, void *user)
{
	(void)user;
	return far_future_value(parent, out, err);
}

enum far_status far_future_then_fiber(struct far_agent *a, struct far_future *parent, far_then_fn *fn, void *user,
				      struct far_future **child, struct far_err *err)
{
	if (!a || !fn || !child)
		return err_set(err, FAR_INVALID,
			       "far_future_then_fiber: the agent, the callback and `child` must not be NULL");
	enum far_status status = agent_prepare_kind(a, FAR_KIND_FIBER, err);
	struct shard *s = agent_shard_of_thread(a);
	struct far_future *passed;
	if (status || (status = far_future_then(parent, pass, NULL, &passed, err)))
		return status;
	struct far_buf *buf = buf_alloc(sizeof(struct continuation));
	struct far_future *made = buf ? future_alloc(s) : NULL;
	if (!made) {
		buf_unref(buf);
		far_future_free(passed);
		return agent_no_future(err);
	}
	future_mark(made, FUTURE_DERIVED | (agent_unbounded(&passed, 1, false) ? FUTURE_UNBOUNDED : 0));
	buf_ref(&made->head);
	struct continuation *c = buf_data(buf);
	*c = (struct continuation){{.run = start}, buf, fn, user, passed, made};
	*child = made;
	shard_add_task(s, &c->task);
	return FAR_OK;
}
