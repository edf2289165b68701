/* SPDX-License-Identifier: BSD-3-Clause */
/** Custom types of plugins: decoded values keep a plugin loaded, and agents of a process share a type. The test's
 * thread. */
#include "value/plugin.h"

#include <criterion/criterion.h>
#include <string.h>

static unsigned destroyed;

static size_t size(const void *object, void *user)
{
	return *(const uint8_t *)user;
}

static void encode(const void *object, void *dst, size_t len, void *user)
{
	memcpy(dst, object, len);
}

static enum far_status decode(const void *src, size_t len, void **object, void *user)
{
	if (len != *(const uint8_t *)user)
		return FAR_BAD_ARGS;
	*object = user;
	return FAR_OK;
}

static void destroy(void *object, void *user)
{
	destroyed++;
}

static uint8_t one = 1, two = 2;

static struct far_custom_type type(const char *name, uint8_t *user)
{
	return (struct far_custom_type){
		.name = name, .size = size, .encode = encode, .decode = decode, .destroy = destroy, .user = user};
}

Test(plugin_type, a_decoded_value_keeps_it_in_use)
{
	struct far_custom_type t = type("p::A", &one), c;
	struct far_err err;
	uint64_t values = 0;
	void *object, *other;
	cr_assert_eq(plugin_type_use(&t, &c, &err), FAR_OK);
	cr_assert_str_eq(c.name, "p::A");
	cr_assert_eq(c.size(&one, c.user), 1u, "its own function, with its own user");
	cr_assert_eq(c.decode("xy", 2, &object, c.user), FAR_BAD_ARGS, "which counts nothing");
	cr_assert_eq(c.decode("x", 1, &object, c.user), FAR_OK);
	cr_assert_eq(c.decode("x", 1, &other, c.user), FAR_OK);
	cr_assert_not(plugin_type_drop("p::A", &values));
	cr_assert_eq(values, 2u);
	c.destroy(object, c.user);
	cr_assert_not(plugin_type_drop("p::A", &values));
	cr_assert_eq(values, 1u);
	c.destroy(other, c.user);
	cr_assert_eq(destroyed, 2u);
	cr_assert(plugin_type_drop("p::A", &values));
	/* A message that comes later finds it closed; loaded again, it may have other functions. */
	cr_assert_eq(c.decode("x", 1, &object, c.user), FAR_UNSUPPORTED);
	t.user = &two;
	struct far_custom_type again;
	cr_assert_eq(plugin_type_use(&t, &again, &err), FAR_OK);
	cr_assert_eq(again.user, c.user, "the table of the process still refers to it");
	cr_assert_eq(again.size(&two, again.user), 2u);
	cr_assert(plugin_type_drop("p::A", &values));
}

Test(plugin_type, agents_share_it)
{
	struct far_custom_type t = type("p::B", &one), other = type("p::B", &two), a, b;
	struct far_err err;
	uint64_t values = 0;
	void *object;
	cr_assert_eq(plugin_type_use(&t, &a, &err), FAR_OK);
	cr_assert_eq(plugin_type_use(&t, &b, &err), FAR_OK);
	cr_assert_eq(plugin_type_use(&other, &b, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "p::B is in use with other functions by another agent"), "%s", err.text);
	cr_assert_eq(a.decode("x", 1, &object, a.user), FAR_OK);
	cr_assert(plugin_type_drop("p::B", &values), "the other agent still has it");
	cr_assert_not(plugin_type_drop("p::B", &values));
	a.destroy(object, a.user);
	cr_assert(plugin_type_drop("p::B", &values));
	other.destroy = NULL;
	cr_assert_eq(plugin_type_use(&other, &b, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "p::B needs size, encode, decode and destroy"), "%s", err.text);
}
