/* SPDX-License-Identifier: BSD-3-Clause */
/** Custom types: their names, registered once in a process and in each registry that uses them. The test's thread. */
#include "registry_fixture.h"

#include <string.h>

TestSuite(types, .init = registry_setup, .fini = registry_teardown);

static size_t type_size(const void *object, void *user)
{
	return 0;
}

static void type_encode(const void *object, void *dst, size_t len, void *user)
{
}

static enum far_status type_decode(const void *src, size_t len, void **object, void *user)
{
	*object = user;
	return FAR_OK;
}

static void type_destroy(void *object, void *user)
{
}

Test(types, types)
{
	struct far_err err;
	struct far_custom_type t = {"reg::Type", type_size, type_encode, type_decode, type_destroy, NULL};
	cr_assert_eq(add("t::f(reg::Type x) -> none", FAR_KIND_INLINE, &err), FAR_INVALID);
	cr_expect_not_null(strstr(err.text, "reg::Type is not registered here"), "%s", err.text);
	cr_assert_eq(registry_add_type(&reg, &t, &err), FAR_OK);
	cr_assert_eq(add("t::f(reg::Type x) -> none", FAR_KIND_INLINE, &err), FAR_OK);
	cr_assert_eq(registry_add_type(&reg, &t, &err), FAR_INVALID);
	cr_expect_not_null(strstr(err.text, "already"), "%s", err.text);
	t.user = &t;
	cr_assert_eq(registry_add_type(&reg, &t, &err), FAR_INVALID);
	cr_expect_not_null(strstr(err.text, "another user pointer"), "%s", err.text);
	t.destroy = NULL;
	cr_assert_eq(registry_add_type(&reg, &t, &err), FAR_INVALID);
	t.destroy = type_destroy;
	static const char *const names[] = {"", "Type", "a:b", "::a", "a::", "a::b:", "a b::c", "a:::b", "a::b.c"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		t.name = names[i];
		cr_expect_eq(registry_add_type(&reg, &t, &err), FAR_INVALID, "%s", names[i]);
	}
	struct far_val v = far_custom(&t, &t);
	t.name = "reg::Other";
	cr_expect_eq(registry_check_customs(&reg, &v, 1, &err), FAR_BAD_ARGS);
	cr_expect_not_null(strstr(err.text, "reg::Other"), "%s", err.text);
	t.name = "reg::Type";
	cr_expect_eq(registry_check_customs(&reg, &v, 1, &err), FAR_OK);
	struct far_val list = far_list(&v, 1);
	t.name = "reg::Other";
	cr_expect_eq(registry_check_customs(&reg, &list, 1, &err), FAR_BAD_ARGS);
	struct far_dict_entry entry = far_entry(far_int(1), list);
	struct far_val dict = far_dict(&entry, 1);
	cr_expect_eq(registry_check_customs(&reg, &dict, 1, &err), FAR_BAD_ARGS);
}
