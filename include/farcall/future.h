/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Futures: the result of an asynchronous call, completed exactly once with a value or an error.
 *
 * A future is a counted reference; the one a call returns is the caller's and must be given back with
 * far_future_free(), before or after completion, before or after shutdown. Every function here may be called from any
 * thread.
 */
#ifndef FARCALL_FUTURE_H
#define FARCALL_FUTURE_H

#include <farcall/status.h>
#include <farcall/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Times are relative nanoseconds. 0 asks for the default that the function names; FAR_FOREVER for no limit. */
#define FAR_FOREVER UINT64_MAX
#define FAR_US      UINT64_C(1000)
#define FAR_MS      UINT64_C(1000000)
#define FAR_SEC     UINT64_C(1000000000)

struct far_future;

/**
 * Waits until the future is complete, at most `timeout_ns` (0: no limit of its own; the call's own deadline still ends
 * it). Blocks: the thread either drives its shard or sleeps. May be called any number of times.
 *
 * On FAR_OK `*out` (may be NULL) holds the value and its own reference to the bytes: finish it with far_val_fini().
 * Returns the call's error when it failed, FAR_PENDING when the wait's own limit passed (the call goes on),
 * FAR_WOULD_DEADLOCK in an inline handler or completion callback.
 */
enum far_status far_future_wait(struct far_future *f, uint64_t timeout_ns, struct far_val *out, struct far_err *err);

/** Is it complete, with a value or an error. Never blocks, drives nothing. */
bool far_future_done(const struct far_future *f);

/** As far_future_wait() on a complete future; FAR_PENDING, at once, on one that is not. */
enum far_status far_future_value(struct far_future *f, struct far_val *out, struct far_err *err);

/**
 * Waits until all of `f[0, n)` are complete or one has failed, at most `timeout_ns` (0: no limit of its own). Returns
 * FAR_OK, the first failure found (the others stay pending), or FAR_PENDING.
 */
enum far_status far_future_wait_all(struct far_future *const *f, size_t n, uint64_t timeout_ns, struct far_err *err);

/**
 * Cancels the call that would complete the future: it ends with FAR_CANCELLED, executed MAYBE, soon, unless its answer
 * comes first; the callee is told, ends the waits of its handler if that is a fiber, and drops its answer. Any thread;
 * never blocks; harmless on a complete future. INVALID: it is not the future of a call; RESOURCE.
 */
enum far_status far_future_cancel(struct far_future *f, struct far_err *err);

/** Gives the reference back. A pending call goes on without anybody to see its result. NULL is fine. */
void far_future_free(struct far_future *f);

#ifdef __cplusplus
}
#endif
#endif
