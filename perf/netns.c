/* SPDX-License-Identifier: BSD-3-Clause */
/** Enters named network namespaces and checks that they exist. Main thread. */
#include "netns.h"
#include "address.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#define OURS "/proc/self/ns/net"

static int complain(const struct perf_opts *o, const char *name, int error)
{
	const char *remedy = error == ENOENT
				     ? "there is none of that name; `ip netns add` makes one, `ip netns` lists them"
			     : error == EPERM ? "it takes root (CAP_SYS_ADMIN) to enter one"
					      : strerror(error);
	fprintf(stderr, "%s: network namespace \"%.64s\": %s\n", o->what, name, remedy);
	return 1;
}

static int enter(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int rc = setns(fd, CLONE_NEWNET) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

int netns_enter(const struct perf_opts *o, const char *name)
{
	char path[512];
	if (!name)
		return 0;
	/* A name and no path: what lies elsewhere is none of `ip netns`. */
	if (name[0] == 0 || strchr(name, '/') || snprintf(path, sizeof path, "/run/netns/%s", name) >= (int)sizeof path)
		return complain(o, name, ENOENT);
	int rc = enter(path);
	return rc < 0 ? complain(o, name, -rc) : 0;
}

/* Back from wherever: `ours` is closed. 0; or 1, after printing. */
static int back_to(const struct perf_opts *o, int ours)
{
	int rc = setns(ours, CLONE_NEWNET) < 0 ? complain(o, OURS, errno) : 0;
	close(ours);
	return rc;
}

int netns_check(const struct perf_opts *o, const char *name)
{
	if (!name)
		return 0;
	int ours = open(OURS, O_RDONLY | O_CLOEXEC);
	if (ours < 0)
		return complain(o, OURS, errno);
	if (netns_enter(o, name) == 0)
		return back_to(o, ours);
	close(ours);
	return 1;
}

int netns_listen(const struct perf_opts *o, const char *name, uint16_t *port)
{
	struct address at = {.host = "127.0.0.1"};
	char text[ADDRESS_TEXT_MAX];
	int ours = open(OURS, O_RDONLY | O_CLOEXEC);
	if (ours < 0 || netns_enter(o, name)) {
		if (ours >= 0)
			close(ours);
		return -1;
	}
	int fd = address_listen(&at, false, text);
	if (fd < 0)
		fprintf(stderr,
			"%s: network namespace \"%.64s\": %s; is its loopback up (ip -n %.64s link set lo up)?\n",
			o->what, name, text, name);
	if (back_to(o, ours) && fd >= 0) {
		close(fd);
		fd = -1;
	}
	*port = at.port;
	return fd;
}
