/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Group keys in files and in the environment: selection, reading, creation. As text a key is 64 hexadecimal digits and
 * an optional line end. Any thread; makes system calls.
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
	struct auth_key key;       /* GIVEN: set at once; AUTO: once it is made or read */
	char from[KEY_PATH_BYTES]; /* for messages: the file's path, or "the environment variable FAR_KEY" */
};

/** Parses a key, digits in either case; false: the text is no key. */
bool key_parse(const char *text, size_t len, struct auth_key *out);
/** Writes the key as text with a line end. */
void key_print(const struct auth_key *key, char text[KEY_TEXT_BYTES + 1]);
/** Writes an identifier of the key that reveals nothing of it: 16 hexadecimal digits. */
void key_id(const struct auth_key *key, char id[KEY_ID_BYTES]);

/**
 * Reads the key of an open file, which must be a regular file of this user without access for others. `path` is for
 * messages. DENIED: another user's file, or accessible to others; INVALID: no key.
 */
enum far_status key_read_fd(int fd, const char *path, struct auth_key *out, struct far_err *err);
/** Reads the key of the file at `path`, through symbolic links, as mounted secrets have. UNREACHABLE: it cannot be
 * opened; else as key_read_fd(). */
enum far_status key_read(const char *path, struct auth_key *out, struct far_err *err);
/** Makes a key and a new file of mode 0600 for it: INVALID: the file exists; SYSTEM. */
enum far_status key_create(const char *path, struct auth_key *out, struct far_err *err);

/**
 * Selects the key from opts.key_file, opts.security and, with `environment`, FAR_KEY and FAR_KEY_FILE. INVALID: they
 * contradict each other; else as key_read().
 */
enum far_status key_choose(const char *key_file, const char *security, bool environment, struct key_choice *out,
			   struct far_err *err);

#endif
