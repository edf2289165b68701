/* SPDX-License-Identifier: BSD-3-Clause */
/** Adds to a registry: functions, message handlers, custom types, placements. Any thread; adding takes the lock. */
#include "value/registry.h"

#include "base/error.h"
#include "base/hash.h"
#include "value/classes.h"
#include "value/plugin.h"
#include "value/types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void registry_init(struct registry *r)
{
	memset(r, 0, sizeof *r);
	pthread_mutex_init(&r->lock, NULL);
}

void registry_fini(struct registry *r)
{
	for (uint32_t i = 0; i < FAR_FUNCTIONS_MAX && r->functions[i]; i++) {
		struct function *fn = r->functions[i];
		free((void *)(uintptr_t)fn->method);
		free(fn);
	}
	registry_free_classes(r);
	for (uint32_t i = 0; i < FAR_MSG_HANDLERS_MAX; i++) {
		struct message_handler *m = r->messages[i];
		if (m)
			free((void *)(uintptr_t)atomic_load_explicit(&m->placement, memory_order_relaxed));
		free(m);
	}
	pthread_mutex_destroy(&r->lock);
}

static enum far_status check_kind(enum far_kind kind, unsigned flags, const char *what, struct far_err *err)
{
	if (flags & ~FAR_IDEMPOTENT)
		return err_set(err, FAR_INVALID, "%s: flags is %#x; it must be FAR_IDEMPOTENT or 0", what, flags);
	switch (kind) {
	case FAR_KIND_INLINE:
	case FAR_KIND_FIBER:
	case FAR_KIND_BLOCKING:
		return FAR_OK;
	default:
		return err_set(err, FAR_INVALID,
			       "%s: state the handler's kind: FAR_KIND_FIBER when it may wait, FAR_KIND_INLINE when it "
			       "never does, FAR_KIND_BLOCKING when it computes for long or blocks in the system",
			       what);
	}
}

static bool same_count(const struct signature *a, const struct signature *b)
{
	return a->required_n <= b->params_n && b->required_n <= a->params_n;
}

/** Checks that `fn` differs from the overloads of its name; `*last` is the last of these. */
static enum far_status check_overload(struct function *first, const struct function *fn, struct function **last,
				      struct far_err *err)
{
	unsigned n = 0;
	if (first->plugin != fn->plugin)
		return err_set(err, FAR_INVALID, "function \"%s\" is registered already, %s; rename one",
			       first->signature.text, first->plugin ? "by a plugin" : "by the application");
	if (strcmp(first->signature.name, fn->signature.name) != 0)
		return err_set(err, FAR_INVALID, "the names \"%s\" and \"%s\" have the same hash; rename one",
			       first->signature.name, fn->signature.name);
	for (struct function *f = first; f; f = atomic_load_explicit(&f->next, memory_order_relaxed), n++) {
		*last = f;
		if (f->signature.canonical_hash == fn->signature.canonical_hash)
			return err_set(err, FAR_INVALID, "function \"%s\" is registered already", f->signature.text);
		if (f->signature.params_len == fn->signature.params_len &&
		    memcmp(f->signature.text, fn->signature.text, f->signature.params_len) == 0)
			return err_set(err, FAR_INVALID,
				       "function \"%s\" is registered already; overloads must differ in their "
				       "parameters, not only in their result",
				       f->signature.text);
	}
	if (n == FAR_OVERLOADS_MAX)
		return err_set(err, FAR_RESOURCE, "function \"%s\" has %d overloads; more are not possible",
			       first->signature.name, FAR_OVERLOADS_MAX);
	return FAR_OK;
}

static void append_overload(struct function *first, struct function *last, struct function *fn)
{
	for (struct function *f = first; f; f = atomic_load_explicit(&f->next, memory_order_relaxed)) {
		if (!same_count(&f->signature, &fn->signature))
			continue;
		atomic_store_explicit(&f->rivals, true, memory_order_relaxed);
		atomic_store_explicit(&fn->rivals, true, memory_order_relaxed);
	}
	atomic_store_explicit(&last->next, fn, memory_order_release);
}

/* Checks that every named type is registered, or is the class that the function makes. */
static enum far_status types_known(const struct registry *r, const struct function *fn, struct far_err *err)
{
	const struct signature *s = &fn->signature;
	for (unsigned i = 0; i < s->customs_n; i++) {
		const struct custom_type *t = types_find(s->customs[i].hash);
		bool known = t && registry_has_type(r, t->index);
		bool parameter = false;
		for (unsigned k = 0; k < s->params_n; k++)
			parameter = parameter || (s->params[k].set.customs != SIGNATURE_CUSTOMS_ALL &&
						  s->params[k].set.customs >> i & 1);
		if (!known && (parameter || !fn->makes || fn->makes->hash != s->customs[i].hash))
			return err_set(err, FAR_INVALID,
				       "function \"%s\": type %s is not registered here; pass it in the types or "
				       "classes of the "
				       "options, or to far_register_type or far_register_class first",
				       s->name, s->customs[i].name);
	}
	return FAR_OK;
}

/* The class that the function makes: its only result type. NULL: none. `cls`: a class that is being added. */
static const struct object_class *made_by(const struct registry *r, const struct signature *s,
					  const struct object_class *cls)
{
	uint16_t customs = s->result.customs;
	if (s->result.types || s->result.tensor || !customs || customs & (customs - 1))
		return NULL;
	uint64_t hash = s->customs[__builtin_ctz(customs)].hash;
	return cls && cls->hash == hash ? cls : registry_find_class(r, hash);
}

/* Lookups find the function from now on. */
static void publish(struct registry *r, struct function *first, struct function *last, struct function *fn)
{
	uint32_t b = (uint32_t)(fn->signature.name_hash % REGISTRY_BUCKETS), at;
	if (first) {
		append_overload(first, last, fn);
		return;
	}
	while ((at = atomic_load_explicit(&r->by_name[b], memory_order_relaxed)) && at != r->gone)
		b = (b + 1) % REGISTRY_BUCKETS;
	atomic_store_explicit(&r->by_name[b], fn->index + 1, memory_order_release);
}

/* The function of an earlier version of the same plugin. */
static struct function *find_removed(const struct registry *r, const struct function *fn)
{
	for (uint32_t i = 0; fn->plugin && i < r->functions_n; i++) {
		struct function *old = atomic_load_explicit(&r->functions[i], memory_order_relaxed);
		if (old->removed && old->plugin == fn->plugin && strcmp(old->signature.text, fn->signature.text) == 0)
			return old;
	}
	return NULL;
}

/* Peers and handles may hold the old function, so only its code changes. */
static enum far_status check_renewal(const struct function *old, const struct function *fn, struct far_err *err)
{
	char was[FAR_ERR_TEXT_MAX], is[FAR_ERR_TEXT_MAX];
	signature_show(&old->signature, was, sizeof was);
	signature_show(&fn->signature, is, sizeof is);
	if (old->run_kind == fn->run_kind && old->idempotent == fn->idempotent && old->makes == fn->makes &&
	    !old->method == !fn->method && strcmp(was, is) == 0)
		return FAR_OK;
	return err_set(
		err, FAR_INVALID,
		"function \"%.120s\" was \"%.120s\" in the version before, or had another kind or other flags; give "
		"it another name",
		is, was);
}

/* Adds *fn, or in its place the function of an earlier version, with the code of *fn. */
static enum far_status add_locked(struct registry *r, struct function *fn, struct far_err *err)
{
	uint32_t n = atomic_load_explicit(&r->functions_n, memory_order_relaxed);
	struct function *old = find_removed(r, fn);
	if (n == FAR_FUNCTIONS_MAX && !old)
		return err_set(err, FAR_RESOURCE, "more than %d functions are not possible", FAR_FUNCTIONS_MAX);
	enum far_status status = types_known(r, fn, err);
	if (!status && old)
		status = check_renewal(old, fn, err);
	if (status)
		return status;
	struct function *first = (struct function *)(uintptr_t)registry_find_hash(r, fn->signature.name_hash),
			*last = NULL;
	if (first && (status = check_overload(first, fn, &last, err)))
		return status;
	if (old) {
		old->code = fn->code;
		old->code_user = fn->code_user;
		old->removed = false;
		atomic_store_explicit(&old->next, NULL, memory_order_relaxed);
		atomic_store_explicit(&old->rivals, false, memory_order_relaxed);
		publish(r, first, last, old);
		return FAR_OK;
	}
	fn->index = n;
	atomic_store_explicit(&r->functions[n], fn, memory_order_release);
	publish(r, first, last, fn);
	atomic_store_explicit(&r->functions_n, n + 1, memory_order_release);
	return FAR_OK;
}

/* Leads the calls of a plugin's function through its gate. */
static void guard(struct function *fn, struct method *m)
{
	if (!fn->plugin)
		return;
	if (m) {
		fn->code.method = m->fn;
		fn->code_user = m->user;
		m->fn = fn->plugin->run_method;
		m->user = fn;
	} else {
		fn->code.fn = fn->fn;
		fn->code_user = fn->user;
		fn->fn = fn->plugin->run;
		fn->user = fn;
	}
}

enum far_status registry_add(struct registry *r, const struct far_function *f, struct far_err *err)
{
	return registry_add_of(r, f, NULL, NULL, NULL, err);
}

enum far_status registry_add_of(struct registry *r, const struct far_function *f, const struct object_class *cls,
				struct method *method, struct plugin *plugin, struct far_err *err)
{
	if (!f || !f->signature || !f->fn)
		return err_set(err, FAR_INVALID, "a function needs a signature and a handler");
	enum far_status status = check_kind(f->kind, f->flags, f->signature, err);
	if (status)
		return status;
	struct function *fn = calloc(1, sizeof *fn);
	if (!fn)
		return err_set(err, FAR_RESOURCE, "out of memory");
	status = signature_parse(f->signature, &fn->signature, err);
	if (status) {
		free(fn);
		return status;
	}
	fn->fn = f->fn;
	fn->run_kind = f->kind;
	fn->method = method;
	if (method)
		fn->signature.name_hash = method_name_hash(fn->signature.name, strlen(fn->signature.name));
	fn->makes = made_by(r, &fn->signature, cls);
	fn->kind = fn->method || fn->makes ? KIND_INDIRECT : fn->run_kind;
	fn->idempotent = f->flags & FAR_IDEMPOTENT;
	fn->user = f->user;
	fn->plugin = plugin;
	guard(fn, method);
	pthread_mutex_lock(&r->lock);
	status = add_locked(r, fn, err);
	bool renewed = !status && registry_at(r, fn->index) != fn;
	pthread_mutex_unlock(&r->lock);
	if (renewed)
		free(method);
	if (status || renewed)
		free(fn);
	return status;
}

enum far_status registry_add_type(struct registry *r, const struct far_custom_type *type, struct far_err *err)
{
	const struct custom_type *t;
	enum far_status status = types_add(type, &t, err);
	if (status)
		return status;
	if (atomic_exchange_explicit(&r->types[t->index], true, memory_order_acq_rel))
		return err_set(err, FAR_INVALID, "type %s is registered already", t->type.name);
	return FAR_OK;
}

enum far_status registry_add_message(struct registry *r, const struct far_msg_handler *m, struct far_err *err)
{
	if (!m || !m->fn || m->id >= FAR_MSG_HANDLERS_MAX)
		return err_set(err, FAR_INVALID, "a message handler needs a function and an id in [0, %d)",
			       FAR_MSG_HANDLERS_MAX);
	char what[32];
	snprintf(what, sizeof what, "message %u", m->id);
	enum far_status status = check_kind(m->kind, m->flags, what, err);
	if (status)
		return status;
	struct message_handler *h = calloc(1, sizeof *h);
	if (!h)
		return err_set(err, FAR_RESOURCE, "out of memory");
	h->fn = m->fn;
	h->kind = m->kind;
	h->idempotent = m->flags & FAR_IDEMPOTENT;
	h->user = m->user;
	memcpy(h->name, what, sizeof h->name - 1);
	struct message_handler *none = NULL;
	if (!atomic_compare_exchange_strong_explicit(&r->messages[m->id], &none, h, memory_order_release,
						     memory_order_relaxed)) {
		free(h);
		return err_set(err, FAR_INVALID, "message %u has a handler already", m->id);
	}
	return FAR_OK;
}

enum far_status registry_add_placement(struct registry *r, const struct far_msg_placement *p, struct far_err *err)
{
	if (!p || !p->get_buffer || !p->abandon)
		return err_set(err, FAR_INVALID, "a placement needs both functions, get_buffer and abandon");
	struct message_handler *m =
		p->id < FAR_MSG_HANDLERS_MAX ? atomic_load_explicit(&r->messages[p->id], memory_order_acquire) : NULL;
	if (!m)
		return err_set(err, FAR_INVALID, "message %u has no handler; register it before its placement", p->id);
	struct far_msg_placement *copy = malloc(sizeof *copy);
	if (!copy)
		return err_set(err, FAR_RESOURCE, "out of memory");
	*copy = *p;
	const struct far_msg_placement *none = NULL;
	if (!atomic_compare_exchange_strong_explicit(&m->placement, &none, copy, memory_order_release,
						     memory_order_relaxed)) {
		free(copy);
		return err_set(err, FAR_INVALID, "message %u has a placement already", p->id);
	}
	return FAR_OK;
}

const struct function *registry_find_hash(const struct registry *r, uint64_t name_hash)
{
	for (uint32_t b = (uint32_t)(name_hash % REGISTRY_BUCKETS);; b = (b + 1) % REGISTRY_BUCKETS) {
		uint32_t index = atomic_load_explicit(&r->by_name[b], memory_order_acquire);
		if (!index)
			return NULL;
		const struct function *fn = registry_at(r, index - 1);
		if (fn->signature.name_hash == name_hash)
			return fn;
	}
}

const struct function *registry_find(const struct registry *r, const char *name)
{
	const struct function *fn = registry_find_hash(r, hash64(name, strlen(name)));
	return fn && strcmp(fn->signature.name, name) == 0 ? fn : NULL;
}

const struct function *registry_overload(const struct function *first, uint64_t canonical_hash)
{
	while (first && first->signature.canonical_hash != canonical_hash)
		first = registry_next(first);
	return first;
}

bool registry_has_type(const void *registry, uint32_t type)
{
	const struct registry *r = registry;
	return atomic_load_explicit(&r->types[type], memory_order_acquire);
}
