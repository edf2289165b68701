/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Remote references (RRef): a value stays on its owner, the worker where a function made it. A holder of a reference
 * can fetch the value or pass the reference on, in arguments and results, also inside lists and dicts. The owner keeps
 * the value until the last reference in the group is freed or its holder is lost.
 *
 * A handle, `struct far_rref *`, is reference-counted. A handle that a function returns is the caller's:
 * far_rref_free() it. A handle inside a received value (an argument, a result) belongs to that value: far_rref_ref()
 * keeps it longer. A handle passed as an argument may be freed as soon as the function has returned.
 *
 * A handler starts only when the owners of all references among its arguments have confirmed them; the request waits
 * without a thread until then. Handles stay valid after far_shutdown(); functions then return FAR_SHUTDOWN, except
 * far_rref_free() and those that print. None may run during far_shutdown() of the agent.
 */
#ifndef FARCALL_RREF_H
#define FARCALL_RREF_H

#include <farcall/rpc.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* ---- Any thread, also in handlers and callbacks; these never block ---- */

/**
 * Calls `function` on worker `to`, which may be this one, and keeps its result there. `*out` refers to the result.
 * `opts->timeout_ns` (0: the agent's default) limits the making, the function's run included. If that fails, the
 * reference is failed: far_rref_wait(), and every later use, return the error. An error of the function itself is
 * stored like a value: fetching returns it. Errors: as far_rpc_async(); UNSUPPORTED (opts->recv_buf); the error of a
 * failed reference among the arguments.
 */
enum far_status far_remote(struct far_agent *agent, const char *to, const char *function, const struct far_val *args,
			   size_t args_n, const struct far_call_opts *opts, struct far_rref **out, struct far_err *err);
enum far_status far_remote_to(struct far_agent *agent, struct far_to to, const char *function,
			      const struct far_val *args, size_t args_n, const struct far_call_opts *opts,
			      struct far_rref **out, struct far_err *err);

/** far_remote() of a function that need not be registered here, as far_rpc_sync_unchecked(). A function that makes an
 * object gives a reference without methods: far_rref_rpc_sync() needs the class here. */
enum far_status far_remote_unchecked(struct far_agent *agent, const char *to, const char *function,
				     const struct far_val *args, size_t args_n, const struct far_call_opts *opts,
				     struct far_rref **out, struct far_err *err);

/**
 * Makes a reference to a value that is here, without a call. This worker is the owner. A tensor, string or bytes value
 * that owns its memory (a result, far_val_dup()) is shared and must not be written any more; any other value is copied.
 * `*out` is the caller's. It is confirmed a moment later; far_rref_wait() waits for that. Errors: INVALID, BAD_ARGS,
 * TOO_LARGE, RESOURCE; the reference fails with RESOURCE if the worker has no room for another one.
 */
enum far_status far_rref_of(struct far_agent *agent, const struct far_val *value, struct far_rref **out,
			    struct far_err *err);

/**
 * The state of a reference as a future, the caller's to free: it completes with none when the reference is confirmed,
 * for one that far_remote() returned when the value was made; with the error of far_rref_status() if it fails. Errors:
 * INVALID (NULL), RESOURCE.
 */
enum far_status far_rref_future(struct far_rref *rref, struct far_future **out, struct far_err *err);

/**
 * far_rref_to_here() as a future, the caller's to free. Objects are copied on their owner too, because a future's value
 * does not keep them: UNSUPPORTED unless their class has a codec; far_rref_object() returns the object itself. BUSY: as
 * far_rpc_async().
 */
enum far_status far_rref_to_here_async(struct far_rref *rref, uint64_t timeout_ns, struct far_future **out,
				       struct far_err *err);

/**
 * Calls a function of the owner with the value of the reference as its first argument; `args` follow, at most
 * FAR_ARGS_MAX - 1, none by keyword. Only the owner needs the function, and chooses the overload. The call waits at the
 * owner until the value is there. An inline function reads the value without a copy, and must not write to it; a
 * function of another kind gets a copy. far_rref_call_async(): `*out` is the future of the result;
 * far_rref_call_remote(): the result stays with the owner, too, and `*out` refers to it; both are the caller's. Errors:
 * as far_rpc_async_unchecked(); those of far_rref_to_here(), for the value; executed NO for both.
 */
enum far_status far_rref_call_async(struct far_rref *rref, const char *function, const struct far_val *args,
				    size_t args_n, const struct far_call_opts *opts, struct far_future **out,
				    struct far_err *err);
enum far_status far_rref_call_remote(struct far_rref *rref, const char *function, const struct far_val *args,
				     size_t args_n, const struct far_call_opts *opts, struct far_rref **out,
				     struct far_err *err);

/** Bytes of a serialized reference. */
#define FAR_RREF_BYTES 24

/**
 * Writes a reference to bytes[0, FAR_RREF_BYTES), for a message or payload of the application's own. This worker keeps
 * the value alive for the bytes until a worker of the group has read them, once, or far_rref_revoke(): what is neither
 * read nor revoked is a leak. `rref` may be freed at once. Errors: INVALID (NULL), SHUTDOWN, RESOURCE; the error of a
 * failed reference.
 */
enum far_status far_rref_serialize(struct far_rref *rref, void *bytes, struct far_err *err);

/** far_rref_deserialize() as a future of the reference, the caller's to free. */
enum far_status far_rref_deserialize_async(struct far_agent *agent, const void *bytes, size_t len, uint64_t timeout_ns,
					   struct far_future **out, struct far_err *err);

/** Frees a serialized reference that nobody will read; on the worker that wrote the bytes. Errors: INVALID; GONE (read
 * or revoked already); PEER_LOST. */
enum far_status far_rref_revoke(struct far_agent *agent, const void *bytes, size_t len, struct far_err *err);

/** True if this worker is the owner. */
bool far_rref_is_owner(const struct far_rref *rref);
/** Rank and shard of the owner. */
struct far_to far_rref_owner(const struct far_rref *rref);
/** Name of the owner; valid as long as the handle. */
const char *far_rref_owner_name(const struct far_rref *rref);

/** True if the owner has confirmed this reference, or is this worker. False for a failed reference. */
bool far_rref_confirmed_by_owner(const struct far_rref *rref);
/** FAR_OK if confirmed, FAR_PENDING, or the error of a failed reference, with `executed` of the function that was to
 * make it. */
enum far_status far_rref_status(struct far_rref *rref, struct far_err *err);

/** True if the value may have this type, by the signature of the function that makes it, or if that is unknown. */
bool far_rref_may_be(const struct far_rref *rref, enum far_type type);

#define FAR_RREF_TEXT_MAX 96
/** Writes "RRef(created_on=1, shard=0, local_id=9, owner=2)" to buf[0, len) and returns buf. Equal for all holders. */
const char *far_rref_text(const struct far_rref *rref, char *buf, size_t len);
/** True if both refer to the same value. */
bool far_rref_same(const struct far_rref *a, const struct far_rref *b);

/** Takes another reference to the handle. Returns `rref`. */
struct far_rref *far_rref_ref(struct far_rref *rref);
/** Gives a reference back. NULL is allowed. The last one sends a delete message to the owner. Runs no destructor. */
void far_rref_free(struct far_rref *rref);

/** References of an agent, read while it runs. */
struct far_rref_counts {
	uint64_t owned;       /* values kept here */
	uint64_t held;        /* references held here, to values of other workers */
	uint64_t forks;       /* references of other workers, to values kept here */
	uint64_t pending;     /* control messages about references that are not acknowledged */
	uint64_t unconfirmed; /* of `held`: not confirmed by the owner */
};
/** far_rref_counts_read() with the caller's size of the struct. */
void far_rref_counts_read_sized(struct far_agent *agent, struct far_rref_counts *out, size_t bytes);
static inline void far_rref_counts_read(struct far_agent *agent, struct far_rref_counts *out)
{
	far_rref_counts_read_sized(agent, out, sizeof *out);
}

/* ---- Any thread but an inline handler or a callback; these block ---- */

/**
 * Fetches a copy of the value. Waits until it was made, at most `timeout_ns` (0: the agent's default, as for a call).
 * Each call fetches again. On FAR_OK `*out` (may be NULL) is the caller's: far_val_fini() it. Errors: the error of the
 * function, with class, code and text; TIMEOUT; PEER_LOST (the owner's incarnation is lost); the error of a failed
 * reference; else as far_rpc_sync(). Objects (<farcall/object.h>): UNSUPPORTED unless their class has a codec; on their
 * owner as far_rref_local_value().
 */
enum far_status far_rref_to_here(struct far_rref *rref, uint64_t timeout_ns, struct far_val *out, struct far_err *err);

/**
 * Returns the value of a reference on its owner, without a copy if the handle is the owner's own. Waits as
 * far_rref_to_here(). Errors: INVALID on another worker, with both names; else as far_rref_to_here().
 */
enum far_status far_rref_local_value(struct far_rref *rref, uint64_t timeout_ns, struct far_val *out,
				     struct far_err *err);

/** As far_rref_call_async(), and waits for the result. On FAR_OK `*out` (may be NULL) is the caller's: far_val_fini()
 * it. Errors: as far_rref_call_async(); TIMEOUT, WOULD_DEADLOCK or CANCELLED as far_rpc_sync(). */
enum far_status far_rref_call(struct far_rref *rref, const char *function, const struct far_val *args, size_t args_n,
			      const struct far_call_opts *opts, struct far_val *out, struct far_err *err);

/**
 * Makes a handle from the bytes of far_rref_serialize(), by a call of at most `timeout_ns` (0: the agent's default) to
 * the worker that wrote them. `*out` is the caller's. Bytes can be read once. Errors: INVALID (no such bytes); GONE
 * (read or revoked already); PEER_LOST (the worker that wrote them is lost); else as far_rpc_sync().
 */
enum far_status far_rref_deserialize(struct far_agent *agent, const void *bytes, size_t len, uint64_t timeout_ns,
				     struct far_rref **out, struct far_err *err);

/** Waits until the reference is confirmed or failed, at most `timeout_ns` (0: no limit of its own). Returns
 * far_rref_status(), or PENDING, WOULD_DEADLOCK or CANCELLED as far_future_wait(). */
enum far_status far_rref_wait(struct far_rref *rref, uint64_t timeout_ns, struct far_err *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
