/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Classes of objects in the registry of an agent. Inside the engine an object is the value of a custom type whose
 * destroy function ends the object, so code that ends values ends objects too. Lookups: any thread, no lock.
 */
#ifndef FAR_VALUE_CLASSES_H
#define FAR_VALUE_CLASSES_H

#include "value/registry.h"

#include <farcall/object.h>

struct object_class {
	struct far_custom_type type;  /* of values that are objects; `user` is this class */
	struct far_custom_type codec; /* valid if `travels` */
	bool travels;                 /* objects can be copied to other workers */
	uint64_t hash;                /* hash64 of the name */
	far_destroy_fn *destroy;
	void *user;
	struct object_class *next_all; /* in registry.classes_all */
	struct plugin *plugin;         /* whose gate counts the objects; NULL: of the application */
	bool removed;                  /* not found by name */
	char name[SIGNATURE_TYPE_MAX];
};

/** A method; owned by its struct function. Immutable. */
struct method {
	far_method_fn *fn;
	void *user;
	enum far_kind kind; /* without flags */
	const struct object_class *cls;
};

/** Adds a class with its codec, methods and constructors. `enter` handles every method; its `user` is the struct
 * method. `plugin`: as of registry_add_of(). Errors: INVALID, RESOURCE. Takes locks. */
enum far_status registry_add_class(struct registry *r, const struct far_class *cls, far_fn *enter,
				   struct plugin *plugin, struct far_err *err);
/** For registry_fini(). */
void registry_free_classes(struct registry *r);

/** Takes the place of removed classes in registry.classes. */
extern struct object_class registry_no_class;

/** By hash of the name; NULL: none. */
const struct object_class *registry_find_class(const struct registry *r, uint64_t hash);
/** First overload of a method; NULL: the class has no method of that name. */
const struct function *registry_find_method(const struct registry *r, const struct object_class *cls, const char *name);

/** Hash of a method's full name, "demo::Counter.add". Differs from the hash of a function of the same name. */
uint64_t method_name_hash(const char *full, size_t len);

/** Makes an object a value, in a buffer for tree_root(). Its last reference ends the object. NULL: no memory. */
struct far_buf *object_box(const struct object_class *cls, void *object);
/** The class of a value that is an object; NULL: not an object. */
const struct object_class *object_class_of(const struct far_val *v);

#endif
