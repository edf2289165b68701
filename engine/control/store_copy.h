/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A member's copy of the application's keys in a store of tcp://, from which a restarted rank 0 rebuilds them
 * (store_backup.c). It outlives connections to the store. Control thread of each member.
 */
#ifndef FAR_CONTROL_STORE_COPY_H
#define FAR_CONTROL_STORE_COPY_H

#include "control/kv.h"
#include "control/store_wire.h"

struct store_copy {
	uint64_t version; /* of `kv` when it was last complete; 0: there is no copy */
	struct kv *kv;    /* the copy; changes since `version` are in it, too. NULL: none */
	struct kv *next;  /* the copy that the store is sending, which replaces `kv` when it is complete. NULL: none */
};

/** Takes a COPY of the store. Returns the version to acknowledge; 0: none. */
uint64_t store_copy_take(struct store_copy *copy, const struct store_msg *m);
void store_copy_free(struct store_copy *copy);

#endif
