/* SPDX-License-Identifier: BSD-3-Clause */
/** Collective operations of several workers: barrier and all-gather. */
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
 * `workers_n` values in rank order. `workers` NULL: the whole group. The order of the names does not matter; each name
 * appears once, the caller's own among them.
 *
 * The worker with the lowest rank gathers and counts the rounds of a set: the n-th call of a worker, from any thread,
 * belongs to round n. Different sets have independent rounds. A round that one worker left by its deadline goes on for
 * the others. It is over when no worker waits in it; a worker that calls it later gets TIMEOUT at once. A new
 * incarnation of a worker joins the first round without it.
 *
 * `value` is copied; NULL: none. `timeout_ns`: 0: the agent's default; FAR_FOREVER: no limit. The thread polls its
 * shard meanwhile; a fiber is suspended. On FAR_OK `*out` (may be NULL) is the caller's: far_val_fini() it.
 *
 * Errors: INVALID (the caller is not in the set, a name twice, an empty set), UNKNOWN_WORKER, WOULD_DEADLOCK; TIMEOUT,
 * with the names of the missing workers, up to 500 ms late if the gathering worker does not answer; PEER_LOST, with the
 * name of a dead worker; RESOURCE (here or at the gathering worker), TOO_LARGE, SHUTDOWN.
 */
enum far_status far_all_gather(struct far_agent *agent, const char *const *workers, size_t workers_n,
			       const struct far_val *value, uint64_t timeout_ns, struct far_val *out,
			       struct far_err *err);

/** far_all_gather() without values; both count the same rounds. */
enum far_status far_barrier(struct far_agent *agent, const char *const *workers, size_t workers_n, uint64_t timeout_ns,
			    struct far_err *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
