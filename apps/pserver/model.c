/* SPDX-License-Identifier: BSD-3-Clause */
/** What the models of `farcall train --service` have in common: tables, pulls, pushes, predictions. Main thread. */
#include "model.h"

#include "ps_clock.h"
#include <errno.h>
#include <string.h>

enum far_status model_no_memory(struct far_err *err)
{
	*err = (struct far_err){.status = FAR_RESOURCE, .text = "no memory for the model"};
	return FAR_RESOURCE;
}

/* To predict: the optimizer, its rate and the initial values do not matter. */
static enum far_status open_trained(const struct model *m, const char *name, unsigned dim, struct far_ps_table **table,
				    struct far_err *err)
{
	enum far_status status = far_ps_table_open(m->ps, name, 0, table, err);
	if (status == FAR_GONE)
		snprintf(err->text, sizeof err->text,
			 "there is no table \"%s\" of this model; give --load DIR, or the --model that was trained",
			 name);
	if (status || far_ps_table_schema(*table)->dim == dim)
		return status;
	*err = (struct far_err){.status = FAR_INVALID};
	snprintf(err->text, sizeof err->text, "the table \"%s\" has rows of %u numbers, not of %u; give its --dim",
		 name, far_ps_table_schema(*table)->dim, dim);
	return FAR_INVALID;
}

enum far_status model_table(const struct model *m, const char *name, struct far_ps_schema schema, double l2,
			    struct far_ps_table **table, struct far_err *err)
{
	static const enum far_ps_rule_kind kinds[] = {FAR_PS_SGD, FAR_PS_ADAGRAD, FAR_PS_ADAM, FAR_PS_FTRL};
	const struct train_options *o = m->o;
	if (m->data->train.rows == 0)
		return open_trained(m, name, schema.dim, table, err);
	far_ps_rule_defaults(&schema.rule, kinds[o->optimizer]);
	schema.rule.rate = (float)o->lr;
	schema.rule.l2 = (float)(l2 * m->share); /* added to each push */
	if (o->optimizer == TRAIN_ADAGRAD)
		schema.rule.epsilon = (float)o->epsilon;
	return far_ps_table_create(m->ps, name, &schema, 0, table, err);
}

enum far_status model_wait(const struct model *m, enum far_status begun, struct far_future *future, struct far_err *err)
{
	if (begun)
		return begun;
	/* Polls itself, so that no other thread has to wake it. */
	bool held = !far_shard_acquire(m->o->group.agent, 0, NULL);
	enum far_status status = far_future_wait(future, 0, NULL, err);
	if (held)
		far_shard_release(m->o->group.agent);
	far_future_free(future);
	return status;
}

static enum far_status pull(const struct model *m, struct far_ps_table *table, const uint64_t *keys, size_t n,
			    enum far_ps_miss miss, float *rows, struct far_err *err)
{
	struct far_ps_pull_opts opts = {.timeout_ns = m->o->timeout_ns, .miss = miss};
	struct far_future *f = NULL;
	enum far_status status = far_ps_pull(table, keys, n, &opts, rows, NULL, &f, err);
	return model_wait(m, status, f, err);
}

enum far_status model_pull(const struct model *m, struct far_ps_table *table, const uint64_t *keys, size_t n,
			   float *rows, struct far_err *err)
{
	uint64_t start = clock_ns();
	enum far_status status = pull(m, table, keys, n, FAR_PS_INITIAL, rows, err);
	latency_record(m->pulls, clock_ns() - start);
	return status;
}

enum far_status model_read(const struct model *m, struct far_ps_table *table, const uint64_t *keys, size_t n,
			   float *rows, struct far_err *err)
{
	return pull(m, table, keys, n, FAR_PS_FALLBACK, rows, err);
}

enum far_status model_push(const struct model *m, struct far_ps_table *table, const uint64_t *keys, size_t n,
			   const float *grads, float rate, struct far_err *err)
{
	struct far_ps_push_opts opts = {.timeout_ns = m->o->timeout_ns, .rate = rate};
	struct far_future *f = NULL;
	uint64_t start = clock_ns();
	enum far_status status = far_ps_push(table, keys, n, grads, &opts, NULL, &f, err);
	status = model_wait(m, status, f, err);
	latency_record(m->pushes, clock_ns() - start);
	return status;
}

enum far_status model_cannot_write(const char *path, struct far_err *err)
{
	*err = (struct far_err){.status = FAR_SYSTEM, .code = errno};
	snprintf(err->text, sizeof err->text, "%.160s: cannot write: %s", path, strerror(errno));
	return FAR_SYSTEM;
}

enum far_status model_predictions(const char *path, const double *values, size_t n, struct far_err *err)
{
	FILE *f = fopen(path, "we");
	for (size_t r = 0; f && r < n; r++)
		fprintf(f, "%.9g\n", values[r]);
	bool failed = f == NULL || ferror(f);
	if (f && fclose(f))
		failed = true;
	return failed ? model_cannot_write(path, err) : FAR_OK;
}
