/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Workers on other hosts, each started by an ssh process of its own. A worker's environment, the group's key included,
 * goes through the standard input of ssh; no argument and no file has it. Afterwards the same input carries names of
 * signals, one a line. Its end kills the worker, so no worker outlives its ssh. Main thread.
 */
#ifndef FARCALL_RUN_HOSTS_H
#define FARCALL_RUN_HOSTS_H

#include "apps/cli/spawn.h"
#include <stdbool.h>

#define HOSTS_SSH_DEFAULT "ssh -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5"
#define HOSTS_PORT        29500 /* of the store on the first host, unless MASTER_PORT is set */
#define HOSTS_WORDS_MAX   32    /* of the ssh command, host and remote command included */

struct hosts {
	char *name[SPAWN_WORLD_MAX]; /* in the order given; [USER@]HOST */
	int n;
	char *ssh[HOSTS_WORDS_MAX]; /* words of the command; two follow, the host and what runs there */
	int ssh_n;
	int world;
};

/** Reads the list of hosts and the command, which are split in place. Sets MASTER_ADDR, MASTER_PORT and, unless
 * FAR_SECURITY is "none", FAR_KEY in this process. NULL, or the mistake and its remedy. */
const char *hosts_open(struct hosts *h, char *list, char *ssh);

/** Workers are spread in blocks: host i has the ranks from i * world / n. */
const char *hosts_of(const struct hosts *h, int rank);

/** The command that starts a worker on the host of `rank`; `argv` has HOSTS_WORDS_MAX + 1 elements. */
void hosts_command(const struct hosts *h, int rank, char **argv);

/** Writes what starts `program` as worker `rank` into an empty pipe, which it enlarges where needed. 0 or -errno. */
int hosts_send(const struct hosts *h, int fd, int rank, char *const *program);

/** Status of waitpid() of a worker, from the one of its ssh: a shell reports a signal as 128 and its number. */
int hosts_status(int ssh_status);

#endif
