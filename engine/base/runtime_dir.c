/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds, makes and checks the runtime directory. Any thread; makes system calls. */
#include "base/runtime_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TMP_CANDIDATES 10

static const char *from_env(const char *name)
{
	const char *value = getenv(name);
	return value && *value ? value : NULL;
}

/* The login manager makes it; containers and services have none. */
static bool run_user(char *path, size_t cap)
{
	struct stat st;
	snprintf(path, cap, "/run/user/%u", (unsigned)geteuid());
	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 077);
}

const char *runtime_dir_from(void)
{
	char path[32];
	return from_env("FAR_RUNTIME_DIR")   ? "FAR_RUNTIME_DIR"
	       : from_env("XDG_RUNTIME_DIR") ? "XDG_RUNTIME_DIR"
	       : run_user(path, sizeof path) ? "/run/user"
					     : "default";
}

int runtime_dir_path(const char *named, unsigned i, char path[RUNTIME_DIR_BYTES])
{
	const char *own = named ? named : from_env("FAR_RUNTIME_DIR"), *xdg = from_env("XDG_RUNTIME_DIR");
	char user[32], suffix[8] = "";
	bool is_tmp = false;
	int n;
	if (own) {
		n = snprintf(path, RUNTIME_DIR_BYTES, "%s", own);
	} else if (xdg) {
		n = snprintf(path, RUNTIME_DIR_BYTES, "%s/farcall", xdg);
	} else if (run_user(user, sizeof user)) {
		n = snprintf(path, RUNTIME_DIR_BYTES, "%s/farcall", user);
	} else {
		is_tmp = true;
		if (i)
			snprintf(suffix, sizeof suffix, "-%u", i % TMP_CANDIDATES);
		n = snprintf(path, RUNTIME_DIR_BYTES, "/tmp/farcall-%u%s", (unsigned)geteuid(), suffix);
	}
	if (i >= (is_tmp ? TMP_CANDIDATES : 1u))
		return -ENOENT;
	return n < 0 || n >= RUNTIME_DIR_BYTES ? -ENAMETOOLONG : 0;
}

int runtime_dir_open(const char *path, bool make, bool any_user, char *why, size_t cap)
{
	struct stat st;
	if (make && mkdir(path, any_user ? 0711 : 0700) < 0 && errno != EEXIST) {
		int error = errno;
		snprintf(why, cap,
			 "cannot create the runtime directory %s: %s; set FAR_RUNTIME_DIR to a directory of yours",
			 path, strerror(error));
		return -error;
	}
	int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		int error = errno;
		bool other = error == ENOTDIR || error == ELOOP;
		snprintf(why, cap, "%s %s; set FAR_RUNTIME_DIR to one of yours", path,
			 other ? "is not a directory" : strerror(error));
		return other ? -ENOTDIR : -error;
	}
	if (fstat(fd, &st) < 0 || (!any_user && (st.st_uid != geteuid() || (st.st_mode & 077)))) {
		snprintf(why, cap,
			 "the runtime directory %s belongs to user %u with mode %03o, but must be yours with mode 700; "
			 "set FAR_RUNTIME_DIR to another",
			 path, (unsigned)st.st_uid, (unsigned)(st.st_mode & 0777));
		close(fd);
		return -EPERM;
	}
	return fd;
}
