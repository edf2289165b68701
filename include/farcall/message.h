/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Messages: numbered handlers and raw bytes, with a reply (far_msg_send(), far_msg_call()) or one-way
 * (far_msg_oneway()). Any thread, unless a function names another one.
 *
 * A message of up to FAR_MSG_EAGER_MAX bytes is eager: it travels in one piece, and the handler reads it where it
 * arrives. Over nic=shm that, and far_alloc_shared(), is memory that the sender can write: copy what you check first. A
 * longer one is a rendezvous message: the receiver reserves memory for all of it before its first byte is sent, and it
 * travels in fragments between which other messages go. A message longer than the receiver's far_opts.max_message_bytes
 * is TOO_LARGE, and nothing is sent.
 */
#ifndef FARCALL_MESSAGE_H
#define FARCALL_MESSAGE_H

#include <farcall/agent.h>
#include <farcall/rpc.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define FAR_MSG_EAGER_MAX ((size_t)16 << 20) /* bytes of an eager message */
#define FAR_MSG_BYTES_MAX ((size_t)1 << 40)  /* bytes of any message, regardless of the memory */
#define FAR_PARTS_MAX     16                 /* parts of a message */

/**
 * Callback of far_msg_send(): runs once if that returned FAR_OK, on the thread that polls the shard. Must not wait; may
 * send. On FAR_OK `data[0, len)` is the reply, aligned to 8, readable until the callback returns. Otherwise `err` is
 * not NULL. With `opts->recv_buf` the reply is in that buffer; a longer reply is TOO_LARGE, executed YES, and leaves
 * the buffer unchanged.
 */
typedef void far_msg_done_fn(enum far_status status, const void *data, size_t len, const struct far_err *err,
			     void *user);

/** A part of a message. `data` may be NULL if `len` is 0. */
struct far_part {
	const void *data;
	size_t len;
};

/**
 * Release callback of a zero-copy send: runs exactly once, when neither the engine nor a device accesses the parts any
 * more, whether the message was delivered or not. It runs inside the function that got it, on the calling thread, if
 * that function fails or the message is eager (unless sent from registered memory). Otherwise it runs on the thread
 * that polls the shard: after the acknowledgement of the last byte, before or after `done`, at the latest in
 * far_shutdown(). Must not wait; may send.
 */
typedef void far_msg_release_fn(void *user);

/* ---- Any thread, also in handlers and callbacks; these never block ---- */

/**
 * Sends a request to handler `id` of a worker. `data` is copied or sent before the function returns. `done` gets the
 * reply or the error. Errors: as far_rpc_async(), FAR_BUSY for back-pressure included.
 */
enum far_status far_msg_send(struct far_agent *agent, struct far_to to, uint16_t id, const void *data, size_t len,
			     const struct far_call_opts *opts, far_msg_done_fn *done, void *user, struct far_err *err);

/**
 * Sends a one-way message to handler `id` of a worker: no reply, no error of the handler, no call slot. `data` is
 * copied or sent before the function returns. Runs no handler or callback.
 *
 * Delivery is at most once, in order with the other one-way messages from this shard to that one. A message is lost
 * only with the peer, or if the peer drops it and counts it (no handler, deadline passed, no memory). far_shutdown()
 * waits until its handler has returned. The handler cannot answer: far_reply(), far_fail() and far_defer() return
 * FAR_INVALID. Errors: BUSY (too many wait for the peer); else as far_rpc_async().
 */
enum far_status far_msg_oneway(struct far_agent *agent, struct far_to to, uint16_t id, const void *data, size_t len,
			       const struct far_call_opts *opts, struct far_err *err);

/**
 * far_msg_send() and far_msg_oneway() of a message in parts[0, n), n in [0, FAR_PARTS_MAX]; it arrives as one. The
 * array is read before the function returns.
 *
 * With `release`, a rendezvous message, or one of 256 KiB and more with a part in memory of far_mem_register() or
 * far_alloc_shared() (64 KiB over nic=shm), is sent without a copy: the parts must not change until `release` runs. In
 * one part in memory of far_alloc_shared() the handler of a worker of the same host reads it there; `release` runs once
 * its handler has returned, also when the call has ended before, or the session has ended. Without it (NULL) a
 * rendezvous message is copied first; RESOURCE without memory for the copy.
 */
enum far_status far_msg_send_parts(struct far_agent *agent, struct far_to to, uint16_t id, const struct far_part *parts,
				   size_t n, far_msg_release_fn *release, void *release_user,
				   const struct far_call_opts *opts, far_msg_done_fn *done, void *user,
				   struct far_err *err);
enum far_status far_msg_oneway_parts(struct far_agent *agent, struct far_to to, uint16_t id,
				     const struct far_part *parts, size_t n, far_msg_release_fn *release,
				     void *release_user, const struct far_call_opts *opts, struct far_err *err);

/* ---- Any thread but an inline handler or a callback; these block ---- */

/**
 * Sends a request and waits for the reply, which is copied to `reply[0, cap)`; its length goes to `*reply_len` (may be
 * NULL). Waits for room under back-pressure. The thread polls its shard meanwhile. `opts->recv_buf` must be empty.
 * Errors: TOO_LARGE, with the length of the reply in `*reply_len`, if it exceeds `cap`; else as far_rpc_sync().
 */
enum far_status far_msg_call(struct far_agent *agent, struct far_to to, uint16_t id, const void *data, size_t len,
			     const struct far_call_opts *opts, void *reply, size_t cap, size_t *reply_len,
			     struct far_err *err);
/** far_msg_call() of a message in parts. Copies nothing; the parts are the caller's again when it returns. */
enum far_status far_msg_call_parts(struct far_agent *agent, struct far_to to, uint16_t id, const struct far_part *parts,
				   size_t n, const struct far_call_opts *opts, void *reply, size_t cap,
				   size_t *reply_len, struct far_err *err);

/* ---- The handler of the request (far_fail() and far_defer() of <farcall/rpc.h> too); these never block ---- */

/** Answers with bytes, which are copied. FAR_INVALID: answered already, or a typed call; TOO_LARGE, RESOURCE: not
 * answered. */
enum far_status far_reply(struct far_req *req, const void *data, size_t len);
/** Answers with `len` bytes at `*data`, inside the outgoing message. The handler writes them before it returns or
 * waits. Errors: as far_reply(). */
enum far_status far_reply_alloc(struct far_req *req, size_t len, void **data);

/* ---- Any thread; never blocks ---- */

/** Answers a deferred request with bytes. See far_deferred_return(). */
enum far_status far_deferred_reply(struct far_deferred *d, const void *data, size_t len);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
