/* SPDX-License-Identifier: BSD-3-Clause */
#include "nic/shm/shm.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* "/" and 16 hexadecimal digits and ".sock" follow. */
#define NAME_BYTES 24u

int shm_error(struct nic_err *err, int error, const char *format, ...)
{
	if (err) {
		va_list args;
		va_start(args, format);
		vsnprintf(err->text, sizeof err->text, format, args);
		va_end(args);
	}
	return error;
}

#define DEFAULTS 10 /* directories tried when none is named */
#define LONG_PATH                                                                                                      \
	"shm: the runtime directory's path is too long for a unix socket; set FAR_RUNTIME_DIR to one of at most %zu "  \
	"bytes"

static bool is_default(const char *dir)
{
	const char *env = getenv("FAR_RUNTIME_DIR"), *xdg = getenv("XDG_RUNTIME_DIR");
	return !dir && !(env && *env) && !(xdg && *xdg);
}

static int choose(const char *dir, char *path, size_t cap)
{
	const char *env = getenv("FAR_RUNTIME_DIR"), *xdg = getenv("XDG_RUNTIME_DIR");
	int n;
	if (!dir && env && *env)
		dir = env;
	if (dir)
		n = snprintf(path, cap, "%s", dir);
	else if (xdg && *xdg)
		n = snprintf(path, cap, "%s/farcall", xdg);
	else
		n = snprintf(path, cap, "/tmp/farcall-%u", (unsigned)geteuid());
	return n < 0 || (size_t)n >= cap || (size_t)n + NAME_BYTES >= sizeof(((struct sockaddr_un *)0)->sun_path)
		       ? -ENAMETOOLONG
		       : 0;
}

static int open_at(const char *path, bool any_user, struct nic_err *err);

int shm_dir_open(const char *dir, bool any_user, char *path, size_t cap, struct nic_err *err)
{
	if (choose(dir, path, cap))
		return shm_error(err, -ENAMETOOLONG, LONG_PATH,
				 sizeof(((struct sockaddr_un *)0)->sun_path) - NAME_BYTES - 1);
	int error = open_at(path, any_user, err);
	/* The default may be somebody else's of the same number: in a user namespace everybody can be user 0. Addresses
	 * are published whole, so the workers of a group need not have the same directory. */
	size_t len = strlen(path);
	for (int i = 1; error == -EPERM && is_default(dir) && i < DEFAULTS && len + 3 < cap; i++) {
		snprintf(path + len, cap - len, "-%d", i);
		error = open_at(path, any_user, err);
	}
	return error;
}

static int open_at(const char *path, bool any_user, struct nic_err *err)
{
	struct stat st;
	if (mkdir(path, any_user ? 0711 : 0700) < 0 && errno != EEXIST) {
		int error = errno;
		return shm_error(
			err, -error,
			"shm: cannot create the runtime directory %s: %s; set FAR_RUNTIME_DIR to a directory of "
			"yours",
			path, strerror(error));
	}
	if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode))
		return shm_error(err, -ENOTDIR, "shm: %s is not a directory; set FAR_RUNTIME_DIR to one of yours",
				 path);
	if (!any_user && (st.st_uid != geteuid() || (st.st_mode & 077)))
		return shm_error(
			err, -EPERM,
			"shm: the runtime directory %s belongs to user %u with mode %03o, but must be yours with "
			"mode 700; set FAR_RUNTIME_DIR to another",
			path, (unsigned)st.st_uid, (unsigned)(st.st_mode & 0777));
	return 0;
}

int shm_dir_id(const char *path, struct shm_dir_id *out)
{
	struct stat st;
	if (stat(path, &st) < 0)
		return -errno;
	*out = (struct shm_dir_id){.device = st.st_dev, .inode = st.st_ino};
	return 0;
}

void shm_dir_sweep(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;
	if (!d)
		return;
	while ((e = readdir(d))) {
		struct sockaddr_un to = {.sun_family = AF_UNIX};
		size_t len = strlen(e->d_name);
		bool unborn = len >= 4 && strcmp(e->d_name + len - 4, ".new") == 0;
		if (!unborn && (len < 5 || strcmp(e->d_name + len - 5, ".sock")))
			continue;
		if ((size_t)snprintf(to.sun_path, sizeof to.sun_path, "%s/%s", path, e->d_name) >= sizeof to.sun_path)
			continue;
		/* Young ones are left alone: many workers starting together need not knock at each other's doors. */
		struct stat st;
		if (lstat(to.sun_path, &st) < 0 || !S_ISSOCK(st.st_mode) || time(NULL) - st.st_mtime < 60)
			continue;
		if (unborn) { /* its maker died between two system calls, a minute ago */
			unlink(to.sun_path);
			continue;
		}
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (fd < 0)
			break;
		/* A listener's socket has its final name only once it listens, so a refusal means that nobody will. */
		if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0 && errno == ECONNREFUSED)
			unlink(to.sun_path);
		close(fd);
	}
	closedir(d);
}
