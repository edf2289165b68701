/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Fan-out: one future over calls to many targets. Each target may have its own arguments. Replies are written straight
 * into the caller's memory, in the order of the targets. Any thread, unless a function names another one.
 *
 *	struct far_target targets[8] = {{.to = {1, -1}}, {.to = {2, -1}}, ...};
 *	struct far_fanout_opts opts = {.recv_buf = rows, .slice_bytes = sizeof rows[0]};
 *	far_rpc_fanout(agent, "table::rows", FAR_ARGS(&keys), targets, 8, &opts, NULL, &f, &err);
 *	far_future_wait(f, 0, NULL, &err);
 *
 * Ownership: arguments and request bytes are copied or sent before the function returns. `targets`, `results`, the
 * receive buffers and the tensors that describe them belong to the engine until the future is complete, however it
 * completes: success, failure, far_future_cancel(), shutdown, loss of a peer. The engine does not access them
 * afterwards. far_future_free() of the last reference cancels a pending fan-out first and returns when the engine has
 * stopped using that memory: at once on the shard, elsewhere after the next poll of the shard.
 */
#ifndef FARCALL_FANOUT_H
#define FARCALL_FANOUT_H

#include <farcall/agent.h>
#include <farcall/future.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define FAR_FANOUT_MAX      4096 /* targets of one fan-out: a quarter of a shard's call slots by default */
#define FAR_TARGET_TEXT_MAX 120  /* bytes of a target's error text with its NUL; a longer one is cut */

/** One call of a fan-out. A zeroed field has its default; `to` has none. */
struct far_target {
	struct far_to to;
	const struct far_to
		*second; /* destination of the hedge call, with FAR_HEDGE_SECOND; read at the start; NULL: none */
	const struct far_val *args; /* far_rpc_fanout(): arguments of this target; NULL: the common ones */
	size_t args_n;
	const void *data; /* far_msg_fanout(): request of this target; NULL: the common one */
	size_t len;
	/**
	 * Receive buffer of this target. `out`: a tensor whose dtype and shape the result must have; the elements go to
	 * out->data. `recv_buf`: at most `cap` bytes, of a message, a tensor, a string (with its NUL) or a bytes value;
	 * a bool, int or float takes 1, 8 or 8 bytes; a list, dict, custom value or reference ends the target with
	 * UNSUPPORTED. Neither: the reply of a message must be empty; a value goes to the result and owns its memory.
	 */
	const struct far_tensor *out;
	void *recv_buf;
	size_t cap;
	uint64_t reserved[2]; /* 0 */
};

/** Result of one target. Readable when the future is complete or `status` is not PENDING. */
struct far_target_result {
	enum far_status status; /* PENDING until the target has ended */
	enum far_executed executed;
	int32_t code;         /* of an error, as in struct far_err */
	bool hedged;          /* the hedge call was sent */
	struct far_to from;   /* worker and shard of the answer, or of the last failure */
	size_t len;           /* bytes of the reply or of the value's elements; with TOO_LARGE: the bytes needed */
	struct far_val value; /* typed, OK: refers to the receive buffer or owns its bytes: far_val_fini() it */
	char text[FAR_TARGET_TEXT_MAX]; /* of an error */
	uint64_t reserved[2];
};

enum far_fanout_errors {
	/** The fan-out fails as soon as fewer than `k` targets can succeed. */
	FAR_ERRORS_COUNT,
	/** The fan-out fails with the first target that fails. */
	FAR_ERRORS_FAIL_FAST,
	/** The fan-out ends when every target has ended, so each result is complete. */
	FAR_ERRORS_COLLECT
};

/** Destination of the hedge call. */
enum far_hedge {
	FAR_HEDGE_SECOND, /* the target's `second` */
	FAR_HEDGE_NEXT    /* that of the next target of another worker, cyclically */
};

/** Options of a fan-out. A zeroed field has its default. */
struct far_fanout_opts {
	uint64_t timeout_ns; /* of the fan-out; 0: the agent's default; FAR_FOREVER: none */
	size_t k;            /* successes that complete the fan-out; the other calls are cancelled. 0: all */
	/** At the deadline, or when all targets have ended: complete with the successes, if there is one, instead of
	 * failing. Errors before that do not end the fan-out, whatever `errors` is. */
	bool partial;
	enum far_fanout_errors errors;
	uint64_t hedge_after_ns; /* delay of the hedge calls from the start of the fan-out; 0: no hedging. Targets with
				    references in their arguments end with UNSUPPORTED then */
	enum far_hedge hedge;
	/** One receive buffer for all targets instead of their own `recv_buf` and `out`. Slice i follows slice i-1. A
	 * slice has `slice_bytes` bytes or, if `slices` is set, slices[i] bytes. */
	void *recv_buf;
	size_t slice_bytes;
	const size_t *slices;
	enum far_dtype dtype; /* that tensors in `recv_buf` must have; FAR_DTYPE_NONE: any */
	uint64_t reserved[4]; /* 0 */
};

/* ---- Any thread, also in handlers and callbacks; these never block ---- */

/**
 * Calls `function` on targets[0, n), n in [0, FAR_FANOUT_MAX]; a worker may appear several times. `args` are the common
 * arguments. `opts` and `results` (n entries, filled as the targets end) may be NULL. A tensor or bytes result is
 * copied once, from the receive memory to its slice, by the thread that polls the shard.
 *
 * `*out` completes with an int, the number of successes, or with an error: class and code of the first target that
 * failed, its worker as the origin, and the counts in the text; TIMEOUT at the deadline; CANCELLED after
 * far_future_cancel(), which cancels all calls. `executed` is NO if no target can have run, else MAYBE.
 *
 * An error of one target does not stop the others: UNKNOWN_WORKER, BAD_ARGS, TOO_LARGE (request) and PEER_LOST before
 * its call is sent; TOO_LARGE, executed YES, if the reply exceeds its slice, which stays unchanged; PROTOCOL for
 * another dtype or shape. Back-pressure of a worker (FAR_BUSY elsewhere) delays its targets only, until the deadline.
 * Targets that are no longer needed end with CANCELLED, at the deadline with TIMEOUT.
 *
 * Hedging: a target without an answer after opts.hedge_after_ns, or that failed before its function ran, is called at
 * its second destination too, with the same arguments. The first answer counts, a value or an error of the function;
 * the other call is cancelled. As both may run, the function must be registered here with FAR_IDEMPOTENT. The timer
 * never fires early; it fires a few microseconds late while the shard is polled.
 *
 * Errors, with nothing sent and no future: INVALID (n, k, options that exclude each other, hedging without
 * FAR_IDEMPOTENT), NO_FUNCTION, BAD_ARGS (common arguments), TOO_LARGE, RESOURCE.
 */
enum far_status far_rpc_fanout(struct far_agent *agent, const char *function, const struct far_val *args, size_t args_n,
			       const struct far_target *targets, size_t n, const struct far_fanout_opts *opts,
			       struct far_target_result *results, struct far_future **out, struct far_err *err);

/**
 * far_rpc_fanout() with message handler `id`; data[0, len) is the common request. Hedging needs the handler registered
 * here too, with FAR_IDEMPOTENT.
 */
enum far_status far_msg_fanout(struct far_agent *agent, uint16_t id, const void *data, size_t len,
			       const struct far_target *targets, size_t n, const struct far_fanout_opts *opts,
			       struct far_target_result *results, struct far_future **out, struct far_err *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
