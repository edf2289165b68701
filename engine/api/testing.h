/* SPDX-License-Identifier: BSD-3-Clause */
/** Changes that <farcall/testing.h> makes on the shards of an agent: each is a task that the shard runs, and the caller
 * waits for all. Any thread. */
#ifndef FAR_API_TESTING_H
#define FAR_API_TESTING_H

#include <farcall/status.h>

struct far_agent;
struct shard;

/** Runs a function on each shard. FAR_TIMEOUT: a shard will run it later. */
enum far_status agent_apply(struct far_agent *a, void (*apply)(struct shard *s), struct far_err *err);

#endif
