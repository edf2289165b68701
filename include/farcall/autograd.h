/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Automatic differentiation over <farcall/ops.h>: variables, a tape that records operators, gradients. A library of its
 * own with <farcall/optim.h> and <farcall/module.h>: libfarcall-train.
 *
 *   far_tape_reset(tape);
 *   far_grads_clear(grads);
 *   struct far_var *y = far_tape_linear(tape, far_tape_input(tape, &x), w, bias);
 *   struct far_var *loss = far_tape_cross_entropy(tape, y, far_tape_input(tape, &target), FAR_OP_REDUCE_MEAN);
 *   if (far_tape_status(tape, &err) || far_grads_backward(grads, &loss, 1, NULL, &err))
 *           return far_err_print(stderr, &err);
 *
 * A variable is a tensor and its place in a graph. A leaf is made by far_var_new() or far_var_borrow(); parameters are
 * leaves that require a gradient. A far_tape_…() operator makes a variable from others and, if one of them requires a
 * gradient, a node of the graph with the operator's derivative. far_grads_backward() follows the nodes from the roots
 * to the leaves. Gradients are kept apart from variables, in a far_grads, which maps leaves to gradients: several
 * passes of different threads over the same parameters do not disturb each other.
 *
 * Thread: variables, pools and gradients may be used by several threads at once, a tape by one at a time. Several
 * passes may follow a node at once; one of them without retain_graph, and it frees the node. No function blocks, but
 * for the short locks of pools and gradients.
 *
 * Memory comes from a pool, which keeps freed blocks: a training step whose shapes occurred before allocates nothing
 * from the system.
 *
 * dtypes and errors are those of <farcall/ops.h>; RESOURCE also: the limit of the pool, or no memory.
 */
#ifndef FARCALL_AUTOGRAD_H
#define FARCALL_AUTOGRAD_H

#include <farcall/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

struct far_pool;
struct far_var;
struct far_tape;
struct far_grads;

/* ---- Pools: any thread ---- */

/** `limit_bytes`: memory that the pool takes from the system at most; 0: no limit. */
enum far_status far_pool_new(size_t limit_bytes, struct far_pool **out, struct far_err *err);
/** Returns unused memory to the system, and the rest with the last object that was made from the pool. NULL: nothing.
 */
void far_pool_free(struct far_pool *pool);

struct far_pool_stats {
	size_t used_bytes;        /* in objects, with the rounding of their sizes */
	size_t held_bytes;        /* taken from the system */
	uint64_t system_requests; /* allocations from the system since far_pool_new() */
};
/** Reads what a pool holds. */
void far_pool_get_stats(struct far_pool *pool, struct far_pool_stats *out);

/* ---- Variables: any thread ---- */

/** Makes a leaf with memory of its own: a copy of `t`, zeros if t->data is NULL. F if it requires a gradient. */
enum far_status far_var_new(struct far_pool *pool, const struct far_tensor *t, bool requires_grad, struct far_var **out,
			    struct far_err *err);
/**
 * Makes a leaf in memory of the caller: t->data, which is valid until `release` (NULL: nothing to call) is called with
 * `user`, by the thread that drops the last reference. It is not called if this function fails.
 */
enum far_status far_var_borrow(struct far_pool *pool, const struct far_tensor *t, bool requires_grad,
			       void (*release)(void *user), void *user, struct far_var **out, struct far_err *err);
/** Adds a reference, for far_var_free(), and returns `var`: keeps a variable beyond far_tape_reset(). */
struct far_var *far_var_ref(struct far_var *var);
/** Drops a reference. NULL: nothing. */
void far_var_free(struct far_var *var);

/** Valid as long as the variable. Not to be written through. */
const struct far_tensor *far_var_tensor(const struct far_var *var);
bool far_var_requires_grad(const struct far_var *var);
/** No operator made it from variables that require a gradient. */
bool far_var_is_leaf(const struct far_var *var);
/** Value of a variable with one element, as f64. NaN: NULL, another number of elements, or not F. */
double far_var_scalar(const struct far_var *var);
/** `*out`: the tensor of a leaf, to be written until the next operator reads it. A graph that saved the old value has
 * no derivative any more: far_grads_backward() fails. INVALID: not a leaf. */
enum far_status far_var_edit(struct far_var *var, struct far_tensor *out, struct far_err *err);

/** A gradient of a variable. */
struct far_gradient {
	struct far_tensor values; /* dense; index.dtype not NONE: [n, width], rows of a table */
	struct far_tensor index;  /* dtype NONE: `values` has the variable's shape. Else i64 [n], may repeat */
};

enum far_hook_when {
	FAR_HOOK_BEFORE, /* the gradient of this pass is complete: the hook may change the elements of `values` */
	FAR_HOOK_AFTER   /* of a leaf: the gradient was added to the far_grads, and is the sum there */
};
/** Runs on the thread of the pass. Any status but FAR_OK ends the pass with this error. It may wait and make calls, and
 * holds no lock; gradients that other passes add meanwhile are not in `gradient`. */
typedef enum far_status far_hook_fn(void *user, struct far_var *var, struct far_gradient *gradient,
				    struct far_err *err);
/**
 * Adds a hook, which stays as long as the leaf or the node that made the variable. Hooks run in their order of
 * addition. `var` of the hook is NULL unless it is a leaf. Not during a pass. INVALID: the variable requires no
 * gradient, or FAR_HOOK_AFTER on one that is not a leaf.
 */
enum far_status far_var_hook(struct far_var *var, enum far_hook_when when, far_hook_fn *hook, void *user,
			     struct far_err *err);

/* ---- Tapes: one thread at a time ----
 *
 * A tape owns a reference to each variable that its operators made, until far_tape_reset(). The graph does not depend
 * on the tape: a variable that far_var_ref() keeps has its derivative, and may be an operand on another tape.
 *
 * Operators return NULL after an error. The tape keeps the first error; operators then do nothing and return NULL, so
 * one check after the last operator is enough. */

/** Makes a tape, whose variables take their memory from `pool`. RESOURCE. */
enum far_status far_tape_new(struct far_pool *pool, struct far_tape **out, struct far_err *err);
/** Frees a tape and its references to variables. NULL: nothing. */
void far_tape_free(struct far_tape *tape);
/** Drops the variables and the error. */
void far_tape_reset(struct far_tape *tape);
/** The first error since the last reset. */
enum far_status far_tape_status(const struct far_tape *tape, struct far_err *err);
/** Makes `err` the error of the tape unless it has one: of functions that use the tape. */
void far_tape_fail(struct far_tape *tape, const struct far_err *err);
/** Whether operators record their derivatives; true at first. Returns what it was. */
bool far_tape_record(struct far_tape *tape, bool on);
struct far_pool *far_tape_pool(struct far_tape *tape);

/** A tensor of the caller, without a gradient. It must not change until the last use of the graph. */
struct far_var *far_tape_input(struct far_tape *tape, const struct far_tensor *t);
/** A scalar, without a gradient. */
struct far_var *far_tape_constant(struct far_tape *tape, enum far_dtype dtype, double value);
/** The same value, without its graph. */
struct far_var *far_tape_detach(struct far_tape *tape, struct far_var *x);

/* ---- Operators: as far_op_…() of the same name; every input of F may require a gradient ---- */

/** Element-wise, of two variables that broadcast. */
struct far_var *far_tape_add(struct far_tape *tape, struct far_var *a, struct far_var *b);
struct far_var *far_tape_sub(struct far_tape *tape, struct far_var *a, struct far_var *b);
struct far_var *far_tape_mul(struct far_tape *tape, struct far_var *a, struct far_var *b);
struct far_var *far_tape_div(struct far_tape *tape, struct far_var *a, struct far_var *b);
struct far_var *far_tape_min(struct far_tape *tape, struct far_var *a, struct far_var *b);
struct far_var *far_tape_max(struct far_tape *tape, struct far_var *a, struct far_var *b);
/** Element-wise, of one variable. */
struct far_var *far_tape_neg(struct far_tape *tape, struct far_var *x);
struct far_var *far_tape_relu(struct far_tape *tape, struct far_var *x);
struct far_var *far_tape_sigmoid(struct far_tape *tape, struct far_var *x);
struct far_var *far_tape_tanh(struct far_tape *tape, struct far_var *x);
struct far_var *far_tape_exp(struct far_tape *tape, struct far_var *x);
struct far_var *far_tape_log(struct far_tape *tape, struct far_var *x);
struct far_var *far_tape_sqrt(struct far_tape *tape, struct far_var *x);
struct far_var *far_tape_scale(struct far_tape *tape, struct far_var *x, double factor);

/** axes[0, n); n 0: all. */
struct far_var *far_tape_sum(struct far_tape *tape, struct far_var *x, const int *axes, size_t n, bool keep);
struct far_var *far_tape_mean(struct far_tape *tape, struct far_var *x, const int *axes, size_t n, bool keep);
/** `index`: the positions, without a gradient; NULL: not wanted. */
struct far_var *far_tape_min_axis(struct far_tape *tape, struct far_var *x, int axis, bool keep,
				  struct far_var **index);
struct far_var *far_tape_max_axis(struct far_tape *tape, struct far_var *x, int axis, bool keep,
				  struct far_var **index);
struct far_var *far_tape_softmax(struct far_tape *tape, struct far_var *x, int axis);
struct far_var *far_tape_log_softmax(struct far_tape *tape, struct far_var *x, int axis);

/** Losses: far_op_cross_entropy() and its relatives. `target` has no gradient in cross_entropy. */
struct far_var *far_tape_cross_entropy(struct far_tape *tape, struct far_var *x, struct far_var *target,
				       enum far_op_reduction reduction);
struct far_var *far_tape_bce_with_logits(struct far_tape *tape, struct far_var *x, struct far_var *target,
					 enum far_op_reduction reduction);
struct far_var *far_tape_mse(struct far_tape *tape, struct far_var *a, struct far_var *b,
			     enum far_op_reduction reduction);

/** Product of the last two dimensions. */
struct far_var *far_tape_matmul(struct far_tape *tape, struct far_var *a, struct far_var *b);
/** `bias` may be NULL. */
struct far_var *far_tape_linear(struct far_tape *tape, struct far_var *x, struct far_var *w, struct far_var *bias);
/** `bias` and `conv` may be NULL. */
struct far_var *far_tape_conv2d(struct far_tape *tape, struct far_var *x, struct far_var *w, struct far_var *bias,
				const struct far_op_conv *conv);

/** Parameters of a cell, see struct far_op_cell. */
struct far_cell {
	struct far_var *w_input, *w_hidden;
	struct far_var *bias_input, *bias_hidden; /* NULL: none */
};
/** Returns h', and c' in `*c_next`. */
struct far_var *far_tape_lstm_cell(struct far_tape *tape, struct far_var *x, struct far_var *h, struct far_var *c,
				   const struct far_cell *cell, struct far_var **c_next);
struct far_var *far_tape_gru_cell(struct far_tape *tape, struct far_var *x, struct far_var *h,
				  const struct far_cell *cell);

/** `sparse`: the gradient of a leaf `w` has the rows of `index` alone; of another `w` it is dense. */
struct far_var *far_tape_embedding(struct far_tape *tape, struct far_var *w, struct far_var *index, bool sparse);
struct far_var *far_tape_embedding_bag(struct far_tape *tape, struct far_var *w, struct far_var *index,
				       struct far_var *offsets, enum far_op_bag mode, bool sparse);

/** Copies a view first, unlike far_op_reshape(). */
struct far_var *far_tape_reshape(struct far_tape *tape, struct far_var *x, unsigned ndim, const uint64_t *shape);
struct far_var *far_tape_transpose(struct far_tape *tape, struct far_var *x, int axis_a, int axis_b);
struct far_var *far_tape_slice(struct far_tape *tape, struct far_var *x, int axis, uint64_t start, uint64_t stop,
			       uint64_t step);
struct far_var *far_tape_expand(struct far_tape *tape, struct far_var *x, unsigned ndim, const uint64_t *shape);
/** Converts; the gradient has the dtype of `x`. */
struct far_var *far_tape_cast(struct far_tape *tape, struct far_var *x, enum far_dtype dtype);
struct far_var *far_tape_cat(struct far_tape *tape, struct far_var *const *xs, size_t n, int axis);
struct far_var *far_tape_dropout(struct far_tape *tape, struct far_var *x, double p, uint64_t seed, uint64_t stream);

/* ---- Functions of the application ---- */

#define FAR_FUNCTION_INPUTS_MAX  16
#define FAR_FUNCTION_OUTPUTS_MAX 8

/** A function with its derivative. Must exist as long as graphs that use it. `user` is the last member. */
struct far_tape_function {
	const char *name;
	/**
	 * Computes out[0, m) of in[0, n). out[i]->dtype of FAR_DTYPE_NONE requests dtypes and shapes of all outputs, as
	 * in <farcall/ops.h>. An input may be NULL if the caller passed NULL. Any status but FAR_OK fails the tape.
	 */
	enum far_status (*forward)(void *user, const struct far_tensor *const *in, size_t n,
				   struct far_tensor *const *out, size_t m, struct far_err *err);
	/**
	 * Writes dx[0, n), dense and zero before: the gradients of the inputs; NULL: not wanted. grads[i] NULL: the
	 * gradient of output i is zero. NULL instead of the function: it has no derivative, and a pass that reaches it
	 * fails with UNSUPPORTED.
	 */
	enum far_status (*backward)(void *user, const struct far_tensor *const *grads, size_t m,
				    const struct far_tensor *const *in, size_t n, const struct far_tensor *const *out,
				    struct far_tensor *const *dx, struct far_err *err);
	void *user;
};
/** Applies a function to inputs[0, n), n at most FAR_FUNCTION_INPUTS_MAX. Sets outs[0, m), all NULL after an error. */
enum far_status far_tape_apply(struct far_tape *tape, const struct far_tape_function *function,
			       struct far_var *const *inputs, size_t n, struct far_var **outs, size_t m);

/* ---- Gradients: any thread ---- */

/** Makes an empty set of gradients, whose memory is from `pool`. RESOURCE. */
enum far_status far_grads_new(struct far_pool *pool, struct far_grads **out, struct far_err *err);
/** Frees a set of gradients. NULL: nothing. */
void far_grads_free(struct far_grads *grads);
/** Forgets all gradients. */
void far_grads_clear(struct far_grads *grads);

struct far_backward_opts {
	bool retain_graph;  /* keep what the derivatives need for another pass */
	bool allow_changed; /* use values that far_var_edit() or an optimizer changed since the operator saw them */
};
/**
 * Adds the gradients of the sum of roots[0, n) to those in `grads`, of all leaves that require one. Frees what the
 * nodes saved unless `opts` (NULL: all false) retains it. INVALID: no roots; a root requires no gradient, has not one
 * element, or is a leaf; the graph was freed by an earlier pass; a saved value was changed. UNSUPPORTED: a function has
 * no derivative. After an error some leaves have their gradients and others do not.
 */
enum far_status far_grads_backward(struct far_grads *grads, struct far_var *const *roots, size_t n,
				   const struct far_backward_opts *opts, struct far_err *err);
/** The gradient of a leaf, valid until it changes. False: it has none. */
bool far_grads_get(struct far_grads *grads, const struct far_var *var, struct far_gradient *out);
/** Adds a copy of a gradient, with the variable's dtype. INVALID: it does not fit the variable. */
enum far_status far_grads_add(struct far_grads *grads, struct far_var *var, const struct far_gradient *gradient,
			      struct far_err *err);
/** Leaves that have a gradient. */
size_t far_grads_count(struct far_grads *grads);

#ifdef __cplusplus
}
#endif
#endif
