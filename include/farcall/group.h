/* SPDX-License-Identifier: BSD-3-Clause */
/** Tools for a group: to meet, and to hand round a value each. */
#ifndef FARCALL_GROUP_H
#define FARCALL_GROUP_H

#include <farcall/agent.h>
#include <farcall/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Waits until each of the workers named has called this for the same workers, and returns the values that all of them
 * gave: a list of `workers_n` values, in the order of their ranks. `workers` NULL: all of the group. Their order here
 * does not matter; the calling worker must be among them, and none twice.
 *
 * Rounds are counted by the worker of the lowest rank among them, which gathers: each worker's n-th call for these
 * workers belongs to round n, from whatever threads it comes, and rounds over other workers know nothing of it. A round
 * that somebody's deadline ended goes on for the others; once nobody waits in it any more it is over, and who comes
 * later is told so at once. A worker that was started again begins with the round that lacks it.
 *
 * `value` NULL: none; it is copied. `timeout_ns`: 0: the agent's default; FAR_FOREVER: no limit. Blocks; drives the
 * shard meanwhile; in a handler of kind fiber it parks. On FAR_OK `*out` (may be NULL) is the caller's to finish with
 * far_val_fini().
 *
 * Errors: INVALID (not among the workers, one twice, none), UNKNOWN_WORKER, WOULD_DEADLOCK (in an inline handler or
 * callback); TIMEOUT, naming who had not come; PEER_LOST, naming one of the workers that is known to be dead, or the
 * one that gathers; RESOURCE (here or where the values are gathered), TOO_LARGE, SHUTDOWN. When the gathering worker
 * does not answer at all TIMEOUT comes up to half a second late.
 */
enum far_status far_all_gather(struct far_agent *agent, const char *const *workers, size_t workers_n,
			       const struct far_val *value, uint64_t timeout_ns, struct far_val *out,
			       struct far_err *err);

/** The same without values. It shares its rounds with far_all_gather(). */
enum far_status far_barrier(struct far_agent *agent, const char *const *workers, size_t workers_n, uint64_t timeout_ns,
			    struct far_err *err);

#ifdef __cplusplus
}
#endif

#endif
