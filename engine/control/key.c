/* SPDX-License-Identifier: BSD-3-Clause */
/* Group keys in files and in the environment: reads, checks and makes them. Any thread. */
#include "control/key.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIGITS (2 * AUTH_KEY_BYTES)

static int digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

bool key_parse(const char *text, size_t len, struct auth_key *out)
{
	struct auth_key key;
	if (len == DIGITS + 2 && text[len - 2] == '\r')
		len--;
	if (len == DIGITS + 1 && (text[len - 1] == '\n' || text[len - 1] == '\r'))
		len--;
	if (len != DIGITS)
		return false;
	for (size_t i = 0; i < AUTH_KEY_BYTES; i++) {
		int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
		if (high < 0 || low < 0)
			return false;
		key.bytes[i] = (uint8_t)(high << 4 | low);
	}
	*out = key;
	auth_erase(&key, sizeof key);
	return true;
}

void key_print(const struct auth_key *key, char text[KEY_TEXT_BYTES + 1])
{
	for (size_t i = 0; i < AUTH_KEY_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", key->bytes[i]);
	memcpy(text + DIGITS, "\n", 2);
}

void key_id(const struct auth_key *key, char id[KEY_ID_BYTES])
{
	struct auth_key derived;
	auth_derive(&derived, key, "id", "");
	for (size_t i = 0; i < (KEY_ID_BYTES - 1) / 2; i++)
		snprintf(id + 2 * i, 3, "%02x", derived.bytes[i]);
}

enum far_status key_read_fd(int fd, const char *path, struct auth_key *out, struct far_err *err)
{
	char text[KEY_TEXT_BYTES + 3];
	struct stat st;
	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "the key file %.200s cannot be read", path);
	if (!S_ISREG(st.st_mode))
		return err_set(err, FAR_DENIED,
			       "the key file %.200s is not a regular file; make one with `farcall key`", path);
	if (st.st_uid != geteuid())
		return err_set(err, FAR_DENIED,
			       "the key file %.200s belongs to user %u, not to user %u who runs this worker; give the "
			       "worker a key file of its user's own",
			       path, (unsigned)st.st_uid, (unsigned)geteuid());
	if (st.st_mode & 077)
		return err_set(
			err, FAR_DENIED,
			"the key file %.200s has mode %03o: others can read or change the key; run `chmod 600` on "
			"it, and replace the key if anybody may have read it",
			path, (unsigned)(st.st_mode & 0777));
	ssize_t n = pread(fd, text, sizeof text, 0);
	if (n < 0)
		return err_sys(err, errno, "the key file %.200s cannot be read", path);
	bool valid = key_parse(text, (size_t)n, out);
	auth_erase(text, sizeof text);
	return valid ? FAR_OK
		     : err_set(err, FAR_INVALID,
			       "the key file %.200s does not hold a key of %u hexadecimal digits; make one with "
			       "`farcall key`",
			       path, DIGITS);
}

enum far_status key_read(const char *path, struct auth_key *out, struct far_err *err)
{
	/* Non-blocking, since opening a named pipe would wait for a writer. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return err_set(err, FAR_UNREACHABLE,
			       "the key file %.200s cannot be opened: %s; make one with `farcall key`, and give every "
			       "member a copy",
			       path, strerror(errno));
	enum far_status status = key_read_fd(fd, path, out, err);
	close(fd);
	return status;
}

enum far_status key_create(const char *path, struct auth_key *out, struct far_err *err)
{
	char text[KEY_TEXT_BYTES + 1];
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_set(err, errno == EEXIST ? FAR_INVALID : FAR_SYSTEM,
			       "the key file %.200s cannot be made: %s%s", path, strerror(errno),
			       errno == EEXIST ? "; a key in use is not replaced: remove the file first" : "");
	auth_random(out->bytes, sizeof out->bytes, &random_kernel);
	key_print(out, text);
	int error = fchmod(fd, 0600) < 0 ? errno : 0;
	ssize_t n = error ? 0 : write(fd, text, KEY_TEXT_BYTES);
	if (!error && n != (ssize_t)KEY_TEXT_BYTES)
		error = n < 0 ? errno : ENOSPC;
	auth_erase(text, sizeof text);
	if (close(fd) < 0 && !error)
		error = errno;
	if (!error)
		return FAR_OK;
	unlink(path);
	return err_sys(err, error, "the key file %.200s cannot be written", path);
}

static const char *from_env(const char *name)
{
	const char *value = getenv(name);
	return value && *value ? value : NULL;
}

static enum far_status given_file(const char *path, struct key_choice *out, struct far_err *err)
{
	if (strlen(path) >= sizeof out->from)
		return err_set(err, FAR_INVALID, "the key file's path is longer than %zu bytes", sizeof out->from - 1);
	out->kind = KEY_GIVEN;
	snprintf(out->from, sizeof out->from, "%s", path);
	return key_read(path, &out->key, err);
}

enum far_status key_choose(const char *key_file, const char *security, bool environment, struct key_choice *out,
			   struct far_err *err)
{
	const char *text = environment ? from_env("FAR_KEY") : NULL;
	const char *file = environment ? from_env("FAR_KEY_FILE") : NULL;
	*out = (struct key_choice){.kind = KEY_AUTO};
	if (security && strcmp(security, "default") == 0)
		security = NULL;
	if (security && strcmp(security, "none") != 0)
		return err_set(err, FAR_INVALID, "security is \"%s\"; it can be \"none\" or left out", security);
	if (security && key_file)
		return err_set(err, FAR_INVALID,
			       "security is \"none\", and key_file is \"%.200s\": leave one of them out", key_file);
	if (security) {
		out->kind = KEY_NONE;
		return FAR_OK;
	}
	if (key_file)
		return given_file(key_file, out, err);
	if (text && file)
		return err_set(err, FAR_INVALID,
			       "the environment has FAR_KEY and FAR_KEY_FILE (%.200s): unset one of them", file);
	if (file)
		return given_file(file, out, err);
	if (!text)
		return FAR_OK;
	out->kind = KEY_GIVEN;
	snprintf(out->from, sizeof out->from, "the environment variable FAR_KEY");
	if (key_parse(text, strlen(text), &out->key))
		return FAR_OK;
	return err_set(err, FAR_INVALID,
		       "the environment variable FAR_KEY is not a key of %u hexadecimal digits; make one with "
		       "`farcall key`",
		       DIGITS);
}
