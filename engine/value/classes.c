/* SPDX-License-Identifier: BSD-3-Clause */
/** Adds classes to a registry and finds them and their methods. Any thread; adding takes the registry's lock. */
#include "value/classes.h"

#include "base/error.h"
#include "base/hash.h"
#include "value/plugin.h"
#include "value/tree.h"
#include "value/types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS (2 * FAR_CLASSES_MAX)
/* "demo::Counter." and the longest signature. */
#define FULL_SIGNATURE_MAX (SIGNATURE_TYPE_MAX + 4096)

/* ---- objects as values ---- */

static size_t not_encodable(const void *object, void *user)
{
	(void)user;
	(void)object;
	return SIZE_MAX;
}

static size_t encoded_size(const void *object, void *user)
{
	const struct far_custom_type *codec = &((const struct object_class *)user)->codec;
	return codec->size(object, codec->user);
}

static void encode(const void *object, void *dst, size_t len, void *user)
{
	const struct far_custom_type *codec = &((const struct object_class *)user)->codec;
	codec->encode(object, dst, len, codec->user);
}

static void end_object(void *object, void *user)
{
	const struct object_class *cls = user;
	if (cls->destroy)
		cls->destroy(object, cls->user);
	if (cls->plugin)
		gate_leave(&cls->plugin->gate, GATE_LIVE);
}

struct far_buf *object_box(const struct object_class *cls, void *object)
{
	struct far_val v = far_custom(&cls->type, object);
	if (cls->plugin && !gate_enter_object(&cls->plugin->gate))
		return NULL;
	struct far_buf *box = tree_of(&v, NULL);
	if (!box && cls->plugin)
		gate_leave(&cls->plugin->gate, GATE_LIVE);
	return box;
}

const struct object_class *object_class_of(const struct far_val *v)
{
	if (v->type != FAR_TYPE_CUSTOM || !v->u.custom.type || v->u.custom.type->destroy != end_object)
		return NULL;
	return v->u.custom.type->user;
}

/* ---- finding ---- */

const struct object_class *registry_find_class(const struct registry *r, uint64_t hash)
{
	for (uint32_t b = (uint32_t)(hash % BUCKETS);; b = (b + 1) % BUCKETS) {
		const struct object_class *c = atomic_load_explicit(&r->classes[b], memory_order_acquire);
		if (!c || c->hash == hash)
			return c;
	}
}

uint64_t method_name_hash(const char *full, size_t len)
{
	return ~hash64(full, len);
}

const struct function *registry_find_method(const struct registry *r, const struct object_class *cls, const char *name)
{
	char full[SIGNATURE_NAME_MAX];
	size_t at = strlen(cls->name), len = strlen(name);
	if (at + 1 + len >= sizeof full)
		return NULL;
	memcpy(full, cls->name, at);
	full[at] = '.';
	memcpy(full + at + 1, name, len + 1);
	const struct function *fn = registry_find_hash(r, method_name_hash(full, at + 1 + len));
	return fn && strcmp(fn->signature.name, full) == 0 ? fn : NULL;
}

/* ---- adding ---- */

struct object_class registry_no_class;

static enum far_status check(const struct far_class *cls, struct far_err *err)
{
	if (!cls || !cls->name)
		return err_set(err, FAR_INVALID, "a class needs a name");
	if (!types_name_ok(cls->name, SIGNATURE_TYPE_MAX))
		return err_set(
			err, FAR_INVALID,
			"\"%.100s\" is not the name of a class: words of letters, digits and _ joined by ::, two at "
			"least, %d bytes at most, as in demo::Counter",
			cls->name, SIGNATURE_TYPE_MAX - 1);
	if ((cls->constructors_n && !cls->constructors) || (cls->methods_n && !cls->methods))
		return err_set(err, FAR_INVALID,
			       "class %s: constructors or methods have a count, but their array is NULL", cls->name);
	if (cls->codec && (!cls->codec->name || strcmp(cls->codec->name, cls->name) != 0))
		return err_set(err, FAR_INVALID,
			       "class %s: its codec must be a type of the same name, but has the name \"%.100s\"",
			       cls->name, cls->codec->name ? cls->codec->name : "(NULL)");
	return FAR_OK;
}

/* What may differ between versions of a plugin: all but the name. */
static void class_fill(struct object_class *c, const struct far_class *cls)
{
	c->destroy = cls->destroy;
	c->user = cls->user;
	c->travels = cls->codec != NULL;
	if (cls->codec)
		c->codec = *cls->codec;
	c->type.size = cls->codec ? encoded_size : not_encodable;
	c->type.encode = cls->codec ? encode : NULL;
}

static struct object_class *class_new(const struct far_class *cls, struct plugin *plugin)
{
	struct object_class *c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	snprintf(c->name, sizeof c->name, "%s", cls->name);
	c->hash = hash64(cls->name, strlen(cls->name));
	c->plugin = plugin;
	c->type = (struct far_custom_type){.name = c->name, .destroy = end_object, .user = c};
	class_fill(c, cls);
	return c;
}

static enum far_status add_method(struct registry *r, const struct object_class *c, const struct far_method *m,
				  far_fn *enter, struct far_err *err)
{
	char full[FULL_SIGNATURE_MAX];
	if (!m->signature || !m->fn)
		return err_set(err, FAR_INVALID, "class %s: a method needs a signature and a handler", c->name);
	int n = snprintf(full, sizeof full, "%s.%s", c->name, m->signature);
	if (n < 0 || (size_t)n >= sizeof full)
		return err_set(err, FAR_INVALID, "class %s: a signature of more than %d bytes; shorten it", c->name,
			       FULL_SIGNATURE_MAX - 1);
	struct method *own = malloc(sizeof *own);
	if (!own)
		return err_set(err, FAR_RESOURCE, "out of memory");
	*own = (struct method){.fn = m->fn, .user = m->user, .kind = m->kind, .cls = c};
	struct far_function f = {full, m->kind, enter, own};
	enum far_status status = registry_add_of(r, &f, c, own, c->plugin, err);
	if (status)
		free(own);
	return status;
}

static enum far_status add_constructor(struct registry *r, const struct object_class *c, const struct far_function *f,
				       struct far_err *err)
{
	struct signature s;
	enum far_status status = signature_parse(f->signature, &s, err);
	if (status)
		return status;
	if (s.result.types || s.result.tensor || s.customs_n == 0 || s.result.customs & (s.result.customs - 1) ||
	    s.customs[__builtin_ctz(s.result.customs)].hash != c->hash)
		return err_set(err, FAR_INVALID,
			       "class %s: its constructor \"%.160s\" must return the class: end it with \"-> %s\"",
			       c->name, f->signature, c->name);
	return registry_add_of(r, f, c, NULL, c->plugin, err);
}

/* The last step: callers find methods through the class. */
static enum far_status publish(struct registry *r, struct object_class *c, struct far_err *err)
{
	uint32_t b = (uint32_t)(c->hash % BUCKETS);
	if (r->classes_n == FAR_CLASSES_MAX)
		return err_set(err, FAR_RESOURCE, "more than %d classes are not possible", FAR_CLASSES_MAX);
	const struct object_class *at;
	while ((at = atomic_load_explicit(&r->classes[b], memory_order_relaxed)) && at != &registry_no_class)
		b = (b + 1) % BUCKETS;
	r->classes_n++;
	atomic_store_explicit(&r->classes[b], c, memory_order_release);
	return FAR_OK;
}

static enum far_status add_parts(struct registry *r, struct object_class *c, const struct far_class *cls, far_fn *enter,
				 struct far_err *err)
{
	enum far_status status = FAR_OK;
	for (size_t i = 0; i < cls->methods_n && !status; i++)
		status = add_method(r, c, &cls->methods[i], enter, err);
	for (size_t i = 0; i < cls->constructors_n && !status; i++)
		status = add_constructor(r, c, &cls->constructors[i], err);
	return status;
}

/* Reserves the name under the lock, so that two threads cannot both register it. *c becomes the class of an earlier
 * version of the plugin if there is one. */
static enum far_status claim(struct registry *r, struct object_class **c, const struct far_class *cls,
			     struct far_err *err)
{
	enum far_status status = FAR_OK;
	struct object_class *mine = *c, *o;
	pthread_mutex_lock(&r->lock);
	for (o = r->classes_all; o && o->hash != mine->hash;)
		o = o->next_all;
	if (o && o->removed && o->plugin == mine->plugin) {
		class_fill(o, cls);
		o->removed = false;
		*c = o;
	} else if (o) {
		status = err_set(err, FAR_INVALID, "class %s is registered already, or its registration failed before",
				 o->name);
	} else {
		mine->next_all = r->classes_all;
		r->classes_all = mine;
	}
	pthread_mutex_unlock(&r->lock);
	if (status || *c != mine)
		free(mine);
	return status;
}

enum far_status registry_add_class(struct registry *r, const struct far_class *cls, far_fn *enter,
				   struct plugin *plugin, struct far_err *err)
{
	enum far_status status = check(cls, err);
	if (!status && cls->codec)
		status = registry_add_type(r, cls->codec, err);
	if (status)
		return status;
	struct object_class *c = class_new(cls, plugin);
	if (!c)
		return err_set(err, FAR_RESOURCE, "out of memory");
	status = claim(r, &c, cls, err);
	if (!status)
		status = add_parts(r, c, cls, enter, err);
	if (status)
		return status;
	pthread_mutex_lock(&r->lock);
	status = publish(r, c, err);
	pthread_mutex_unlock(&r->lock);
	return status;
}

void registry_free_classes(struct registry *r)
{
	for (struct object_class *c = r->classes_all, *next; c; c = next) {
		next = c->next_all;
		free(c);
	}
}
