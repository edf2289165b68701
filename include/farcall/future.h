/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Futures: the result of an asynchronous call, or of anything else, completed exactly once with a value or an error.
 *
 * A future is a counted reference; the one a function returns is the caller's and must be given back with
 * far_future_free(), before or after completion, before or after shutdown. Every function here may be called from any
 * thread, on futures of any agents mixed with user-made ones. NULL where a future belongs is FAR_INVALID.
 *
 * What a wait without a limit of its own (timeout_ns 0) waits for: a call's future, and what was derived from calls
 * only, ends by the calls' deadlines at the latest. Where the application has to complete something (a user-made
 * future, or what was derived from one) 0 means 60 s, so that a forgotten completion shows as FAR_PENDING instead of a
 * thread that hangs. FAR_FOREVER waits for ever.
 */
#ifndef FARCALL_FUTURE_H
#define FARCALL_FUTURE_H

#include <farcall/status.h>
#include <farcall/value.h>
#include <stdint.h>

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
 * Waits until the future is complete, at most `timeout_ns` (0: no limit of its own, see above). Blocks: the thread
 * either drives its shard or sleeps. May be called any number of times.
 *
 * On FAR_OK `*out` (may be NULL) holds the value and its own reference to the bytes: finish it with far_val_fini().
 * Objects of custom types are decoded anew by each wait that asks for the value; UNSUPPORTED (such a type is not
 * registered in this process), BAD_ARGS (it refuses), RESOURCE then end this wait, not the future.
 * Returns the call's error when it failed, FAR_PENDING when the wait's own limit passed (the call goes on),
 * FAR_WOULD_DEADLOCK in an inline handler or completion callback, FAR_CANCELLED in a handler whose caller has given up,
 * FAR_RESOURCE in one that cannot be kept open.
 */
enum far_status far_future_wait(struct far_future *f, uint64_t timeout_ns, struct far_val *out, struct far_err *err);

/** Is it complete, with a value or an error. Never blocks, drives nothing. */
bool far_future_done(const struct far_future *f);

/** As far_future_wait() on a complete future; FAR_PENDING, at once, on one that is not. */
enum far_status far_future_value(struct far_future *f, struct far_val *out, struct far_err *err);

/**
 * Waits until all of `f[0, n)` are complete or one has failed, at most `timeout_ns` (0: no limit of its own). Fails
 * fast: returns the first failure at once, whatever its place in the array, and of several the one with the lowest
 * index; the others stay pending. Else FAR_OK, also for n = 0; FAR_PENDING, FAR_WOULD_DEADLOCK as far_future_wait();
 * FAR_INVALID, naming the entry that is NULL; FAR_RESOURCE. The same future may be given twice. To wait until all are
 * complete, failed ones included, wait for far_future_collect().
 */
enum far_status far_future_wait_all(struct far_future *const *f, size_t n, uint64_t timeout_ns, struct far_err *err);

/**
 * Cancels the call that would complete the future: it ends with FAR_CANCELLED, executed MAYBE, soon, unless its answer
 * comes first; the callee is told, ends the waits of its handler if that is a fiber, and drops its answer. Any thread;
 * never blocks; harmless on a complete future. The future's callbacks do not run in here, but on the thread that drives
 * the shard. INVALID: it is not the future of a call; RESOURCE.
 */
enum far_status far_future_cancel(struct far_future *f, struct far_err *err);

/**
 * Waits until one of `f[0, n)` is complete, with a value or an error, at most `timeout_ns` (0: no limit of its own; the
 * 60 s only when all must be completed by the application). FAR_OK: `*index` is one that is complete, the lowest if
 * there are several; far_future_value() gives its result. Otherwise as far_future_wait_all(), but n = 0 is FAR_INVALID:
 * none can ever be complete. Leaves nothing behind in those that stay pending, however often it is called.
 */
enum far_status far_future_wait_any(struct far_future *const *f, size_t n, uint64_t timeout_ns, size_t *index,
				    struct far_err *err);

/** Another reference of the same future, for another thread or owner to free. Returns `f`. */
struct far_future *far_future_ref(struct far_future *f);

/**
 * Gives the reference back. A pending call goes on without anybody to see its result; a fan-out that nobody else
 * has a reference of ends, see <farcall/fanout.h>. When the last reference of a pending user-made future goes, nobody
 * can complete it any more: what was derived from it (then, collect) ends with FAR_CANCELLED. NULL is fine.
 */
void far_future_free(struct far_future *f);

/* ---- continuations ----
 *
 * A callback runs once, on the thread that completes the future it was given to:
 * - of a call, on the thread that drives the shard: the shard's own, or an application thread that waits. There it must
 *   not wait for anything that is pending (FAR_WOULD_DEADLOCK) and should be short, for nothing else is received
 *   meanwhile; it may start calls, complete user-made futures, and add callbacks;
 * - of a user-made one, on the thread that completes it (or gives its last reference back), inside that function;
 * - of a future that is complete already, on the calling thread, before the function that adds it returns;
 * - of what far_future_then() and far_future_collect() made, on the thread that ran the last callback it depended on.
 * No other callback or handler runs inside a function of the second and third case. <farcall/agent.h> has the table of
 * all functions that may run application code.
 *
 * In the second and third case it may wait, unless the thread is in a handler.
 *
 * The parent is complete when the callback runs, with a value or an error, and waiting on it is fine. Those added while
 * the parent was pending run one after the other in the order in which they were added, the children of each before the
 * next. When the agent shuts down, its pending calls fail and the callbacks run with that error; nothing is forgotten.
 */

/**
 * What far_future_then() runs. On FAR_OK the child gets `*out`, none at first, of any type; it is copied, and then
 * finished with far_val_fini() by the engine, so `return far_future_value(parent, out, err)` hands the parent's result
 * on. Any other status fails the child with it, and with what the callback put into `err` (empty at first): text, code,
 * origin, executed.
 */
typedef enum far_status far_then_fn(struct far_future *parent, struct far_val *out, struct far_err *err, void *user);

/**
 * Makes a future that is completed with what `fn(parent, …, user)` returns when `parent` is complete. `*child` is the
 * caller's to free; `parent` may be freed at once. A future that fn deals with is not flattened: it has to wait or add
 * callbacks itself. Never blocks, unless `fn` does. FAR_INVALID (fn or child is NULL), FAR_RESOURCE: nothing was added.
 */
enum far_status far_future_then(struct far_future *parent, far_then_fn *fn, void *user, struct far_future **child,
				struct far_err *err);

/** As far_future_then() without a child. */
typedef void far_done_fn(struct far_future *f, void *user);
enum far_status far_future_on_done(struct far_future *f, far_done_fn *fn, void *user, struct far_err *err);

/**
 * A future that is completed when all of `f[0, n)` are, be it well or not: with none when none has failed, else with
 * the error of the first failed one in the array. n = 0: it is complete. The array may go at once; a pending user-made
 * entry whose last reference goes counts as failed. FAR_RESOURCE: too many (some 800 000) or no memory.
 */
enum far_status far_future_collect(struct far_future *const *f, size_t n, struct far_future **out, struct far_err *err);

/**
 * A future that is completed when the first of `f[0, n)` is, well or not, with that one's index as an int. n = 0 is
 * FAR_INVALID. What it holds on to in the others goes when they are complete: to wait again and again use
 * far_future_wait_any().
 */
enum far_status far_future_collect_any(struct far_future *const *f, size_t n, struct far_future **out,
				       struct far_err *err);

/* ---- user-made futures ---- */

/** A pending future with one reference, to be completed by one of the two below. FAR_RESOURCE. */
enum far_status far_future_create(struct far_future **out, struct far_err *err);

/**
 * Complete a user-made future, once, from any thread, handlers and callbacks included: with a value (copied; NULL is
 * none), or with an error; `status` is any but OK, the text printf-style, NULL for the status's own, and cut at 383
 * bytes. Runs its callbacks before it returns. FAR_INVALID: it is already completed, or not a user-made one (a call's,
 * a child, a collection), or the value or the status is not valid; FAR_TOO_LARGE, FAR_RESOURCE: the value; it stays
 * pending then. Of several threads that race exactly one gets FAR_OK.
 */
enum far_status far_future_set_value(struct far_future *f, const struct far_val *value, struct far_err *err);
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
enum far_status
far_future_set_error(struct far_future *f, enum far_status status, int32_t code, const char *format, ...);

/* ---- scopes ---- */

/**
 * Gathers the futures of a thread's far_rpc_async() and far_rpc_async_to() from begin to end, to wait for all of them
 * at the end. Scopes nest; the innermost gathers. far_rpc_sync() and the rest are not gathered, nor is what a handler
 * starts, or a callback on the shard, that happens to run on this thread; one may begin a scope of its own, to be ended
 * before it returns. The memory is the caller's, on the stack as a rule, and must stay until the end; its content is
 * the engine's.
 */
struct far_scope {
	uintptr_t opaque[16];
};

/** Begins. FAR_INVALID: NULL, or active in this thread already. */
enum far_status far_scope_begin(struct far_scope *scope);

/**
 * Ends it, in the thread that began it: waits until all futures that it gathered are complete, at most `timeout_ns` (0:
 * no limit of its own, the calls' deadlines end them), and returns the first error in the order of the calls, or
 * FAR_OK. FAR_PENDING: the limit passed; FAR_WOULD_DEADLOCK: in a handler or callback, with a call pending;
 * FAR_RESOURCE: there was no memory to gather all, the others are complete. Whatever is returned, the scope is over and
 * its references are given back; calls that are pending go on. FAR_INVALID: it is not active in this thread.
 */
enum far_status far_scope_end(struct far_scope *scope, uint64_t timeout_ns, struct far_err *err);

/** Ends it without waiting. Nothing when it is not active in this thread. */
void far_scope_abandon(struct far_scope *scope);

#ifdef __cplusplus
}
#endif
#endif
