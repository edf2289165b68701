/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The parameter server: tables, and the typed functions that clients call. Every member of the group registers these
 * functions (a typed call is checked against the caller's own table); those that are no server register them without
 * one and refuse to run them.
 *
 *   ps::create(int table, int dim, float init) -> none         the same again is fine, other values are an error
 *   ps::pull(int table, Tensor keys) -> Tensor                 rows of u64 keys; one without a row reads as `init`
 *   ps::push(int table, Tensor keys, Tensor grads, float lr) -> none         row −= lr × gradient, at once
 *   ps::push_pull(int table, Tensor keys, Tensor grads, float lr) -> Tensor  the same, returns the rows after it
 *   ps::push_bsp(int table, Tensor keys, Tensor grads, float lr, int step, int workers, int more) -> none
 *   ps::push_pull_bsp(the same) -> Tensor
 *       answered when `workers` workers have pushed step `step`, their mean applied; `more` 1 marks a part of a push
 *       that is answered at once, 0 its last part. A worker without keys for this server pushes an empty part.
 *   ps::arrive(int barrier) -> none, ps::arrived(int barrier) -> Tensor    single-use barriers in [0, PS_BARRIERS)
 *   ps::leave() -> none                                        this worker is done and makes no further call
 *   ps::stats(int table) -> Tensor                             i64 [PS_STATS]
 *   ps::watch(int stop) -> none
 *       called by the server itself: looks for lost members; stop 1 ends all open steps with an error
 *
 * All state belongs to the thread that runs the handlers; only `left` and `lost` are read by others.
 */
#ifndef PSERVER_PS_SERVER_H
#define PSERVER_PS_SERVER_H

#include "ps_step.h"
#include "ps_table.h"
#include <farcall/farcall.h>
#include <stdatomic.h>

#define PS_TABLES    64 /* tables of a server; their numbers are [0, PS_TABLES) */
#define PS_BARRIERS  64
#define PS_FUNCTIONS 11

enum ps_stat {
	PS_STAT_ROWS,
	PS_STAT_PULLS,
	PS_STAT_PUSHES,
	PS_STAT_KEYS_PULLED,
	PS_STAT_KEYS_PUSHED,
	PS_STAT_STEPS, /* bulk-synchronous steps applied */
	PS_STATS
};

struct ps_entry {
	struct ps_table table;
	struct ps_step *step; /* made by the first bulk-synchronous push */
	uint64_t pulls, pushes, keys_pulled, keys_pushed;
	bool open;
};

struct ps_server {
	int servers;     /* ranks [0, servers) are servers, the others workers */
	size_t rows_max; /* of each table; 0: PS_ROWS_MAX */
	struct ps_entry tables[PS_TABLES];
	float **rows; /* scratch: the rows of a request's keys */
	size_t rows_cap;
	bool arrived[PS_BARRIERS][PS_WORLD_MAX];
	bool gone[PS_WORLD_MAX]; /* workers that have left in order */
	int64_t served;          /* pulls and pushes of all tables: progress, as ps::arrived tells it */
	_Atomic int left;        /* count of `gone`; read by the thread that serves */
	_Atomic int lost;        /* rank of the first member found dead, or -1; likewise */
};

/** 0, -EINVAL or -ENOMEM. `*out` is the caller's; free it after the agent is shut down. */
int ps_server_new(int servers, size_t rows_max, struct ps_server **out);
void ps_server_free(struct ps_server *s);

/** Fills the functions to register; `s` is NULL on a member that is no server. */
void ps_functions(struct ps_server *s, struct far_function out[PS_FUNCTIONS]);

#endif
