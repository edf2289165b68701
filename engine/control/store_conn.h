/* SPDX-License-Identifier: BSD-3-Clause */
/** Internals of the store's server: clients and their WAITs, watches and holds. Control thread of rank 0. */
#ifndef FAR_CONTROL_STORE_CONN_H
#define FAR_CONTROL_STORE_CONN_H

#include "base/clock.h"
#include "base/mutant.h"
#include "control/kv.h"
#include "control/lease.h"
#include "control/send_buffer.h"
#include "control/store.h"
#include "control/store_backup.h"

#include <farcall/status.h>

/** A watch of one client. It keeps the number of the last change that was checked for it, so a slow client costs no
 * memory. */
struct watch {
	uint64_t id;      /* of the WATCH request */
	uint64_t checked; /* number of the last change checked for this watch */
	uint64_t since;   /* number of the last change when the watch began */
	size_t key_len;
	bool exact;   /* matches this key only, not longer ones */
	bool is_copy; /* of the backup: reports by COPY */
	uint8_t key[FAR_STORE_KEY_MAX];
};

/** A client's connection. Times are absolute, in ns. */
struct conn {
	struct store_server *server;
	int handle;            /* of `net`; HANDLE_LOCAL: the client in this process */
	bool admitted;         /* LOGIN, and with a key its proof, was accepted: requests are served */
	bool proof_awaited;    /* the challenge was sent, PROVE has not arrived */
	bool wants_write;      /* wait() watches for room to send */
	bool pinged;           /* a PING was sent at pinged_at and is not answered */
	bool paused;           /* requests are not read: FAR_STORE_WATCH_BYTES of replies wait */
	bool unread;           /* wait() does not watch for bytes to read */
	bool held_back;        /* paused until the store is rebuilt */
	bool is_late;          /* as backup it has owed an acknowledgement for too long */
	uint8_t drop_pending;  /* reason + 1 to drop it at the end of the step; 0: none */
	uint64_t accepted_at;  /* ascends with `number` */
	uint64_t number;       /* counts accepted connections */
	uint64_t stalled_at;   /* since when no waiting byte was sent */
	size_t deferred_bytes; /* of replies that wait for the backup */
	unsigned waits_n;      /* entries of `waits` */
	struct wait *waits;
	unsigned contests_n, watches_n;
	unsigned reserved_n; /* keys that it has made beyond FAR_STORE_KEYS_MAX */
	uint64_t pinged_at;
	uint64_t lease_ns;         /* of its holds, by its last PING; 0: they last as long as the connection */
	uint64_t kept_at;          /* when that PING arrived */
	bool broken;               /* with a lease: the network has ended the connection, and `handle` is closed */
	struct store_identity who; /* from LOGIN; proven once admitted, if the store has a key */
	struct store_auth greeting;
	size_t rx_len;         /* received bytes in `rx`, less than one frame after each step */
	struct send_buffer tx; /* replies */
	uint8_t rx[STORE_FRAME_MAX];
	struct watch watches[FAR_STORE_WATCHES_MAX];
};

/** Pending WAITs of all clients (store_wait.c), by key and by deadline. */
struct waits {
	void *keys;         /* a tree of search.h: struct wait_key */
	struct wait **heap; /* [0, n), the earliest deadline first */
	size_t n, cap;
};

/** A key that exists as long as its client's connection. */
struct hold {
	struct hold *next;
	struct conn *conn; /* the holder */
	uint64_t hash;     /* hash64 of the key */
	size_t key_len;
	uint8_t key[];
};

/** A HOLD of a key that another client holds: pending until that client replies to a PING or is dropped. In order of
 * arrival. */
struct contest {
	struct contest *next;
	struct conn *conn; /* the client that requests the key */
	struct hold *over; /* the hold that it requests */
	uint64_t id, deadline;
	size_t value_len;
	uint8_t value[];
};

struct store_server {
	struct ctl_net *net;
	bool keyed; /* clients prove `key` */
	struct auth_key key;
	const struct random_source *random;
	const struct clock_source *clock; /* NULL: the time of the step */
	int listener;                     /* handle of `net`; LISTENER_NONE: only the local client */
	bool shut;                        /* store_server_shut() was called */
	int accept_error;                 /* -errno of the last accept(); 0: it succeeded, or -EAGAIN */
	uint64_t accept_again; /* when to retry a failed accept(); TIME_NEVER: when the listener is readable */
	struct kv *kv;
	uint64_t accepted_n; /* connections accepted so far */
	uint64_t gone_n;     /* admitted clients that were dropped or have closed so far */
	unsigned conns_n;
	unsigned unauthenticated_n; /* connections that are not admitted */
	struct conn *conns[2 * FAR_STORE_CLIENTS_MAX + FAR_STORE_UNAUTHENTICATED_MAX];
	struct conn local; /* the client in this process */
	size_t out_bytes;  /* bytes in the send buffers of `conns` */
	struct waits waits;
	struct hold *holds;
	struct contest *contests;
	uint64_t rank_last[FAR_WORLD_MAX]; /* incarnation of the last holder of each rank of that group; 0: none */
	char prefix[FAR_NAME_MAX + 1];     /* "GROUP/", the group with reserved keys (store_room.c); "": none */
	size_t prefix_len;
	int world; /* ranks of that group */
	struct backup backup;
	unsigned watches_n; /* of all clients */
	uint64_t checked;   /* number of the last change checked for all watches */
	uint64_t drops[STORE_DROP_COUNT];
};

/* ---- store_server.c ---- */

/** Sends a reply; `key` is used by WATCH. 0, or -errno and no reply: -ENOBUFS (the client is to be dropped), -ENOMEM.
 */
int store_reply(struct conn *c, enum store_op op, uint64_t id, enum store_status status, struct kv_bytes key,
		struct kv_bytes value, int64_t number);
/** As send_buffer_flush(), with the sum of all clients. */
long conn_flush(struct store_server *s, struct conn *c);
/** Drops the client at the end of the step, and its send buffer now. */
void conn_drop_later(struct conn *c, enum store_drop reason);

/* ---- store_admit.c ---- */

/** Take a LOGIN and a PROVE: 0, or reason + 1 to drop the client. */
int login_take(struct store_server *s, struct conn *c, const struct store_msg *m);
int proof_take(struct store_server *s, struct conn *c, const struct store_msg *m);

/* ---- store_room.c ---- */

/** True if there is room for the key that a SET, ADD, CAS or HOLD writes; counts a reserved key. */
bool room_take(struct store_server *s, struct conn *c, const struct store_msg *m);
/** The client has deleted a key: uncounts a reserved one. */
void room_give(struct store_server *s, struct conn *c, const struct store_msg *m);

/* ---- store_wait.c ---- */

/** Adds a pending WAIT: 0, -ENOMEM. */
int wait_add(struct store_server *s, struct conn *c, const struct store_msg *m, uint64_t now);
/** The key was written: replies to its pending WAITs, unless the backup is to have it first. */
void store_written(struct store_server *s, struct kv_bytes key);
/** Replies to the pending WAITs of the key. */
void waits_answer(struct store_server *s, struct kv_bytes key);
/** Ends WAITs at their deadlines. */
void waits_expire(struct store_server *s, uint64_t now, bool *busy);
/** Earliest deadline of a WAIT; TIME_NEVER: there is none. */
uint64_t waits_until(const struct store_server *s);
/** Ends the client's WAITs without a reply. */
void waits_forget(struct store_server *s, struct conn *c);

/* ---- store_watch.c ---- */

/** Begins a watch: 0, -ENOSPC. */
int watch_begin(struct store_server *s, struct conn *c, const struct store_msg *m);
/** Sends new changes to the watches, as far as their clients have room. Returns a client that is too slow; NULL: none.
 */
struct conn *watches_report(struct store_server *s);
/** Ends the watch by which the backup gets its copy. */
void watch_end_copy(struct store_server *s, struct conn *c);
/** True if that watch has reported every change. */
bool watch_copy_is_complete(const struct store_server *s, const struct conn *c);
/** Ends the client's watches. */
void watches_forget(struct store_server *s, struct conn *c);
/** True if changes wait for the client and its send buffer has room again. */
bool watches_wait(const struct store_server *s, const struct conn *c);

/* ---- store_owner.c ---- */

/** False if the request would change a record of another member. */
bool owner_permits(struct store_server *s, const struct conn *c, const struct store_msg *m);
/** The client has written the key: sets the record's owner. */
void owner_set(struct store_server *s, const struct conn *c, struct kv_bytes key);

/* ---- store_hold.c ---- */

/** True if a client holds the key. */
bool hold_exists(struct store_server *s, struct kv_bytes key);
/** True if this client holds the key. */
bool hold_is_of(struct store_server *s, const struct conn *c, struct kv_bytes key);

/** Runs a HOLD: 1: reply with `*status` and `*held`; 0: the reply follows later; -ENOSPC: the client has too many
 * pending ones. */
int hold_run(struct store_server *s, struct conn *c, const struct store_msg *m, uint64_t now, enum store_status *status,
	     struct kv_bytes *held);
/** The key was deleted: ends its hold. */
void hold_end(struct store_server *s, struct kv_bytes key);
/** Time at which the lease of the client's holds ends for the server; TIME_NEVER: it has none. */
static inline uint64_t conn_lease_end(const struct conn *c)
{
	if (!c->lease_ns || MUTANT(LEASE_NEVER))
		return TIME_NEVER;
	return time_after(c->kept_at, MUTANT(LEASE_EARLY) ? c->lease_ns / 4 : lease_with_margin(c->lease_ns));
}
/** The client has sent a PING: its holds stay, and pending HOLDs of them are rejected. */
void holds_alive(struct store_server *s, struct conn *c);
/** The client is dropped: passes its holds to the first client that requests each, else deletes the keys. */
void holds_release(struct store_server *s, struct conn *c);
/** Ends contests at their deadlines. Returns a holder whose PING is overdue; NULL: none. Lowers `*until` to the next
 * deadline. */
struct conn *contests_expire(struct store_server *s, uint64_t now, uint64_t *until, bool *busy);

#endif
