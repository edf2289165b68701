/* SPDX-License-Identifier: BSD-3-Clause */
/** A request at a shard, from its checks to its answer: what the files of the server share. The thread that polls the
 * shard. */
#ifndef PSV_JOB_H
#define PSV_JOB_H

#include "psv_env.h"
#include "psv_shard.h"

/* A request that has been checked. */
struct psv_job {
	const struct psv_request *q;
	struct far_to from;
	struct psv_table *t;
	const uint64_t *keys;
	const void *numbers;
	const float *scales;
	const float *state;
	const uint32_t *offsets; /* of BAGS */
	const float *weights;    /* of BAGS; NULL: 1 */
	const char *name;        /* of a table, barrier or function */
	const void *arg;         /* of CALL */
	const struct psv_schema *schema;
	const char *rows;         /* of RESTORE; state and ages follow */
	const uint32_t *value_at; /* of PUT_VALUES and RESTORE of values: [n + 1] offsets of the values */
	const char *values;       /* of PUT_VALUES */
	uint64_t now_ns, now_ms;
	bool stale; /* the answer is the view */
	char *made; /* of LIST, SCAN, HOT, CALL, GET_VALUES: the reply without its head and statuses */
	size_t made_len;
	uint64_t made_count;
};

/* Where an answer goes: to the request in its handler, or to one that waited. */
struct psv_reply_to {
	struct far_req *req;
	struct far_deferred *reply;
	struct far_to from; /* of the request */
};

/** NULL: the shard has no such table. */
struct psv_table *psv_find_table(struct psv_shard *s, uint64_t id);

/* psv_check.c */

/** Checks a request of `len` bytes and sets what `*j` refers to in it. `j->q` and `j->now_ms` are set before. */
enum far_status psv_check(struct psv_shard *s, struct psv_job *j, size_t len, struct far_err *err);

/* psv_shard.c */

/** Serves a request and answers it. True: it advanced a clock or dropped a table, so that others may go on. */
bool psv_serve(struct psv_shard *s, const void *data, size_t len, const struct psv_reply_to *a);

/* psv_clock.c */

/** Serves CLOCK. The worker is no longer excused. */
enum far_status psv_clock_advance(struct psv_shard *s, const struct psv_job *j, struct far_err *err);
/** Excuses workers whose member is lost. */
void psv_clocks_look(struct psv_shard *s);

/* psv_rows.c */

/** Set `j->made`, which is free()d by the caller, but for that of a scan, which is the shard's. */
enum far_status psv_rows_list(struct psv_shard *s, struct psv_job *j, struct far_err *err);
enum far_status psv_rows_get(struct psv_shard *s, struct psv_job *j, struct far_err *err);
enum far_status psv_rows_hot(struct psv_job *j, struct far_err *err);
enum far_status psv_rows_scan(struct psv_shard *s, struct psv_job *j, struct far_err *err);
/** Ends the cuts of a table that were not read since a time (UINT64_MAX: all). */
void psv_cuts_end(struct psv_shard *s, struct psv_table *t, uint64_t used_before_ns);
/** Ends the cuts whose readers are silent. */
void psv_cuts_look(struct psv_shard *s);
enum far_status psv_rows_restore(struct psv_shard *s, const struct psv_job *j, struct far_err *err);

/* psv_run.c */

/** Serve CALL and CALL_READ: set `j->made` and the statuses. The second one: of a request that was applied before. */
enum far_status psv_run(struct psv_shard *s, struct psv_job *j, struct far_err *err);
enum far_status psv_run_again(struct psv_shard *s, struct psv_job *j, struct far_err *err);
/** Finds the optimizer of a table of the user's rule, and puts it into `*rule`. NO_FUNCTION, INVALID. */
enum far_status psv_rule_bind(const struct psv_shard *s, struct psv_table *t, const struct far_ps_schema *schema,
			      struct pst_rule *rule, struct far_err *err);
/** Holds it for a push. NO_FUNCTION, INVALID. */
enum far_status psv_rule_hold(const struct psv_shard *s, const struct psv_table *t, struct far_err *err);
void psv_rule_release(const struct psv_table *t);

/* psv_reply.c */

size_t psv_job_bytes(const struct psv_job *j, const struct psv_shard *s);
/** Writes the reply, of psv_job_bytes(). */
void psv_job_fill(struct psv_shard *s, const struct psv_job *j, void *reply);
void psv_reply_fail(const struct psv_reply_to *a, const struct far_err *err);

/* psv_wait.c */

/** True for a request that is to wait: its view is newer than this one, or a clock is behind. */
bool psv_must_wait(struct psv_shard *s, const struct psv_request *q);
/** Keeps a copy of a request; one that comes to a barrier may end the wait of others there. */
void psv_park(struct psv_shard *s, struct far_req *req, const void *data, size_t len);
/** Answers the requests that need not wait any more, and those whose time is over. */
void psv_wake(struct psv_shard *s);
/** Answer a request that has waited, and free it. True: others may go on. */
bool psv_waiter_serve(struct psv_shard *s, struct psv_waiter *w);
void psv_waiter_fail(struct psv_shard *s, struct psv_waiter *w, const struct far_err *err);

#endif
