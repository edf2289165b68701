/* SPDX-License-Identifier: BSD-3-Clause */
/** Ends calls that were never sent, with the error of their cause: a lost or closed session, a deadline that passed in
 * the submission ring or in the list of waiting calls, the end of the shard. Shard thread. */
#ifndef FAR_CORE_CALL_UNSENT_H
#define FAR_CORE_CALL_UNSENT_H

#include "sync/submit.h"

#include <farcall/status.h>

struct shard;

/** Ends a call that was never sent: with a status, or with what shard_call() returned. */
void call_unsent(struct shard *s, const struct call_start *start, enum far_status status, const char *text);
/** Ends it with TIMEOUT; `why` stands in front of the text, or is empty. */
void call_unsent_late(struct shard *s, const struct call_start *start, const char *why);
void call_unsent_error(struct shard *s, const struct call_start *start, int error);

/** What was called, for error texts: the function, "message 17", or "the fetch of a reference". `done`, `user`: of its
 * call_start. Returns `buf`. */
const char *call_name(const struct shard *s, bool typed, uint16_t fn, call_done_fn *done, void *user, char *buf,
		      size_t len);

#endif
