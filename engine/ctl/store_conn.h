/* SPDX-License-Identifier: BSD-3-Clause */
/** The store's server from inside: its clients, what they wait for, watch and hold. Control core of rank 0. */
#ifndef FAR_CTL_STORE_CONN_H
#define FAR_CTL_STORE_CONN_H

#include "ctl/kv.h"
#include "ctl/outbox.h"
#include "ctl/store.h"

#define STORE_WAIT_BUCKETS 1024

/** A watch: `told` is the number of the last change that it has looked at, so nothing is kept for one that is slow. */
struct watch {
	uint64_t id;
	uint64_t told, since; /* since: the last change when it began */
	size_t key_len;
	bool exact;
	uint8_t key[FAR_STORE_KEY_MAX];
};

struct conn {
	int handle;
	bool greeted; /* HELLO has come */
	bool wants_write;
	bool pinged;    /* it was asked for a sign of life, at pinged_at */
	unsigned waits; /* parked */
	unsigned contests_n, watches_n;
	uint64_t pinged_at;
	size_t rx_len;
	struct outbox tx;
	uint8_t rx[STORE_FRAME_MAX];
	struct watch watches[FAR_STORE_WATCHES_MAX];
};

/** A parked WAIT, in the bucket of its key. */
struct wait {
	struct wait *next;
	struct conn *conn;
	uint64_t id, deadline, hash;
	size_t key_len;
	uint8_t key[];
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
	int listener;
	bool shut;
	uint64_t accept_again; /* when to try a listener that failed; TIME_NEVER: when it has news */
	struct kv *kv;
	unsigned conns_n;
	struct conn *conns[FAR_STORE_CLIENTS_MAX];
	struct conn local;
	unsigned waits_n;
	uint64_t waits_until; /* no wait ends before; TIME_NEVER without waits */
	struct wait *waits[STORE_WAIT_BUCKETS];
	struct hold *holds;
	struct contest *contests;
	unsigned watches_n; /* of all clients */
	uint64_t told;      /* the last change that was looked at for all of them */
	uint64_t drops[STORE_DROP_COUNT];
};

/* store_server.c */

/** 0, or -errno of the outbox. `key`: of a watch's reply. */
int store_reply(struct conn *c, enum store_op op, uint64_t id, enum store_status status, struct kv_bytes key,
		struct kv_bytes value, int64_t number);
/** The key was written to: answers who waits for it. */
void store_written(struct store_server *s, struct kv_bytes key);

/* store_watch.c */

/** Begins one: 0, -ENOSPC. */
int watch_begin(struct store_server *s, struct conn *c, const struct store_msg *m);
/** Writes what changed to who watches it, as far as they have room. Returns a client that is too slow; NULL: none. */
struct conn *watches_tell(struct store_server *s);
/** Its watches end. */
void watches_forget(struct store_server *s, struct conn *c);
/** There are changes that found no room, and now there is some. */
bool watches_wait(const struct store_server *s, const struct conn *c);

/* store_hold.c */

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
