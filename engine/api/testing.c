/* SPDX-License-Identifier: BSD-3-Clause */
/** <farcall/testing.h>: faults, the wait for quiet references, counters by name. Any thread; tasks on the shards. */
#include "api/testing.h"

#include "agent/agent.h"
#include "base/error.h"
#include "base/sized.h"
#include "core/context.h"
#include "core/shard.h"
#include "features/faults/fault.h"
#include "features/references/rref.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TASK_NS UINT64_C(1000000000) /* limit for a shard to run a task */
#define LOOK_NS UINT64_C(100000)     /* between two checks */

/* ---- tasks of shards ---- */

/* A task of one shard: applies the faults, or only marks that the shard has reached it. */
struct notice {
	struct shard_task task;
	struct far_buf *buf;            /* its memory; a reference of the shard, one of the waiter */
	void (*apply)(struct shard *s); /* NULL: nothing */
	_Atomic bool done;              /* set by the shard */
};

static void take_notice(struct shard *s, struct shard_task *e)
{
	struct notice *n = (struct notice *)(void *)e;
	if (n->apply)
		n->apply(s);
	atomic_store_explicit(&n->done, true, memory_order_release); /* notice_taken() */
	buf_unref(n->buf);
}

static struct notice *notice_post(struct shard *s, void (*apply)(struct shard *s))
{
	struct far_buf *buf = buf_alloc(sizeof(struct notice));
	if (!buf)
		return NULL;
	struct notice *n = buf_data(buf);
	*n = (struct notice){.task.run = take_notice, .buf = buf, .apply = apply};
	buf_ref(buf);
	shard_add_task(s, &n->task);
	return n;
}

static bool notice_taken(const struct notice *n)
{
	return atomic_load_explicit(&((struct notice *)(uintptr_t)n)->done, memory_order_acquire);
}

static enum far_status no_memory(struct far_err *err)
{
	return err_set(err, FAR_RESOURCE, "no memory for a task of a shard");
}

/* ---- faults ---- */

static enum far_status apply_to(struct far_agent *a, struct shard *s, void (*apply)(struct shard *s),
				struct far_err *err)
{
	if (shard_held(s)) {
		apply(s);
		return FAR_OK;
	}
	if (shard_enter(s)) {
		apply(s);
		shard_leave_quietly(s, false);
		return FAR_OK;
	}
	struct notice *n = notice_post(s, apply);
	if (!n)
		return no_memory(err);
	uint64_t until = clock_now(a->clock) + TASK_NS;
	bool taken;
	/* A handler must not wait here: that shard may wait for the handler's. */
	while (!(taken = notice_taken(n)) && !shard_serving() && clock_now(a->clock) < until)
		nanosleep(&(struct timespec){.tv_nsec = (long)LOOK_NS / 2}, NULL);
	taken |= shard_serving();
	buf_unref(n->buf);
	return taken ? FAR_OK
		     : err_set(err, FAR_TIMEOUT,
			       "shard %u has not applied the change within 1 s: a handler keeps it busy; it will "
			       "when that returns",
			       s->config.index);
}

enum far_status agent_apply(struct far_agent *a, void (*apply)(struct shard *s), struct far_err *err)
{
	enum far_status status = FAR_OK;
	for (unsigned i = 0; i < a->shards_n && !status; i++)
		status = apply_to(a, a->shards[i], apply, err);
	return status;
}

enum far_status far_fault_set(struct far_agent *a, enum far_fault_kind kind, const struct far_fault *fault,
			      struct far_err *err)
{
	if (!a || (unsigned)kind >= FAR_FAULT_COUNT)
		return err_set(err, FAR_INVALID,
			       a ? "far_fault_set: there is no kind %d; kinds are 0 to %d"
				 : "far_fault_set: the agent is NULL",
			       (int)kind, (int)FAR_FAULT_COUNT - 1);
	struct fault *x = NULL;
	if (fault && (fault->fail_sends || fault->delay_ns)) {
		x = calloc(1, sizeof *x);
		if (!x)
			return err_set(err, FAR_RESOURCE, "no memory for a fault");
		x->fail_sends = fault->fail_sends;
		x->delay_ns = fault->delay_ns;
		atomic_store_explicit(&x->left, fault->messages ? fault->messages : UINT64_MAX, memory_order_relaxed);
		x->older = atomic_load_explicit(&a->faults->all, memory_order_relaxed);
		while (!atomic_compare_exchange_weak_explicit(&a->faults->all, &x->older, x, memory_order_relaxed,
							      memory_order_relaxed))
			;
	}
	atomic_store_explicit(&a->faults->of[kind], x, memory_order_release); /* fault_of() */
	return agent_apply(a, fault_apply, err);
}

enum far_status far_faults_clear(struct far_agent *a, struct far_err *err)
{
	if (!a)
		return err_set(err, FAR_INVALID, "far_faults_clear: the agent is NULL");
	for (int kind = 0; kind < FAR_FAULT_COUNT; kind++)
		atomic_store_explicit(&a->faults->of[kind], NULL, memory_order_release);
	return agent_apply(a, fault_apply, err);
}

const char *far_fault_name(enum far_fault_kind kind)
{
	static const char *const names[] = {
#define FAULT_NAME(name, text) text,
		FAR_FAULT_LIST(FAULT_NAME)
#undef FAULT_NAME
	};
	return (unsigned)kind < FAR_FAULT_COUNT ? names[kind] : "?";
}

void far_fault_counts_read_sized(struct far_agent *a, struct far_fault_counts *out, size_t bytes)
{
	struct far_fault_counts now;
	for (int kind = 0; kind < FAR_FAULT_COUNT; kind++) {
		now.of[kind].failed = atomic_load_explicit(&a->faults->failed[kind], memory_order_relaxed);
		now.of[kind].delayed = atomic_load_explicit(&a->faults->delayed[kind], memory_order_relaxed);
	}
	sized_out(out, bytes, &now, sizeof now);
}

/* ---- quiet references ---- */

/* Waits LOOK_NS: a fiber is suspended, a thread that holds a shard polls it, and the agent is polled if it has no
 * pollers. Returns FAR_PENDING then. */
static enum far_status pause_a_moment(struct far_agent *a, struct far_future *never, struct far_err *err)
{
	far_agent_poll(a);
	return far_future_wait(never, LOOK_NS, NULL, err);
}

/* Waits until every shard has run the tasks posted before, frees of references among them. Returns FAR_PENDING then. */
static enum far_status let_arrive(struct far_agent *a, struct far_future *never, uint64_t until, struct far_err *err)
{
	enum far_status status = FAR_PENDING;
	for (unsigned i = 0; i < a->shards_n && status == FAR_PENDING; i++) {
		struct notice *n = notice_post(a->shards[i], NULL);
		bool taken;
		if (!n)
			return no_memory(err);
		while (!(taken = notice_taken(n)) && status == FAR_PENDING && clock_now(a->clock) < until)
			status = pause_a_moment(a, never, err);
		buf_unref(n->buf);
		if (!taken && status == FAR_PENDING)
			return err_set(err, FAR_TIMEOUT,
				       "shard %u of worker \"%s\" cannot be checked for pending references: a handler "
				       "keeps it busy; have "
				       "that return, or give far_rref_flush more time",
				       i, a->name);
	}
	return status;
}

/* Returns FAR_OK after three quiet checks in a row, because a call that ends after a check may free other references.
 */
static enum far_status flush_until(struct far_agent *a, struct far_future *never, uint64_t until, struct far_err *err)
{
	struct far_rref_counts c;
	for (unsigned calm = 0;;) {
		enum far_status status = let_arrive(a, never, until, err);
		if (status != FAR_PENDING)
			return status;
		far_rref_counts_read(a, &c);
		calm = c.unconfirmed || c.pending ? 0 : calm + 1;
		if (calm == 3)
			return FAR_OK;
		if (!calm)
			status = pause_a_moment(a, never, err);
		if (status != FAR_PENDING)
			return status;
		if (!calm && clock_now(a->clock) >= until)
			return err_set(err, FAR_TIMEOUT,
				       "%" PRIu64
				       " references of worker \"%s\" are not confirmed by their owners, %" PRIu64
				       " control messages about references not acknowledged",
				       c.unconfirmed, a->name, c.pending);
	}
}

enum far_status far_rref_flush(struct far_agent *a, uint64_t timeout_ns, struct far_err *err)
{
	struct far_future *never;
	enum far_status status = a ? agent_may_wait("far_rref_flush", err)
				   : err_set(err, FAR_INVALID, "far_rref_flush: the agent is NULL");
	if (!status)
		status = far_future_create(&never, err);
	if (status)
		return status;
	uint64_t ns = timeout_ns ? timeout_ns : atomic_load_explicit(&a->rpc_timeout_ns, memory_order_relaxed);
	status = flush_until(a, never, ns == FAR_FOREVER ? TIME_NEVER : time_after(clock_now(a->clock), ns), err);
	far_future_free(never);
	return status;
}

/* ---- counters by name ---- */

#define CALLS_LIST(X)                                                                                                  \
	X(calls_sent)                                                                                                  \
	X(calls_completed)                                                                                             \
	X(calls_failed)                                                                                                \
	X(calls_timed_out)                                                                                             \
	X(calls_active)                                                                                                \
	X(calls_retried)                                                                                               \
	X(requests_received)                                                                                           \
	X(requests_active)                                                                                             \
	X(requests_duplicate)                                                                                          \
	X(replies_sent)                                                                                                \
	X(replies_late)                                                                                                \
	X(bytes_sent)                                                                                                  \
	X(bytes_received)                                                                                              \
	X(packets_dropped)                                                                                             \
	X(busy_refusals)                                                                                               \
	X(wakeups)                                                                                                     \
	X(oneways_sent)                                                                                                \
	X(oneways_received)                                                                                            \
	X(oneways_dropped)                                                                                             \
	X(rendezvous_sent)                                                                                             \
	X(rendezvous_received)                                                                                         \
	X(rendezvous_active)                                                                                           \
	X(hedges_sent)                                                                                                 \
	X(hedges_won)                                                                                                  \
	X(bytes_by_reference)
#define RREFS_LIST(X)                                                                                                  \
	X(owned)                                                                                                       \
	X(held)                                                                                                        \
	X(forks)                                                                                                       \
	X(pending)                                                                                                     \
	X(unconfirmed)

/* Output of far_debug_info(): counters beyond `cap` are counted, not written. */
struct pairs {
	struct far_debug_pair *out;
	size_t cap, n;
};

static void pair_add(struct pairs *p, const char *group, const char *name, const char *what, uint64_t value)
{
	if (p->n < p->cap) {
		struct far_debug_pair *pair = &p->out[p->n];
		snprintf(pair->name, sizeof pair->name, "%s.%s%s", group, name, what);
		snprintf(pair->value, sizeof pair->value, "%" PRIu64, value);
	}
	p->n++;
}

size_t far_debug_info(struct far_agent *a, struct far_debug_pair *out, size_t cap)
{
	struct pairs p = {out, cap, 0};
	struct far_counters calls;
	struct far_rref_counts rrefs;
	struct far_fault_counts faults;
	far_counters_read(a, &calls);
	far_rref_counts_read(a, &rrefs);
	far_fault_counts_read(a, &faults);
#define ADD_CALLS(field) pair_add(&p, "agent", #field, "", calls.field);
	CALLS_LIST(ADD_CALLS)
#undef ADD_CALLS
#define ADD_RREFS(field) pair_add(&p, "rref", #field, "", rrefs.field);
	RREFS_LIST(ADD_RREFS)
#undef ADD_RREFS
	for (int kind = 0; kind < FAR_FAULT_COUNT; kind++) {
		const char *name = far_fault_name((enum far_fault_kind)kind);
		pair_add(&p, "fault", name, ".failed", faults.of[kind].failed);
		pair_add(&p, "fault", name, ".delayed", faults.of[kind].delayed);
	}
	return p.n;
}
