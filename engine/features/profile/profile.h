/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Records spans of calls and requests. A recording belongs to a profile, or to a request that is served; its lock is
 * held for a few lines at a time. Any thread.
 */
#ifndef FAR_FEATURES_PROFILE_PROFILE_H
#define FAR_FEATURES_PROFILE_PROFILE_H

#include <farcall/profile.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- record.c ---- */

/** A span as it is recorded. Times are CLOCK_MONOTONIC of this worker. */
struct span {
	char name[FAR_PROFILE_NAME]; /* of the function, the number of the message, of the range; fetch: empty */
	uint32_t parent;             /* number of the span around it; 0: none */
	uint8_t kind, mode, status;
	bool named;  /* a function */
	bool remote; /* came with an answer */
	int32_t at;
	struct far_to from, to;
	uint8_t trace[16];
	uint64_t id, parent_id; /* parent_id: of the span around it, which the recording may not have; 0: none */
	uint64_t begin, end;    /* end 0: open */
	uint64_t queued, wire, running, completing;
};

struct recording {
	_Atomic uint32_t refs;
	pthread_mutex_t lock;
	pthread_cond_t ended;         /* `calls` is 0 */
	struct span *spans;           /* numbers are from 1 */
	uint32_t n, room, max, calls; /* calls: under way */
	int32_t at;                   /* rank of this worker; −1: unknown, that of who reads */
	uint64_t dropped;
};

struct recording *recording_new(size_t max);
/** Room for a span. false: no memory. */
bool recording_reserve(struct recording *r);
void recording_ref(struct recording *r);
void recording_unref(struct recording *r);
/** Adds a span; 0: it was dropped. `call`: the recording waits for its end. */
uint32_t recording_add(struct recording *r, const struct span *span, bool call);
/** Ends a span that is open. */
void recording_end(struct recording *r, uint32_t number, enum far_status status, bool call);
/** The recording waits for one more end. */
void recording_hold(struct recording *r);
/** Appends the spans of a recording that has ended, below `parent`. */
void recording_append(struct recording *to, struct recording *from, uint32_t parent);
uint64_t profile_now(void);

/** What a flow of control has: where spans go, and which is around them. Constant. */
struct scope {
	_Atomic uint32_t refs;
	struct recording *recording; /* NULL: a trace context alone */
	struct scope *outer;
	uint32_t parent; /* number of the span; 0: none */
	bool range;      /* that span is a range */
	bool profile;    /* the outermost of a profile */
	bool process;    /* of flows that have none: each call and range begins a trace */
	uint8_t trace[16];
	uint8_t flags; /* of the trace; 1: sampled */
	uint64_t span; /* id of the parent in the trace; 0: none */
};

/** Takes references of `recording` and `outer`, and makes it the flow's scope. */
enum far_status scope_enter(const struct scope *scope);
struct scope *scope_present(void);
/** Of what begins in the scope. */
void scope_trace(const struct scope *scope, uint8_t trace[16]);
/** Calls of flows that have no scope go to this recording, from now on; NULL: to none. The first one is kept to the end
 * of the process, and is that of later calls, too. */
void recording_of_process_set(struct recording *r);
struct recording *recording_of_process(void);
/** Makes scope->outer the flow's. */
void scope_leave(void);

/* ---- answer.c: spans in answers ---- */

/** Writes the spans of a served request, whose first is the handler's; those that are open end now. Returns the bytes,
 * at most FAR_PROFILE_REPLY_BYTES. */
size_t answer_write(struct recording *r, uint8_t *out);
/** Reads them: the times of the call with this number, and the spans below it. Malformed ones are ignored. */
void answer_read(struct recording *r, uint32_t call, const uint8_t *data, size_t len);

/* ---- interceptor.c ---- */

/** The profiler is there. Any number of times. */
void profile_present(void);
/** Profiles of servers: their recordings get the requests of an agent that begin from now on; until then. */
enum far_status server_add(struct recording *r, struct far_agent *agent);
bool server_remove(const struct recording *r);

#endif
