/* SPDX-License-Identifier: BSD-3-Clause */
/** How an agent begins and ends: steps in a table, each with what undoes it (agent.c). */
#ifndef FAR_AGENT_INIT_H
#define FAR_AGENT_INIT_H

#include "agent/agent.h"
#include "agent/env.h"
#include "control/key.h"

struct init {
	struct far_agent *a;
	const char *name;
	int rank, world;
	struct far_opts opts;
	struct key_choice key;
	struct agent_env *env; /* NULL: the machine's, with threads */
	struct far_err *err;
};

/** All steps, those with threads when there is no `env`. On failure nothing is left but what is still in `env`. */
enum far_status agent_init(struct init *in, const char *what, const struct far_opts *opts, struct far_agent **agent);
/** Undoes and frees an agent without threads, whose shards have ended. */
void agent_fini_stepped(struct far_agent *a);
/** Every member is known: names can be looked up. */
void agent_names_known(struct far_agent *a);

/* pollers.c */
enum far_status agent_init_keepers(struct init *in);
void agent_fini_keepers(struct far_agent *a);
/** Starts the control core's thread and waits until the group is there. */
enum far_status agent_init_join(struct init *in);
void agent_fini_join(struct far_agent *a);
/** Ends everything that is pending, by this thread, which is the shard's last driver. `crash`: what has arrived is not
 * looked at any more. Returns fibers that did not end. */
uint32_t agent_shard_end(struct far_agent *a, struct shard *s, bool crash);

#endif
