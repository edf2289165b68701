/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The key that a group of one user on one host makes for itself: a file in the runtime directory, named for the
 * network namespace and the store's address. Rank 0 makes it once it listens there, and holds a lock on it (flock) as
 * long as it serves the store; a file without that lock is stale. Control core; makes system calls.
 */
#ifndef FAR_CONTROL_KEY_AUTO_H
#define FAR_CONTROL_KEY_AUTO_H

#include "base/runtime_dir.h"
#include "control/key.h"

#include <stdint.h>

#define KEY_AUTO_NAME_BYTES 112u

/** Where the keys of a store's address are. */
struct key_place {
	char name[KEY_AUTO_NAME_BYTES]; /* of the file, in any of the runtime directories */
	char path[KEY_PATH_BYTES];      /* of the last file that was made or looked for: for messages */
};

/** Rank 0's, made; KEY_AUTO_NONE: none. */
struct key_auto {
	int dir, fd; /* fd has the lock */
	int watch;   /* inotify: readable when the file was removed; −1: there is none */
	bool gone;   /* it was, and could not be made again yet */
	struct key_place at;
};

#define KEY_AUTO_NONE ((struct key_auto){.dir = -1, .fd = -1, .watch = -1})

/** `host` as the store's address has it. */
void key_place(struct key_place *at, const char *host, uint16_t port);

/** Makes a key of `random` and its file, in place of one that is there, and removes stale ones of other addresses. */
enum far_status key_auto_make(struct key_auto *a, const struct random_source *random, struct auth_key *out,
			      struct far_err *err);
/** Makes the file of `key` again if somebody has removed it, with its directory or without. True: it is there. */
bool key_auto_keep(struct key_auto *a, const struct auth_key *key);
/** Removes it. */
void key_auto_end(struct key_auto *a);

/** Reads the key that rank 0 has made. FAR_PENDING: not there yet; else as key_read_fd(). */
enum far_status key_auto_find(struct key_place *at, struct auth_key *out, struct far_err *err);

#endif
