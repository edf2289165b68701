/* SPDX-License-Identifier: BSD-3-Clause */
/** What the files of api_ps share: two servers, one with two shards, and two clients. Main thread of each process. */
#ifndef API_PS_H
#define API_PS_H

#include "api_spawn.h"

#include <farcall/ps.h>

enum { WORLD = 4, SERVERS = 2, SHARDS = 3, DIM = 4, MANY = 20000, AT_ONCE = 64 };

extern struct far_agent *agent;
extern struct far_err err;
extern struct far_ps *ps; /* of a client */
extern int self;          /* rank */
extern const char *const servers[SERVERS];

/* Arguments of calls. */
extern uint64_t keys[MANY];
extern float grads[MANY * DIM], rows[MANY * DIM];
extern uint8_t status[MANY];

/** Waits for *f, which the call sets before this function reads it, and returns the number of answered keys. */
int64_t done(enum far_status started, struct far_future *const *f);
void fails(enum far_status started, struct far_future *const *f, enum far_status want);

#define DONE(call, want)  CHECK(done(call, &f) == (int64_t)(want))
#define FAILS(call, want) fails(call, &f, want)

#define BAD(call, want, text)                                                                                          \
	do {                                                                                                           \
		CHECK_STATUS(call, want, &err);                                                                        \
		CHECK_TEXT(&err, text);                                                                                \
	} while (0)

struct far_ps_schema schema_of(enum far_ps_rule_kind kind);
struct far_ps_table *table(const char *name, const struct far_ps_schema *schema);
struct far_ps_stats stats_of(struct far_ps_table *t);
/** Different keys for different numbers. */
uint64_t spread(uint64_t x);
/** Both clients come here. */
void meet(void);

/** By one client. */
void bad_requests(void);
/** A table of calls. */
void bad_input(void);
void pooled(void);
/** Keys of `t` have rows of 3; a server does not answer. */
void pooled_stopped(struct far_ps_table *t);
void dense(void);
void restarted(void);
void used_most(void);
void segments(void);
void bad_serves(struct far_ps_server *server);

#endif
