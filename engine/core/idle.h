/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Waiting and sleeping: the poller of a shard, threads that wait for a future, and shards without a thread. The poller,
 * any thread that waits, or that of an event loop.
 */
#ifndef FAR_CORE_IDLE_H
#define FAR_CORE_IDLE_H

#include <stdbool.h>
#include <stdint.h>

struct far_future;
struct shard;

struct idler {
	uint32_t empty;
	uint64_t since; /* 0: not idle */
};
/** One step of idling after a pass that found nothing. `awaiting`: the thread waits for an answer. true: it is to
 * sleep. */
bool idler_step(struct shard *s, struct idler *i, bool awaiting);
/** The thread that polls the shard does not sleep for `ns`, FAR_KEEP_AWAKE_NS_MAX at most, unless a CPU quota forbids
 * it. Called by the holder of the shard. */
void shard_keep_awake(struct shard *s, uint64_t ns);
/** Sleeps until woken, a timer is due, or `until`. The caller holds the shard throughout. */
void shard_sleep(struct shard *s, uint64_t until);
/**
 * Waits until the future is done or until `until`: a fiber parks, a thread polls the shard when it can. Not in an
 * inline handler. 0, or why a fiber returned early: -ECANCELED (its caller gave up, or the agent stops), -ENOMEM (no
 * record for its open request, or for the wait). -EDEADLK: a thread outside of fibers, and the shard is stepped.
 */
int shard_wait(struct shard *s, struct far_future *f, uint64_t until);
/** Main function of the poller. */
void *poller_main(void *shard);

/** State of a stepped shard between its turns. All zero at first. */
struct shard_turns {
	struct idler idler;
	bool asleep; /* armed: the next turn is due when a queue is woken, or at the time that shard_turn() returned */
	uint64_t turns, work;
};
/**
 * One turn of a shard without a poller: a full pass; once it has been idle for as long as a poller polls, it arms the
 * queues and sleeps. No thread holds the shard between turns. Returns when the next turn is due, ns absolute: now, when
 * there was something to do. Until it sleeps it polls: the caller calls it when a packet arrives.
 */
uint64_t shard_turn(struct shard *s, struct shard_turns *t);

/** What a poll of an event loop did. */
struct shard_polled {
	unsigned n;    /* packets and submissions handled */
	bool held;     /* another thread holds the shard: nothing was done, and its release signals */
	bool again;    /* there is more to do */
	uint64_t next; /* a timer is due then, ns absolute */
};
/**
 * Polls a shard that has no poller, FAR_POLL_PASSES passes at most, and arms its queues unless there is more to do.
 * `woke`: bits of the queues whose wake-up arrived. Any thread, one at a time.
 *
 * No wake-up is lost. An armed shard is found by each source of work: peers and other threads see it asleep and write
 * the descriptor of a queue (the pairing of go_to_sleep()); a thread that takes the token disarms it, and its release
 * signals (progress_signal_release()), so that timers that it has set are looked at, too. While a thread holds the
 * token, it does the work.
 */
struct shard_polled shard_poll_once(struct shard *s, uint32_t woke);

#endif
