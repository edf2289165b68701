/* SPDX-License-Identifier: BSD-3-Clause */
/** Nodes of the graph: an operator that was applied, with the values that its derivative needs. Any thread. */
#ifndef FAR_LIBTRAIN_NODE_H
#define FAR_LIBTRAIN_NODE_H

#include "variable.h"

#define NODE_OUTPUTS_MAX FAR_FUNCTION_OUTPUTS_MAX
#define NODE_INPUTS      16 /* more need memory of their own */

/* Parameters of operators; each uses the ones that it needs. */
struct params {
	int axis, axis_b;
	int axes[FAR_DIMS_MAX];
	unsigned ndim; /* of `axes` and `shape` */
	bool keep, sparse;
	int mode; /* enum far_op_reduction, enum far_op_bag, enum far_dtype */
	double factor;
	uint64_t seed, stream;
	uint64_t start, stop, step;
	uint64_t shape[FAR_DIMS_MAX];
	struct far_op_conv conv;
	const struct far_tape_function *function;
};

/* A call of an operator or of its derivative. */
struct call {
	const struct params *p;
	const struct far_tensor *const *in; /* [n]; NULL: an optional one that is missing */
	size_t n;
	struct far_tensor *const *out; /* [m]; inputs of a derivative, which may have a shape alone */
	size_t m;
	bool saved;                           /* forward: a derivative is recorded */
	const struct far_tensor *const *grad; /* [m]; NULL: zero */
	struct far_tensor *const *dx;         /* [n], dense; NULL: not wanted */
	struct far_op_work *work;
	int64_t *strides; /* of a view */
};
typedef enum far_status call_fn(const struct call *c, struct far_err *err);

/* A gradient on its way. */
struct gradient {
	struct held values;
	struct held index; /* dtype NONE: dense */
	bool set;
};
void gradient_drop(struct gradient *g);
void gradient_move(struct gradient *to, struct gradient *from);

struct node;
/** Derivative that makes the gradients dx[i] of wanted inputs itself: shared, views or sparse ones. */
typedef enum far_status share_fn(struct node *node, const struct gradient *grads, struct gradient *dx,
				 struct far_err *err);

#define SAVE_ALL UINT16_MAX
struct op {
	const char *name;
	call_fn *forward;
	call_fn *backward; /* NULL and no `share`: there is no derivative */
	share_fn *share;
	/* Bits of the inputs and outputs whose values the derivative reads; of others it gets dtype and shape. */
	uint16_t saves_in, saves_out;
	bool view; /* the output shares the memory of input 0 */
	bool even; /* of two inputs that are one variable, both have the same derivative */
};

/* To the maker of an input. All NULL: the input requires no gradient. */
struct edge {
	struct node *node; /* referred to */
	struct far_var *leaf;
	unsigned output;
};

struct node {
	_Atomic unsigned refs;
	_Atomic unsigned use;      /* passes in it, and NODE_FREED */
	_Atomic unsigned edges_in; /* that were ever made to it */
	unsigned n, m;             /* inputs, outputs */
	struct node *next;         /* of those to be freed */
	const struct op *op;
	struct far_pool *pool;
	struct hook *hooks;
	struct params p;
	struct edge *edges;    /* [n] */
	struct held *in, *out; /* [n], [m] */
};

/** Nothing is saved, no edge is set. NULL: no memory. */
struct node *node_new(struct far_pool *pool, const struct op *op, const struct params *p, unsigned n, unsigned m);
void node_ref(struct node *node);
void node_unref(struct node *node);
#define NODE_FREED (1u << 31) /* a pass without retain_graph has the saved values, and drops them */

/** A pass begins to use the saved values, the last one to do so if it `frees` them. False: they are freed. */
bool node_enter(struct node *node, bool frees);
/** It ends. `keeps`: it was to free them, and failed. */
void node_leave(struct node *node, bool keeps);
void node_link(struct node *node, unsigned input, struct far_var *var);

const char *node_name(const struct node *node);
struct hook **node_hooks(struct node *node);

/** Whether the derivative of input `i` is wanted. */
static inline bool node_wants(const struct node *node, size_t i)
{
	return node->edges[i].node || node->edges[i].leaf;
}

#endif
