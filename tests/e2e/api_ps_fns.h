/* SPDX-License-Identifier: BSD-3-Clause */
/** What the files of api_ps_fns share: two servers with three shards, two clients. */
#ifndef API_PS_FNS_H
#define API_PS_FNS_H

#include "api_spawn.h"

#include <farcall/ps.h>
#include <stdatomic.h>

enum { WORLD = 4, SERVERS = 2, DIM = 4, MANY = 20000 };

struct shared {
	_Atomic int step, done;
};
extern struct shared *shared;
extern struct far_agent *agent;
extern struct far_err err;
extern struct far_ps *ps;
extern int self; /* rank */

extern uint64_t keys[MANY];
extern uint8_t status[MANY];

#define BAD(call, want, text)                                                                                          \
	do {                                                                                                           \
		CHECK_STATUS(call, want, &err);                                                                        \
		CHECK_TEXT(&err, text);                                                                                \
	} while (0)

/** Waits for *f, which the call sets before this function reads it; returns the status of its end, or `started`. */
enum far_status ended(enum far_status started, struct far_future *const *f, int64_t *answered);
#define DONE(call, want)                                                                                               \
	do {                                                                                                           \
		int64_t answered_;                                                                                     \
		CHECK_STATUS(ended(call, &f, &answered_), FAR_OK, &err);                                               \
		CHECK(answered_ == (int64_t)(want));                                                                   \
	} while (0)
#define FAILS(call, want, text) BAD(ended(call, &f, &(int64_t){0}), want, text)

struct far_ps_schema schema_of(enum far_ps_rule_kind kind, unsigned dim);
struct far_ps_table *table(const char *name, const struct far_ps_schema *schema);
uint64_t rows_of(struct far_ps_table *t);
/** Different keys for different numbers. */
uint64_t spread(uint64_t x);
void step_reached(int step);
/** All servers have done what they do in `step`. */
void servers_do(int step);

/** By one client. */
void optimizers(void);
/** At a server: registers its optimizers; what it does in a step. */
void optimizers_register(void);
void optimizers_step(int step);

#endif
