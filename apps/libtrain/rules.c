/* SPDX-License-Identifier: BSD-3-Clause */
/** Rules of optimizers over blocks of elements in f64. Any thread. */
#include "rules.h"

#include "fail.h"

#include <math.h>

static const char *const names[] = {
#define NAME(name, text) text,
	FAR_OPTIMIZER_LIST(NAME)
#undef NAME
};

const char *far_optimizer_name(enum far_optimizer_kind kind)
{
	return (unsigned)kind < FAR_OPTIMIZER_COUNT ? names[kind] : "?";
}

struct far_optimizer_opts far_optimizer_defaults(enum far_optimizer_kind kind)
{
	static const double rates[] = {
		[FAR_OPTIMIZER_SGD] = 0.01,     [FAR_OPTIMIZER_ADAM] = 0.001, [FAR_OPTIMIZER_ADAMW] = 0.001,
		[FAR_OPTIMIZER_ADAGRAD] = 0.01, [FAR_OPTIMIZER_ADADELTA] = 1, [FAR_OPTIMIZER_RMSPROP] = 0.01,
		[FAR_OPTIMIZER_ADAMAX] = 0.002, [FAR_OPTIMIZER_RPROP] = 0.01, [FAR_OPTIMIZER_ROWWISE_ADAGRAD] = 0.01,
		[FAR_OPTIMIZER_FTRL] = 0.1,
	};
	struct far_optimizer_opts opts = {
		.kind = kind,
		.beta1 = 0.9,
		.beta2 = 0.999,
		.eps = 1e-8,
		.rho = 0.9,
		.alpha = 0.99,
		.eta_minus = 0.5,
		.eta_plus = 1.2,
		.step_min = 1e-6,
		.step_max = 50,
		.beta = 1,
	};
	if ((unsigned)kind < FAR_OPTIMIZER_COUNT)
		opts.lr = rates[kind];
	if (kind == FAR_OPTIMIZER_ADAMW)
		opts.weight_decay = 0.01;
	if (kind == FAR_OPTIMIZER_ADAGRAD || kind == FAR_OPTIMIZER_ROWWISE_ADAGRAD)
		opts.eps = 1e-10;
	if (kind == FAR_OPTIMIZER_ADADELTA)
		opts.eps = 1e-6;
	return opts;
}

/* ---- rules ---- */

static void decay(const struct step *s, const double *w, double *g, size_t n)
{
	double factor = s->opts->weight_decay;
	for (size_t i = 0; factor > 0 && i < n; i++)
		g[i] += factor * w[i];
}

static void sgd(const struct step *s, double *w, double *g, double *const *state, size_t n)
{
	const struct far_optimizer_opts *o = s->opts;
	decay(s, w, g, n);
	for (size_t i = 0; o->momentum > 0 && i < n; i++) {
		double *buffer = &state[0][i];
		*buffer = s->t == 1 ? g[i] : o->momentum * *buffer + (1 - o->dampening) * g[i];
		g[i] = o->nesterov ? g[i] + o->momentum * *buffer : *buffer;
	}
	for (size_t i = 0; i < n; i++)
		w[i] -= o->lr * g[i];
}

static void adam(const struct step *s, double *w, double *g, double *const *state, size_t n)
{
	const struct far_optimizer_opts *o = s->opts;
	double *m = state[0];
	double *v = state[1];
	double size = o->lr / s->correction1;
	double root = sqrt(s->correction2);
	if (o->kind == FAR_OPTIMIZER_ADAM)
		decay(s, w, g, n);
	for (size_t i = 0; o->kind == FAR_OPTIMIZER_ADAMW && i < n; i++)
		w[i] *= 1 - o->lr * o->weight_decay;
	for (size_t i = 0; i < n; i++) {
		m[i] = o->beta1 * m[i] + (1 - o->beta1) * g[i];
		v[i] = o->beta2 * v[i] + (1 - o->beta2) * g[i] * g[i];
	}
	if (o->amsgrad) {
		for (size_t i = 0; i < n; i++)
			state[2][i] = fmax(state[2][i], v[i]);
		v = state[2];
	}
	for (size_t i = 0; i < n; i++)
		w[i] -= size * m[i] / (sqrt(v[i]) / root + o->eps);
}

static void adagrad(const struct step *s, double *w, double *g, double *const *state, size_t n)
{
	const struct far_optimizer_opts *o = s->opts;
	double lr = o->lr / (1 + (double)(s->t - 1) * o->lr_decay);
	decay(s, w, g, n);
	for (size_t i = 0; i < n; i++) {
		state[0][i] += g[i] * g[i];
		w[i] -= lr * g[i] / (sqrt(state[0][i]) + o->eps);
	}
}

static void adadelta(const struct step *s, double *w, double *g, double *const *state, size_t n)
{
	const struct far_optimizer_opts *o = s->opts;
	decay(s, w, g, n);
	for (size_t i = 0; i < n; i++) {
		double *square = &state[0][i];
		double *moved = &state[1][i];
		*square = o->rho * *square + (1 - o->rho) * g[i] * g[i];
		double delta = sqrt(*moved + o->eps) / sqrt(*square + o->eps) * g[i];
		*moved = o->rho * *moved + (1 - o->rho) * delta * delta;
		w[i] -= o->lr * delta;
	}
}

static void rmsprop(const struct step *s, double *w, double *g, double *const *state, size_t n)
{
	const struct far_optimizer_opts *o = s->opts;
	decay(s, w, g, n);
	for (size_t i = 0; i < n; i++) {
		double *square = &state[0][i];
		double mean = 0;
		*square = o->alpha * *square + (1 - o->alpha) * g[i] * g[i];
		if (o->centered)
			mean = state[1][i] = o->alpha * state[1][i] + (1 - o->alpha) * g[i];
		g[i] /= sqrt(*square - mean * mean) + o->eps;
	}
	for (size_t i = 0; o->momentum > 0 && i < n; i++)
		g[i] = state[2][i] = o->momentum * state[2][i] + g[i];
	for (size_t i = 0; i < n; i++)
		w[i] -= o->lr * g[i];
}

static void adamax(const struct step *s, double *w, double *g, double *const *state, size_t n)
{
	const struct far_optimizer_opts *o = s->opts;
	double size = o->lr / s->correction1;
	decay(s, w, g, n);
	for (size_t i = 0; i < n; i++) {
		state[0][i] = o->beta1 * state[0][i] + (1 - o->beta1) * g[i];
		state[1][i] = fmax(o->beta2 * state[1][i], fabs(g[i]) + o->eps);
		w[i] -= size * state[0][i] / state[1][i];
	}
}

static void rprop(const struct step *s, double *w, double *g, double *const *state, size_t n)
{
	const struct far_optimizer_opts *o = s->opts;
	for (size_t i = 0; i < n; i++) {
		double *before = &state[0][i];
		double *size = &state[1][i];
		double agreement = g[i] * *before;
		*size *= agreement > 0 ? o->eta_plus : agreement < 0 ? o->eta_minus : 1;
		*size = fmin(fmax(*size, o->step_min), o->step_max);
		*before = agreement < 0 ? 0 : g[i];
		w[i] -= *before > 0 ? *size : *before < 0 ? -*size : 0;
	}
}

static void ftrl(const struct step *s, double *w, double *g, double *const *state, size_t n)
{
	const struct far_optimizer_opts *o = s->opts;
	for (size_t i = 0; i < n; i++) {
		double *z = &state[0][i];
		double *squares = &state[1][i];
		double sum = *squares + g[i] * g[i];
		*z += g[i] - (sqrt(sum) - sqrt(*squares)) / o->lr * w[i];
		*squares = sum;
		w[i] = fabs(*z) <= o->l1 ? 0 : -(*z - copysign(o->l1, *z)) / ((o->beta + sqrt(sum)) / o->lr + o->l2);
	}
}

struct rule rule_of(const struct far_optimizer_opts *o)
{
	switch (o->kind) {
	case FAR_OPTIMIZER_SGD:
		return (struct rule){sgd, o->momentum > 0 ? 1 : 0, o->momentum <= 0 && o->weight_decay <= 0};
	case FAR_OPTIMIZER_ADAM:
	case FAR_OPTIMIZER_ADAMW:
		return (struct rule){adam, o->amsgrad ? 3 : 2, false};
	case FAR_OPTIMIZER_ADAGRAD:
		return (struct rule){adagrad, 1, o->weight_decay <= 0};
	case FAR_OPTIMIZER_ADADELTA:
		return (struct rule){adadelta, 2, false};
	case FAR_OPTIMIZER_RMSPROP:
		return (struct rule){rmsprop, 3, false};
	case FAR_OPTIMIZER_ADAMAX:
		return (struct rule){adamax, 2, false};
	case FAR_OPTIMIZER_RPROP:
		return (struct rule){rprop, 2, false};
	case FAR_OPTIMIZER_FTRL:
		return (struct rule){ftrl, 2, true};
	default:
		return (struct rule){NULL, 1, o->weight_decay <= 0};
	}
}

double rule_initial(const struct far_optimizer_opts *o, unsigned k)
{
	switch (o->kind) {
	case FAR_OPTIMIZER_ADAGRAD:
	case FAR_OPTIMIZER_ROWWISE_ADAGRAD:
		return o->initial;
	case FAR_OPTIMIZER_FTRL:
		return k == 1 ? o->initial : 0;
	case FAR_OPTIMIZER_RPROP:
		return k == 1 ? o->lr : 0;
	default:
		return 0;
	}
}

/* ---- hyperparameters ---- */

static enum far_status check_range(const struct far_optimizer_opts *o, const char *name, double value, double low,
				   double high, struct far_err *err)
{
	if (value >= low && value <= high && isfinite(value))
		return FAR_OK;
	return fail(err, FAR_INVALID, "%s: %s is %g, not in [%g, %g]", far_optimizer_name(o->kind), name, value, low,
		    high);
}

enum far_status rule_check(const struct far_optimizer_opts *o, struct far_err *err)
{
	const double below_1 = nextafter(1, 0);
	if ((unsigned)o->kind >= FAR_OPTIMIZER_COUNT)
		return fail(err, FAR_INVALID, "optimizer: the kind %d is unknown", (int)o->kind);
	const struct {
		const char *name;
		double value, low, high;
	} ranges[] = {
		{"lr", o->lr, o->kind == FAR_OPTIMIZER_FTRL ? nextafter(0, 1) : 0, HUGE_VAL},
		{"weight_decay", o->weight_decay, 0, HUGE_VAL},
		{"momentum", o->momentum, 0, HUGE_VAL},
		{"dampening", o->dampening, -HUGE_VAL, HUGE_VAL},
		{"beta1", o->beta1, 0, below_1},
		{"beta2", o->beta2, 0, below_1},
		{"eps", o->eps, 0, HUGE_VAL},
		{"lr_decay", o->lr_decay, 0, HUGE_VAL},
		{"initial", o->initial, 0, HUGE_VAL},
		{"rho", o->rho, 0, 1},
		{"alpha", o->alpha, 0, 1},
		{"eta_minus", o->eta_minus, nextafter(0, 1), below_1},
		{"eta_plus", o->eta_plus, nextafter(1, 2), HUGE_VAL},
		{"step_min", o->step_min, 0, o->step_max},
		{"l1", o->l1, 0, HUGE_VAL},
		{"l2", o->l2, 0, HUGE_VAL},
		{"beta", o->beta, 0, HUGE_VAL},
	};
	for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
		TRY(check_range(o, ranges[i].name, ranges[i].value, ranges[i].low, ranges[i].high, err));
	if (o->kind == FAR_OPTIMIZER_SGD && o->nesterov && (o->momentum <= 0 || o->dampening != 0))
		return fail(err, FAR_INVALID, "SGD: nesterov needs a momentum > 0 and dampening 0; they are %g and %g",
			    o->momentum, o->dampening);
	return FAR_OK;
}
