/* SPDX-License-Identifier: BSD-3-Clause */
/** The registry of functions: names, overloads, plugins. The test's thread, and threads that it starts. */
#include "base/hash.h"
#include "value/plugin.h"
#include "value/registry.h"

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
	return FAR_OK;
}

static void msg(struct far_req *req, const void *data, size_t len, void *user)
{
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

Test(registry, a_signature_is_registered_once)
{
	struct far_err err;
	cr_assert_eq(add("a::f(int x) -> int", FAR_KIND_INLINE, &err), FAR_OK);
	cr_assert_eq(add("a::f(int another, float y=1) -> int", FAR_KIND_INLINE, &err), FAR_OK);
	cr_assert_eq(add("a::f(int y=3) -> int", FAR_KIND_INLINE, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "a::f(int)->int"));
	cr_assert(strstr(err.text, "already"));
	cr_assert_eq(add("a::f(int x) -> float", FAR_KIND_INLINE, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "not only in their result"));
	cr_assert_eq(atomic_load(&reg.functions_n), 2u);
}

/** The canonical text of the overload that takes the arguments; NULL: none. */
static const char *resolved(const char *name, const struct far_val *args, size_t n, struct far_err *err)
{
	struct far_val out[FAR_ARGS_MAX];
	const struct function *fn;
	if (registry_resolve(registry_find(&reg, name), args, n, &fn, out, err))
		return NULL;
	return fn->signature.text;
}

Test(registry, the_best_overload_is_called)
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

Test(registry, overloads_of_different_counts_are_no_rivals)
{
	cr_assert_eq(add("o::g(int x) -> int", FAR_KIND_INLINE, NULL), FAR_OK);
	cr_assert_eq(add("o::g(int x, int y) -> int", FAR_KIND_INLINE, NULL), FAR_OK);
	struct function *g = (struct function *)(uintptr_t)registry_find(&reg, "o::g");
	cr_expect_not(atomic_load(&g->rivals));
	cr_assert_eq(add("o::g(float x, str y=\"\") -> int", FAR_KIND_INLINE, NULL), FAR_OK);
	cr_expect(atomic_load(&g->rivals));
}

Test(registry, overloads_are_bounded)
{
	struct far_err err;
	char text[256];
	/* One more int each; the last begins with a string. */
	for (unsigned i = 0; i <= FAR_OVERLOADS_MAX; i++) {
		size_t at = (size_t)sprintf(text, "o::h(%s a", i < FAR_ARGS_MAX ? "int" : "str");
		for (unsigned k = 0; k < i && k < FAR_ARGS_MAX - 1; k++)
			at += (size_t)sprintf(text + at, ", int a%u", k);
		sprintf(text + at, ") -> int");
		cr_assert_eq(add(text, FAR_KIND_INLINE, &err), i < FAR_OVERLOADS_MAX ? FAR_OK : FAR_RESOURCE, "%s",
			     text);
	}
	cr_expect_not_null(strstr(err.text, "16 overloads"), "%s", err.text);
}

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

Test(registry, types)
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

Test(registry, what_is_idempotent_says_so_beside_its_kind)
{
	struct far_err err;
	struct far_function f = {"t::f() -> none", FAR_KIND_FIBER, fn, NULL, FAR_IDEMPOTENT};
	struct far_msg_handler m = {7, FAR_KIND_INLINE, msg, NULL, FAR_IDEMPOTENT};
	cr_assert_eq(registry_add(&reg, &f, &err), FAR_OK);
	cr_assert_eq(registry_add_message(&reg, &m, &err), FAR_OK);
	cr_assert(registry_find(&reg, "t::f")->idempotent && registry_find(&reg, "t::f")->kind == FAR_KIND_FIBER);
	cr_assert(registry_message(&reg, 7)->idempotent && registry_message(&reg, 7)->kind == FAR_KIND_INLINE);
	f.signature = "t::g() -> none";
	f.flags = 0;
	cr_assert_eq(registry_add(&reg, &f, &err), FAR_OK);
	cr_assert_not(registry_find(&reg, "t::g")->idempotent);
	/* No kind at all. */
	f.signature = "t::h() -> none";
	f.kind = FAR_KIND_NONE;
	cr_assert_eq(registry_add(&reg, &f, &err), FAR_INVALID);
	f.kind = (enum far_kind)0x200;
	cr_assert_eq(registry_add(&reg, &f, &err), FAR_INVALID);
	f.kind = FAR_KIND_INLINE;
	f.flags = 2;
	cr_assert_eq(registry_add(&reg, &f, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "flags is 0x2"), "%s", err.text);
}

/* ---- plugins ---- */

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

Test(registry, removed_functions_keep_their_number_and_come_back)
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

Test(registry, a_version_changes_no_kind_and_no_parameter)
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

Test(registry, names_have_one_owner)
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

Test(registry, a_gate_closes_behind_its_calls)
{
	struct gate g = {GATE_CLOSED};
	cr_assert_not(gate_enter(&g, GATE_CALL));
	cr_assert_not(gate_enter_object(&g));
	gate_open(&g);
	cr_assert(gate_enter(&g, GATE_LIVE));
	cr_assert_not(gate_close(&g));
	cr_assert(gate_enter(&g, GATE_CALL)); /* it stayed open */
	gate_leave(&g, GATE_LIVE);
	cr_assert(gate_close(&g));
	cr_assert(gate_called(&g));
	cr_assert_not(gate_enter(&g, GATE_CALL));
	cr_assert_not(gate_enter(&g, GATE_LIVE));
	cr_assert(gate_enter_object(&g)); /* of the call */
	gate_leave(&g, GATE_CALL);
	cr_assert_not(gate_called(&g));
	cr_assert_eq(gate_live(&g), 1u);
	cr_assert_not(gate_enter_object(&g));
	gate_leave(&g, GATE_LIVE);
	cr_assert_eq(gate_live(&g), 0u);
}
