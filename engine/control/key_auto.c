/* SPDX-License-Identifier: BSD-3-Clause */
/* The key file of a group on one host: rank 0 makes and locks it, the other members find it. Control thread. */
#include "control/key_auto.h"

#include "base/clock.h"
#include "base/error.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX    "store-"
#define SUFFIX    ".key"
#define SWEEP_MAX 64 /* stale files removed at one start */
/* Interval of checks for a file that inotify does not report, or that cannot be made now. */
#define CHECK_NS UINT64_C(1000000000)

/* Writes the first address of the name as text, IPv4 before IPv6, like the store's sockets (net_os.c). */
static void numeric(const char *host, char *out, size_t cap)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
	const struct addrinfo *a, *best = NULL;
	char text[INET6_ADDRSTRLEN] = "";
	if (strcmp(host, "localhost") != 0 && getaddrinfo(host, NULL, &hints, &list) == 0)
		for (a = list; a; a = a->ai_next)
			if (!best || (best->ai_family != AF_INET && a->ai_family == AF_INET))
				best = a;
	if (best && best->ai_family == AF_INET)
		inet_ntop(AF_INET, &((struct sockaddr_in *)best->ai_addr)->sin_addr, text, sizeof text);
	else if (best && best->ai_family == AF_INET6)
		inet_ntop(AF_INET6, &((struct sockaddr_in6 *)best->ai_addr)->sin6_addr, text, sizeof text);
	snprintf(out, cap, "%s", text[0] ? text : "127.0.0.1");
	if (list)
		freeaddrinfo(list);
}

void key_location(struct key_location *at, const char *host, uint16_t port)
{
	struct stat st;
	char address[INET6_ADDRSTRLEN];
	unsigned long long space = stat("/proc/self/ns/net", &st) == 0 ? (unsigned long long)st.st_ino : 0;
	numeric(host, address, sizeof address);
	*at = (struct key_location){.path = ""};
	snprintf(at->name, sizeof at->name, PREFIX "%llu-%s-%u" SUFFIX, space, address, (unsigned)port);
}

static void path_set(struct key_location *at, const char *dir)
{
	snprintf(at->path, sizeof at->path, "%s/%s", dir, at->name);
}

static bool is_key_name(const char *name)
{
	size_t len = strlen(name), tail = sizeof SUFFIX - 1;
	return strncmp(name, PREFIX, sizeof PREFIX - 1) == 0 && len > tail && strcmp(name + len - tail, SUFFIX) == 0;
}

/* Removes files that nobody has locked. A file that a member reads at this moment is locked, and left to the next
 * start.
 */
static void sweep(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;
	if (!d && fd >= 0)
		close(fd);
	for (int n = 0; d && n < SWEEP_MAX && (e = readdir(d));) {
		if (!is_key_name(e->d_name))
			continue;
		int file = openat(dir, e->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (file < 0)
			continue;
		if (flock(file, LOCK_EX | LOCK_NB) == 0) {
			unlinkat(dir, e->d_name, 0);
			n++;
		}
		close(file);
	}
	if (d)
		closedir(d);
}

static enum far_status dir_open(struct key_auto *a, struct far_err *err)
{
	char path[RUNTIME_DIR_BYTES], why[320] = "";
	int rc = -EPERM;
	for (unsigned i = 0; rc == -EPERM; i++) {
		int error = runtime_dir_path(NULL, i, path);
		if (error == -ENOENT)
			break;
		rc = error ? error : runtime_dir_open(path, true, false, why, sizeof why);
		if (error)
			snprintf(why, sizeof why, "the runtime directory's path is too long; set FAR_RUNTIME_DIR");
	}
	if (rc < 0)
		return err_set(err, FAR_DENIED, "no directory for the group's key: %s, or give a key (FAR_KEY_FILE)",
			       why);
	a->dir = rc;
	path_set(&a->at, path);
	return FAR_OK;
}

/* Writes and locks the file under a temporary name, then renames it, so that no reader finds it incomplete. */
static int file_write(struct key_auto *a, const struct auth_key *key)
{
	char text[KEY_TEXT_BYTES + 1], name[KEY_AUTO_NAME_BYTES + 24];
	snprintf(name, sizeof name, "%s.%ld", a->at.name, (long)getpid());
	unlinkat(a->dir, name, 0); /* left by a process with this pid that died here */
	a->fd = openat(a->dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (a->fd < 0)
		return -errno;
	key_print(key, text);
	int error = fchmod(a->fd, 0600) < 0 ? -errno : 0;
	ssize_t n = error ? 0 : pwrite(a->fd, text, KEY_TEXT_BYTES, 0);
	auth_erase(text, sizeof text);
	if (!error && n != (ssize_t)KEY_TEXT_BYTES)
		error = n < 0 ? -errno : -ENOSPC;
	/* Without locks on this file system a stale file is not recognised; the store's proof of the key fails then. */
	if (!error)
		flock(a->fd, LOCK_EX | LOCK_NB);
	if (!error && renameat(a->dir, name, a->dir, a->at.name) < 0)
		error = -errno;
	if (error)
		unlinkat(a->dir, name, 0);
	return error;
}

/* Watches the file for a change of its link count or name. IN_DELETE_SELF comes only after our descriptor is closed. */
static void watch_begin(struct key_auto *a)
{
	char path[32];
	snprintf(path, sizeof path, "/proc/self/fd/%d", a->fd);
	if (a->watch < 0 || inotify_add_watch(a->watch, path, IN_ATTRIB | IN_MOVE_SELF) >= 0)
		return;
	close(a->watch);
	a->watch = -1;
}

/* Reads the key that a killed rank 0 has left for this address. */
static bool file_adopt(const struct key_auto *a, struct auth_key *out)
{
	struct far_err err;
	int fd = openat(a->dir, a->at.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	bool adopted = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && !key_read_fd(fd, a->at.path, out, &err);
	if (fd >= 0)
		close(fd);
	return adopted;
}

enum far_status key_auto_make(struct key_auto *a, const struct random_source *random, struct auth_key *out,
			      struct far_err *err)
{
	enum far_status status = dir_open(a, err);
	if (status)
		return status;
	bool adopted = a->again && file_adopt(a, out);
	sweep(a->dir);
	if (!adopted)
		auth_random(out->bytes, sizeof out->bytes, random);
	int error = file_write(a, out);
	if (!error) {
		a->watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC); /* refused beyond fs.inotify.max_user_instances */
		watch_begin(a);
		return FAR_OK;
	}
	key_auto_end(a);
	return err_sys(err, -error, "the group's key cannot be written to %.200s", a->at.path);
}

bool key_auto_keep(struct key_auto *a, const struct auth_key *key)
{
	alignas(struct inotify_event) char events[1024];
	struct stat st;
	struct far_err err;
	if (a->fd < 0)
		return false;
	a->gone |= a->watch < 0;
	while (a->watch >= 0 && read(a->watch, events, sizeof events) > 0)
		a->gone = true;
	if (!a->gone)
		return true;
	/* A file of that name that another process has made stays. */
	if (fstatat(a->dir, a->at.name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		a->gone = false;
		return true;
	}
	struct key_auto again = {.dir = a->dir, .at = a->at};
	int error = file_write(&again, key);
	if (error == -ENOENT && dir_open(&again, &err) == FAR_OK) { /* the directory was removed, too */
		close(a->dir);
		a->dir = again.dir;
		a->at = again.at;
		error = file_write(&again, key);
	}
	if (error) {
		if (again.fd >= 0)
			close(again.fd);
		return false;
	}
	close(a->fd);
	a->fd = again.fd;
	a->gone = false;
	watch_begin(a);
	return true;
}

uint64_t key_auto_step(struct key_auto *a, const struct auth_key *key, uint64_t now)
{
	if (a->fd < 0 || (key_auto_keep(a, key) && a->watch >= 0))
		return TIME_NEVER;
	return time_after(now, CHECK_NS);
}

void key_auto_end(struct key_auto *a)
{
	struct stat ours, there;
	/* Another rank 0 may serve this address by now. */
	if (a->fd >= 0 && fstat(a->fd, &ours) == 0 && fstatat(a->dir, a->at.name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
	    ours.st_ino == there.st_ino && ours.st_dev == there.st_dev)
		unlinkat(a->dir, a->at.name, 0);
	if (a->fd >= 0)
		close(a->fd);
	if (a->dir >= 0)
		close(a->dir);
	if (a->watch >= 0)
		close(a->watch);
	a->dir = a->fd = a->watch = -1;
}

/* Reads an open key file. FAR_PENDING: it has no lock, so the process that made it has ended. */
static enum far_status file_read(int fd, const char *path, struct auth_key *out, struct far_err *err)
{
	if (flock(fd, LOCK_SH | LOCK_NB) == 0)
		return FAR_PENDING;
	return key_read_fd(fd, path, out, err);
}

static enum far_status look(struct key_location *at, int dir, const char *path, struct auth_key *out,
			    struct far_err *err)
{
	int fd = openat(dir, at->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 && errno != ELOOP)
		return FAR_PENDING;
	path_set(at, path);
	if (fd < 0)
		return err_set(err, FAR_DENIED,
			       "the key file %.200s is a symbolic link, and workers make regular files; remove it",
			       at->path);
	enum far_status status = file_read(fd, at->path, out, err);
	close(fd);
	return status;
}

enum far_status key_auto_find(struct key_location *at, struct auth_key *out, struct far_err *err)
{
	char path[RUNTIME_DIR_BYTES], why[320];
	enum far_status status = FAR_PENDING;
	bool any = false, denied = false;
	for (unsigned i = 0; status == FAR_PENDING && runtime_dir_path(NULL, i, path) == 0; i++) {
		int dir = runtime_dir_open(path, false, false, why, sizeof why);
		if (i == 0)
			path_set(at, path);
		denied |= dir == -EPERM;
		any |= dir != -EPERM;
		if (dir < 0)
			continue;
		status = look(at, dir, path, out, err);
		close(dir);
	}
	return status == FAR_PENDING && denied && !any ? err_set(err, FAR_DENIED, "%s", why) : status;
}
