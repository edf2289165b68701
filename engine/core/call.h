/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Calls, the caller's side: their slots, from shard_call() to the last packet of the peer. Shard thread.
 */
#ifndef FAR_CORE_CALL_H
#define FAR_CORE_CALL_H

#include "base/limits.h"
#include "core/feature.h"
#include "core/packet.h"
#include "core/shard.h"
#include "core/timer.h"
#include "sync/submit.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct session;
struct tlv_block;

enum call_state {
	CALL_FREE,
	CALL_ENDED,     /* `done` was called (deadline, cancel); the slot waits for the peer's last packet */
	CALL_SENT,      /* the request is out, `done` is due */
	CALL_RENDEZVOUS /* `done` is due; the request or the reply is under way in fragments */
};

/** A call slot, one line. Its number and `gen` travel in the request and return in the answer. Legal orders: FREE →
 * SENT → FREE; FREE → RENDEZVOUS → SENT when the request has left in fragments; SENT → RENDEZVOUS → FREE with a reply
 * in fragments; SENT or RENDEZVOUS → ENDED → FREE when the call ends before its answer. */
struct call {
	struct timer timer; /* timer.at: the deadline, or, with CALL_UNSTAMPED, ns left from the next reading of the
			       clock on. Armed only when it is near: call_deadline.h */
	call_done_fn *done;
	union {
		void *user;
		struct call *next; /* while it is free */
	};
	void (*app)(void);
	union {
		struct {
			uint32_t slot, gen;
		};
		uint64_t id; /* what travels in a request, and returns in its answer */
	};
	uint32_t session; /* index; of a free slot: of its last call */
	union {
		struct {
			uint16_t fn;
			uint8_t state : 2;    /* enum call_state */
			uint8_t features : 6; /* bits of the features whose call_over() is called */
			uint8_t typed : 1;
			uint8_t retry : 1;   /* the request may be sent again */
			uint8_t plain : 1;   /* fast.h: of far_msg_send(), `app` is called with `user` */
			uint8_t future : 1;  /* fast.h: `user` is a future, which is completed */
			uint8_t young : 1;   /* it is in shard.young; of a free slot, too */
			uint8_t aging : 1;   /* it is in shard.aging; of a free slot, too */
			uint8_t line : 1;    /* fast.h: `app` takes `user` and a reply of one line */
			uint8_t sampled : 1; /* its latency is measured */
		};
		uint32_t what;
	};
};
static_assert(sizeof(struct call) == 64 && CALL_FEATURES_MAX == 6, "a call slot is one line");

/** The fields of struct call after `session` as one word. Little-endian. */
#define CALL_WHAT(fn, state, flags) ((uint32_t)(fn) + ((uint32_t)(state) << 16) + ((uint32_t)(flags) << 24))
#define CALL_TYPED                  1u
#define CALL_PLAIN                  4u
#define CALL_FUTURE                 8u
#define CALL_YOUNG                  16u
#define CALL_AGING                  32u
#define CALL_LINE                   64u
#define CALL_KEPT                   ((CALL_YOUNG | CALL_AGING) << 24) /* bits that a slot keeps when its call ends */
#define CALL_SAMPLED                128u
/** Bits of `what` >> 16: the slot has more to do than to be given back. */
#define CALL_OVER      (0xfcu | CALL_SAMPLED << 8)
#define CALL_UNSTAMPED (UINT64_C(1) << 63)

/** A deadline that is nearer is armed at once. */
#define CALL_NEAR_NS UINT64_C(40000000)

/**
 * Sends a request, or keeps a copy until its session is up. 0, -EAGAIN (back-pressure), -EPIPE (dead), -ESHUTDOWN,
 * -EMSGSIZE, -ENOMEM. On failure `done` is not called.
 */
int shard_call(struct shard *s, const struct call_start *start);
/** After a call was put into `young`, when --due_left is below 0: makes room for the next, and begins to measure the
 * latency if it is the call's turn. Sets due_left. */
void call_due(struct shard *s, struct call *c);
void call_sample_end(struct shard *s, struct call *c);
void call_on_answer(struct shard *s, struct session *se, const union packet_head *h, const uint8_t *body, uint64_t len);
/** Ends a pending call before its answer; the slot stays taken until the peer's last packet. */
void call_end_early(struct shard *s, struct call *c, enum far_status status, const char *text);
/** Writes what follows the payload of a request: HASHED a struct packet_hash; `fields`, if not NULL. */
void call_write_trailer(const struct shard *s, union packet_head *h, uint16_t fn, const struct tlv_block *fields,
			uint8_t *at);
/** A reply in fragments was announced: true if its call waits for it. */
bool call_await_rendezvous(struct shard *s, struct session *se, const struct packet_reply *h);
/** The end of a call in CALL_RENDEZVOUS. */
void call_complete_rendezvous(struct shard *s, struct session *se, const struct packet_reply *h, struct completion *o);
/** Where the reply is to be written, as config.place. */
void *call_place(struct shard *s, uint32_t slot, size_t len);
/** Its request has been sent to the end. */
void call_request_sent(struct shard *s, uint32_t slot, uint32_t gen);
/** Credits of a session that is up and keeps no calls waiting. */
static inline uint16_t call_credits(const struct shard *s)
{
	return s->hold_calls ? 0 : (uint16_t)s->config.limits.peer_calls;
}
/** Ends every call of a session (NULL: of all). */
void call_fail_all(struct shard *s, const struct session *se, enum far_status status, const char *text);

#endif
