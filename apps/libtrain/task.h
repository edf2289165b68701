/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls that one call makes necessary, and its answer after them. Any thread. */
#ifndef FAR_LIBTRAIN_TASK_H
#define FAR_LIBTRAIN_TASK_H

#include "train.h"

#define RANK_HERE (-1) /* a call to this worker, which the texts of errors do not name */

struct task;
struct outbox;

/* The answer of a call with gradients for the root. Memory of the pool. */
struct answered {
	struct answered *next;
	_Atomic unsigned refs; /* one of the list, one of each gradient that keeps it */
	int32_t rank;
	struct far_val value; /* see spread_answer_list() */
};

/* A call of a task. */
struct child {
	struct task *task;
	int32_t rank;
	const char *function;
};

struct task {
	struct far_pool *pool;
	struct far_agent *agent;
	pthread_mutex_t lock;
	unsigned open;         /* calls, and one of the maker */
	_Atomic unsigned refs; /* one of the open ones, one of the root */
	bool answered;
	struct far_deferred *request; /* of a handler; NULL: the root's future */
	struct far_future *root;
	bool held; /* a call was answered so: something waits for the second part of the pass */
	/* Of a request of the first part, whose answer is whether something waits; NULL: another. */
	struct far_context *context;
	uint64_t pass, serial;
	struct outbox *back;      /* goes with the answer of a request; NULL: nothing */
	struct answered *answers; /* of the root's calls */
	struct answered *reads;   /* by the root, in its step; NULL: none */
	struct child first;       /* most tasks have no other; `task` NULL: none yet */
};

/** The task of a handler's request, or of the root's future, which has a reference to it too; the other is NULL. NULL:
 * no memory. */
struct task *task_new(struct far_pool *pool, struct far_agent *agent, struct far_deferred *request,
		      struct far_future *root);
/** One of `open` is done. The last one, or the first with an error, answers; the last one drops a reference. */
void task_done(struct task *task, enum far_status status, const struct far_err *err);
/** Takes the answers of a task that is done, and drops the root's reference. */
struct answered *task_take_answers(struct task *task);
void answered_free(struct answered *list);
/** Drops a reference to one answer. */
void answered_unref(void *answered);
/** A moment, in which a fiber leaves its shard to others. Errors: as far_future_wait(). */
enum far_status task_nap(struct far_err *err);
/** Calls `function` on a worker, or RANK_HERE, for a task. Waits while the queue is full. */
enum far_status task_call(struct task *task, int32_t rank, const char *function, const struct far_val *args, size_t n,
			  uint64_t timeout_ns, struct far_err *err);

#endif
