/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Removes what a plugin has registered from the lookups. Any thread; takes the lock. Lookups run meanwhile: an entry is
 * not freed, and its pointers to others stay.
 */
#include "base/hash.h"
#include "value/classes.h"
#include "value/types.h"

#include <stdlib.h>
#include <string.h>

#define CLASS_BUCKETS (2 * FAR_CLASSES_MAX)

/* The handler of the entry that stands for removed names. A peer that sends its number gets the status. */
static enum far_status no_function(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)req;
	(void)args;
	(void)n;
	(void)user;
	return FAR_NO_FUNCTION;
}

/* Adds the function without a name to which by_name leads from removed names. false: no room for it. */
static bool make_gone(struct registry *r)
{
	uint32_t n = atomic_load_explicit(&r->functions_n, memory_order_relaxed);
	struct function *fn = !r->gone && n < FAR_FUNCTIONS_MAX ? calloc(1, sizeof *fn) : NULL;
	if (!fn)
		return r->gone != 0;
	fn->fn = no_function;
	fn->kind = fn->run_kind = FAR_KIND_INLINE;
	fn->signature.name_hash = hash64("", 0);
	fn->index = n;
	atomic_store_explicit(&r->functions[n], fn, memory_order_release);
	atomic_store_explicit(&r->functions_n, n + 1, memory_order_release);
	r->gone = n + 1;
	return true;
}

bool registry_removable(struct registry *r)
{
	pthread_mutex_lock(&r->lock);
	bool possible = make_gone(r);
	pthread_mutex_unlock(&r->lock);
	return possible;
}

/* Forgets the name of a function, if it is the first of its overloads. */
static void remove_name(struct registry *r, const struct function *fn)
{
	uint32_t b = (uint32_t)(fn->signature.name_hash % REGISTRY_BUCKETS), at;
	while ((at = atomic_load_explicit(&r->by_name[b], memory_order_relaxed)) && at != fn->index + 1)
		b = (b + 1) % REGISTRY_BUCKETS;
	if (at)
		atomic_store_explicit(&r->by_name[b], r->gone, memory_order_release);
}

static void remove_class(struct registry *r, struct object_class *c)
{
	uint32_t b = (uint32_t)(c->hash % CLASS_BUCKETS);
	const struct object_class *at;
	c->removed = true;
	while ((at = atomic_load_explicit(&r->classes[b], memory_order_relaxed)) && at != c)
		b = (b + 1) % CLASS_BUCKETS;
	if (!at) /* its registration failed */
		return;
	r->classes_n--;
	atomic_store_explicit(&r->classes[b], &registry_no_class, memory_order_release);
}

void registry_remove(struct registry *r, const struct plugin *p)
{
	pthread_mutex_lock(&r->lock);
	for (uint32_t i = 0; i < r->functions_n; i++) {
		struct function *fn = atomic_load_explicit(&r->functions[i], memory_order_relaxed);
		if (fn->plugin != p || fn->removed)
			continue;
		fn->removed = true;
		remove_name(r, fn);
		atomic_store_explicit(&fn->rivals, true, memory_order_relaxed);
	}
	for (struct object_class *c = r->classes_all; c; c = c->next_all)
		if (c->plugin == p && !c->removed)
			remove_class(r, c);
	pthread_mutex_unlock(&r->lock);
}

void registry_remove_type(struct registry *r, const char *name)
{
	const struct custom_type *t = types_find(hash64(name, strlen(name)));
	if (t)
		atomic_store_explicit(&r->types[t->index], false, memory_order_release);
}
