/* SPDX-License-Identifier: BSD-3-Clause */
/** Requests, the callee's side, from arrival to answer. Shard thread, but where a field says otherwise. */
#ifndef FAR_CORE_REQUEST_H
#define FAR_CORE_REQUEST_H

#include "base/limits.h"
#include "core/head.h"
#include "core/timer.h"
#include "nic/nic.h"
#include "value/registry.h"

#include <farcall/rpc.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fiber;
struct rref_open;
struct rref_pins;
struct session;
struct shard;

enum deferred_state {
	DEFERRED_OPEN,
	DEFERRED_ANSWERED, /* by the application; on its way to the shard */
	DEFERRED_GONE      /* the caller no longer waits: the application's answer returns FAR_CANCELLED */
};

/**
 * The record of an open request: its handler has returned, is parked, or runs on a blocking thread; or of an answer
 * that waits for bulk memory.
 */
struct far_deferred {
	struct shard_timer timer; /* the caller's deadline */
	struct shard *shard;
	struct fiber *fiber; /* runs the handler, and is cancelled when the caller no longer waits; else NULL */
	_Atomic uint32_t
		state; /* enum deferred_state; exchange by the application, compare-and-exchange by the shard */
	uint32_t session, call, gen;
	uint64_t retry_seq;        /* the request may be repeated; 0: not */
	uint8_t features;          /* bits of the features whose record functions are called */
	const struct function *fn; /* typed, else NULL */
	bool hashed;
	uint64_t limit;                              /* bytes that the caller takes */
	bool gone;                                   /* DEFERRED_GONE, for the shard */
	bool owned;                                  /* the application holds it */
	struct far_deferred *next;                   /* answers, free list, blocked list */
	struct far_deferred *open_next, **open_prev; /* session's list */
	/* the answer */
	uint8_t status, executed;
	int32_t code;
	struct far_buf *buf;
	size_t len;
	/* of references: what else the answer is to; what keeps the references in it until they are known to have come;
	 * does it hold any; is `buf` a tree */
	struct rref_open *rref;
	struct rref_pins *pins;
	bool rrefs, tree;
	struct far_buf *held;  /* holds the references of the arguments */
	bool addressed, makes; /* the arguments hold addresses of references; the result is kept here */
	bool faulted;          /* fault.h: its answer has failed or been late once */
	bool here;             /* its handler runs on the shard now, and has not parted with it */
};

enum answer {
	ANSWER_NONE,
	ANSWER_SENT,
	ANSWER_RESERVED,
	ANSWER_SCRATCH,
	ANSWER_BUFFER,
	ANSWER_DEFERRED,
	ANSWER_RENDEZVOUS, /* in a buffer, to be sent in fragments */
	ANSWER_ONEWAY      /* nobody awaits one */
};

/** A request while its handler runs. Lies where that is: on the stack of dispatch(), in the fiber, on the stack of the
 * blocking thread. */
struct far_req {
	struct shard *shard;
	struct session *session;     /* not to be used while there is a record: it may have ended */
	struct far_deferred *record; /* answers go through it, since the handler left the burst; NULL: straight out */
	const struct function *fn;   /* typed, else NULL */
	const char *name;
	uint32_t call, gen;
	uint32_t from, from_shard; /* rank of the caller, and its shard */
	uint64_t time_left;        /* when it was dispatched */
	uint64_t deadline;         /* absolute, since the handler left the burst; 0: it has not */
	bool hashed;
	enum answer answer;
	size_t len;          /* RESERVED, SCRATCH */
	struct far_buf *buf; /* BUFFER, LARGE */
	struct nic_tx tx;
	alignas(64) uint8_t scratch[64];
};

/** The body of a message that came in fragments: it lies in memory of its own, which a handler may keep. */
struct private_body {
	const uint8_t *at;
	struct far_buf *buf; /* NULL: the application's memory */
	bool refused;        /* no handler has seen it: written by who was to run one */
};

/** A request that arrived while its session's answers waited for memory. Bounded by the caller's credits. */
struct paused_request {
	struct shm_head head;
	bool cancelled;
	struct far_buf *buf; /* body beyond a line: copied, so that the peer gets its memory back */
	uint64_t body_len;
	uint64_t arrived;
	alignas(32) uint8_t line[FAR_LINE_PAYLOAD];
};

#endif
