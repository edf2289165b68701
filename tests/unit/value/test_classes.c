/* SPDX-License-Identifier: BSD-3-Clause */
/* Classes: what is taken, what is refused and why, what is found. The test's thread. */
#include "base/hash.h"
#include "memory/buf.h"
#include "value/classes.h"
#include "value/tree.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct registry reg;
static struct far_err err;

static void setup(void)
{
	registry_init(&reg);
}

static void teardown(void)
{
	registry_fini(&reg);
}

TestSuite(classes, .init = setup, .fini = teardown);

static enum far_status enter(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return FAR_OK;
}

static enum far_status run(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	return FAR_OK;
}

static enum far_status add_class(const struct far_class *cls)
{
	return registry_add_class(&reg, cls, enter, NULL, &err);
}

static const struct object_class *find(const char *name)
{
	return registry_find_class(&reg, hash64(name, strlen(name)));
}

static void expect_refused(const struct far_class *cls, enum far_status status, const char *part)
{
	cr_assert_eq(add_class(cls), status);
	cr_assert(strstr(err.text, part), "\"%s\" lacks \"%s\"", err.text, part);
}

Test(classes, methods_are_found_by_class_and_name)
{
	static const struct far_method methods[] = {{"add(int by=1) -> int", FAR_KIND_INLINE, run, &reg},
						    {"add(str s) -> int", FAR_KIND_FIBER, run, NULL},
						    {"get() -> int", FAR_KIND_BLOCKING, run, NULL}};
	static const struct far_class a = {.name = "t::A", .methods = methods, .methods_n = 3},
				      b = {.name = "t::B", .methods = methods, .methods_n = 1};
	cr_assert_eq(add_class(&a), FAR_OK);
	cr_assert_eq(add_class(&b), FAR_OK);
	const struct function *add = registry_find_method(&reg, find("t::A"), "add");
	cr_assert_not_null(add);
	cr_assert_str_eq(add->signature.text, "t::A.add(int)->int");
	cr_assert(add->fn == enter && add->user == add->method);
	cr_assert(add->method->fn == run && add->method->user == &reg && add->method->cls == find("t::A"));
	cr_assert(add->kind == KIND_INDIRECT && add->run_kind == FAR_KIND_INLINE);
	cr_assert_eq(registry_next(add)->run_kind, FAR_KIND_FIBER);
	cr_assert_eq(registry_find_method(&reg, find("t::A"), "get")->run_kind, FAR_KIND_BLOCKING);
	cr_assert_eq(registry_find_method(&reg, find("t::B"), "add")->method->cls, find("t::B"));
	cr_assert_null(registry_find_method(&reg, find("t::B"), "get"));
	cr_assert_null(registry_find_method(&reg, find("t::A"), ""));
	cr_assert_null(registry_find(&reg, "t::A.add"), "a method is no function");
	char longest[200];
	memset(longest, 'x', sizeof longest - 1);
	longest[sizeof longest - 1] = '\0';
	cr_assert_null(registry_find_method(&reg, find("t::A"), longest));
	cr_assert_null(find("t::C"));
}

Test(classes, what_makes_objects_is_known_by_its_result)
{
	static const struct far_function made = {"t::A(int n) -> t::A", FAR_KIND_INLINE, enter, NULL},
					 open = {"t::open(str s) -> t::A", FAR_KIND_FIBER, enter, NULL},
					 takes = {"t::takes(t::A a) -> none", FAR_KIND_INLINE, enter, NULL},
					 maybe = {"t::maybe() -> t::A|none", FAR_KIND_INLINE, enter, NULL};
	static const struct far_class a = {.name = "t::A", .constructors = &made, .constructors_n = 1};
	cr_assert_eq(registry_add(&reg, &open, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "t::A is not registered"));
	cr_assert_eq(add_class(&a), FAR_OK);
	cr_assert_eq(registry_add(&reg, &open, &err), FAR_OK);
	const struct function *fn = registry_find(&reg, "t::open");
	cr_assert(fn->makes == find("t::A") && fn->kind == KIND_INDIRECT && fn->run_kind == FAR_KIND_FIBER);
	cr_assert_eq(function_result_types(fn), 1u << FAR_TYPE_CUSTOM);
	cr_assert_eq(registry_find(&reg, "t::A")->makes, find("t::A"));
	/* Objects do not travel, so nothing takes one, or gives one or something else. */
	cr_assert_eq(registry_add(&reg, &takes, &err), FAR_INVALID);
	cr_assert_eq(registry_add(&reg, &maybe, &err), FAR_INVALID);
}

Test(classes, refused)
{
	static const struct far_method m = {"add(int) -> int", FAR_KIND_INLINE, run, NULL},
				       kind = {"add(int n) -> int", FAR_KIND_NONE, run, NULL},
				       none = {"add(int n) -> int", FAR_KIND_INLINE, NULL, NULL},
				       same[] = {{"add(int n) -> int", FAR_KIND_INLINE, run, NULL},
						 {"add(int k) -> str", FAR_KIND_INLINE, run, NULL}};
	static const struct far_function made = {"t::made(int n) -> int", FAR_KIND_INLINE, enter, NULL};
	static const struct far_custom_type codec = {.name = "t::Other"};
	expect_refused(NULL, FAR_INVALID, "needs a name");
	expect_refused(&(struct far_class){.name = "Counter"}, FAR_INVALID, "not the name of a class");
	expect_refused(&(struct far_class){.name = "t::A", .methods_n = 1}, FAR_INVALID, "their array is NULL");
	expect_refused(&(struct far_class){.name = "t::A", .codec = &codec}, FAR_INVALID, "of the same name");
	expect_refused(&(struct far_class){.name = "t::B", .methods = &m, .methods_n = 1}, FAR_INVALID, "column");
	expect_refused(&(struct far_class){.name = "t::C", .methods = &kind, .methods_n = 1}, FAR_INVALID,
		       "state the handler's kind");
	expect_refused(&(struct far_class){.name = "t::D", .methods = &none, .methods_n = 1}, FAR_INVALID, "a handler");
	expect_refused(&(struct far_class){.name = "t::E", .methods = same, .methods_n = 2}, FAR_INVALID,
		       "not only in their result");
	expect_refused(&(struct far_class){.name = "t::F", .constructors = &made, .constructors_n = 1}, FAR_INVALID,
		       "must return the class: end it with \"-> t::F\"");
	for (const char *c = "BCDEF"; *c; c++) {
		char name[] = {'t', ':', ':', *c, '\0'};
		cr_assert_null(find(name), "%s", name);
		expect_refused(&(struct far_class){.name = name}, FAR_INVALID, "its registration failed before");
	}
	cr_assert_eq(add_class(&(struct far_class){.name = "t::G"}), FAR_OK);
	expect_refused(&(struct far_class){.name = "t::G"}, FAR_INVALID, "registered already");
}

Test(classes, bounded)
{
	char name[32];
	for (unsigned i = 0; i < FAR_CLASSES_MAX; i++) {
		snprintf(name, sizeof name, "t::C%u", i);
		cr_assert_eq(add_class(&(struct far_class){.name = name}), FAR_OK);
	}
	expect_refused(&(struct far_class){.name = "t::more"}, FAR_RESOURCE, "more than 1024 classes");
	for (unsigned i = 0; i < FAR_CLASSES_MAX; i++) {
		snprintf(name, sizeof name, "t::C%u", i);
		cr_assert_str_eq(find(name)->name, name);
	}
}

static unsigned ended;

static void end(void *object, void *user)
{
	cr_assert(object == &ended && user == &reg);
	ended++;
}

Test(classes, boxes_end_their_object_once)
{
	ended = 0;
	cr_assert_eq(add_class(&(struct far_class){.name = "t::A", .destroy = end, .user = &reg}), FAR_OK);
	for (int early = 0; early < 2; early++) {
		struct far_buf *box = object_box(find("t::A"), &ended);
		struct far_val v = tree_root(box);
		cr_assert(object_class_of(&v) == find("t::A") && v.u.custom.object == &ended);
		if (early)
			tree_end(box);
		buf_ref(box);
		buf_unref(box);
		cr_assert_eq(ended, early ? 2u : 0u);
		buf_unref(box);
		cr_assert_eq(ended, early ? 2u : 1u);
	}
	struct far_val other = far_int(1);
	cr_assert_null(object_class_of(&other));
}
