/* SPDX-License-Identifier: BSD-3-Clause */
/** The store's server from inside: its clients, what they wait for, watch and hold. Control core of rank 0. */
#ifndef FAR_CONTROL_STORE_CONN_H
#define FAR_CONTROL_STORE_CONN_H

#include "control/kv.h"
#include "control/send_buffer.h"
#include "control/store.h"

#include <farcall/status.h>

/** A watch: `told` is the number of the last change that it has looked at, so nothing is kept for one that is slow. */
struct watch {
	uint64_t id;
	uint64_t told, since; /* since: the last change when it began */
	size_t key_len;
	bool exact;
	uint8_t key[FAR_STORE_KEY_MAX];
};

struct conn {
	struct store_server *server;
	int handle;
	bool greeted;    /* HELLO has come, and the proof: it is admitted, and has a member's place */
	bool challenged; /* PROVE is awaited */
	bool wants_write;
	bool pinged;          /* it was asked for a sign of life, at pinged_at */
	bool paused;          /* its requests are not read until it has read replies: FAR_STORE_WATCH_BYTES */
	bool unread;          /* ... and wait() is told so */
	uint8_t doomed;       /* it goes at the end of the step, for the reason doomed - 1; 0: it stays */
	uint64_t accepted_at; /* by the clock; in the order of `number` */
	uint64_t number;      /* of all that were accepted, in order */
	uint64_t stalled_at;  /* since when nothing that waits for it has left */
	unsigned waits_n;
	struct wait *waits;
	unsigned contests_n, watches_n;
	unsigned reserved_n; /* keys that it has made beyond FAR_STORE_KEYS_MAX */
	uint64_t pinged_at;
	struct store_who who;
	struct store_greeting greeting;
	size_t rx_len;
	struct outbox tx;
	uint8_t rx[STORE_FRAME_MAX];
	struct watch watches[FAR_STORE_WATCHES_MAX];
};

/** Parked WAITs of all clients (store_wait.c): by key, and by deadline. */
struct waits {
	void *keys;         /* a tree of search.h */
	struct wait **heap; /* [0, n), the earliest first */
	size_t n, cap;
};

/** A key that is there as long as its client. */
struct hold {
	struct hold *next;
	struct conn *conn;
	uint64_t hash;
	size_t key_len;
	uint8_t key[];
};

/** A HOLD of a key that another client holds, until that one has given a sign of life or is gone. In order of arrival.
 */
struct contest {
	struct contest *next;
	struct conn *conn;
	struct hold *over;
	uint64_t id, deadline;
	size_t value_len;
	uint8_t value[];
};

struct store_server {
	struct ctl_net *net;
	bool keyed; /* by `key` */
	struct auth_key key;
	const struct random_source *random;
	int listener;
	bool shut;
	int accept_error;      /* -errno of the last accept() but -EAGAIN; 0: it went well */
	uint64_t accept_again; /* when to try a listener that failed; TIME_NEVER: when it has news */
	struct kv *kv;
	uint64_t accepted_n; /* ever */
	uint64_t gone_n;     /* greeted ones that were dropped or have closed, ever */
	unsigned conns_n;
	unsigned strangers_n; /* ... that are not greeted */
	struct conn *conns[FAR_STORE_CLIENTS_MAX + FAR_STORE_STRANGERS_MAX];
	struct conn local;
	size_t out_bytes; /* that wait for all of `conns` */
	struct waits waits;
	struct hold *holds;
	struct contest *contests;
	char prefix[FAR_NAME_MAX + 1]; /* "GROUP/": whose members' keys always find room; "": nobody's */
	size_t prefix_len;
	int world;
	unsigned watches_n; /* of all clients */
	uint64_t told;      /* the last change that was looked at for all of them */
	uint64_t drops[STORE_DROP_COUNT];
};

/* store_server.c */

/** 0, or -errno when the client gets no reply: -ENOBUFS, it is doomed, or has become so by this; -ENOMEM. `key`: of a
 * watch's reply. */
int store_reply(struct conn *c, enum store_op op, uint64_t id, enum store_status status, struct kv_bytes key,
		struct kv_bytes value, int64_t number);
/** The client goes at the end of the step; nothing is kept for it until then. */
void conn_doom(struct conn *c, enum store_drop reason);

/* store_room.c */

/** Is there room for what a SET, ADD, CAS or HOLD writes. */
bool room_take(struct store_server *s, struct conn *c, const struct store_msg *m);
/** The client has deleted a key. */
void room_give(struct store_server *s, struct conn *c, const struct store_msg *m);

/* store_wait.c */

/** Parks a WAIT: 0, -ENOMEM. */
int wait_park(struct store_server *s, struct conn *c, const struct store_msg *m, uint64_t now);
/** The key was written to: answers who waits for it. */
void store_written(struct store_server *s, struct kv_bytes key);
/** Ends WAITs at their deadlines. */
void waits_expire(struct store_server *s, uint64_t now, bool *busy);
/** When the next one ends; TIME_NEVER: there is none. */
uint64_t waits_until(const struct store_server *s);
/** Its WAITs end unanswered. */
void waits_forget(struct store_server *s, struct conn *c);

/* store_watch.c */

/** Begins one: 0, -ENOSPC. */
int watch_begin(struct store_server *s, struct conn *c, const struct store_msg *m);
/** Writes what changed to who watches it, as far as they have room. Returns a client that is too slow; NULL: none. */
struct conn *watches_tell(struct store_server *s);
/** Its watches end. */
void watches_forget(struct store_server *s, struct conn *c);
/** There are changes that found no room, and now there is some. */
bool watches_wait(const struct store_server *s, const struct conn *c);

/* store_owner.c */

/** Does this client change nothing by the request that is another member's. */
bool owner_permits(struct store_server *s, const struct conn *c, const struct store_msg *m);
/** The client has written the key: whose it is from now on. */
void owner_set(struct store_server *s, const struct conn *c, struct kv_bytes key);

/* store_hold.c */

/** Is the key held, by this client. */
bool hold_is_of(struct store_server *s, const struct conn *c, struct kv_bytes key);

/** Runs a HOLD: 1 when it is to be answered with `*status` and `*held`, 0 when that comes later, -ENOSPC when there are
 * too many of the client. */
int hold_run(struct store_server *s, struct conn *c, const struct store_msg *m, uint64_t now, enum store_status *status,
	     struct kv_bytes *held);
/** The key was deleted by somebody: nobody holds it any more. */
void hold_end(struct store_server *s, struct kv_bytes key);
/** The client has answered the question whether it lives. */
void holds_alive(struct store_server *s, struct conn *c);
/** The client goes: what it holds goes to who wants it, or is deleted. */
void holds_release(struct store_server *s, struct conn *c);
/** Ends contests at their deadlines. Returns a holder that gave no sign of life; NULL: none. `*until` becomes when to
 * look again, if that is earlier. */
struct conn *contests_expire(struct store_server *s, uint64_t now, uint64_t *until, bool *busy);

#endif
