/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The runtime directory, which holds sockets and keys of this user's workers: $FAR_RUNTIME_DIR, else
 * $XDG_RUNTIME_DIR/farcall, else /run/user/<uid>/farcall if this user owns /run/user/<uid>, else /tmp/farcall-<uid>.
 * Any thread; makes system calls.
 */
#ifndef FAR_BASE_RUNTIME_DIR_H
#define FAR_BASE_RUNTIME_DIR_H

#include <stdbool.h>
#include <stddef.h>

/* Longest path with its NUL: a socket name of 24 bytes fits after it in struct sockaddr_un. */
#define RUNTIME_DIR_BYTES 84

/**
 * Writes candidate `i`, from 0. `named`: a directory that replaces the defaults; NULL: the defaults. 0; -ENAMETOOLONG;
 * -ENOENT: no more candidates. /tmp has ten candidates, since another user can make the first ones: in a user namespace
 * each user can be user 0.
 */
int runtime_dir_path(const char *named, unsigned i, char path[RUNTIME_DIR_BYTES]);

/**
 * Opens the directory at `path`, without following a link; with `make`, makes a missing one. Unless `any_user`, it must
 * belong to this user and be inaccessible to others, else -EPERM. Returns a descriptor for openat(), or -errno with the
 * reason and the remedy in `why`.
 */
int runtime_dir_open(const char *path, bool make, bool any_user, char *why, size_t cap);

/** Text for the user: the environment variable or rule of the first candidate. */
const char *runtime_dir_from(void);

#endif
