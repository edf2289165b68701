/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The part of a backward pass on one worker. Any thread and fiber: none waits with context->lock, and code of the
 * application runs without it.
 *
 * A pass has two parts. First each worker that the graph leads to receives the numbers of the variables that it sent
 * and whose gradients will come (far::backward::expect); it follows its graph from them, and notifies further workers.
 * Then gradients flow against the calls (far::backward::gradient): a node runs once all of its gradients are there.
 * Both run on fibers.
 *
 * Parts that are light need no second one where the first shows all edges. A node runs in the first part if every
 * edge that was made to it on this worker is in the pass, and every variable of it that was sent is settled: it was
 * a result, so one worker has it, and that worker has announced all that it received from here. A leaf that stays
 * here runs if all variables that were sent are settled; one that another worker sent runs before its number is
 * sent, and its gradient goes with it. The answer of `expect` is whether anything waits for the second part, on the
 * workers that it reached; of those that reach a worker, the first one that is not answered says so of the worker
 * itself. To a request of the root, whose graph leads back to the root alone, the answer has those numbers and
 * gradients too, in place of a call. If nothing waits, the pass is over. Else the second part begins at the root,
 * and is passed on to the workers that have gradients of the first (far::backward::finish).
 *
 * Large gradients are received (far::backward::large), and a part that is not light computes (far::backward::run), on
 * threads for blocking handlers. One thread at a time runs a pass; what others deliver meanwhile, it runs too. It sends
 * gradients when they are ready: those that a computation leaves for the same worker are one call, and none waits for a
 * long computation. A call of either kind is answered when all calls that it made necessary are answered, or with the
 * first error of them. So the root returns when nothing is under way any more.
 */
#ifndef FAR_LIBTRAIN_SPREAD_H
#define FAR_LIBTRAIN_SPREAD_H

#include "task.h"

/* Of a request of the first part: its answer may carry gradients for the root, which sent it. */
#define FLAG_ANSWER 8

/* With context->lock, but for `id`. */
struct spread {
	struct spread *next;
	struct far_context *context;
	uint64_t id;     /* rank of the root << 48, plus a number */
	uint64_t serial; /* of the context's, unlike `id` never again */
	bool root;
	bool calls_self; /* of a root: its second part calls its own worker */
	unsigned users;  /* threads in it */
	/* First part: requests that are not answered; the one whose answer says whether anything waits here; whether a
	 * call from here was answered so. */
	unsigned open;
	const struct task *engaged;
	bool held;
	struct pass pass;
	bool running;       /* a thread runs the pass */
	struct sending *to; /* of that thread: what it sends meanwhile */
	size_t announced;   /* entries of the pass whose sender was notified */
	struct store loan;  /* memory of the request whose gradients are read there; not of the pool */
	struct outbox *outboxes;
	struct peer *peers;
};

/* ---- with context->lock ---- */

/** NULL: there is no such pass. */
struct spread *spread_find(struct far_context *context, uint64_t id);
/** A pass with these flags on the context's list. NULL: no memory. */
struct spread *spread_new(struct far_context *context, uint64_t id, int64_t flags);
/** Frees what was not sent. */
void outboxes_free(struct outbox *list);
/** The flags that the options of a pass travel as. */
int64_t spread_flags(const struct pass *pass);
/** Takes it off the list; it is freed when no thread is in it. */
void spread_remove(struct spread *s);
/** Frees what spread_remove() took off the list. */
void spread_free(struct spread *s);
/** Counts a worker that has no other variables from here, if the flags of its request say so. */
enum far_status spread_complete(struct spread *s, int32_t from, int64_t flags, struct far_err *err);
/** Follows the graph, runs what can run early, and writes to the outboxes: the numbers of what other workers sent, and
 * gradients. */
enum far_status spread_follow(struct spread *s, struct far_err *err);

/** The numbers of variables args[3], whose gradients will come, with flags args[2], from worker `from`, which may send
 * anything. */
enum far_status spread_expect(struct spread *s, const struct far_val *args, int32_t from, struct far_err *err);
/* The request that gradients come in, or the answer. */
struct delivery {
	const struct far_req *req; /* NULL: an answer */
	struct answered *answer;   /* NULL: a request */
	bool packed;               /* some may be compressed */
	struct store *loan; /* short ones refer to the memory of the request until spread_return(); NULL: none does */
};
/** The gradients of `list`, likewise. Runs nothing. */
enum far_status spread_deliver(struct spread *s, const struct far_val *list, const struct delivery *d,
			       struct far_err *err);
/** Copies what still refers to s->loan, the memory of the request. */
enum far_status spread_return(struct spread *s, struct far_err *err);

/* ---- with context->lock, which they drop meanwhile ---- */

/* The calls of a step. */
struct sending {
	struct task *task;
	uint64_t context, pass;
	uint64_t timeout_ns, started_ns; /* 0: the step is short */
	int64_t flags;
	const struct far_req *req; /* that is served; NULL: of the root */
};

/** Leaves what is in the outboxes to the answer of the task's request if it is all for worker `to`. */
enum far_status spread_send_back(struct spread *s, struct task *task, int32_t to, struct far_err *err);
/** Sends what is in the outboxes. INVALID: the pass has ended meanwhile. */
enum far_status spread_send(struct spread *s, const struct sending *to, struct far_err *err);
/** Begins the second part here, and prepares to begin it where no gradient will. Once: nothing the next time. */
enum far_status spread_start(struct spread *s, struct far_err *err);
/** Runs what is ready, unless a thread does: that one does then. */
enum far_status spread_run(struct spread *s, struct sending *to, struct far_err *err);
/** Runs what is ready on a thread for blocking handlers, likewise. */
enum far_status spread_run_elsewhere(struct spread *s, const struct sending *to, struct far_err *err);

/** Counts a request of the first part. */
void spread_engage(struct spread *s, struct task *task);
/** Counts its answer; returns whether something waits for the second part, there or here. Takes context->lock. */
bool spread_answer(const struct task *task);
/** Answers the task's request with a list: whether something waits, flags, numbers of variables, gradients. */
void spread_answer_list(struct task *task, bool held);

/* ---- with context->lock, which they drop ---- */

/** Ends a pass that failed, here and on the workers that it has reached from here. */
void spread_abort(struct spread *s, struct far_agent *agent);

typedef enum far_status spread_step_fn(struct spread *s, struct sending *to, const struct far_val *args,
				       struct far_err *err);
/** Does a step of the pass. The task's own part is done then. */
void spread_step(struct spread *s, struct task *task, uint64_t timeout_ns, spread_step_fn *step,
		 const struct far_val *args, const struct far_req *req);

#endif
