/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Leaves no process running. The death signal of a worker does not reach the processes that it started. This process
 * adopts them and kills them at its end. If it is killed itself, a reaper process kills their process groups.
 * Main thread.
 */
#ifndef FAR_APPS_CLI_ORPHANS_H
#define FAR_APPS_CLI_ORPHANS_H

#include <sys/types.h>

struct reaper {
	pid_t pid;
	int fd; /* the reaper reads process groups here, each sent by its first process (spawn_child.announce_fd); its
		   end without a farewell means that we were killed */
};

/** Forks the reaper and adopts orphaned descendants from now on. 0 or -errno. */
int reaper_start(struct reaper *k);
/** `group` is empty for good: its number may come back with another owner. */
void reaper_remove(struct reaper *k, pid_t group);
/** Ends the reaper; it kills no process. */
void reaper_end(struct reaper *k);

/** Kills and reaps all children but `except`, with their descendants; at most a second. Returns how many. */
unsigned orphans_kill(pid_t except);

#endif
