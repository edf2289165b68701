/* SPDX-License-Identifier: BSD-3-Clause */
/** Options that all servers of a service must have in common. Main thread; each server answers on the thread that runs
 * handlers. */
#ifndef PSERVER_AGREE_H
#define PSERVER_AGREE_H

#include "group.h"
#include "tenants.h"
#include <stdatomic.h>

#define AGREE_TEXT_MAX 16384

struct agree_options {
	const char *service, *functions; /* functions: NULL: none */
	uint64_t servers, memory;        /* memory: 0: none */
	const struct tenants *tenants;   /* memory's first, if there is one */
};

/** What this server was given. */
struct agreement {
	uint64_t servers;
	char text[AGREE_TEXT_MAX]; /* a line "OPTION VALUE" for each option, in one order */
	atomic_bool serves;
};

void agree_init(struct agreement *a, const struct agree_options *o);
/** The function that the other servers call. Each server registers it before it joins. */
struct far_function agree_function(struct agreement *a);
/** Compares the options with those of server 0, and server 0 its own with those of servers that serve already. 0, or 1
 * after a message with the option and both values. */
int agree_check(const struct group *g, const struct agreement *a);

#endif
