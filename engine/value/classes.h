/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Classes of objects, in a registry: each agent's own. An object travels the engine as the value of a custom type,
 * whose end is the object's: so whatever ends values ends objects.
 */
#ifndef FAR_VALUE_CLASSES_H
#define FAR_VALUE_CLASSES_H

#include "value/registry.h"

#include <farcall/object.h>

struct object_class {
	struct far_custom_type type; /* of the values that are objects; `user` is the class */
	struct far_custom_type codec;
	bool travels; /* has a codec */
	uint64_t hash;
	far_destroy_fn *destroy;
	void *user;
	struct object_class *next_all; /* the registry's list */
	char name[SIGNATURE_TYPE_MAX];
};

struct method {
	far_method_fn *fn;
	void *user;
	enum far_kind kind;
	const struct object_class *cls;
};

/** Adds a class with all that belongs to it. `enter` is the handler of its methods, with a struct method for `user`. */
enum far_status registry_add_class(struct registry *r, const struct far_class *cls, far_fn *enter, struct far_err *err);
void registry_free_classes(struct registry *r);

/** NULL: none. Any thread, no lock. */
const struct object_class *registry_find_class(const struct registry *r, uint64_t hash);
/** The first of the overloads of a class's method; NULL: it has none of that name. Any thread, no lock. */
const struct function *registry_find_method(const struct registry *r, const struct object_class *cls, const char *name);

/** What a method is found by, of its full name, "demo::Counter.add": no function has that. */
uint64_t method_name_hash(const char *full, size_t len);

/** An object as a value, in a buffer that tree_root() reads: its last reference ends the object. NULL: no memory. */
struct far_buf *object_box(const struct object_class *cls, void *object);
/** The class of a value that is an object; NULL: it is another kind of value. */
const struct object_class *object_class_of(const struct far_val *v);

#endif
