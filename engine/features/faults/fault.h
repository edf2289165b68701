/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Fault injection (<farcall/testing.h>): messages that fail or are delayed on purpose. Shard thread, but for
 * fault_of() (any thread). The settings belong to the agent.
 *
 * A shard in which no fault is set runs none of this. While a fault is set on calls, sessions have no credits
 * (`calls_max` is 0), so that calls take the slow path; while one is set on answers, sessions are marked SESSION_HELD,
 * so that requests do.
 */
#ifndef FAR_FAULTS_FAULT_H
#define FAR_FAULTS_FAULT_H

#include "core/shard.h"
#include "core/timer.h"
#include "features/features.h"

#include <farcall/testing.h>

#define FAULT_SENDS_MAX 6u /* of a control message about references: limit of failed attempts */

/** A setting; never changed but for `left`, never freed before the agent ends. */
struct fault {
	unsigned fail_sends;
	uint64_t delay_ns;
	_Atomic uint64_t left; /* messages; UINT64_MAX: no end */
	struct fault *older;
};

struct faults {
	_Atomic(struct fault *) of[FAR_FAULT_COUNT]; /* NULL: none */
	_Atomic uint64_t failed[FAR_FAULT_COUNT], delayed[FAR_FAULT_COUNT];
	_Atomic(struct fault *) all;
};

/** A call or an answer that is held back. In a buffer, with the call's payload. */
struct fault_delayed {
	struct shard_timer timer;
	struct fault_delayed *next, **prev; /* shard's list */
	struct far_buf *buf, *payload;
	struct call_start start;
	struct far_deferred *answer; /* NULL: it is a call */
	bool fail;
};

/** Of a shard. */
struct fault_shard {
	struct fault_delayed *late; /* calls and answers that are held back */
	uint32_t delayed_calls_n;   /* calls among them */
	bool bypassed;              /* the call that is being started was held back, and is not again */
	bool admits;                /* the request that is being dispatched gets a record: fault_admit() */
};

static inline struct fault_shard *fault_shard(const struct shard *s)
{
	return s->state[FEATURE_FAULTS];
}

/** The faults of an agent, none set. NULL: no memory. Start only. */
struct faults *faults_create(void);
/** Frees them, after the shards were destroyed. */
void faults_destroy(struct faults *f);

/** Is there a fault for this kind, for one message more. Any thread. */
const struct fault *fault_of(struct faults *f, enum far_fault_kind kind);
static inline bool fault_set_for(const struct faults *f, enum far_fault_kind kind)
{
	return f && atomic_load_explicit(&f->of[kind], memory_order_relaxed);
}

/** Applies changed settings: sessions take the slow path, or no longer. */
void fault_apply(struct shard *s);
/** A request while answers are to fail or to be late: a record for it. false: it was refused. */
bool fault_admit(struct far_req *req);

#endif
