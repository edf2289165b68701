/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A static group seen by one member: the way in, the sessions, the way out. Everything here is the control core's.
 *
 * Keys in the store, all prefixed with the group's name and '/':
 *   world        world size, set by who comes first
 *   rank/<r>     incarnation (16 hexadecimal digits), a space, the name: who holds rank r, by compare-and-set
 *   info/<r>     see info.h
 *   abort        status (1 byte), text: the first failure of a join
 *   bye/<r>      member r has nothing outstanding and leaves
 *
 * Phases, in order; each is entered in the function named:
 *   START    listen (rank 0), make the client                            group_create
 *   STORE    until the store answers                                     join_step
 *   CLAIM    world size and rank agreed, info published                  join_step
 *   GATHER   until every member's info is read                           join.c: rank_claimed
 *   CONNECT  until a session with every member, oneself included, is up  join.c: gathered
 *   READY                                                                session_step
 *   DRAIN    until no call is outstanding                                leave_step
 *   BYE      until everybody has said bye, or is dead                    leave_step
 *   CLOSE    rank 0: until the others have left the store                leave_step
 *   LEFT                                                                 leave.c: left
 *   FAILING  from any before READY: the reason is told to the others     group_fail
 *   FAILED                                                               group_step
 */
#ifndef FAR_CTL_GROUP_H
#define FAR_CTL_GROUP_H

#include "ctl/ctl.h"
#include "ctl/info.h"
#include "ctl/store.h"
#include "ctl/url.h"

enum group_phase {
	PHASE_START,
	PHASE_STORE,
	PHASE_CLAIM,
	PHASE_GATHER,
	PHASE_CONNECT,
	PHASE_READY,
	PHASE_DRAIN,
	PHASE_BYE,
	PHASE_CLOSE,
	PHASE_LEFT,
	PHASE_FAILING,
	PHASE_FAILED
};

enum peer_bye {
	BYE_UNKNOWN,
	BYE_SAID,
	BYE_NEVER /* dead, and the store knows of no bye */
};

struct group;

/** One member of the group, oneself included, beyond what struct ctl_member shows. */
struct peer {
	struct group *group;
	int rank;
	bool known;                  /* its info has been read */
	bool up;                     /* a session is, or was, there */
	bool dead;                   /* the session ended; stays */
	bool up_posted, down_posted; /* to the shard */
	unsigned port;               /* of the session: index in config.ports */
	uint32_t handle;             /* of the session; NIC_PEER_NONE: none, or dropped */
	uint64_t accepted;           /* incarnation that was accepted before the info was known; 0: none */
	enum peer_bye bye;
	struct nic_addr *addrs; /* [0, addrs_n), own memory */
	unsigned addrs_n;
};

struct group_port {
	struct group *group;
	unsigned index;
	uint64_t next; /* when step() wants to be called again */
};

struct group {
	struct ctl_config config; /* strings replaced by own copies */
	struct url url;
	int store_fd;                                                           /* inherited listener, or −1 */
	char name[FAR_NAME_MAX], group[FAR_NAME_MAX], store[URL_HOST_MAX + 16]; /* store: host:port */
	uint64_t hash;                                                          /* of the group's name */

	enum group_phase phase;
	bool busy;    /* something happened in this step: step again */
	uint64_t now; /* of this step */
	uint64_t init_deadline, leave_deadline, grace;
	struct far_err err; /* result: OK until something fails */

	struct store_server *server; /* rank 0 */
	struct store_client *client;
	uint64_t store_next;
	bool store_lost;
	bool telling; /* the abort key is on its way */

	struct ctl_member *members; /* [0, world) */
	struct peer *peers;         /* [0, world) */
	int known_n;
	struct group_port ports[INFO_PORTS_MAX];

	struct mail *mails; /* to the shard: ring of 2 * world, an up and a down for each */
	unsigned mails_head, mails_tail;

	bool leave_asked; /* ctl_step saw ctl_leave() */
	bool bye_sent, bye_done;
};

/* ---- group.c ---- */
/** Takes copies; `net` is not taken over. 0 or -ENOMEM. */
int group_create(struct group *g, const struct ctl_config *config, const struct url *url, int store_fd);
/** Closes the store's connections; ports and net are untouched. */
void group_close(struct group *g);
void group_destroy(struct group *g);
uint64_t group_step(struct group *g, uint64_t now);
enum ctl_state group_state(const struct group *g);
/** While joining: the first failure wins and, when `tell`, goes to the other members. */
__attribute__((format(printf, 4, 5))) void group_fail(struct group *g, bool tell, enum far_status status,
						      const char *format, ...);
/** Makes what another member told in the abort key the result. */
void group_abort_read(struct group *g, const struct store_msg *reply);
/** Submits a request about key "<group>/<what>[/rank]"; rank −1: none. A failure to submit fails the join or loses the
 * store. */
void group_ask(struct group *g, enum store_op op, const char *what, int rank, const void *value, size_t value_len,
	       uint64_t deadline, store_done_fn *done, void *user);
static inline bool group_joining(const struct group *g)
{
	return g->phase < PHASE_READY;
}
static inline bool group_leaving(const struct group *g)
{
	return g->phase >= PHASE_DRAIN && g->phase <= PHASE_CLOSE;
}

/* ---- join.c ---- */
void join_start(struct group *g);
void join_step(struct group *g);

/* ---- session.c ---- */
/** All infos are known: checks early comers and connects to ranks [0, own]. */
void session_begin(struct group *g);
/** Ports, mails; READY when all sessions are up. Returns when to be called again. */
uint64_t session_step(struct group *g);

/* ---- leave.c ---- */
void leave_begin(struct group *g);
/** Returns when to be called again. */
uint64_t leave_step(struct group *g);
/** While leaving: a member's session ended. */
void leave_ask_bye(struct peer *p);

/* ---- names.c ---- */
/** A list for an error text, cut with a count when it grows long. */
struct names {
	char text[224];
	size_t len;
	int n, shown;
};
/** Adds: worker "name" (rank r); name may be empty. */
void names_add(struct names *names, int rank, const char *name);
const char *names_end(struct names *names);

#endif
