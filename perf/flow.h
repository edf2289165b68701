/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Messages, or typed calls, towards one shard of the peer, a fixed number in flight: sent again as they complete. One
 * thread runs a flow; when it holds the shard, completions send the next one, else the shard's own thread completes
 * them.
 */
#ifndef PERF_FLOW_H
#define PERF_FLOW_H

#include "hist.h"
#include <farcall/farcall.h>
#include <stdatomic.h>

struct flow;

/* What a completion finds: is it the one call at a time whose duration is taken? Clocks around all of them would be a
 * good part of their cost. */
struct flow_mark {
	struct flow *flow;
	uint64_t sent_at; /* of the sampled call */
};

/* A message that the receiver may read where it is, until its release. */
struct flow_buffer {
	struct flow *flow;
	struct flow_buffer *next; /* free ones */
	unsigned char *at;
};

struct flow {
	/* Set by the user, who may change them between two runs. */
	struct far_agent *agent;
	struct far_to to;
	unsigned shard;       /* ours, that it goes through */
	bool held;            /* by the thread that runs the flow */
	uint16_t id;          /* of the handler */
	const char *function; /* that is called with one tensor, in place of messages; NULL: none */
	const void *request;
	bool released;            /* in place of `request` each message is sent from a buffer of `free` */
	bool written;             /* `released`: each is written anew */
	bool copied;              /* `released` and `function`: the arguments are copied from there */
	struct flow_buffer *free; /* `inflight` of them at least */
	uint64_t bytes, inflight;
	struct hist *samples; /* what single calls took */

	/* The rest is the flow's; zero at first. */
	struct far_call_opts opts;
	struct flow_mark plain, sample;
	_Atomic bool sampling;
	uint64_t sent;            /* by the thread that sends */
	_Atomic uint64_t done;    /* by the thread that drives the shard; release, pairs with completed() */
	_Atomic uint64_t refused; /* of `done`: calls handed over that found no room. Written before it */
	bool resend;              /* the completion sends the next one: this thread holds the shard */
	_Atomic bool failed;      /* release: `err` is written; acquire by its readers */
	struct far_err err;
};

/**
 * Keeps `inflight` calls going for `ns`, then waits for those under way, 5 s at most. Adds what was completed within
 * the time to `*calls`, and the time to `*busy_ns`. 0; or 1, with the reason in `err`.
 */
int flow_run(struct flow *f, uint64_t ns, uint64_t *calls, uint64_t *busy_ns);

#endif
