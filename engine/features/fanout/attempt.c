/* SPDX-License-Identifier: BSD-3-Clause */
/** The queues of the attempts that wait for room, by session. Shard thread. */
#include "features/fanout/attempt.h"

void fanout_enqueue(struct fanout *fo, struct fanout_attempt *at)
{
	uint32_t q = fanout_session_of(fo, at) % FANOUT_QUEUES;
	uint16_t number = (uint16_t)(fanout_target_of(fo, at) * 2 + at->second + 1);
	at->state = ATTEMPT_WAITING;
	at->next = 0;
	if (fo->queue_head[q])
		fanout_attempt_at(fo, fo->queue_tail[q])->next = number;
	else
		fo->queue_head[q] = number;
	fo->queue_tail[q] = number;
	fo->waiting_n++;
}

void fanout_dequeue(struct fanout *fo, uint32_t q, struct fanout_attempt *before, struct fanout_attempt *at)
{
	uint16_t before_number = before ? (uint16_t)(fanout_target_of(fo, before) * 2 + before->second + 1) : 0;
	if (before)
		before->next = at->next;
	else
		fo->queue_head[q] = at->next;
	if (!at->next)
		fo->queue_tail[q] = before_number;
	fo->waiting_n--;
}
