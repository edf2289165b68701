/* SPDX-License-Identifier: BSD-3-Clause */
/** What servers and clients take from the system: time and threads. A simulation replaces it before it makes a service;
 * any thread reads it. */
#ifndef PSV_ENV_H
#define PSV_ENV_H

#include <stdbool.h>
#include <stdint.h>

struct psv_env {
	uint64_t (*now_ns)(void); /* monotonic */
	bool threads;             /* a server has a thread that calls psv_server_look() */
};

extern struct psv_env psv_env;

static inline uint64_t psv_now_ns(void)
{
	return psv_env.now_ns();
}

#endif
