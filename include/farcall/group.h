/* SPDX-License-Identifier: BSD-3-Clause */
/** Several workers: barrier and all-gather; members that come and go.
 * Any thread, unless a function names another one. */
#ifndef FARCALL_GROUP_H
#define FARCALL_GROUP_H

#include <farcall/agent.h>
#include <farcall/value.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* ---- Any thread but an inline handler or a callback; these block ---- */

/**
 * Waits until each worker in `workers` has called this for the same set, and returns their values: a list of
 * `workers_n` values in rank order. `workers` NULL: the whole group, which must be static. The order of the names does
 * not matter; each name appears once, the caller's own among them.
 *
 * The worker with the lowest rank gathers and counts the rounds of a set: the n-th call of a worker, from any thread,
 * belongs to round n. Different sets have independent rounds. A round that one worker left by its deadline goes on for
 * the others. It is over when no worker waits in it; a worker that calls it later gets TIMEOUT at once. A new
 * incarnation of a worker joins the first round without it.
 *
 * `value` is copied; NULL: none. `timeout_ns`: 0: the agent's default; FAR_FOREVER: no limit. The thread polls its
 * shard meanwhile; a fiber is suspended. On FAR_OK `*out` (may be NULL) is the caller's: far_val_fini() it.
 *
 * Errors: INVALID (the caller is not in the set, a name twice, an empty set, NULL in a dynamic group), UNKNOWN_WORKER,
 * WOULD_DEADLOCK; TIMEOUT, with the names of the missing workers, up to 500 ms late if the gathering worker does not
 * answer; PEER_LOST, with the name of a dead worker; RESOURCE (here or at the gathering worker), TOO_LARGE, SHUTDOWN.
 */
enum far_status far_all_gather(struct far_agent *agent, const char *const *workers, size_t workers_n,
			       const struct far_val *value, uint64_t timeout_ns, struct far_val *out,
			       struct far_err *err);

/** far_all_gather() without values, with its time-out and errors; both count the same rounds. */
enum far_status far_barrier(struct far_agent *agent, const char *const *workers, size_t workers_n, uint64_t timeout_ns,
			    struct far_err *err);

/* ---- Members that come and go ---- */

/**
 * Waits until a worker of this name is a member, and fills `*out` (may be NULL). In a dynamic group it may join later;
 * in a static group it may be lost, and its next incarnation is awaited. Blocks at most `timeout_ns` (0: the agent's
 * default; FAR_FOREVER: no limit); a fiber is suspended, another thread polls its shard. Any thread but an inline
 * handler or a callback of a call. The worker may be lost again when the function returns.
 *
 * Errors: TIMEOUT; INVALID (no name of a worker); SHUTDOWN (the agent ends); RESOURCE (FAR_MEMBER_WAITS_MAX);
 * WOULD_DEADLOCK; UNSUPPORTED for an agent without threads.
 */
enum far_status far_worker_wait_sized(struct far_agent *agent, const char *name, uint64_t timeout_ns,
				      struct far_worker_info *out, size_t bytes, struct far_err *err);
static inline enum far_status far_worker_wait(struct far_agent *agent, const char *name, uint64_t timeout_ns,
					      struct far_worker_info *out, struct far_err *err)
{
	return far_worker_wait_sized(agent, name, timeout_ns, out, sizeof *out, err);
}

/** The same as a future, the caller's to free: its value is the worker's rank (int). Any thread; never blocks. It has
 * no limit of its own; freed before, it waits for nothing. SHUTDOWN: the agent has ended. */
enum far_status far_worker_wait_async(struct far_agent *agent, const char *name, struct far_future **out,
				      struct far_err *err);

enum far_member_event {
	FAR_MEMBER_JOINED, /* a worker, or a new incarnation of it, is a member */
	FAR_MEMBER_LOST    /* it has left, has died, was replaced, or its lease has run out: far_worker_info.lost_why */
};

/**
 * `worker` is valid during the call; of LOST it has name, rank, incarnation and lost_why only. Runs on a thread of the
 * agent for such callbacks, one at a time: it may call, wait and block, but not end the agent. Each worker is reported
 * in order: JOINED and LOST in turn, an incarnation at most once each. One that has come and gone again meanwhile is
 * left out.
 */
typedef void far_member_fn(struct far_agent *agent, enum far_member_event event, const struct far_worker_info *worker,
			   void *user);

/**
 * Reports members from now on until the agent ends: first those that are there, this worker excluded. Any thread; never
 * blocks. Errors: INVALID (NULL); RESOURCE (FAR_MEMBER_CALLBACKS_MAX); UNSUPPORTED for an agent without threads.
 */
enum far_status far_on_member(struct far_agent *agent, far_member_fn *fn, void *user, struct far_err *err);

#define FAR_MEMBER_WAITS_MAX     1024 /* pending waits of an agent for members */
#define FAR_MEMBER_CALLBACKS_MAX 16   /* far_on_member() of an agent */

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
