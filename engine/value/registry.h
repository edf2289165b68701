/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Functions, message handlers, custom types and classes of a worker. Append-only: application threads add under a lock,
 * any thread looks up without it. Release of an entry's index or pointer by the writer pairs with acquire of the
 * readers; the entry is immutable from then on.
 */
#ifndef FAR_VALUE_REGISTRY_H
#define FAR_VALUE_REGISTRY_H

#include "base/limits.h"
#include "base/must.h"
#include "value/signature.h"

#include <farcall/object.h>
#include <pthread.h>
#include <stdatomic.h>

/** function.kind of methods and constructors: a request does not run their handler directly. `run_kind` states where it
 * runs. */
#define KIND_INDIRECT ((enum far_kind)(FAR_KIND_BLOCKING + 1))

struct method;
struct object_class;
struct plugin;

struct function {
	struct signature signature;
	far_fn *fn;
	enum far_kind kind; /* without flags; KIND_INDIRECT: a method or a constructor */
	bool idempotent;
	void *user;
	uint32_t index;                   /* in registry.functions; the function's number in requests */
	enum far_kind run_kind;           /* registered kind without flags */
	const struct method *method;      /* owned; NULL: not a method */
	const struct object_class *makes; /* class that it makes; NULL: it returns a value */
	/* Next overload of the name, in the order of registration. Release in append_overload(), acquire in
	 * registry_next(). */
	_Atomic(struct function *) next;
	/* Another overload takes the same number of arguments, so the first match may not be best; or the function was
	 * removed. Holders of the function take the general path then. */
	_Atomic bool rivals;
	/* Of a plugin, whose gate guards the rest; NULL: of the application. `fn` is its `run`, or the method's `fn`
	 * its `run_method`, with this function as `user`. */
	struct plugin *plugin;
	union {
		far_fn *fn;
		far_method_fn *method;
	} code;
	void *code_user;
	bool removed; /* not found by name; adding it again makes it valid, with its number */
};

struct message_handler {
	far_msg_fn *fn;
	enum far_kind kind;
	bool idempotent;
	void *user;
	char name[16];                                       /* "message 17", for error texts */
	_Atomic(const struct far_msg_placement *) placement; /* of rendezvous messages; NULL: memory of the engine */
};

#define REGISTRY_BUCKETS (2 * FAR_FUNCTIONS_MAX) /* open addressing, half full at most */

struct registry {
	_Atomic uint32_t functions_n; /* written under `lock` */
	_Atomic(struct function *) functions[FAR_FUNCTIONS_MAX];
	_Atomic uint32_t by_name[REGISTRY_BUCKETS]; /* index + 1; 0: free; linear probing by hash of the name */
	_Atomic(struct message_handler *) messages[FAR_MSG_HANDLERS_MAX];
	_Atomic bool types[FAR_TYPES_MAX]; /* by custom_type.index: registered with this agent */
	_Atomic(struct object_class *) classes[2 * FAR_CLASSES_MAX]; /* linear probing by hash of the name */
	uint32_t classes_n;
	uint32_t gone;                    /* by_name value of removed names; 0: none was removed. Under `lock` */
	struct object_class *classes_all; /* all, those with a failed registration too */
	pthread_mutex_t lock;             /* taken by writers */
};

void registry_init(struct registry *r);
void registry_fini(struct registry *r);

/** Add an entry. Errors: INVALID, RESOURCE. */
enum far_status registry_add(struct registry *r, const struct far_function *f, struct far_err *err);
enum far_status registry_add_message(struct registry *r, const struct far_msg_handler *m, struct far_err *err);

/** registry_add() for a class that is being added (NULL: none), as a method (NULL: a function), of a plugin (NULL: of
 * the application). On FAR_OK the registry owns `method`. */
enum far_status registry_add_of(struct registry *r, const struct far_function *f, const struct object_class *cls,
				struct method *method, struct plugin *plugin, struct far_err *err);

/** Reserves what registry_remove() needs. false: the registry is full. Takes the lock. registry_remove.c */
bool registry_removable(struct registry *r);
/** Removes the functions and classes of a plugin from all lookups. They stay in memory: calls under way may hold them,
 * and peers their numbers. Takes the lock. registry_remove.c */
void registry_remove(struct registry *r, const struct plugin *p);
/** Removes a type of the process from this registry. registry_remove.c */
void registry_remove_type(struct registry *r, const char *name);

enum far_status registry_add_type(struct registry *r, const struct far_custom_type *type, struct far_err *err);
enum far_status registry_add_placement(struct registry *r, const struct far_msg_placement *p, struct far_err *err);

/* ---- Any thread, without a lock ---- */

/** First overload of a name, by qualified name or by its hash. NULL: none. */
const struct function *registry_find(const struct registry *r, const char *name);
const struct function *registry_find_hash(const struct registry *r, uint64_t name_hash);

static inline const struct function *registry_next(const struct function *fn)
{
	return atomic_load_explicit(&fn->next, memory_order_acquire);
}

/** The overload with this canonical signature, starting at `first`; NULL: none. */
const struct function *registry_overload(const struct function *first, uint64_t canonical_hash);

/** Writes the canonical signatures of all overloads, separated by "; ", cut at `len`. Returns `buf`. */
const char *registry_overloads_text(const struct function *first, char *buf, size_t len);

/**
 * Chooses the overload that matches the arguments best, and fills `out` as signature_bind(). FAR_BAD_ARGS names the
 * mismatch of a single overload, or lists the candidates if none or several match. registry_resolve.c
 */
enum far_status registry_resolve(const struct function *first, const struct far_val *args, size_t n,
				 const struct function **fn, struct far_val *out, struct far_err *err);

/** registry_resolve() with a fast path: `*v` is `args` if the first overload takes them without conversion and has no
 * rivals, else `converted`. */
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

/** Checks that all custom types among the values are registered here. The values have passed values_size().
 * FAR_BAD_ARGS names the first that is not. */
enum far_status registry_check_customs(const struct registry *r, const struct far_val *v, size_t n,
				       struct far_err *err);
/** True if custom type number `type` is registered here. Callback of tree_decode(). */
bool registry_has_type(const void *registry, uint32_t type);

/** Possible types of a function's result: bits 1 << enum far_type. */
static inline uint16_t function_result_types(const struct function *fn)
{
	const struct signature_set *set = &fn->signature.result;
	return (uint16_t)(set->types | (set->tensor ? 1u << FAR_TYPE_TENSOR : 0) |
			  (set->customs ? 1u << FAR_TYPE_CUSTOM : 0));
}

/** By index; NULL: none. */
static inline const struct function *registry_at(const struct registry *r, uint32_t index)
{
	return index < FAR_FUNCTIONS_MAX ? atomic_load_explicit(&r->functions[index], memory_order_acquire) : NULL;
}

/** By id; NULL: none. */
static inline const struct message_handler *registry_message(const struct registry *r, uint32_t id)
{
	return id < FAR_MSG_HANDLERS_MAX ? atomic_load_explicit(&r->messages[id], memory_order_acquire) : NULL;
}

#endif
