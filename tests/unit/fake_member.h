/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Members of a group in one thread: control cores stepped in turn over sockets, ports and a clock in memory. A test
 * sets what differs from plain, starts members, and runs them until they are settled.
 */
#ifndef FAKE_MEMBER_H
#define FAKE_MEMBER_H

#include "control/control.h"
#include "fake_net.h"
#include "fake_port.h"

#include <farcall/future.h>

#define MEMBERS_MAX 80
#define MAILS_MAX   256
#define TICK        FAR_MS
#define INIT_NS     (2 * FAR_SEC)

/* One process: control core, NIC port, and a shard that answers DOWN with DETACHED. */
struct member {
	struct ctl *ctl;
	struct nic_port *ports[4], *port; /* port: the first */
	unsigned ports_n;
	struct mail posted[MAILS_MAX];
	uint8_t posted_to[MAILS_MAX];               /* shard */
	unsigned posted_n, taken_n[FAR_SHARDS_MAX]; /* DETACHED answers are taken in the order of the DOWNs posted */
	bool asked[FAR_SHARDS_MAX];                 /* shard i asks for a session with ask[i] */
	struct far_to ask[FAR_SHARDS_MAX];
	struct mail poisoned;
	bool poison, full;
	bool frozen;           /* its control core does not run */
	uint64_t calls, begun; /* outstanding, and ever */
	enum far_status created;
	struct far_err err;
};

extern struct fake_world *world;
extern struct fake_fabric fabric;
extern struct member members[MEMBERS_MAX];

/* What member i is started with; members_setup() makes them plain. A driver is one, or several with commas between;
 * the last may begin with '+': not published, for sessions with oneself. */
extern const char *names[MEMBERS_MAX], *drivers[MEMBERS_MAX];
extern int sizes[MEMBERS_MAX], ranks[MEMBERS_MAX]; /* size 0: the one that start() gives */
extern const char *method, *group;
extern enum key_kind security;
extern uint32_t silent;                     /* ports whose peers end unnoticed, a bit each */
extern struct far_err refused[MEMBERS_MAX]; /* with a status: it cannot join */
extern unsigned shards[MEMBERS_MAX];        /* 0: one */
extern bool lazy[MEMBERS_MAX];
extern uint64_t incarnation; /* of the member started last */

static inline struct far_to to(int worker, int shard)
{
	return (struct far_to){worker, shard};
}

void members_setup(void);
void members_teardown(void);
void member_end(struct member *m);
/* Starts member i of n. */
void start(int i, int n);
/* One pass over all members, one tick of time. Returns the earliest time that anybody asked for. */
uint64_t round_robin(void);
void run_ticks(int n);
/* Runs until all are READY (LEFT when leaving) or FAILED. */
void run(bool leaving);
/* Starts n members and has them READY. */
void join(int n);
/* The same with sessions on demand. */
void join_lazily(int n);
void leave_all(int n, uint64_t timeout);
/* Member i ended with this status and a text that has `part`. */
void result(int i, enum far_status status, const char *part);
unsigned mails_of(const struct member *m, enum mail_type type);
/* ... about this shard of a worker, posted to this one. */
unsigned mails_about(const struct member *m, enum mail_type type, unsigned shard, struct far_to to);
/* The last one of these. */
const struct mail *mail_last(const struct member *m, enum mail_type type);
/* Shard of member m asks for a session, as its first call does. */
void ask(struct member *m, unsigned shard, int worker, int remote);

#endif
