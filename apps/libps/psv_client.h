/* SPDX-License-Identifier: BSD-3-Clause */
/** What the files of the client share: services, tables, operations. Any thread. */
#ifndef PSV_CLIENT_H
#define PSV_CLIENT_H

#include "psv_arena.h"
#include "psv_keys.h"
#include "psv_schema.h"
#include <farcall/fanout.h>
#include <stdatomic.h>

#define PSV_SPAN_MAX 8192u /* numbers between the oldest pending change and the next: the servers' windows */
#define PSV_AGAIN    4096u /* numbers after which a change cannot be repeated */

struct psv_op;

/** A service at a client. Any thread. */
struct far_ps {
	_Atomic unsigned references;
	struct far_agent *agent;
	uint64_t service;
	uint64_t client; /* random: the name of this client in the servers' windows */
	uint16_t message;
	_Atomic(struct psv_view *) view; /* the newest, with the older ones behind it */
	pthread_mutex_t lock;            /* of all below, and of writers of `view` */
	uint64_t next;                   /* number of the next change; begins at 1 */
	uint64_t floor;                  /* `next` when the view changed last: earlier changes cannot be repeated */
	struct psv_op *changes;          /* pending, numbered */
	struct psv_arena arena;          /* of operations; has a lock of its own */
};

struct far_ps_table {
	struct far_ps *ps;
	uint64_t id;
	char name[PSV_NAME_BYTES];
	struct far_ps_schema schema;
	unsigned state_floats;
};

/** One operation. The caller fills the first part; psv_op_start() takes a copy. */
struct psv_op {
	struct far_ps *ps;
	enum psv_kind kind;
	uint64_t table;
	char table_name[PSV_NAME_BYTES]; /* for errors; "": an operation on no table */
	unsigned dim, state_floats;      /* state of ASSIGN; 0: none */
	enum pst_type wire;
	enum pst_type stored;    /* of ASSIGN: rows must be finite as the table stores them */
	enum pst_rule_kind rule; /* likewise: whose state it is */
	enum far_ps_miss miss;
	float rate;
	bool partial, dense;
	uint64_t timeout_ns, clock;
	uint32_t worker, members;     /* members: of BARRIER */
	char barrier[PSV_NAME_BYTES]; /* its name; of CALL: the function's */
	const uint64_t *keys;         /* NULL: those from `first_key` on */
	uint64_t first_key;
	size_t n;
	const float *in;    /* gradients or rows */
	const float *state; /* of ASSIGN */
	const float *fallback;
	float *out;
	uint8_t *status;
	struct far_ps_bags bags;      /* of BAGS; `out` and `status` are theirs */
	uint64_t *token;              /* of the caller; NULL */
	struct far_ps_schema *schema; /* CREATE: sent; CREATE and OPEN: set */
	const char *name;             /* CREATE, OPEN; [PSV_NAME_BYTES] */
	struct far_ps_stats *stats;
	const void *arg;    /* of CALL, as all to `errors` */
	uint32_t arg_bytes; /* `members` is the width */
	enum far_ps_reduce reduce;
	bool make;
	double *values;
	uint8_t *errors;
	uint32_t value_max;            /* of GET_VALUES and PUT_VALUES, as all below: of the table */
	const uint64_t *value_offsets; /* PUT_VALUES: [n + 1], of `arg` */
	char *value_out;               /* GET_VALUES: [n * stride] */
	size_t value_stride;
	uint32_t *value_lens; /* GET_VALUES: [n] */

	/* From here on psv_op.c's. */
	size_t all;                  /* positions of the operation; `n`: of this segment, if it has segments */
	size_t passed;               /* positions of the segments before */
	size_t passed_answered;      /* of these */
	struct psv_op *next, **link; /* in ps->changes */
	uint64_t first;              /* number of the first change of this round */
	uint64_t deadline_ns;        /* UINT64_MAX: none */
	struct far_future *done;
	const struct psv_view *view;    /* of this round */
	struct psv_block_memory memory; /* of the arrays of keys */
	struct psv_keys k;
	bool steps;             /* a pull whose first requests are sent before its last keys are looked at */
	const uint32_t *source; /* of operations with numbers, [distinct]: position of a key's numbers; from n on, they
				   are source - n of the sums */
	float *sums;            /* [sums_n * dim]: gradients of keys that come more than once */
	uint32_t sums_n;
	struct psv_block_memory sums_memory; /* of both; unless no keys are equal */
	uint8_t *key_status;                 /* [n] of the distinct keys, as those below */
	uint8_t *key_error;                  /* of CALL */
	bool *open;                          /* not answered yet, and to be sent */
	bool some_answered;                  /* else all are open */
	const char **row;                    /* of values and CALL: in the replies of this round; NULL: none */
	uint32_t *bag;  /* of BAGS; [n]: bag of a position. GET_VALUES: length of a key's value. PUT_VALUES: its
			   last position */
	float *missing; /* of BAGS; [bags]: weight of keys without a row */
	float *wide;    /* of BAGS; [dim]: a row of a reply */
	struct psv_division d;
	bool large;                           /* the chunks are small, and each slot has one at a time */
	size_t lane_bytes;                    /* memory that a slot's requests take by turns; 0: each has its own */
	uint32_t depth;                       /* chunks of a slot that are sent at once */
	bool parts;                           /* the chunks may be sent in several rounds */
	uint32_t from, to;                    /* chunks of this round */
	struct psv_block_memory round_memory; /* of the four below */
	struct far_target *targets;
	struct far_target_result *results;
	char *requests, *replies;
	uint32_t answered; /* shards, of operations without keys */
	bool again;        /* an answer was a newer view */
	bool more;         /* an answer lacks values that found no room in it */
	void *lanes;       /* [lanes_n], in round_memory */
	uint32_t lanes_n;
	pthread_mutex_t lanes_lock;  /* of psv_take() */
	_Atomic uint32_t lanes_left; /* that have not ended */
	struct far_err err;          /* first error of a server; status OK: none */
};

/** Begins an operation; `keys` are the caller's, unless the operation is on a range. INVALID. */
enum far_status psv_op_of(struct psv_op *op, const struct far_ps_table *t, enum psv_kind kind, const uint64_t *keys,
			  size_t n, struct far_future **future, struct far_err *err);
/** Starts an operation. `*future` is the caller's. Errors, with nothing sent: as the public functions. */
enum far_status psv_op_start(const struct psv_op *op, struct far_future **future, struct far_err *err);

/** Adopts a view that a peer sent, if it is later than the client's. False: it is no view, or not later than `than`. */
bool psv_adopt(struct far_ps *ps, const void *bytes, size_t len, uint64_t than);

void psv_ref(struct far_ps *ps);
void psv_unref(struct far_ps *ps);

#endif
