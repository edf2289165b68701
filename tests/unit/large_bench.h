/* SPDX-License-Identifier: BSD-3-Clause */
/** What the tests of messages in fragments share beyond the shard's bench: the peer's packets, what is left behind. */
#ifndef LARGE_BENCH_H
#define LARGE_BENCH_H

#include "features/rendezvous/rendezvous.h"
#include "shard_bench.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

/* Messages beyond this go in fragments here, so that tests need no memory to speak of. */
enum { WHOLE = 64, TOTAL = 5000 };

static uint8_t bytes[TOTAL];
static int released;

static inline void setup(void)
{
	shard_setup();
	shard->sessions[PEER].whole_max = WHOLE;
	released = 0;
	for (unsigned i = 0; i < TOTAL; i++)
		bytes[i] = (uint8_t)(i * 7 + i / 256);
}

static inline void teardown(void)
{
	session_close_all(shard);
	for (unsigned i = 0; i < FAR_LARGE_IN_MAX; i++)
		cr_assert_null(rendezvous_of(shard)->ins[i].peer, "memory of a message was left behind");
	cr_assert_eq(shard->counters.large_active, 0u);
	cr_assert_eq(shard->counters.sends_begun, shard->counters.sends_ended);
	const struct large_peer *p = shard->sessions[PEER].large;
	cr_assert(!p || !p->posts);
	cr_assert_eq(atomic_load(&shard->posts_queued[PEER]), 0u);
	shard_teardown();
}

static inline void on_release(void *user)
{
	(void)user;
	released++;
}

/* Calls with a message of its own, which is the call's from then on. */
static inline int call_with(struct result *r, uint64_t timeout, struct large_out *o)
{
	struct call_start start = {.worker = PEER,
				   .fn = MSG_ECHO,
				   .deadline = timeout == FAR_FOREVER ? TIME_NEVER : now_ns + timeout,
				   .left = timeout,
				   .done = take_result,
				   .user = r,
				   .len = o->total,
				   .ready = o->self};
	memset(r, 0, sizeof *r);
	int error = shard_call(shard, &start);
	large_out_unref(o);
	return error;
}

/* ---- the peer's packets ---- */

static inline void announce_as(struct shm_head h, enum large_kind kind, unsigned lane, uint32_t life, uint64_t total)
{
	struct head_large body = {.total = total, .lane = lane, .life = life, .kind = kind};
	h.type = HEAD_LARGE;
	put(NIC_PEER, h, &body, sizeof body);
}

static inline void announce(enum large_kind kind, uint16_t fn, uint32_t call, unsigned lane, uint32_t life,
			    uint64_t total)
{
	announce_as(request(fn, call, UINT64_MAX), kind, lane, life, total);
}

static inline void put_data(unsigned lane, uint32_t life, uint64_t offset, const void *data, size_t len)
{
	struct shm_head h = {.type = HEAD_DATA, .call = lane, .gen = life, .time_low = (uint32_t)offset};
	put(NIC_PEER, h, data, len);
}

static inline void put_about(enum head_type type, unsigned lane, uint32_t life, uint64_t time, uint64_t units)
{
	struct head_units body = {units};
	struct shm_head h = {.type = (uint8_t)type,
			     .call = lane,
			     .gen = life,
			     .time_low = (uint32_t)time,
			     .time_high = (uint32_t)(time >> 32)};
	put(NIC_PEER, h, &body, type == HEAD_ABORT || type == HEAD_ASK ? 0 : sizeof body);
}

/* The shard's next packet. */
static inline const struct fake_packet *sent(struct shm_head *h, enum head_type type)
{
	const struct fake_packet *p = fake_queue_sent(queue, h);
	cr_assert_not_null(p, "nothing was sent instead of type %d", type);
	cr_assert_eq(h->type, type, "type %d instead of %d", h->type, type);
	return p;
}

static inline void expect_grant(unsigned lane, uint32_t life, uint64_t granted)
{
	struct shm_head h;
	sent(&h, HEAD_GRANT);
	cr_assert_eq(h.call, lane);
	cr_assert_eq(h.gen, life);
	cr_assert_eq(head_time(&h), granted);
}

static inline void expect_poisoned(const char *what)
{
	passes(1);
	cr_assert(posted(MAIL_POISONED), "%s", what);
	shard->sessions[PEER].poisoned = false;
}

#endif
