/* SPDX-License-Identifier: BSD-3-Clause */
/** Starts calls for typed functions and messages: destination, route to a shard, deadline, hand-over, wait for the
 * result. Application threads and handlers. */
#include "core/call.h"
#include "agent/agent.h"
#include "api/recv_buf.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/must.h"
#include "builtin/builtin.h"
#include "core/context.h"
#include "core/fiber.h"
#include "core/idle.h"
#include "core/loop.h"
#include "core/shard.h"
#include "core/waiting.h"
#include "features/rendezvous/rendezvous.h"
#include "memory/budget.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* Limit of a waiter that does not poll, after the deadline of its call. The thread that polls ends the call at the
 * deadline; beyond this limit no thread does. */
#define NOT_POLLED_NS FAR_SEC
/* Turns that a fiber without room yields before it sleeps between attempts. */
#define PAUSES_SHORT 64u

/* Edits (insert, delete, replace a character) that make `a` of `b`. Both are shorter than FAR_NAME_MAX. */
static unsigned distance(const char *a, const char *b)
{
	uint8_t row[FAR_NAME_MAX];
	size_t n = strlen(b);
	for (size_t k = 0; k <= n; k++)
		row[k] = (uint8_t)k;
	for (size_t i = 0; a[i]; i++) {
		unsigned diagonal = row[0];
		row[0] = (uint8_t)(i + 1);
		for (size_t k = 0; k < n; k++) {
			unsigned least = diagonal + (a[i] != b[k]);
			diagonal = row[k + 1];
			least = diagonal + 1 < least ? diagonal + 1 : least;
			least = row[k] + 1u < least ? row[k] + 1u : least;
			row[k + 1] = (uint8_t)least;
		}
	}
	return row[n];
}

/* Names up to three members with the most similar names. */
__attribute__((noinline, cold)) static int unknown_worker(const struct far_agent *a, const char *name,
							  struct far_err *err)
{
	enum { NEAREST = 3 };
	char nearest[NEAREST][FAR_NAME_MAX] = {"", "", ""};
	unsigned far[NEAREST] = {UINT_MAX, UINT_MAX, UINT_MAX}, n = 0;
	for (int r = 0; r < a->world && strlen(name) < FAR_NAME_MAX; r++) {
		char known[FAR_NAME_MAX];
		if (a->dynamic && !agent_has_member(a, r))
			continue;
		unsigned d = distance(name, ctl_member_name(&a->members[r], known)), at = n < NEAREST ? n++ : NEAREST;
		for (; at > 0 && d < far[at - 1]; at--)
			if (at < NEAREST) {
				far[at] = far[at - 1];
				memcpy(nearest[at], nearest[at - 1], sizeof nearest[at]);
			}
		if (at < NEAREST) {
			far[at] = d;
			memcpy(nearest[at], known, sizeof nearest[at]);
		}
	}
	err_set(err, FAR_UNKNOWN_WORKER,
		"name:%s,rank:%d could not find destination name \"%s\"; the nearest of %d workers: %s%s%s%s%s",
		a->name, a->rank, name, far_world_size((struct far_agent *)a), nearest[0], n > 1 ? ", " : "",
		nearest[1], n > 2 ? ", " : "", nearest[2]);
	return -1;
}

int agent_find_worker(const struct far_agent *a, const char *name, struct far_err *err)
{
	if (name && unlikely(!atomic_load_explicit(&a->named, memory_order_acquire) || a->dynamic)) {
		for (int r = 0; r < a->world; r++)
			if ((!a->dynamic || agent_has_member(a, r)) && strcmp(AGENT_NAME(a, r), name) == 0)
				return r;
	} else if (name) {
		uint32_t i = (uint32_t)hash64(name, strlen(name)) & (a->names_n - 1);
		for (; a->by_name[i]; i = (i + 1) & (a->names_n - 1))
			if (strcmp(a->members[a->by_name[i] - 1].name, name) == 0)
				return (int)a->by_name[i] - 1;
	}
	return unknown_worker(a, name ? name : "(NULL)", err);
}

void agent_no_function(const struct far_agent *a, const char *name, struct far_err *err)
{
	if (builtin_no_ops(name, err))
		return;
	name = name ? name : "(NULL)";
	const char *nearest = NULL;
	unsigned best = ((unsigned)strlen(name) + 2) / 3; /* as many edits or more are no slip of the fingers */
	for (size_t b = 0; b < REGISTRY_BUCKETS && strlen(name) < FAR_NAME_MAX; b++) {
		uint32_t index = atomic_load_explicit(&a->registry.by_name[b], memory_order_acquire);
		const struct function *fn = index ? registry_at(&a->registry, index - 1) : NULL;
		unsigned d = fn && !fn->method ? distance(name, fn->signature.name) : best;
		if (d < best) { /* never the entry of removed functions, which has no name */
			best = d;
			nearest = fn->signature.name;
		}
	}
	err_set(err, FAR_NO_FUNCTION,
		"no function \"%s\" is registered here%s%s%s; register it on the caller and on the callee", name,
		nearest ? " (\"" : "", nearest ? nearest : "", nearest ? "\" is)" : "");
}

enum far_status agent_refuse_to(const struct far_agent *a, struct far_to to, struct far_err *err)
{
	if (to.worker < 0 || to.worker >= a->world)
		return err_set(err, FAR_UNKNOWN_WORKER,
			       "name:%s,rank:%d could not find destination id %d (ranks are 0 to %d)", a->name, a->rank,
			       (int)to.worker, a->world - 1);
	if (a->dynamic && !agent_has_member(a, to.worker))
		return err_set(
			err, FAR_UNKNOWN_WORKER,
			"name:%s,rank:%d could not find destination id %d: no member of the group has this rank now",
			a->name, a->rank, (int)to.worker);
	const struct ctl_member *m = &a->members[to.worker];
	unsigned shards = atomic_load_explicit(&m->shards, memory_order_relaxed);
	return err_set(err, FAR_INVALID, "worker \"%s\" has %u shard%s, 0 to %u (or -1 for any); there is no shard %d",
		       AGENT_NAME(a, to.worker), shards, shards == 1 ? "" : "s", shards - 1, (int)to.shard);
}

/* The shard of this agent that the thread is bound to: the innermost one whose handler it runs, else one that it holds.
 */
static struct shard *bound(const struct far_agent *a, bool *in_handler)
{
	struct shard *held = NULL;
	*in_handler = false;
	for (const struct shard_context *c = shard_context_top(); c; c = c->outer) {
		if (!c->shard || c->shard->config.agent != a)
			continue;
		*in_handler = c->handler || c->fiber;
		if (*in_handler)
			return c->shard;
		held = held ? held : c->shard;
	}
	return held;
}

struct shard *agent_shard_of_thread(const struct far_agent *a)
{
	bool in_handler;
	struct shard *s = shard_context_top() ? bound(a, &in_handler) : NULL;
	if (s)
		return s;
	if (a->stepped) /* deterministic runs */
		return a->shards[0];
	/* A thread-local address identifies the thread. Its low bits repeat between threads, so they are mixed. */
	uint64_t h = (uint64_t)shard_thread_mark() >> 4;
	h = (h ^ h >> 32) * UINT64_C(0x9e3779b97f4a7c15);
	h = (h ^ h >> 29) * UINT64_C(0xd6e8feb86659fd93);
	return a->shards[(uint32_t)(h >> 32) % a->shards_n];
}

static enum far_status via_named(const struct far_agent *a, unsigned via, struct shard **out, struct far_err *err)
{
	bool in_handler;
	if (via > a->shards_n)
		return err_set(err, FAR_INVALID, "via is %u, but worker \"%s\" has %u shard%s: 1 to %u, or 0 for any",
			       via, a->name, a->shards_n, a->shards_n == 1 ? "" : "s", a->shards_n);
	struct shard *s = a->shards[via - 1], *own = bound(a, &in_handler);
	*out = s;
	if (!own || own == s)
		return FAR_OK;
	return err_set(err, FAR_INVALID,
		       in_handler
			       ? "via names shard %u, but a handler's calls go through its own shard, %u; leave via 0"
			       : "via names shard %u, but this thread holds shard %u; release it first, or leave via 0",
		       via - 1, own->config.index);
}

enum far_status agent_route_slow(const struct far_agent *a, struct far_to to, const struct far_call_opts *opts,
				 uint64_t hash, struct call_route *out, struct far_err *err)
{
	enum far_status status = agent_check_to(a, to, err);
	if (unlikely(status))
		return status;
	if (opts && opts->via)
		status = via_named(a, opts->via, &out->via, err);
	else
		out->via = a->shards_n == 1 ? a->shards[0] : agent_shard_of_thread(a);
	out->shard = (uint8_t)(to.shard >= 0 ? (uint32_t)to.shard
					     : hash % atomic_load_explicit(&a->members[to.worker].shards,
									   memory_order_relaxed));
	return status;
}

/* Sets the deadline of a call made in a handler or callback. Inline handlers share one clock reading. Without a stated
 * time-out the call ends with the request of the handler at the latest. */
__attribute__((noinline)) static void deadline_inside(const struct far_agent *a, struct shard *s, bool stated,
						      struct call_start *start)
{
	const struct shard_context *c = shard_context_top();
	const struct far_req *req = stated ? NULL : shard_request();
	uint64_t now = c->shard == s && c->handler ? shard_now(s) : clock_now(a->clock);
	if (req) {
		uint64_t left = far_req_time_left_ns(req);
		start->left = left < start->left ? left : start->left;
	}
	start->deadline = start->left == FAR_FOREVER ? TIME_NEVER : time_after(now, start->left);
}

void agent_set_deadline(const struct far_agent *a, struct shard *s, const struct far_call_opts *opts,
			struct call_start *start)
{
	bool stated = opts && opts->timeout_ns;
	uint64_t left = stated ? opts->timeout_ns : atomic_load_explicit(&a->rpc_timeout_ns, memory_order_relaxed);
	start->left = left;
	start->retry_ns = opts && opts->retry ? (opts->retry_after_ns ? opts->retry_after_ns : FAR_RETRY_NS) : 0;
	if (unlikely(shard_serving()))
		deadline_inside(a, s, stated, start);
	else
		start->deadline = left == FAR_FOREVER ? TIME_NEVER : time_after(clock_now(a->clock), left);
}

enum far_status agent_start_error(struct shard *s, int error, const struct call_start *start, struct far_err *err)
{
	const struct far_agent *a = s->config.agent;
	const struct shard_limits *l = &s->config.limits;
	const char *name = AGENT_NAME(a, start->worker);
	char why[BUDGET_TEXT_MAX];
	switch (error) {
	case -EAGAIN:
		counter_add_shared(&s->counters.busy_refusals, 1);
		return err_set(
			err, FAR_BUSY,
			"too many calls are pending: to worker \"%s\" (opts.peer_calls is %u, peer_waiting %u; or its "
			"message memory is full), or on this shard (opts.calls is %u, submit_slots %u, "
			"retry_window %u); wait for some and try again",
			name, l->peer_calls, l->peer_waiting, l->calls, l->submit_slots, l->retry_window);
	case -EPIPE:
		err_set(err, FAR_PEER_LOST, "worker \"%s\" is gone", name);
		break;
	case -ESHUTDOWN:
		return err_set(err, FAR_SHUTDOWN, "the agent is shut down");
	case -EMSGSIZE:
		return err_set(err, FAR_TOO_LARGE,
			       "a message of %zu bytes; worker \"%s\" takes %llu at most (its max_message_bytes)",
			       start->len, name, (unsigned long long)agent_message_max(a, start->worker));
	default:
		budget_text(why, sizeof why, start->len);
		return err_set(err, FAR_RESOURCE, "no memory to hand the call over: %s", why);
	}
	if (err)
		snprintf(err->origin, sizeof err->origin, "%s", name);
	return FAR_PEER_LOST;
}

static int hand_over(struct shard *s, struct call_start *start)
{
	if (start->len > agent_message_max(s->config.agent, start->worker))
		return -EMSGSIZE;
	if (start->ready) /* reference of the ring */
		rendezvous_out_ref(rendezvous_out_in(start->ready));
	int error = waiting_submit(s, start);
	if (error && start->ready)
		rendezvous_out_unref(rendezvous_out_in(start->ready));
	return error;
}

/* Starts a call through a shard that the thread does not hold. */
__attribute__((noinline)) static int start_from_outside(struct shard *s, struct call_start *start)
{
	int error;
	if (s->config.progress == FAR_PROGRESS_SHARED && shard_enter(s)) {
		error = shard_call(s, start);
		/* Room comes from receiving. Without it, wake the poller, so that a caller in a retry loop makes
		 * progress. */
		shard_leave_quietly(s, unlikely(error == -EAGAIN));
	} else {
		error = hand_over(s, start);
		shard_notify(s);
	}
	return error;
}

/* Shows a call to the interceptors and starts it by `begin`. */
__attribute__((noinline, cold)) static enum far_status
start_seen(struct shard *s, struct call_start *start,
	   enum far_status (*begin)(struct shard *, struct call_start *, struct far_err *), struct far_err *err)
{
	struct far_err own;
	struct far_buf *ready = start->ready;
	if (!err)
		err = &own;
	enum far_status status = intercept_call(s, start, err);
	if (status)
		return status;
	status = begin(s, start, err);
	if (status)
		intercept_unsent(start, status, err->text);
	if (start->ready != ready) {
		rendezvous_out_unref(rendezvous_out_in(start->ready));
		start->ready = ready;
	}
	return status;
}

enum far_status agent_start(struct shard *s, struct call_start *start, struct far_err *err)
{
	if (unlikely(start->extra != NULL) && !start->extra->wrapped)
		return start_seen(s, start, agent_start, err);
	/* A held shard sends it with the next pass: a poll, a wait or the release. */
	int error = shard_held(s) ? shard_call(s, start) : start_from_outside(s, start);
	return likely(error == 0) ? FAR_OK : agent_start_error(s, error, start, err);
}

enum far_status agent_wait_error(int error, enum far_executed executed, struct far_err *err)
{
	enum far_status status =
		error == -EDEADLK ? err_set(err, FAR_WOULD_DEADLOCK,
					    "the agent has no threads: only its fibers can wait; start the call with "
					    "far_rpc_async, or "
					    "spawn a fiber")
		: error == -ECANCELED
			? err_set(err, FAR_CANCELLED,
				  "the wait was ended: the caller of this handler gave up, or the agent is shut down")
			: err_set(err, FAR_RESOURCE,
				  "the handler cannot wait: too many requests are open on this worker "
				  "(opts.deferred), or it has no memory");
	if (err)
		err->executed = executed;
	return status;
}

enum far_status agent_start_waiting(struct shard *s, struct call_start *start, struct far_err *err)
{
	const struct far_agent *a = s->config.agent;
	struct idler idler = {0};
	unsigned pauses = 0;
	enum far_status status;
	if (unlikely(start->extra != NULL) && !start->extra->wrapped)
		return start_seen(s, start, agent_start_waiting, err);
	while (unlikely((status = agent_start(s, start, err)) == FAR_BUSY)) {
		uint64_t now = clock_now(a->clock);
		if (now >= start->deadline)
			return err_set(err, FAR_TIMEOUT,
				       "no room for the call towards worker \"%s\" within its time-out",
				       AGENT_NAME(a, start->worker));
		start->left = start->deadline == TIME_NEVER ? TIME_NEVER : start->deadline - now;
		struct fiber *fb = shard_in_fiber();
		if (unlikely(fb != NULL)) {
			int error = fiber_pause(fb, pauses++ < PAUSES_SHORT ? 0 : FAR_NAP_NS);
			if (error)
				return agent_wait_error(error, FAR_EXECUTED_NO, err);
		} else if (!shard_held(s))
			sched_yield();
		else if (shard_pass(s))
			idler = (struct idler){0};
		else if (idler_step(s, &idler, true))
			shard_sleep(s, now + FAR_NAP_NS < start->deadline ? now + FAR_NAP_NS : start->deadline);
	}
	return status;
}

/* No reference: the waiter keeps the future and holds the shard until the call has ended. */
static void done_held(void *user, const struct completion *o)
{
	agent_complete(user, o);
}

static inline enum far_status call_and_wait(struct shard *s, struct call_start *start, struct far_future *f,
					    call_done_fn *done, struct far_err *err)
{
	/* A thread inside a handler does not enter a shard for the whole wait: far_shutdown() must be able to hold it.
	 */
	bool serving = shard_serving();
	struct fiber *fiber = unlikely(serving) ? shard_in_fiber() : NULL;
	bool held = !serving && shard_held(s);
	bool entered = !serving && !held && s->config.progress == FAR_PROGRESS_SHARED && shard_enter(s);
	enum far_status status;
	start->user = f;
	if (likely(entered || held)) {
		start->done = done;
		status = agent_start_waiting(s, start, err);
		if (likely(!status)) {
			shard_flush(s);
			shard_wait(s, f, TIME_NEVER); /* this thread runs the timers: the call ends at its deadline */
		}
		if (entered)
			shard_leave(s);
		return status;
	}
	if (unlikely(s->config.stepped && !fiber))
		return agent_wait_error(-EDEADLK, FAR_EXECUTED_NO, err);
	if (unlikely(fiber && fiber->cancelled)) /* not sent: the wait would end before the reply */
		return agent_wait_error(fiber_pause(fiber, 0), FAR_EXECUTED_NO, err);
	start->done = agent_done_future;
	start->id = &f->call;
	/* The thread that polls the shard ends the call at its deadline. If that thread does not poll, or is inside a
	 * handler, this limit ends the wait. A fiber of the same shard runs on that thread and needs no limit. */
	uint64_t until = start->deadline == TIME_NEVER || (fiber && fiber->shard == s)
				 ? TIME_NEVER
				 : start->deadline + NOT_POLLED_NS;
	future_mark_timed(f, FUTURE_CALL, start->left); /* the wait may end first */
	status = agent_start_waiting(s, start, err);
	if (unlikely(status)) {
		future_mark(f, 0);
		return status;
	}
	int error = shard_wait(s, f, until);
	if (unlikely(error)) { /* the reply is not needed any more */
		far_future_cancel(f, NULL);
		return agent_wait_error(error, FAR_EXECUTED_MAYBE, err);
	}
	if (likely(future_done(f)))
		return FAR_OK;
	err_set(err, FAR_TIMEOUT,
		"no answer within the call's time-out, and the thread that holds this worker's shard does not poll it");
	if (err)
		err->executed = FAR_EXECUTED_MAYBE;
	return FAR_TIMEOUT;
}

static void done_held_recv_buf(void *user, const struct completion *o)
{
	recv_buf_complete(user, o);
}

enum far_status agent_call_and_wait(struct shard *s, struct call_start *start, struct far_future *f,
				    struct far_err *err)
{
	return call_and_wait(s, start, f, done_held, err);
}

enum far_status agent_timed_out(uint64_t left, struct far_err *err)
{
	if (err)
		agent_add_duration(err->text, left);
	return FAR_TIMEOUT;
}

enum far_status agent_call_and_take(struct shard *s, struct call_start *start, struct far_future *f,
				    struct far_val *out, struct far_err *err)
{
	const uint64_t left = start->left;
	enum far_status status = call_and_wait(s, start, f, done_held, err);
	if (likely(!status))
		status = agent_result_last(f, out, err);
	else
		buf_unref(&f->head);
	return likely(status != FAR_TIMEOUT) ? status : agent_timed_out(left, err);
}

enum far_status agent_call_and_wait_recv_buf(struct shard *s, struct call_start *start, struct far_future *f,
					     struct far_err *err)
{
	return call_and_wait(s, start, f, done_held_recv_buf, err);
}
