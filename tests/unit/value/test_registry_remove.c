/* SPDX-License-Identifier: BSD-3-Clause */
/** Functions of plugins: removed, back again, the owners of names. The test's thread. */
#include "registry_fixture.h"
#include "value/plugin.h"

#include <string.h>

TestSuite(registry_remove, .init = registry_setup, .fini = registry_teardown);

static enum far_status run(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return FAR_OK;
}

static struct plugin one = {.run = run}, two = {.run = run};

static enum far_status add_to(struct plugin *p, const char *signature, enum far_kind kind, struct far_err *err)
{
	struct far_function f = {signature, kind, fn, p};
	return registry_add_of(&reg, &f, NULL, NULL, p, err);
}

Test(registry_remove, removed_functions_keep_their_number_and_come_back)
{
	struct far_err err;
	cr_assert_eq(add("a::f() -> none", FAR_KIND_INLINE, &err), FAR_OK);
	cr_assert(registry_removable(&reg) && registry_removable(&reg));
	cr_assert_eq(add_to(&one, "p::f(int x) -> int", FAR_KIND_INLINE, &err), FAR_OK);
	cr_assert_eq(add_to(&one, "p::f(str x) -> int", FAR_KIND_INLINE, &err), FAR_OK);
	const struct function *f = registry_find(&reg, "p::f"), *second = registry_next(f);
	cr_assert(f->fn == run && f->user == f && f->code.fn == fn && f->code_user == &one);
	cr_assert(second && second->rivals);
	registry_remove(&reg, &one);
	cr_assert_null(registry_find(&reg, "p::f"));
	cr_assert_not_null(registry_find(&reg, "a::f"));
	/* Who holds the function takes the general path; its number leads to it. */
	cr_assert(f->removed && f->rivals);
	cr_assert_eq(registry_at(&reg, f->index), f);
	uint32_t n = reg.functions_n;
	for (int i = 0; i < 3 * FAR_FUNCTIONS_MAX; i++) { /* no table fills */
		cr_assert_eq(add_to(&one, "p::f(str x) -> int", FAR_KIND_INLINE, &err), FAR_OK);
		cr_assert_eq(registry_find(&reg, "p::f"), second);
		cr_assert(!second->removed && !second->rivals && !registry_next(second));
		registry_remove(&reg, &one);
	}
	cr_assert_eq(reg.functions_n, n);
	cr_assert_eq(add_to(&one, "p::f(int x) -> int", FAR_KIND_INLINE, &err), FAR_OK);
	cr_assert_eq(registry_find(&reg, "p::f"), f);
	cr_assert_eq(add_to(&one, "p::f(int y) -> none", FAR_KIND_INLINE, &err), FAR_INVALID);
}

Test(registry_remove, a_version_changes_no_kind_and_no_parameter)
{
	struct far_err err;
	cr_assert(registry_removable(&reg));
	cr_assert_eq(add_to(&one, "p::f(int x=1) -> int", FAR_KIND_INLINE, &err), FAR_OK);
	registry_remove(&reg, &one);
	cr_assert_eq(add_to(&one, "p::f(int x=1) -> int", FAR_KIND_FIBER, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "p::f"), "%s", err.text);
	cr_assert_eq(add_to(&one, "p::f(int y=1) -> int", FAR_KIND_INLINE, &err), FAR_INVALID);
	cr_assert_eq(add_to(&one, "p::f(int x=2) -> int", FAR_KIND_INLINE, &err), FAR_INVALID);
	struct far_function flagged = {"p::f(int x=1) -> int", FAR_KIND_INLINE, fn, NULL, FAR_IDEMPOTENT};
	cr_assert_eq(registry_add_of(&reg, &flagged, NULL, NULL, &one, &err), FAR_INVALID);
	cr_assert_null(registry_find(&reg, "p::f"));
	cr_assert_eq(add_to(&one, "p::f(int x=1) -> int", FAR_KIND_INLINE, &err), FAR_OK);
}

Test(registry_remove, names_have_one_owner)
{
	struct far_err err;
	cr_assert(registry_removable(&reg));
	cr_assert_eq(add("a::f() -> none", FAR_KIND_INLINE, &err), FAR_OK);
	cr_assert_eq(add_to(&one, "a::f(int x) -> none", FAR_KIND_INLINE, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "by the application"), "%s", err.text);
	cr_assert_eq(add_to(&one, "p::f() -> none", FAR_KIND_INLINE, &err), FAR_OK);
	cr_assert_eq(add_to(&two, "p::f(int x) -> none", FAR_KIND_INLINE, &err), FAR_INVALID);
	cr_assert_eq(add("p::f(int x) -> none", FAR_KIND_INLINE, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "by a plugin"), "%s", err.text);
	/* Another owner's removed function does not come back. */
	const struct function *f = registry_find(&reg, "p::f");
	registry_remove(&reg, &one);
	cr_assert_eq(add_to(&two, "p::f() -> none", FAR_KIND_INLINE, &err), FAR_OK);
	cr_assert_neq(registry_find(&reg, "p::f"), f);
	registry_remove(&reg, &one);
	cr_assert_not_null(registry_find(&reg, "p::f"));
}
