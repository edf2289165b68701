/* SPDX-License-Identifier: BSD-3-Clause */
/** The cluster's own structures. The thread of the simulated world. */
#ifndef FAR_APPS_SIM_CLUSTER_WORLD_H
#define FAR_APPS_SIM_CLUSTER_WORLD_H

#include "agent/agent.h"
#include "agent/env.h"
#include "apps/sim/cluster.h"

#define CTL_CORE FAR_SHARDS_MAX /* index of the control thread */
#define TEXT_MAX 512

/** A core of a worker: a shard's, or the control thread. */
struct core {
	struct cluster_worker *worker;
	unsigned index;
	sim_event event;     /* its next turn */
	uint64_t at;         /* when that is; the world's time */
	uint64_t busy_until; /* the world's time */
	uint64_t extra_ns;   /* cluster_compute() in this turn */
};

/** An application, from its spawning to its end. */
struct app {
	struct shard_task task;
	struct cluster_worker *worker;
	cluster_app_fn *fn;
	void *ctx;
	unsigned shard;
	struct app *next; /* of those that wait for a fiber */
};

struct cluster_worker {
	struct cluster *cluster;
	unsigned rank;
	struct sim_host *host;
	enum cluster_state state;
	struct far_agent *agent;
	struct ctl_net *net; /* the agent's */
	/* of the driver */
	struct nic_port *ports[SIM_RAILS_MAX];
	struct nic_queue *queues[SIM_RAILS_MAX][FAR_SHARDS_MAX];
	unsigned shards, incarnations;
	bool dying;                          /* its fibers unwind */
	bool ending, crash_requested, power; /* an event will end it, by a crash, with the host */
	sim_event end_event, resume_event;
	struct random_source random;
	struct sim_random drawn;
	enum far_status why;
	struct far_err err;
	struct core cores[FAR_SHARDS_MAX + 1];
	unsigned apps;                       /* spawned and not ended */
	unsigned next_shard;                 /* that shard −1 means */
	struct app *waiting, **waiting_last; /* for READY, or for a fiber */
	char name[SIM_NAME_BYTES];
};

struct cluster {
	struct sim *sim;
	struct sim_streams *streams;
	struct cluster_config config;
	unsigned n;
	struct core *running; /* whose turn it is */
	unsigned apps, alive, not_ready;
	uint64_t apps_dropped;
	struct late_mail *late; /* mails that come once more */
	struct cluster_stats stats;
	bool failed;
	char failure[TEXT_MAX];
	struct cluster_worker workers[];
};

/* cluster_turn.c */
/** Its next turn is at that time of the world, or when it is done with what it does now; unless it is earlier anyway.
 */
void core_schedule(struct core *core, uint64_t when);
/** The host's hook: something has come. */
void worker_woken(void *ctx, struct sim_host *host);
/** The control thread is to be stepped. */
void worker_ctl_due(void *ctx);
void worker_start_cores(struct cluster_worker *w);
void worker_stop_cores(struct cluster_worker *w);

/* cluster_worker.c */
/** Records a state change of the agent. */
void worker_look(struct cluster_worker *w);

/* cluster_mail.c */
/** The ends of the worker's mailboxes. */
void mails_mark(const struct cluster_worker *w, uint32_t tails[FAR_SHARDS_MAX]);
/** Offers what a turn of the control thread has posted since mails_mark() to cluster_config.mail_again. */
void mails_look(struct cluster_worker *w, const uint32_t tails[FAR_SHARDS_MAX]);
/** Drops those that have not come. */
void mails_free(struct cluster *c);

/* cluster_app.c */
/** Hands those that wait to their shards. */
void apps_begin(struct cluster_worker *w);
/** Drops those that have not begun. */
void apps_drop(struct cluster_worker *w);

#endif
