/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The classes far::Parameter, far::Optimizer and far::Module, on the worker of their objects. Constructors run on the
 * shard or on threads for blocking handlers, methods on the latter where they compute long.
 */
#include "objects.h"

#include "rules.h"

#include <stdlib.h>

/* A variable on its way into a far::Parameter. */
struct token {
	struct token *next;
	int64_t number;
	struct far_var *var;
};

static struct far_var *token_take(struct far_train *train, int64_t number)
{
	struct far_var *var = NULL;
	pthread_mutex_lock(&train->lock);
	struct token **at = &train->tokens;
	while (*at && (*at)->number != number)
		at = &(*at)->next;
	struct token *token = *at;
	if (token) {
		*at = token->next;
		var = token->var;
	}
	pthread_mutex_unlock(&train->lock);
	free(token);
	return var;
}

void tokens_free(struct far_train *train)
{
	while (train->tokens)
		far_var_free(token_take(train, train->tokens->number));
}

enum far_status far_var_rref(struct far_train *train, struct far_var *var, struct far_rref **out, struct far_err *err)
{
	struct far_agent *agent = train_agent(train, NULL);
	struct token *token = malloc(sizeof *token);
	if (!token || !agent || !var) {
		free(token);
		return fail(err, FAR_INVALID,
			    "far_var_rref: no variable, no memory, or far_train_init_rpc() comes first");
	}
	pthread_mutex_lock(&train->lock);
	int64_t number = ++train->tokens_made;
	*token = (struct token){train->tokens, number, far_var_ref(var)};
	train->tokens = token;
	pthread_mutex_unlock(&train->lock);
	enum far_status status =
		far_remote_to(agent, far_self(agent), "far::Parameter", FAR_ARGS(number), NULL, out, err);
	if (status)
		far_var_free(token_take(train, number));
	return status;
}

/* ---- far::Parameter ---- */

static enum far_status return_var(struct far_req *req, struct far_var *var)
{
	enum far_status status = far_return_object(req, var);
	if (status)
		far_var_free(var);
	return status;
}

static enum far_status parameter_of_token(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_train *train = user;
	struct far_agent *agent = train_agent(train, req);
	bool own = far_req_from(req).worker == far_self(agent).worker;
	struct far_var *var = own ? token_take(train, args[0].u.i) : NULL;
	(void)n;
	return var ? return_var(req, var) : far_fail(req, FAR_INVALID, 0, "far::Parameter: there is no such variable");
}

static enum far_status parameter_of_module(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_err err;
	void *module;
	(void)n;
	(void)user;
	enum far_status status = far_rref_object(args[0].u.rref, MODULE_CLASS, 0, &module, &err);
	if (status)
		return far_fail(req, status, err.code, "%s", err.text);
	size_t count = far_module_parameters(module, NULL, 0);
	if (args[1].u.i < 0 || (uint64_t)args[1].u.i >= count)
		return far_fail(req, FAR_INVALID, 0, "far::Parameter: parameter %lld of %zu", (long long)args[1].u.i,
				count);
	struct far_var **vars = malloc(count * sizeof *vars);
	if (!vars)
		return FAR_RESOURCE;
	far_module_parameters(module, vars, count);
	struct far_var *var = far_var_ref(vars[args[1].u.i]);
	free(vars);
	return return_var(req, var);
}

static enum far_status parameter_get(struct far_req *req, void *object, const struct far_val *args, size_t n,
				     void *user)
{
	struct far_train *train = user;
	struct far_context *context;
	struct far_err err;
	(void)n;
	enum far_status status = far_context_find(train, req, (uint64_t)args[0].u.i, &context, &err);
	if (status)
		return far_fail(req, status, err.code, "%s", err.text);
	struct far_val v = far_context_send(context, object, &err);
	status = v.type == FAR_TYPE_NONE ? far_fail(req, err.status, err.code, "%s", err.text) : far_return(req, &v);
	far_context_free(context);
	return status;
}

static enum far_status parameter_value(struct far_req *req, void *object, const struct far_val *args, size_t n,
				       void *user)
{
	struct far_val v = far_tensor_val(far_var_tensor(object));
	(void)args;
	(void)n;
	(void)user;
	return far_return(req, &v);
}

static void parameter_destroy(void *object, void *user)
{
	(void)user;
	far_var_free(object);
}

/* ---- far::Optimizer ---- */

void optimizer_pack(const struct far_optimizer_opts *o, struct far_val packed[OPTIMIZER_FIELDS])
{
	const double fields[] = {(double)o->kind, o->lr,    o->weight_decay, o->momentum,  o->dampening, o->nesterov,
				 o->beta1,        o->beta2, o->eps,          o->amsgrad,   o->lr_decay,  o->initial,
				 o->rho,          o->alpha, o->centered,     o->eta_minus, o->eta_plus,  o->step_min,
				 o->step_max,     o->l1,    o->l2,           o->beta};
	_Static_assert(sizeof fields / sizeof *fields == OPTIMIZER_FIELDS, "all hyperparameters travel");
	for (unsigned i = 0; i < OPTIMIZER_FIELDS; i++)
		packed[i] = far_float(fields[i]);
}

static bool unpack(const struct far_val *list, struct far_optimizer_opts *o)
{
	double f[OPTIMIZER_FIELDS];
	if (far_len(list) != OPTIMIZER_FIELDS)
		return false;
	for (unsigned i = 0; i < OPTIMIZER_FIELDS; i++) {
		const struct far_val *v = far_list_get(list, i);
		if (v->type != FAR_TYPE_FLOAT)
			return false;
		f[i] = v->u.f;
	}
	if (!(f[0] >= 0 && f[0] < FAR_OPTIMIZER_COUNT))
		return false;
	*o = (struct far_optimizer_opts){(enum far_optimizer_kind)f[0],
					 f[1],
					 f[2],
					 f[3],
					 f[4],
					 f[5] != 0,
					 f[6],
					 f[7],
					 f[8],
					 f[9] != 0,
					 f[10],
					 f[11],
					 f[12],
					 f[13],
					 f[14] != 0,
					 f[15],
					 f[16],
					 f[17],
					 f[18],
					 f[19],
					 f[20],
					 f[21]};
	return true;
}

/** The variables of references to far::Parameter. */
static enum far_status variables_of(const struct far_val *list, struct far_var **vars, struct far_err *err)
{
	for (size_t i = 0; i < far_len(list); i++) {
		const struct far_val *v = far_list_get(list, i);
		void *var;
		if (v->type != FAR_TYPE_RREF)
			return fail(err, FAR_INVALID, "far::Optimizer: parameter %zu is no reference", i);
		TRY(far_rref_object(v->u.rref, PARAMETER_CLASS, 0, &var, err));
		vars[i] = var;
	}
	return FAR_OK;
}

static enum far_status optimizer_make(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_train *train = user;
	struct far_optimizer *optimizer = NULL;
	struct far_optimizer_opts opts;
	struct far_var *vars[FAR_PARAMETERS_MAX];
	struct far_err err;
	(void)n;
	if (!unpack(&args[0], &opts) || far_len(&args[1]) > FAR_PARAMETERS_MAX)
		return far_fail(req, FAR_INVALID, 0,
				"far::Optimizer: malformed hyperparameters, or more than %d parameters",
				FAR_PARAMETERS_MAX);
	enum far_status status = variables_of(&args[1], vars, &err);
	if (!status)
		status = far_optimizer_new(train->pool, &opts, vars, far_len(&args[1]), &optimizer, &err);
	if (status)
		return far_fail(req, status, err.code, "%s", err.text);
	status = far_return_object(req, optimizer);
	if (status)
		far_optimizer_free(optimizer);
	return status;
}

static enum far_status optimizer_step(struct far_req *req, void *object, const struct far_val *args, size_t n,
				      void *user)
{
	struct far_err err;
	enum far_status status = FAR_OK;
	/* A context that is not here has no gradients here. */
	struct far_context *context = context_here(user, (uint64_t)args[0].u.i);
	(void)n;
	if (context)
		status = far_optimizer_step(object, context->grads, &err);
	far_context_free(context);
	return status ? far_fail(req, status, err.code, "%s", err.text) : far_return_none(req);
}

/** False: nothing was done, and the caller is to call step(), which runs on a thread for blocking handlers. */
static enum far_status optimizer_try_step(struct far_req *req, void *object, const struct far_val *args, size_t n,
					  void *user)
{
	struct far_err err;
	enum far_status status = FAR_OK;
	struct far_context *context = context_here(user, (uint64_t)args[0].u.i);
	struct far_val done = far_bool(!context || optimizer_step_short(object, context->grads, &status, &err));
	(void)n;
	far_context_free(context);
	return status ? far_fail(req, status, err.code, "%s", err.text) : far_return(req, &done);
}

static enum far_status optimizer_set_lr(struct far_req *req, void *object, const struct far_val *args, size_t n,
					void *user)
{
	struct far_err err;
	enum far_status status = far_optimizer_set_lr(object, args[0].u.f, &err);
	(void)n;
	(void)user;
	return status ? far_fail(req, status, err.code, "%s", err.text) : far_return_none(req);
}

static void optimizer_destroy(void *object, void *user)
{
	(void)user;
	far_optimizer_free(object);
}

/* ---- far::Module ---- */

static enum far_status module_forward(struct far_req *req, void *object, const struct far_val *args, size_t n,
				      void *user)
{
	struct far_train *train = user;
	struct far_context *context = NULL;
	struct far_tape *tape;
	struct far_err err;
	enum far_status status = FAR_OK;
	(void)n;
	if (args[0].type != FAR_TYPE_TENSOR && !(context = far_context_of(train, req, &args[0], &err)))
		return far_fail(req, err.status, err.code, "%s", err.text);
	status = far_tape_new(train->pool, &tape, &err);
	if (status) {
		far_fail(req, status, err.code, "%s", err.text);
	} else {
		far_tape_record(tape, context != NULL);
		struct far_var *x = far_tape_recv(tape, context, &args[0]);
		status = far_tape_return(tape, context, x ? far_module_forward(object, tape, x) : NULL, req);
		far_tape_free(tape);
	}
	far_context_free(context);
	return status;
}

/** A fiber: it waits for the input without a thread, then has the module called with it. */
static enum far_status module_forward_rref(struct far_req *req, void *object, const struct far_val *args, size_t n,
					   void *user)
{
	struct far_val x;
	struct far_err err;
	struct far_future *f = NULL;
	struct far_rref *self = far_rref_ref(far_req_rref(req));
	(void)object;
	(void)n;
	(void)user;
	enum far_status status = far_rref_to_here(args[0].u.rref, 0, &x, &err);
	if (!status) {
		status = far_rref_rpc_async(self, "forward", &x, 1, NULL, &f, &err);
		far_val_fini(&x);
	}
	if (!status) {
		status = far_return_future(req, f);
		far_future_free(f);
	} else {
		status = far_fail(req, status, err.code, "%s", err.text);
	}
	far_rref_free(self);
	return status;
}

static enum far_status module_train(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	(void)user;
	far_module_train(object, args[0].u.b);
	return far_return_none(req);
}

static enum far_status module_count(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	(void)args;
	(void)n;
	(void)user;
	return far_return_int(req, (int64_t)far_module_parameters(object, NULL, 0));
}

static void module_destroy(void *object, void *user)
{
	(void)user;
	far_module_free(object);
}

void objects_fill(struct objects *o, struct far_train *train)
{
	*o = (struct objects){
		.parameter_makers = {{"far::Parameter(int token) -> far::Parameter", FAR_KIND_INLINE,
				      parameter_of_token, train, 0},
				     {"far::Parameter(rref module, int index) -> far::Parameter", FAR_KIND_FIBER,
				      parameter_of_module, train, 0}},
		.parameter = {{"get(int context) -> far::Var", FAR_KIND_INLINE, parameter_get, train},
			      {"value() -> Tensor", FAR_KIND_INLINE, parameter_value, train}},
		.optimizer_makers = {{"far::Optimizer(List opts, List params) -> far::Optimizer", FAR_KIND_FIBER,
				      optimizer_make, train, 0}},
		.optimizer = {{"step_short(int context) -> bool", FAR_KIND_INLINE, optimizer_try_step, train},
			      {"step(int context) -> none", FAR_KIND_BLOCKING, optimizer_step, train},
			      {"set_lr(float lr) -> none", FAR_KIND_BLOCKING, optimizer_set_lr, train}},
		.module = {{"forward(far::Var|Tensor x) -> far::Var|Tensor", FAR_KIND_BLOCKING, module_forward, train},
			   {"forward_rref(rref x) -> far::Var|Tensor", FAR_KIND_FIBER, module_forward_rref, train},
			   {"train(bool on) -> none", FAR_KIND_INLINE, module_train, train},
			   {"count() -> int", FAR_KIND_INLINE, module_count, train}},
	};
	const struct far_class classes[] = {
		{.name = PARAMETER_CLASS,
		 .constructors = o->parameter_makers,
		 .constructors_n = 2,
		 .methods = o->parameter,
		 .methods_n = 2,
		 .destroy = parameter_destroy},
		{.name = OPTIMIZER_CLASS,
		 .constructors = o->optimizer_makers,
		 .constructors_n = 1,
		 .methods = o->optimizer,
		 .methods_n = 3,
		 .destroy = optimizer_destroy},
		{.name = MODULE_CLASS, .methods = o->module, .methods_n = 4, .destroy = module_destroy},
	};
	memcpy(o->classes, classes, sizeof classes);
}
