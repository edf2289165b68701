/* SPDX-License-Identifier: BSD-3-Clause */
/** Cancels calls. Shard thread, except functions that name another one. */
#ifndef FAR_CORE_CALL_CANCEL_H
#define FAR_CORE_CALL_CANCEL_H

#include "sync/future.h"

#include <stdbool.h>

struct call_id;
struct shard;

/** The cancel of a call, on its way to the shard. */
struct call_cancel_msg {
	struct call_cancel_msg *next;
	struct far_buf *buf;       /* its memory */
	struct far_future *future; /* a reference */
};

/** Ends the call, CANCELLED: executed MAYBE, after a cancel to the callee, or NO if it was not sent. false: it has
 * ended, or has not been started. */
bool call_cancel(struct shard *s, const struct call_id *id);
/** The same for the call or the group of calls that completes `f`. */
bool call_cancel_future(struct shard *s, struct far_future *f);
/** The same from any thread; it takes a reference of `f`. 0 or -ENOMEM. */
int call_submit_cancel(struct shard *s, struct far_future *f);
/** Takes the cancels of other threads; they run when the calls before them have left the submission ring. */
void call_gather_cancels(struct shard *s);
unsigned call_run_cancels(struct shard *s);
/** Frees the cancels that are left at the end of the shard. */
void call_drop_cancels(struct shard *s);

#endif
