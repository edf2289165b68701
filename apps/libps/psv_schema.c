/* SPDX-License-Identifier: BSD-3-Clause */
/** Checks and converts schemas. Any thread. */
#include "psv_schema.h"

#include "pst_fail.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static_assert((int)FAR_PS_FTRL == PST_RULE_FTRL && (int)FAR_PS_LAMB == PST_RULE_LAMB &&
		      (int)FAR_PS_USER == PST_RULE_USER && (int)FAR_PS_ADAM == PST_RULE_ADAM &&
		      (int)FAR_PS_ROWWISE_ADAGRAD == PST_RULE_ROWWISE_ADAGRAD &&
		      (int)FAR_PS_INIT_NORMAL == PST_INIT_NORMAL && (int)FAR_PS_FULL_LFU == PST_FULL_LFU &&
		      (int)FAR_PS_REFUSED == PST_REFUSED && (int)FAR_PS_MISSING == PST_MISSING &&
		      (int)FAR_PS_MAKE == PST_MISS_MAKE,
	      "numbers of the interface are those of the tables");

bool psv_type(enum far_dtype dtype, enum pst_type *type)
{
	switch (dtype) {
	case FAR_DTYPE_NONE:
	case FAR_F32:
		*type = PST_F32;
		return true;
	case FAR_BF16:
		*type = PST_BF16;
		return true;
	case FAR_F16:
		*type = PST_F16;
		return true;
	case FAR_I8:
		*type = PST_INT8;
		return true;
	default:
		return false;
	}
}

/* Of a schema alone; a shard has the registered function in its place. */
static void no_function(void *ctx, float *row, float *state, const float *grad, unsigned dim, float rate)
{
	(void)ctx, (void)row, (void)state, (void)grad, (void)dim, (void)rate;
}

static struct pst_rule rule_of(const struct far_ps_rule *r)
{
	return (struct pst_rule){.kind = (enum pst_rule_kind)r->kind,
				 .rate = r->rate,
				 .beta1 = r->beta1,
				 .beta2 = r->beta2,
				 .epsilon = r->epsilon,
				 .decay = r->decay,
				 .user = no_function,
				 .user_state = r->state,
				 .l1 = r->l1,
				 .l2 = r->l2,
				 .clip_value = r->clip_value,
				 .clip_norm = r->clip_norm};
}

struct pst_schema psv_schema_table(const struct far_ps_schema *s, uint32_t slots)
{
	struct pst_schema t = {.kind = PST_SPARSE,
			       .dim = s->dim,
			       .rule = rule_of(&s->rule),
			       .init = {(enum pst_init_kind)s->init.kind, s->init.a, s->init.b, s->init.seed},
			       .rows_max = s->rows_max / slots + (s->rows_max % slots != 0),
			       .full = (enum pst_full)s->full,
			       .admit = s->admit,
			       .candidates = s->admit_candidates,
			       .ttl_ms = s->ttl_ms};
	if (s->value_max) {
		t.kind = PST_VALUES;
		t.value_max = (uint32_t)s->value_max;
	}
	(void)psv_type(s->stored, &t.stored);
	if (t.rows_max > PST_ROWS_MAX)
		t.rows_max = 0;
	return t;
}

unsigned psv_schema_state(const struct far_ps_schema *s)
{
	struct pst_rule rule = rule_of(&s->rule);
	if (s->value_max)
		return 0;
	return pst_rule_state(&rule, s->dim);
}

struct psv_rows psv_schema_rows(const struct far_ps_schema *s)
{
	enum pst_type stored = PST_F32;
	(void)psv_type(s->stored, &stored);
	if (s->value_max)
		return (struct psv_rows){.row = sizeof(uint32_t),
					 .age = s->ttl_ms ? sizeof(uint64_t) : 0,
					 .value_max = (uint32_t)s->value_max};
	return (struct psv_rows){.row = s->dim * pst_type_bytes(stored),
				 .state = psv_schema_state(s) * sizeof(float),
				 .age = s->ttl_ms ? sizeof(uint64_t) : 0};
}

static enum far_status check_rule(const struct far_ps_schema *s, struct far_err *err)
{
	const struct far_ps_rule *r = &s->rule;
	bool named = memchr(r->name, 0, sizeof r->name) != r->name;
	if ((unsigned)r->kind > FAR_PS_USER)
		return pst_fail(err, FAR_INVALID, 0, "no rule has the number %d", (int)r->kind);
	if (r->kind == FAR_PS_LAMB && !s->dense_rows)
		return pst_fail(err, FAR_INVALID, 0, "rule LAMB is for dense tables, a row is a layer: set dense_rows");
	if (r->kind == FAR_PS_USER && !psv_name_ok(r->name))
		return pst_fail(err, FAR_INVALID, 0, "rule.name of the user's rule needs 1 to %d bytes",
				FAR_PS_NAME_MAX - 1);
	if (r->kind != FAR_PS_USER && (named || r->state))
		return pst_fail(err, FAR_INVALID, 0, "rule.name and rule.state go with kind FAR_PS_USER, not with %s",
				pst_rule_name((enum pst_rule_kind)r->kind));
	return FAR_OK;
}

/* Of a table of values all that is about numbers is zero. */
static enum far_status check_values(const struct far_ps_schema *s, struct far_err *err)
{
	const struct far_ps_rule *r = &s->rule;
	const struct far_ps_init *i = &s->init;
	bool rule = r->kind || r->rate || r->beta1 || r->beta2 || r->epsilon || r->decay || r->l1 || r->l2 ||
		    r->clip_value || r->clip_norm || r->state || r->name[0];
	bool init = i->kind || i->a || i->b || i->seed;
	if (s->value_max > FAR_PS_VALUE_MAX || s->dim || s->stored || s->dense_rows || s->admit ||
	    s->admit_candidates || rule || init)
		return pst_fail(err, FAR_INVALID, 0,
				"value_max is %llu; at most %zu, without dim, stored, rule, init, dense_rows and admit",
				(unsigned long long)s->value_max, FAR_PS_VALUE_MAX);
	return FAR_OK;
}

enum far_status psv_schema_check(const struct far_ps_schema *s, struct far_err *err)
{
	enum pst_type stored;
	if (s->replicas > 1)
		return pst_fail(err, FAR_UNSUPPORTED, 0, "replicas is %u; a row has one copy", s->replicas);
	if (s->hedge_after_ns)
		return pst_fail(err, FAR_UNSUPPORTED, 0, "hedge_after_ns is set; a row has one copy");
	for (unsigned i = 0; i < 2; i++)
		if (s->reserved[i] || s->rule.reserved[i])
			return pst_fail(err, FAR_INVALID, 0, "a reserved word of the schema is not 0");
	if (!psv_type(s->stored, &stored) || stored == PST_INT8)
		return pst_fail(err, FAR_INVALID, 0, "stored is dtype %d; f32, bf16 or f16", (int)s->stored);
	enum far_status status = s->value_max ? check_values(s, err) : check_rule(s, err);
	if (status)
		return status;
	if (s->dense_rows > PSV_DENSE_MAX ||
	    (s->dense_rows && (s->rows_max || s->full || s->admit > 1 || s->admit_candidates || s->ttl_ms)))
		return pst_fail(err, FAR_INVALID, 0,
				"dense_rows is %llu; at most %llu, without rows_max, full, admit and ttl_ms",
				(unsigned long long)s->dense_rows, (unsigned long long)PSV_DENSE_MAX);
	if (s->workers > FAR_PS_WORKERS_MAX || (s->staleness && !s->workers))
		return pst_fail(err, FAR_INVALID, 0, "workers is %u with staleness %u; [1, %d] workers have a clock",
				s->workers, s->staleness, FAR_PS_WORKERS_MAX);
	struct pst_schema t = psv_schema_table(s, 1);
	return pst_schema_check(&t, err);
}

void psv_schema_encode(const struct far_ps_schema *s, struct psv_schema *to)
{
	enum pst_type stored = PST_F32;
	(void)psv_type(s->stored, &stored);
	*to = (struct psv_schema){.dim = s->value_max ? (uint32_t)s->value_max : s->dim,
				  .stored = s->value_max ? PSV_VALUES : stored,
				  .rule = s->rule.kind,
				  .init = s->init.kind,
				  .full = s->dense_rows ? PSV_DENSE : (uint32_t)s->full,
				  .admit = s->admit,
				  .workers = s->workers,
				  .staleness = s->staleness,
				  .rate = s->rule.rate,
				  .beta1 = s->rule.beta1,
				  .beta2 = s->rule.beta2,
				  .epsilon = s->rule.epsilon,
				  .l1 = s->rule.l1,
				  .l2 = s->rule.l2,
				  .clip_value = s->rule.clip_value,
				  .clip_norm = s->rule.clip_norm,
				  .a = s->init.a,
				  .b = s->init.b,
				  .seed = s->init.seed,
				  .rows_max = s->dense_rows ? s->dense_rows : s->rows_max,
				  .candidates = s->admit_candidates,
				  .ttl_ms = s->ttl_ms,
				  .decay = s->rule.decay,
				  .state = s->rule.state};
	for (size_t i = 0; i < sizeof to->rule_name && s->rule.name[i]; i++)
		to->rule_name[i] = s->rule.name[i];
}

enum far_status psv_schema_decode(const struct psv_schema *f, struct far_ps_schema *s, struct far_err *err)
{
	static const enum far_dtype dtypes[] = {FAR_F32, FAR_BF16, FAR_F16};
	bool values = f->stored == PSV_VALUES;
	if ((f->stored > PST_F16 && !values) || f->rule > FAR_PS_USER || f->init > FAR_PS_INIT_NORMAL ||
	    f->full > PSV_DENSE)
		return pst_fail(err, FAR_PROTOCOL, 0, "a schema with a type, rule or method that does not exist");
	bool dense = f->full == PSV_DENSE;
	*s = (struct far_ps_schema){.dim = values ? 0 : f->dim,
				    .value_max = values ? f->dim : 0,
				    .stored = values ? FAR_DTYPE_NONE : dtypes[f->stored],
				    .rule = {.kind = (enum far_ps_rule_kind)f->rule,
					     .rate = f->rate,
					     .beta1 = f->beta1,
					     .beta2 = f->beta2,
					     .epsilon = f->epsilon,
					     .l1 = f->l1,
					     .l2 = f->l2,
					     .decay = f->decay,
					     .clip_value = f->clip_value,
					     .clip_norm = f->clip_norm,
					     .state = f->state},
				    .init = {(enum far_ps_init_kind)f->init, f->a, f->b, f->seed},
				    .rows_max = dense ? 0 : f->rows_max,
				    .dense_rows = dense ? f->rows_max : 0,
				    .full = dense ? FAR_PS_FULL_REFUSE : (enum far_ps_full)f->full,
				    .admit = f->admit,
				    .admit_candidates = f->candidates,
				    .ttl_ms = f->ttl_ms,
				    .workers = f->workers,
				    .staleness = f->staleness};
	memcpy(s->rule.name, f->rule_name, sizeof s->rule.name);
	if (values && !f->dim)
		return pst_fail(err, FAR_PROTOCOL, 0, "a schema of a table of values without bytes");
	if (dense && !s->dense_rows)
		return pst_fail(err, FAR_PROTOCOL, 0, "a schema of a dense table without rows");
	return psv_schema_check(s, err);
}

/* ---- Differences ---- */

enum field_type { FIELD_COUNT, FIELD_WORD, FIELD_NUMBER, FIELD_RULE, FIELD_NAME };

static const char *const stored_words[] = {"f32", "bf16", "f16", "int8", "values"};
static const char *const init_words[] = {"constant", "uniform", "normal"};
static const char *const full_words[] = {"refuse", "lru", "lfu", "dense"};

#define FIELD(name, of, type, words)                                                                                   \
	{                                                                                                              \
		name, offsetof(struct psv_schema, of), sizeof((struct psv_schema){0}.of), type, words                  \
	}

static const struct field {
	const char *name;
	size_t at, bytes;
	enum field_type type;
	const char *const *words; /* of FIELD_WORD */
} fields[] = {FIELD("stored", stored, FIELD_WORD, stored_words),
	      FIELD("dim", dim, FIELD_COUNT, NULL),
	      FIELD("rule.kind", rule, FIELD_RULE, NULL),
	      FIELD("rule.name", rule_name, FIELD_NAME, NULL),
	      FIELD("rule.state", state, FIELD_COUNT, NULL),
	      FIELD("rule.rate", rate, FIELD_NUMBER, NULL),
	      FIELD("rule.beta1", beta1, FIELD_NUMBER, NULL),
	      FIELD("rule.beta2", beta2, FIELD_NUMBER, NULL),
	      FIELD("rule.epsilon", epsilon, FIELD_NUMBER, NULL),
	      FIELD("rule.decay", decay, FIELD_NUMBER, NULL),
	      FIELD("rule.l1", l1, FIELD_NUMBER, NULL),
	      FIELD("rule.l2", l2, FIELD_NUMBER, NULL),
	      FIELD("rule.clip_value", clip_value, FIELD_NUMBER, NULL),
	      FIELD("rule.clip_norm", clip_norm, FIELD_NUMBER, NULL),
	      FIELD("init.kind", init, FIELD_WORD, init_words),
	      FIELD("init.a", a, FIELD_NUMBER, NULL),
	      FIELD("init.b", b, FIELD_NUMBER, NULL),
	      FIELD("init.seed", seed, FIELD_COUNT, NULL),
	      FIELD("full", full, FIELD_WORD, full_words),
	      FIELD("rows_max", rows_max, FIELD_COUNT, NULL),
	      FIELD("admit", admit, FIELD_COUNT, NULL),
	      FIELD("admit_candidates", candidates, FIELD_COUNT, NULL),
	      FIELD("ttl_ms", ttl_ms, FIELD_COUNT, NULL),
	      FIELD("workers", workers, FIELD_COUNT, NULL),
	      FIELD("staleness", staleness, FIELD_COUNT, NULL)};

static void put_field(const struct field *f, const struct psv_schema *s, char text[PSV_NAME_BYTES])
{
	const char *at = (const char *)s + f->at;
	uint64_t count = 0;
	float number = 0;
	if (f->type == FIELD_NUMBER)
		memcpy(&number, at, sizeof number);
	else if (f->type != FIELD_NAME)
		memcpy(&count, at, f->bytes);
	if (f->type == FIELD_NAME)
		snprintf(text, PSV_NAME_BYTES, "%s", at);
	else if (f->type == FIELD_WORD)
		snprintf(text, PSV_NAME_BYTES, "%s", f->words[count]);
	else if (f->type == FIELD_RULE)
		snprintf(text, PSV_NAME_BYTES, "%s", pst_rule_name((enum pst_rule_kind)count));
	else if (f->type == FIELD_NUMBER)
		snprintf(text, PSV_NAME_BYTES, "%.9g", (double)number);
	else
		snprintf(text, PSV_NAME_BYTES, "%llu", (unsigned long long)count);
}

enum far_status psv_schema_differs(const char *table, const struct psv_schema *has, const struct psv_schema *wants,
				   struct far_err *err)
{
	const struct field *f = fields;
	char a[PSV_NAME_BYTES], b[PSV_NAME_BYTES];
	while (f < fields + sizeof fields / sizeof *fields - 1 &&
	       memcmp((const char *)has + f->at, (const char *)wants + f->at, f->bytes) == 0)
		f++;
	const char *name = f->name;
	if (f->at == offsetof(struct psv_schema, dim) && has->stored == PSV_VALUES)
		name = "value_max";
	if (f->at == offsetof(struct psv_schema, rows_max) && has->full == PSV_DENSE)
		name = "dense_rows";
	put_field(f, has, a);
	put_field(f, wants, b);
	return pst_fail(err, FAR_INVALID, 0, "table \"%s\" exists with another schema: its %s is %s, not %s", table,
			name, a, b);
}
