/* SPDX-License-Identifier: BSD-3-Clause */
/** Finds the admin sockets of this user and sends them requests. Main thread. */
#include "admin_client.h"

#include "base/clock.h"
#include "base/runtime_dir.h"
#include "control/admin.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define STALE_S 60 /* a socket without a process is removed when it is older */

static int by_path(const void *a, const void *b)
{
	const struct admin_worker *x = a, *y = b;
	return strcmp(x->at.sun_path, y->at.sun_path);
}

static int add(struct admin_workers *w, const char *dir, const char *name)
{
	struct admin_worker *more = realloc(w->of, (w->n + 1) * sizeof *more);
	if (!more)
		return -ENOMEM;
	w->of = more;
	struct admin_worker *one = &w->of[w->n];
	*one = (struct admin_worker){.at = {.sun_family = AF_UNIX}, .fd = -1};
	int n = snprintf(one->at.sun_path, sizeof one->at.sun_path, "%s/%s", dir, name);
	w->n += n > 0 && (size_t)n < sizeof one->at.sun_path;
	return 0;
}

/* Sockets of this user in a directory. */
static int scan(struct admin_workers *w, const char *dir)
{
	struct stat st;
	DIR *d = opendir(dir);
	int error = 0;
	if (!d)
		return errno == ENOENT ? 0 : -errno;
	for (const struct dirent *e; !error && w->n < ADMIN_WORKERS_MAX && (e = readdir(d));)
		if (strncmp(e->d_name, ADMIN_PREFIX, sizeof ADMIN_PREFIX - 1) == 0 &&
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(st.st_mode) &&
		    st.st_uid == geteuid())
			error = add(w, dir, e->d_name);
	closedir(d);
	return error;
}

int admin_find(struct admin_workers *w, const char *name)
{
	char dir[RUNTIME_DIR_BYTES] = "";
	int error = 0;
	*w = (struct admin_workers){0};
	for (unsigned i = 0; !error; i++) {
		int rc = runtime_dir_path(NULL, i, dir);
		if (rc == -ENOENT)
			break;
		error = rc ? rc : scan(w, dir);
		if (i == 0)
			snprintf(w->dir, sizeof w->dir, "%s", dir);
	}
	if (error) {
		fprintf(stderr, "%s: the runtime directory %s (%s): %s; set FAR_RUNTIME_DIR as the workers have it\n",
			name, dir, runtime_dir_from(), strerror(-error));
		admin_free(w);
		return -1;
	}
	qsort(w->of, w->n, sizeof *w->of, by_path);
	return 0;
}

void admin_free(struct admin_workers *w)
{
	for (unsigned i = 0; i < w->n; i++)
		free(w->of[i].text);
	free(w->of);
	*w = (struct admin_workers){0};
}

static void fail(struct admin_worker *w, const char *why)
{
	snprintf(w->why, sizeof w->why, "%s", why);
	close(w->fd);
	w->fd = -1;
	free(w->in);
	w->in = NULL;
}

/* A worker that was killed leaves its socket. */
static void remove_stale(const struct admin_worker *w)
{
	struct stat st;
	if (stat(w->at.sun_path, &st) == 0 && time(NULL) - st.st_mtime > STALE_S)
		unlink(w->at.sun_path);
}

static void begin(struct admin_worker *w, const char *request)
{
	char line[ADMIN_REQUEST_MAX];
	int n = snprintf(line, sizeof line, "%s\n", request);
	free(w->text);
	w->text = NULL;
	w->len = w->cap = 0;
	w->why[0] = 0;
	w->gone = false;
	w->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (w->fd < 0) {
		snprintf(w->why, sizeof w->why, "%s", strerror(errno));
		return;
	}
	if (connect(w->fd, (const struct sockaddr *)(const void *)&w->at, sizeof w->at) < 0) {
		w->gone = errno == ECONNREFUSED || errno == ENOENT;
		if (w->gone)
			remove_stale(w);
		fail(w, errno == EAGAIN ? "does not answer: its admin socket has too many clients" : strerror(errno));
	} else if (send(w->fd, line, (size_t)n, MSG_NOSIGNAL) != n) {
		fail(w, strerror(errno));
	}
}

/* The whole answer has come: "ok BYTES\n" and the bytes, or "error TEXT\n". */
static void finish(struct admin_worker *w)
{
	char *body = w->in ? memchr(w->in, '\n', w->len) : NULL, *end;
	if (!body) {
		fail(w, "closed its admin socket without an answer");
		return;
	}
	*body++ = 0;
	size_t have = w->len - (size_t)(body - w->in);
	if (strncmp(w->in, "error ", 6) == 0) {
		snprintf(w->why, sizeof w->why, "%.*s", (int)sizeof w->why - 1, w->in + 6);
	} else if (strncmp(w->in, "ok ", 3) != 0 || strtoul(w->in + 3, &end, 10) != have || *end) {
		snprintf(w->why, sizeof w->why, "its answer is cut off, or is none of a worker's");
	} else {
		w->text = strdup(body);
	}
	char why[sizeof w->why];
	memcpy(why, w->why, sizeof why);
	fail(w, why);
}

static void receive(struct admin_worker *w)
{
	if (w->len + 1 >= w->cap) {
		size_t cap = w->cap ? 2 * w->cap : 16384;
		char *more = cap <= ADMIN_ANSWER_MAX ? realloc(w->in, cap) : NULL;
		if (!more) {
			fail(w, "its answer is too long");
			return;
		}
		w->in = more;
		w->cap = cap;
	}
	ssize_t n = recv(w->fd, w->in + w->len, w->cap - w->len - 1, MSG_DONTWAIT);
	if (n > 0) {
		w->len += (size_t)n;
		w->in[w->len] = 0;
	} else if (n == 0) {
		finish(w);
	} else if (errno != EAGAIN && errno != EINTR) {
		fail(w, strerror(errno));
	}
}

void admin_request(struct admin_workers *w, const char *request)
{
	uint64_t until = clock_now(&clock_monotonic) + ADMIN_ANSWER_NS;
	struct pollfd *on = calloc(w->n + 1, sizeof *on);
	for (unsigned i = 0; i < w->n; i++)
		begin(&w->of[i], request);
	for (;;) {
		uint64_t now = clock_now(&clock_monotonic);
		bool open = false;
		for (unsigned i = 0; on && i < w->n; i++) {
			on[i] = (struct pollfd){.fd = w->of[i].fd, .events = POLLIN};
			open |= w->of[i].fd >= 0;
		}
		if (!open || now >= until || poll(on, w->n, (int)((until - now) / 1000000 + 1)) == 0)
			break;
		for (unsigned i = 0; i < w->n; i++)
			if (on[i].fd >= 0 && on[i].revents)
				receive(&w->of[i]);
	}
	for (unsigned i = 0; i < w->n; i++)
		if (w->of[i].fd >= 0)
			fail(&w->of[i], "does not answer: its process is stopped, or has no CPU");
	free(on);
}

static const char *member(const char *text, const char *name)
{
	char key[64];
	snprintf(key, sizeof key, "\"%s\":", name);
	const char *at = strstr(text, key);
	return at ? at + strlen(key) : NULL;
}

bool admin_number(const char *text, const char *name, uint64_t *out)
{
	const char *at = member(text, name);
	if (!at || *at < '0' || *at > '9')
		return false;
	*out = strtoull(at, NULL, 10);
	return true;
}

bool admin_string(const char *text, const char *name, char *out, size_t cap)
{
	const char *at = member(text, name), *end = at && *at == '"' ? strchr(at + 1, '"') : NULL;
	if (!end)
		return false;
	snprintf(out, cap, "%.*s", (int)(end - at - 1), at + 1);
	return true;
}
