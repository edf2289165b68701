/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The applications of a simulated run: handlers that answer with bytes which follow from the number of the call, and
 * callers on fibers, which record what they did and what came of it. They use the public interface only.
 * The thread of the simulated world.
 */
#ifndef SIM_LOAD_H
#define SIM_LOAD_H

#include "apps/sim/cluster.h"
#include "sim/history.h"

#include <farcall/farcall.h>

struct load;

/** A request that is answered later. */
struct load_later {
	struct load_later *next, **prev;
	struct load_worker *worker;
	struct far_deferred *deferred;
	uint64_t number;
};

#define LOAD_REFS_MAX 12 /* that a worker keeps */

/** A reference that is kept, and the call that made its value. */
struct load_ref {
	struct far_rref *rref;
	uint64_t number;
};

/** One worker's application, across its incarnations. */
struct load_worker {
	struct load *load;
	struct far_agent *agent; /* NULL: not there */
	struct sim_host *host;
	uint32_t rank, incarnation;
	uint32_t left; /* calls that it has still to make */
	uint32_t busy; /* fibers of callers under way */
	struct sim_random random;
	uint32_t *sequences; /* [workers][shards][shards]: one-ways sent by this incarnation, by receiver, sending and
			      * receiving shard */
	struct load_later *laters;
	struct far_msg_handler messages[7];
	struct far_function functions[6];
	struct far_function make; /* of objects */
	struct far_method look;
	struct far_class box;
	struct load_ref refs[LOAD_REFS_MAX]; /* held by this incarnation */
	uint32_t refs_n;
};

/** State shared by the callers of one incarnation. */
struct load_incarnation {
	struct load_incarnation *next; /* of the load, which frees them */
	struct load_worker *worker;
	struct far_agent *agent;
	uint32_t incarnation;
};

/** What a call is made of; by its number. */
struct load_plan {
	uint32_t request, reply; /* bytes; the request's number comes before them */
	uint32_t depth;
	uint64_t work_ns;
};

struct load {
	const struct scenario *scenario;
	struct sim *sim;
	struct history *history;
	struct load_plan *plans; /* of the history's calls */
	size_t plans_cap;
	struct load_worker *workers; /* [scenario->workers] */
	struct load_incarnation *incarnations;
	uint64_t boxes; /* objects that there are */
	bool stop;      /* no further calls */
	bool hold;      /* none for now */
};

void load_init(struct load *load, const struct scenario *scenario, struct sim *sim, struct history *history);
void load_fini(struct load *load);

/** Fills in the handlers of that incarnation of a worker, 1 the first, which differ in number and order from those of
 * the one before; `opts` points into the worker's own static tables afterwards. */
void load_opts(struct load_worker *w, uint32_t incarnation, struct far_opts *opts);

/** The worker has an agent that is ready. load_run() is to run with what is returned, on as many fibers of it as
 * load_callers() states. */
struct load_incarnation *load_begin(struct load_worker *w, struct far_agent *agent, struct sim_host *host,
				    uint32_t incarnation);
unsigned load_callers(const struct load_worker *w);
void load_run(struct cluster_worker *cw, void *incarnation);
/** Its process is about to die. */
void load_killed(struct load_worker *w);
/** It has died. */
void load_dead(struct load_worker *w);
/** All workers give back the references that they keep; while `hold` or `stop` they keep no new ones. */
void load_let_go(struct load *load);
/** Every caller has made its calls, and all have ended. */
bool load_done(const struct load *load);

#endif
