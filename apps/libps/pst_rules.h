/* SPDX-License-Identifier: BSD-3-Clause */
/** The optimizers' arithmetic on 16 elements, and what the elements of a row share. Included as pst_vector.h is. The
 * thread that owns the table. */
#ifndef PST_RULES_H
#define PST_RULES_H

#include "pst_vector.h"

/* Sum of the lanes: those 8 apart, 4, 2, 1. */
INLINE float sum_lanes(float *lane)
{
	for (unsigned half = LANES / 2; half; half /= 2)
		for (unsigned j = 0; j < half; j++)
			lane[j] += lane[j + half];
	return lane[0];
}

static float sum_squares(const float *x, unsigned n)
{
	float lane[LANES] = {0};
	unsigned i = 0;
	for (; i + LANES <= n; i += LANES)
		for (unsigned j = 0; j < LANES; j++)
			lane[j] += x[i + j] * x[i + j];
	for (unsigned j = 0; i + j < n; j++)
		lane[j] += x[i + j] * x[i + j];
	return sum_lanes(lane);
}

/* Values that one row's elements share. */
struct shared {
	float rate, beta1, beta2, rest1, rest2, epsilon, decay, l1, l2, clip_value;
	float clip;  /* factor of the gradient */
	float alpha; /* row-wise Adagrad: rate / (sqrt(a) + epsilon); Adam: rate / p; LAMB: p */
	float q;     /* Adam, LAMB */
};

INLINE float sign(float x)
{
	return x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f;
}

/* Clipping, l2 and l1. */
INLINE void penalise(float *restrict g, const float *restrict w, const struct shared *k, bool ftrl)
{
	for (unsigned j = 0; j < LANES; j++) {
		float x = g[j] * k->clip;
		if (k->clip_value > 0)
			x = x > k->clip_value ? k->clip_value : x < -k->clip_value ? -k->clip_value : x;
		if (!ftrl) {
			x += k->l2 * w[j];
			x += k->l1 * sign(w[j]);
		}
		g[j] = x;
	}
}

/* 16 elements; a and b are their state. */
INLINE void rule_block(enum pst_rule_kind kind, float *restrict w, const float *restrict g, float *restrict a,
		       float *restrict b, const struct shared *k)
{
	switch (kind) {
	case PST_RULE_SGD:
		for (unsigned j = 0; j < LANES; j++)
			w[j] -= k->rate * g[j];
		break;
	case PST_RULE_MOMENTUM:
		for (unsigned j = 0; j < LANES; j++) {
			a[j] = k->beta1 * a[j] + g[j];
			w[j] -= k->rate * a[j];
		}
		break;
	case PST_RULE_ADAGRAD:
		for (unsigned j = 0; j < LANES; j++) {
			a[j] += g[j] * g[j];
			w[j] -= k->rate * g[j] / (__builtin_sqrtf(a[j]) + k->epsilon);
		}
		break;
	case PST_RULE_ROWWISE_ADAGRAD:
		for (unsigned j = 0; j < LANES; j++)
			w[j] -= k->alpha * g[j];
		break;
	case PST_RULE_RMSPROP:
		for (unsigned j = 0; j < LANES; j++) {
			a[j] = k->beta2 * a[j] + k->rest2 * (g[j] * g[j]);
			w[j] -= k->rate * g[j] / (__builtin_sqrtf(a[j]) + k->epsilon);
		}
		break;
	case PST_RULE_ADAM:
		for (unsigned j = 0; j < LANES; j++) {
			a[j] = k->beta1 * a[j] + k->rest1 * g[j];
			b[j] = k->beta2 * b[j] + k->rest2 * (g[j] * g[j]);
			w[j] -= k->alpha * a[j] / (__builtin_sqrtf(b[j] / k->q) + k->epsilon);
		}
		break;
	case PST_RULE_FTRL: /* a is z, b is n */
		for (unsigned j = 0; j < LANES; j++) {
			float n = b[j] + g[j] * g[j];
			float root = __builtin_sqrtf(n);
			float z = a[j] + (g[j] - (root - __builtin_sqrtf(b[j])) / k->rate * w[j]);
			float x = (sign(z) * k->l1 - z) / ((k->beta1 + root) / k->rate + k->l2);
			a[j] = z;
			b[j] = n;
			w[j] = __builtin_fabsf(z) <= k->l1 ? 0.0f : x;
		}
		break;
	default:
		break;
	}
}

INLINE unsigned states_of(enum pst_rule_kind kind)
{
	switch (kind) {
	case PST_RULE_MOMENTUM:
	case PST_RULE_ADAGRAD:
	case PST_RULE_RMSPROP:
		return 1;
	case PST_RULE_ADAM:
	case PST_RULE_FTRL:
		return 2;
	default:
		return 0;
	}
}

/* What comes before the elements of a row. */
INLINE void begin_row(enum pst_rule_kind kind, struct shared *k, float *state, const float *g, unsigned dim)
{
	if (kind == PST_RULE_ROWWISE_ADAGRAD) {
		state[0] += sum_squares(g, dim) / (float)dim;
		k->alpha = k->rate / (__builtin_sqrtf(state[0]) + k->epsilon);
	} else if (kind == PST_RULE_ADAM) {
		float *pq = state + 2 * (size_t)dim;
		pq[0] = k->beta1 * pq[0] + k->rest1;
		pq[1] = k->beta2 * pq[1] + k->rest2;
		k->alpha = k->rate / pq[0];
		k->q = pq[1];
	}
}

INLINE float clip_factor(const struct pst_rule *r, const float *g, unsigned dim)
{
	if (!(r->clip_norm > 0))
		return 1.0f;
	float norm = __builtin_sqrtf(sum_squares(g, dim));
	return norm > r->clip_norm ? r->clip_norm / norm : 1.0f;
}

#endif
