/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Members of a group in one thread: control cores stepped in turn over sockets, ports and a clock in memory. A test
 * sets what differs from plain, starts members, and runs them until they are settled.
 */
#ifndef FAKE_MEMBER_H
#define FAKE_MEMBER_H

#include "ctl/ctl.h"
#include "fake_net.h"
#include "fake_port.h"

#include <farcall/future.h>

#define MEMBERS_MAX 6
#define MAILS_MAX   64
#define TICK        FAR_MS
#define INIT_NS     (2 * FAR_SEC)

/* One process: control core, NIC port, and a shard that answers DOWN with DETACHED. */
struct member {
	struct ctl *ctl;
	struct nic_port *port;
	struct mail posted[MAILS_MAX];
	unsigned posted_n, taken_n; /* DETACHED answers are taken in the order of the DOWNs posted */
	struct mail poisoned;
	bool poison, full;
	uint64_t calls;
	enum far_status created;
	struct far_err err;
};

extern struct fake_world *world;
extern struct fake_fabric fabric;
extern struct member members[MEMBERS_MAX];

/* What member i is started with; members_setup() makes them plain. */
extern const char *names[MEMBERS_MAX], *drivers[MEMBERS_MAX];
extern int sizes[MEMBERS_MAX], ranks[MEMBERS_MAX]; /* size 0: the one that start() gives */
extern const char *method, *group;
extern bool open_to_all;
extern uint64_t incarnation; /* of the member started last */

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
void leave_all(int n, uint64_t timeout);
/* Member i ended with this status and a text that has `part`. */
void result(int i, enum far_status status, const char *part);
unsigned mails_of(const struct member *m, enum mail_type type);

#endif
