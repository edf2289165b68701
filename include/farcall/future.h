/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Futures: the result of an asynchronous operation, completed exactly once, with a value or an error.
 * Any thread, unless a function names another one.
 *
 * A future is reference-counted. The reference that a function returns is the caller's; give it back with
 * far_future_free(), before or after completion, before or after shutdown. A NULL future is FAR_INVALID.
 *
 * Kinds: the future of a call; a user-made future (far_future_create()), which the application completes; a derived
 * future (then, collect), which its parents complete.
 *
 * Limit of a wait with timeout_ns 0: futures of calls, and futures derived from them alone, complete at the deadline of
 * their calls at the latest, so there is none. For user-made futures and futures derived from one it is
 * FAR_WAIT_TIMEOUT_NS; the wait then returns FAR_PENDING. FAR_FOREVER: no limit.
 */
#ifndef FARCALL_FUTURE_H
#define FARCALL_FUTURE_H

#include <farcall/status.h>
#include <farcall/value.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/** Times are relative nanoseconds, and their names end in `_ns`. 0 is the default of the function or option, which a
 * macro below names; FAR_FOREVER is no limit. */
#define FAR_FOREVER UINT64_MAX
#define FAR_US      UINT64_C(1000)
#define FAR_MS      UINT64_C(1000000)
#define FAR_SEC     UINT64_C(1000000000)

#define FAR_RPC_TIMEOUT_NS      (60 * FAR_SEC) /* of a call: far_opts.rpc_timeout_ns, the default of the agent */
#define FAR_INIT_TIMEOUT_NS     (60 * FAR_SEC) /* of far_init_rpc() */
#define FAR_SERVE_TIMEOUT_NS    FAR_FOREVER    /* of far_serve() */
#define FAR_SHUTDOWN_TIMEOUT_NS (60 * FAR_SEC) /* of far_shutdown() */
#define FAR_ACQUIRE_TIMEOUT_NS  FAR_SEC        /* of far_shard_acquire() */
#define FAR_WAIT_TIMEOUT_NS                                                                                            \
	(60 * FAR_SEC) /* of a wait for a future that the application completes; other futures                         \
			  complete at the deadline of their calls */

struct far_agent;
struct far_future;

/* ---- Waits: any thread but an inline handler or a completion callback; these block ----
 *
 * A waiting thread polls its shard or sleeps; a fiber is suspended. A wait on a complete future returns at once and is
 * allowed everywhere. A future may be waited for any number of times.
 */

/**
 * Waits until the future is complete, at most `timeout_ns` (0: see above).
 *
 * On FAR_OK `*out` (may be NULL) is the value, with a reference to its bytes: finish it with far_val_fini(). Every wait
 * with `out` decodes objects of custom types anew; UNSUPPORTED (type not registered in this process), BAD_ARGS (refused
 * by its decode function) and RESOURCE then end this wait, and the future stays as it is.
 *
 * Errors: the error of the call; PENDING (limit reached; the call goes on); WOULD_DEADLOCK in an inline handler or
 * completion callback; CANCELLED in a handler whose caller gave up; RESOURCE in a handler that cannot be kept open.
 */
enum far_status far_future_wait(struct far_future *f, uint64_t timeout_ns, struct far_val *out, struct far_err *err);

/**
 * Waits until all of `f[0, n)` are complete or one has failed, at most `timeout_ns` (0: see above). Returns the first
 * failure at once, of several the one with the lowest index; the others stay pending. FAR_OK for n = 0. A future may be
 * given twice. To wait for all, failed ones included, wait for far_future_collect(). Errors: INVALID, with the index of
 * a NULL entry; else as far_future_wait().
 */
enum far_status far_future_wait_all(struct far_future *const *f, size_t n, uint64_t timeout_ns, struct far_err *err);

/**
 * Waits until one of `f[0, n)` is complete, with a value or an error, at most `timeout_ns` (0: see above;
 * FAR_WAIT_TIMEOUT_NS only if the application has to complete all of them). FAR_OK: `*index` is the lowest one that is
 * complete; read it with far_future_value(). Leaves nothing behind in the pending ones. Errors: as
 * far_future_wait_all(); INVALID for n = 0.
 */
enum far_status far_future_wait_any(struct far_future *const *f, size_t n, uint64_t timeout_ns, size_t *index,
				    struct far_err *err);

/* ---- Any thread; these never block ---- */

/** True if it is complete, with a value or an error. Does not poll. */
bool far_future_done(const struct far_future *f);

/** As far_future_wait() on a complete future; `*out` (may be NULL) is the caller's. Errors: PENDING; else its own. */
enum far_status far_future_value(struct far_future *f, struct far_val *out, struct far_err *err);

/**
 * Cancels the call of a future. The future soon completes with FAR_CANCELLED, executed MAYBE, unless its reply arrives
 * first. The callee ends the waits of a fiber handler and drops its reply. Callbacks of the future run on the thread
 * that polls the shard, not in this function. No effect on a complete future. Errors: INVALID (not the future of a
 * call), RESOURCE.
 */
enum far_status far_future_cancel(struct far_future *f, struct far_err *err);

/** Takes another reference. Returns `f`. */
struct far_future *far_future_ref(struct far_future *f);

/**
 * Gives a reference back. NULL is allowed. A pending call goes on without its result. The last reference of a pending
 * fan-out cancels it and may block, see <farcall/fanout.h>. The last reference of a pending user-made future completes
 * the futures derived from it with FAR_CANCELLED.
 */
void far_future_free(struct far_future *f);

/* ---- Continuations: any thread; these never block ----
 *
 * A callback runs once, after its parent is complete; waiting for the parent in it returns at once. The thread depends
 * on the parent:
 * - a call: the thread that polls the shard (the poller, or an application thread that waits). The callback must not
 *   wait for a pending future (FAR_WOULD_DEADLOCK; far_future_then_fiber() lets it) and should be short, because the
 *   shard receives nothing meanwhile. It may start calls, complete user-made futures and add callbacks.
 * - a user-made future: the thread that completes it or frees its last reference, inside that function.
 * - a complete future: the calling thread, inside the function that adds the callback.
 * - a derived future: the thread that ran the last callback it depended on.
 * In the second and third case no other callback or handler runs inside that function, and the callback may wait unless
 * the thread is in a handler. <farcall/agent.h> lists all functions that may run application code.
 *
 * Callbacks added to a pending parent run in the order in which they were added; those of a child run before the next
 * callback of its parent. far_shutdown() fails pending calls, so their callbacks run with that error.
 */

/**
 * Callback of far_future_then(). On FAR_OK the child completes with `*out` (none at first); the engine copies it and
 * finishes it with far_val_fini(), so `return far_future_value(parent, out, err)` passes the parent's result on. Any
 * other status fails the child, with text, code, origin and executed of `err` (empty at first).
 */
typedef enum far_status far_then_fn(struct far_future *parent, struct far_val *out, struct far_err *err, void *user);

/**
 * Makes a future that completes with the result of `fn(parent, …, user)`, which runs when `parent` is complete.
 * `*child` is the caller's to free; `parent` may be freed at once. A future used in `fn` is not flattened: `fn` waits
 * for it or adds callbacks. Blocks only if `fn` does. Errors, with nothing added: INVALID (fn or child is NULL),
 * RESOURCE.
 */
enum far_status far_future_then(struct far_future *parent, far_then_fn *fn, void *user, struct far_future **child,
				struct far_err *err);

/**
 * far_future_then() with a callback that may wait, on a fiber of `agent`: on the shard of the calling thread, as a
 * handler of kind fiber. The fiber is taken from now on until the callback has returned (opts.fibers). The `parent`
 * that the callback gets is another future with the same result. Errors: as far_future_then(); INVALID (`agent` is
 * NULL). The child fails with RESOURCE if no fiber is free, and with SHUTDOWN if the agent ends before the parent is
 * complete; the callback does not run then. far_shutdown() cancels its waits, as those of handlers.
 */
enum far_status far_future_then_fiber(struct far_agent *agent, struct far_future *parent, far_then_fn *fn, void *user,
				      struct far_future **child, struct far_err *err);

/** As far_future_then() without a child. */
typedef void far_done_fn(struct far_future *f, void *user);
enum far_status far_future_on_done(struct far_future *f, far_done_fn *fn, void *user, struct far_err *err);

/**
 * Makes a future that completes when all of `f[0, n)` are complete: with none if no one failed, else with the error of
 * the first failed entry. n = 0: it is complete. The array may be freed at once. A pending user-made entry whose last
 * reference is freed counts as failed. Errors: INVALID, RESOURCE (more than about 800 000 entries, or no memory).
 */
enum far_status far_future_collect(struct far_future *const *f, size_t n, struct far_future **out, struct far_err *err);

/**
 * Makes a future that completes with the first of `f[0, n)`, succeeded or failed; its value is the index, an int. Holds
 * memory in the others until they are complete; use far_future_wait_any() to wait repeatedly. Errors: INVALID (also
 * n = 0), RESOURCE.
 */
enum far_status far_future_collect_any(struct far_future *const *f, size_t n, struct far_future **out,
				       struct far_err *err);

/* ---- User-made futures: any thread; these never block ---- */

/** Makes a pending future with one reference, the caller's. Errors: RESOURCE. */
enum far_status far_future_create(struct far_future **out, struct far_err *err);

/**
 * Complete a user-made future with a value (copied; NULL is none) or an error. `status` is any but OK; the text is
 * printf-style and cut at 383 bytes, NULL for the default text of the status. Callbacks run before the function
 * returns. One of several racing threads gets FAR_OK. Errors: INVALID (complete; not user-made; the value or status is
 * invalid); TOO_LARGE, RESOURCE (the value; the future stays pending).
 */
enum far_status far_future_set_value(struct far_future *f, const struct far_val *value, struct far_err *err);
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
enum far_status
far_future_set_error(struct far_future *f, enum far_status status, int32_t code, const char *format, ...);
/** far_future_set_error() with the error of another call as it is: status, code, text, origin and executed. Errors:
 * INVALID (complete; not user-made; `err` is NULL or its status is OK). */
enum far_status far_future_pass_error(struct far_future *f, const struct far_err *err);

/* ---- Scopes: the thread that began the scope ---- */

/**
 * Gathers the futures of asynchronous calls that this thread starts between begin and end, to wait for all of them at
 * the end. Scopes nest; the innermost one gathers. A scope does not gather calls of handlers and shard callbacks that
 * run on this thread; these may use a scope of their own and end it before they return. The memory is the caller's,
 * usually on the stack, and must stay until the end. Its content is private.
 */
struct far_scope {
	uintptr_t opaque[16];
};

/** Begins a scope. Never blocks. FAR_INVALID: NULL, or active in this thread. */
enum far_status far_scope_begin(struct far_scope *scope);

/**
 * Ends a scope: waits until all gathered futures are complete, at most `timeout_ns` (0: until the deadlines of the
 * calls), and frees its references. Blocks. Returns the first error in the order of the calls, or FAR_OK. The scope
 * ends whatever is returned; pending calls go on. Other errors: PENDING (limit reached); WOULD_DEADLOCK (a call is
 * pending, in an inline handler or callback); RESOURCE (no memory to gather all; the gathered ones are complete);
 * INVALID (not active in this thread; the scope does not end).
 */
enum far_status far_scope_end(struct far_scope *scope, uint64_t timeout_ns, struct far_err *err);

/** Ends a scope without waiting. Never blocks. No effect if it is not active in this thread. */
void far_scope_abandon(struct far_scope *scope);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
