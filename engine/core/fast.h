/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The fast path: a small call to a peer with a lane (nic/lane.h), from the application's call to the line, and from the
 * line to the handler or the completion. Shard thread.
 *
 * Each function is a list of guards, and then one straight piece of work. Whatever is not plain (options, longer
 * bodies, retries, held or backpressured sessions, a full ring, a first call of a function) leaves at a guard for the
 * general code, shard_call(), dispatch() and call_on_answer(), before anything was changed: the general code decides.
 * Without FAR_FAST_PATH every guard leaves.
 */
#ifndef FAR_CORE_FAST_H
#define FAR_CORE_FAST_H

#include "base/must.h"
#include "core/call.h"
#include "core/call_deadline.h"
#include "core/context.h"
#include "core/packet.h"
#include "core/request.h"
#include "core/session.h"
#include "core/shard.h"
#include "nic/lane.h"
#include "value/line.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifndef FAR_FAST_PATH
#define FAR_FAST_PATH FACTOR(FAST)
#endif

/** First word of a head: kind, flags, function. */
#define FAST_WORD(kind, flags, fn) ((uint32_t)(kind) | (uint32_t)(flags) << 8 | (uint32_t)(fn) << 16)
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words of heads, and struct call");

/** Writes the head of a request or reply: as packet_at() would be filled. */
static inline void fast_head(struct nic_line *line, uint32_t word, uint64_t id, uint64_t time)
{
	uint32_t *w = (uint32_t *)(void *)line->bytes;
	w[0] = word;
	memcpy(w + 1, &id, 8);
	w[3] = 0;
	memcpy(w + 4, &time, 8);
	w[6] = 0;
}

/** The fields of a head that a peer may write meanwhile: each is read once. */
static inline uint32_t fast_word(const struct nic_line *line)
{
	return *(const volatile uint32_t *)(const void *)line->bytes;
}

typedef const volatile uint64_t __attribute__((aligned(4))) fast_word64;

static inline uint64_t fast_id(const struct nic_line *line)
{
	return *(fast_word64 *)(const void *)(line->bytes + 4);
}

static inline uint64_t fast_time(const struct nic_line *line)
{
	return *(fast_word64 *)(const void *)(line->bytes + 16);
}

/** True if the head has no other fields. */
static inline bool fast_plain(const struct nic_line *line)
{
	return *(const volatile uint32_t *)(const void *)(line->bytes + 12) == 0;
}

static inline uint8_t *fast_body(struct nic_line *line)
{
	return line->bytes + sizeof(union packet_head);
}

/** Copies a body of [0, FAR_LINE_PAYLOAD] bytes. */
static inline void fast_copy(uint8_t *to, const void *from, size_t len)
{
	if (likely(len >= 16) || len)
		line_copy(to, from, len);
}

/** The session of a plain call by the thread that holds the shard, with a slot, a credit and a line at hand; NULL: the
 * general code decides. */
static inline struct session *fast_session(struct shard *s, uint32_t index)
{
	struct session *se = &s->sessions[index];
	const struct nic_lane *l = se->lane;
	if (!FAR_FAST_PATH ||
	    unlikely(s->context.fiber || se->calls_active >= se->calls_max || !l->room || !s->calls_free))
		return NULL;
	return se;
}

/** Takes a successful reply of one line, private bytes, FAR_LINE_PAYLOAD of them readable. */
typedef void call_line_fn(void *user, uint8_t *body, uint32_t len);

/** A call of a function's or message's local number, with these CALL_ flags: its kind. */
#define FAST_WHAT(fn, kind) CALL_WHAT(fn, CALL_SENT, (kind) | CALL_YOUNG)

/** What a request is: done as a completion of its kind (CALL_PLAIN: `app` is called; CALL_FUTURE: the future `user` is
 * completed; CALL_LINE: `app` is a call_line_fn). `done` completes it otherwise. */
struct fast_call {
	call_done_fn *done;
	void *user;
	void (*app)(void);
	uint32_t what; /* FAST_WHAT() */
	uint32_t word; /* FAST_WORD() */
	uint64_t left; /* ns, at least CALL_NEAR_NS, less than 2^63; or FAR_FOREVER */
	/* What it takes, by fast_take(). */
	struct nic_lane *lane;
	struct nic_line *line;
	struct call *slot;
};

/** Takes slot and line of a request that fast_session() has room for, before anything else is sent. */
static inline void fast_take(const struct shard *s, const struct session *se, struct fast_call *call)
{
	call->lane = se->lane;
	call->line = call->lane->tx_next;
	call->slot = s->calls_free;
}

/** Sends a request that has taken its line: its body is at fast_body() of that. Cannot fail. Returns what the call is
 * cancelled by. */
static inline struct call_id fast_send(struct shard *s, struct session *se, const struct fast_call *call, size_t len)
{
	struct call *c = call->slot;
	s->calls_free = c->next;
	fast_head(call->line, call->word, c->id, call->left);
	c->done = call->done;
	c->user = call->user;
	c->app = call->app;
	c->timer.at = call->left | CALL_UNSTAMPED; /* FAR_FOREVER is TIME_NEVER */
	c->session = se->index;                    /* not beside `what`: together they become a vector */
	if (!c->young)
		s->young[s->young_n++] = c->slot;
	c->what = (c->what & CALL_AGING << 24) + call->what;
	se->calls_active++;
	if (unlikely(lane_write(call->lane, call->line, (uint32_t)len)))
		lane_mark(&se->q->lanes, call->lane);
	counter_add(&s->counters.calls_sent, 1);
	session_count_sent(s, se, len);
	struct call_id out;
	const uint64_t number = c->id + 1; /* slot + 1: there are fewer slots than 2^32 */
	static_assert(sizeof out == sizeof number, "");
	memcpy(&out, &number, sizeof out);
	if (unlikely(--s->due_left < 0))
		call_due(s, c);
	if (!FACTOR(DEADLINES))
		call_stamp(s, clock_now(s->config.clock));
	return out;
}

/** True if fast_reply_to() can answer a request of the session that has not left its burst. */
static inline bool fast_may_reply_to(const struct session *se)
{
	return FAR_FAST_PATH && likely(se->lane->room && !se->backpressured);
}

/** Answers with a body of [0, FAR_LINE_PAYLOAD] bytes. */
static inline void fast_reply_to(struct shard *s, struct session *se, uint64_t id, const void *data, size_t len)
{
	struct nic_lane *l = se->lane;
	struct nic_line *line = l->tx_next;
	fast_head(line, FAST_WORD(PACKET_REPLY, 0, 0), id, 0);
	fast_copy(fast_body(line), data, len);
	if (unlikely(lane_write(l, line, (uint32_t)len)))
		lane_mark(&se->q->lanes, l);
	counter_add(&s->counters.replies_sent, 1);
	session_count_sent(s, se, len);
}

#endif
