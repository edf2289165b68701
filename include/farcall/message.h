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
 * FAR_BUSY, executed NO: the call was handed over to the shard's thread, which found no room; it may be sent again.
 */
typedef void far_msg_done_fn(void *user, enum far_status status, const void *data, size_t len,
			     const struct far_err *err);

/**
 * Sends a request to handler `id` of a worker; `data` is copied or sent before it returns. `done` is called with the
 * reply or the error. Never blocks. FAR_BUSY is back-pressure. Errors as far_rpc_async().
 */
enum far_status far_msg_send(struct far_agent *agent, struct far_to to, uint16_t id, const void *data, size_t len,
			     const struct far_call_opts *opts, far_msg_done_fn *done, void *user, struct far_err *err);

/**
 * Sends a request and waits for the reply, which is copied to `reply[0, cap)`; its length goes to `*reply_len` (may be
 * NULL). FAR_TOO_LARGE, with the length needed in `*reply_len`, when it does not fit. Waits out back-pressure. Blocks;
 * drives the shard meanwhile.
 */
enum far_status far_msg_call(struct far_agent *agent, struct far_to to, uint16_t id, const void *data, size_t len,
			     const struct far_call_opts *opts, void *reply, size_t cap, size_t *reply_len,
			     struct far_err *err);

/* ---- inside a message handler (or far_fail, far_defer of <farcall/rpc.h>) ---- */

/** Answers with bytes, copied before it returns. */
enum far_status far_reply(struct far_req *req, const void *data, size_t len);
/** Answers with `len` bytes that the handler writes at `*data`, inside the outgoing message, before it returns or
 * waits. */
enum far_status far_reply_alloc(struct far_req *req, size_t len, void **data);
/** Answers a deferred request with bytes, from any thread; see far_deferred_return(). */
enum far_status far_deferred_reply(struct far_deferred *d, const void *data, size_t len);

/** Bytes that one message can carry. */
#define FAR_MSG_BYTES_MAX ((size_t)16 << 20)

#ifdef __cplusplus
}
#endif
#endif
