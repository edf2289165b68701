/* SPDX-License-Identifier: BSD-3-Clause */
/** The directory of the sockets. Control thread; shm_error(): any thread. */
#include "base/runtime_dir.h"
#include "base/text.h"
#include "nic/shm/shm.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int shm_error(struct nic_err *err, int error, const char *format, ...)
{
	if (err) {
		va_list args;
		va_start(args, format);
		text_setv(err->text, sizeof err->text, format, args);
		va_end(args);
	}
	return error;
}

#define LONG_PATH                                                                                                      \
	"shm: the runtime directory's path is too long for a unix socket; set FAR_RUNTIME_DIR to one of at most %u "   \
	"bytes"

int shm_dir_open(const char *dir, bool any_user, char *path, size_t cap, struct nic_err *err)
{
	char at[RUNTIME_DIR_BYTES], why[NIC_TEXT_BYTES_MAX];
	int fd = -ENOENT;
	/* The address contains the whole path, so the workers of a group may use different directories. */
	for (unsigned i = 0;; i++) {
		int error = runtime_dir_path(dir, i, at);
		if (error == -ENOENT)
			break;
		if (error || strlen(at) >= cap)
			return shm_error(err, -ENAMETOOLONG, LONG_PATH, RUNTIME_DIR_BYTES - 1);
		fd = runtime_dir_open(at, true, any_user, why, sizeof why);
		if (fd != -EPERM)
			break;
	}
	if (fd < 0)
		return shm_error(err, fd, "shm: %s", why);
	close(fd);
	snprintf(path, cap, "%s", at);
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
		/* Sockets younger than a minute are not probed: workers that start together would all connect to each
		 * other. */
		struct stat st;
		if (lstat(to.sun_path, &st) < 0 || !S_ISSOCK(st.st_mode) || time(NULL) - st.st_mtime < 60)
			continue;
		if (unborn) { /* its creator died between bind() and rename(), over a minute ago */
			unlink(to.sun_path);
			continue;
		}
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (fd < 0)
			break;
		/* A socket gets its final name only after listen(), so a refusal means that its process is gone. */
		if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0 && errno == ECONNREFUSED)
			unlink(to.sun_path);
		close(fd);
	}
	closedir(d);
}
