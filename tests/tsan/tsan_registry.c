/* SPDX-License-Identifier: BSD-3-Clause */
/** Functions, overloads and types are registered while others look them up; trees are copied and given back by all.
 * Threads that the test starts. */
#include "../e2e/check.h"
#include "value/registry.h"
#include "value/types.h"

#include <pthread.h>
#include <stdatomic.h>

enum { WRITERS = 2, READERS = 2, NAMES = 40, OVERLOADS = 12 };

static struct registry reg;
static _Atomic unsigned writing;

static enum far_status fn(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return FAR_OK;
}

static size_t size(const void *object, void *user)
{
	return sizeof(int);
}

static void encode(const void *object, void *dst, size_t len, void *user)
{
	memcpy(dst, object, len);
}

static enum far_status decode(const void *src, size_t len, void **object, void *user)
{
	CHECK(len == sizeof(int) && (*object = malloc(len)));
	memcpy(*object, src, len);
	return FAR_OK;
}

static void destroy(void *object, void *user)
{
	free(object);
}

static struct far_custom_type type_of(unsigned i, char *name, size_t len)
{
	struct far_custom_type t = {name, size, encode, decode, destroy, NULL};
	snprintf(name, len, "tsan::T%u", i);
	return t;
}

/* Each overload has one more parameter, and a default for the last: neighbours are rivals. */
static void *writer_main(void *arg)
{
	unsigned w = (unsigned)(uintptr_t)arg;
	for (unsigned i = 0; i < NAMES; i++) {
		char name[32], text[256];
		struct far_custom_type t = type_of(i, name, sizeof name);
		enum far_status status = registry_add_type(&reg, &t, NULL);
		CHECK(status == FAR_OK || status == FAR_INVALID);
		for (unsigned k = w; k < OVERLOADS; k += WRITERS) {
			struct far_function f = {text, FAR_KIND_INLINE, fn, NULL};
			size_t at = (size_t)snprintf(text, sizeof text, "r::f%u(tsan::T%u a", i, i);
			for (unsigned p = 0; p < k; p++)
				at += (size_t)snprintf(text + at, sizeof text - at, ", int p%u", p);
			snprintf(text + at, sizeof text - at, ", int last=1) -> none");
			CHECK(registry_add(&reg, &f, NULL) == FAR_OK);
		}
	}
	atomic_fetch_sub(&writing, 1);
	return NULL;
}

static void look_up(unsigned i)
{
	char text[32], name[32];
	struct far_custom_type t = type_of(i, name, sizeof name);
	int object = (int)i;
	struct far_val args[3] = {far_custom(&t, &object), far_int(1), far_int(2)}, out[FAR_ARGS_MAX], copy;
	struct far_val list = far_list(args, 3);
	snprintf(text, sizeof text, "r::f%u", i);
	const struct function *first = registry_find(&reg, text), *found;
	for (const struct function *f = first; f; f = registry_next(f)) {
		CHECK(registry_at(&reg, f->index) == f);
		CHECK(registry_overload(first, f->signature.canonical_hash) == f);
		(void)atomic_load_explicit(&f->rivals, memory_order_relaxed);
	}
	if (first && registry_resolve(first, args, 3, &found, out, NULL) == FAR_OK)
		CHECK(out[1].u.i == 1 && out[2].u.i == 2);
	if (registry_check_customs(&reg, args, 1, NULL) != FAR_OK)
		return;
	CHECK(far_val_dup(&list, &copy, NULL) == FAR_OK);
	CHECK(*(const int *)far_list_get(&copy, 0)->u.custom.object == object);
	far_val_fini(&copy);
}

static void *reader_main(void *arg)
{
	bool last = false;
	while (!last) {
		last = atomic_load(&writing) == 0;
		for (unsigned i = 0; i < NAMES; i++)
			look_up(i);
	}
	return NULL;
}

int main(void)
{
	pthread_t t[WRITERS + READERS];
	alarm(HANG_GUARD_S);
	registry_init(&reg);
	atomic_store(&writing, WRITERS);
	for (uintptr_t i = 0; i < WRITERS + READERS; i++)
		CHECK(pthread_create(&t[i], NULL, i < WRITERS ? writer_main : reader_main, (void *)i) == 0);
	for (int i = 0; i < WRITERS + READERS; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	CHECK(atomic_load(&reg.functions_n) == NAMES * OVERLOADS);
	registry_fini(&reg);
	return 0;
}
