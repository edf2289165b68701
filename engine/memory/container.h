/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Memory limits of the control groups around this process, and the room that they leave. Any thread, one at a time. The
 * groups are found once; their limits are read each time. Reads files, allocates nothing.
 */
#ifndef FAR_MEMORY_CONTAINER_H
#define FAR_MEMORY_CONTAINER_H

#include <stdbool.h>
#include <stdint.h>

#define CONTAINER_UNLIMITED UINT64_MAX

/** Limit and use of the group with the least room. */
struct container_room {
	uint64_t limit; /* bytes; CONTAINER_UNLIMITED: no group has a limit */
	uint64_t used;  /* bytes, without cached files that the kernel can drop */
	uint64_t room;  /* bytes: limit - used, 0 when it is exceeded; CONTAINER_UNLIMITED */
};

/** Finds the groups. Start only, before any other function; `self` and `root`: CGROUP_SELF and CGROUP_ROOT, or those of
 * a test. */
void container_find(const char *self, const char *root);

/** Reads the limits, and the use where there is a limit. */
struct container_room container_read(void);

/**
 * Locks the group that container_read() returned last against other processes: a descriptor for container_unlock(), or
 * -1 without the lock (no limit, no permission, or not free within 0.1 s).
 */
int container_lock(void);
void container_unlock(int fd);

#endif
