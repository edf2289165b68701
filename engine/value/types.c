/* SPDX-License-Identifier: BSD-3-Clause */
/** The table of custom types of the process. Any thread; adding takes a lock. */
#include "value/types.h"

#include "base/error.h"
#include "base/hash.h"
#include "value/signature.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define BUCKETS (2 * FAR_TYPES_MAX)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct custom_type *)
	buckets[BUCKETS]; /* linear probing; release in add_locked(), acquire in types_find() */
static uint32_t types_n;

const struct custom_type *types_find(uint64_t hash)
{
	for (uint32_t b = (uint32_t)(hash % BUCKETS);; b = (b + 1) % BUCKETS) {
		const struct custom_type *t = atomic_load_explicit(&buckets[b], memory_order_acquire);
		if (!t || t->hash == hash)
			return t;
	}
}

bool types_name_ok(const char *name, size_t cap)
{
	bool qualified = false;
	size_t n = 0, word = 0;
	for (; n < cap && name[n]; n++) {
		char c = name[n];
		if ((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_') {
			word++;
			continue;
		}
		if (c != ':' || name[n + 1] != ':' || word == 0)
			return false;
		qualified = true;
		word = 0;
		n++;
	}
	return qualified && word > 0 && n < cap;
}

static bool same(const struct far_custom_type *a, const struct far_custom_type *b)
{
	return strcmp(a->name, b->name) == 0 && a->size == b->size && a->encode == b->encode &&
	       a->decode == b->decode && a->destroy == b->destroy && a->user == b->user;
}

static struct custom_type *copy(const struct far_custom_type *type, uint64_t hash)
{
	size_t len = strlen(type->name) + 1;
	struct custom_type *t = malloc(sizeof *t + len);
	if (!t)
		return NULL;
	char *name = (char *)(t + 1);
	memcpy(name, type->name, len);
	t->type = *type;
	t->type.name = name;
	t->hash = hash;
	return t;
}

static enum far_status add_locked(const struct far_custom_type *type, const struct custom_type **out,
				  struct far_err *err)
{
	uint64_t hash = hash64(type->name, strlen(type->name));
	const struct custom_type *there = types_find(hash);
	if (there && !same(&there->type, type))
		return err_set(err, FAR_INVALID,
			       "type %s is registered in this process with other functions or another user pointer; "
			       "use another name",
			       there->type.name);
	if (there) {
		*out = there;
		return FAR_OK;
	}
	if (types_n == FAR_TYPES_MAX)
		return err_set(err, FAR_RESOURCE, "more than %d types are not possible", FAR_TYPES_MAX);
	struct custom_type *t = copy(type, hash);
	if (!t)
		return err_set(err, FAR_RESOURCE, "out of memory");
	uint32_t b = (uint32_t)(hash % BUCKETS);
	while (atomic_load_explicit(&buckets[b], memory_order_relaxed))
		b = (b + 1) % BUCKETS;
	t->index = types_n++;
	atomic_store_explicit(&buckets[b], t, memory_order_release);
	*out = t;
	return FAR_OK;
}

enum far_status types_add(const struct far_custom_type *type, const struct custom_type **out, struct far_err *err)
{
	if (!type || !type->name || !type->size || !type->encode || !type->decode || !type->destroy)
		return err_set(err, FAR_INVALID, "a type needs a name, size, encode, decode and destroy");
	if (!types_name_ok(type->name, SIGNATURE_TYPE_MAX))
		return err_set(
			err, FAR_INVALID,
			"\"%.100s\" is not the name of a type: words of letters, digits and _ joined by ::, two at "
			"least, %d bytes at most, as in geo::Polygon",
			type->name, SIGNATURE_TYPE_MAX - 1);
	pthread_mutex_lock(&lock);
	enum far_status status = add_locked(type, out, err);
	pthread_mutex_unlock(&lock);
	return status;
}
