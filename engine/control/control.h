/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The control thread: one ordinary thread around ctl_step(). It joins the group, maintains the table of members, sets
 * up sessions through the NIC ports, sends mails to the shards, and runs the shutdown. It never touches a shard.
 *
 * States: JOINING → READY → LEAVING → LEFT, or FAILED from the first two. Only ctl_step() changes the state;
 * application threads request a shutdown (ctl_leave) and wait (ctl_wait_settled). A member that serves (ctl_serve)
 * leaves READY when another member leaves or is lost.
 */
#ifndef FAR_CONTROL_CONTROL_H
#define FAR_CONTROL_CONTROL_H

#include "base/clock.h"
#include "base/group_key.h"
#include "control/key.h"
#include "control/net.h"
#include "control/url.h"
#include "nic/nic.h"
#include "sync/mailbox.h"

#include <farcall/agent.h>
#include <stdatomic.h>
#include <string.h>

enum ctl_state { CTL_JOINING, CTL_READY, CTL_LEAVING, CTL_LEFT, CTL_FAILED };

/** Arguments of ctl_create(). Constant. */
struct ctl_config {
	const char *name;                /* validated by ctl_create */
	int rank, world;                 /* FAR_RANK_ENV, FAR_WORLD_ENV: from the environment */
	unsigned members_max;            /* of a dynamic group; 0: FAR_MEMBERS_MAX */
	const char *init_method, *group; /* NULL: "env://", "default" */
	uint64_t incarnation;            /* not 0 */
	uint64_t init_timeout_ns;        /* limit of the join */
	uint64_t lease_ns;               /* of a member of a dynamic group */
	/** Until when this worker is a member, ns absolute: TIME_NEVER at first, then extended by the control thread;
	 * LEASE_OVER, by it or a shard: this incarnation is over. NULL with lease_ns 0. */
	_Atomic uint64_t *lease;
	unsigned shards;            /* [1, FAR_SHARDS_MAX] */
	bool lazy;                  /* sessions on demand, whatever the size of the group */
	uint64_t message_bytes_max; /* largest message that this worker accepts, in bytes; 0: any. Published */
	struct key_choice key;
	struct group_key *group_key;        /* borrowed: set once an AUTO key is proven; NULL: not needed */
	const struct random_source *random; /* of an AUTO key and of proofs; NULL: the kernel's */
	const struct far_err *refused;      /* why this worker cannot join, which is published as the failure of the
					     * join; it has no ports then. NULL: it can join */
	const struct clock_source *clock;
	struct ctl_net *net;           /* taken over on success */
	struct nic_port *const *ports; /* borrowed; best first */
	unsigned ports_n;              /* at most INFO_PORTS_MAX */
	unsigned private_n;            /* the last ones of these, which are not published */
	unsigned self;                 /* index of the port for sessions of this worker with itself */
	uint32_t silent;               /* bit i: port i does not report the end of an idle peer */
	/** Puts a mail into a shard's mailbox and wakes the shard; false: the mailbox is full, or no memory. */
	bool (*post)(void *ctx, unsigned shard, const struct mail *mail);
	/** Takes the next mail of a shard; false: there is none. */
	bool (*take)(void *ctx, unsigned shard, struct mail *mail);
	/** Outstanding calls of this worker, and running handlers of one-way messages: a shutdown waits for 0. Any
	 * thread. */
	uint64_t (*outstanding)(void *ctx);
	/** Calls and one-way messages begun since the start. Unchanged since this worker's bye: nothing that others
	 * began since has led to a call of this worker. Any thread. */
	uint64_t (*begun)(void *ctx);
	/** The state has changed. The control thread. NULL: nothing to do. */
	void (*changed)(void *ctx, enum ctl_state state);
	/** A member has come or is lost. The control thread; must not block. NULL: nothing to do. */
	void (*members_changed)(void *ctx);
	/** This worker is going to be a member as another incarnation. The control thread. NULL: nothing to do. */
	void (*renewed)(void *ctx, uint64_t incarnation);
	void *ctx;
};

/** The path to a member that is used, or would be. Constant; freed once a newer one is published and has no reader. */
struct ctl_route {
	const char *nic;  /* name of the driver; "": none */
	char address[96]; /* text of the member's address */
	char why[192];    /* why this driver, or why none */
	char ip[46];      /* of the member's address for that driver, else of its first one with an IP; "": none */
	uint16_t port;    /* of `ip` */
};

#define CTL_NAME_WORDS (FAR_NAME_MAX / sizeof(uint64_t))

/**
 * A member as application threads see it. In a static group name and shards are constant from READY on: a later
 * incarnation has the same. In a dynamic group another worker may take the rank: application threads read the name by
 * ctl_member_name(). Writer: the control thread; each field is consistent by itself only.
 */
struct ctl_member {
	const char *name; /* "": not known yet */
	int32_t rank;
	_Atomic uint32_t shards;       /* relaxed; 0: not known yet */
	_Atomic uint32_t name_version; /* odd while `name_words` changes */
	_Atomic uint64_t name_words[CTL_NAME_WORDS];
	_Atomic uint64_t incarnation;            /* present or last one; relaxed */
	_Atomic uint64_t message_bytes_max;      /* largest message that it accepts, in bytes; 0: any. Relaxed */
	_Atomic(const struct ctl_route *) route; /* NULL: not known yet; read by ctl_member_route() */
	_Atomic uint32_t route_readers;          /* threads in ctl_member_route() */
	/* The last incarnation that was lost, and whether its lease had ended; relaxed, stored before `alive`. */
	_Atomic uint64_t lost_incarnation;
	_Atomic bool lost_by_lease;
	_Atomic int alive; /* a hint; 1 is stored after the other fields of a new incarnation:
			    * release */
};

/* ---- Any thread ---- */

/** Copies the route to the member; false: not known yet. Both operations are seq_cst and pair with route_publish(),
 * which publishes, then checks for readers: a reader that it does not see finds the newer route. */
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

/** Sets the name that ctl_member_name() reads. The control thread. */
static inline void ctl_member_set_name(struct ctl_member *m, const char *name)
{
	uint64_t words[CTL_NAME_WORDS] = {0};
	uint32_t version = atomic_load_explicit(&m->name_version, memory_order_relaxed);
	memcpy(words, name, strnlen(name, FAR_NAME_MAX - 1));
	atomic_store_explicit(&m->name_version, version + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	for (unsigned i = 0; i < CTL_NAME_WORDS; i++)
		atomic_store_explicit(&m->name_words[i], words[i], memory_order_relaxed);
	atomic_store_explicit(&m->name_version, version + 2, memory_order_release);
}

/** Copies the member's name to `out`, which it returns; "": not known yet. */
static inline const char *ctl_member_name(const struct ctl_member *m, char out[FAR_NAME_MAX])
{
	uint64_t words[CTL_NAME_WORDS];
	uint32_t before, after;
	do {
		before = atomic_load_explicit(&m->name_version, memory_order_acquire);
		for (unsigned i = 0; i < CTL_NAME_WORDS; i++)
			words[i] = atomic_load_explicit(&m->name_words[i], memory_order_relaxed);
		atomic_thread_fence(memory_order_acquire);
		after = atomic_load_explicit(&m->name_version, memory_order_relaxed);
	} while (before != after || before % 2);
	memcpy(out, words, FAR_NAME_MAX);
	return out;
}

struct ctl;

/* ---- The control thread, or the simulator's thread ---- */

/** Does all that is ready at `now`; returns the absolute time of the next call at the latest. */
uint64_t ctl_step(struct ctl *ctl, uint64_t now);

/* ---- Start and stop: an application thread ---- */

/** Checks name, rank, world size, init method and environment; starts no thread. */
enum far_status ctl_create(struct ctl **out, const struct ctl_config *config, struct far_err *err);
/** Starts the control thread. */
enum far_status ctl_start(struct ctl *ctl, struct far_err *err);
/** Ends the control thread, and the store if this worker hosts it. */
void ctl_stop(struct ctl *ctl);
void ctl_destroy(struct ctl *ctl);

/** True if ctl_wait_settled() would not block. */
bool ctl_settled(const struct ctl *ctl);
/** Blocks until the state is READY, LEFT or FAILED, which the deadlines bound; fills `err` if the status is not OK. */
enum far_status ctl_wait_settled(struct ctl *ctl, struct far_err *err);

/** This member has no work of its own: from now on it leaves without a deadline as soon as others do, and the group
 * ends when no member has work. */
void ctl_serve(struct ctl *ctl);
/** Requests a shutdown within `timeout_ns`, after ctl_serve() too; ctl_wait_settled() then returns the result (TIMEOUT,
 * PEER_LOST: `err` names the members). */
void ctl_leave(struct ctl *ctl, uint64_t timeout_ns);

/* ---- Any thread ---- */

/** Makes the control thread run a step soon. */
void ctl_wake(struct ctl *ctl);

enum ctl_state ctl_state(const struct ctl *ctl);

/** Members by rank, `*world` of them; see struct ctl_member. Of a dynamic group: slots, one for each possible rank. */
const struct ctl_member *ctl_members(const struct ctl *ctl, int *world);
bool ctl_is_dynamic(const struct ctl *ctl);
int ctl_rank(const struct ctl *ctl);
/** Sessions of each shard that are set up at init; 0: on demand. Constant from READY on. */
unsigned ctl_sessions(const struct ctl *ctl);
/** Address and key of the store; from READY on. The caller erases the key. */
void ctl_store(const struct ctl *ctl, struct url *url, struct key_choice *key);
/** The group's name, and the address of its store for messages: url_text(). Both are constant. */
const char *ctl_group(const struct ctl *ctl);
const char *ctl_store_text(const struct ctl *ctl);
/** "store/group/name": identifies this membership in the process, for "already initialized". */
const char *ctl_identity(const struct ctl *ctl);

/** Checks a worker name: 1 to 127 of A-Z a-z 0-9 - _ : */
enum far_status ctl_check_name(const char *name, struct far_err *err);

#endif
