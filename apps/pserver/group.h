/* SPDX-License-Identifier: BSD-3-Clause */
/** Joining the group: who this process is, from flags or the environment, and the agent with the functions of all.
 * Main thread. */
#ifndef PSERVER_GROUP_H
#define PSERVER_GROUP_H

#include "health.h"
#include <farcall/farcall.h>

#define PS_WORLD_MAX     256 /* members of a group: what the engine allows */
#define PS_SHARDS_MAX    16  /* of a server */
#define GROUP_RANK_UNSET UINT64_MAX

/* --security: its words, the library's default first. */
enum group_security { GROUP_SECURITY_DEFAULT, GROUP_SECURITY_NONE };
extern const char *group_security_words[];

struct group {
	const char *program;     /* "farcall train": begins messages */
	const char *init_method; /* NULL: env:// */
	uint64_t rank_flag;      /* GROUP_RANK_UNSET: RANK */
	uint64_t world_flag;     /* 0: WORLD_SIZE */
	const char *nic;         /* NULL: the library's default */
	int security;            /* enum group_security */
	const char *health_file; /* NULL: FAR_HEALTH_FILE */
	int rank, world;         /* group_identify()'s; dynamic: a member without a number has FAR_RANK_ANY */
	bool dynamic;            /* members join and leave at any time */
	char name[FAR_NAME_MAX]; /* group_enter()'s */
	struct health *health;   /* group_enter()'s */
	struct far_agent *agent; /* group_enter()'s */
};

/** True if a flag or the environment gives the rank of this process. */
bool group_has_rank(const struct group *g);
/** Reads rank and world size. WORLD_SIZE=dynamic, without a flag: a dynamic group, where a client needs no rank. 0, or
 * -EINVAL after a message. */
int group_identify(struct group *g);
/** Joins as "worker<rank>" with n functions. In a dynamic group `rank` is the number in the name alone, and without one
 * the name is "client<N>". 0, or -EIO after a message. */
int group_enter(struct group *g, unsigned shards, const struct far_function *functions, size_t n);
/** Leaves with everybody else, or at once. */
enum far_status group_leave(struct group *g, bool gracefully, struct far_err *err);
/** Prints "program: worker1: " and the error; when a member was lost or a server stops, all that are lost, since one of
 * them began it. Returns the exit status: EXIT_PEER_LOST then, else 1. Before group_leave(). */
int group_complain(const struct group *g, const struct far_err *err);

#endif
