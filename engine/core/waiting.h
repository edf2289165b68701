/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Calls that wait for a credit of their session, or for its set-up. Shard thread, except functions that name another
 * one.
 */
#ifndef FAR_CORE_WAITING_H
#define FAR_CORE_WAITING_H

#include "sync/submit.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct session;
struct shard;

/** Copies a call with its payload, behind the first `offset` bytes of *buf or in *large: 0, -EMSGSIZE, -ENOMEM. */
int waiting_copy(const struct shard *s, const struct call_start *start, size_t offset, struct far_buf **buf,
		 struct far_buf **large_payload, struct call_start *copy);
/** Frees the copy, but for `buf`. */
void waiting_uncopy(struct shard *s, const struct call_start *copy, struct far_buf *large_payload);
/** Changes the number of calls that are neither sent nor ended. */
void waiting_count(struct shard *s, uint64_t n);
/** Waiting slots of a session that were ever taken, for calls in the submission ring or in `waiting`. Writers: threads
 * that start calls. The shard counts those given back apart (shard.waiting_returned), so that a call that is handed
 * over moves neither line to the other side. */
struct waiting_slots {
	_Atomic uint32_t n;
	_Atomic uint32_t returned_seen; /* an earlier value of waiting_returned */
};
/** Any thread: takes one of the session's limits.peer_waiting slots. false: all are taken. */
bool waiting_reserve(struct shard *s, uint32_t session);
/** The thread that has just taken a slot: as if it had not. */
void waiting_unreserve(struct shard *s, uint32_t session);
/** Gives back the slot of a call that was sent or has ended. */
void waiting_return(struct shard *s, uint32_t session);
/** Slots that are taken: exact while no other thread takes one. */
uint32_t waiting_slots_used(const struct shard *s, uint32_t session);
/** Any thread: puts a call into the submission ring, with a waiting slot for the case that it finds no room when it is
 * taken: so it never fails for lack of room. 0, -EAGAIN, -ENOMEM. */
int waiting_submit(struct shard *s, const struct call_start *start);
/** Keeps a copy: 0, -EAGAIN, -EMSGSIZE, -ENOMEM. Requests the session's set-up when it is CLOSED. With
 * shard.waiting_slot_held the copy uses the waiting slot of that call, and clears the flag. */
int waiting_put(struct shard *s, struct session *se, const struct call_start *start);
/** True if a call waits for room that returns without a packet: memory of the peer, a call slot. */
bool waiting_stalled(const struct shard *s);
/** Sends the waiting calls of a session that is up, in order, as far as there is room. Returns how many. */
unsigned waiting_send(struct shard *s, struct session *se);
/** Ends the one in the buffer of this number, CANCELLED, executed NO. */
void waiting_cancel(struct shard *s, uint32_t number);
/** Ends all of them, executed NO. */
void waiting_fail(struct shard *s, struct session *se, enum far_status status, const char *text);
/** Ends those whose deadline has come; returns how many. */
unsigned waiting_expire(struct shard *s, uint64_t now);
/** The length of the list, counted; for the audit. */
uint32_t waiting_length(const struct session *se);

#endif
