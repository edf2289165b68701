/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the tests of waiting handlers share: a gate, whose requests stay open until it is opened, and a group of workers
 * for every way of driving a shard. Handlers: shard threads, fibers and threads of the agent.
 */
#ifndef API_GATE_H
#define API_GATE_H

#include "api_spawn.h"

#include <pthread.h>
#include <stdatomic.h>

enum { GATE_MAX = 256 };

static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static struct far_deferred *gate_kept[GATE_MAX];
static int gate_n;

static inline enum far_status gate_wait(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	pthread_mutex_lock(&gate_lock);
	CHECK(gate_n < GATE_MAX && far_defer(req, &gate_kept[gate_n]) == FAR_OK);
	gate_n++;
	pthread_mutex_unlock(&gate_lock);
	return FAR_OK;
}

/* Answers all that wait, and returns their number. */
static inline enum far_status gate_open(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	pthread_mutex_lock(&gate_lock);
	struct far_val v = far_int(gate_n);
	while (gate_n)
		far_deferred_return(gate_kept[--gate_n], &args[0]);
	pthread_mutex_unlock(&gate_lock);
	return far_return(req, &v);
}

static inline enum far_status gate_count(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	pthread_mutex_lock(&gate_lock);
	struct far_val v = far_int(gate_n);
	pthread_mutex_unlock(&gate_lock);
	return far_return(req, &v);
}

#define GATE_FUNCTIONS                                                                                                 \
	{"gate::wait() -> int", FAR_KIND_INLINE, gate_wait, NULL},                                                     \
		{"gate::open(int value) -> int", FAR_KIND_INLINE, gate_open, NULL},                                    \
	{                                                                                                              \
		"gate::count() -> int", FAR_KIND_INLINE, gate_count, NULL                                              \
	}

/** An int from a function of a worker. */
static inline int64_t query(struct far_agent *a, const char *to, const char *fn, const struct far_val *args, size_t n)
{
	struct far_val out = {0};
	struct far_err e;
	CHECK_STATUS(far_rpc_sync(a, to, fn, args, n, NULL, &out, &e), FAR_OK, &e);
	return out.u.i;
}

/** Until so many wait at a worker's gate. The hang guard bounds it. */
static inline void gate_await(struct far_agent *a, const char *to, int64_t n)
{
	while (query(a, to, "gate::count", FAR_NOARGS) != n)
		usleep(200);
}

/** Until a worker has no open request left; `own`: it is queried in its own process. */
static inline void none_active(struct far_agent *own)
{
	struct far_counters c;
	do {
		usleep(200);
		far_counters_read(own, &c);
	} while (c.requests_active);
}

/* ---- a group for each way of driving ---- */

struct drive_mode {
	const char *name;
	enum far_progress progress;
	enum far_idle idle;
};

static const struct drive_mode drive_modes[] = {
	{"shared", FAR_PROGRESS_SHARED, FAR_IDLE_ADAPTIVE},
	{"own", FAR_PROGRESS_DEDICATED, FAR_IDLE_ADAPTIVE},
	{"own, busy", FAR_PROGRESS_DEDICATED, FAR_IDLE_BUSY},
};
static const struct drive_mode *drive_mode;

/** Runs the group's workers in every mode; `killed` as in spawn_wait(). */
static inline int spawn_modes(int world, spawn_main *body, int killed)
{
	int bad = 0;
	for (size_t i = 0; i < sizeof drive_modes / sizeof *drive_modes; i++) {
		drive_mode = &drive_modes[i];
		struct spawned s = spawn(world, body);
		if (spawn_wait(&s, killed)) {
			fprintf(stderr, "with the driver %s\n", drive_mode->name);
			bad = 1;
		}
	}
	return bad;
}

static inline struct far_agent *join_mode(struct far_opts opts)
{
	opts.progress = drive_mode->progress;
	opts.idle = drive_mode->idle;
	return check_join(&opts);
}

#endif
