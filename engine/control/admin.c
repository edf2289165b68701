/* SPDX-License-Identifier: BSD-3-Clause */
/** The admin socket of a worker and its thread. admin_start(), admin_stop(): start and stop; the rest: the admin
 * thread. */
#include "control/admin.h"

#include "base/clock.h"
#include "base/runtime_dir.h"
#include "base/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG     16
#define NUMBERS_MAX 4096u /* admin sockets of a process */
#define STACK_BYTES ((size_t)256 << 10)

/* Constant from admin_start() to admin_stop(). */
struct admin {
	admin_answer_fn *answer; /* called on the thread */
	void *ctx;               /* of `answer` */
	int fd;                  /* listens */
	int stop_fd;             /* eventfd; readable: the thread is to end */
	struct sockaddr_un at;   /* removed at the stop */
	pthread_t thread;
};

/* ---- the thread ---- */

/* Waits for the descriptor until `until`. False: the time has come, or the thread is to end. */
static bool ready(const struct admin *a, int fd, short events, uint64_t until)
{
	struct pollfd on[] = {{.fd = a->stop_fd, .events = POLLIN}, {.fd = fd, .events = events}};
	for (;;) {
		uint64_t now = clock_now(&clock_monotonic);
		int ms = until == TIME_NEVER ? -1 : now >= until ? 0 : (int)((until - now) / 1000000 + 1);
		int n = poll(on, 2, ms);
		if (n < 0 && errno == EINTR)
			continue;
		return n > 0 && !on[0].revents && on[1].revents;
	}
}

/* Sends all, or gives up. */
static void send_all(const struct admin *a, int fd, const char *data, size_t len, uint64_t until)
{
	while (len > 0 && ready(a, fd, POLLOUT, until)) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return;
		if (n > 0) {
			data += n;
			len -= (size_t)n;
		}
	}
}

/* Reads a line without its newline. NULL, or why there is none. */
static const char *read_line(const struct admin *a, int fd, char line[ADMIN_REQUEST_MAX])
{
	uint64_t until = clock_now(&clock_monotonic) + ADMIN_READ_NS;
	size_t len = 0;
	while (ready(a, fd, POLLIN, until)) {
		ssize_t n = recv(fd, line + len, ADMIN_REQUEST_MAX - len, MSG_DONTWAIT);
		if (n == 0)
			return "the request has no newline";
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return "the request cannot be read";
		len += n > 0 ? (size_t)n : 0;
		char *end = memchr(line, '\n', len);
		if (end) {
			*end = 0;
			return strlen(line) == (size_t)(end - line) ? NULL : "the request has a NUL";
		}
		if (len == ADMIN_REQUEST_MAX)
			return "the request is too long";
	}
	return "no request came in time";
}

static bool same_user(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof peer;
	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

static void serve(const struct admin *a, int fd)
{
	char line[ADMIN_REQUEST_MAX], head[256], *text = NULL;
	size_t len = 0;
	const char *reason = same_user(fd) ? read_line(a, fd, line) : "another user's";
	bool ok = !reason && a->answer(a->ctx, line, &text, &len, &reason);
	uint64_t until = clock_now(&clock_monotonic) + ADMIN_WRITE_NS;
	int n = ok ? snprintf(head, sizeof head, "ok %zu\n", len) : snprintf(head, sizeof head, "error %s\n", reason);
	send_all(a, fd, head, (size_t)n, until);
	if (ok)
		send_all(a, fd, text, len, until);
	free(text);
}

static void *admin_main(void *arg)
{
	const struct admin *a = arg;
	while (ready(a, a->fd, POLLIN, TIME_NEVER)) {
		int fd = accept4(a->fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0) {
			/* Without descriptors the connection stays in the backlog: not again at once. */
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
				ready(a, -1, 0, clock_now(&clock_monotonic) + ADMIN_READ_NS);
			continue;
		}
		serve(a, fd);
		close(fd);
	}
	return NULL;
}

/* ---- start and stop ---- */

/* True if no process listens at the address. */
static bool is_stale(const struct sockaddr_un *at)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool stale = fd >= 0 && connect(fd, (const struct sockaddr *)(const void *)at, sizeof *at) < 0 &&
		     errno == ECONNREFUSED;
	if (fd >= 0)
		close(fd);
	return stale;
}

/* Binds to the first free name. Another process may have the number of this one: of another pid namespace. */
static int bind_free(struct admin *a, const char *dir)
{
	for (unsigned i = 0; i < NUMBERS_MAX; i++) {
		a->at.sun_family = AF_UNIX;
		snprintf(a->at.sun_path, sizeof a->at.sun_path, "%s/" ADMIN_PREFIX "%ld-%u", dir, (long)getpid(), i);
		const struct sockaddr *at = (const struct sockaddr *)(const void *)&a->at;
		if (bind(a->fd, at, sizeof a->at) == 0)
			return 0;
		if (errno != EADDRINUSE)
			return -errno;
		if (is_stale(&a->at) && unlink(a->at.sun_path) == 0 && bind(a->fd, at, sizeof a->at) == 0)
			return 0;
	}
	return -EADDRINUSE;
}

/* Opens the first candidate of the runtime directory that is this user's. 0 or -errno. */
static int find_directory(char path[RUNTIME_DIR_BYTES], char *why, size_t cap)
{
	int error = -ENOENT;
	for (unsigned i = 0; runtime_dir_path(NULL, i, path) == 0; i++) {
		struct stat st;
		/* With security=none others may enter the directory; they cannot change it. */
		int fd = runtime_dir_open(path, true, false, why, cap);
		if (fd == -EPERM)
			fd = runtime_dir_open(path, false, true, why, cap);
		error = fd < 0                                       ? fd
			: fstat(fd, &st) < 0                         ? -errno
			: st.st_uid != geteuid() || st.st_mode & 022 ? -EPERM
								     : 0;
		if (fd >= 0)
			close(fd);
		if (!error)
			return 0;
	}
	return error;
}

static int listen_at(struct admin *a, char *why, size_t cap)
{
	char dir[RUNTIME_DIR_BYTES];
	int error = find_directory(dir, why, cap);
	if (error)
		return error;
	a->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	a->stop_fd = eventfd(0, EFD_CLOEXEC);
	error = a->fd < 0 || a->stop_fd < 0 ? -errno : bind_free(a, dir);
	if (!error && (chmod(a->at.sun_path, 0600) < 0 || listen(a->fd, BACKLOG) < 0)) {
		error = -errno;
		unlink(a->at.sun_path);
	}
	if (error)
		snprintf(why, cap, "%s: %s", dir, strerror(-error));
	return error;
}

static int start_thread(struct admin *a)
{
	pthread_attr_t attr;
	sigset_t masked, before;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	signals_thread_mask(&masked);
	pthread_sigmask(SIG_SETMASK, &masked, &before);
	int error = pthread_create(&a->thread, &attr, admin_main, a);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (!error)
		pthread_setname_np(a->thread, "far-admin");
	return error;
}

static void close_all(struct admin *a)
{
	if (a->fd >= 0)
		close(a->fd);
	if (a->stop_fd >= 0)
		close(a->stop_fd);
	free(a);
}

struct admin *admin_start(admin_answer_fn *answer, void *ctx, char *why, size_t cap)
{
	struct admin *a = calloc(1, sizeof *a);
	snprintf(why, cap, "out of memory");
	if (!a)
		return NULL;
	*a = (struct admin){.answer = answer, .ctx = ctx, .fd = -1, .stop_fd = -1};
	int error = listen_at(a, why, cap);
	if (!error && (error = start_thread(a))) {
		snprintf(why, cap, "cannot start its thread: %s", strerror(error));
		unlink(a->at.sun_path);
	}
	if (!error)
		return a;
	close_all(a);
	return NULL;
}

void admin_stop(struct admin *a)
{
	if (!a)
		return;
	const uint64_t one = 1;
	while (write(a->stop_fd, &one, sizeof one) < 0 && errno == EINTR)
		;
	pthread_join(a->thread, NULL);
	unlink(a->at.sun_path);
	close_all(a);
}
