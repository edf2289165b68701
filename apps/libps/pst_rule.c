/* SPDX-License-Identifier: BSD-3-Clause */
/** Names, defaults and bounds of the optimizers. Any thread. */
#include "pst_rule.h"

#include "pst_fail.h"
#include <math.h>
#include <stdbool.h>

static const char *const names[PST_RULES] = {
	[PST_RULE_SGD] = "sgd",         [PST_RULE_MOMENTUM] = "momentum",
	[PST_RULE_ADAGRAD] = "adagrad", [PST_RULE_ROWWISE_ADAGRAD] = "rowwise_adagrad",
	[PST_RULE_RMSPROP] = "rmsprop", [PST_RULE_ADAM] = "adam",
	[PST_RULE_FTRL] = "ftrl",       [PST_RULE_LAMB] = "lamb",
	[PST_RULE_USER] = "user",
};

const char *pst_rule_name(enum pst_rule_kind kind)
{
	return (unsigned)kind < PST_RULES ? names[kind] : "unknown";
}

void pst_rule_defaults(struct pst_rule *rule, enum pst_rule_kind kind)
{
	bool adagrad = kind == PST_RULE_ADAGRAD || kind == PST_RULE_ROWWISE_ADAGRAD;
	*rule = (struct pst_rule){
		.kind = kind,
		.rate = kind == PST_RULE_FTRL ? 0.1f : 0.01f,
		.beta1 = kind == PST_RULE_FTRL ? 1.0f : 0.9f,
		.beta2 = kind == PST_RULE_RMSPROP ? 0.9f : 0.999f,
		.epsilon = adagrad ? 1e-10f : 1e-8f,
	};
}

static bool finite_from(float x, float least)
{
	return isfinite(x) && x >= least;
}

enum far_status pst_rule_check(const struct pst_rule *r, struct far_err *err)
{
	if ((unsigned)r->kind >= PST_RULES)
		return pst_fail(err, FAR_INVALID, 0, "no optimizer has the number %d", (int)r->kind);
	const char *name = pst_rule_name(r->kind);
	bool betas = r->kind == PST_RULE_ADAM || r->kind == PST_RULE_LAMB;
	bool beta1 = betas || r->kind == PST_RULE_MOMENTUM, beta2 = betas || r->kind == PST_RULE_RMSPROP;
	bool epsilon = beta2 || r->kind == PST_RULE_ADAGRAD || r->kind == PST_RULE_ROWWISE_ADAGRAD;
	if (!isfinite(r->rate) || !(r->rate > 0))
		return pst_fail(err, FAR_INVALID, 0, "%s: the rate is %g; it must be finite and above 0", name,
				(double)r->rate);
	if (beta1 && !(r->beta1 >= 0 && r->beta1 < 1))
		return pst_fail(err, FAR_INVALID, 0, "%s: beta1 is %g; it must be in [0, 1)", name, (double)r->beta1);
	if (r->kind == PST_RULE_FTRL && !finite_from(r->beta1, 0))
		return pst_fail(err, FAR_INVALID, 0, "ftrl: beta is %g; it must be finite and at least 0",
				(double)r->beta1);
	if (beta2 && !(r->beta2 >= 0 && r->beta2 < 1))
		return pst_fail(err, FAR_INVALID, 0, "%s: beta2 is %g; it must be in [0, 1)", name, (double)r->beta2);
	if (epsilon && !(isfinite(r->epsilon) && r->epsilon > 0))
		return pst_fail(err, FAR_INVALID, 0, "%s: epsilon is %g; it must be finite and above 0", name,
				(double)r->epsilon);
	const struct {
		const char *name;
		float value;
	} bounds[] = {{"decay", r->decay},
		      {"l1", r->l1},
		      {"l2", r->l2},
		      {"clip_value", r->clip_value},
		      {"clip_norm", r->clip_norm}};
	for (unsigned i = 0; i < sizeof bounds / sizeof *bounds; i++)
		if (!finite_from(bounds[i].value, 0))
			return pst_fail(err, FAR_INVALID, 0, "%s: %s is %g; it must be finite and at least 0", name,
					bounds[i].name, (double)bounds[i].value);
	if (r->kind == PST_RULE_USER && !r->user)
		return pst_fail(err, FAR_INVALID, 0, "the user's optimizer has no function");
	if (r->kind == PST_RULE_USER && r->user_state > 4 * PST_DIM_MAX)
		return pst_fail(err, FAR_INVALID, 0,
				"the user's optimizer keeps %u floats for a row; at most %u are possible",
				r->user_state, 4 * PST_DIM_MAX);
	return FAR_OK;
}

unsigned pst_rule_state(const struct pst_rule *rule, unsigned dim)
{
	switch (rule->kind) {
	case PST_RULE_MOMENTUM:
	case PST_RULE_ADAGRAD:
	case PST_RULE_RMSPROP:
		return dim;
	case PST_RULE_ROWWISE_ADAGRAD:
		return 1;
	case PST_RULE_FTRL:
		return 2 * dim;
	case PST_RULE_ADAM:
	case PST_RULE_LAMB:
		return 2 * dim + 2;
	case PST_RULE_USER:
		return rule->user_state;
	case PST_RULE_SGD:
	case PST_RULES:
		break;
	}
	return 0;
}

unsigned pst_rule_negative(enum pst_rule_kind kind, unsigned dim, const float *state, unsigned n)
{
	unsigned i = n;
	if (kind == PST_RULE_ADAGRAD || kind == PST_RULE_ROWWISE_ADAGRAD || kind == PST_RULE_RMSPROP)
		i = 0;
	else if (kind == PST_RULE_FTRL || kind == PST_RULE_ADAM || kind == PST_RULE_LAMB)
		i = dim;
	while (i < n && !(state[i] < 0))
		i++;
	return i;
}
