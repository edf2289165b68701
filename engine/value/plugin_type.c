/* SPDX-License-Identifier: BSD-3-Clause */
/** Counts the decoded values of the custom types of plugins. Any thread; taking a type into use takes a lock. */
#include "value/plugin.h"

#include "base/error.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Never freed: the table of custom types refers to it. */
struct plugin_type {
	struct far_custom_type own; /* the plugin's; changes while the gate is closed */
	struct gate gate;           /* GATE_LIVE of each decoded value; closed without users */
	unsigned users;             /* loaded plugins, of all agents */
	struct plugin_type *next;
	char name[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct plugin_type *types; /* under `lock` */

/* Who encodes has a value, or is a call of the plugin: the gate is theirs. */
static size_t size(const void *object, void *user)
{
	const struct plugin_type *t = user;
	return t->own.size(object, t->own.user);
}

static void encode(const void *object, void *dst, size_t len, void *user)
{
	const struct plugin_type *t = user;
	t->own.encode(object, dst, len, t->own.user);
}

static enum far_status decode(const void *src, size_t len, void **object, void *user)
{
	struct plugin_type *t = user;
	if (!gate_enter(&t->gate, GATE_LIVE))
		return FAR_UNSUPPORTED;
	enum far_status status = t->own.decode(src, len, object, t->own.user);
	if (status)
		gate_leave(&t->gate, GATE_LIVE);
	return status;
}

static void destroy(void *object, void *user)
{
	struct plugin_type *t = user;
	t->own.destroy(object, t->own.user);
	gate_leave(&t->gate, GATE_LIVE);
}

static struct plugin_type *find(const char *name)
{
	struct plugin_type *t = types;
	while (t && strcmp(t->name, name) != 0)
		t = t->next;
	return t;
}

static struct plugin_type *find_or_make(const char *name)
{
	size_t len = strlen(name) + 1;
	struct plugin_type *t = find(name);
	if (t || !(t = calloc(1, sizeof *t + len)))
		return t;
	memcpy(t->name, name, len);
	atomic_init(&t->gate.word, GATE_CLOSED);
	t->next = types;
	types = t;
	return t;
}

static bool same(const struct far_custom_type *a, const struct far_custom_type *b)
{
	return a->size == b->size && a->encode == b->encode && a->decode == b->decode && a->destroy == b->destroy &&
	       a->user == b->user;
}

static enum far_status use_locked(const struct far_custom_type *type, struct far_custom_type *counted,
				  struct far_err *err)
{
	struct plugin_type *t = find_or_make(type->name);
	if (!t)
		return err_set(err, FAR_RESOURCE, "out of memory");
	if (t->users && !same(&t->own, type))
		return err_set(err, FAR_INVALID,
			       "type %s is in use with other functions by another agent of this process; unload it "
			       "there",
			       t->name);
	if (!t->users++) {
		t->own = *type;
		gate_open(&t->gate);
	}
	*counted = (struct far_custom_type){
		.name = t->name, .size = size, .encode = encode, .decode = decode, .destroy = destroy, .user = t};
	return FAR_OK;
}

enum far_status plugin_type_use(const struct far_custom_type *type, struct far_custom_type *counted,
				struct far_err *err)
{
	if (!type->size || !type->encode || !type->decode || !type->destroy)
		return err_set(err, FAR_INVALID, "type %s needs size, encode, decode and destroy", type->name);
	pthread_mutex_lock(&lock);
	enum far_status status = use_locked(type, counted, err);
	pthread_mutex_unlock(&lock);
	return status;
}

bool plugin_type_drop(const char *name, uint64_t *values)
{
	pthread_mutex_lock(&lock);
	struct plugin_type *t = find(name);
	bool dropped = t->users > 1 || gate_close(&t->gate);
	if (dropped)
		t->users--;
	else
		*values = gate_live(&t->gate);
	pthread_mutex_unlock(&lock);
	return dropped;
}
