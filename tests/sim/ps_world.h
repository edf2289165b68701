/* SPDX-License-Identifier: BSD-3-Clause */
/** A simulated parameter server: what the run (ps_service.c) and its clients (ps_clients.c) share. One thread. */
#ifndef TESTS_SIM_PS_WORLD_H
#define TESTS_SIM_PS_WORLD_H

#include "apps/sim/cluster.h"
#include "ps_history.h"

#include <farcall/ps.h>

#define MS UINT64_C(1000000)

/* Rank 0 has the store and reads; then servers, then clients. */
enum { FIRST_SERVER = 1, FIRST_CLIENT = FIRST_SERVER + PS_SERVERS, WORKERS = FIRST_CLIENT + PS_CLIENTS };
enum { CHANGES = 14, READS = 24, KEYS_MAX = 60, MEETS = 4, MEETINGS_MAX = 96, DEATHS_MAX = 8 };

enum tables { SUMS, COUNTS, AGED, STEPS, VALUES, TABLES };

enum change { ADDS, COUNT, WRITES, STEP, PUTS, CHANGE_KINDS };

/** What a client has on its disk: it goes on from there after a restart. */
struct disk {
	unsigned done;  /* changes */
	bool begun;     /* the change below; its events are in the history */
	uint64_t next;  /* number of the change that is begun, or of the next one */
	uint64_t steps; /* of its clock */
	bool tried;     /* the change below was begun more than once */
	bool calls;     /* it counts by a function */
	enum change kind;
	unsigned n;
	unsigned number[KEYS_MAX]; /* of the keys; they may repeat */
	float grads[KEYS_MAX * PS_CLIENTS];
	size_t event[KEYS_MAX]; /* of each position */
};

/** A wait at the barrier of the clients. */
struct meeting {
	uint64_t begin, end; /* PS_NEVER: it waits */
	bool passed;
};

struct meetings {
	struct meeting meeting[MEETINGS_MAX];
	unsigned n, deaths;
	uint64_t death[DEATHS_MAX]; /* times when the client died */
};

/* A reply has room for FAR_PS_CHUNK_BYTES and a value: two to four long ones. */
enum { VALUES_MAX = 6, VALUE_SHORT_MAX = 200, VALUE_MAX = 60000 };

/** A client's memory that operations use. */
struct client {
	struct disk disk;
	uint64_t excused_from, excused_to; /* it was dead, until its clock was advanced again */
	bool known;                        /* every shard has heard its clock */
	bool leaves;                       /* the others need not wait for it any more */
	bool ended;                        /* it has done all changes, or is dead for good */
	uint64_t paused_to;
	struct meetings meetings;
	double value; /* of a function */
	char values[VALUES_MAX * VALUE_MAX];
	uint64_t offsets[VALUES_MAX + 1];
	uint64_t keys[KEYS_MAX];
	float rows[KEYS_MAX * PS_CLIENTS];
	uint8_t status[KEYS_MAX];
};

/** Of a reader; it shares nothing with the client of its worker. */
struct reader {
	uint64_t keys[KEYS_MAX];
	unsigned number[KEYS_MAX];
	float rows[KEYS_MAX * PS_CLIENTS];
	uint8_t status[KEYS_MAX];
	double values[KEYS_MAX];
	char bytes[VALUES_MAX * VALUE_MAX];
	uint32_t lens[VALUES_MAX];
};

struct ps_run {
	uint64_t seed;
	struct cluster *c;
	struct sim_random random;
	struct ps_history history;
	bool calm;    /* nothing is disturbed */
	bool forgets; /* servers end */
	unsigned staleness;
	struct client client[PS_CLIENTS];
	struct reader reader[WORKERS + 1]; /* the last one: of final_app() */
	struct far_ps_server *server[PS_SERVERS];
	uint64_t changes, reads, unanswered, repeats, excused, meetings; /* of the run */
};

extern struct ps_run run;

/** Ends the run as wrong, once. */
__attribute__((format(printf, 1, 2))) void wrong(const char *format, ...);

/** Applications: a client's changes; its waits at a barrier; the reads of any worker; the last pull, of all sums. */
void client_app(struct cluster_worker *w, void *ctx);
void meet_app(struct cluster_worker *w, void *ctx);
void reader_app(struct cluster_worker *w, void *ctx);
void final_app(struct cluster_worker *w, void *ctx);

/** Begins an assignment of the values of client c's change, whose numbers are those of its events. */
enum far_status values_put(unsigned c, struct far_ps_table *t, const struct far_ps_push_opts *opts,
			   struct far_future **f, struct far_err *err);
/** Begins a pull of n values, and checks them when it has ended, by their bytes. */
enum far_status values_get(struct reader *r, struct far_ps_table *t, unsigned n, const struct far_ps_pull_opts *opts,
			   struct far_future **f, struct far_err *err);
void values_check(const struct reader *r, unsigned n, uint64_t begin);

/** Registers count, refuse and peek, functions of a counter. */
bool functions_register(void);
/** Brings a client to the barrier, in several attempts. False: it is dead. */
bool meet(unsigned c, struct far_ps *ps);
void meetings_died(unsigned c);
/** No client has passed without another one that was neither there nor lost. */
void meetings_check(void);

#endif
