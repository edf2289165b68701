/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A client's copy of a store that no server hosts: a store_server without connections, which answers the client's
 * frames and runs its WAITs and watches, and the holders of keys. Control thread of each member.
 */
#ifndef FAR_CONTROL_STORE_TABLE_H
#define FAR_CONTROL_STORE_TABLE_H

#include "control/store_conn.h"

/** A key that ends with its holder, a client. */
struct held {
	struct held *next;
	uint64_t holder;
	uint64_t lease_ns; /* of the holder, if this is its client key and it has a lease; else 0 */
	uint64_t seen_at;  /* by this client's clock, when that key last changed */
	bool renewed;      /* it has changed since store_leases_look() */
	size_t key_len;
	uint8_t key[];
};

/** The state of the store after its first `at` bytes. */
struct store_table {
	struct store_server *server; /* its local client is this one */
	struct held *held;
	uint64_t at;
};

enum record_kind { RECORD_VALUE = 1, RECORD_HELD, RECORD_DELETED };

/** A change of a key. */
struct record {
	int kind;
	uint64_t holder; /* RECORD_HELD; RECORD_DELETED: why, as kv_delete_for(); else 0 */
	struct kv_bytes key, value;
};

/** Makes an empty table: 0 or -ENOMEM. */
int store_table_begin(struct store_table *t);
void store_table_free(struct store_table *t);
/** Applies a change that another client made. 0 or -errno. */
int store_table_apply(struct store_table *t, const struct record *r);
/** Applies what makes the table equal to `to`, and takes its holders. 0 or -errno. */
int store_table_become(struct store_table *t, struct store_table *to);
/** Runs a frame of this client; its reply is in the local client's stream. */
void store_table_answer(struct store_table *t, const uint8_t *frame, size_t len, uint64_t now);

/** The pointer to the key's record, or the NULL at the end of the list. */
struct held **store_held_find(struct store_table *t, struct kv_bytes key);
/** Sets the holder of a key, 0: none. 0 or -ENOMEM. */
int store_held_set(struct store_table *t, struct kv_bytes key, uint64_t holder);

#define STORE_LEASE_BYTES                                                                                              \
	16u /* value of a client key with a lease: ns (8), number of the renewal (8), little-endian                    \
	     */

/** Notes the time of the renewals that have been read. `all`: of all leases, since nobody could renew before. */
void store_leases_look(struct store_table *t, uint64_t now, bool all);
/** True if the client has a lease that was not renewed in time. */
bool store_lease_is_over(const struct store_table *t, uint64_t holder, uint64_t now);
/** True if the group has members; the client `but` does not count. */
bool store_table_has_members(const struct store_table *t, const char *group, uint64_t but);
/** True if the group admits no more members. */
bool store_table_group_is_closed(const struct store_table *t, const char *group);

#endif
