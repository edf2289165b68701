/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The control core: one ordinary thread around ctl_step(). It rendezvouses, keeps the table of members, has the NIC
 * ports connect, posts to the shards' mailboxes, and conducts the shutdown. It never touches a shard.
 *
 * Life: JOINING → READY → LEAVING → LEFT, or FAILED from the first two. Only ctl_step() changes the state; application
 * threads ask (ctl_leave) and wait (ctl_wait_state).
 */
#ifndef FAR_CONTROL_CONTROL_H
#define FAR_CONTROL_CONTROL_H

#include "base/clock.h"
#include "base/group_key.h"
#include "control/key.h"
#include "control/net.h"
#include "nic/nic.h"
#include "sync/mailbox.h"

#include <farcall/agent.h>
#include <stdatomic.h>

enum ctl_state { CTL_JOINING, CTL_READY, CTL_LEAVING, CTL_LEFT, CTL_FAILED };

struct ctl_config {
	const char *name; /* validated by ctl_create */
	int rank, world;  /* FAR_RANK_ENV, FAR_WORLD_ENV: from the environment */
	const char *init_method, *group;
	uint64_t incarnation;
	uint64_t init_timeout_ns;
	unsigned shards;            /* [1, FAR_SHARDS_MAX] */
	bool lazy;                  /* sessions on demand, whatever the size of the group */
	uint64_t message_bytes_max; /* what this worker takes; published */
	struct key_choice key;
	struct group_key *group_key;        /* borrowed: AUTO's is set once it is known; NULL: nobody wants to know */
	const struct random_source *random; /* of an AUTO key and of proofs; NULL: the kernel's */
	const struct far_err *refused; /* NULL; else why this worker cannot join: it tells the group, and fails. It has
					* no ports then */
	const struct clock_source *clock;
	struct ctl_net *net;           /* taken over on success */
	struct nic_port *const *ports; /* borrowed; best first */
	unsigned ports_n;              /* at most INFO_PORTS_MAX */
	unsigned private_n;            /* the last ones of these, which are not published */
	unsigned self;                 /* the port for sessions with oneself */
	uint32_t silent;               /* a bit each: those that do not notice the end of a peer that owes nothing */
	/** Puts a mail into a shard's mailbox and wakes its driver; false when full, or without memory for it. */
	bool (*post)(void *ctx, unsigned shard, const struct mail *mail);
	/** Takes the next mail of a shard. */
	bool (*take)(void *ctx, unsigned shard, struct mail *mail);
	/** Calls this worker has outstanding, and handlers of one-way messages that run here: shutdown waits for 0. Any
	 * thread. */
	uint64_t (*outstanding)(void *ctx);
	/** Calls and one-way messages that it has ever begun: when none was since it said bye, what others began since
	 * has led to none here. Any thread. */
	uint64_t (*begun)(void *ctx);
	void *ctx;
};

/** How a member is reached, or would be. Constant; freed when a newer one is told and nobody reads. */
struct ctl_route {
	const char *nic;  /* driver; "": none */
	char address[96]; /* its address, in words */
	char why[192];    /* it is this driver, or there is none */
};

/**
 * A member as application threads see it. Name, rank and shards are constant from READY on: another life of it has the
 * same. The rest is the control core's to change, and each field right by itself.
 */
struct ctl_member {
	const char *name; /* "": not known yet */
	int32_t rank;
	uint32_t shards;
	_Atomic uint64_t incarnation;            /* of its present or last life; relaxed */
	_Atomic uint64_t message_bytes_max;      /* what it takes in one message; 0: no limit. Relaxed */
	_Atomic(const struct ctl_route *) route; /* NULL: not known yet; ctl_member_route() reads it */
	_Atomic uint32_t route_readers;          /* threads in ctl_member_route() */
	_Atomic int alive;                       /* a hint; 1 is stored last of a new life: release */
};

/** Copies how the member is reached; false: not known yet. Any thread. Both are seq_cst, and pair with route_tell(),
 * which publishes, then looks for readers: one that comes later finds the newer route. */
static inline bool ctl_member_route(const struct ctl_member *member, struct ctl_route *out)
{
	struct ctl_member *m = (struct ctl_member *)(uintptr_t)member;
	atomic_fetch_add_explicit(&m->route_readers, 1, memory_order_seq_cst);
	const struct ctl_route *r = atomic_load_explicit(&m->route, memory_order_seq_cst);
	if (r)
		*out = *r;
	atomic_fetch_sub_explicit(&m->route_readers, 1, memory_order_release);
	return r != NULL;
}

struct ctl;

/** Checks name, rank, world size, method and environment, and starts nothing yet. Application thread. */
enum far_status ctl_create(struct ctl **out, const struct ctl_config *config, struct far_err *err);

/** Does all that is ready at `now`; returns the absolute time to be called again at the latest. Control core (or a
 * simulator). */
uint64_t ctl_step(struct ctl *ctl, uint64_t now);

/** Starts / ends the thread that runs ctl_step. stop: wakes and joins it; the store, when hosted here, goes down with
 * it. */
enum far_status ctl_start(struct ctl *ctl, struct far_err *err);
void ctl_stop(struct ctl *ctl);
void ctl_destroy(struct ctl *ctl);

/** Any thread: makes the control core run a step soon. */
void ctl_wake(struct ctl *ctl);

enum ctl_state ctl_state(const struct ctl *ctl);
/** Blocks until the state is READY, LEFT or FAILED (bounded by the deadlines given), and fills `err` with why unless it
 * went well. */
enum far_status ctl_wait_settled(struct ctl *ctl, struct far_err *err);

/** Asks to leave gracefully within `timeout_ns`; ctl_wait_settled() then tells the result (TIMEOUT, PEER_LOST: `err`
 * names the members). */
void ctl_leave(struct ctl *ctl, uint64_t timeout_ns);

/** Members, by rank; `world` of them; see struct ctl_member. */
const struct ctl_member *ctl_members(const struct ctl *ctl, int *world);
int ctl_rank(const struct ctl *ctl);
/** Sessions of each shard that are set up at init; 0: they are set up on demand. Constant from READY on. */
unsigned ctl_sessions(const struct ctl *ctl);
/** Key of this group in the process: "host:port/group/name", for "already initialized". */
const char *ctl_identity(const struct ctl *ctl);

/** Worker names: 1 to 127 of A-Z a-z 0-9 - _ : */
enum far_status ctl_check_name(const char *name, struct far_err *err);

#endif
