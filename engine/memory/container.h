/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The memory limits of the control groups around this process, and how much room they leave. The groups are found
 * once; their limits are read anew each time. Reads files, allocates nothing.
 */
#ifndef FAR_MEMORY_CONTAINER_H
#define FAR_MEMORY_CONTAINER_H

#include <stdbool.h>
#include <stdint.h>

#define CONTAINER_UNLIMITED UINT64_MAX

/** Of the group that leaves the least room. */
struct container_room {
	uint64_t limit; /* bytes; CONTAINER_UNLIMITED: no group has a limit */
	uint64_t used;  /* bytes, less those of files that the kernel can drop */
	uint64_t room;  /* bytes: limit - used, 0 when it is exceeded; CONTAINER_UNLIMITED */
};

/** Finds the groups. Slow path, before any other function; `self` and `root` are CGROUP_SELF and CGROUP_ROOT, or a
 * test's. */
void container_find(const char *self, const char *root);

/** Reads the limits, and the use where there is a limit. One thread at a time. */
struct container_room container_read(void);

/**
 * Locks out the other processes of the group that container_read() returned last: a descriptor for container_unlock(),
 * -1 without the lock (no limit, no right, or it was not free within 0.1 s). One thread at a time.
 */
int container_lock(void);
void container_unlock(int fd);

#endif
