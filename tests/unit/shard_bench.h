/* SPDX-License-Identifier: BSD-3-Clause */
/** The bench of the shard's protocol tests: a shard on a queue in memory, a clock that the test moves, handlers, and
 * packets made by hand. */
#ifndef SHARD_BENCH_H
#define SHARD_BENCH_H

#include "core/call.h"
#include "fake_queue.h"
#include "features/references/rref.h"

/* PEER and OTHER have sessions; the NIC calls them 5 and 6. There are as many workers as it takes to use up all
 * deferred records. */
#define BENCH_LIFE UINT64_C(0x77)

enum { WORLD = FAR_DEFERRED / FAR_SESSION_CALLS_MAX + 1, SELF = 0, PEER = 1, OTHER = 2 };
enum { NIC_PEER = 5, NIC_OTHER = 6 };
enum { MSG_ECHO = 1, MSG_DEFER, MSG_SILENT, MSG_TWICE, MSG_BIG, MSG_ALLOC, MSG_FAIL, MSG_DROP, MSG_CALL };

extern uint64_t now_ns;
extern struct fake_queue *queue;
extern struct fake_queue *queue2; /* of a shard of two ports: OTHER's session is there */
extern struct shard *shard;
extern struct registry registry;
extern struct far_deferred *kept[FAR_SESSION_CALLS_MAX];
extern unsigned kept_n, ran, ctl_wakes;
extern uint32_t order[1024];
extern unsigned order_n;
extern enum far_status second_answer;
extern uint64_t time_left;
extern struct shard_limits bench_limits; /* of the shard that shard_setup() makes */

/** What a call of the shard ended with. */
struct result {
	unsigned n;
	enum far_status status;
	enum far_executed executed;
	int32_t code;
	int origin;
	size_t len;
	char bytes[512];
};

/** The `done` of calls: `user` is a struct result. */
void take_result(void *user, const struct outcome *o);
/** The control core says; the shard takes it in at once. */
void mail(enum mail_type type, uint32_t worker, uint32_t peer);
/** The session ends by silence; its worker is still a member. */
void mail_silent(uint32_t worker, uint32_t peer);
/** A member that has no session is lost. */
void mail_lost(uint32_t worker);
/** The same about a peer of port `port`. */
void mail_at(enum mail_type type, uint32_t worker, uint32_t peer, unsigned port);
/** As shard_setup(), with a second port; `costs`: its empty recv() is a system call. */
void shard_setup_second(bool costs);
/** A shard of worker 0 with sessions to PEER and OTHER, held by this thread. */
void shard_setup(void);
/** Whatever a test did: nothing is open, nothing is held, nothing was lost. */
void shard_teardown(void);
/** A packet arrives. */
void put(uint32_t peer, struct shm_head h, const void *body, size_t len);
struct shm_head request(uint16_t fn, uint32_t call, uint64_t left);
void put_request(uint16_t fn, uint32_t call, const void *body, size_t len);
void put_typed(unsigned fn, const void *body, size_t len);
void put_cancel(uint32_t call);
/** So many passes of the loop. */
void passes(unsigned n);
/** The clock moves, timers run. */
void advance(uint64_t ns);
unsigned executed_of(const struct shm_head *h);
/** The shard's next packet, which must be of this type, for this call of PEER's. */
const struct fake_packet *expect(struct shm_head *h, enum head_type type, uint32_t call);
void expect_error(uint32_t call, enum far_status status, enum far_executed executed, const char *part);
void expect_reply(uint32_t call, const void *bytes, size_t len);
void expect_nothing(void);
uint64_t dropped(void);
/** Empties the mail to the control core; was this type among it, about PEER. */
bool posted(enum mail_type type);
/** Starts a call to PEER. */
int call(struct result *r, uint64_t timeout, const void *data, size_t len);
/** Makes a call and returns the header that went out. */
struct shm_head called(struct result *r, uint64_t timeout);
/** PEER answers it. */
void answer(struct shm_head h, enum head_type type, uint16_t fn, unsigned flags, const char *text);
size_t two_ints(uint8_t *body, int64_t a, int64_t b);

#endif
