/* SPDX-License-Identifier: BSD-3-Clause */
/** Optimizers of a parameter server beside plain ones in double precision: LAMB, and rules of the application; a rule
 * that a server lacks. */
#include "api_ps_fns.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 12, STEPS = 12, WIDTH_MAX = 3000 };

/* Of the largest element of a row. */
#define TOLERANCE 2e-5

/* ---- A rule of the application: the sign of a sum that decays by beta1; beta2 is not used ---- */

static void apply_sign(const struct far_ps_rule *rule, float *row, float *state, const float *grad, unsigned dim,
		       float rate, void *user)
{
	(void)user;
	for (unsigned d = 0; d < dim; d++) {
		state[d] = rule->beta1 * state[d] + grad[d];
		row[d] -= rate * (state[d] > 0 ? 1.0f : state[d] < 0 ? -1.0f : 0.0f);
	}
	state[dim]++;
}

static void register_sign(const char *name, unsigned more)
{
	struct far_ps_rule_fn fn = {.name = name, .apply = apply_sign, .state_each = 1, .state_more = more};
	CHECK_STATUS(far_ps_rule_register(&fn, &err), FAR_OK, &err);
}

void optimizers_register(void)
{
	struct far_ps_rule_fn fn = {.name = "sign", .apply = apply_sign};
	register_sign("sign", 1);
	if (self == 0)
		register_sign("alone", 1);
	BAD(far_ps_rule_register(&fn, &err), FAR_INVALID, "rule \"sign\" is registered already");
	BAD(far_ps_rule_unregister("none", &err), FAR_GONE, "no rule \"none\"");
}

void optimizers_step(int step)
{
	if (step == 1)
		CHECK_STATUS(far_ps_rule_unregister("sign", &err), FAR_OK, &err);
	if (step == 2)
		register_sign("sign", 5);
	if (step == 3) {
		CHECK_STATUS(far_ps_rule_unregister("sign", &err), FAR_OK, &err);
		register_sign("sign", 1);
	}
}

/* ---- Plain optimizers ---- */

struct plain {
	double w[WIDTH_MAX], m[WIDTH_MAX], v[WIDTH_MAX];
	int pushes;
};
static struct plain plain[ROWS];
static float grads[ROWS * WIDTH_MAX], got[ROWS * WIDTH_MAX];

static double length(const double *x, unsigned n)
{
	double sum = 0;
	for (unsigned i = 0; i < n; i++)
		sum += x[i] * x[i];
	return sqrt(sum);
}

/* Clipping, l2 and l1. */
static void penalise(const struct far_ps_rule *r, const double *w, const float *grad, unsigned dim, double *g)
{
	for (unsigned d = 0; d < dim; d++)
		g[d] = (double)grad[d];
	double norm = length(g, dim);
	double clip = r->clip_norm > 0 && norm > (double)r->clip_norm ? (double)r->clip_norm / norm : 1;
	for (unsigned d = 0; d < dim; d++) {
		g[d] *= clip;
		if (r->clip_value > 0)
			g[d] = fmax(fmin(g[d], (double)r->clip_value), -(double)r->clip_value);
		g[d] += (double)r->l2 * w[d] + (double)r->l1 * (w[d] > 0 ? 1 : w[d] < 0 ? -1 : 0);
	}
}

static void plain_lamb(const struct far_ps_rule *r, struct plain *p, const double *g, unsigned dim, double rate)
{
	static double u[WIDTH_MAX];
	double b1 = (double)r->beta1, b2 = (double)r->beta2;
	p->pushes++;
	for (unsigned d = 0; d < dim; d++) {
		p->m[d] = b1 * p->m[d] + (1 - b1) * g[d];
		p->v[d] = b2 * p->v[d] + (1 - b2) * g[d] * g[d];
		u[d] = p->m[d] / (1 - pow(b1, p->pushes)) /
			       (sqrt(p->v[d] / (1 - pow(b2, p->pushes))) + (double)r->epsilon) +
		       (double)r->decay * p->w[d];
	}
	double w = length(p->w, dim), l = length(u, dim);
	for (unsigned d = 0; d < dim; d++)
		p->w[d] -= rate * (w > 0 && l > 0 ? w / l : 1) * u[d];
}

static void plain_sign(const struct far_ps_rule *r, struct plain *p, const double *g, unsigned dim, double rate)
{
	for (unsigned d = 0; d < dim; d++) {
		p->m[d] = (double)r->beta1 * p->m[d] + g[d];
		p->w[d] -= rate * (p->m[d] > 0 ? 1 : p->m[d] < 0 ? -1 : 0);
	}
}

static void compare(const float *row, const struct plain *p, unsigned dim, const char *name)
{
	double most = 0;
	for (unsigned d = 0; d < dim; d++)
		most = fmax(most, fabs(p->w[d]));
	for (unsigned d = 0; d < dim; d++)
		if (!(fabs((double)row[d] - p->w[d]) <= TOLERANCE * most)) {
			fprintf(stderr, "%s: element %u is %.9g, not %.9g\n", name, d, (double)row[d], p->w[d]);
			exit(1);
		}
}

/* Pushes to all rows of a table beside the plain optimizer. */
static void pushes(const char *name, const struct far_ps_schema *schema,
		   void (*rule)(const struct far_ps_rule *, struct plain *, const double *, unsigned, double))
{
	struct far_ps_table *t = table(name, schema);
	struct far_future *f;
	unsigned dim = schema->dim;
	uint64_t random = 1;
	for (int i = 0; i < ROWS; i++)
		keys[i] = (uint64_t)i;
	DONE(far_ps_pull(t, keys, ROWS, &(struct far_ps_pull_opts){.miss = FAR_PS_INITIAL}, got, NULL, &f, &err), ROWS);
	memset(plain, 0, sizeof plain);
	for (unsigned i = 0; i < ROWS; i++)
		for (unsigned d = 0; d < dim; d++)
			plain[i].w[d] = (double)got[i * dim + d];
	for (int s = 0; s < STEPS; s++) {
		static double g[WIDTH_MAX];
		struct far_ps_push_opts opts = {.rate = s % 3 == 0 ? 0.05f : 0};
		double rate = (double)(s % 3 == 0 ? 0.05f : schema->rule.rate);
		for (unsigned i = 0; i < ROWS * dim; i++) {
			random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
			grads[i] = (float)((double)(random >> 40) / (1 << 23) - 1);
		}
		DONE(far_ps_push(t, keys, ROWS, grads, &opts, NULL, &f, &err), ROWS);
		for (unsigned i = 0; i < ROWS; i++) {
			penalise(&schema->rule, plain[i].w, grads + i * dim, dim, g);
			rule(&schema->rule, &plain[i], g, dim, rate);
		}
	}
	DONE(far_ps_pull(t, keys, ROWS, NULL, got, NULL, &f, &err), ROWS);
	for (unsigned i = 0; i < ROWS; i++)
		compare(got + i * dim, &plain[i], dim, name);
	CHECK_STATUS(far_ps_table_drop(ps, name, 0, &err), FAR_OK, &err);
	far_ps_table_free(t);
}

/* None, each, and all of what a schema adds to a rule. */
static void lamb(void)
{
	static const unsigned dims[] = {1, 7, 64, WIDTH_MAX}, sets[] = {0, 1, 2, 4, 8, 16, 31};
	for (unsigned i = 0; i < 4; i++)
		for (unsigned j = 0; j < sizeof sets / sizeof *sets; j++) {
			unsigned bounds = sets[j];
			struct far_ps_schema s = schema_of(FAR_PS_LAMB, dims[i]);
			s.dense_rows = ROWS;
			s.init = (struct far_ps_init){FAR_PS_INIT_NORMAL, 0, 1, 3};
			s.rule.decay = bounds & 1 ? 0.01f : 0;
			s.rule.l1 = bounds & 2 ? 0.02f : 0;
			s.rule.l2 = bounds & 4 ? 0.03f : 0;
			s.rule.clip_value = bounds & 8 ? 0.3f : 0;
			s.rule.clip_norm = bounds & 16 ? 2 : 0;
			if (dims[i] == WIDTH_MAX && bounds != 0 && bounds != 31)
				continue;
			pushes("lamb", &s, plain_lamb);
		}
}

static struct far_ps_schema sign_schema(const char *name, unsigned state)
{
	struct far_ps_schema s = schema_of(FAR_PS_USER, DIM);
	snprintf(s.rule.name, sizeof s.rule.name, "%s", name);
	s.rule.state = state;
	s.init = (struct far_ps_init){FAR_PS_INIT_CONSTANT, 1, 0, 0};
	return s;
}

static void bad_rule(struct far_ps_schema s, enum far_status want, const char *text)
{
	struct far_ps_table *t;
	BAD(far_ps_table_create(ps, "bad", &s, 0, &t, &err), want, text);
	(void)far_ps_table_drop(ps, "bad", 0, NULL); /* of the servers that have made it */
}

static void refusals(void)
{
	struct far_ps_schema s = sign_schema("sign", DIM + 1), lamb = schema_of(FAR_PS_LAMB, DIM);
	bad_rule(lamb, FAR_INVALID, "LAMB is for dense tables");
	lamb.dense_rows = 5;
	lamb.rule.decay = -1;
	bad_rule(lamb, FAR_INVALID, "decay is -1");
	lamb.rule.decay = 0;
	lamb.rule.state = 3;
	bad_rule(lamb, FAR_INVALID, "rule.state go");
	bad_rule(sign_schema("alone", DIM + 1), FAR_NO_FUNCTION, "worker \"worker1\" has no rule \"alone\"");
	bad_rule(sign_schema("", 1), FAR_INVALID, "rule.name");
	bad_rule(sign_schema("sign", DIM), FAR_INVALID, "keeps 5 floats for a row of 4; rule.state is 4");
	bad_rule(sign_schema("sign", 4 * 65536 + 1), FAR_INVALID, "262145 floats");
	memset(s.rule.name, 'x', sizeof s.rule.name);
	bad_rule(s, FAR_INVALID, "rule.name");
}

/* A rule that is gone, has other state, is back. */
static void changes(void)
{
	struct far_ps_schema s = sign_schema("sign", DIM + 1);
	struct far_ps_table *t = table("signs", &s), *same;
	struct far_future *f;
	float one[DIM] = {1, 1, 1, 1}, row[DIM];
	uint64_t key = 9, partition = 0;
	CHECK(far_ps_table_state(t) == DIM + 1);
	CHECK_STATUS(far_ps_table_open(ps, "signs", 0, &same, &err), FAR_OK, &err);
	CHECK(!strcmp(far_ps_table_schema(same)->rule.name, "sign") && far_ps_table_state(same) == DIM + 1);
	far_ps_table_free(same);
	(void)partition;
	DONE(far_ps_push(t, &key, 1, one, NULL, NULL, &f, &err), 1);
	servers_do(1);
	FAILS(far_ps_push(t, &key, 1, one, NULL, NULL, &f, &err), FAR_NO_FUNCTION, "has no rule \"sign\"");
	DONE(far_ps_pull(t, &key, 1, NULL, row, NULL, &f, &err), 1);
	servers_do(2);
	FAILS(far_ps_push(t, &key, 1, one, NULL, NULL, &f, &err), FAR_INVALID, "keeps 9 floats for a row of 4");
	servers_do(3);
	DONE(far_ps_push(t, &key, 1, one, NULL, NULL, &f, &err), 1);
	DONE(far_ps_pull(t, &key, 1, NULL, row, NULL, &f, &err), 1);
	float want = 1;
	for (int i = 0; i < 2; i++)
		want -= s.rule.rate;
	CHECK(row[0] == want && row[3] == want);
	far_ps_table_free(t);
}

void optimizers(void)
{
	lamb();
	struct far_ps_schema s = sign_schema("sign", DIM + 1);
	pushes("sign", &s, plain_sign);
	s.rule.beta1 = 0.25f;
	s.rule.l1 = 0.5f;
	s.rule.clip_value = 0.25f;
	pushes("sign", &s, plain_sign);
	refusals();
	changes();
}
