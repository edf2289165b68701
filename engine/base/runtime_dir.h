/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The runtime directory: sockets and keys of this user's workers. $FAR_RUNTIME_DIR, else $XDG_RUNTIME_DIR/farcall, else
 * /run/user/<uid>/farcall where /run/user/<uid> is ours, else /tmp/farcall-<uid>. Any thread; makes system calls.
 */
#ifndef FAR_BASE_RUNTIME_DIR_H
#define FAR_BASE_RUNTIME_DIR_H

#include <stdbool.h>
#include <stddef.h>

/* Longest path with its NUL: a socket's name of 24 bytes still fits behind it (struct sockaddr_un). */
#define RUNTIME_DIR_BYTES 84

/**
 * Path number `i` to try, from 0. `named`: the directory to use instead; NULL: the default. 0; -ENAMETOOLONG; -ENOENT:
 * there is no such number. /tmp has ten candidates, since another user can make the first ones: in a user namespace
 * everybody can be user 0.
 */
int runtime_dir_path(const char *named, unsigned i, char path[RUNTIME_DIR_BYTES]);

/**
 * Opens the directory at `path`, which is made when `make` is set and it is missing. A link is not followed. Unless
 * `any_user`, it must belong to us and be closed to others: -EPERM. Returns a descriptor for openat(), or -errno with
 * the reason and the remedy in `why`.
 */
int runtime_dir_open(const char *path, bool make, bool any_user, char *why, size_t cap);

/** The environment variable or rule that the first path comes from, for people. */
const char *runtime_dir_from(void);

#endif
