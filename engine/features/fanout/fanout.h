/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Fan-outs: many calls that complete one future. The record is made on the calling thread and belongs to the shard from
 * fanout_begin() to its conclusion; it holds the only pointers to the application's memory, so what is concluded cannot
 * touch it.
 *
 * A target has up to two attempts: its first choice and its hedge. Legal orders of an attempt's states:
 *
 *   NONE → FLYING → ENDED             sent, answered (or ended by deadline, cancel, the session's end)
 *   NONE → WAITING → FLYING → ENDED   no room towards that worker at first
 *   NONE or WAITING → ENDED           never sent
 *
 * Those that wait are queued by session and tried again when an answer of the fan-out comes from it, and by the alarm.
 * Every call that flies when the fan-out is concluded is cancelled there, so no answer finds a record that is gone.
 */
#ifndef FAR_FANOUT_FANOUT_H
#define FAR_FANOUT_FANOUT_H

#include "core/fast.h"
#include "core/shard.h"
#include "core/timer.h"

#include <farcall/fanout.h>

#define FANOUT_STOPPED "the agent is shut down"

#define FANOUT_QUEUES 32u /* of those that wait, by worker and shard */

enum attempt_state { ATTEMPT_NONE, ATTEMPT_WAITING, ATTEMPT_FLYING, ATTEMPT_ENDED };

/** A call's `user`. */
struct fanout_attempt {
	struct fanout *fanout;
	struct call_id id; /* of its call */
	uint16_t next;     /* in its queue: target × 2 + (1 if second), + 1; 0: the last */
	uint8_t state;     /* enum attempt_state */
	uint8_t second;    /* 1: the hedge */
};

struct fanout_target {
	struct far_buf *request; /* kept to be sent later; a reference; NULL: it is not needed any more */
	size_t len;              /* of the request */
	void *recv_buf;          /* slice; NULL: none */
	size_t cap;
	struct far_to to, hedge_to; /* hedge_to.worker −1: none */
	uint16_t fn;                /* as in call_start */
	bool typed;                 /* likewise */
	bool ended;
	bool seen;              /* by interceptors: fanout.seen, without the arguments */
	struct rref_pins *pins; /* hold the references of the request until the target has ended; NULL: it has none */
	struct fanout_attempt attempt[2];
};

/** The first failure of a target, for the future. */
struct fanout_failure {
	enum far_status status;
	int32_t code;
	int16_t origin;  /* rank, or −1 */
	uint16_t target; /* number */
	char text[FAR_ERR_TEXT_MAX / 2];
};

struct fanout {
	struct shard_timer alarm; /* first: next of hedge, retry, deadline */
	struct shard_task task;
	struct far_buf *buf; /* its memory */
	struct shard *shard;
	struct far_future *future; /* a reference */
	void (*complete)(struct far_future *f, const struct completion *o);
	struct fanout *next, **prev; /* the shard's list */
	/* constant */
	struct call_start start; /* what all calls share */
	struct call_extra seen;  /* of kept requests that interceptors see */
	const char *name;        /* of the function; NULL: it is `message` */
	uint32_t message;
	uint64_t timeout; /* ns, from the start on */
	const struct far_target *targets;
	struct far_target_result *results; /* NULL: not wanted */
	uint32_t n, k;
	bool partial;
	enum far_fanout_errors errors;
	enum far_dtype dtype;
	uint64_t hedge_at; /* absolute; TIME_NEVER: not, or done */
	/* state */
	bool launching, concluded;
	bool touched; /* some target may have run it */
	uint32_t ok_n, failed_n, waiting_n;
	uint64_t retry_ns;
	struct far_buf *common; /* the common request, when one had to be kept */
	struct fanout_failure failure;
	uint16_t queue_head[FANOUT_QUEUES], queue_tail[FANOUT_QUEUES]; /* as attempt.next */
	struct fanout_target target[];
};

/** Keeps a request for later: start->data, or what start->write writes. `common`: one copy for all targets of this
 * value. 0 or -ENOMEM. Before fanout_begin(): any thread; then on the shard. */
int fanout_keep(struct fanout *fo, uint32_t i, const struct call_start *start, bool common);

/** Takes the record over. */
void fanout_begin(struct fanout *fo);
/** Starts the first call of target `i`; `start` has the request, NULL: it was kept. */
void fanout_launch(struct fanout *fo, uint32_t i, const struct call_start *start, bool common);
/** The common request as one line. */
struct fanout_line {
	struct fast_call call; /* but for the target, and the number of the function or message there */
	size_t len;            /* of the payload */
	uint8_t bytes[FAR_LINE_PAYLOAD];
};
/** Writes it, after fanout_begin(). false: these calls take no fast path. */
bool fanout_line(const struct fanout *fo, const struct call_start *start, struct fanout_line *line);
/** Starts the only call of target `i` by it, through session `se`: fast_session(). */
void fanout_launch_line(struct fanout *fo, uint32_t i, struct session *se, struct fanout_line *line, unsigned number);
/** Ends target `i` before anything was sent to it. */
void fanout_refuse(struct fanout *fo, uint32_t i, enum far_status status, const char *text);
/** All targets have been launched or refused: looks whether that decides it and arms its alarm. */
void fanout_launched(struct fanout *fo);
/** Hands a record whose requests are all kept over to the shard, from a thread that does not hold it. */
void fanout_submit(struct fanout *fo);

/* fanout_end.c */
/** The call has ended: the receiver of the references has its own, or never will. */
void fanout_pins_done(struct fanout_target *t);
void fanout_request_done(struct fanout_target *t);
/** Target `i` is decided: withdraws its attempts. */
void fanout_target_ended(struct fanout *fo, uint32_t i);
/** Completes the future, with the count unless `failed`. `why`: the status; OK: that of the first failure. The memory
 * of the application is not used afterwards. */
void fanout_conclude(struct fanout *fo, bool failed, enum far_status why);

/* fanout_report.c */
/** The failure of target `i` is the first. */
void fanout_record_failure(struct fanout *fo, uint32_t i, const struct completion *o);
/** The error of the future of a failed fan-out: `status`, or OK for the first failure's. The text lies in
 * text[0, cap), which `o` points to. */
void fanout_error(const struct fanout *fo, enum far_status status, char *text, size_t cap, struct completion *o);
/** "no answer to NAME within the time-out of 250 ms", or the same of a message. */
void fanout_write_timeout(const struct fanout *fo, char *text, size_t cap);
/** Status of the completion. */
void fanout_write_text(char *text, size_t cap, const struct completion *o);

/** Of target `i`; NULL: the caller wants none. */
static inline struct far_target_result *fanout_result_of(const struct fanout *fo, uint32_t i)
{
	return fo->results ? &fo->results[i] : NULL;
}

/** How target `i` ended, and the worker that answered. */
static inline void fanout_write_result(struct fanout *fo, uint32_t i, struct far_to from, const struct completion *o)
{
	struct far_target_result *r = fanout_result_of(fo, i);
	if (!r)
		return;
	r->status = o->status;
	r->executed = o->executed;
	r->code = o->code;
	r->from = from;
	r->text[0] = '\0';
	if (o->status != FAR_OK)
		fanout_write_text(r->text, sizeof r->text, o);
}

#endif
