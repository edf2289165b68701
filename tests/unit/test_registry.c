/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/hash.h"
#include "xcore/registry.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct registry reg;

static void setup(void)
{
	registry_init(&reg);
}

static void teardown(void)
{
	registry_fini(&reg);
}

TestSuite(registry, .init = setup, .fini = teardown);

static enum far_status fn(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)req;
	(void)args;
	(void)n;
	(void)user;
	return FAR_OK;
}

static void msg(struct far_req *req, const void *data, size_t len, void *user)
{
	(void)req;
	(void)data;
	(void)len;
	(void)user;
}

static enum far_status add(const char *signature, enum far_kind kind, struct far_err *err)
{
	struct far_function f = {signature, kind, fn, &reg};
	return registry_add(&reg, &f, err);
}

Test(registry, finds_by_name_hash_and_index)
{
	struct far_err err;
	cr_assert_eq(add("a::f(int x) -> int", FAR_KIND_INLINE, &err), FAR_OK);
	cr_assert_eq(add("a::g() -> none", FAR_KIND_INLINE, &err), FAR_OK);
	const struct function *g = registry_find(&reg, "a::g");
	cr_assert_not_null(g);
	cr_assert_eq(g->index, 1u);
	cr_assert_eq(g->user, &reg);
	cr_assert_eq(registry_at(&reg, 1), g);
	cr_assert_eq(registry_find_hash(&reg, hash64("a::g", 4)), g);
	cr_assert_null(registry_find(&reg, "a::h"));
	cr_assert_null(registry_find(&reg, ""));
	cr_assert_null(registry_at(&reg, 2));
	cr_assert_null(registry_at(&reg, FAR_FUNCTIONS_MAX));
	cr_assert_null(registry_at(&reg, UINT32_MAX));
}

Test(registry, a_name_is_registered_once)
{
	struct far_err err;
	cr_assert_eq(add("a::f(int x) -> int", FAR_KIND_INLINE, &err), FAR_OK);
	cr_assert_eq(add("a::f(float x) -> int", FAR_KIND_INLINE, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "a::f"));
	cr_assert(strstr(err.text, "already"));
	cr_assert_eq(atomic_load(&reg.functions_n), 1u);
}

Test(registry, the_kind_must_be_stated_and_supported)
{
	struct far_err err;
	cr_assert_eq(add("f() -> none", FAR_KIND_NONE, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "FAR_KIND_INLINE"));
	cr_assert(strstr(err.text, "FAR_KIND_FIBER"));
	cr_assert_eq(add("g() -> none", FAR_KIND_FIBER, &err), FAR_OK);
	cr_assert_eq(registry_find(&reg, "g")->kind, FAR_KIND_FIBER);
	cr_assert_eq(add("h() -> none", FAR_KIND_BLOCKING, &err), FAR_OK);
	cr_assert_eq(registry_find(&reg, "h")->kind, FAR_KIND_BLOCKING);
	cr_assert_eq(add("f() -> none", (enum far_kind)77, &err), FAR_INVALID);
	cr_assert_null(registry_find(&reg, "f"));
}

Test(registry, what_is_missing_is_refused)
{
	struct far_err err;
	struct far_function f = {"f() -> none", FAR_KIND_INLINE, NULL, NULL};
	cr_assert_eq(registry_add(&reg, NULL, &err), FAR_INVALID);
	cr_assert_eq(registry_add(&reg, &f, &err), FAR_INVALID);
	cr_assert_eq(add(NULL, FAR_KIND_INLINE, &err), FAR_INVALID);
	cr_assert_eq(add("f(", FAR_KIND_INLINE, &err), FAR_INVALID);
	cr_assert_eq(add("f(", FAR_KIND_INLINE, NULL), FAR_INVALID);
}

Test(registry, is_bounded)
{
	struct far_err err;
	char text[64];
	for (unsigned i = 0; i < FAR_FUNCTIONS_MAX; i++) {
		snprintf(text, sizeof text, "many::f%u(int a) -> int", i);
		cr_assert_eq(add(text, FAR_KIND_INLINE, &err), FAR_OK);
	}
	cr_assert_eq(add("many::more() -> none", FAR_KIND_INLINE, &err), FAR_RESOURCE);
	cr_assert_null(registry_find(&reg, "many::more"));
	for (unsigned i = 0; i < FAR_FUNCTIONS_MAX; i++) {
		snprintf(text, sizeof text, "many::f%u", i);
		cr_assert_eq(registry_find(&reg, text)->index, i);
	}
}

Test(registry, messages)
{
	struct far_err err;
	struct far_msg_handler m = {17, FAR_KIND_INLINE, msg, NULL};
	cr_assert_eq(registry_add_message(&reg, &m, &err), FAR_OK);
	cr_assert_str_eq(registry_message(&reg, 17)->name, "message 17");
	cr_assert_eq(registry_add_message(&reg, &m, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "message 17"));
	m.id = FAR_MSG_HANDLERS_MAX;
	cr_assert_eq(registry_add_message(&reg, &m, &err), FAR_INVALID);
	m.id = FAR_MSG_HANDLERS_MAX - 1;
	m.kind = FAR_KIND_BLOCKING;
	cr_assert_eq(registry_add_message(&reg, &m, &err), FAR_OK);
	cr_assert_eq(registry_message(&reg, FAR_MSG_HANDLERS_MAX - 1)->kind, FAR_KIND_BLOCKING);
	m.kind = FAR_KIND_INLINE;
	m.id--;
	cr_assert_eq(registry_add_message(&reg, &m, &err), FAR_OK);
	m.fn = NULL;
	cr_assert_eq(registry_add_message(&reg, &m, &err), FAR_INVALID);
	cr_assert_eq(registry_add_message(&reg, NULL, &err), FAR_INVALID);
	cr_assert_null(registry_message(&reg, 0));
	cr_assert_null(registry_message(&reg, FAR_MSG_HANDLERS_MAX));
	cr_assert_null(registry_message(&reg, UINT32_MAX));
}

static void *reader(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < 200;) {
		char text[32];
		snprintf(text, sizeof text, "r::f%u", i);
		const struct function *f = registry_find(&reg, text);
		if (!f)
			continue;
		if (strcmp(f->signature.name, text) != 0 || registry_at(&reg, f->index) != f)
			return (void *)1;
		i++;
	}
	return NULL;
}

Test(registry, readers_need_no_lock, .timeout = 60)
{
	pthread_t t;
	void *bad;
	char text[64];
	pthread_create(&t, NULL, reader, NULL);
	for (unsigned i = 0; i < 200; i++) {
		snprintf(text, sizeof text, "r::f%u() -> none", i);
		cr_assert_eq(add(text, FAR_KIND_INLINE, NULL), FAR_OK);
	}
	pthread_join(t, &bad);
	cr_assert_null(bad);
}
