/* SPDX-License-Identifier: BSD-3-Clause */
/** Start-up and shutdown of an agent as a table of steps, each with its reverse (agent.c). Start and stop only. */
#ifndef FAR_AGENT_INIT_H
#define FAR_AGENT_INIT_H

#include "agent/agent.h"
#include "agent/env.h"
#include "control/key.h"

/** Arguments of the steps. */
struct init {
	struct far_agent *a;
	const char *name;
	char expanded[2 * FAR_NAME_MAX]; /* `name` with the rank; empty: it has no pattern */
	int rank, world;
	unsigned tries;     /* of far_init_rpc() to join with a free rank, before this one */
	bool rank_was_open; /* `rank` is a free one, which another worker may take first */
	bool caller;        /* FAR_PROGRESS_CALLER: no pollers, and else as FAR_PROGRESS_SHARED */
	size_t opts_bytes;  /* of the caller's struct far_opts */
	struct far_opts opts;
	struct key_choice key;
	struct agent_env *env; /* NULL: the machine's clock, network and threads */
	struct far_err *err;
};

/** Runs all steps, those with threads only without `env`. On failure they are undone; `env` keeps what was not taken
 * over. */
enum far_status agent_init(struct init *in, const char *what, const struct far_opts *opts, struct far_agent **agent);
/** Undoes the steps of an agent without threads, whose shards have ended, and frees it. */
void agent_fini_stepped(struct far_agent *a);
/** Checks that the calling thread may wait for the end of the group, and gives back the shards that it holds. */
enum far_status agent_check_end(struct far_agent *a, const char *what, struct far_err *err);
/** The group ends: keeps what peers hold whose sessions end from now on, for the report of leaks. Any thread. */
void agent_keep_leaks(struct far_agent *a);

/* ---- options.c ---- */
/** Reads, checks and completes the options. */
enum far_status agent_init_options(struct init *in);
/** Replaces "%d" in the name by the rank, and checks the name. */
enum far_status agent_init_name(struct init *in);
/** Chooses the group's key. */
enum far_status agent_init_key(struct init *in);
void agent_fini_key(struct far_agent *a);

/* ---- api/store.c ---- */
/** A worker of a dynamic group without a rank: finds a free one in the store. */
enum far_status store_free_rank(struct init *in);

/* ---- control.c ---- */
/** Creates the control thread's state, which reads the size of the group from the environment: so it comes early, and
 * agent_init_join(), which starts the thread, late. */
enum far_status agent_init_ctl(struct init *in);
void agent_fini_ctl(struct far_agent *a);
/** This worker cannot join: a control thread of its own publishes the reason, within FAR_STORE_REFUSED_NS, so that the
 * other members need not wait for it. */
void agent_ports_refused(struct init *in, const struct far_err *why);
/* ---- api/profile_env.c ---- */
/** The profile that FAR_PROFILE wants: its begin, and its end with the file. */
enum far_status profile_env_begin(struct init *in);
void profile_env_end(struct far_agent *a);

/* ---- api/plugin_send.c ---- */
/** With FAR_PLUGIN_KEYS: registers the function that loads plugins which peers send. */
enum far_status plugins_receive(struct init *in);

/* ---- api/members.c ---- */
/** ctl_config.members_changed: wakes the thread of callbacks and waits. The control thread. */
void members_on_change(void *ctx);
/** True if the calling thread is that thread. */
bool members_thread_is_this(const struct far_agent *a);
/** Ends the thread, its callbacks and waits. */
void members_end(struct far_agent *a);
/** Frees what the control thread used until its end. */
void members_free(struct far_agent *a);

/* ---- serve.c ---- */
/** ctl_config.changed: wakes far_serve(). */
void agent_state_changed(void *ctx, enum ctl_state state);

/** All members are known: fills the table of names. */
void agent_names_known(struct far_agent *a);

/* ---- poll.c ---- */
/** FAR_PROGRESS_CALLER: the descriptor that becomes readable when the shards have work. */
enum far_status agent_poll_init(struct init *in);
void agent_poll_fini(struct far_agent *a);
/** Makes the descriptor readable. Any thread, also in signal handlers. */
void agent_poll_signal(const struct far_agent *a);
/** Sleeps until `fd` (−1: none) is readable, the agent has work or the absolute time `until`, and polls the agent if it
 * has no pollers. */
void agent_await(struct far_agent *a, int fd, uint64_t until);
/** ctl_wait_settled() that polls the agent meanwhile if it has no pollers. */
enum far_status agent_wait_settled(struct far_agent *a, struct far_err *err);

/* ---- pollers.c ---- */
/** Start and stop the shards' threads. */
enum far_status agent_init_pollers(struct init *in);
void agent_fini_pollers(struct far_agent *a);
/** Starts the control thread and waits until the group has joined. */
enum far_status agent_init_join(struct init *in);
void agent_fini_join(struct far_agent *a);
/** Ends everything that is pending on a shard, on the calling thread, which is the last to hold it. `crash`: arrived
 * packets are dropped. Returns the number of fibers that did not end. */
uint32_t agent_shard_end(struct far_agent *a, struct shard *s, bool crash);

#endif
