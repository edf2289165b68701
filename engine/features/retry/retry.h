/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Calls that are sent again until their answer comes, and that run once all the same.
 *
 * The caller numbers such calls per session (`seq`) and keeps a copy of each; a request carries its number and the
 * lowest number that has not ended (`floor`), never FAR_RETRY_WINDOW or more apart. The callee keeps an entry for each
 * number from the floor on: RUNNING, or ANSWERED with the answer itself. A number that it knows is not run again: while
 * it runs nothing is said, afterwards the same answer goes out once more. What lies below the floor has ended at the
 * caller: its entries are gone, and a late repeat is dropped. So both sides' memory is bounded by the window, and the
 * kept answers by FAR_RETRY_BYTES: an answer beyond that is sent once, and a repeat gets RESOURCE, executed YES.
 *
 * Repeats come on top of the ring slots that calls are counted by, so they are sent only while the ring has room to
 * spare for all that is counted (tx_room), and later otherwise.
 */
#ifndef FAR_RETRY_RETRY_H
#define FAR_RETRY_RETRY_H

#include "core/call.h"

struct retry;

/* ---- the caller's side ---- */

/** Keeps a copy of a call that is about to be sent, and fills in its trailer. 0, -EAGAIN (the window is full), -ENOMEM.
 */
int retry_begin(const struct shard *s, struct session *se, const struct call_start *start, struct retry **out,
		struct head_retry *trailer);
/** It could not be sent. NULL is fine. */
void retry_abandon(struct retry *r);
/** It is on its way as call `c`. */
void retry_sent(struct shard *s, struct retry *r, struct call *c);
/** The call has ended and waits for nothing but the peer's last packet, which a repeated cancel asks for. */
void retry_ended(struct shard *s, const struct call *c);
/** Its slot is about to be given back. */
void retry_over(struct shard *s, const struct call *c);

/* ---- the callee's side ---- */

/** Takes the trailer off a request's body. true: it is new, to be run, and has a record; false: it has been seen to. */
bool retry_admit(struct far_req *req, const uint8_t *body, uint64_t *len);
/** Is a request, its trailer included, one that was admitted before. */
bool retry_seen(const struct session *se, const uint8_t *body, uint64_t len);
/** The record goes: its answer has been sent, or never will. */
void retry_answered(struct session *se, const struct far_deferred *d);

/** The session ended; its calls have been given back. */
void retry_drop(struct session *se);

#endif
