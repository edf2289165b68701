/* SPDX-License-Identifier: BSD-3-Clause */
/** Which overload a call gets, and what it gets to know when none fits or several do. The test's thread. */
#include "registry_fixture.h"

#include <string.h>

TestSuite(registry_resolve, .init = registry_setup, .fini = registry_teardown);

/** The canonical text of the overload that takes the arguments; NULL: none. */
static const char *resolved(const char *name, const struct far_val *args, size_t n, struct far_err *err)
{
	struct far_val out[FAR_ARGS_MAX];
	const struct function *fn;
	if (registry_resolve(registry_find(&reg, name), args, n, &fn, out, err))
		return NULL;
	return fn->signature.text;
}

Test(registry_resolve, the_best_overload_is_called)
{
	struct far_err err;
	const struct function *fn;
	static const char *const texts[] = {"o::f(int x) -> int",          "o::f(float x) -> int",
					    "o::f(Any x) -> int",          "o::f(str x, int y=1) -> int",
					    "o::f(float x, int y) -> int", "o::f(int x, float y) -> int"};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		cr_assert_eq(add(texts[i], FAR_KIND_INLINE, &err), FAR_OK, "%s", err.text);
	struct far_val v[3] = {far_int(1), far_int(2), far_int(3)};
	cr_expect_str_eq(resolved("o::f", v, 1, &err), "o::f(int)->int");
	v[0] = far_float(1);
	cr_expect_str_eq(resolved("o::f", v, 1, &err), "o::f(float)->int");
	cr_expect_str_eq(resolved("o::f", v, 2, &err), "o::f(float,int)->int");
	v[0] = far_none();
	cr_expect_str_eq(resolved("o::f", v, 1, &err), "o::f(Any)->int");
	v[0] = far_str("s");
	cr_expect_str_eq(resolved("o::f", v, 1, &err), "o::f(str,int)->int", "exact, though it takes a default");
	v[0] = far_int(1);
	v[1] = far_kw("y", far_float(2));
	cr_expect_str_eq(resolved("o::f", v, 2, &err), "o::f(int,float)->int");
	v[1] = far_int(2);
	cr_expect_null(resolved("o::f", v, 2, &err));
	cr_expect_eq(err.status, FAR_BAD_ARGS);
	cr_expect_not_null(strstr(err.text, "o::f: the arguments (int, int) fit several overloads equally well"), "%s",
			   err.text);
	cr_expect_not_null(strstr(err.text, "o::f(float x, int y) -> int; o::f(int x, float y) -> int"), "%s",
			   err.text);
	cr_expect_null(resolved("o::f", v, 3, &err));
	cr_expect_not_null(
		strstr(err.text, "(int, int, int) fit none of its overloads: o::f(int x) -> int; o::f(float"), "%s",
		err.text);
	cr_expect_null(resolved("o::f", v, 3, NULL));
	fn = registry_find(&reg, "o::f");
	cr_expect(atomic_load(&((struct function *)(uintptr_t)fn)->rivals));
	for (unsigned i = 0; i < 6; i++)
		cr_expect_eq(registry_overload(fn, registry_at(&reg, i)->signature.canonical_hash),
			     registry_at(&reg, i));
	cr_expect_null(registry_overload(fn, 1));
	char text[64];
	cr_expect_str_eq(registry_overloads_text(fn, text, 32), "o::f(int)->int; o::f(float)->in");
}
