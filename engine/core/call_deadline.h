/* SPDX-License-Identifier: BSD-3-Clause */
/** Deadlines of pending calls. Shard thread. */
#ifndef FAR_CORE_CALL_DEADLINE_H
#define FAR_CORE_CALL_DEADLINE_H

#include <stdint.h>

struct call;
struct shard;

/**
 * Gives the calls in shard.young their deadlines, and arms those that have been pending for half of CALL_NEAR_NS: most
 * calls are answered long before, and arming and disarming their timers, or reading the clock for each, would be a
 * large part of their cost.
 */
void call_stamp(struct shard *s, uint64_t now);
/** The same, and arms all pending calls: before a sleep. */
void call_arm_all(struct shard *s, uint64_t now);
/** The deadline of a call has passed. */
void call_on_timer(struct shard *s, struct call *c);

#endif
