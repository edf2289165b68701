/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Interceptors: functions of the application that see calls on their way out and in, at the caller and at the callee,
 * and add fields to them. Profilers, distributed autograd and authorization rest on them. Without an interceptor calls
 * cost what they cost before.
 *
 * A call passes four points:
 *
 *   caller: call_out    before the request leaves; may add fields, or fail the call
 *   callee: request_in  before the handler runs, on its thread or fiber, if the request has fields of the interceptor;
 *                       may fail the call. request_end when the handler has returned
 *   callee: reply_out   when the answer is given; may add fields
 *   caller: reply_in    before the future of the call completes, or its callback runs
 *
 * A field has a type, a length and bytes. Each interceptor has a range of types, and sees the fields of its range
 * alone. A worker skips fields that no interceptor of it has, unless they are mandatory: then it refuses the request,
 * FAR_UNSUPPORTED, not executed. All fields of a message have FAR_TLV_BYTES_MAX bytes at most.
 *
 * Fields travel with requests, replies, errors and one-way messages of any size, over every driver; with each call of a
 * fan-out, with far_remote(), fetches of values, methods, deferred answers and retransmissions. A message with fields
 * is never written to memory that the application names for its placement: it is copied there.
 *
 * A flow of control is a thread of the application, a fiber, a handler, or a callback. Each interceptor has one pointer
 * in each flow: far_flow_set(). Continuations of far_future_then() and callbacks of far_future_on_done() run in a copy
 * of the flow that registered them.
 */
#ifndef FARCALL_INTERCEPT_H
#define FARCALL_INTERCEPT_H

#include <farcall/future.h>
#include <farcall/rpc.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define FAR_TLV_BYTES_MAX    1024   /* of all fields of a message, with 4 bytes for each */
#define FAR_TLV_MANDATORY    0x8000 /* bit of a type: workers that do not have it refuse the request */
#define FAR_TLV_TYPE_MAX     0x7fff /* types are in [1, FAR_TLV_TYPE_MAX]; those below FAR_TLV_TYPE_APP are Farcall's */
#define FAR_TLV_TYPE_APP     0x100  /* first type for applications */
#define FAR_INTERCEPTORS_MAX 8      /* of a process */

/* How a call was made: name, text. */
#define FAR_CALL_MODE_LIST(X)                                                                                          \
	X(SYNC, "sync")       /* the caller waits: far_rpc_sync, far_rref_rpc_sync; at the callee ASYNC */             \
	X(ASYNC, "async")     /* far_rpc_async, far_rpc_fanout, far_rref_rpc_async */                                  \
	X(REMOTE, "remote")   /* the value stays at the callee: far_remote, far_rref_remote */                         \
	X(FETCH, "fetch")     /* far_rref_to_here, far_rref_type */                                                    \
	X(MESSAGE, "message") /* far_msg_call, far_msg_send, far_msg_fanout */                                         \
	X(ONEWAY, "oneway")   /* far_msg_oneway: no answer */

enum far_call_mode {
#define FAR_CALL_MODE_ENUM(name, text) FAR_CALL_##name,
	FAR_CALL_MODE_LIST(FAR_CALL_MODE_ENUM)
#undef FAR_CALL_MODE_ENUM
		FAR_CALL_MODE_COUNT
};

/** A call, as an interceptor sees it. Valid during the call of its function. */
struct far_call_info {
	struct far_agent *agent;
	enum far_call_mode mode;
	struct far_to from, to; /* caller and callee */
	const char *function;   /* its name, valid as long as the agent; NULL: a message or a fetch */
	uint16_t message;       /* number of the message, if `function` is NULL */
	/* Arguments of the function as given by the application, with tensors and references; at call_out of typed
	 * calls and request_in. Else NULL, 0: requests that are sent later or again have none. */
	const struct far_val *args;
	size_t args_n;
	uint64_t received_ns; /* callee: when the request was received, CLOCK_MONOTONIC; caller: 0 */
};

struct far_tlv_out;
struct far_tlv_in;

/**
 * An interceptor. Any function may be NULL. They must not wait and must not make calls, but request_in and request_end
 * of fibers and blocking handlers, which may. `cookie` is of one call at one end, NULL at first: what call_out stored
 * reaches reply_in, and what request_in stored reaches request_end, reply_out and request_over.
 */
struct far_interceptor {
	const char *name;             /* for error texts; copied */
	uint16_t tlv_first, tlv_last; /* its types; ranges of a process do not overlap. 0, 0: it has none */
	struct far_agent *agent;      /* whose calls it sees; NULL: of every agent of the process, present and later */
	void *user;                   /* argument of each function */

	/** Before the request leaves. The thread of the caller; of calls of a fan-out that had to wait, the shard's.
	 * Not FAR_OK: the call fails, with `err`, before it is sent; no other function is called about it. */
	enum far_status (*call_out)(const struct far_call_info *call, struct far_tlv_out *out, void **cookie,
				    struct far_err *err, void *user);
	/** The call has ended: `in` has the fields of the answer; `err` is NULL after a success. Exactly once for each
	 * call_out that returned FAR_OK. The thread that completes the call. */
	void (*reply_in)(const struct far_call_info *call, const struct far_tlv_in *in, const struct far_err *err,
			 void *cookie, void *user);

	/** The request has fields of this interceptor, and its handler is about to run. Not FAR_OK: the call fails with
	 * `err`, not executed. */
	enum far_status (*request_in)(const struct far_call_info *call, const struct far_tlv_in *in, void **cookie,
				      struct far_err *err, void *user);
	/** The handler has returned `status`, and may have deferred its answer. The flow of request_in. Exactly once
	 * for each request_in that returned FAR_OK. */
	void (*request_end)(const struct far_call_info *call, enum far_status status, void *cookie, void *user);
	/** The answer is given: `value` is the result, as given to far_return() or far_deferred_return() on their
	 * thread. Other results, encoded, and errors are seen later, on the thread of the shard; results that hold
	 * references are then NULL, as are answers to messages. Not called if nobody waits for the answer any more. */
	void (*reply_out)(const struct far_call_info *call, const struct far_val *value, const struct far_err *err,
			  struct far_tlv_out *out, void *cookie, void *user);
	/** Nothing more follows: exactly once for each request_in that returned FAR_OK, after request_end. */
	void (*request_over)(void *cookie, void *user);

	/** Another flow has a copy of this pointer; a flow has dropped it. Both NULL: pointers are not counted. */
	void (*flow_ref)(void *pointer, void *user);
	void (*flow_unref)(void *pointer, void *user);
	/** The interceptor was removed, and no call refers to it any more. */
	void (*removed)(void *user);
	uint64_t reserved[4]; /* 0 */
};

/* ---- Any thread, but no handler, callback or function of an interceptor ---- */

/**
 * Adds an interceptor, before or after agents of the process have joined; *id in [0, FAR_INTERCEPTORS_MAX) names it.
 * Calls that begin afterwards are seen. Those of several interceptors are called in the order of their numbers.
 * Copies the struct. Errors: INVALID (a range that is no range or overlaps another's, `reserved`), RESOURCE.
 */
enum far_status far_interceptor_add(const struct far_interceptor *interceptor, unsigned *id, struct far_err *err);
/** Removes it: calls that begin afterwards are not seen; those under way are, to their end. Pointers in flows are
 * dropped with their flows. Errors: INVALID (there is none of that number). */
enum far_status far_interceptor_remove(unsigned id, struct far_err *err);

/* ---- In the functions of an interceptor ---- */

/** Adds a field: a type of the range, with FAR_TLV_MANDATORY or not. Errors: INVALID (another type), TOO_LARGE (no room
 * for it: nothing was added). */
enum far_status far_tlv_put(struct far_tlv_out *out, uint16_t type, const void *data, size_t len);
/** Reads the next field of the range, in the order in which they were added; *cursor is 0 at first. `value` stays valid
 * until the function of the interceptor returns; it is not aligned. false: there is none. */
bool far_tlv_next(const struct far_tlv_in *in, size_t *cursor, uint16_t *type, const void **value, size_t *len);
/** Reads the first field of a type. false: there is none. */
bool far_tlv_find(const struct far_tlv_in *in, uint16_t type, const void **value, size_t *len);

/* ---- Any thread, fiber, handler or callback ---- */

/** The pointer of interceptor `id` in the flow of control that calls; NULL: none was set. Borrowed. */
void *far_flow_get(unsigned id);
/**
 * Sets it. The flow takes the caller's reference of `pointer`, and drops the one that it had. A handler or callback
 * begins with none, and its own are dropped when it ends; those of a thread are dropped when they are set to NULL.
 * Errors: INVALID (no such number; an inline handler whose request no interceptor sees; a callback that none of
 * far_future_then() and far_future_on_done() registered), RESOURCE.
 */
enum far_status far_flow_set(unsigned id, void *pointer);

/** "sync", "async" …; "?" for an unknown mode. */
const char *far_call_mode_name(enum far_call_mode mode);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
