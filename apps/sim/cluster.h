/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Clusters of whole workers in one thread under a virtual clock: the shipped agents (engine/agent/env.h), one on
 * each host of a simulated world, their control threads over simulated streams, applications on fibers of their shards.
 * Everything follows from the seed.
 *
 * A worker has a core for its control thread, and one for each shard. A core does its next turn when something has come
 * for it, or when it said; a turn takes time by a model of instructions, during which the core does nothing else. So a
 * busy worker is late. A shard that has had nothing to do for as long as a real one polls goes to sleep, and what comes
 * then must wake it through its queue: a packet that it sleeps over is a failure of the run.
 *
 * Functions that wait or run an application may be called inside cluster_spawn()'s functions and in handlers
 * of kind fiber. All others are called outside of them, or anywhere. Times are in ns.
 */
#ifndef FAR_APPS_SIM_CLUSTER_H
#define FAR_APPS_SIM_CLUSTER_H

#include "apps/sim/ctl_net.h"
#include "nic/sim/sim.h"

#include <farcall/farcall.h>

struct cluster;
struct cluster_worker;

/** What work costs, in instructions. cluster_cost.c has the sources of the default. */
struct cluster_cost {
	uint32_t per_us;       /* instructions that a core does in a microsecond */
	uint32_t pass;         /* a pass of the loop */
	uint32_t packet;       /* of the network, received or sent */
	uint32_t call, answer; /* a request begun; its answer taken */
	uint32_t request;      /* one served, the answer included, the handler not */
	uint32_t handler;      /* the application's part of a request */
	uint32_t byte_1024;    /* for 1024 bytes of messages, in or out: copies and checksum */
	uint32_t step;         /* of the control thread */
	uint32_t wake;         /* from the wake-up of a sleeping core to its first pass */
};
extern const struct cluster_cost cluster_cost_default;

enum cluster_state {
	CLUSTER_DOWN, /* not started yet */
	CLUSTER_JOINING,
	CLUSTER_READY,
	CLUSTER_LEAVING,
	CLUSTER_LEFT,   /* in order; cluster_why() has the result */
	CLUSTER_FAILED, /* to join; cluster_why() has the reason */
	CLUSTER_CRASHED
};

/** The options of a worker, filled with those of the configuration, to be changed. What they point to outlives the
 * cluster: a worker that is started again reads them again. */
typedef void cluster_opts_fn(void *ctx, unsigned rank, struct far_opts *opts);
/** A worker has entered a state. Outside of all fibers; may crash, start and spawn. */
typedef void cluster_state_fn(void *ctx, struct cluster_worker *w, enum cluster_state state);

/** Called for each mail of a control thread that ends a shard's session with a lost worker. Returns the time after
 * which the shard gets it once more; 0: never. */
typedef uint64_t cluster_again_fn(void *ctx);

struct cluster_config {
	struct sim_config sim; /* the seed and the network */
	struct sim_streams_config streams;
	unsigned workers; /* [1, 1024]; one on each host, spread over the leaves in order */
	bool dynamic;     /* a dynamic group of so many at most: who is started joins, and waits for nobody */
	/* The last so many workers have the names and ranks of those just before them: stand-bys, which join when these
	 * are no members. Dynamic groups only. */
	unsigned stand_bys;
	/* Of every worker. Init method, key, nic and listen are the cluster's own; of fibers, unless it is set, so
	 * many that the process has mappings for them (vm.max_map_count). */
	struct far_opts opts;
	cluster_opts_fn *opts_of;   /* NULL: the same for all */
	cluster_state_fn *on_state; /* may be NULL */
	void *ctx;
	cluster_again_fn *mail_again; /* NULL: none */
	void *mail_ctx;
	struct cluster_cost cost;     /* all zero: the default */
	const char *port_args;        /* of sim_port_open() */
	uint64_t clock_offset_ns_max; /* clocks show up to so much more than the world's, drawn from the seed */
	uint32_t clock_skew_ppb_max;  /* and run up to so much faster or slower */
};

/** 100 Gb/s star, 2 workers, the default cost. */
void cluster_config_init(struct cluster_config *config, uint64_t seed);
/** Creates a world with its hosts; no worker is started. NULL: `err` has the reason. `config` is not kept. */
struct cluster *cluster_create(const struct cluster_config *config, struct nic_err *err);
/** Crashes who is still there, and frees all of it. */
void cluster_destroy(struct cluster *c);

struct sim *cluster_sim(struct cluster *c);
unsigned cluster_workers(const struct cluster *c);
struct cluster_worker *cluster_worker(struct cluster *c, unsigned rank);
/** Why the run cannot go on, the world's reasons included; NULL: it can. The first reason stays. */
const char *cluster_failure(const struct cluster *c);
/** Ends the run with a reason of the caller's, if it is the first. */
__attribute__((format(printf, 2, 3))) void cluster_fail(struct cluster *c, const char *format, ...);

/* ---- workers ---- */

/** Number of the worker in the cluster; its rank, unless it is a stand-by. */
unsigned cluster_rank(const struct cluster_worker *w);
struct sim_host *cluster_host(const struct cluster_worker *w);
enum cluster_state cluster_state(const struct cluster_worker *w);
/** NULL unless it is JOINING, READY or LEAVING. Never to be shut down or kept over a crash. */
struct far_agent *cluster_agent(const struct cluster_worker *w);
/** The result of the last join or shutdown. */
enum far_status cluster_why(const struct cluster_worker *w, struct far_err *err);
/** Number of incarnations started so far. */
unsigned cluster_incarnations(const struct cluster_worker *w);
/** The worker whose fiber or handler is running; NULL: none is. */
struct cluster_worker *cluster_here(void);

/** Starts its process, the host's power first if that was lost: JOINING. No effect while it runs. A failure is the
 * run's. */
void cluster_start(struct cluster_worker *w);
void cluster_start_all(struct cluster *c);
enum cluster_end {
	CLUSTER_KILL, /* the process dies; its kernel hangs up its streams */
	CLUSTER_POWER /* the host too: no peer receives a notice */
};
/** Stops the worker at once: unsent packets stay unsent. Its waits return FAR_CANCELLED or FAR_SHUTDOWN and
 * its fibers run to their ends, so that what they hold is freed; a crashed process's results are not to be counted
 * (cluster_dead()). From a fiber of its own: at the end of the turn. */
void cluster_crash(struct cluster_worker *w, enum cluster_end how);
/** When the process is killed, its streams end for the others that much later. No effect unless it runs. */
void cluster_linger(struct cluster_worker *w, uint64_t ns);
/** Is the calling fiber or handler one of a process that has crashed, unwinding. */
bool cluster_dead(void);
/** It stands still, its network card does not. */
void cluster_pause(struct cluster_worker *w, uint64_t ns);
/** Moves its host's clock forward by `jump_ns`; from now on it runs so much faster (sim_host_set_clock()). Its cores
 * look at the clock at once. */
void cluster_set_clock(struct cluster_worker *w, uint64_t jump_ns, int64_t skew_ppb);
/** As far_shutdown(): LEAVING, then LEFT. `timeout_ns` 0: 60 s. No effect unless it is READY. */
void cluster_leave(struct cluster_worker *w, uint64_t timeout_ns);
void cluster_leave_all(struct cluster *c, uint64_t timeout_ns);

/** Packets and streams between the two hosts are cut, or not any more: one direction. */
void cluster_partition(struct cluster_worker *from, struct cluster_worker *to, bool cut);
void cluster_heal(struct cluster *c);

/* ---- applications ---- */

/** The body of an application; `ctx` outlives the cluster. */
typedef void cluster_app_fn(struct cluster_worker *w, void *ctx);
/**
 * Runs `fn` on a fiber of that shard (−1: they take turns) once the worker is READY and a fiber is free. Every wait of
 * the public interface parks it. What was not begun when the worker leaves or dies is dropped. -EPIPE: there is no
 * such process, or it is leaving; -EINVAL: no such shard; -ENOMEM. Anywhere.
 */
int cluster_spawn(struct cluster_worker *w, int shard, cluster_app_fn *fn, void *ctx);
/** Applications that have been spawned and have not ended: of a worker, of all. */
unsigned cluster_apps(const struct cluster_worker *w);
unsigned cluster_apps_all(const struct cluster *c);
/** Applications that were dropped. */
uint64_t cluster_apps_dropped(const struct cluster *c);

/** In an application or a handler of kind fiber: waits by the host's clock, to the nanosecond. FAR_CANCELLED: the
 * worker is at its end. */
enum far_status cluster_sleep(uint64_t ns);
/** In an application or a handler of kind fiber: computes for so long, its core being busy, and goes on then. In an
 * inline handler it returns at once, and the core is busy after the turn: what the turn sends leaves before.
 * FAR_CANCELLED as above. */
enum far_status cluster_compute(uint64_t ns);
/** The world's time. */
uint64_t cluster_now(const struct cluster *c);

/* ---- running ---- */

/** What ended a run. */
enum cluster_run {
	CLUSTER_RUN_DONE,  /* the condition holds */
	CLUSTER_RUN_TIME,  /* the time has come first */
	CLUSTER_RUN_FAILED /* cluster_failure() */
};
/** Everything up to that time. */
enum cluster_run cluster_run_until(struct cluster *c, uint64_t when);
/** Until every worker that was started is READY. One that FAILED to join is a failure. */
enum cluster_run cluster_run_ready(struct cluster *c, uint64_t timeout_ns);
/** Until no application is left. If nothing is left to happen before, while applications wait, that is a failure. */
enum cluster_run cluster_run_apps(struct cluster *c, uint64_t timeout_ns);
/** Runs until no worker is left, after cluster_leave_all(). */
enum cluster_run cluster_run_left(struct cluster *c, uint64_t timeout_ns);

struct cluster_stats {
	uint64_t turns, steps; /* of shards, of control threads */
	uint64_t sleeps;       /* of shards */
	uint64_t busy_ns;      /* of shards, by the model */
};
void cluster_stats(const struct cluster *c, struct cluster_stats *out);

#endif
