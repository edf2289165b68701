/* SPDX-License-Identifier: BSD-3-Clause */
/** Optimizers of parameters on several workers: a far::Optimizer on each owner. The thread that steps. */
#include "objects.h"

#include <stdlib.h>

/* The parameters of one owner. */
struct part {
	int32_t rank;
	size_t n;
	struct far_val *params; /* borrowed references, while the optimizer is made */
	struct far_rref *optimizer;
};

struct far_dist_optimizer {
	struct far_pool *pool;
	struct far_agent *agent;
	struct part *parts;
	size_t n;
};

void far_dist_optimizer_free(struct far_dist_optimizer *optimizer)
{
	if (!optimizer)
		return;
	for (size_t i = 0; i < optimizer->n; i++) {
		far_rref_free(optimizer->parts[i].optimizer);
		free(optimizer->parts[i].params);
	}
	free(optimizer->parts);
	free(optimizer);
}

static struct part *part_of(struct far_dist_optimizer *o, int32_t rank)
{
	size_t i = 0;
	while (i < o->n && o->parts[i].rank != rank)
		i++;
	if (i == o->n)
		o->parts[o->n++].rank = rank;
	return &o->parts[i];
}

static enum far_status group(struct far_dist_optimizer *o, struct far_rref *const *params, size_t n,
			     struct far_err *err)
{
	for (size_t i = 0; i < n; i++) {
		const char *class = params[i] ? far_rref_class(params[i]) : NULL;
		if (!class || strcmp(class, PARAMETER_CLASS))
			return fail(err, FAR_INVALID, "optimizer: parameter %zu is no reference to a far::Parameter",
				    i);
		struct part *part = part_of(o, far_rref_owner(params[i]).worker);
		if (part->n == FAR_PARAMETERS_MAX)
			return fail(err, FAR_TOO_LARGE, "optimizer: worker %s has more than %d parameters",
				    far_rref_owner_name(params[i]), FAR_PARAMETERS_MAX);
		if (!part->params)
			part->params = calloc(FAR_PARAMETERS_MAX, sizeof *part->params);
		if (!part->params)
			return fail_memory(err, "optimizer", FAR_PARAMETERS_MAX * sizeof *part->params);
		part->params[part->n++] = far_rref_val(params[i]);
	}
	return FAR_OK;
}

/** Calls a method of the optimizers of all owners at once, and waits for all. The first error in their order. */
static enum far_status call_all(struct far_dist_optimizer *o, const char *method, const struct far_val *arg,
				uint64_t timeout_ns, struct far_err *err)
{
	struct far_call_opts opts = {.timeout_ns = timeout_ns};
	enum far_status first = FAR_OK;
	struct far_future **calls = pool_zero(o->pool, o->n * sizeof(struct far_future *));
	if (!calls)
		return fail_memory(err, "optimizer", o->n * sizeof *calls);
	for (size_t i = 0; i < o->n; i++) {
		struct far_err own;
		enum far_status status =
			far_rref_rpc_async(o->parts[i].optimizer, method, arg, 1, &opts, &calls[i], &own);
		if (!status)
			continue;
		error_on_node(o->agent, o->parts[i].rank, &own);
		if (!first && err)
			*err = own;
		first = first ? first : status;
	}
	for (size_t i = 0; i < o->n; i++) {
		struct far_err own;
		enum far_status status = calls[i] ? far_future_wait(calls[i], FAR_FOREVER, NULL, &own) : FAR_OK;
		far_future_free(calls[i]);
		if (!status)
			continue;
		error_on_node(o->agent, o->parts[i].rank, &own);
		if (!first && err)
			*err = own;
		first = first ? first : status;
	}
	pool_give(calls);
	return first;
}

static enum far_status make(struct far_dist_optimizer *o, const struct far_optimizer_opts *opts, uint64_t timeout_ns,
			    struct far_err *err)
{
	struct far_val packed[OPTIMIZER_FIELDS];
	struct far_call_opts call = {.timeout_ns = timeout_ns};
	optimizer_pack(opts, packed);
	for (size_t i = 0; i < o->n; i++) {
		struct part *part = &o->parts[i];
		struct far_to to = {part->rank, -1};
		struct far_val args[] = {far_list(packed, OPTIMIZER_FIELDS), far_list(part->params, part->n)};
		enum far_status status =
			far_remote_to(o->agent, to, OPTIMIZER_CLASS, args, 2, &call, &part->optimizer, err);
		if (status) {
			error_on_node(o->agent, part->rank, err);
			return status;
		}
	}
	/* The errors of the constructors come with the first calls. */
	struct far_val lr = far_float(opts->lr);
	return call_all(o, "set_lr", &lr, timeout_ns, err);
}

enum far_status far_dist_optimizer_new(struct far_train *train, const struct far_optimizer_opts *opts,
				       struct far_rref *const *params, size_t n, uint64_t timeout_ns,
				       struct far_dist_optimizer **out, struct far_err *err)
{
	struct far_err unwanted;
	if (!err)
		err = &unwanted;
	if (n == 0)
		return fail(err, FAR_INVALID, "optimizer: there are no parameters");
	struct far_dist_optimizer *o = calloc(1, sizeof *o);
	struct part *parts = calloc(n, sizeof *parts);
	if (!o || !parts) {
		free(o);
		free(parts);
		return fail_memory(err, "optimizer", n * sizeof *parts);
	}
	o->pool = train->pool;
	o->agent = train_agent(train, NULL);
	o->parts = parts;
	enum far_status status = group(o, params, n, err);
	if (!status)
		status = make(o, opts, timeout_ns, err);
	if (status)
		far_dist_optimizer_free(o);
	else
		*out = o;
	return status;
}

enum far_status far_dist_optimizer_step(struct far_dist_optimizer *optimizer, struct far_context *context,
					uint64_t timeout_ns, struct far_err *err)
{
	struct far_val id = far_int((int64_t)context->id);
	TRY(context_check(context, err));
	return call_all(optimizer, "step", &id, timeout_ns, err);
}

enum far_status far_dist_optimizer_set_lr(struct far_dist_optimizer *optimizer, double lr, uint64_t timeout_ns,
					  struct far_err *err)
{
	struct far_val v = far_float(lr);
	return call_all(optimizer, "set_lr", &v, timeout_ns, err);
}
