/* SPDX-License-Identifier: BSD-3-Clause */
/** Network namespaces of a test's own: iproute2, and how who is not root gets one. Main thread of each process. */
#ifndef NETNS_H
#define NETNS_H

#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/** `ip` with these arguments; false: it failed, and has said why. */
__attribute__((format(printf, 1, 2))) static inline bool ip(const char *format, ...)
{
	char command[256] = "ip ";
	va_list args;
	va_start(args, format);
	vsnprintf(command + 3, sizeof command - 3, format, args);
	va_end(args);
	int status = system(command);
	if (status)
		fprintf(stderr, "%s: status %d\n", command, status);
	return status == 0;
}

/** Writes a value into one of the kernel's files. */
static inline bool set(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, value, strlen(value)) > 0;
	if (fd >= 0)
		close(fd);
	return ok;
}

static inline bool as_root_of_a_new_user_namespace(void)
{
	char map[64];
	unsigned uid = geteuid(), gid = getegid();
	if (unshare(CLONE_NEWUSER) < 0)
		return false;
	set("/proc/self/setgroups", "deny");
	snprintf(map, sizeof map, "0 %u 1", uid);
	if (!set("/proc/self/uid_map", map))
		return false;
	snprintf(map, sizeof map, "0 %u 1", gid);
	return set("/proc/self/gid_map", map);
}

/** Enters a network namespace of its own. */
static inline bool netns_enter_new(void)
{
	return unshare(CLONE_NEWNET) == 0 || (as_root_of_a_new_user_namespace() && unshare(CLONE_NEWNET) == 0);
}

/** Enters one in which veth devices can be made. NULL, or what is missing. */
static inline const char *netns_enter_for_veth(void)
{
	if (!netns_enter_new())
		return "no network namespace of our own";
	if (system("command -v ip >/dev/null 2>&1"))
		return "iproute2 is not installed";
	if (!ip("link add probe type veth peer name eborp 2>/dev/null"))
		return "no veth devices";
	return NULL;
}

#endif
