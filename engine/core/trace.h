/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The trace of a shard: its last rare events, for `farcall debug` and the report of a crash. Small calls that succeed
 * leave none. Any thread; never blocks, also in signal handlers.
 */
#ifndef FAR_CORE_TRACE_H
#define FAR_CORE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define TRACE_EVENTS 256u /* a power of two; 4 KiB */

enum trace_kind {
	TRACE_SESSION_UP,
	TRACE_SESSION_DOWN,
	TRACE_CALL_FAILED,    /* a call of this worker */
	TRACE_REQUEST_FAILED, /* a call of another one */
	TRACE_KINDS
};

struct trace_event {
	uint64_t at; /* ns, of the shard's clock */
	enum trace_kind kind;
	uint8_t status; /* enum far_status, of failures */
	bool typed;     /* `function` is a number of the registry, not of a message */
	uint16_t function;
	uint32_t worker; /* the peer */
};

struct trace_slot {
	_Atomic uint64_t at;   /* 0: not written yet */
	_Atomic uint64_t what; /* struct trace_event without `at`, packed */
};

struct shard_trace {
	_Atomic uint32_t next; /* events ever added */
	struct trace_slot of[TRACE_EVENTS];
};

void trace_add(struct shard_trace *t, const struct trace_event *e);
/** Copies the last events, the oldest first, at most `max`; returns how many. One that is written at the same time may
 * be missing, or have the time of its neighbour. */
uint32_t trace_read(const struct shard_trace *t, struct trace_event *out, uint32_t max);
/** "session up", "call failed" … */
const char *trace_kind_text(enum trace_kind kind);

#endif
