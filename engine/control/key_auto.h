/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The key that a group of one user on one host makes for itself: a file in the runtime directory, named after the
 * network namespace and the store's address. Rank 0 makes the file when it listens there, and holds a lock on it
 * (flock) as long as it serves the store; a file without that lock is stale. Control thread; makes system calls.
 */
#ifndef FAR_CONTROL_KEY_AUTO_H
#define FAR_CONTROL_KEY_AUTO_H

#include "base/runtime_dir.h"
#include "control/key.h"

#include <stdint.h>

#define KEY_AUTO_NAME_BYTES 112u

/** File of the key for a store's address. */
struct key_location {
	char name[KEY_AUTO_NAME_BYTES]; /* file name, the same in each possible runtime directory */
	char path[KEY_PATH_BYTES];      /* last path that was made or tried, for messages */
};

/** The file that rank 0 has made; KEY_AUTO_NONE: none. */
struct key_auto {
	int dir, fd; /* descriptors of directory and file; fd holds the lock. −1: none */
	int watch;   /* inotify descriptor, readable when the file was removed; −1: none */
	bool gone;   /* the file was removed, and could not be made again yet */
	bool again;  /* the key of a killed rank 0 at this address is used again: members of its group have it */
	struct key_location at;
};

#define KEY_AUTO_NONE ((struct key_auto){.dir = -1, .fd = -1, .watch = -1})

/* ---- All members ---- */

/** Sets the file name for a store at host:port; `host` as in the store's address. */
void key_location(struct key_location *at, const char *host, uint16_t port);

/** Reads the key that rank 0 has made. FAR_PENDING: there is none yet; else as key_read_fd(). */
enum far_status key_auto_find(struct key_location *at, struct auth_key *out, struct far_err *err);

/* ---- Rank 0 ---- */

/** Makes a key and its file, which replaces an existing one, and removes stale files of other addresses. */
enum far_status key_auto_make(struct key_auto *a, const struct random_source *random, struct auth_key *out,
			      struct far_err *err);
/** Makes the file of `key` again if it, or its directory too, was removed. True: the file exists. */
bool key_auto_keep(struct key_auto *a, const struct auth_key *key);
/** key_auto_keep() of a file that was made. Returns when to check it again; TIME_NEVER: inotify reports when. */
uint64_t key_auto_step(struct key_auto *a, const struct auth_key *key, uint64_t now);
/** Removes the file. */
void key_auto_end(struct key_auto *a);

#endif
