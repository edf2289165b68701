/* SPDX-License-Identifier: BSD-3-Clause */
/** The application of fuzz_shard: a shard over a queue in memory, with handlers of each kind that keep what they are
 * given until the fuzzer says otherwise, a class, and the calls that it makes itself. Main thread. */
#ifndef SHARD_APP_H
#define SHARD_APP_H

#include "fake_queue.h"
#include "features/references/rref.h"

enum {
	APP_WORLD = 4,
	APP_SELF = 0,
	APP_PEERS = 2,
	APP_KEPT = 64,
	APP_IDS = 1024,
	APP_WHOLE = 64,
	APP_MESSAGE_MAX = 600000
};

enum {
	MSG_ECHO = 1,
	MSG_DEFER,
	MSG_SILENT,
	MSG_BIG,
	MSG_ALLOC,
	MSG_FAIL,
	MSG_CALL,
	MSG_WAIT,
	MSG_PAUSE,
	MSG_LAST = MSG_PAUSE
};

struct app {
	uint64_t now;
	struct fake_queue *queue;
	struct shard *shard;
	struct registry registry;
	const struct function *functions[16]; /* functions first, then methods */
	unsigned functions_n;
	struct far_deferred *kept[APP_KEPT]; /* open requests, [0, kept_n) */
	unsigned kept_n;
	struct far_rref *rrefs[APP_KEPT]; /* [0, rrefs_n) */
	unsigned rrefs_n;
	struct far_future *future; /* that fibers wait for */
	unsigned objects_n, objects_ended;
	uint64_t calls_begun, calls_done;
	struct call_id ids[APP_IDS]; /* by number of the call, modulo APP_IDS */
};

extern struct app app;

void app_start(void);
/** Ends everything, and checks that nothing is left. */
void app_end(void);
/** Checks every count of the shard. */
void app_audit(void);
/** Answers, fails or drops an open request, in the way `how`. */
void app_answer(unsigned which, unsigned how);
/** Gives a reference back. */
void app_give_back(unsigned which);
/** Ends the wait of the fibers. */
void app_wake_fibers(void);
/** Makes a call to a worker: typed or not, small or in fragments, with repeats or not, in the way `how`. */
void app_call(uint32_t worker, unsigned how, uint64_t timeout, unsigned value);
/** Cancels the n-th call from the last one on. */
void app_cancel(unsigned n);
void app_oneway(uint32_t worker, uint64_t timeout, size_t len);

#endif
