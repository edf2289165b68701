/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Remote references: a value stays on the worker where a function made it, and whoever holds a reference may fetch it,
 * or hand the reference on, in arguments and results, also inside of lists and dicts. It lives as long as anybody in
 * the group holds one, and goes when the last one is given back or its holder dies.
 *
 * A handle, `struct far_rref *`, is counted: what a function returns is the caller's and is given back with
 * far_rref_free(). A reference in a value that came (an argument, a result) belongs to that value: far_rref_ref() keeps
 * it beyond. One that is passed may be given back as soon as the function that took it has returned.
 *
 * A handler runs only when the owner of each reference among its arguments knows of it; until then the request waits
 * without a thread. Every function here may be called from any thread unless it says otherwise; handles stay valid
 * until freed, also after far_shutdown(), where all but far_rref_free() and what prints it say FAR_SHUTDOWN. None may
 * run in another thread while the agent is being shut down.
 */
#ifndef FARCALL_RREF_H
#define FARCALL_RREF_H

#include <farcall/rpc.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Calls `function` on the worker named `to`, which may be this one, and keeps what it returns there; `*out` refers to
 * it, at once. `opts->timeout_ns` (0: the agent's default) limits the making, the function included: when it passes, or
 * the request cannot be run there, the reference is failed: far_rref_wait() tells why, and so does whatever uses it.
 * What the function itself reports as an error is kept like a value, and told to whoever fetches it. Never blocks.
 * Found at once: as far_rpc_async(); also UNSUPPORTED (opts->into), and the error of a failed reference among the
 * arguments.
 */
enum far_status far_remote(struct far_agent *agent, const char *to, const char *function, const struct far_val *args,
			   size_t args_n, const struct far_call_opts *opts, struct far_rref **out, struct far_err *err);
enum far_status far_remote_to(struct far_agent *agent, struct far_to to, const char *function,
			      const struct far_val *args, size_t args_n, const struct far_call_opts *opts,
			      struct far_rref **out, struct far_err *err);

/**
 * A copy of the value, when it is there: waits for it at most `timeout_ns` (0: the agent's default, as for a call). On
 * FAR_OK `*out` (may be NULL) is the caller's to finish. Each call fetches anew. Errors: what the function reported,
 * with its class, code and text; TIMEOUT; PEER_LOST (the owner is gone, or has begun another life); that of a failed
 * reference; otherwise as far_rpc_sync(). Objects (<farcall/object.h>): UNSUPPORTED, unless their class has a codec; on
 * their owner as far_rref_local_value().
 */
enum far_status far_rref_to_here(struct far_rref *rref, uint64_t timeout_ns, struct far_val *out, struct far_err *err);
/**
 * The same without waiting: a future for the caller to free. Never blocks. Also BUSY, as far_rpc_async(). Objects are
 * copied on their owner too, since a future's value does not keep them: UNSUPPORTED, unless their class has a codec;
 * far_rref_object() gives the object itself.
 */
enum far_status far_rref_to_here_async(struct far_rref *rref, uint64_t timeout_ns, struct far_future **out,
				       struct far_err *err);

/**
 * The value of a reference whose owner is this worker, without a copy where the handle is the owner's own. Waits as
 * far_rref_to_here(). FAR_INVALID on any other worker, naming both.
 */
enum far_status far_rref_local_value(struct far_rref *rref, uint64_t timeout_ns, struct far_val *out,
				     struct far_err *err);

/** Is this worker the owner. */
bool far_rref_is_owner(const struct far_rref *rref);
/** Rank and shard of the owner. */
struct far_to far_rref_owner(const struct far_rref *rref);
/** Its name; lives as long as the handle. */
const char *far_rref_owner_name(const struct far_rref *rref);

/** Does the owner know of this reference: it has said so, or it is this worker's own. Never blocks. False for one that
 * failed. */
bool far_rref_confirmed_by_owner(const struct far_rref *rref);
/** FAR_OK when confirmed; FAR_PENDING; or why it failed, `executed` being that of what was to make it. Never blocks. */
enum far_status far_rref_status(struct far_rref *rref, struct far_err *err);
/** Waits until it is confirmed or has failed, at most `timeout_ns` (0: no limit of its own). FAR_PENDING,
 * WOULD_DEADLOCK, CANCELLED as far_future_wait(). */
enum far_status far_rref_wait(struct far_rref *rref, uint64_t timeout_ns, struct far_err *err);

/** Can its value be of this type, by the signature of the function that makes it. True where that is not known yet. */
bool far_rref_may_be(const struct far_rref *rref, enum far_type type);

#define FAR_RREF_TEXT_MAX 96
/** "RRef(created_on=1, shard=0, local_id=9, owner=2)", into buf[0, len); returns buf. The same for all holders. */
const char *far_rref_text(const struct far_rref *rref, char *buf, size_t len);
/** Do both refer to the same value. */
bool far_rref_same(const struct far_rref *a, const struct far_rref *b);

/** Another hold on the handle, to be given back too. Returns `rref`. */
struct far_rref *far_rref_ref(struct far_rref *rref);
/** Gives it back; with the last hold the owner is told, soon. NULL is fine. Never blocks, and runs no destructor. */
void far_rref_free(struct far_rref *rref);

/** What an agent has: read without stopping it. */
struct far_rref_counts {
	uint64_t owned;       /* values that are kept here */
	uint64_t held;        /* references to values elsewhere */
	uint64_t forks;       /* references that others have to values here */
	uint64_t pending;     /* words to other workers about references that are not answered */
	uint64_t unconfirmed; /* of those held: the owner has not said that it knows of them */
};
void far_rref_counts_read(struct far_agent *agent, struct far_rref_counts *out);

#ifdef __cplusplus
}
#endif
#endif
