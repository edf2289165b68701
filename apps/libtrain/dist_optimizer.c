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
	_Atomic bool is_long; /* a step was: the next ones go to a thread of the owner at once */
};

/* A call to an owner. */
struct owner_call {
	struct far_future *f; /* NULL: none */
	bool again;           /* the step is long: it is to be called so */
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

/** Keeps the first error of the calls to all owners. */
static void note(const struct far_dist_optimizer *o, size_t i, enum far_status status, struct far_err *own,
		 enum far_status *first, struct far_err *err)
{
	error_on_node(o->agent, o->parts[i].rank, own);
	if (!*first && err)
		*err = *own;
	*first = *first ? *first : status;
}

/** Starts calls of a method (NULL: of a step, by the one that suits) that are to be made. */
static void start_calls(struct far_dist_optimizer *o, struct owner_call *calls, const char *method,
			const struct far_val *arg, uint64_t timeout_ns, enum far_status *first, struct far_err *err)
{
	struct far_call_opts opts = {.timeout_ns = timeout_ns};
	for (size_t i = 0; i < o->n; i++) {
		struct far_err own;
		const char *name = method ? method : o->parts[i].is_long ? "step" : "step_short";
		if (!calls[i].again)
			continue;
		calls[i].again = false;
		enum far_status status =
			far_rref_rpc_async(o->parts[i].optimizer, name, arg, 1, &opts, &calls[i].f, &own);
		if (status)
			note(o, i, status, &own, first, err);
	}
}

/** Waits for the calls. True: some are to be made again. */
static bool end_calls(struct far_dist_optimizer *o, struct owner_call *calls, enum far_status *first,
		      struct far_err *err)
{
	bool again = false;
	for (size_t i = 0; i < o->n; i++) {
		struct far_err own;
		struct far_val v = far_none();
		if (!calls[i].f)
			continue;
		enum far_status status = far_future_wait(calls[i].f, FAR_FOREVER, &v, &own);
		far_future_free(calls[i].f);
		calls[i] = (struct owner_call){.again = !status && v.type == FAR_TYPE_BOOL && !v.u.b};
		if (calls[i].again)
			o->parts[i].is_long = again = true;
		if (status)
			note(o, i, status, &own, first, err);
		far_val_fini(&v);
	}
	return again;
}

/** Calls a method (NULL: a step) of the optimizers of all owners at once, and waits for all. The first error in their
 * order. */
static enum far_status call_all(struct far_dist_optimizer *o, const char *method, const struct far_val *arg,
				uint64_t timeout_ns, struct far_err *err)
{
	enum far_status first = FAR_OK;
	struct owner_call *calls = pool_zero(o->pool, o->n * sizeof *calls);
	if (!calls)
		return fail_memory(err, "optimizer", o->n * sizeof *calls);
	for (size_t i = 0; i < o->n; i++)
		calls[i].again = true;
	do
		start_calls(o, calls, method, arg, timeout_ns, &first, err);
	while (end_calls(o, calls, &first, err));
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
	return call_all(optimizer, NULL, &id, timeout_ns, err);
}

enum far_status far_dist_optimizer_set_lr(struct far_dist_optimizer *optimizer, double lr, uint64_t timeout_ns,
					  struct far_err *err)
{
	struct far_val v = far_float(lr);
	return call_all(optimizer, "set_lr", &v, timeout_ns, err);
}
