/* SPDX-License-Identifier: BSD-3-Clause */
/** Modules on other workers, as their callers see them. Any thread. */
#include "objects.h"

enum far_status far_remote_module_new(struct far_train *train, const char *to, const char *constructor,
				      const struct far_val *args, size_t n, uint64_t timeout_ns, struct far_rref **out,
				      struct far_err *err)
{
	struct far_call_opts opts = {.timeout_ns = timeout_ns};
	struct far_rref *module = NULL;
	const char *type = NULL;
	TRY(far_remote(train_agent(train, NULL), to, constructor, args, n, &opts, &module, err));
	enum far_status status = far_rref_type(module, timeout_ns, &type, err);
	if (!status && strcmp(type, MODULE_CLASS))
		status = fail(err, FAR_INVALID, "remote module: %s returns a %s, not a %s", constructor, type,
			      MODULE_CLASS);
	if (status)
		far_rref_free(module);
	else
		*out = module;
	return status;
}

enum far_status far_remote_module_forward_async(struct far_rref *module, struct far_context *context, struct far_var *x,
						uint64_t timeout_ns, struct far_future **out, struct far_err *err)
{
	struct far_call_opts opts = {.timeout_ns = timeout_ns};
	struct far_err unwanted;
	if (!err)
		err = &unwanted;
	struct far_val v = far_context_send(context, x, err);
	if (v.type == FAR_TYPE_NONE)
		return err->status;
	return far_rref_rpc_async(module, "forward", &v, 1, &opts, out, err);
}

enum far_status far_remote_module_forward_rref(struct far_rref *module, struct far_rref *x, uint64_t timeout_ns,
					       struct far_rref **out, struct far_err *err)
{
	struct far_call_opts opts = {.timeout_ns = timeout_ns};
	return far_rref_remote(module, "forward_rref", FAR_ARGS(x), &opts, out, err);
}

/** The variable of a value, which it finishes, or an error. */
static struct far_var *take(struct far_tape *tape, struct far_context *context, enum far_status status,
			    struct far_val *v, const struct far_err *err)
{
	if (status) {
		far_tape_fail(tape, err);
		return NULL;
	}
	struct far_var *var = far_tape_recv(tape, context, v);
	far_val_fini(v);
	return var;
}

struct far_var *far_remote_module_forward(struct far_rref *module, struct far_context *context, struct far_tape *tape,
					  struct far_var *x, uint64_t timeout_ns)
{
	struct far_future *f = NULL;
	struct far_val v = {0};
	struct far_err err;
	if (far_tape_status(tape, NULL))
		return NULL;
	enum far_status status = far_remote_module_forward_async(module, context, x, timeout_ns, &f, &err);
	if (!status)
		status = far_future_wait(f, FAR_FOREVER, &v, &err);
	far_future_free(f);
	return take(tape, context, status, &v, &err);
}

struct far_var *far_remote_module_chain(struct far_rref *const *modules, size_t n, struct far_context *context,
					struct far_tape *tape, struct far_var *x, uint64_t timeout_ns)
{
	struct far_call_opts opts = {.timeout_ns = timeout_ns};
	struct far_rref *y = NULL;
	struct far_val v = {0};
	struct far_err err;
	if (far_tape_status(tape, NULL))
		return NULL;
	if (n == 1)
		return far_remote_module_forward(modules[0], context, tape, x, timeout_ns);
	struct far_val first = far_context_send(context, x, &err);
	enum far_status status = first.type == FAR_TYPE_NONE ? err.status : FAR_OK;
	if (!status)
		status = far_rref_remote(modules[0], "forward", &first, 1, &opts, &y, &err);
	for (size_t i = 1; i + 1 < n && !status; i++) {
		struct far_rref *next = NULL;
		status = far_remote_module_forward_rref(modules[i], y, timeout_ns, &next, &err);
		far_rref_free(y);
		y = next;
	}
	if (!status)
		status = far_rref_rpc_sync(modules[n - 1], "forward_rref", FAR_ARGS(y), &opts, &v, &err);
	far_rref_free(y);
	return take(tape, context, status, &v, &err);
}

enum far_status far_remote_module_parameters(struct far_train *train, struct far_rref *module, uint64_t timeout_ns,
					     struct far_rref **out, size_t capacity, size_t *n, struct far_err *err)
{
	struct far_call_opts opts = {.timeout_ns = timeout_ns};
	struct far_to to = far_rref_owner(module);
	struct far_val count = {0};
	TRY(far_rref_rpc_sync(module, "count", NULL, 0, &opts, &count, err));
	*n = (size_t)count.u.i;
	for (size_t i = 0; i < *n && i < capacity; i++) {
		enum far_status status = far_remote_to(train_agent(train, NULL), to, PARAMETER_CLASS,
						       FAR_ARGS(module, (int64_t)i), &opts, &out[i], err);
		for (size_t k = 0; status && k < i; k++)
			far_rref_free(out[k]);
		TRY(status);
	}
	return FAR_OK;
}

enum far_status far_remote_module_train(struct far_rref *module, bool training, uint64_t timeout_ns,
					struct far_err *err)
{
	struct far_call_opts opts = {.timeout_ns = timeout_ns};
	return far_rref_rpc_sync(module, "train", FAR_ARGS(training), &opts, NULL, err);
}
