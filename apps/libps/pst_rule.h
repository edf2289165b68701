/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Optimizers: what a gradient does to a row and to its state. Any thread.
 *
 * All arithmetic is f32, one operation after the other as written below, each rounded to nearest; a row stored in 16
 * bits is widened first and rounded once (to nearest, ties to even) at the end. No operation is fused, so every
 * processor and every instruction set gives the same bits, and so do replicas.
 *
 * Before the rule, in this order, for each element: g is multiplied by the clip factor (clip_norm / |g| if the row's
 * gradient is longer than clip_norm); g = min(max(g, -clip_value), clip_value); g += l2 * w; g += l1 * sign(w). FTRL
 * takes l1 and l2 into its own formula instead. A bound of 0 means none.
 *
 *   SGD              w -= rate * g
 *   momentum         m = beta1 * m + g; w -= rate * m
 *   Adagrad          a += g * g; w -= rate * g / (sqrt(a) + epsilon)
 *   row-wise Adagrad a += sum(g * g) / dim, one a for the row; w -= rate / (sqrt(a) + epsilon) * g
 *   RMSprop          a = beta2 * a + (1 - beta2) * (g * g); w -= rate * g / (sqrt(a) + epsilon)
 *   Adam             m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * (g * g);
 *                    w -= rate / p * m / (sqrt(v / q) + epsilon), with p = 1 - beta1^t and q = 1 - beta2^t kept for
 *                    each row as p = beta1 * p + (1 - beta1); t counts the pushes to this row
 *   FTRL             n' = n + g * g; z += g - (sqrt(n') - sqrt(n)) / rate * w; n = n';
 *                    w = |z| <= l1 ? 0 : (sign(z) * l1 - z) / ((beta1 + sqrt(n)) / rate + l2)
 *   LAMB             m, v, p, q as Adam; u = m / p / (sqrt(v / q) + epsilon) + decay * w;
 *                    w -= rate * |w| / |u| * u (the ratio is 1 if either is 0); a row is a layer
 *   user             the caller's function
 *
 * Sums over a row (|g|, |w|, |u|, row-wise Adagrad) add element i to lane i mod 16 and then lanes 8 apart, 4, 2, 1.
 */
#ifndef PST_RULE_H
#define PST_RULE_H

#include <farcall/status.h>
#include <stdint.h>

#define PST_DIM_MAX 65536u

enum pst_rule_kind {
	PST_RULE_SGD,
	PST_RULE_MOMENTUM,
	PST_RULE_ADAGRAD,
	PST_RULE_ROWWISE_ADAGRAD,
	PST_RULE_RMSPROP,
	PST_RULE_ADAM,
	PST_RULE_FTRL,
	PST_RULE_LAMB,
	PST_RULE_USER,
	PST_RULES
};

/** A row (dim floats), its state (state_floats, 0 at first) and the gradient after clipping, l1 and l2. Called by the
 * table's thread; keeps no pointer. Must not fail. */
typedef void (*pst_user_rule)(void *ctx, float *row, float *state, const float *grad, unsigned dim, float rate);

struct pst_rule {
	enum pst_rule_kind kind;
	float rate;       /* of pushes that have none of their own; > 0 */
	float beta1;      /* momentum, Adam, LAMB: [0, 1); FTRL: beta >= 0 */
	float beta2;      /* RMSprop, Adam, LAMB: [0, 1) */
	float epsilon;    /* Adagrad (both), RMSprop, Adam, LAMB: > 0 */
	float decay;      /* LAMB: weight decay >= 0 */
	float l1, l2;     /* >= 0 */
	float clip_value; /* >= 0; 0: none */
	float clip_norm;  /* >= 0; 0: none */
	pst_user_rule user;
	void *user_ctx;
	unsigned user_state; /* floats of state of a row */
};

/** Name of a rule ("adagrad"). */
const char *pst_rule_name(enum pst_rule_kind kind);

/** Usual values: rate 0.01, beta1 0.9, beta2 0.999 (RMSprop 0.9), epsilon 1e-8 (Adagrad 1e-10); FTRL beta 1, rate 0.1.
 */
void pst_rule_defaults(struct pst_rule *rule, enum pst_rule_kind kind);

/** OK, or INVALID with the field and its value. */
enum far_status pst_rule_check(const struct pst_rule *rule, struct far_err *err);

/** Floats of state that the rule keeps for a row of `dim` elements. */
unsigned pst_rule_state(const struct pst_rule *rule, unsigned dim);

/** The first of the n floats of a row's state that is below 0 though the rule takes its root: the next push would make
 * the row NaN. n: there is none. */
unsigned pst_rule_negative(enum pst_rule_kind kind, unsigned dim, const float *state, unsigned n);

#endif
