/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Messages: numbered handlers, raw bytes, completion callbacks on the shard. The typed calls are built on the same
 * engine.
 */
#ifndef FARCALL_MESSAGE_H
#define FARCALL_MESSAGE_H

#include <farcall/agent.h>
#include <farcall/rpc.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Called once per far_msg_send() that returned FAR_OK, on the shard's thread; it must not wait, and may send. On FAR_OK
 * `data[0, len)` is the reply, 8-byte aligned, readable until it returns; otherwise `err` is not NULL.
 * With `opts->into` the reply is put there and `data` is that memory; FAR_TOO_LARGE, executed YES, when it does not
 * fit, and nothing is written then.
 */
typedef void far_msg_done_fn(void *user, enum far_status status, const void *data, size_t len,
			     const struct far_err *err);

/**
 * Sends a request to handler `id` of a worker; `data` is copied or sent before it returns. `done` is called with the
 * reply or the error. Never blocks. FAR_BUSY, back-pressure, and all other errors as far_rpc_async().
 */
enum far_status far_msg_send(struct far_agent *agent, struct far_to to, uint16_t id, const void *data, size_t len,
			     const struct far_call_opts *opts, far_msg_done_fn *done, void *user, struct far_err *err);

/**
 * Sends a request and waits for the reply, which is copied to `reply[0, cap)`; its length goes to `*reply_len` (may be
 * NULL). FAR_TOO_LARGE, with the length needed in `*reply_len`, when it does not fit. Waits out back-pressure. Blocks;
 * drives the shard meanwhile. `opts->into` must be empty.
 */
enum far_status far_msg_call(struct far_agent *agent, struct far_to to, uint16_t id, const void *data, size_t len,
			     const struct far_call_opts *opts, void *reply, size_t cap, size_t *reply_len,
			     struct far_err *err);

/**
 * Sends a one-way message to handler `id`: no reply, no error from there, no call slot. `data` is copied or sent before
 * it returns. Never blocks. It is delivered at most once, in order with the other one-way messages from this worker's
 * shard to that one, and lost only with the peer (or when it is dropped there, which is counted: no such handler,
 * its deadline passed, no memory). Runs no handler or callback itself. Leaving the group by far_shutdown() waits until
 * it was delivered and its handler has returned, whatever its kind. The handler cannot answer: far_reply(), far_fail(),
 * far_defer() say FAR_INVALID. FAR_BUSY: too many are waiting for the peer to take them. Errors as far_rpc_async().
 */
enum far_status far_msg_post(struct far_agent *agent, struct far_to to, uint16_t id, const void *data, size_t len,
			     const struct far_call_opts *opts, struct far_err *err);

/** A piece of a message. `data` may be NULL when `len` is 0. */
struct far_part {
	const void *data;
	size_t len;
};

#define FAR_PARTS_MAX 16

/**
 * Called exactly once when neither the engine nor a device reads the parts any more, whatever becomes of the message:
 * before the function that was given it returns, on that thread (a message of up to FAR_MSG_WHOLE_MAX bytes, unless
 * some of it is registered, and any that is refused), or later on the shard's thread: when its last bytes have been
 * acknowledged, which may be before or after `done`, or at the latest when the agent is shut down. It must not wait; it
 * may send.
 */
typedef void far_msg_release_fn(void *user);

/**
 * far_msg_send(), far_msg_post() and far_msg_call() of a message that lies in up to FAR_PARTS_MAX pieces, which arrive
 * as one. With `release`, long messages (beyond FAR_MSG_WHOLE_MAX, or of 256 KiB and more with a part in memory of
 * far_mem_register()) are sent from where they lie, and the parts must stay as they are until it is called; the array
 * itself is read before the function returns. Without `release` (NULL) long ones are copied first: FAR_RESOURCE when
 * there is no memory for that. far_msg_call_parts() needs no release: it copies nothing, and the parts are the caller's
 * again when it returns.
 */
enum far_status far_msg_send_parts(struct far_agent *agent, struct far_to to, uint16_t id, const struct far_part *parts,
				   size_t n, far_msg_release_fn *release, void *release_user,
				   const struct far_call_opts *opts, far_msg_done_fn *done, void *user,
				   struct far_err *err);
enum far_status far_msg_post_parts(struct far_agent *agent, struct far_to to, uint16_t id, const struct far_part *parts,
				   size_t n, far_msg_release_fn *release, void *release_user,
				   const struct far_call_opts *opts, struct far_err *err);
enum far_status far_msg_call_parts(struct far_agent *agent, struct far_to to, uint16_t id, const struct far_part *parts,
				   size_t n, const struct far_call_opts *opts, void *reply, size_t cap,
				   size_t *reply_len, struct far_err *err);

/* ---- inside a message handler (or far_fail, far_defer of <farcall/rpc.h>) ---- */

/** Answers with bytes, copied before it returns. */
enum far_status far_reply(struct far_req *req, const void *data, size_t len);
/** Answers with `len` bytes that the handler writes at `*data`, inside the outgoing message, before it returns or
 * waits. */
enum far_status far_reply_alloc(struct far_req *req, size_t len, void **data);
/** Answers a deferred request with bytes, from any thread; see far_deferred_return(). */
enum far_status far_deferred_reply(struct far_deferred *d, const void *data, size_t len);

/**
 * A message of up to FAR_MSG_WHOLE_MAX bytes travels in one piece and is read where it arrives. A longer one travels in
 * fragments between which other messages go, into memory that the receiver reserves for all of it before the first
 * byte is sent. What a worker takes is in its `max_message_bytes`: a longer one is FAR_TOO_LARGE, and nothing is sent.
 */
#define FAR_MSG_WHOLE_MAX ((size_t)16 << 20)
/** No message is longer, whatever memory there is. */
#define FAR_MSG_BYTES_MAX ((size_t)1 << 40)

#ifdef __cplusplus
}
#endif
#endif
