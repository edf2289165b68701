/* SPDX-License-Identifier: BSD-3-Clause */
/** Embeddings on a tape, with dense or sparse gradients. One thread at a time. */
#include "rows.h"
#include "tape.h"

/** The sparse gradient of `table`: rows and their indices. */
static enum far_status take_rows(struct node *node, struct held *rows, struct gradient *dx, struct far_err *err)
{
	const struct held *index = &node->in[1];
	uint64_t n = far_tensor_count(&index->t);
	/* Consecutive indices: the shape of `index` is not kept. */
	if (!held_new(&dx->index, node->pool, FAR_I64, index->t.ndim, index->t.shape))
		return fail_memory(err, node->op->name, n * sizeof(int64_t));
	TRY(far_op_copy(&index->t, &dx->index.t, err));
	dx->index.t = tensor_dense(FAR_I64, dx->index.t.data, 1, &n);
	held_move(&dx->values, rows);
	dx->values.t = tensor_dense((enum far_dtype)dx->values.t.dtype, dx->values.t.data, 2,
				    (uint64_t[]){n, node->in[0].t.shape[1]});
	dx->set = true;
	return FAR_OK;
}

/** Makes the gradient dense unless the table is a leaf whose gradient may be sparse. */
static enum far_status finish(struct node *node, struct gradient *dx, struct far_err *err)
{
	if (node->p.sparse && node->edges[0].leaf)
		return FAR_OK;
	return rows_to_dense(node->pool, node->op->name, dx, &node->in[0].t, err);
}

/* ---- embedding ---- */

static enum far_status embedding_forward(const struct call *c, struct far_err *err)
{
	return far_op_embedding(c->in[0], c->in[1], c->out[0], err);
}

static enum far_status embedding_share(struct node *node, const struct gradient *grads, struct gradient *dx,
				       struct far_err *err)
{
	const struct held *grad = &grads->values;
	struct held rows = {0};
	if (tensor_is_dense(&grad->t)) {
		held_set(&rows, &grad->t, grad->store);
	} else {
		if (!held_new(&rows, node->pool, (enum far_dtype)grad->t.dtype, grad->t.ndim, grad->t.shape))
			return fail_memory(err, node->op->name, far_tensor_bytes(&grad->t));
		far_op_copy(&grad->t, &rows.t, NULL);
	}
	enum far_status status = take_rows(node, &rows, dx, err);
	held_drop(&rows);
	return status ? status : finish(node, dx, err);
}

struct far_var *far_tape_embedding(struct far_tape *tape, struct far_var *w, struct far_var *index, bool sparse)
{
	static const struct op op = {"embedding", embedding_forward, NULL, embedding_share, 2, 0, false};
	return tape_one(tape, &op, &(struct params){.sparse = sparse}, (struct far_var *[]){w, index}, 2);
}

/* ---- bags ---- */

static enum far_status bag_forward(const struct call *c, struct far_err *err)
{
	return far_op_embedding_bag(c->in[0], c->in[1], c->in[2], (enum far_op_bag)c->p->mode, c->out[0], err);
}

static enum far_status bag_share(struct node *node, const struct gradient *grads, struct gradient *dx,
				 struct far_err *err)
{
	struct held rows = {0};
	uint64_t shape[2] = {node->in[1].t.shape[0], node->in[0].t.shape[1]};
	if (!held_new(&rows, node->pool, (enum far_dtype)node->in[0].t.dtype, 2, shape))
		return fail_memory(err, node->op->name, shape[0] * shape[1]);
	enum far_status status = far_op_embedding_bag_backward(&grads->values.t, &node->in[1].t, &node->in[2].t,
							       (enum far_op_bag)node->p.mode, &rows.t, err);
	if (!status)
		status = take_rows(node, &rows, dx, err);
	held_drop(&rows);
	return status ? status : finish(node, dx, err);
}

struct far_var *far_tape_embedding_bag(struct far_tape *tape, struct far_var *w, struct far_var *index,
				       struct far_var *offsets, enum far_op_bag mode, bool sparse)
{
	static const struct op op = {"embedding_bag", bag_forward, NULL, bag_share, 6, 0, false};
	return tape_one(tape, &op, &(struct params){.sparse = sparse, .mode = (int)mode},
			(struct far_var *[]){w, index, offsets}, 3);
}
