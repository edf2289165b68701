/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Where a worker's group key comes from. As text, in a file or in the environment, a key is 64 hexadecimal digits; a
 * line end may follow. Any thread; makes system calls.
 */
#ifndef FAR_CONTROL_KEY_H
#define FAR_CONTROL_KEY_H

#include "base/auth.h"

#include <farcall/status.h>

#define KEY_TEXT_BYTES 65u /* digits and line end */
#define KEY_ID_BYTES   17u
#define KEY_PATH_BYTES 512u

enum key_kind {
	KEY_AUTO,  /* rank 0 makes it for this user of this host: key_auto.h */
	KEY_GIVEN, /* by opts.key_file, FAR_KEY or FAR_KEY_FILE */
	KEY_NONE   /* security=none */
};

struct key_choice {
	enum key_kind kind;
	struct auth_key key;       /* GIVEN; of AUTO once it is known */
	char from[KEY_PATH_BYTES]; /* for messages: the file's path, or "the environment variable FAR_KEY" */
};

/** Digits in either case; false: anything else. */
bool key_parse(const char *text, size_t len, struct auth_key *out);
void key_print(const struct auth_key *key, char text[KEY_TEXT_BYTES + 1]);
/** A name for the key that tells nothing of it: 16 hexadecimal digits. */
void key_id(const struct auth_key *key, char id[KEY_ID_BYTES]);

/**
 * Reads an open file's key: a regular file of ours, closed to all others. `path` is for messages.
 * DENIED: somebody else's, or open to others; INVALID: no key.
 */
enum far_status key_read_fd(int fd, const char *path, struct auth_key *out, struct far_err *err);
/** The same by path; links are followed, as those of mounted secrets. UNREACHABLE: it cannot be opened. */
enum far_status key_read(const char *path, struct auth_key *out, struct far_err *err);
/** Makes a key and a file of mode 0600 that did not exist: INVALID when it does, SYSTEM. */
enum far_status key_create(const char *path, struct auth_key *out, struct far_err *err);

/**
 * What opts.key_file, opts.security and the environment (FAR_KEY, FAR_KEY_FILE, unless `environment` is false) come to.
 * INVALID: they contradict each other; else as key_read().
 */
enum far_status key_choose(const char *key_file, const char *security, bool environment, struct key_choice *out,
			   struct far_err *err);

#endif
