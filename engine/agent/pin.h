/* SPDX-License-Identifier: BSD-3-Clause */
/** CPU to which each shard's thread is pinned. Application thread, at start. */
#ifndef FAR_AGENT_PIN_H
#define FAR_AGENT_PIN_H

#include <farcall/agent.h>
#include <pthread.h>

/** Checks pin_cpu and pin_cpus against the number of shards and the CPUs that the calling thread may run on. */
enum far_status pin_check(const struct far_opts *opts, struct far_err *err);
/** Sets the CPU of shard `i` in the attributes of its thread, if it has one: 0 or an errno. */
int pin_attr(pthread_attr_t *attr, const struct far_opts *opts, unsigned i);

#endif
