/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Fan-out: one future over calls to many targets, each with arguments of its own if need be, their replies written
 * straight into the caller's memory in the order of the targets.
 *
 *	struct far_target targets[8] = {{.to = {1, -1}}, {.to = {2, -1}}, ...};
 *	struct far_fanout_opts opts = {.into = rows, .slice_bytes = sizeof rows[0]};
 *	far_rpc_fanout(agent, "table::rows", FAR_ARGS(&keys), targets, 8, &opts, NULL, &f, &err);
 *	far_future_wait(f, 0, NULL, &err);
 *
 * Memory: arguments and request bytes are copied or sent before the call returns. `targets`, `results`, the slices
 * that replies go to and the tensors that describe them stay untouched by the application until the future is
 * complete; then, and on every way there (success, failure, far_future_cancel(), shutdown, the death of a peer),
 *nothing of them is read or written any more. Giving the last reference to a pending one back with far_future_free()
 *cancels it first and returns when it has let go of that memory: at once where the caller runs on the shard, otherwise
 *after the next pass of whoever drives it.
 */
#ifndef FARCALL_FANOUT_H
#define FARCALL_FANOUT_H

#include <farcall/agent.h>
#include <farcall/future.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FAR_FANOUT_MAX      4096 /* targets of one fan-out: a quarter of a shard's call slots by default */
#define FAR_TARGET_TEXT_MAX 120  /* bytes of a target's error text with its NUL; a longer one is cut */

/** One call of a fan-out. Zero-initialised, every field but `to` means its default. */
struct far_target {
	struct far_to to;
	struct far_to second; /* whom to call as well after opts.hedge_after_ns, with FAR_HEDGE_SECOND; worker −1:
				 nobody */
	const struct far_val *args; /* typed: this target's own arguments; NULL: the common ones */
	size_t args_n;
	const void *data; /* messages: this target's own request; NULL: the common one */
	size_t len;
	/**
	 * Where the reply goes. `out`, for tensors: dtype and shape must be exactly its own, and its elements go to
	 * out->data. Else `into`: the bytes of a message, or of a tensor, string (with its NUL) or bytes value, at most
	 * `cap`; a bool, int or float as such, of 1, 8 or 8 bytes; lists, dicts, custom values and references are
	 * UNSUPPORTED there. Neither: a message must be empty; a value goes to the result with memory of its own.
	 */
	const struct far_tensor *out;
	void *into;
	size_t cap;
};

/** What became of one target. */
struct far_target_result {
	enum far_status status; /* PENDING until the future is complete or it has ended, which only then may be read */
	enum far_executed executed;
	int32_t code;         /* of an error, as in struct far_err */
	bool hedged;          /* the second choice was called too */
	struct far_to from;   /* who answered, or failed last */
	size_t len;           /* bytes of the reply or of the value's elements; with TOO_LARGE: those needed */
	struct far_val value; /* typed, OK: its bytes are those of the slice, or its own: far_val_fini() it */
	char text[FAR_TARGET_TEXT_MAX]; /* of an error */
};

enum far_fanout_errors {
	/** Fails as soon as fewer than `k` can succeed any more. */
	FAR_ERRORS_COUNT,
	/** Fails with the first target that fails. */
	FAR_ERRORS_FAIL_FAST,
	/** Goes on until every target has ended, so that each result says what that target did. */
	FAR_ERRORS_COLLECT
};

enum far_hedge {
	FAR_HEDGE_SECOND, /* to the target's `second` */
	FAR_HEDGE_NEXT    /* to where the next target (after the last comes the first) of another worker goes */
};

/** Zero-initialised, every field means its default. */
struct far_fanout_opts {
	uint64_t timeout_ns; /* of the whole; 0: the agent's default; FAR_FOREVER: none */
	size_t k;            /* complete when so many have succeeded; the rest are cancelled. 0: all */
	/** At the deadline, or when all have ended, complete with what came, if anything did, instead of failing.
	 * Errors before that end nothing, whatever `errors` is. */
	bool partial;
	enum far_fanout_errors errors;
	uint64_t hedge_after_ns; /* from the start of the fan-out; 0: no hedging. See far_rpc_fanout(). Targets whose
				    arguments hold references end with UNSUPPORTED when it is given */
	enum far_hedge hedge;
	/** One buffer for all replies, in the order of the targets, instead of the targets' own `into` and `out`:
	 * slices of `slice_bytes` each, or of slices[i] bytes. */
	void *into;
	size_t slice_bytes;
	const size_t *slices;
	enum far_dtype dtype; /* of the tensors that go there; FAR_DTYPE_NONE: any */
};

/**
 * Calls `function` on all of targets[0, n), n up to FAR_FANOUT_MAX; several may be of one worker. `args` are those of
 * the targets without their own. `opts` and `results` (n of them, filled as the targets end) may be NULL. Never blocks.
 * Any thread, handlers and callbacks included. One tensor or value is copied once, from the receive memory to its
 * slice, by the thread that drives the shard.
 *
 * `*out` is completed with an int, the number of targets that succeeded, or with an error: the class and code of the
 * first target that failed, its worker as the origin, and counts in the text; TIMEOUT at the deadline; CANCELLED after
 * far_future_cancel(), which cancels all. `executed` is NO when no target can have run it, else MAYBE.
 *
 * What is wrong with one target is that target's error, with nothing sent to it: UNKNOWN_WORKER, BAD_ARGS, TOO_LARGE,
 * PEER_LOST; a reply larger than its slice is TOO_LARGE, executed YES, the slice untouched; another dtype or shape than
 * wanted is PROTOCOL. Back-pressure towards a worker (FAR_BUSY elsewhere) is waited out for its targets alone, until
 * the deadline. Targets that are no longer needed end with CANCELLED, or TIMEOUT at the deadline.
 *
 * Hedging: a target without an answer after opts.hedge_after_ns has its second choice called with the same arguments,
 * and so has one that fails before its function ran. The first answer counts, be it a value or the function's own
 * error, and the other call is cancelled. It may run twice, so the function must be registered here with
 * FAR_IDEMPOTENT. Times are those of the shard's timer wheel: never early; late by a few microseconds while the shard
 * is driven.
 *
 * Errors, nothing sent and no future: INVALID (n, k, options that exclude each other, hedging of what is not
 * idempotent), NO_FUNCTION, BAD_ARGS (the common ones), TOO_LARGE, RESOURCE.
 */
enum far_status far_rpc_fanout(struct far_agent *agent, const char *function, const struct far_val *args, size_t args_n,
			       const struct far_target *targets, size_t n, const struct far_fanout_opts *opts,
			       struct far_target_result *results, struct far_future **out, struct far_err *err);

/**
 * The same with message handler `id`; data[0, len) is the request of the targets without their own. For hedging the
 * handler must be registered here too, with FAR_IDEMPOTENT.
 */
enum far_status far_msg_fanout(struct far_agent *agent, uint16_t id, const void *data, size_t len,
			       const struct far_target *targets, size_t n, const struct far_fanout_opts *opts,
			       struct far_target_result *results, struct far_future **out, struct far_err *err);

#ifdef __cplusplus
}
#endif
#endif
