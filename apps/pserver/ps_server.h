/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The parameter server: tables, and the typed functions that clients call. Every member of the group registers these
 * functions (a typed call is checked against the caller's own table); those that are no server register them without
 * one and refuse to run them.
 *
 *   ps::create(int table, int dim, float init, int optimizer, float epsilon) -> none
 *       the same again is fine, other values are an error; optimizer 0 is SGD, 1 Adagrad, see ps_optimizer.h
 *   ps::pull(int table, Tensor keys) -> Tensor                 rows of u64 keys; one without a row reads as `init`
 *   ps::push(int table, Tensor keys, Tensor grads, float lr) -> none         applied at once
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
 * Each shard of a server has a part of its keys (ps_split.h) and state of its own, which belongs to the thread that
 * runs the shard's handlers; only `left` and `lost` are read by others. Barriers are kept by shard 0 of server 0.
 */
#ifndef PSERVER_PS_SERVER_H
#define PSERVER_PS_SERVER_H

#include "ps_step.h"
#include "ps_table.h"
#include <farcall/farcall.h>
#include <stdatomic.h>

#define PS_TABLES     64 /* tables of a server; their numbers are [0, PS_TABLES) */
#define PS_BARRIERS   64
#define PS_SHARDS_MAX 16 /* of a server */
#define PS_FUNCTIONS  11

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
	struct ps_rule rule;
	struct ps_step *step; /* made by the first bulk-synchronous push */
	uint64_t pulls, pushes, keys_pulled, keys_pushed;
	bool open;
};

/** What the shards of a server share. */
struct ps_service {
	int servers; /* ranks [0, servers) are servers, the others workers */
	unsigned shards;
	_Atomic int left; /* workers that have left, counted by each shard; read by the thread that serves */
	_Atomic int lost; /* rank of the first member found dead, or -1; likewise */
	struct ps_server *shard[PS_SHARDS_MAX];
};

/** A shard's. */
struct ps_server {
	struct ps_service *service;
	size_t rows_max; /* of each table; 0: PS_ROWS_MAX */
	struct ps_entry tables[PS_TABLES];
	float **rows; /* scratch: the rows of a request's keys */
	size_t rows_cap;
	bool arrived[PS_BARRIERS][PS_WORLD_MAX];
	bool gone[PS_WORLD_MAX]; /* workers that have left in order */
	int64_t served;          /* pulls and pushes of all tables: the progress that ps::arrived returns */
};

/** 0, -EINVAL or -ENOMEM. `*out` is the caller's; free it after the agent is shut down. */
int ps_service_new(int servers, unsigned shards, size_t rows_max, struct ps_service **out);
void ps_service_free(struct ps_service *s);

/** Fills the functions to register; `s` is NULL on a member that is no server. */
void ps_functions(struct ps_service *s, struct far_function out[PS_FUNCTIONS]);

#endif
