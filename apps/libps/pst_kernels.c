/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The inner loops of a table. Compiled once for each instruction set, with PST_KERNELS_NAME its name; the loops over
 * 16 elements become its vectors. No multiplication is fused with an addition (-ffp-contract=off): all sets give the
 * same bits. The thread that owns the table.
 */
#include "pst_rules.h"

#include <math.h>
#include <string.h>

#define AHEAD 24u /* rows prefetched before their turn */

#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)
#define TEXT_(a)    #a
#define TEXT(a)     TEXT_(a)

INLINE const char *element(const void *base, enum pst_type type, size_t i)
{
	return (const char *)base + i * pst_type_bytes(type);
}

INLINE void widen_of(enum pst_type type, float *to, const void *from, size_t n, float scale)
{
	size_t i = 0;
	for (; i + LANES <= n; i += LANES)
		load(type, to + i, element(from, type, i), LANES, scale);
	if (i < n) {
		float last[LANES];
		load(type, last, element(from, type, i), (unsigned)(n - i), scale);
		memcpy(to + i, last, (n - i) * sizeof *to);
	}
}

static void widen(enum pst_type type, float *to, const void *from, size_t n, float scale)
{
	switch (type) {
	case PST_F32:
		memcpy(to, from, n * sizeof *to);
		break;
	case PST_BF16:
		widen_of(PST_BF16, to, from, n, 0);
		break;
	case PST_F16:
		widen_of(PST_F16, to, from, n, 0);
		break;
	default:
		widen_of(PST_INT8, to, from, n, scale);
		break;
	}
}

INLINE void narrow_of(enum pst_type type, void *to, const float *from, size_t n)
{
	size_t i = 0;
	for (; i + LANES <= n; i += LANES)
		store(type, (char *)to + i * 2, from + i, LANES);
	if (i < n) {
		float last[LANES];
		load(PST_F32, last, from + i, (unsigned)(n - i), 0);
		store(type, (char *)to + i * 2, last, (unsigned)(n - i));
	}
}

static float narrow_int8(int8_t *to, const float *from, size_t n)
{
	uint32_t most = 0;
	for (size_t i = 0; i < n; i++) {
		uint32_t x = bits_of(from[i]) & 0x7fffffff;
		most = x > most ? x : most;
	}
	if (most >= 0x7f800000 || most == 0) {
		memset(to, 0, n);
		return most ? NAN : 0.0f;
	}
	float scale = float_of(most) / 127.0f;
	/* Rounded up: subnormal scales are coarse. */
	if (scale * 127.0f < float_of(most))
		scale = float_of(bits_of(scale) + 1);
	for (size_t i = 0; i < n; i++) {
		float q = from[i] / scale;
		q = q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q;
		/* Adding and subtracting 1.5 * 2^23 rounds to an integer. */
		q = (q + 12582912.0f) - 12582912.0f;
		to[i] = (int8_t)q;
	}
	return scale;
}

static float narrow(enum pst_type type, void *to, const float *from, size_t n)
{
	switch (type) {
	case PST_F32:
		memcpy(to, from, n * sizeof *from);
		break;
	case PST_BF16:
		narrow_of(PST_BF16, to, from, n);
		break;
	case PST_F16:
		narrow_of(PST_F16, to, from, n);
		break;
	default:
		return narrow_int8(to, from, n);
	}
	return 1.0f;
}

static void add(float *restrict to, const float *restrict from, size_t n, float weight)
{
	for (size_t i = 0; i < n; i++)
		to[i] += weight * from[i];
}

/* ---- The check ---- */

#define CHECK_BLOCK 256u

/* An exponent of all ones becomes a carry into the top bit; the OR of many elements is looked at once. */
INLINE size_t bad32(const uint32_t *x, size_t n)
{
	size_t i = 0;
	for (; i + CHECK_BLOCK <= n; i += CHECK_BLOCK) {
		uint32_t any = 0;
		for (unsigned j = 0; j < CHECK_BLOCK; j++)
			any |= (x[i + j] & 0x7fffffff) + 0x800000;
		if (any >> 31)
			break;
	}
	for (; i < n; i++)
		if (((x[i] & 0x7fffffff) + 0x800000) >> 31)
			return i;
	return n;
}

INLINE size_t bad16(const uint16_t *x, size_t n, uint16_t exponent_one)
{
	size_t i = 0;
	for (; i + CHECK_BLOCK <= n; i += CHECK_BLOCK) {
		uint16_t any = 0;
		for (unsigned j = 0; j < CHECK_BLOCK; j++)
			any |= (uint16_t)((x[i + j] & 0x7fff) + exponent_one);
		if (any >> 15)
			break;
	}
	for (; i < n; i++)
		if (((x[i] & 0x7fff) + exponent_one) >> 15)
			return i;
	return n;
}

static size_t first_bad(enum pst_type type, const void *elements, size_t n)
{
	if (type == PST_F32)
		return bad32(elements, n);
	return bad16(elements, n, type == PST_BF16 ? 0x80 : 0x400);
}

/* ---- Optimizers ---- */

/* A whole block of 16, or with `n` the last elements of a row, padded by zeros. */
INLINE void apply_block(enum pst_rule_kind kind, bool plain, float *row, float *state_a, float *state_b,
			const float *grad, unsigned n, const struct shared *k)
{
	unsigned states = states_of(kind);
	float w[LANES], g[LANES], a[LANES], b[LANES];
	load(PST_F32, w, row, n, 0);
	load(PST_F32, g, grad, n, 0);
	if (states > 0)
		load(PST_F32, a, state_a, n, 0);
	if (states > 1)
		load(PST_F32, b, state_b, n, 0);
	if (!plain)
		penalise(g, w, k, kind == PST_RULE_FTRL);
	rule_block(kind, w, g, a, b, k);
	if (states > 0)
		memcpy(state_a, a, n * sizeof *a);
	if (states > 1)
		memcpy(state_b, b, n * sizeof *b);
	memcpy(row, w, n * sizeof *w);
}

/* `plain`: no clipping, l1 or l2 before the rule. */
INLINE void apply_row(enum pst_rule_kind kind, bool plain, float *row, float *state, const float *grad, unsigned dim,
		      const struct shared *k)
{
	unsigned i = 0;
	for (; i + LANES <= dim; i += LANES)
		apply_block(kind, plain, row + i, state + i, state + dim + i, grad + i, LANES, k);
	if (i < dim)
		apply_block(kind, plain, row + i, state + i, state + dim + i, grad + i, dim - i, k);
}

/* Lines of a row ahead, to the second level (perf/NOTES.md, 71); longer rows bring the rest by themselves. */
INLINE void prefetch(const struct pst_apply *a, uint32_t id, size_t row_bytes, size_t state_bytes)
{
	if (id == UINT32_MAX)
		return;
	const char *row = pst_slabs_at(a->rows, id);
	for (size_t i = 0; i < row_bytes && i < 512; i += 64)
		__builtin_prefetch(row + i, 0, 2);
	if (!a->state)
		return;
	const char *state = pst_slabs_at(a->state, id);
	for (size_t i = 0; i < state_bytes && i < 1024; i += 64)
		__builtin_prefetch(state + i, 0, 2);
}

INLINE const float *gradient(const struct pst_apply *a, uint32_t i)
{
	const char *g = (const char *)a->grads + (size_t)i * a->dim * pst_type_bytes(a->wire);
	if (a->wire == PST_F32)
		return (const float *)(const void *)g;
	widen(a->wire, a->scratch, g, a->dim, a->scales ? a->scales[i] : 0.0f);
	return a->scratch;
}

INLINE struct shared shared_of(const struct pst_apply *a)
{
	const struct pst_rule *r = a->rule;
	return (struct shared){.rate = a->rate,
			       .beta1 = r->beta1,
			       .beta2 = r->beta2,
			       .rest1 = 1.0f - r->beta1,
			       .rest2 = 1.0f - r->beta2,
			       .epsilon = r->epsilon,
			       .decay = r->decay,
			       .l1 = r->l1,
			       .l2 = r->l2,
			       .clip_value = r->clip_value,
			       .clip = 1.0f};
}

/* Row-wise Adagrad sums the gradient after clipping, l1 and l2: computes it in the scratch. */
INLINE const float *penalised(const struct pst_apply *a, const float *row, const float *g, const struct shared *k)
{
	size_t padded = (a->dim + LANES - 1) / LANES * LANES;
	float *x = a->scratch + 2 * padded;
	for (unsigned i = 0; i < a->dim; i += LANES) {
		unsigned n = a->dim - i < LANES ? a->dim - i : LANES;
		float w[LANES];
		load(PST_F32, w, row + i, n, 0);
		load(PST_F32, x + i, g + i, n, 0);
		penalise(x + i, w, k, false);
	}
	return x;
}

INLINE void apply_rows(const struct pst_apply *a, enum pst_rule_kind kind, bool plain, unsigned dim)
{
	struct shared k = shared_of(a);
	size_t row_bytes = (size_t)dim * pst_type_bytes(a->stored);
	size_t state_bytes = pst_rule_state(a->rule, dim) * sizeof(float);
	float *wide = a->scratch + (dim + LANES - 1) / LANES * LANES;
	for (uint32_t i = 0; i < a->n && i < AHEAD; i++)
		prefetch(a, a->ids[i], row_bytes, state_bytes);
	for (uint32_t i = 0; i < a->n; i++) {
		if (i + AHEAD < a->n)
			prefetch(a, a->ids[i + AHEAD], row_bytes, state_bytes);
		if (a->ids[i] == UINT32_MAX)
			continue;
		const float *g = gradient(a, i);
		void *stored = pst_slabs_at(a->rows, a->ids[i]);
		float *row = a->stored == PST_F32 ? stored : wide;
		float *state = a->state ? pst_slabs_at(a->state, a->ids[i]) : row; /* the rule does not use it then */
		if (a->stored != PST_F32)
			widen(a->stored, row, stored, dim, 0);
		if (!plain)
			k.clip = clip_factor(a->rule, g, dim);
		bool done = !plain && kind == PST_RULE_ROWWISE_ADAGRAD;
		if (done)
			g = penalised(a, row, g, &k);
		begin_row(kind, &k, state, g, dim);
		apply_row(kind, plain || done, row, state, g, dim, &k);
		if (a->stored != PST_F32)
			narrow(a->stored, stored, row, dim);
	}
}

/* LAMB and the user's own: the row as f32 and the gradient in the scratch, then the rule over the whole row. */
static void lamb_row(const struct pst_apply *a, struct shared *k, float *w, float *g, float *state)
{
	unsigned dim = a->dim;
	float *m = state, *v = state + dim, *pq = v + dim;
	pq[0] = k->beta1 * pq[0] + k->rest1;
	pq[1] = k->beta2 * pq[1] + k->rest2;
	float norm_w = __builtin_sqrtf(sum_squares(w, dim));
	for (unsigned j = 0; j < dim; j++) {
		m[j] = k->beta1 * m[j] + k->rest1 * g[j];
		v[j] = k->beta2 * v[j] + k->rest2 * (g[j] * g[j]);
		g[j] = m[j] / pq[0] / (__builtin_sqrtf(v[j] / pq[1]) + k->epsilon) + k->decay * w[j];
	}
	float norm_u = __builtin_sqrtf(sum_squares(g, dim));
	float step = norm_w > 0 && norm_u > 0 ? k->rate * (norm_w / norm_u) : k->rate;
	for (unsigned j = 0; j < dim; j++)
		w[j] -= step * g[j];
}

static void apply_whole(const struct pst_apply *a)
{
	struct shared k = shared_of(a);
	size_t padded = (a->dim + LANES - 1) / LANES * LANES;
	float *w = a->scratch + padded, *x = w + padded;
	for (uint32_t i = 0; i < a->n; i++) {
		if (a->ids[i] == UINT32_MAX)
			continue;
		const float *g = gradient(a, i);
		void *row = pst_slabs_at(a->rows, a->ids[i]);
		float *state = a->state ? pst_slabs_at(a->state, a->ids[i]) : NULL;
		k.clip = clip_factor(a->rule, g, a->dim);
		memset(w, 0, 2 * padded * sizeof *w);
		widen(a->stored, w, row, a->dim, 0);
		memcpy(x, g, a->dim * sizeof *x);
		for (size_t j = 0; j < padded; j += LANES)
			penalise(x + j, w + j, &k, false);
		if (a->rule->kind == PST_RULE_LAMB)
			lamb_row(a, &k, w, x, state);
		else
			a->rule->user(a->rule->user_ctx, w, state, x, a->dim, a->rate);
		narrow(a->stored, row, w, a->dim);
	}
}

/* A function of its own for each rule, and in it a loop for rows of one number: models have many. */
#define APPLY(rule)                                                                                                    \
	static void apply_##rule(const struct pst_apply *a, bool plain)                                                \
	{                                                                                                              \
		if (plain && a->dim == 1)                                                                              \
			apply_rows(a, PST_RULE_##rule, true, 1);                                                       \
		else if (plain)                                                                                        \
			apply_rows(a, PST_RULE_##rule, true, a->dim);                                                  \
		else                                                                                                   \
			apply_rows(a, PST_RULE_##rule, false, a->dim);                                                 \
	}
APPLY(SGD)
APPLY(MOMENTUM)
APPLY(ADAGRAD)
APPLY(ROWWISE_ADAGRAD)
APPLY(RMSPROP)
APPLY(ADAM)
APPLY(FTRL)

static void (*const appliers[PST_RULES])(const struct pst_apply *, bool) = {
	[PST_RULE_SGD] = apply_SGD,         [PST_RULE_MOMENTUM] = apply_MOMENTUM,
	[PST_RULE_ADAGRAD] = apply_ADAGRAD, [PST_RULE_ROWWISE_ADAGRAD] = apply_ROWWISE_ADAGRAD,
	[PST_RULE_RMSPROP] = apply_RMSPROP, [PST_RULE_ADAM] = apply_ADAM,
	[PST_RULE_FTRL] = apply_FTRL,
};

static void apply(const struct pst_apply *a)
{
	const struct pst_rule *r = a->rule;
	bool clips = r->clip_value > 0 || r->clip_norm > 0;
	bool plain = !clips && (r->kind == PST_RULE_FTRL || (r->l1 <= 0 && r->l2 <= 0));
	if (appliers[r->kind])
		appliers[r->kind](a, plain);
	else
		apply_whole(a);
}

const struct pst_kernels JOIN(pst_kernels_, PST_KERNELS_NAME);
const struct pst_kernels JOIN(pst_kernels_, PST_KERNELS_NAME) = {
	.name = TEXT(PST_KERNELS_NAME),
	.first_bad = first_bad,
	.widen = widen,
	.narrow = narrow,
	.add = add,
	.apply = apply,
};
