/* SPDX-License-Identifier: BSD-3-Clause */
/** Variables, and memory that tensors share. Any thread. */
#ifndef FAR_LIBTRAIN_VARIABLE_H
#define FAR_LIBTRAIN_VARIABLE_H

#include "fail.h"
#include "pool.h"

#include <stdatomic.h>

/* Memory of elements, shared by variables, views and nodes. */
struct store {
	_Atomic unsigned refs;
	_Atomic unsigned version; /* counts far_var_edit() and steps of optimizers */
	void *data;
	bool borrowed;               /* others may use it: it is not changed */
	void (*release)(void *user); /* of memory that is not of the pool; NULL: nothing to call */
	void *user;
};

/* A tensor that keeps its memory. Not to be copied: `t.strides` may point to `strides`. All zero: none. */
struct held {
	struct far_tensor t;
	int64_t strides[FAR_DIMS_MAX];
	struct store *store; /* NULL: dtype and shape alone */
	unsigned version;    /* of the store, when it was held */
};

/** `held` is none. Takes a reference to `store`. */
void held_set(struct held *held, const struct far_tensor *t, struct store *store);
/** Dtype and shape: a view of one zero, for operators that use only the shape of an input. */
void held_shape(struct held *held, const struct far_tensor *t);
/** A new dense tensor. False: no memory. */
bool held_new(struct held *held, struct far_pool *pool, enum far_dtype dtype, unsigned ndim, const uint64_t *shape);
/** A tensor whose memory `value` owns, and nothing else uses; takes `value`. False: no memory. */
bool held_take(struct held *held, struct far_pool *pool, struct far_val *value);
/** A tensor whose memory nothing else uses until `release`. False: no memory. */
bool held_adopt(struct held *held, struct far_pool *pool, const struct far_tensor *t, void (*release)(void *user),
		void *user);
void held_move(struct held *to, struct held *from);
void held_drop(struct held *held);
/** Nothing else refers to the memory, and it is dense: it may be changed or given away. */
bool held_is_own(const struct held *held);

bool tensor_is_float(const struct far_tensor *t);
bool tensor_is_dense(const struct far_tensor *t);
bool tensor_same_shape(const struct far_tensor *a, const struct far_tensor *b);
/** A dense tensor. */
struct far_tensor tensor_dense(enum far_dtype dtype, void *data, unsigned ndim, const uint64_t *shape);

struct hook {
	struct hook *next;
	enum far_hook_when when;
	unsigned output; /* of the node */
	far_hook_fn *run;
	void *user;
};

struct far_var {
	_Atomic unsigned refs;
	bool requires_grad;
	unsigned output; /* of the node */
	struct held value;
	struct node *node;  /* that made it and has its derivative; NULL: a leaf */
	struct hook *hooks; /* of a leaf */
	struct far_pool *pool;
	struct far_var *next; /* on its tape */
	/* Of a leaf that arrived from another worker: its gradient is sent there instead of being kept. */
	uint64_t sent_context; /* id of the context */
	uint64_t sent_id;      /* number of the sender; 0: it did not arrive so */
	int32_t sent_rank;
	_Atomic unsigned edges_in;         /* that were ever made to it */
	struct far_compressor *compressor; /* of that gradient; NULL: the context's */
	uint64_t compressor_slot;
};

/** A variable of `value`, which it takes over, with one reference. NULL: no memory; `value` stays the caller's. */
struct far_var *var_new(struct far_pool *pool, struct held *value);
void hooks_free(struct hook *hooks);

#endif
