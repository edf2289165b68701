/* SPDX-License-Identifier: BSD-3-Clause */
/** Modules: names, parameters, modules inside each other. Any thread; changes by one at a time. */
#include "module.h"

#include "variable.h"

/* ---- making and freeing ---- */

enum far_status module_make(struct far_pool *pool, const struct layer *layer, struct far_module **module,
			    struct far_err *err)
{
	struct far_module *made = pool_zero(pool, sizeof *made);
	if (!made)
		return fail_memory(err, layer->name, sizeof *made);
	made->pool = pool;
	made->layer = layer;
	made->height = 1;
	made->training = true;
	*module = made;
	return FAR_OK;
}

static struct far_var *class_forward(struct far_module *module, struct far_tape *tape, struct far_var *x)
{
	return module->cls->forward(module, tape, x);
}

enum far_status far_module_new(struct far_pool *pool, const struct far_module_class *cls, void *user,
			       struct far_module **module, struct far_err *err)
{
	static const struct layer layer = {"class", class_forward, NULL};
	TRY(module_make(pool, &layer, module, err));
	(*module)->cls = cls;
	(*module)->user = user;
	return FAR_OK;
}

/** `height` bounds the recursion: FAR_MODULE_DEPTH_MAX. */
static void destroy(struct far_module *module)
{
	while (module->parts) {
		struct part *part = module->parts;
		module->parts = part->next;
		far_var_free(part->var);
		if (part->module)
			destroy(part->module);
		pool_give(part);
	}
	if (module->cls && module->cls->destroy)
		module->cls->destroy(module->user);
	pool_give(module);
}

void far_module_free(struct far_module *module)
{
	if (module && !module->owned)
		destroy(module);
}

void *far_module_user(const struct far_module *module)
{
	return module->user;
}

const char *far_module_kind(const struct far_module *module)
{
	return module->cls ? module->cls->name : module->layer->name;
}

/* ---- parts ---- */

static struct part *find(const struct far_module *module, const char *name, size_t len)
{
	for (struct part *part = module->parts; part; part = part->next)
		if (strlen(part->name) == len && memcmp(part->name, name, len) == 0)
			return part;
	return NULL;
}

static enum far_status add(struct far_module *module, const char *name, struct far_var *var, struct far_module *child,
			   struct far_err *err)
{
	size_t len = strlen(name);
	if (len == 0 || len >= MODULE_WORD_MAX || strchr(name, '.'))
		return fail(err, FAR_INVALID, "%s: \"%s\" is not a name: 1 to %d bytes without a \".\"",
			    far_module_kind(module), name, MODULE_WORD_MAX - 1);
	if (find(module, name, len))
		return fail(err, FAR_INVALID, "%s: the name \"%s\" is taken", far_module_kind(module), name);
	struct part *part = pool_zero(module->pool, sizeof *part);
	if (!part)
		return fail_memory(err, far_module_kind(module), sizeof *part);
	memcpy(part->name, name, len);
	part->var = var;
	part->module = child;
	struct part **end = &module->parts;
	while (*end)
		end = &(*end)->next;
	*end = part;
	return FAR_OK;
}

enum far_status far_module_add_parameter(struct far_module *module, const char *name, struct far_var *var,
					 struct far_err *err)
{
	if (!var || var->node || !tensor_is_dense(&var->value.t))
		return fail(err, FAR_INVALID, "%s: parameter \"%s\" is not a dense leaf", far_module_kind(module),
			    name);
	TRY(add(module, name, var, NULL, err));
	far_var_ref(var);
	return FAR_OK;
}

enum far_status far_module_add(struct far_module *module, const char *name, struct far_module *child,
			       struct far_err *err)
{
	/* An owned module cannot grow in height, so that the height of its owner stays right. */
	if (!child || child == module || child->owned || module->owned)
		return fail(err, FAR_INVALID, "%s: module \"%s\" cannot be added: %s", far_module_kind(module), name,
			    module->owned ? "this one is inside another" : "it is NULL, this one, or inside another");
	if (child->height >= FAR_MODULE_DEPTH_MAX)
		return fail(err, FAR_INVALID, "%s: module \"%s\" is the limit of %d modules inside each other",
			    far_module_kind(module), name, FAR_MODULE_DEPTH_MAX);
	TRY(add(module, name, NULL, child, err));
	child->owned = true;
	if (module->height <= child->height)
		module->height = child->height + 1;
	return FAR_OK;
}

/** The part of a full name, "1.weight". NULL: there is none. */
static struct part *lookup(struct far_module *module, const char *name)
{
	for (;;) {
		size_t len = strcspn(name, ".");
		struct part *part = find(module, name, len);
		if (!part || !name[len])
			return part;
		if (!part->module)
			return NULL;
		module = part->module;
		name += len + 1;
	}
}

struct far_var *far_module_parameter(struct far_module *module, const char *name)
{
	const struct part *part = lookup(module, name);
	return part ? part->var : NULL;
}

struct far_module *far_module_child(struct far_module *module, const char *name)
{
	const struct part *part = lookup(module, name);
	return part ? part->module : NULL;
}

struct far_var *module_own(const struct far_module *module, const char *name)
{
	const struct part *part = find(module, name, strlen(name));
	return part ? part->var : NULL;
}

/* ---- all parameters ---- */

struct walk {
	enum far_status (*each)(void *user, const char *name, struct far_var *var);
	void *user;
	char name[FAR_MODULE_NAME_MAX];
};

static enum far_status walk(struct walk *w, const struct far_module *module, size_t len)
{
	for (const struct part *part = module->parts; part; part = part->next) {
		size_t more = strlen(part->name);
		memcpy(w->name + len, part->name, more + 1);
		if (part->var) {
			TRY(w->each(w->user, w->name, part->var));
			continue;
		}
		w->name[len + more] = '.';
		TRY(walk(w, part->module, len + more + 1));
	}
	return FAR_OK;
}

enum far_status far_module_each(struct far_module *module,
				enum far_status (*each)(void *user, const char *name, struct far_var *var), void *user)
{
	struct walk w = {each, user, ""};
	return walk(&w, module, 0);
}

struct collected {
	struct far_var **vars;
	size_t capacity, n;
};

static enum far_status collect(void *user, const char *name, struct far_var *var)
{
	struct collected *c = user;
	(void)name;
	if (c->n < c->capacity)
		c->vars[c->n] = var;
	c->n++;
	return FAR_OK;
}

size_t far_module_parameters(struct far_module *module, struct far_var **vars, size_t capacity)
{
	struct collected c = {vars, capacity, 0};
	far_module_each(module, collect, &c);
	return c.n;
}

void far_module_train(struct far_module *module, bool training)
{
	module->training = training;
	for (struct part *part = module->parts; part; part = part->next)
		if (part->module)
			far_module_train(part->module, training);
}

bool far_module_training(const struct far_module *module)
{
	return module->training;
}

/* ---- forward ---- */

struct far_var *far_module_forward(struct far_module *module, struct far_tape *tape, struct far_var *x)
{
	return far_tape_status(tape, NULL) ? NULL : module->layer->forward(module, tape, x);
}

struct far_var *far_module_forward_state(struct far_module *module, struct far_tape *tape, struct far_var *x,
					 struct far_var *state[2])
{
	struct far_err err;
	if (far_tape_status(tape, NULL))
		return NULL;
	if (module->layer->forward_state)
		return module->layer->forward_state(module, tape, x, state);
	fail(&err, FAR_INVALID, "%s: the module has no state", far_module_kind(module));
	far_tape_fail(tape, &err);
	return NULL;
}

/* ---- initial values ---- */

/** A new parameter, zero. */
static enum far_status parameter(struct far_module *module, const struct far_init *init, const char *name,
				 unsigned ndim, const uint64_t *shape, struct far_var **out, struct far_err *err)
{
	struct far_tensor t = tensor_dense(init->dtype ? init->dtype : FAR_F32, NULL, ndim, shape);
	for (unsigned k = 0; k < ndim; k++)
		if (shape[k] == 0)
			return fail(err, FAR_INVALID, "%s: %s has a dimension of 0", far_module_kind(module), name);
	TRY(far_var_new(module->pool, &t, true, out, err));
	enum far_status status = far_module_add_parameter(module, name, *out, err);
	far_var_free(*out); /* the module has a reference */
	return status;
}

enum far_status module_random(struct far_module *module, struct far_init *init, const char *name, unsigned ndim,
			      const uint64_t *shape, double bound, struct far_err *err)
{
	struct far_var *var;
	struct held values = {0};
	struct far_tensor half;
	double one_half = 0.5;
	TRY(parameter(module, init, name, ndim, shape, &var, err));
	if (!held_new(&values, module->pool, FAR_F64, ndim, shape))
		return fail_memory(err, name, far_tensor_bytes(&var->value.t));
	enum far_status status;
	if (bound > 0) {
		half = tensor_dense(FAR_F64, &one_half, 0, NULL);
		status = far_op_rand(init->seed, init->stream, &values.t, err);
		if (!status)
			status = far_op_sub(&values.t, &half, &values.t, err);
		if (!status)
			status = far_op_scale(&values.t, 2 * bound, &values.t, err);
	} else {
		status = far_op_randn(init->seed, init->stream, &values.t, err);
	}
	if (!status)
		status = far_op_copy(&values.t, &var->value.t, err);
	init->stream++;
	held_drop(&values);
	return status;
}

enum far_status module_filled(struct far_module *module, struct far_init *init, const char *name, unsigned ndim,
			      const uint64_t *shape, double value, struct far_err *err)
{
	struct far_var *var;
	TRY(parameter(module, init, name, ndim, shape, &var, err));
	return far_op_fill(value, &var->value.t, err);
}
