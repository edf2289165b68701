/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall health`: what a container's health check runs. The other side, and the format, is apps/pserver/health.h.
 * Main thread. */
#include "apps/pserver/health.h"
#include "apps/cli/options.h"
#include "apps/pserver/ps_clock.h"
#include "commands.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME   "farcall health"
#define AGE_NS (10 * FAR_SEC)

struct record {
	char state[HEALTH_STATE_MAX];
	int rank, world;
	uint64_t beat_ns;
};

static int unhealthy(const char *file, const char *text)
{
	printf("unhealthy: %s: %s\n", file, text);
	return 1;
}

/* Is the file locked: does its worker live. 1, 0 or -errno. */
static int held(int fd)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	if (fcntl(fd, F_OFD_GETLK, &whole) < 0)
		return -errno;
	return whole.l_type != F_UNLCK;
}

static bool parse(const char text[HEALTH_RECORD + 1], struct record *r)
{
	int end = 0;
	if (sscanf(text, HEALTH_MAGIC " %15[a-z] rank %9d world %9d beat %" SCNu64 " %n", r->state, &r->rank, &r->world,
		   &r->beat_ns, &end) != 4)
		return false;
	return text[end] == '\0' && r->rank >= 0 && r->rank < r->world;
}

/* A pipe or a device would keep us waiting, or be nobody's record. */
static int open_record(const char *file, char text[HEALTH_RECORD + 1], int *fd)
{
	*fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	if (*fd < 0)
		return -errno;
	ssize_t n = pread(*fd, text, HEALTH_RECORD, 0);
	text[n < 0 ? 0 : n] = '\0';
	return n < 0 ? -errno : 0;
}

static int judge(const char *file, const char *text, int alive, uint64_t age_max)
{
	struct record r;
	char line[160];
	if (alive < 0)
		return unhealthy(file, strerror(-alive));
	if (!alive)
		return unhealthy(file, "the worker that wrote it is gone");
	if (!parse(text, &r))
		return unhealthy(file, "is no health record of this version of farcall");
	uint64_t now = clock_ns(), age = now > r.beat_ns ? now - r.beat_ns : 0;
	bool leaving = strcmp(r.state, HEALTH_LEAVING) == 0;
	if (!leaving && strcmp(r.state, HEALTH_JOINED) != 0) {
		snprintf(line, sizeof line, "rank %d has not joined yet: it waits for the other %d members", r.rank,
			 r.world - 1);
		return unhealthy(file, line);
	}
	/* How long a worker leaves is bounded by its shutdown. */
	if (!leaving && age > age_max) {
		snprintf(line, sizeof line, "rank %d: its shards have not answered for %.1f s", r.rank,
			 (double)age / 1e9);
		return unhealthy(file, line);
	}
	printf("healthy: rank %d of %d, %s\n", r.rank, r.world, r.state);
	return 0;
}

int cmd_health(int argc, char **argv)
{
	const char *file = getenv(HEALTH_ENV);
	uint64_t age_max = AGE_NS;
	const struct option_spec specs[] = {{"file", 0, OPTION_TEXT, &file, 0, 0, "FILE",
					     "the worker's health file (default: " HEALTH_ENV ")", NULL},
					    {"max-age", 0, OPTION_DURATION, &age_max, FAR_SEC, 3600 * FAR_SEC, "TIME",
					     "unhealthy when its shards have not answered for longer (default 10s)",
					     NULL},
					    {.name = ""}};
	const struct option_command command = {
		NAME, "[OPTIONS]",
		"Checks the worker that writes a health file ('farcall train' and 'farcall pserver' with --health or\n"
		"FAR_HEALTH_FILE): it runs, has joined its group, and its shards answer. Prints one line; exit status\n"
		"0 when healthy, 1 when not. Reads the file and tests its lock; makes no call.",
		specs};
	int rest, fd = -1;
	char text[HEALTH_RECORD + 1];
	enum options_result parsed = options_parse(&command, argc, argv, &rest);
	if (parsed != OPTIONS_GO)
		return parsed == OPTIONS_DONE ? 0 : OPTIONS_EXIT_USAGE;
	if (rest < argc)
		return options_wrong(NAME, "%s: arguments are not expected", argv[rest]);
	if (!file || !*file)
		return options_wrong(NAME, "no file is named; give --file, or set " HEALTH_ENV);
	int rc = open_record(file, text, &fd);
	int status = rc == -ENOENT ? unhealthy(file, "is not there: no worker has started, or it has ended")
		     : rc          ? unhealthy(file, strerror(-rc))
				   : judge(file, text, held(fd), age_max);
	if (fd >= 0)
		close(fd);
	return status;
}
