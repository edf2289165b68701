/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The backup of a store's server: the member that holds a copy of the application's keys (store_backup.c). Control
 * thread of rank 0.
 */
#ifndef FAR_CONTROL_STORE_BACKUP_H
#define FAR_CONTROL_STORE_BACKUP_H

#include "control/store.h"

struct conn;
struct kv;
struct watch;

/** A reply that waits until the backup has what it shows. */
struct deferred {
	struct deferred *next;
	struct conn *conn;
	enum store_op op;
	enum store_status status;
	uint64_t id;
	uint64_t change; /* of the table */
	int64_t number;
	size_t value_len;
	uint8_t value[];
};

/** An incarnation that has ended, as a member reports. */
struct ended {
	int rank;
	uint64_t incarnation;
};

/** "Change" is the number of a change of the table; `base` + change is a version, which ascends over restarts. */
struct backup {
	struct conn *conn;    /* NULL: there is none */
	bool is_new;          /* it has not acknowledged a complete copy yet */
	bool is_due;          /* the copy is to be completed even if nothing has changed */
	bool is_unsettled;    /* replies or WAITs wait for the backup */
	uint64_t base;        /* above every version that a member has reported */
	uint64_t changed;     /* last change of a key of the application */
	uint64_t sent, acked; /* change up to which the copy was sent, and held by the backup */
	uint64_t since;       /* when the backup was appointed, or has begun to owe an acknowledgement */
	struct deferred *first, **last;
	/* While the store is rebuilt. */
	bool is_rebuilding;
	bool is_restart;       /* a member has reported: there was a store before this one */
	uint64_t until, limit; /* absolute ns: the end without a report, and with reports that have no copy */
	struct kv *best;       /* the newest complete copy; NULL: none */
	uint64_t best_version;
	struct conn *source; /* sends a newer one; NULL: nobody does */
	struct kv *coming;   /* what has come of it */
	uint64_t coming_version;
	uint32_t coming_left; /* keys that are still to come */
	struct ended *ended;  /* [0, ended_n); NULL: none */
	unsigned ended_n;
};

void backup_init(struct store_server *s);
void backup_fini(struct store_server *s);
/** True if the key belongs to the application. */
static inline bool backup_concerns(const uint8_t *key, size_t len)
{
	return len && key[0] == '/';
}
/** True if the request is to wait until the store is rebuilt. */
bool backup_holds_back(const struct store_server *s, const struct store_msg *m);
/** True if a change of the application's keys is not at the backup. */
bool backup_is_awaited(const struct store_server *s);
/** A key was changed by this request. */
void backup_changed(struct store_server *s, const struct store_msg *m);
/** Replies to a request, as soon as the backup has what the reply shows. 0 or -errno: the client is to be dropped. */
int backup_reply(struct store_server *s, struct conn *c, const struct store_msg *m, enum store_status status,
		 struct kv_bytes value, int64_t number);
/** The last change that this watch may report. */
uint64_t backup_shown(const struct store_server *s, const struct watch *w);
/** Takes a COPY or a REPORT: 0, or reason + 1 to drop the client. */
int backup_take(struct store_server *s, struct conn *c, const struct store_msg *m);
/** True if a member has reported that this incarnation has ended. */
bool backup_has_ended(const struct store_server *s, const struct store_identity *who);
/** Ends the rebuilding, and appoints a backup. Lowers `*until` to the time of the next call. */
void backup_step(struct store_server *s, uint64_t now, uint64_t *until, bool *busy);
/** Completes the copy when all changes were sent. */
void backup_complete(struct store_server *s);
/** The client is dropped. */
void backup_forget(struct store_server *s, struct conn *c);

#endif
