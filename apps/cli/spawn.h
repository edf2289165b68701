/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Starting the workers of one host. The starter binds the listener of the group's store and hands it down, so that
 * nobody races for a free port. Main thread.
 */
#ifndef FAR_APPS_CLI_SPAWN_H
#define FAR_APPS_CLI_SPAWN_H

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

#define SPAWN_WORLD_MAX 256 /* members of a static group */

struct spawn_group {
	int listen_fd; /* listening on 127.0.0.1, close-on-exec; -1: closed, or none */
	uint16_t port; /* of it; 0: MASTER_ADDR and MASTER_PORT are those of this process */
	int world;
};

struct spawn_child {
	const struct spawn_group *group;
	int rank;
	const char *file; /* looked for in PATH when it has no slash */
	char *const *argv;
	int in, out, err;     /* become 0, 1, 2; -1: inherited */
	int announce_fd;      /* gets the process group, an int32, before the program starts; -1: none */
	int keep_fd;          /* one more descriptor that survives exec, or -1 */
	const sigset_t *mask; /* signals blocked in the child; NULL: as here */
};

/** 0 or -errno. */
int spawn_group_open(struct spawn_group *group, int world);
void spawn_group_close(struct spawn_group *group);

/** Sets the environment of the calling process to that of worker `rank`. */
void spawn_env(const struct spawn_group *group, int rank);

/**
 * Starts a worker in a process group of its own that the kernel kills when the calling thread dies. Only rank 0 gets
 * the listener. 0, or -errno: exec's own, too (-ENOENT: no such program). The caller must be single-threaded.
 */
int spawn_start(const struct spawn_child *child, pid_t *pid);

#endif
