/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * One member's view of a group: join, sessions, shutdown. The control thread runs everything here.
 *
 * Keys in the store, prefixed with the group's name and '/':
 *   world        world size, set by the first member; of a dynamic group "dynamic", a space, its most members
 *   key          KEY_AUTO in a store that no member hosts: the group's key
 *   closed       "1": the same store admits no more members of the group (store_file.c)
 *   rank/<r>     incarnation (16 hexadecimal digits), a space, the name: the claim of rank r, held by a connection
 *   info/<r>     address record of rank r, see info.h; in a dynamic group held by a connection, as rank/<r>
 *   name/<h>     dynamic: the rank of the member whose name has the hash h (hash64, 16 hexadecimal digits); held
 *   list/<k>     chunk k of all info records, by rank 0, in groups of more than FAR_GATHER_DIRECT_MAX; see members.c
 *   running      "1": rank 0 is READY; a member that joins from now on replaces a former incarnation (rejoin.c)
 *   abort        status (1 byte), text: the first failure of a join
 *   leaving      "1": a member leaves, so members that serve leave too as soon as nothing is outstanding
 *   bye/<r>      "1": member r has nothing outstanding and leaves; "lost": it died before that; "late": it leaves at
 *                the deadline of its shutdown
 *   bye<w>/<r>   the same in wave w, from 2 on: "1": it has begun nothing since the wave before; "+": it has
 *   late         tcp: "1": rank 0 leaves at the deadline of its shutdown, and the store ends
 *   byes, byes<w>  by rank 0, in groups with lists: a byte for each rank: '1', '+', 'l' (lost), 't' (late),
 *                '?' (no bye yet)
 *
 * Phases, in order; the function on the right enters the phase:
 *   START    listen (rank 0), create the store client                    group_create
 *   STORE    until the store replies                                     join_step
 *   CLAIM    agree on the world size, claim the rank, publish the info   join_step
 *   GATHER   until every member's info is read                           join.c: rank_claimed
 *   CONNECT  until all sessions are up, those with this worker itself    join.c: gathered
 *            included; immediately over with sessions on demand
 *   READY                                                                session_step
 *   DRAIN    until no call is outstanding                                leave_step
 *            (a dynamic group has no BYE: then LEFT)
 *   BYE      until every member has sent a bye or is dead, repeated in   leave_step
 *            waves until no member began anything since the wave before
 *   LATE     the deadline of the shutdown has passed: until the store    leave.c: late_begin
 *            has this member's "late"
 *   CLOSE    rank 0: until the members have disconnected from the        leave_step
 *            store, FAR_STORE_CLOSE_NS at most
 *   LEFT                                                                 leave.c: left
 *   FAILING  from any phase before READY: until the abort key is stored  group_fail
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

/** A member's bye in the present wave: UNKNOWN → one of the others; back to UNKNOWN with the next wave or incarnation.
 */
enum peer_bye {
	BYE_UNKNOWN,
	BYE_SENT, /* its value is "1" or "+" */
	BYE_LOST, /* it died before its bye of this wave or a former one */
	BYE_LATE  /* it left at the deadline of its own shutdown */
};

struct group;

/**
 * NONE → CONNECTING (this worker's attempt) → UP, or back to NONE, or YIELDING until the other side's connect request
 * arrives (UP) or retry_at (CONNECTING). NONE → UP by the other side's attempt. Any state → DEAD, which is final:
 * another session between the same shards is another struct pair.
 */
enum pair_state {
	PAIR_NONE,       /* no session, and no attempt of either side that is known here */
	PAIR_CONNECTING, /* an attempt of this worker is under way */
	PAIR_YIELDING,   /* the other side makes the attempt: its connect request is awaited until retry_at */
	PAIR_UP,
	PAIR_DEAD /* the session or the member's incarnation has ended */
};

/** A local shard and a shard of one incarnation of a member: the session between them. Allocated on first use. */
struct pair {
	struct peer *peer;
	struct pair *next; /* in peer.pairs or peer.retired */
	bool is_retired;   /* replaced by another pair; in peer.retired until port, shard and mail queue release it */
	uint8_t local, remote; /* shard of this worker, shard of the member */
	uint8_t state;         /* enum pair_state */
	bool attempt;          /* a connect() of this pair is under way: the port reports its end */
	bool requested;        /* the shard waits for PEER_UP or UNREACHED (MAIL_CONNECT) */
	bool up_posted;        /* PEER_UP was posted or queued: the session ends with PEER_DOWN and DETACHED */
	bool due_up, due_down, due_unreachable; /* mails that are queued for the shard */
	bool due_probe, due_restarted;
	bool queued;                           /* in the mail queue of shard `local` */
	bool yielded;                          /* counted in group.yielding_n */
	uint8_t status;                        /* enum far_status of a queued UNREACHED or PEER_DOWN */
	uint16_t port;                         /* index in config.ports; valid with `handle` */
	uint32_t handle;                       /* the port's peer; NIC_PEER_NONE: none, or dropped */
	uint64_t accepted;                     /* incarnation in the other side's handshake payload */
	uint64_t retry_at, retry_ns, deadline; /* of a set-up on demand: absolute ns, interval in ns, absolute ns */
	unsigned tried;                        /* number of the next path to try: those below were tried or skipped */
	bool initiated;                        /* UP by this worker's attempt, over path number tried − 1 */
	bool no_process; /* an attempt found no process, or another one, at the member's address */
	bool left_us;    /* an attempt found a member that has ended its sessions with us for good */
	bool leftover;   /* the shard has state of a former session with this incarnation */
	int error;       /* -errno of the last attempt; 0: none failed */
	char *failed;    /* texts of the failed attempts; NULL: none, or no memory. Owned */
	char *text;      /* of a queued UNREACHED or PEER_DOWN; NULL: none, or no memory. Owned */
	struct pair *next_queued;
};

/** One member of the group, this worker included, beyond what struct ctl_member shows. */
struct peer {
	struct group *group;
	int rank;
	bool known;                   /* its info was read; `info`, `name` and the member's fields are set */
	bool dead;                    /* no member any more, until another incarnation joins */
	bool suspected;               /* a query of the store for its claim is under way */
	bool probed;                  /* a session was requested while leaving, to notice its end */
	bool querying;                /* a query of the store for its info is under way */
	bool unclaimed;               /* nobody holds the claim of its rank */
	bool evicted;                 /* ... because its lease ended in the store */
	bool lost_without_store;      /* it is dead, and may come back as the same incarnation */
	uint64_t evict_at;            /* etcd: its records are gone; when it is lost without them. 0: never */
	uint8_t bye;                  /* enum peer_bye, in the present wave */
	bool active;                  /* its bye was "+" */
	bool bye_before;              /* it sent a bye in the wave before */
	uint16_t up_n;                /* pairs that are UP, or were when it died */
	bool driver_shared;           /* both have ports of one driver */
	uint16_t bytes;               /* length of `info` */
	char *name;                   /* owned */
	uint8_t *info;                /* its record in the store, as published. Owned */
	uint64_t former_incarnation;  /* 0: none */
	uint64_t claimed_incarnation; /* of a connect request that caused a query; if the store does not confirm it,
				       * its sender is no member */
	struct pair *pairs, *retired;
	struct route_version *routes; /* published routes that a reader may still copy, the newest first */
};

struct group_port {
	struct group *group;
	unsigned index;        /* in config.ports */
	uint64_t next;         /* absolute time in ns of the port's next step() */
	struct pair **by_peer; /* pair of each NIC handle in [0, peers_n); NULL: none */
	uint32_t peers_n;
};

/** Pairs with mails for one shard, the oldest first. */
struct mail_queue {
	struct pair *head, *tail;
};

/* Rate of group_report(). */
struct group_reports {
	uint64_t window_end;  /* absolute, ns */
	uint32_t n, left_out; /* lines of this window, and those that were not logged since the last one */
};

/** A group as its control thread sees it. All times are absolute, in ns; TIME_NEVER: none. */
struct group {
	struct ctl_config config; /* strings replaced by own copies */
	struct url url;
	int store_fd;                                                      /* inherited listener, or −1 */
	char name[FAR_NAME_MAX], group[FAR_NAME_MAX], store[URL_TEXT_MAX]; /* store: url_text() */
	uint64_t hash;                                                     /* hash64 of the group's name */

	enum group_phase phase;
	bool busy;    /* this step changed something: run another pass */
	uint64_t now; /* time of this step */
	uint64_t init_deadline, leave_deadline;
	uint64_t unanswered_at; /* when to query the store about workers that have not replied to an attempt */
	uint64_t joined_from;   /* begin of the join */
	uint64_t report_at;     /* when to log what the join waits for */
	uint64_t diagnose_at;   /* a member that sees why sessions are missing fails then, so that the others read it */
	uint64_t grace;         /* end of FAILING, LATE or CLOSE */
	uint64_t introduced_by; /* dynamic, CONNECT: READY then, whichever members have not answered */
	struct far_err err;     /* result: OK until something fails */

	struct key_auto key_auto;         /* KEY_AUTO, rank 0: the file that it made */
	struct key_location key_location; /* KEY_AUTO: where the file is */
	struct far_err key_err;           /* why the file cannot be read */
	struct auth_key key;              /* bound to the group's name, from CLAIM on; unused with security=none */
	struct store_server *server;      /* rank 0; NULL: none */
	struct store_client *client;      /* NULL: before START and after the end */
	struct store_copy copy;           /* of the application's keys, if this member is the store's backup */
	struct host_watch *host_watch;    /* etcd; NULL: none */
	uint64_t store_next;              /* when server and client are to be stepped again */
	bool is_refused;                  /* this worker has no NIC port: `refused` has the reason */
	struct far_err refused;           /* copy of config.refused */
	bool store_lost;                  /* the store client has failed for good */
	struct group_reports reports;
	uint64_t lease_ns;             /* 0: this member has no lease */
	uint64_t lease_until;          /* as config.lease, as long as no shard has ended it; TIME_NEVER: none yet */
	uint64_t join_at;              /* when to try again to be a member, or to reach the store */
	bool away;                     /* its lease is over; START to CONNECT: it joins as another incarnation */
	bool client_is_over;           /* `client` is to be freed in the next step */
	bool reclaiming, reclaim_sent; /* `client` connects to the store again; its requests are under way */
	bool store_is_new;             /* that store has begun anew */
	uint8_t reclaims_n;            /* records that it has not confirmed */
	uint64_t evict_at;             /* the first evict_at of its members; TIME_NEVER: none */
	uint32_t renewal_due;          /* bits of the shards that have not been sent the new incarnation */
	bool accept_warned;            /* the present accept() error of the store was logged */
	bool notifying;                /* a write of "abort", or of "late", is under way */

	struct ctl_member *members; /* [0, world) */
	struct peer *peers;         /* [0, world) */
	int known_n;                /* peers that are known */
	bool naming_missing; /* the deadline of the join has passed: all infos are read once more, to name the missing
			      */
	bool byes_known;     /* rank 0's list of byes was read in this wave */
	bool lazy;           /* sessions on demand: requested by a member, too many for a join, or a rejoin */
	bool rejoining;      /* the group was running before this worker joined */
	bool eager_rejoin;   /* ... and its sessions are set up at once: rejoin_connect() */
	unsigned shards_all; /* of all members, this worker included */
	unsigned shards_max; /* of one member */
	unsigned ups_posted; /* PEER_UP mails posted */
	unsigned yielding_n; /* pairs in PAIR_YIELDING */
	struct group_port ports[INFO_PORTS_MAX];
	struct mail_queue out[FAR_SHARDS_MAX];

	bool leave_requested;         /* ctl_step() has seen ctl_leave() */
	bool serves;                  /* ctl_step() has seen ctl_serve() */
	bool serving;                 /* serves, and waits for the key "leaving" */
	bool others_leave;            /* serves, and another member leaves or is lost */
	bool store_shut;              /* the store admits no more members: rank 0, or the key "closed" */
	bool closing;                 /* a write of "closed" is under way */
	bool host_is_late;            /* tcp: rank 0 has left at its own deadline */
	bool bye_sent, bye_is_stored; /* this worker's bye, in this wave */
	unsigned wave;                /* of byes, from 1 */
	uint64_t begun;               /* begun_drained of the wave before */
	uint64_t begun_drained;       /* config.begun() when nothing was outstanding */
	uint64_t probe_at;            /* rank 0: when to check that members without a bye are alive */
	uint64_t silent_at;           /* rank 0: when to probe members again whose end no driver reports */
};

/* All functions below: control thread. */

/* ---- group.c ---- */

/** Fills *g with copies of its arguments; `net` stays the caller's. 0 or -ENOMEM. */
int group_create(struct group *g, const struct ctl_config *config, const struct url *url, int store_fd);
/** Sets what a slot shows of its member; `name` is borrowed. */
void member_set(struct ctl_member *m, const char *name, unsigned shards);
/** Closes store server and client, and removes an AUTO key's file; ports and net stay open. */
void group_close(struct group *g);
void group_destroy(struct group *g);
/** Does all that is ready; returns the absolute time of the next step at the latest. */
uint64_t group_step(struct group *g, uint64_t now);
enum ctl_state group_state(const struct group *g);
/** While joining: fails the join with the first error. `publish`: writes it to the abort key for the other members. */
__attribute__((format(printf, 4, 5))) void group_fail(struct group *g, bool publish, enum far_status status,
						      const char *format, ...);
/** Makes the content of the abort key, written by another member, the result. */
void group_abort_read(struct group *g, const struct store_msg *reply);
/** Submits `request` for key "<group>/<what>[/rank]"; rank −1: without. If that fails, the join fails or the store
 * counts as lost. */
void group_submit(struct group *g, struct store_msg request, const char *what, int rank, uint64_t deadline,
		  store_done_fn *done, void *user);
/** The same for a request without a value. */
void group_request(struct group *g, enum store_op op, const char *what, int rank, uint64_t deadline,
		   store_done_fn *done, void *user);
/** `done` of a request whose reply does not matter; `user` is the group. */
void group_ignore_reply(void *user, int result, const struct store_msg *reply);
/** True if this worker hosts the store. */
static inline bool group_hosts_store(const struct group *g)
{
	return g->url.rank == 0 && g->url.scheme == URL_TCP;
}
static inline bool group_joining(const struct group *g)
{
	return g->phase < PHASE_READY;
}
static inline bool group_leaving(const struct group *g)
{
	return g->phase >= PHASE_DRAIN && g->phase <= PHASE_CLOSE;
}

/* ---- report.c ---- */
/** Logs an event of a member (NULL: of the group) at level DEBUG, unless there were too many. `why` may be empty. */
void group_report(struct group *g, const struct peer *p, const char *event, const char *why);

/* ---- join.c ---- */
/** Starts the store (rank 0) and connects to it. */
void join_start(struct group *g);
/** A client of the group's store, which another process hosts. NULL: no memory. */
struct store_client *join_client(struct group *g);
/** Runs a join up to CONNECT: store connection, deadlines. */
void join_step(struct group *g);

#define JOIN_WORLD_TEXT 24
#define JOIN_CLAIM_TEXT (24 + FAR_NAME_MAX)
/** The values of "world" and of the claim that this worker writes; return their lengths. */
size_t join_world_text(const struct group *g, char out[JOIN_WORLD_TEXT]);
size_t join_claim_text(const struct group *g, char out[JOIN_CLAIM_TEXT]);
/** The store has proven the key: claims the rank. */
void join_claim(struct group *g);
/** True if the join goes on and the reply is to be used. Reports errors in the reply; join_step() reports a lost store
 * and a passed deadline. */
bool join_reply_counts(struct group *g, int result, const struct store_msg *reply);

/* ---- join_key.c ---- */
/** Rank 0, which listens already: makes or sets the key before the first client is served. false: the join failed. */
bool join_key_begin(struct group *g);
/** Gives the store client this worker's identity and the key's callback. */
void join_login(struct group *g);
/** The store has proven the key, or holds it: binds it to the group's name, and shares it with transports and drivers.
 */
void join_key_proven(struct group *g);
/** A group whose store no member hosts: agrees on the key of the first member, then claims the rank. */
void join_key_agree(struct group *g);

/* ---- join_info.c ---- */
/** Stores a member's info in its slot: 0 or -ENOMEM. */
int join_info_store(struct peer *p, const struct info *info, const uint8_t *value, size_t value_len);
/** All infos are known: enters CONNECT. */
void join_gathered(struct group *g);
/** Checks and stores the info that a member has published; the last one ends GATHER. */
void join_info_take(struct peer *p, const uint8_t *value, size_t value_len);
/** Decodes a member's info: 0, -EPROTO, -EKEYREJECTED (its proof is wrong: no member of the group wrote it). */
int join_info_decode(const struct group *g, int rank, const uint8_t *value, size_t value_len, struct info *out);
/** Writes this worker's info to the store. */
void join_info_publish(struct group *g);
/** `done` of a request for a member's info; `user` is its peer. */
void join_info_read(void *user, int result, const struct store_msg *reply);

/* ---- dynamic.c ---- */
/** The rank of a dynamic group is claimed: claims the name, publishes the info and reads those of the members. */
void dynamic_claimed(struct group *g);
/** CONNECT of a dynamic group: sets up a session with each member, so that all of them know this worker. */
void dynamic_introduce(struct group *g);
/** True once each of these members has answered, its session has failed, or at g->introduced_by. */
bool dynamic_introduced(const struct group *g);
/** The end of the member's process was seen. Over etcd its lease would outlast it, and with it its rank and
 * name: the lease is revoked. */
void incarnation_died(struct peer *p);
/** The store has answered incarnation_query() for a rank without a known member: ends its calls, or lets them go on. */
void dynamic_settle(struct peer *p);

/** Watches the infos of the members. */
void dynamic_watch(struct group *g);
/** Reports to a store that may have begun anew: the version of the copy, and incarnations that have ended. */
void dynamic_report(struct group *g);
/** Writes this member's records again: `done` is called for its claim, its name and its info. */
void dynamic_reclaim(struct group *g, store_done_fn *done);

/* ---- lease.c ---- */
/** Follows the lease, ends the membership with it, joins again. Returns the absolute time of the next step. */
uint64_t lease_step(struct group *g);
/** Ends this incarnation: `why` is for the log and for the errors of calls. */
void lease_lose(struct group *g, const char *why);
/** A shard has ended its session with this member: the lease is over. */
void lease_is_over_at_shard(struct group *g, struct peer *p);
/** Another try to join as another incarnation has failed. */
void lease_join_failed(struct group *g);
/** The infos are read by a member that joins again: goes on with the calls that wait for sessions. */
void lease_gathered(struct group *g);
/** READY: logs that this worker is a member again, if it was none. */
void lease_ready(struct group *g);

/* ---- rejoin.c ---- */
/** Reads the key "running". */
void rejoin_query(struct group *g);
/** The rank is claimed in a running group: reads the former incarnation's info, then publishes this worker's. */
void rejoin_claimed(struct group *g);
/** READY: sets up the sessions with all members, unless they are made on demand. */
void rejoin_connect(struct group *g);

/* ---- incarnation.c ---- */
/** Watches the claims of all ranks. Called twice: when this rank is claimed, and (`complete`) when all infos are read;
 * the size of the group decides which call begins the watch. */
void incarnation_watch_claims(struct group *g, bool complete);
/** All infos are read: watches them for new incarnations. */
void incarnation_watch_infos(struct group *g);
/** READY: handles claims that have ended since. */
void incarnation_ready(struct group *g);
/** A member's info has changed: begins a new incarnation of the member if it is one. */
void incarnation_seen(struct peer *p, const uint8_t *value, size_t value_len);
/** The claim of the member's rank has ended. */
void incarnation_claim_ended(struct peer *p);
/** Ends the membership of those whose records have been gone for too long. Returns when to call it again. */
uint64_t incarnation_evict(struct group *g);
/** The member whose rank a watched key "<what>/<rank>" names; NULL: none. */
struct peer *incarnation_peer_of(struct group *g, const struct store_msg *reply, const char *what);
/** Queries the store for a new incarnation of the member. */
void incarnation_query(struct peer *p);
/** The member's address has no process: it is lost if the store has no claim of its rank either. */
void peer_suspect(struct peer *p, const char *why);
/** A connect request names an unknown incarnation of the member: -ESTALE, or -EINPROGRESS: query under way, repeat. */
int incarnation_unknown(struct peer *p, uint64_t incarnation);

/* ---- host_watch.c ---- */
/** Over etcd: lets the other members on this host find the process of this incarnation. */
void host_watch_listen(struct group *g);
/** An info was stored: the next step looks for its process. */
void host_watch_due(struct group *g);
/** Handles the ends of processes. */
void host_watch_step(struct group *g);
void host_watch_end(struct group *g);

/* ---- members.c ---- */
/** True in groups in which rank 0 collects all infos and publishes them as lists. */
bool list_used(const struct group *g);
/** Rank 0, with all infos known: writes the list. */
void list_publish(struct group *g);
/** The other ranks: reads the list when it is there. */
void list_read(struct group *g);

/* ---- pair.c ---- */
static inline bool peer_is_self(const struct peer *p)
{
	return p->rank == p->group->url.rank;
}
/** True if this side's attempt wins against the other side's. */
static inline bool pair_is_higher(const struct pair *pair)
{
	const struct group *g = pair->peer->group;
	return pair->peer->rank != g->url.rank ? g->url.rank > pair->peer->rank : pair->local > pair->remote;
}
static inline void group_port_drop(struct group *g, unsigned port, uint32_t handle)
{
	g->config.ports[port]->ops->drop(g->config.ports[port], handle);
}
/** The pair, or NULL. */
struct pair *pair_find(const struct peer *p, unsigned local, unsigned remote);
/** The pair, allocated when it is missing; NULL: no memory. */
struct pair *pair_get(struct peer *p, unsigned local, unsigned remote);
/** The pair of a NIC handle; NULL: none. */
struct pair *pair_of_handle(const struct group *g, unsigned port, uint32_t handle);
/** Records that NIC handle `handle` is this pair; false: no memory. */
bool pair_register(struct group_port *port, uint32_t handle, struct pair *pair);
/** The pair is UP: queues PEER_UP for its shard. */
void pair_attach(struct pair *pair);
/** The transport uses another path now: publishes it to application threads. */
void pair_path_changed(struct pair *pair);
/** Leaves PAIR_YIELDING. */
void pair_yield_end(struct pair *pair);
/** The set-up has failed: queues UNREACHED if the shard waits. PEER_LOST makes the pair DEAD. */
void pair_unreachable(struct pair *pair, enum far_status status, const char *text);
/** Drops the NIC handle, after the shard has released it. */
void pair_drop(struct pair *pair);
/** The session has ended, the membership has not: replaces the pair by a new one. false: no memory. */
bool pair_disconnect(struct pair *pair, const char *why);
/** Publishes whether the member is one. */
void member_set_alive(const struct peer *p, bool alive);
/** Ends the membership of this incarnation and its sessions. `why`: for errors. */
void peer_lost(struct peer *p, const char *why);
/** Ends the sessions with a member, this worker included, with PEER_LOST. */
void peer_end_sessions(struct peer *p, const char *why);
/** A new incarnation has joined: retires its pairs and queues PEER_BACK for new ones. */
void peer_restarted(struct peer *p);
/** Frees a retired pair that port, shard and mail queue have released. */
void pair_free_if_unused(struct pair *pair);
/** Frees all pairs. */
void session_free(struct group *g);

/* ---- session.c ---- */
/** Sets up a session with a member that has none, so that its end is noticed. */
void session_probe(struct peer *p);
/** Sends a packet over a session whose driver does not report the member's end. false: there is no such session. */
bool session_probe_silent(struct peer *p);
/** Steps ports and mails; enters READY when all sessions are up. Returns the absolute time of the next step. */
uint64_t session_step(struct group *g);
/** transport_migrated_fn of a struct group_port. */
void session_migrated(void *ctx, uint32_t handle);

/** Sets up a session that no shard waits for. */
void session_request(struct peer *p, unsigned local, unsigned remote);
/** Sets up a session that its shard has requested. */
void pair_request(struct pair *pair);
/** Tries all paths, the best first. */
void pair_begin(struct pair *pair);

/* ---- session_join.c ---- */
/** All infos are known: checks the sessions accepted before, and connects to ranks [0, own] unless sessions are made on
 * demand. */
void session_begin(struct group *g);
/** A member's info was read: selects and publishes the route to it. */
void session_set_info(struct peer *p, const struct info *info);
/** True when all sessions of the join are up. */
bool session_all_up(const struct group *g);

/* ---- mails.c ---- */
/** Appends the pair to the mail queue of its shard. */
void mails_queue(struct pair *pair);
/** Posts queued mails; returns when to try a full mailbox again. */
uint64_t mails_post(struct group *g);
/** Handles the mails of all shards. */
void mails_take(struct group *g);

/* ---- leave.c ---- */
/** READY and serving: true once this member is to leave. */
bool leave_due(struct group *g);
/** Begins the shutdown: DRAIN. */
void leave_begin(struct group *g);
/** Runs the shutdown; returns the absolute time of the next step. */
uint64_t leave_step(struct group *g);
/** While leaving, a member's session ended: reads its bye. */
void leave_query_bye(struct peer *p);
/** A new incarnation of the member has joined: while leaving, waits for its bye. */
void leave_peer_restarted(struct peer *p);

/* ---- names.c ---- */
/** A list of members for an error text; a list that is too long ends with the number of the others. */
struct names {
	char text[224];
	size_t len;   /* bytes of text */
	int n, shown; /* members added, members in the text */
};
/** Adds "rank r (worker "name")"; an empty name is left out. */
void names_add(struct names *names, int rank, const char *name);
/** Completes and returns the text. */
const char *names_end(struct names *names);

#endif
