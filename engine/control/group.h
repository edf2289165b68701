/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A static group seen by one member: the way in, the sessions, the way out. Everything here is the control core's.
 *
 * Keys in the store, all prefixed with the group's name and '/':
 *   world        world size, set by who comes first
 *   rank/<r>     incarnation (16 hexadecimal digits), a space, the name: who holds rank r, as long as it is connected
 *   info/<r>     see info.h
 *   list/<k>     chunk k of all infos, by rank 0, in groups of more than FAR_GATHER_DIRECT_MAX; see members.c
 *   running      "1": rank 0 is READY; who comes now takes the place of a member that was there before (rejoin.c)
 *   abort        status (1 byte), text: the first failure of a join
 *   bye/<r>      "1": member r has nothing outstanding and leaves; "lost": it died before; "late": it
 *                has run into the deadline of its shutdown, and goes
 *   bye<w>/<r>   the same in wave w, from 2 on: "1", and it has begun nothing since the wave before (rank 0 says so
 *                of one that has died since); "+", but it has
 *   byes, byes<w>  by rank 0, in groups that have lists: a byte for each rank: '1', '+', 'l' (lost), 't' (late),
 *                '?' (not come)
 *
 * Phases, in order; each is entered in the function named:
 *   START    listen (rank 0), make the client                            group_create
 *   STORE    until the store answers                                     join_step
 *   CLAIM    world size and rank agreed, info published                  join_step
 *   GATHER   until every member's info is read                           join.c: rank_claimed
 *   CONNECT  until all sessions are up, oneself's included; passed over  join.c: gathered
 *            when sessions are set up on demand
 *   READY                                                                session_step
 *   DRAIN    until no call is outstanding                                leave_step
 *   BYE      until everybody has said bye, or is dead, in a second or    leave_step
 *            later wave in which nobody had begun anything since the last
 *   LATE     its deadline has passed: until the store knows that      leave.c: late_begin
 *   CLOSE    rank 0: until the members have left the store, for a while  leave_step
 *   LEFT                                                                 leave.c: left
 *   FAILING  from any before READY: the reason is told to the others     group_fail
 *   FAILED                                                               group_step
 */
#ifndef FAR_CONTROL_GROUP_H
#define FAR_CONTROL_GROUP_H

#include "base/limits.h"
#include "control/control.h"
#include "control/info.h"
#include "control/key_auto.h"
#include "control/route.h"
#include "control/store.h"
#include "control/url.h"

enum group_phase {
	PHASE_START,
	PHASE_STORE,
	PHASE_CLAIM,
	PHASE_GATHER,
	PHASE_CONNECT,
	PHASE_READY,
	PHASE_DRAIN,
	PHASE_BYE,
	PHASE_LATE,
	PHASE_CLOSE,
	PHASE_LEFT,
	PHASE_FAILING,
	PHASE_FAILED
};

enum peer_bye {
	BYE_UNKNOWN,
	BYE_SAID,
	BYE_NEVER, /* dead, and the store knows of no bye */
	BYE_LATE   /* it ran into its own deadline */
};

struct group;

enum pair_state {
	PAIR_NONE,       /* no session, nobody makes one */
	PAIR_CONNECTING, /* our attempt is out */
	PAIR_YIELDING,   /* the other side said that it connects itself: its hello is awaited */
	PAIR_UP,
	PAIR_DEAD /* as long as this life of the member lasts, or would have */
};

/** One of our shards and one of a member's, in one life of that: the session between them. Made when first used. */
struct pair {
	struct peer *peer;
	struct pair *next; /* of the peer: `pairs`, or `old` */
	bool is_old;       /* another life has begun; there until nobody has to do with it any more */
	uint8_t local, remote;
	uint8_t state;                        /* enum pair_state */
	bool attempt;                         /* a connect() of ours will report */
	bool wanted;                          /* the shard has asked and waits for PEER_UP or UNREACHED */
	bool up_posted;                       /* ... or queued to be */
	bool due_up, due_down, due_unreached; /* mails that are queued */
	bool due_probe, due_back;
	bool queued;                           /* for its shard's mailbox */
	bool yielded;                          /* counted in group.yielding_n */
	uint8_t status;                        /* of UNREACHED */
	uint16_t port;                         /* index in config.ports */
	uint32_t handle;                       /* NIC_PEER_NONE: none, or dropped */
	uint64_t accepted;                     /* the other's incarnation, as its hello said */
	uint64_t retry_at, retry_ns, deadline; /* of a set-up on demand */
	unsigned tried;                        /* ways that were tried, or are out of reach: the number of the next */
	bool ours;                             /* UP by our attempt, the way before that */
	bool gone;                             /* an attempt found nobody there */
	bool ended;                            /* an attempt found a member that has ended our sessions for good */
	bool left;                             /* the shard still has what a former session of this life left there */
	int error;                             /* of the last attempt */
	char *failed;                          /* what came of the attempts; NULL: nothing */
	char *text;                            /* of UNREACHED and DOWN; NULL: nothing, or no memory */
	struct pair *next_queued;
};

/** One member of the group, oneself included, beyond what struct ctl_member shows. */
struct peer {
	struct group *group;
	int rank;
	bool known;     /* its info has been read */
	bool dead;      /* it is not a member any more: until another life begins */
	bool doubted;   /* the store was asked whether its process is there */
	bool probed;    /* ... while leaving */
	bool asking;    /* the store was asked about its present life */
	bool unheld;    /* its claim of the rank has ended */
	uint8_t bye;    /* enum peer_bye, in the present wave */
	bool active;    /* it said that it had begun something since the wave before */
	bool said;      /* a bye, in the wave before */
	uint16_t up_n;  /* sessions that are, or were, up */
	bool common;    /* it has a driver that we have */
	uint16_t bytes; /* of `info`, as published */
	char *name;
	uint8_t *info;
	uint64_t former;  /* incarnation of the life before; 0: none */
	uint64_t claimed; /* of a hello that made us ask; when the store does not confirm it, it is a stranger's */
	struct pair *pairs, *old;
	struct route_kept *routes; /* those that a reader may hold, the newest first */
};

struct group_port {
	struct group *group;
	unsigned index;
	uint64_t next;         /* when step() wants to be called again */
	struct pair **by_peer; /* the NIC's peers, [0, peers_n) */
	uint32_t peers_n;
};

/** Pairs with mails for one shard, oldest first. */
struct outqueue {
	struct pair *head, *tail;
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
	uint64_t init_deadline, leave_deadline;
	uint64_t unanswered_at; /* when the store is asked about workers that answer no attempt; TIME_NEVER: none */
	uint64_t remark_at;     /* who sees a reason why sessions are missing gives up now, to be heard by the others */
	uint64_t grace;         /* for telling the others: FAILING, LATE, CLOSE */
	struct far_err err;     /* result: OK until something fails */

	struct key_auto key_auto;    /* AUTO: rank 0's */
	struct key_place key_place;  /* AUTO: where it is */
	struct far_err key_err;      /* why it cannot be read */
	struct auth_key key;         /* bound to the group's name, from CLAIM on; unused with security=none */
	struct store_server *server; /* rank 0 */
	struct store_client *client;
	uint64_t store_next;
	bool is_refused;        /* we have no NIC: `refused` is why */
	struct far_err refused; /* of config */
	bool store_lost;
	bool accept_remarked;
	bool telling; /* the abort key, or that we are late, is on its way */

	struct ctl_member *members; /* [0, world) */
	struct peer *peers;         /* [0, world) */
	int known_n;
	bool sweeping;       /* the deadline has passed; one more look at who has come */
	bool byes_heard;     /* rank 0's list of who has left */
	bool lazy;           /* sessions on demand: somebody asked for it, there would be too many, or we rejoin */
	bool rejoining;      /* the group ran before we came */
	bool eager_rejoin;   /* ... and its members have sessions from the beginning */
	unsigned shards_all; /* of all members, oneself included */
	unsigned shards_max; /* of a member */
	unsigned ups_posted; /* PEER_UPs in the mailboxes */
	unsigned yielding_n; /* pairs in PAIR_YIELDING, and thus with a time to try again */
	struct group_port ports[INFO_PORTS_MAX];
	struct outqueue out[FAR_SHARDS_MAX];

	bool leave_asked; /* ctl_step saw ctl_leave() */
	bool bye_sent, bye_done;
	unsigned wave;          /* of byes, from 1 */
	uint64_t begun;         /* begun_drained of the wave before */
	uint64_t begun_drained; /* config.begun() when nothing was outstanding */
	uint64_t probe_at;      /* rank 0: when to look whether those who have not come live */
	uint64_t silent_at;     /* rank 0: when to ask those again whose end would go unnoticed */
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
/** The same with more of the request filled in; the key is made here. */
void group_submit(struct group *g, const struct store_msg *request, const char *what, int rank, uint64_t deadline,
		  store_done_fn *done, void *user);
/** The reply does not matter: `user` is the group. */
void group_ignore(void *user, int result, const struct store_msg *reply);
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

/** What a member has published, as read; also by members.c. */
void join_info_take(struct peer *p, const uint8_t *value, size_t value_len);
/** A reply that matters, while the join goes on. A lost store and a passed deadline are join_step()'s to report. */
bool join_reply_counts(struct group *g, int result, const struct store_msg *reply);

/** Reads what a member has published: 0, -EPROTO, -EKEYREJECTED (no member of the group wrote it). */
int join_info_decode(const struct group *g, int rank, const uint8_t *value, size_t value_len, struct info *out);
/** Publishes ours. */
void join_info_publish(struct group *g);
/** The reply to a question for a member's info: `user` is its peer. */
void join_info_read(void *user, int result, const struct store_msg *reply);

/* ---- rejoin.c ---- */
/** Asks whether the group runs already. */
void rejoin_ask(struct group *g);
/** We have the rank of a member that was there before, and take its place. */
void rejoin_claimed(struct group *g);
/** READY: connects to everybody where sessions are set up at once. */
void rejoin_connect(struct group *g);

/* ---- incarnation.c ---- */
/** Watches for members whose connection to the store ends: our rank is claimed, or the table is complete. */
void life_watch_holders(struct group *g, bool complete);
/** The table is complete: watches for new lives. */
void life_watch_infos(struct group *g);
/** READY: what was heard of members meanwhile. */
void life_ready(struct group *g);
/** Asks the store whether another life of the member has begun. */
void life_ask(struct peer *p);
/** Nobody was found at the member's address, or its host refuses its port: dead if the store has lost it, too. */
void life_doubt(struct peer *p, const char *why);
/** Somebody says that he is this member, in a life that we do not know: -ESTALE, or -EINPROGRESS, ask again soon. */
int life_unknown(struct peer *p, uint64_t incarnation);

/* ---- members.c ---- */
/** Does rank 0 collect and publish for the others. */
bool list_used(const struct group *g);
/** Rank 0: all infos are known. */
void list_publish(struct group *g);
/** The others: reads the list as soon as it is there. */
void list_read(struct group *g);

/* ---- pair.c ---- */
static inline bool peer_is_self(const struct peer *p)
{
	return p->rank == p->group->url.rank;
}
/** Is our end the one whose attempt wins. */
static inline bool pair_is_higher(const struct pair *pair)
{
	const struct group *g = pair->peer->group;
	return pair->peer->rank != g->url.rank ? g->url.rank > pair->peer->rank : pair->local > pair->remote;
}
static inline void group_port_drop(struct group *g, unsigned port, uint32_t handle)
{
	g->config.ports[port]->ops->drop(g->config.ports[port], handle);
}
struct pair *pair_find(const struct peer *p, unsigned local, unsigned remote);
/** The same, made when it is missing; NULL without memory. */
struct pair *pair_get(struct peer *p, unsigned local, unsigned remote);
struct pair *pair_of_handle(const struct group *g, unsigned port, uint32_t handle);
/** The NIC's peer `handle` is this one; false: no memory. */
bool pair_enter(struct group_port *port, uint32_t handle, struct pair *pair);
/** It is up: its shard gets PEER_UP. */
void pair_attach(struct pair *pair);
/** It goes on by another way: application threads see which. */
void pair_moved(struct pair *pair);
void pair_yield_end(struct pair *pair);
/** There will be no session now: the shard is told, if it waits. */
void pair_unreached(struct pair *pair, enum far_status status, const char *text);
/** The shard has let go of it. */
void pair_drop(struct pair *pair);
/** Its session is over and the member is not: a new pair takes its place. false: no memory. */
bool pair_lose(struct pair *pair, const char *why);
/** Ends every session with this life of a member. */
void peer_die(struct peer *p, const char *why);
/** A new life begins: what there was between us belongs to the old one, and the shards may ask again. */
void peer_renew(struct peer *p);
/** Frees an old pair that nobody has to do with any more. */
void pair_settle(struct pair *pair);
void session_free(struct group *g);

/* ---- session.c ---- */
/** All infos are known: checks early comers, and connects to ranks [0, own] unless that is done on demand. */
void session_begin(struct group *g);
/** A member's info has been read: how it would be reached. */
void session_expect(struct peer *p, const struct info *info);
/** Has all sessions of a join been set up. */
bool session_all_up(const struct group *g);
/** Makes sure that the end of a member would be noticed: sets a session up when there is none. */
void session_probe(struct peer *p);
/** Has a session that would not notice it ask the member. false: there is none such. */
bool session_probe_silent(struct peer *p);
/** Ports, mails; READY when all sessions are up. Returns when to be called again. */
uint64_t session_step(struct group *g);
/** transport_migrated_fn of a struct group_port. */
void session_migrated(void *ctx, uint32_t handle);

/** Sets a session up that nobody waits for. */
void session_want(struct peer *p, unsigned local, unsigned remote);
/** The shard asks for a session. */
void pair_want(struct pair *pair);

/* ---- mails.c ---- */
/** The pair has a mail for its shard. */
void mails_queue(struct pair *pair);
/** Returns when to try a full mailbox again. */
uint64_t mails_post(struct group *g);
void mails_take(struct group *g);

/* ---- leave.c ---- */
void leave_begin(struct group *g);
/** Returns when to be called again. */
uint64_t leave_step(struct group *g);
/** While leaving: a member's session ended. */
void leave_ask_bye(struct peer *p);
/** Another life of the member has begun: while leaving its bye is awaited. */
void leave_renew(struct peer *p);

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
