/* SPDX-License-Identifier: BSD-3-Clause */
/** Compression of gradients on their way to other workers: bf16, and top-k with error feedback. Any thread. */
#include "compress.h"

#include "rows.h"

#include <farcall/train.h>
#include <math.h>
#include <pthread.h>

/* What was not sent yet of a slot's gradients. */
struct residual {
	struct residual *next;
	int32_t rank;
	uint64_t slot;
	struct held sum; /* dense */
};

struct far_compressor {
	_Atomic unsigned refs;
	struct far_pool *pool;
	struct far_compressor_opts opts;
	pthread_mutex_t lock; /* of all below */
	struct residual *residuals;
	size_t residuals_n;
};

enum far_status far_compressor_new(struct far_pool *pool, const struct far_compressor_opts *opts,
				   struct far_compressor **out, struct far_err *err)
{
	if (opts->kind != FAR_COMPRESSION_BF16 && opts->kind != FAR_COMPRESSION_TOP_K)
		return fail(err, FAR_INVALID, "far_compressor_new: kind %d: there is no such compression",
			    (int)opts->kind);
	if (opts->kind == FAR_COMPRESSION_TOP_K && !(opts->fraction > 0 && opts->fraction <= 1))
		return fail(err, FAR_INVALID, "far_compressor_new: fraction %g is not in (0, 1]", opts->fraction);
	for (size_t i = 0; i < sizeof opts->reserved / sizeof *opts->reserved; i++)
		if (opts->reserved[i])
			return fail(err, FAR_INVALID, "far_compressor_new: `reserved` is not 0");
	struct far_compressor *compressor = pool_zero(pool, sizeof *compressor);
	if (!compressor)
		return fail_memory(err, "compressor", sizeof *compressor);
	atomic_init(&compressor->refs, 1);
	compressor->pool = pool;
	compressor->opts = *opts;
	pthread_mutex_init(&compressor->lock, NULL);
	*out = compressor;
	return FAR_OK;
}

struct far_compressor *compressor_ref(struct far_compressor *compressor)
{
	if (compressor)
		atomic_fetch_add_explicit(&compressor->refs, 1, memory_order_relaxed);
	return compressor;
}

void far_compressor_free(struct far_compressor *compressor)
{
	if (!compressor || atomic_fetch_sub_explicit(&compressor->refs, 1, memory_order_acq_rel) != 1)
		return;
	while (compressor->residuals) {
		struct residual *last = compressor->residuals;
		compressor->residuals = last->next;
		held_drop(&last->sum);
		pool_give(last);
	}
	pthread_mutex_destroy(&compressor->lock);
	pool_give(compressor);
}

enum far_status far_var_compress(struct far_var *var, struct far_compressor *compressor, uint64_t slot,
				 struct far_err *err)
{
	if (var->sent_id == 0)
		return fail(
			err, FAR_INVALID,
			"far_var_compress: the variable was not received with a gradient: only its gradient travels");
	compressor_ref(compressor);
	far_compressor_free(var->compressor);
	var->compressor = compressor;
	var->compressor_slot = slot;
	return FAR_OK;
}

/* ---- bf16 ---- */

static enum far_status to_bf16(struct far_pool *pool, struct gradient *g, bool *packed, struct far_err *err)
{
	struct held small = {0};
	const struct far_tensor *t = &g->values.t;
	if (!held_new(&small, pool, FAR_BF16, t->ndim, t->shape))
		return fail_memory(err, "compression", far_tensor_bytes(t) / 2);
	enum far_status status = far_tensor_count(t) > 0 ? far_op_copy(t, &small.t, err) : FAR_OK;
	if (status) {
		held_drop(&small);
		return status;
	}
	held_drop(&g->values);
	held_move(&g->values, &small);
	*packed = true;
	return FAR_OK;
}

/* ---- top-k ---- */

/* Elements of f32 or f64, as integers in the order of their magnitudes: NaN is the greatest. */
struct magnitudes {
	const void *data;
	size_t n;
	bool wide; /* f64 */
};

static uint64_t magnitude(const struct magnitudes *m, size_t i)
{
	if (m->wide)
		return ((const uint64_t *)m->data)[i] & (UINT64_MAX >> 1);
	return ((const uint32_t *)m->data)[i] & (UINT32_MAX >> 1);
}

/** The greatest `k` are those above the result, and `*equal` of those that equal it. By digits of 8 bits. */
static uint64_t threshold(const struct magnitudes *m, size_t k, size_t *equal)
{
	uint64_t prefix = 0;
	for (int shift = m->wide ? 56 : 24; shift >= 0; shift -= 8) {
		size_t counts[256] = {0};
		unsigned digit = 255;
		for (size_t i = 0; i < m->n; i++) {
			uint64_t at = magnitude(m, i);
			if (shift == 56 || at >> (shift + 8) == prefix >> (shift + 8))
				counts[at >> shift & 255]++;
		}
		for (; counts[digit] < k; digit--)
			k -= counts[digit];
		prefix |= (uint64_t)digit << shift;
	}
	*equal = k;
	return prefix;
}

/** Moves the greatest k elements of `sum` to `g`, in the order of their positions. Of equal ones, the first. */
static void take_greatest(struct held *sum, size_t k, struct gradient *g)
{
	struct magnitudes m = {sum->t.data, far_tensor_count(&sum->t), sum->t.dtype == FAR_F64};
	size_t equal, out = 0;
	uint64_t least = threshold(&m, k, &equal);
	int32_t *index = g->index.t.data;
	for (size_t i = 0; i < m.n && out < k; i++) {
		uint64_t at = magnitude(&m, i);
		if (at < least || (at == least && equal == 0))
			continue;
		equal -= at == least;
		index[out] = (int32_t)i;
		if (m.wide) {
			((double *)g->values.t.data)[out++] = ((double *)sum->t.data)[i];
			((double *)sum->t.data)[i] = 0;
		} else {
			((float *)g->values.t.data)[out++] = ((float *)sum->t.data)[i];
			((float *)sum->t.data)[i] = 0;
		}
	}
}

/** The residual of a slot, zero if it is new or the gradient is of another shape than before. NULL: an error. */
static struct residual *residual_of(struct far_compressor *c, int32_t rank, uint64_t slot, const struct far_tensor *t,
				    struct far_err *err)
{
	struct residual *r = c->residuals;
	while (r && (r->rank != rank || r->slot != slot))
		r = r->next;
	if (r && r->sum.t.dtype == t->dtype && tensor_same_shape(&r->sum.t, t))
		return r;
	if (!r && c->residuals_n == FAR_COMPRESSOR_SLOTS_MAX) {
		fail(err, FAR_RESOURCE,
		     "compressor: %d slots are in use; use another one, or name slots with "
		     "far_var_compress()",
		     FAR_COMPRESSOR_SLOTS_MAX);
		return NULL;
	}
	struct held zero = {0};
	bool made = !r;
	if (!held_new(&zero, c->pool, (enum far_dtype)t->dtype, t->ndim, t->shape) ||
	    (made && !(r = pool_zero(c->pool, sizeof *r)))) {
		held_drop(&zero);
		fail_memory(err, "compressor", far_tensor_bytes(t));
		return NULL;
	}
	memset(zero.t.data, 0, far_tensor_bytes(t));
	held_drop(&r->sum);
	held_move(&r->sum, &zero);
	if (made) {
		r->rank = rank;
		r->slot = slot;
		r->next = c->residuals;
		c->residuals = r;
		c->residuals_n++;
	}
	return r;
}

static enum far_status top_k(struct far_compressor *c, int32_t rank, uint64_t slot, struct gradient *g, bool *packed,
			     struct far_err *err)
{
	struct gradient out = {0};
	const struct far_tensor *t = &g->values.t;
	uint64_t n = far_tensor_count(t), k = (uint64_t)ceil(c->opts.fraction * (double)n);
	k = k > n ? n : k;
	struct residual *r = residual_of(c, rank, slot, t, err);
	if (!r)
		return err->status;
	if (!held_new(&out.values, c->pool, (enum far_dtype)t->dtype, 1, &k) ||
	    !held_new(&out.index, c->pool, FAR_I32, 1, &k)) {
		gradient_drop(&out);
		return fail_memory(err, "compression", k * 8);
	}
	enum far_status status = far_op_add(&r->sum.t, t, &r->sum.t, err);
	if (status) {
		gradient_drop(&out);
		return status;
	}
	take_greatest(&r->sum, k, &out);
	gradient_drop(g);
	gradient_move(g, &out);
	g->set = true;
	*packed = true;
	return FAR_OK;
}

enum far_status compress(struct far_compressor *c, int32_t rank, uint64_t slot, struct gradient *g, bool *packed,
			 struct far_err *err)
{
	const struct far_tensor *t = &g->values.t;
	uint64_t n = far_tensor_count(t);
	if ((t->dtype != FAR_F32 && t->dtype != FAR_F64) || n == 0 || n < c->opts.elements_min)
		return FAR_OK;
	if (c->opts.kind == FAR_COMPRESSION_BF16)
		return to_bf16(c->pool, g, packed, err);
	if (g->index.t.dtype != FAR_DTYPE_NONE || n > INT32_MAX)
		return FAR_OK;
	pthread_mutex_lock(&c->lock);
	enum far_status status = top_k(c, rank, slot, g, packed, err);
	pthread_mutex_unlock(&c->lock);
	return status;
}

/* ---- at the receiver ---- */

bool is_compressed(const struct far_tensor *of, const struct far_tensor *values, const struct far_tensor *index)
{
	return (values->dtype == FAR_BF16 && of->dtype != FAR_BF16) || (index && index->dtype == FAR_I32);
}

static enum far_status from_bf16(struct far_pool *pool, const struct far_tensor *of, const struct far_tensor *values,
				 const struct far_tensor *index, struct gradient *out, struct far_err *err)
{
	struct far_tensor as = *values; /* what it was before */
	as.dtype = of->dtype;
	if (of->dtype != FAR_F32 && of->dtype != FAR_F64)
		return fail(err, FAR_INVALID, "backward: a variable of %s has no gradient of bf16",
			    far_dtype_name((enum far_dtype)of->dtype));
	TRY(check_gradient(of, &as, index, err));
	if (!held_new(&out->values, pool, (enum far_dtype)of->dtype, values->ndim, values->shape) ||
	    (index && !held_new(&out->index, pool, FAR_I64, 1, index->shape)))
		return fail_memory(err, "gradient", far_tensor_bytes(&as));
	if (far_tensor_count(values) > 0)
		TRY(far_op_copy(values, &out->values.t, err));
	if (index && far_tensor_count(index) > 0)
		TRY(far_op_copy(index, &out->index.t, err));
	out->set = true;
	return FAR_OK;
}

static enum far_status check_positions(const struct far_tensor *index, uint64_t n, struct far_err *err)
{
	const int32_t *at = index->data;
	for (uint64_t i = 0; i < index->shape[0]; i++)
		if (at[i] < 0 || (uint64_t)at[i] >= n || (i > 0 && at[i] <= at[i - 1]))
			return fail(err, FAR_INVALID,
				    "backward: position %d is not above the last one and in [0, %llu)", at[i],
				    (unsigned long long)n);
	return FAR_OK;
}

static enum far_status from_top_k(struct far_pool *pool, const struct far_tensor *of, const struct far_tensor *values,
				  const struct far_tensor *index, struct gradient *out, struct far_err *err)
{
	char text[TENSOR_TEXT], wanted[TENSOR_TEXT];
	if (values->dtype != of->dtype || (of->dtype != FAR_F32 && of->dtype != FAR_F64) || values->ndim != 1 ||
	    index->ndim != 1 || values->shape[0] != index->shape[0])
		return fail(err, FAR_INVALID, "backward: elements %s do not fit the variable %s",
			    tensor_text(values, text), tensor_text(of, wanted));
	TRY(check_positions(index, far_tensor_count(of), err));
	if (!held_new(&out->values, pool, (enum far_dtype)of->dtype, of->ndim, of->shape))
		return fail_memory(err, "gradient", far_tensor_bytes(of));
	const int32_t *at = index->data;
	memset(out->values.t.data, 0, far_tensor_bytes(of));
	for (uint64_t i = 0; i < index->shape[0]; i++)
		if (of->dtype == FAR_F64)
			((double *)out->values.t.data)[at[i]] = ((const double *)values->data)[i];
		else
			((float *)out->values.t.data)[at[i]] = ((const float *)values->data)[i];
	out->set = true;
	return FAR_OK;
}

enum far_status decompress(struct far_pool *pool, const struct far_tensor *of, const struct far_tensor *values,
			   const struct far_tensor *index, struct gradient *out, struct far_err *err)
{
	if (index && index->dtype == FAR_I32)
		return from_top_k(pool, of, values, index, out, err);
	return from_bf16(pool, of, values, index, out, err);
}
