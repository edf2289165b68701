/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads limit and use of the control groups around this process. Any thread, one at a time. Paths and texts are in
 * static memory, since it also runs on the small stacks of fibers. */
#include "memory/container.h"

#include "base/cgroup.h"
#include "base/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define STAT_BYTES_MAX 8192
/* cgroup version 1 has the largest multiple of a page for "no limit". */
#define NO_LIMIT (UINT64_C(1) << 62)

struct level {
	char dir[PATH_MAX];
	int version;
};

static struct level levels[FAR_CONTAINER_LEVELS_MAX]; /* innermost first */
static unsigned levels_n;
static const struct level *tightest; /* NULL: none has a limit */
static char path[PATH_MAX + 64], text[STAT_BYTES_MAX];

static void take_level(void *ctx, const char *dir, int version)
{
	(void)ctx;
	if (levels_n == FAR_CONTAINER_LEVELS_MAX)
		return;
	struct level *l = &levels[levels_n++];
	snprintf(l->dir, sizeof l->dir, "%s", dir);
	l->version = version;
}

void container_find(const char *self, const char *root)
{
	levels_n = 0;
	tightest = NULL;
	cgroup_visit(self, root, "memory", take_level, NULL);
}

/* Reads a file into `text`; false: there is none. */
static bool read_text(const struct level *l, const char *file)
{
	size_t n = 0;
	if (snprintf(path, sizeof path, "%s/%s", l->dir, file) >= (int)sizeof path)
		return false;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	for (ssize_t got; n < sizeof text - 1; n += (size_t)got)
		if ((got = read(fd, text + n, sizeof text - 1 - n)) <= 0)
			break;
	close(fd);
	text[n] = '\0';
	return n > 0;
}

/* Parses a limit; UINT64_MAX: none ("max"). */
static uint64_t number_at(const char *s)
{
	uint64_t n = 0;
	if (*s < '0' || *s > '9')
		return UINT64_MAX;
	for (; *s >= '0' && *s <= '9' && n < UINT64_MAX / 16; s++)
		n = n * 10 + (uint64_t)(*s - '0');
	return n;
}

static uint64_t read_number(const struct level *l, const char *file)
{
	return read_text(l, file) ? number_at(text) : UINT64_MAX;
}

/* A field of memory.stat, which is in `text`; 0: missing. */
static uint64_t stat_of(const char *name)
{
	size_t len = strlen(name);
	for (const char *line = text; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, len) == 0 && line[len] == ' ') {
			uint64_t n = number_at(line + len + 1);
			return n == UINT64_MAX ? 0 : n;
		}
	}
	return 0;
}

/* Bytes of cached files that the kernel can drop: the inactive ones, and an estimated half of the active ones. */
static uint64_t droppable(const struct level *l)
{
	const char *inactive = l->version == 2 ? "inactive_file" : "total_inactive_file";
	const char *active = l->version == 2 ? "active_file" : "total_active_file";
	return read_text(l, "memory.stat") ? stat_of(inactive) + stat_of(active) / 2 : 0;
}

static struct container_room read_level(const struct level *l)
{
	struct container_room r = {CONTAINER_UNLIMITED, 0, CONTAINER_UNLIMITED};
	uint64_t limit = read_number(l, l->version == 2 ? "memory.max" : "memory.limit_in_bytes");
	if (limit >= NO_LIMIT)
		return r;
	uint64_t used = read_number(l, l->version == 2 ? "memory.current" : "memory.usage_in_bytes");
	if (used == UINT64_MAX)
		return r;
	if (used > limit / 2) {
		uint64_t files = droppable(l);
		used -= files < used ? files : used;
	}
	r.limit = limit;
	r.used = used;
	r.room = used < limit ? limit - used : 0;
	return r;
}

struct container_room container_read(void)
{
	struct container_room least = {CONTAINER_UNLIMITED, 0, CONTAINER_UNLIMITED};
	tightest = NULL;
	for (unsigned i = 0; i < levels_n; i++) {
		struct container_room r = read_level(&levels[i]);
		if (r.room >= least.room)
			continue;
		least = r;
		tightest = &levels[i];
	}
	return least;
}

/* The holder backs pages under the lock. If it is stopped, the others continue without the lock after a limit. */
int container_lock(void)
{
	const struct timespec nap = {.tv_nsec = FAR_CONTAINER_LOCK_NS / FAR_CONTAINER_LOCK_TRIES};
	int fd = tightest ? open(tightest->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	for (unsigned i = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB); i++) {
		if (errno != EWOULDBLOCK || i == FAR_CONTAINER_LOCK_TRIES) {
			close(fd);
			return -1;
		}
		nanosleep(&nap, NULL);
	}
	return fd;
}

void container_unlock(int fd)
{
	if (fd >= 0)
		close(fd);
}
