/* SPDX-License-Identifier: BSD-3-Clause */
/** What the programs of this folder share: checks that end the process, and joining the group that the environment
 * names. Main thread of each process. */
#ifndef CHECK_H
#define CHECK_H

#include <farcall/farcall.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Seconds that a program may take, with a tenth of a core; an emulated machine sets more. The limit of meson.build,
 * which leaves out the time in which the machine stood still, is above it. */
#define HANG_GUARD_S hang_guard_s()
static inline unsigned hang_guard_s(void)
{
	const char *s = getenv("FAR_HANG_GUARD_S");
	return s ? (unsigned)atoi(s) : 150;
}

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                  \
			_exit(1);                                                                                      \
		}                                                                                                      \
	} while (0)

/** The call's status is the wanted one; `err` is shown when not. */
#define CHECK_STATUS(call, want, err)                                                                                  \
	do {                                                                                                           \
		enum far_status check_status = (call);                                                                 \
		if (check_status != (want)) {                                                                          \
			fprintf(stderr, "%s:%d: %s is %s, not %s: ", __FILE__, __LINE__, #call,                        \
				far_status_name(check_status), far_status_name(want));                                 \
			if (check_status)                                                                              \
				far_err_print(stderr, err);                                                            \
			_exit(1);                                                                                      \
		}                                                                                                      \
	} while (0)

#define CHECK_TEXT(err, part)                                                                                          \
	do {                                                                                                           \
		if (!strstr((err)->text, part)) {                                                                      \
			fprintf(stderr, "%s:%d: \"%s\" lacks \"%s\"\n", __FILE__, __LINE__, (err)->text, part);        \
			_exit(1);                                                                                      \
		}                                                                                                      \
	} while (0)

static inline const char *check_name(int rank)
{
	static char names[8][32];
	snprintf(names[rank % 8], sizeof names[0], "worker%d", rank);
	return names[rank % 8];
}

static inline int check_rank(void)
{
	const char *rank = getenv("RANK");
	CHECK(rank);
	return atoi(rank);
}

/** The driver that leads to the other workers: of FAR_NIC in the environment, shm without. */
static inline const char *check_nic(void)
{
	static char name[16];
	const char *env = getenv("FAR_NIC");
	snprintf(name, sizeof name, "%s", env && *env ? env : "shm");
	name[strcspn(name, ":,;")] = 0;
	return name;
}

/** far_init_rpc() with the security that FAR_SECURITY in the environment says, where `opts` say none: for addresses
 * that lead to other hosts. */
static inline enum far_status check_init(const char *name, int rank, int world, const struct far_opts *opts,
					 struct far_agent **out, struct far_err *err)
{
	struct far_opts own = opts ? *opts : (struct far_opts){0};
	if (!own.security)
		own.security = getenv("FAR_SECURITY");
	return far_init_rpc(name, rank, world, &own, out, err);
}

/** Joins as worker<rank>. The hang guard runs from here. */
static inline struct far_agent *check_join(const struct far_opts *opts)
{
	struct far_agent *agent = NULL;
	struct far_err err;
	alarm(HANG_GUARD_S);
	CHECK_STATUS(check_init(check_name(check_rank()), FAR_RANK_ENV, FAR_WORLD_ENV, opts, &agent, &err), FAR_OK,
		     &err);
	return agent;
}

/** Leaves with everybody else. */
static inline void check_leave(struct far_agent *agent)
{
	struct far_err err;
	CHECK_STATUS(far_shutdown(agent, FAR_FOREVER, &err), FAR_OK, &err);
}

#endif
