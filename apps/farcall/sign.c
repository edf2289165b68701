/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall sign`: signs plugins for far_plugin_send(), or prints the public key that receivers list. One thread. */
#include "base/sign.h"
#include "apps/cli/options.h"
#include "commands.h"
#include "control/key.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "farcall sign"

static int failed(const char *what, const char *path)
{
	fprintf(stderr, NAME ": cannot %s %s: %s\n", what, path, strerror(errno));
	return 1;
}

/* The file appears whole, or not at all. */
static int write_signature(const char *path, const uint8_t signature[SIGN_BYTES])
{
	char name[PATH_MAX], temporary[PATH_MAX];
	if ((size_t)snprintf(temporary, sizeof temporary, "%s.sig.new", path) >= sizeof temporary) {
		errno = ENAMETOOLONG;
		return failed("sign", path);
	}
	snprintf(name, sizeof name, "%.*s", (int)strlen(temporary) - 4, temporary);
	int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		return failed("make", temporary);
	ssize_t n = write(fd, signature, SIGN_BYTES);
	if (n >= 0 && n < (ssize_t)SIGN_BYTES)
		errno = ENOSPC;
	bool written = n == (ssize_t)SIGN_BYTES && fsync(fd) == 0;
	if (close(fd) == 0 && written && rename(temporary, name) == 0) {
		printf("%s\n", name);
		return 0;
	}
	int status = failed("write", name);
	unlink(temporary);
	return status;
}

static int sign(const struct auth_key *key, const char *path)
{
	uint8_t signature[SIGN_BYTES];
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) < 0) {
		int status = failed("read", path);
		if (fd >= 0)
			close(fd);
		return status;
	}
	if (!S_ISREG(st.st_mode) || !st.st_size) {
		fprintf(stderr, NAME ": %s is %s; name a plugin's shared object\n", path,
			S_ISREG(st.st_mode) ? "empty" : "not a file");
		close(fd);
		return 1;
	}
	void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (data == MAP_FAILED)
		return failed("read", path);
	sign_make(key, data, (size_t)st.st_size, signature);
	munmap(data, (size_t)st.st_size);
	return write_signature(path, signature);
}

static void print_public(const struct auth_key *key)
{
	struct auth_key public;
	char text[KEY_TEXT_BYTES + 1];
	sign_public(key, public.bytes);
	key_print(&public, text);
	fputs(text, stdout);
}

int cmd_sign(int argc, char **argv)
{
	bool public = false;
	const struct option_spec specs[] = {
		{"public", 0, OPTION_FLAG, &public, 0, 0, NULL, "print the public key of KEY", NULL}, {.name = ""}};
	const struct option_command command = {
		NAME, "KEY PLUGIN... | --public KEY",
		"Signs plugins, so that far_plugin_send() can send them: PLUGIN.sig beside each. KEY is a secret key "
		"that\n"
		"`farcall key KEY` has made; use it for nothing else. A worker loads what is signed by a key that the "
		"file\n"
		"FAR_PLUGIN_KEYS lists: lines that --public prints, blank lines, and comments behind '#'.",
		specs};
	int rest;
	struct auth_key key;
	struct far_err err;
	enum options_result parsed = options_parse(&command, argc, argv, &rest);
	if (parsed != OPTIONS_GO)
		return parsed == OPTIONS_DONE ? 0 : OPTIONS_EXIT_USAGE;
	if (rest == argc)
		return options_wrong(NAME, "the key is missing; `farcall key signer.key` makes one");
	if (public && rest + 1 < argc)
		return options_wrong(NAME, "--public signs nothing: leave '%s' out", argv[rest + 1]);
	if (!public && rest + 1 == argc)
		return options_wrong(NAME, "the plugin is missing; name its shared object");
	if (key_read(argv[rest], &key, &err)) {
		fprintf(stderr, NAME ": %s\n", err.text);
		return 1;
	}
	int status = 0;
	if (public)
		print_public(&key);
	for (int i = rest + 1; i < argc; i++)
		status |= sign(&key, argv[i]);
	auth_erase(&key, sizeof key);
	return status;
}
