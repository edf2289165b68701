/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Training across workers: automatic differentiation through calls, optimizers and modules on other workers. Part of
 * libfarcall-train. Any thread, unless a function names another one.
 *
 * A worker makes a far_train and joins its group with far_train_init_rpc(). A context gathers the gradients of one
 * training step. Variables travel inside calls as values of the type far::Var, which far_context_send() makes and
 * far_tape_recv() reads; the context travels with them:
 *
 *   // on the worker "ps": "net::forward(far::Var x) -> far::Var", FAR_KIND_BLOCKING
 *   struct far_context *c = far_context_of(train, req, &args[0], &err);
 *   y = far_module_forward(net, tape, far_tape_recv(tape, c, &args[0]));
 *   far_tape_return(tape, c, y, req);
 *
 *   // on the trainer
 *   far_context_begin(train, &c, &err);
 *   struct far_val v = far_context_send(c, x, &err);
 *   far_rpc_sync(agent, "ps", "net::forward", &v, 1, NULL, &out, &err);
 *   loss = far_tape_cross_entropy(tape, far_tape_recv(tape, c, &out), target, FAR_OP_REDUCE_MEAN);
 *   far_backward(c, &loss, 1, NULL, 0, &err);
 *   far_dist_optimizer_step(optimizer, c, 0, &err);
 *   far_context_end(c);
 *
 * far_backward() follows the graph through the calls, on every worker that it leads to. Gradients of leaves stay on the
 * worker of the leaf, in its far_grads of the context.
 */
#ifndef FARCALL_TRAIN_H
#define FARCALL_TRAIN_H

#include <farcall/module.h>
#include <farcall/object.h>
#include <farcall/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

struct far_train;
struct far_context;
struct far_dist_optimizer;
struct far_compressor;

#define FAR_CONTEXTS_MAX         64   /* contexts that a worker has begun and not ended */
#define FAR_PARAMETERS_MAX       200  /* parameters of one optimizer on one worker */
#define FAR_COMPRESSOR_SLOTS_MAX 4096 /* slots of a compressor, of all workers that it sends to together */

/* ---- Start and stop: one application thread per agent ---- */

/**
 * Makes the state of an agent. Its variables, contexts, passes and gradients are memory of `pool`, received variables
 * of a pool of the process: a step whose shapes occurred before takes none from the system. Never blocks. RESOURCE.
 */
enum far_status far_train_new(struct far_pool *pool, struct far_train **out, struct far_err *err);
/**
 * far_init_rpc() with the type, the functions and the classes of this library in addition to those of `opts`, which may
 * be NULL. Handlers of `opts` may use `train`. Blocks as far_init_rpc(). INVALID: called before with this `train`.
 */
enum far_status far_train_init_rpc(struct far_train *train, const char *name, int rank, int world_size,
				   const struct far_opts *opts, struct far_agent **agent, struct far_err *err);
/** Frees the state and its contexts, after the agent was shut down. NULL: nothing. */
void far_train_free(struct far_train *train);

/** Contexts here, of this worker and of others, that have not ended. Any thread; never blocks. */
size_t far_train_contexts(struct far_train *train);

/* ---- Contexts: any thread; these never block ---- */

/**
 * Begins a context, for far_context_end(). Contexts are independent of each other; a thread may use several. End all
 * before far_shutdown(), which waits for the workers that hold them. RESOURCE: FAR_CONTEXTS_MAX.
 */
enum far_status far_context_begin(struct far_train *train, struct far_context **out, struct far_err *err);
/**
 * Ends a context, by the worker that began it, and drops the reference: every worker that received the context is
 * notified, and frees its graphs and gradients once the last reference there is dropped. NULL: nothing.
 */
void far_context_end(struct far_context *context);
/** The rank of the worker that began it << 48, plus a number: the next one for each context, from one that depends on
 * the worker's incarnation. */
uint64_t far_context_id(const struct far_context *context);
/**
 * The context of an id, on any worker, for far_context_free(). `req`: the request of a handler, which may run before
 * far_train_init_rpc() has returned; NULL elsewhere. A worker frees what it holds of a context when the
 * context ends or the worker that began it is lost. INVALID: the id is of no worker, or the context has ended.
 */
enum far_status far_context_find(struct far_train *train, const struct far_req *req, uint64_t id,
				 struct far_context **out, struct far_err *err);
/** The context that a value of type far::Var came with. NULL: an error, as far_context_find(); INVALID: `v` has none.
 */
struct far_context *far_context_of(struct far_train *train, const struct far_req *req, const struct far_val *v,
				   struct far_err *err);
/** Drops a reference of far_context_find() or far_context_of(). NULL: nothing. */
void far_context_free(struct far_context *context);
/** Gradients of the leaves of this worker. Valid as long as the context. */
struct far_grads *far_context_grads(struct far_context *context);

/** What this worker holds of a context. */
struct far_context_counts {
	uint64_t passes;   /* backward passes in progress */
	uint64_t sent;     /* variables that require a gradient and were sent */
	uint64_t received; /* likewise, received */
	/* Of all passes so far. */
	uint64_t gradients_sent; /* to other workers, those that are zero too */
	uint64_t messages_sent;  /* calls and answers that these travelled in */
	uint64_t bytes_sent;     /* of their elements and indices, as compressed */
	uint64_t bytes_copied;   /* of short received ones that waited for others or are kept; of those with several
				    owners */
	uint64_t bytes_kept;     /* of received ones that were taken with the memory of their request */
};
/** Reads them. */
void far_context_counts_read(struct far_context *context, struct far_context_counts *out);

/**
 * A variable as an argument or result of type far::Var. Valid as long as the reference to the context, which keeps
 * `var`. `context` NULL: a Tensor, without a gradient. NULL `var`, RESOURCE, INVALID (the context has ended): the value
 * is none.
 */
struct far_val far_context_send(struct far_context *context, struct far_var *var, struct far_err *err);
/**
 * The variable of a received value, of type far::Var, or of type Tensor: then without a gradient. The tape keeps it,
 * and its memory: `v` may be finished. NULL: an error, which the tape keeps. `context` NULL: without a gradient.
 */
struct far_var *far_tape_recv(struct far_tape *tape, struct far_context *context, const struct far_val *v);
/** Answers a request with far_context_send(), or with the error of the tape. */
enum far_status far_tape_return(struct far_tape *tape, struct far_context *context, struct far_var *var,
				struct far_req *req);

/* ---- Backward passes: any thread but an inline handler or a callback; these block ---- */

/**
 * Adds the gradients of the sum of roots[0, n) to the context, on each worker that the graph leads to. First each of
 * them receives the numbers of the variables whose gradients will come, and with them the short gradients for which no
 * other edge of the graph can be missing; then the other gradients flow. So a worker that is reached costs one call if
 * every variable that it sent was a result, and all that its caller received from it is in the pass; else two. A worker
 * from which the graph leads back to the root alone makes no call for that: its answer has the gradients. Results
 * that no root depends on cost no more than that. `timeout_ns`: as of a call, of the whole pass. Other workers run it
 * on fibers; parts with long computation, functions or hooks of the application run on their threads for blocking
 * handlers. Functions and hooks may make calls, also with variables of the context, and keep their thread meanwhile;
 * one that runs here when the pass ends with an error is awaited.
 *
 * A gradient is sent before any long computation, function or hook that could delay it. Those for one worker that are
 * ready by then share a call. A received gradient of 4 KiB or more is not copied: with it the memory of its request or
 * answer is kept, in the gradients of a leaf as long as they are. A shorter one is read where the request has it, and
 * copied if it is kept.
 *
 * Errors: as far_grads_backward(); the error of another worker, with "error on node N (NAME)" for each worker that its
 * call went through; PEER_LOST, with the node; TIMEOUT. The pass then ends on all workers, and some leaves have their
 * gradients and others do not. Another pass of the same context may follow.
 */
enum far_status far_backward(struct far_context *context, struct far_var *const *roots, size_t n,
			     const struct far_backward_opts *opts, uint64_t timeout_ns, struct far_err *err);
/** far_backward() from the variable of a reference, of type far::Var. INVALID: it is another value, or `context` is
 * NULL. */
enum far_status far_rref_backward(struct far_context *context, struct far_rref *rref,
				  const struct far_backward_opts *opts, uint64_t timeout_ns, struct far_err *err);

/* ---- Compression of gradients, off by default: any thread; these never block ----
 *
 * A worker may compress gradients that it sends to others: those of the variables that it received. The receivers make
 * gradients of the variable's dtype of them, without options of their own. Gradients of f32 and f64 are compressed,
 * others are sent as they are. If a receiver has a library without compression, the pass fails with NO_FUNCTION, and
 * the error names it. */

enum far_compression {
	/** Elements travel as bf16: rounded to nearest, ties to even; f64 by way of f32. NaN stays NaN; what rounds
	 * beyond the largest bf16 becomes infinite. Sparse gradients keep their indices. */
	FAR_COMPRESSION_BF16,
	/**
	 * Only the elements of greatest magnitude travel: ceil(fraction * n) of n, as values and i32 positions; of
	 * equal ones the first; NaN is the greatest. The others are added to the next gradient of the same slot (error
	 * feedback): what was sent for a slot plus what is left is the sum of its gradients, but for the rounding of
	 * these additions. Sparse gradients are sent as they are. What a pass that failed has sent is not sent again.
	 */
	FAR_COMPRESSION_TOP_K
};

/** Options of a compressor. */
struct far_compressor_opts {
	enum far_compression kind;
	double fraction;       /* TOP_K: of the elements, in (0, 1] */
	uint64_t elements_min; /* gradients of fewer elements are sent as they are */
	uint64_t reserved[4];  /* 0 */
};

/**
 * Makes a compressor, for gradients of any number of contexts: those of all training steps. It keeps what TOP_K has not
 * sent, in memory of `pool`, for each slot of each worker that it sends to. INVALID: no such kind, `fraction`,
 * `reserved`. RESOURCE.
 */
enum far_status far_compressor_new(struct far_pool *pool, const struct far_compressor_opts *opts,
				   struct far_compressor **out, struct far_err *err);
/** Drops the caller's reference; contexts and variables have their own. What was not sent is lost with the last. NULL:
 * nothing. */
void far_compressor_free(struct far_compressor *compressor);
/**
 * Compresses the gradients that this worker sends in the context, from now on; NULL: no longer. The slot of a gradient
 * is the number that the sender of its variable gave it: 1 for the first variable that it sent in the context. So
 * TOP_K needs workers that send the same variables in the same order in each context; for others there is
 * far_var_compress(). A gradient of another shape than the last one of its slot begins with nothing left.
 */
void far_context_compress(struct far_context *context, struct far_compressor *compressor);
/**
 * Compresses the gradient of one variable that far_tape_recv() made, in place of the context's compressor: for the
 * functions whose arguments or results these are. NULL: the context's. `slot`: any number, see far_context_compress().
 * Not during a pass. INVALID: the variable was not received, or without a gradient.
 */
enum far_status far_var_compress(struct far_var *var, struct far_compressor *compressor, uint64_t slot,
				 struct far_err *err);

/* ---- Parameters as references ----
 *
 * A parameter is an object of the class far::Parameter: a variable. Functions of the application with this result type
 * answer with far_return_object() of a variable, whose reference the object takes. Methods: "get(int context) ->
 * far::Var", with the context's id, and "value() -> Tensor". */

/** A reference to a variable of this worker, which it keeps; `*out` is the caller's to free. Never blocks. Errors: as
 * far_remote(). */
enum far_status far_var_rref(struct far_train *train, struct far_var *var, struct far_rref **out, struct far_err *err);

/* ---- Optimizers of parameters on several workers: any thread but an inline handler or a callback; these block ----
 *
 * `timeout_ns` is that of each call; 0: the agent's default. Errors include those of far_rpc_sync(). */

/**
 * Makes an optimizer of params[0, n), references to far::Parameter: one on each owner, all at once. It keeps references
 * of its own. `*out` is the caller's: far_dist_optimizer_free(). Errors, with the worker: as far_optimizer_new(),
 * TOO_LARGE (FAR_PARAMETERS_MAX), INVALID (a reference to something else).
 */
enum far_status far_dist_optimizer_new(struct far_train *train, const struct far_optimizer_opts *opts,
				       struct far_rref *const *params, size_t n, uint64_t timeout_ns,
				       struct far_dist_optimizer **out, struct far_err *err);
/** NULL: nothing. Never blocks. */
void far_dist_optimizer_free(struct far_dist_optimizer *optimizer);
/**
 * far_optimizer_step() on each owner with its gradients of the context: one call to each, all at once; two where a step
 * is the first of more than 8192 elements. Waits for all.
 * Errors: of the first that failed, with the worker's name; INVALID: the context has ended.
 */
enum far_status far_dist_optimizer_step(struct far_dist_optimizer *optimizer, struct far_context *context,
					uint64_t timeout_ns, struct far_err *err);
/** far_optimizer_set_lr() on each owner. Errors: as far_dist_optimizer_step(). */
enum far_status far_dist_optimizer_set_lr(struct far_dist_optimizer *optimizer, double lr, uint64_t timeout_ns,
					  struct far_err *err);

/* ---- Modules on other workers ----
 *
 * A remote module is an object of the class far::Module: a far_module. Functions of the application with this result
 * type answer with far_return_object() of a module, which the object then owns. A reference to it is the handle, and
 * may be passed on to any worker. Functions that block run on any thread but an inline handler or a callback.
 * `timeout_ns` is that of each call; 0: the agent's default. Errors include those of far_rpc_sync(). */

/** Creates a module: far_remote() of a constructor, and waits for it. `args` are copied; `*out` is the caller's to
 * free. INVALID: the result is no far::Module. Blocks. */
enum far_status far_remote_module_new(struct far_train *train, const char *to, const char *constructor,
				      const struct far_val *args, size_t n, uint64_t timeout_ns, struct far_rref **out,
				      struct far_err *err);
/** far_module_forward() of a remote module. NULL: an error, which the tape keeps. Blocks. */
struct far_var *far_remote_module_forward(struct far_rref *module, struct far_context *context, struct far_tape *tape,
					  struct far_var *x, uint64_t timeout_ns);
/** The same as a future, the caller's, of a value for far_tape_recv(). Never blocks. Errors: as far_rpc_async(). */
enum far_status far_remote_module_forward_async(struct far_rref *module, struct far_context *context, struct far_var *x,
						uint64_t timeout_ns, struct far_future **out, struct far_err *err);
/** The same of a reference to a far::Var, on any worker; the result stays on the worker of the module, and `*out` is
 * the caller's to free. Never blocks. Errors: as far_remote(). */
enum far_status far_remote_module_forward_rref(struct far_rref *module, struct far_rref *x, uint64_t timeout_ns,
					       struct far_rref **out, struct far_err *err);
/** Forward through modules[0, n), n > 0, one after the other: the values go from worker to worker. The result is a
 * variable of the tape; NULL: an error, which the tape keeps. Blocks. */
struct far_var *far_remote_module_chain(struct far_rref *const *modules, size_t n, struct far_context *context,
					struct far_tape *tape, struct far_var *x, uint64_t timeout_ns);
/** References to the parameters, in their order. Writes the first `capacity`, the caller's to free, and sets `*n` to
 * their number. Blocks. Errors: as far_rpc_sync(), RESOURCE. */
enum far_status far_remote_module_parameters(struct far_train *train, struct far_rref *module, uint64_t timeout_ns,
					     struct far_rref **out, size_t capacity, size_t *n, struct far_err *err);
/** far_module_train() of a remote module. Blocks. Errors: as far_rpc_sync(). */
enum far_status far_remote_module_train(struct far_rref *module, bool training, uint64_t timeout_ns,
					struct far_err *err);

#ifdef __cplusplus
}
#endif
#endif
