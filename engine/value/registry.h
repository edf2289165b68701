/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What can be called on this worker. Append-only: application threads add under a lock, shards look up without one. An
 * entry is immutable once its index is published (release; the readers' acquire pairs with it).
 */
#ifndef FAR_VALUE_REGISTRY_H
#define FAR_VALUE_REGISTRY_H

#include "base/limits.h"
#include "base/must.h"
#include "value/signature.h"

#include <farcall/object.h>
#include <pthread.h>
#include <stdatomic.h>

/** A kind without what was added to it. */
static inline enum far_kind kind_of(enum far_kind kind)
{
	return (enum far_kind)((unsigned)kind & ~(unsigned)FAR_IDEMPOTENT);
}

/** Of functions that are not simply called by a request that names them: `own_kind` says where they run. */
#define KIND_APART ((enum far_kind)(FAR_KIND_BLOCKING + 1))

struct method;
struct object_class;

struct function {
	struct signature signature;
	far_fn *fn;
	enum far_kind kind; /* KIND_APART: a method, or it makes objects */
	bool idempotent;
	void *user;
	uint32_t index;
	enum far_kind own_kind;
	const struct method *method;      /* NULL: it is none */
	const struct object_class *makes; /* its result; NULL: a value */
	/* Overloads of one name are a list, the first registered in front. Release of the writer, acquire of readers.
	 */
	_Atomic(struct function *) next;
	_Atomic bool
		rivals; /* another overload takes as many arguments as this one may: the first fit need not be best */
};

struct message_handler {
	far_msg_fn *fn;
	enum far_kind kind;
	bool idempotent;
	void *user;
	char name[16];                                       /* "message 17", for errors */
	_Atomic(const struct far_msg_placement *) placement; /* where long ones go; NULL: to memory of the engine */
};

#define REGISTRY_BUCKETS (2 * FAR_FUNCTIONS_MAX) /* open addressing, half full at most */

struct registry {
	_Atomic uint32_t functions_n;
	_Atomic(struct function *) functions[FAR_FUNCTIONS_MAX];
	_Atomic uint32_t by_name[REGISTRY_BUCKETS]; /* index + 1; linear probing from the name's hash */
	_Atomic(struct message_handler *) messages[FAR_MSG_HANDLERS_MAX];
	_Atomic bool types[FAR_TYPES_MAX]; /* by index: custom types that this worker takes and sends */
	_Atomic(struct object_class *) classes[2 * FAR_CLASSES_MAX]; /* linear probing from the hash; classes.h */
	uint32_t classes_n;
	struct object_class *classes_all; /* those that could not be registered whole, too */
	pthread_mutex_t lock;             /* writers */
};

void registry_init(struct registry *r);
void registry_fini(struct registry *r);

enum far_status registry_add(struct registry *r, const struct far_function *f, struct far_err *err);
enum far_status registry_add_message(struct registry *r, const struct far_msg_handler *m, struct far_err *err);

/** The same for a class that is about to be added, or NULL, and as a method, or NULL, which is the registry's then. */
enum far_status registry_add_of(struct registry *r, const struct far_function *f, const struct object_class *cls,
				const struct method *method, struct far_err *err);

enum far_status registry_add_type(struct registry *r, const struct far_custom_type *type, struct far_err *err);
enum far_status registry_add_placement(struct registry *r, const struct far_msg_placement *p, struct far_err *err);

/** By qualified name, by its hash: the first of its overloads; by index. NULL when there is none. Any thread, no lock.
 */
const struct function *registry_find(const struct registry *r, const char *name);
const struct function *registry_find_hash(const struct registry *r, uint64_t name_hash);

static inline const struct function *registry_next(const struct function *fn)
{
	return atomic_load_explicit(&fn->next, memory_order_acquire);
}

/** The overload with this canonical signature, from `first` on; NULL: none. */
const struct function *registry_overload(const struct function *first, uint64_t canonical_hash);

/** The canonical signatures of all overloads, separated by "; ", as far as they fit; returns buf. */
const char *registry_overloads_text(const struct function *first, char *buf, size_t len);

/**
 * The overload of `first`'s name that fits the arguments best, with `out` as of signature_bind(). FAR_BAD_ARGS says why
 * the only one does not fit, or names all when none or several do. registry_resolve.c
 */
enum far_status registry_resolve(const struct function *first, const struct far_val *args, size_t n,
				 const struct function **fn, struct far_val *out, struct far_err *err);

/** The same at the cost of a look where the first overload is the only one and takes the arguments as they are: then
 * `*v` are these, else `converted`. */
static inline enum far_status registry_fit(const struct function **fn, const struct far_val *args, size_t n,
					   struct far_val *converted, const struct far_val **v, struct far_err *err)
{
	*v = args;
	if (likely(signature_fits(&(*fn)->signature, args, n) &&
		   !atomic_load_explicit(&(*fn)->rivals, memory_order_relaxed)))
		return FAR_OK;
	*v = converted;
	return registry_resolve(*fn, args, n, fn, converted, err);
}

/** Are all custom types among the values, which values_size() found good, known here; FAR_BAD_ARGS names the first that
 * is not. */
enum far_status registry_check_customs(const struct registry *r, const struct far_val *v, size_t n,
				       struct far_err *err);
/** For tree_decode(): `registry` knows the type of this index. */
bool registry_knows_type(const void *registry, uint32_t type);

/** What a function's result may be: bit (1 << enum far_type). */
static inline uint16_t function_result_types(const struct function *fn)
{
	const struct signature_set *set = &fn->signature.result;
	return (uint16_t)(set->types | (set->customs ? 1u << FAR_TYPE_CUSTOM : 0));
}

static inline const struct function *registry_at(const struct registry *r, uint32_t index)
{
	return index < FAR_FUNCTIONS_MAX ? atomic_load_explicit(&r->functions[index], memory_order_acquire) : NULL;
}

static inline const struct message_handler *registry_message(const struct registry *r, uint32_t id)
{
	return id < FAR_MSG_HANDLERS_MAX ? atomic_load_explicit(&r->messages[id], memory_order_acquire) : NULL;
}

#endif
