/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Typed calls: a function registered under a qualified name with a signature, called on a named worker.
 *
 * Signature: `name(Type a, Type b=1) -> Type`, name of `A-Z a-z 0-9 _ :` and dots, at most 16 parameters.
 * Types: none, bool, int, float, str, bytes, Tensor, Scalar (bool, int or float), List, Dict, rref, Any, and the names
 * of registered custom types, which have a `::`; alternatives with `|`, as in `Tensor|Scalar` or `none|geo::Polygon`.
 * An int is taken where a float is wanted; an int 0 or 1 where a bool is. Defaults: none, true, false, integers,
 * floating-point numbers, "strings" with \" \\ \n \t; parameters with one come last.
 *
 * Both sides register the function. The caller matches the arguments against its own table before anything is sent: by
 * position, then by keyword (FAR_KW), then by default. What travels, and what the handler gets, is every parameter in
 * its order; so the defaults are the caller's.
 *
 * Overloads: up to 16 signatures that differ in their parameters' types under one name. Of those that fit, the one
 * called is better than each other: for no argument worse, and for one better, or else with fewer defaults taken. For
 * an argument, from best to worst: its only type, one of several, Any, int as float, int as bool. When there is no such
 * one the call is an error that lists the candidates.
 */
#ifndef FARCALL_RPC_H
#define FARCALL_RPC_H

#include <farcall/agent.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Memory of the caller's for a result. */
struct far_into {
	void *data;
	size_t cap; /* bytes */
};

struct far_call_opts {
	/** 0: the agent's default or, in a handler that may wait, what its request has left, if that is less;
	 * FAR_FOREVER: none. */
	uint64_t timeout_ns;
	unsigned via; /* 1 + the shard of this worker that the call goes through; 0: the one of the calling thread, that
			 is in a handler or callback its own, while the thread holds one that, else one by thread. In
			 the first two cases no other may be named */
	/**
	 * Sends the request again, under the same number, until its answer comes: first after `retry_after_ns` (0: 200
	 * ms), then after ever longer waits. The callee runs it once all the same and answers a repeat with the answer
	 * that it kept. For networks that lose packets; costs a copy of the request here and of the answer there. When
	 * the callee's process is lost the call ends with PEER_LOST, executed MAYBE: it is never run by another life of
	 * it.
	 */
	bool retry;
	uint64_t retry_after_ns;
	/**
	 * Where the elements of a result go that is one tensor or one bytes value, or a message's reply: without a copy
	 * beside. The result refers to that memory and owns nothing. Other types of results are returned as ever. A
	 * longer one is FAR_TOO_LARGE, executed YES, the text naming both sizes, and nothing beyond `cap` is written.
	 * The memory belongs to the call until it has ended. NULL: memory of the engine.
	 */
	struct far_into into;
};

/**
 * Calls `function` on the worker named `to` and waits for its value. `opts` may be NULL. Blocks; drives the shard
 * meanwhile. On FAR_OK `*out` (may be NULL) is the caller's to finish with far_val_fini(). Found at once, nothing sent:
 * UNKNOWN_WORKER, INVALID (no such shard), NO_FUNCTION, BAD_ARGS, TOO_LARGE, SHUTDOWN, WOULD_DEADLOCK (in an inline
 * handler or callback), PEER_LOST (known dead). In a handler that may wait: CANCELLED, when its own caller has given
 * up. Back-pressure is waited out. Later: TIMEOUT, PEER_LOST, UNREACHABLE (no session could be set up), NO_FUNCTION or
 * SIGNATURE (at the callee), RESOURCE, or what the handler said; `err->executed` tells whether it ran.
 */
enum far_status far_rpc_sync(struct far_agent *agent, const char *to, const char *function, const struct far_val *args,
			     size_t args_n, const struct far_call_opts *opts, struct far_val *out, struct far_err *err);

/**
 * As far_rpc_sync() but returns at once with a future. Arguments are copied or sent before it returns. Beyond
 * opts.peer_calls calls towards one shard of a worker, further ones wait in order, with their time-outs, at most
 * opts.peer_waiting. FAR_BUSY, at the call, is back-pressure: those are all taken, or the submission ring, the call
 * slots or the message memory are; wait for some calls and try again. The future does not fail with it later.
 * Allowed in handlers and callbacks (only waiting is not). Runs no handler or callback itself.
 */
enum far_status far_rpc_async(struct far_agent *agent, const char *to, const char *function, const struct far_val *args,
			      size_t args_n, const struct far_call_opts *opts, struct far_future **out,
			      struct far_err *err);

/** The same two with the worker given by rank and shard. */
enum far_status far_rpc_sync_to(struct far_agent *agent, struct far_to to, const char *function,
				const struct far_val *args, size_t args_n, const struct far_call_opts *opts,
				struct far_val *out, struct far_err *err);
enum far_status far_rpc_async_to(struct far_agent *agent, struct far_to to, const char *function,
				 const struct far_val *args, size_t args_n, const struct far_call_opts *opts,
				 struct far_future **out, struct far_err *err);

/* ---- inside a handler: exactly one answer per request ---- */

/** Answers with a value (copied before it returns). FAR_INVALID when already answered. */
enum far_status far_return(struct far_req *req, const struct far_val *value);

/**
 * Answers with a tensor that the handler fills in place: `*data` is its memory, inside the outgoing message,
 * element-aligned, to be written before the handler returns or waits. Nothing is copied afterwards. FAR_TOO_LARGE,
 * FAR_RESOURCE: no answer was given.
 */
enum far_status far_return_tensor(struct far_req *req, enum far_dtype dtype, unsigned ndim, const uint64_t *shape,
				  void **data);

/** Answers with an error; `status` is any but OK, FAR_REMOTE by habit; the text is printf-style and cut at 383 bytes.
 */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
enum far_status
far_fail(struct far_req *req, enum far_status status, int32_t code, const char *format, ...);

/** Who calls, the agent that received the call, and the shard that the handler runs on. */
struct far_to far_req_from(const struct far_req *req);
unsigned far_req_shard(const struct far_req *req);
struct far_agent *far_req_agent(const struct far_req *req);
/** Nanoseconds until the caller gives up; FAR_FOREVER when never. In an inline handler: as it was when that began. */
uint64_t far_req_time_left(const struct far_req *req);
/**
 * Has the caller given up (cancelled, its deadline passed, its process gone), so that nobody waits for the answer. For
 * handlers of kind fiber, after a wait, and blocking, at any time. Inline: false.
 */
bool far_req_cancelled(const struct far_req *req);

/**
 * Keeps the request open beyond the handler. The arguments are not kept: copy what is needed. `*out` must be answered
 * exactly once, by any thread, with one of the functions below, before the agent is shut down. FAR_RESOURCE: too many
 * open requests.
 */
struct far_deferred;
enum far_status far_defer(struct far_req *req, struct far_deferred **out);

/**
 * Answer a deferred request; never block, and run no handler or callback on the calling thread, so locks that handlers
 * take may be held (<farcall/agent.h> has the table). The handle is gone afterwards, whatever is returned.
 * FAR_CANCELLED or FAR_PEER_LOST: nobody waits for the answer any more. FAR_TOO_LARGE, FAR_RESOURCE: the caller gets
 * that as an error.
 */
enum far_status far_deferred_return(struct far_deferred *d, const struct far_val *value);
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
enum far_status
far_deferred_fail(struct far_deferred *d, enum far_status status, int32_t code, const char *format, ...);
/** Gives up: the caller gets an error at once. */
void far_deferred_drop(struct far_deferred *d);

#ifdef __cplusplus
}
#endif
#endif
