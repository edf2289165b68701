/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Typed calls: a function is registered under a qualified name with a signature, and called on a named worker.
 * Any thread, unless a function names another one.
 *
 * Signature: `name(Type a, Type b=1) -> Type`. A name has `A-Z a-z 0-9 _ :` and dots. At most 16 parameters. Types:
 * none, bool, int, float, str, bytes, Tensor, Scalar (bool, int or float), List, Dict, rref, Any, and registered custom
 * types, whose names contain `::`. Tensor<f32,2> is a tensor of that dtype (far_dtype_name()) and number of dimensions,
 * Tensor<f32> one of any number; the caller checks both. Such calls do not take the fast path. `|` separates
 * alternatives: `Tensor|Scalar`, `none|geo::Polygon`. An int is accepted for a float, an int 0 or 1 for a bool.
 * Defaults: none, true, false, integers, floating-point numbers, "strings" and 'strings'
 * with \" \' \\ \n \t; parameters with a default come last.
 *
 * Caller and callee both register the function. The caller matches the arguments against its own signature before it
 * sends anything: by position, then by keyword (FAR_KW), then by default. The message carries every parameter in order,
 * so the caller's defaults apply.
 *
 * Overloads: up to 16 signatures under one name, with different parameter types. Among those that accept the arguments
 * the best one is called: it is not worse for any argument, and better for one or with fewer defaults used. For an
 * argument, from best to worst: the only type (Tensor<...> before Tensor), one of several types, Any, int as float, int
 * as bool. If no overload is best the call is an error that lists the candidates.
 */
#ifndef FARCALL_RPC_H
#define FARCALL_RPC_H

#include <farcall/agent.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/** A receive buffer: memory of the caller for a result. */
struct far_recv_buf {
	void *data; /* NULL: none */
	size_t cap; /* bytes */
};

/** Options of a call. A zeroed field has its default. */
struct far_call_opts {
	/** 0: the agent's default or, in a handler that may wait, the time left of its request if that is less;
	 * FAR_FOREVER: none. */
	uint64_t timeout_ns;
	unsigned via; /* FAR_VIA(shard): the shard of this worker that sends the call. 0: in a handler or callback its
			 own shard; else the shard that the thread holds; else one chosen by thread. Another shard than
			 the first two is INVALID */
	/**
	 * Sends the request again, with the same number, until its reply arrives: first after `retry_after_ns` (0: 200
	 * ms), then after growing intervals. The callee runs it once and answers a duplicate with the stored reply. For
	 * networks that lose packets. Costs a copy of the request at the caller and of the reply at the callee. If the
	 * callee's process is lost the call ends with PEER_LOST, executed MAYBE; a new incarnation never runs it.
	 */
	bool retry;
	uint64_t retry_after_ns;
	/**
	 * Receive buffer for the elements of a result that is one tensor or bytes value, or for a message's reply, to
	 * save a copy. The result refers to the buffer and owns nothing. Results of other types ignore it. A longer
	 * result is TOO_LARGE, executed YES, with both sizes in the text, and nothing beyond `cap` is written. The
	 * buffer belongs to the call until the call has ended. Empty: memory of the engine.
	 */
	struct far_recv_buf recv_buf;
	uint64_t reserved[4]; /* 0 */
};

/** Value of far_call_opts.via for shard `shard`, from 0. */
#define FAR_VIA(shard) ((unsigned)(shard) + 1)

/* ---- Any thread but an inline handler or a callback; these block ---- */

/**
 * Calls `function` on worker `to` and waits for its value. `opts` may be NULL. Waits for room under back-pressure. The
 * thread polls its shard meanwhile; a fiber is suspended. On FAR_OK `*out` (may be NULL) is the caller's:
 * far_val_fini() it.
 *
 * Errors before anything is sent: UNKNOWN_WORKER, INVALID (no such shard), NO_FUNCTION, BAD_ARGS, TOO_LARGE, SHUTDOWN,
 * WOULD_DEADLOCK, PEER_LOST (not a member now), CANCELLED (in a handler whose own caller gave up). Later errors:
 * TIMEOUT, PEER_LOST, UNREACHABLE (no session could be set up), NO_FUNCTION or SIGNATURE (at the callee), RESOURCE,
 * CANCELLED, or the error of the handler. `err->executed`: whether the handler ran.
 */
enum far_status far_rpc_sync(struct far_agent *agent, const char *to, const char *function, const struct far_val *args,
			     size_t args_n, const struct far_call_opts *opts, struct far_val *out, struct far_err *err);
/** far_rpc_sync() with the worker by rank and shard. */
enum far_status far_rpc_sync_to(struct far_agent *agent, struct far_to to, const char *function,
				const struct far_val *args, size_t args_n, const struct far_call_opts *opts,
				struct far_val *out, struct far_err *err);

/* ---- Any thread, also in handlers and callbacks; these never block ---- */

/**
 * Starts the call of far_rpc_sync() and returns a future, the caller's to free. Arguments are copied or sent before the
 * function returns. Runs no handler or callback.
 *
 * Limits: opts.peer_calls calls in flight to one shard of a worker; opts.peer_waiting more wait in order, and their
 * deadlines run. FAR_BUSY is back-pressure: these, the submission ring, the call slots or the message memory are full;
 * wait for some calls and try again. The future itself never fails with BUSY.
 */
enum far_status far_rpc_async(struct far_agent *agent, const char *to, const char *function, const struct far_val *args,
			      size_t args_n, const struct far_call_opts *opts, struct far_future **out,
			      struct far_err *err);
/** far_rpc_async() with the worker by rank and shard. */
enum far_status far_rpc_async_to(struct far_agent *agent, struct far_to to, const char *function,
				 const struct far_val *args, size_t args_n, const struct far_call_opts *opts,
				 struct far_future **out, struct far_err *err);

/** A call for far_rpc_async_zero_copy(). Zero what is not set. */
struct far_zero_copy_call {
	struct far_to to;
	const char *function;
	const struct far_val *args; /* the array is read before the function returns */
	size_t args_n;
	void (*release)(void *user); /* not NULL; as far_msg_release_fn of <farcall/message.h> */
	void *release_user;
	const struct far_call_opts *opts; /* may be NULL */
	uint64_t reserved[4];             /* 0 */
};

/**
 * far_rpc_async_to() whose large arguments are not copied to a worker of the same host: its handler reads them where
 * they are. Such are dense tensors and bytes of 64 KiB or more, not inside lists or dicts, that begin at a multiple of
 * 64 in memory of far_alloc_shared(), over nic=shm. Up to three are, in lengths that are multiples of 64 and behind all
 * other tensors and bytes; one is, of any length at any place; two may be. The other arguments must fit 1 KiB. Else,
 * before the callee has mapped the memory, and with `opts->retry` or interceptors, all arguments are copied.
 *
 * They must not change until `release` runs, once: when no handler reads them any more, even if the call or the session
 * has ended before. It may run inside the function, as it does if that fails. A call without it is INVALID.
 *
 * The callee can read all of the shared memory, and the other arguments of such calls, also to other workers. A handler
 * checks a copy of what it depends on.
 *
 * Errors: as far_rpc_async(), and INVALID (no `release`).
 */
enum far_status far_rpc_async_zero_copy(struct far_agent *agent, const struct far_zero_copy_call *call,
					struct far_future **out, struct far_err *err);

/* ---- Functions that the callee alone has registered ---- */

/**
 * far_rpc_sync() and far_rpc_async() of a function that need not be registered here. The arguments are sent with their
 * own types, by position; the callee chooses the overload, converts and adds defaults as far_rpc_sync() does here.
 * Errors at the callee, executed NO: NO_FUNCTION; BAD_ARGS, with the argument and the signature. Errors here: BAD_ARGS
 * (FAR_KW), INVALID (no name of a function, more than 16 arguments); else as those functions. Costs more than a checked
 * call: the callee copies the request. Threads and blocking as those functions.
 */
enum far_status far_rpc_sync_unchecked(struct far_agent *agent, const char *to, const char *function,
				       const struct far_val *args, size_t args_n, const struct far_call_opts *opts,
				       struct far_val *out, struct far_err *err);
enum far_status far_rpc_async_unchecked(struct far_agent *agent, const char *to, const char *function,
					const struct far_val *args, size_t args_n, const struct far_call_opts *opts,
					struct far_future **out, struct far_err *err);

/* ---- Handles: a worker, and a function to be called there, looked up once ---- */

/** One incarnation of a worker, found by far_worker_find(). A plain value, to be copied; it holds nothing. `to` also
 * goes to calls by rank, messages and fan-outs, which reach whatever incarnation there is. */
struct far_worker {
	struct far_agent *agent;
	struct far_to to;     /* shard −1; another may be set before far_callee_find() */
	uint64_t incarnation; /* far_worker_info.incarnation */
};

/** A function of this agent, to be called on one incarnation of a worker. */
struct far_callee;

/** Looks a worker up by its name. Any thread; never blocks. Errors: INVALID (NULL), UNKNOWN_WORKER. */
enum far_status far_worker_find(struct far_agent *agent, const char *name, struct far_worker *out, struct far_err *err);

/**
 * Looks a function up that is registered here, with all of its overloads, also those registered later. `*out` is the
 * caller's: far_callee_free() it, at the latest after the agent was shut down, when it is of no other use. Any thread;
 * never blocks. Errors: INVALID (NULL, or no such shard), NO_FUNCTION, PEER_LOST (the worker is another incarnation by
 * now), RESOURCE.
 */
enum far_status far_callee_find(const struct far_worker *worker, const char *function, struct far_callee **out,
				struct far_err *err);
/** NULL is ignored. No thread may be in one of the next two functions with it; calls that were started go on. */
void far_callee_free(struct far_callee *callee);

/**
 * far_rpc_sync_to() and far_rpc_async_to() without the lookups: the same arguments, threads, blocking and errors. Any
 * number of threads may use a callee at the same time. INVALID: it is NULL. PEER_LOST, executed NO: the worker is
 * another incarnation by now, and nothing was sent to it; far_worker_find() finds that one.
 */
enum far_status far_callee_rpc_sync(struct far_callee *callee, const struct far_val *args, size_t args_n,
				    const struct far_call_opts *opts, struct far_val *out, struct far_err *err);
enum far_status far_callee_rpc_async(struct far_callee *callee, const struct far_val *args, size_t args_n,
				     const struct far_call_opts *opts, struct far_future **out, struct far_err *err);

/* ---- The handler of the request, exactly one answer; these never block ---- */

/**
 * Answers with a value, which is copied; NULL is none. Errors: INVALID (answered already); SIGNATURE (the value has not
 * the result type), TOO_LARGE or the error of the value, which the caller gets too; RESOURCE, with no answer given.
 */
enum far_status far_return(struct far_req *req, const struct far_val *value);

/** far_return() of a value of one type. Same errors. */
static inline enum far_status far_return_none(struct far_req *req)
{
	return far_return(req, NULL);
}
static inline enum far_status far_return_bool(struct far_req *req, bool b)
{
	struct far_val v = far_bool(b);
	return far_return(req, &v);
}
static inline enum far_status far_return_int(struct far_req *req, int64_t i)
{
	struct far_val v = far_int(i);
	return far_return(req, &v);
}
static inline enum far_status far_return_float(struct far_req *req, double f)
{
	struct far_val v = far_float(f);
	return far_return(req, &v);
}
static inline enum far_status far_return_str(struct far_req *req, const char *s)
{
	struct far_val v = far_str(s);
	return far_return(req, &v);
}
static inline enum far_status far_return_bytes(struct far_req *req, const void *data, size_t len)
{
	struct far_val v = far_bytes(data, len);
	return far_return(req, &v);
}
static inline enum far_status far_return_rref(struct far_req *req, struct far_rref *rref)
{
	struct far_val v = far_rref_val(rref);
	return far_return(req, &v);
}

/**
 * Answers with the result of a future, of any kind, when it is complete: with its value, or with its error (class, code
 * and text). The handler may free its reference at once. Errors: INVALID (answered already; `f` is NULL); RESOURCE
 * (opts.deferred requests are open, or no memory), which the caller gets too.
 */
enum far_status far_return_future(struct far_req *req, struct far_future *f);

/**
 * Answers with a tensor that the handler writes in place: `*data` is inside the outgoing message, aligned to an
 * element. The handler writes it before it returns or waits. Errors, with no answer given: INVALID (answered already),
 * TOO_LARGE, RESOURCE. SIGNATURE: the result type is not Tensor; the caller gets this error.
 */
enum far_status far_return_tensor(struct far_req *req, enum far_dtype dtype, unsigned ndim, const uint64_t *shape,
				  void **data);

/** Answers with an error. `status` is any but OK, usually FAR_REMOTE; the text is printf-style and cut at 383 bytes.
 * That of a blocking handler leaves when it returns, as other answers. INVALID: answered already. */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
enum far_status
far_fail(struct far_req *req, enum far_status status, int32_t code, const char *format, ...);

/** The caller; the shard that runs the handler; the agent that received the request. */
struct far_to far_req_from(const struct far_req *req);
unsigned far_req_shard(const struct far_req *req);
struct far_agent *far_req_agent(const struct far_req *req);
/** Nanoseconds to the caller's deadline; FAR_FOREVER: none. In an inline handler the value from its start. */
uint64_t far_req_time_left_ns(const struct far_req *req);
/**
 * True if the caller has given up (cancelled, deadline passed, process lost). In a fiber handler it changes during
 * waits, in a blocking handler at any time. Always false in an inline handler.
 */
bool far_req_cancelled(const struct far_req *req);

/**
 * Keeps an argument beyond the handler, or a value inside one: `*out` owns its bytes, which nothing else reads or
 * writes, and is the caller's to finish on any thread. A tensor or a bytes value of a fiber or blocking handler is not
 * copied: `*out` keeps the memory of the whole request. It is copied if the request is short, or if the caller left the
 * value in shared memory (far_rpc_async_zero_copy()), as is any other value, by far_val_dup(). Errors: as
 * far_val_dup(), without effect.
 */
enum far_status far_req_keep(const struct far_req *req, const struct far_val *v, struct far_val *out,
			     struct far_err *err);

/**
 * Keeps the request open beyond the handler. `*out` must be answered exactly once, from any thread, before the agent is
 * shut down. The arguments are not kept: far_req_keep(). Errors: INVALID (answered already), RESOURCE (opts.deferred
 * requests are open).
 */
struct far_deferred;
enum far_status far_defer(struct far_req *req, struct far_deferred **out);

/* ---- Any thread; these never block ---- */

/**
 * Answer a deferred request. They run no handler or callback on the calling thread, so locks that handlers take may be
 * held. They consume `d` whatever they return. Errors: CANCELLED, PEER_LOST (the caller no longer waits); SIGNATURE
 * (the value has not the result type), TOO_LARGE, RESOURCE, which the caller gets as the error.
 */
enum far_status far_deferred_return(struct far_deferred *d, const struct far_val *value);
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
enum far_status
far_deferred_fail(struct far_deferred *d, enum far_status status, int32_t code, const char *format, ...);
/** Answers with a FAR_REMOTE error. */
void far_deferred_drop(struct far_deferred *d);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
