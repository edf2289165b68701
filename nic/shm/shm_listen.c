/* SPDX-License-Identifier: BSD-3-Clause */
/** The listening socket of a port and its file, which others may remove, as cleaners of /tmp do. Established
 * connections need no file; a new one fails without it, so the file is created again under the same name. inotify
 * reports removals, so that an idle port is not woken; without an inotify descriptor the file is checked periodically.
 * Control thread. */
#include "base/runtime_dir.h"
#include "nic/shm/shm.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG    512
#define RETRY_NS   UINT64_C(1000000000)  /* retry after the file could not be created */
#define POLL_NS    UINT64_C(10000000000) /* interval of checks without inotify */
#define GONE_KINDS (IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)

static int epoll_add(const struct shm_port *p, int fd, uint32_t tag)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u32 = tag};
	return epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

/* Creates a listening socket with this file name: a descriptor or -errno. */
static int listen_new(const struct shm_port *p, const char *path, struct nic_err *err)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	size_t stem = strlen(path) - strlen(".sock");
	/* shm_dir_open() has checked the length. It listens under another name first: see shm_dir_sweep(). */
	memcpy(at.sun_path, path, stem);
	memcpy(at.sun_path + stem, ".new", sizeof ".new");
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) < 0 ||
	    (p->any_user && chmod(at.sun_path, 0666) < 0) || listen(fd, BACKLOG) < 0 || rename(at.sun_path, path) < 0) {
		int error = errno;
		unlink(at.sun_path);
		if (fd >= 0)
			close(fd);
		return shm_error(err, -error, "shm: cannot listen on %s: %s", at.sun_path, strerror(error));
	}
	return fd;
}

static bool file_is_there(const struct shm_port *p)
{
	struct stat st;
	return lstat(p->path, &st) == 0 && S_ISSOCK(st.st_mode);
}

static void directory_of(const struct shm_port *p, char dir[sizeof(((struct sockaddr_un *)0)->sun_path)])
{
	memcpy(dir, p->path, sizeof p->path);
	*strrchr(dir, '/') = '\0';
}

/* Watches the directory; otherwise the file is checked periodically. */
static void watch(struct shm_port *p, const char *dir)
{
	if (p->inotify_fd < 0) {
		p->inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
		if (p->inotify_fd >= 0 && epoll_add(p, p->inotify_fd, SHM_TAG_DIRECTORY)) {
			close(p->inotify_fd);
			p->inotify_fd = -1;
		}
	}
	p->watched = p->inotify_fd >= 0 && inotify_add_watch(p->inotify_fd, dir, GONE_KINDS) >= 0;
}

int shm_listen(struct shm_port *p, const char *dir, uint64_t id, struct nic_err *err)
{
	char path[sizeof p->path];
	snprintf(path, sizeof path, "%.*s/%016llx.sock", RUNTIME_DIR_BYTES - 1, dir, (unsigned long long)id);
	p->listen_fd = listen_new(p, path, err);
	if (p->listen_fd < 0)
		return p->listen_fd;
	memcpy(p->path, path, sizeof path);
	int error = epoll_add(p, p->listen_fd, SHM_TAG_LISTENER);
	if (error)
		return shm_error(err, error, "shm: epoll: %s", strerror(-error));
	watch(p, dir);
	return 0;
}

/* Replaces the socket. Pending connections of the old one were accepted: shm_step() processes the listener first. */
static bool listen_again(struct shm_port *p)
{
	char dir[sizeof p->path], why[NIC_TEXT_BYTES_MAX];
	directory_of(p, dir);
	int made = runtime_dir_open(dir, true, p->any_user, why, sizeof why);
	if (made < 0)
		return false;
	close(made);
	int fd = listen_new(p, p->path, NULL);
	if (fd < 0)
		return false;
	if (epoll_add(p, fd, SHM_TAG_LISTENER)) {
		close(fd);
		return false;
	}
	close(p->listen_fd);
	p->listen_fd = fd;
	watch(p, dir);
	return true;
}

void shm_listen_event(struct shm_port *p)
{
	alignas(struct inotify_event) char bytes[4096];
	while (read(p->inotify_fd, bytes, sizeof bytes) > 0)
		; /* the kind of event is irrelevant: the file is checked */
	p->check_at = 0;
}

uint64_t shm_listen_step(struct shm_port *p, uint64_t now)
{
	if (p->is_private)
		return UINT64_MAX;
	if (now >= p->check_at) {
		bool there = file_is_there(p) || listen_again(p);
		p->check_at = !there ? now + RETRY_NS : p->watched ? UINT64_MAX : now + POLL_NS;
	}
	return p->check_at;
}
