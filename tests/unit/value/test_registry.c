/* SPDX-License-Identifier: BSD-3-Clause */
/** The registry: functions by name, number and hash, overloads, messages, its bounds; the gate of a plugin. The test's
 * thread, and threads that it starts. */
#include "base/hash.h"
#include "registry_fixture.h"
#include "value/plugin.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

TestSuite(registry, .init = registry_setup, .fini = registry_teardown);

static void msg(struct far_req *req, const void *data, size_t len, void *user)
{
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
