/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * One bulk-synchronous step of a table: the pushes of k workers are held until the last has come, then applied at once
 * in the order of their ranks, each gradient divided by k. The order makes a run repeatable to the bit, whichever
 * worker comes first; it is why the pushes are held instead of summed on arrival. Shard thread.
 */
#ifndef PSERVER_PS_STEP_H
#define PSERVER_PS_STEP_H

#include "ps_optimizer.h"
#include <farcall/farcall.h>

#define PS_WORLD_MAX      256               /* members of a group: what the engine allows */
#define PS_STEP_BYTES_MAX ((size_t)1 << 30) /* held for one step */

struct ps_part {
	struct ps_part *next;
	size_t n;
	float rate;
	float *grads; /* [n × dim], after the rows in the same allocation */
	float *rows[];
};

/** What one worker brought to the step. */
struct ps_seat {
	struct ps_part *first, **last;
	struct far_deferred *reply; /* held open; NULL before the worker's last part, and for the last worker */
	bool done;                  /* its last part has come */
	bool wants_rows;            /* push_pull: the reply carries the rows of the last part */
};

struct ps_step {
	int64_t number;                     /* the step that is open */
	unsigned workers;                   /* k, of the step's first push; 0: none has arrived */
	unsigned arrived;                   /* seats done */
	float rate;                         /* of the first push */
	size_t bytes;                       /* held by parts */
	uint64_t finished;                  /* steps applied */
	struct ps_seat seats[PS_WORLD_MAX]; /* by rank */
};

/** Copies a push into the seat of `rank`. 0, -ENOMEM, or -ENOBUFS beyond PS_STEP_BYTES_MAX. */
int ps_step_add(struct ps_step *s, const struct ps_table *t, int rank, float *const *rows, const float *grads, size_t n,
		float rate);
/** Applies all and answers every open reply, then opens the next step. The caller has copied what it needs of its own
 * seat. */
void ps_step_finish(struct ps_step *s, const struct ps_table *t, const struct ps_rule *rule);
/** Fails every open reply with `status` and the text, drops what is held, and opens the same step anew. */
void ps_step_abort(struct ps_step *s, enum far_status status, const char *text);
/** Frees what is held and answers nobody: for use after the agent is gone. */
void ps_step_drop(struct ps_step *s);

#endif
