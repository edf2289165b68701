/* SPDX-License-Identifier: BSD-3-Clause */
/** The interceptors of the process: which calls they see, and when they are gone. The test's thread. */
#include "features/intercept/intercept.h"

#include <criterion/criterion.h>
#include <string.h>

static struct far_err err;
static unsigned removed_n, changed_n;
static struct far_agent *changed_for;
static char memory[2];
#define AGENT(i) ((struct far_agent *)(void *)&memory[i])

static void removed(void *user)
{
	++*(unsigned *)user;
}

static void changed(struct far_agent *agent)
{
	changed_n++;
	changed_for = agent;
}

static void setup(void)
{
	removed_n = changed_n = 0;
	intercept_on_change(changed);
}

TestSuite(intercept_table, .init = setup);

static unsigned add(const char *name, uint16_t first, uint16_t last, struct far_agent *agent)
{
	const struct far_interceptor i = {.name = name,
					  .tlv_first = first,
					  .tlv_last = last,
					  .agent = agent,
					  .removed = removed,
					  .user = &removed_n};
	unsigned id = 99;
	cr_assert_eq(intercept_add(&i, &id, &err), FAR_OK, "%s", err.text);
	return id;
}

Test(intercept_table, seen_from_its_addition_to_its_removal)
{
	cr_assert_not(intercept_any());
	unsigned id = add("spans", 256, 257, NULL);
	cr_assert_eq(id, 0u);
	cr_assert(intercept_any() && changed_n == 1 && !changed_for);
	cr_assert_str_eq(intercept_at(id)->name, "spans");
	cr_assert_eq(intercept_take(&intercept_mask, AGENT(0)), 1u);
	intercept_give(1);
	cr_assert_eq(intercept_remove(id, &err), FAR_OK);
	cr_assert(!intercept_any() && removed_n == 1 && changed_n == 2);
	cr_assert_eq(intercept_take(&intercept_mask, AGENT(0)), 0u);
	cr_assert_eq(intercept_remove(id, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "there is no interceptor 0"), "%s", err.text);
	cr_assert_eq(removed_n, 1u);
}

/* Removed while a call refers to it. Expect it whole until that call has ended, and its number free only then. */
Test(intercept_table, a_call_keeps_it)
{
	unsigned id = add("spans", 256, 257, NULL);
	uint32_t mask = intercept_take(&intercept_mask, AGENT(0));
	cr_assert_eq(intercept_remove(id, &err), FAR_OK);
	cr_assert_eq(removed_n, 0u);
	cr_assert_str_eq(intercept_at(id)->name, "spans");
	unsigned other = add("other", 300, 300, NULL);
	cr_assert_neq(other, id);
	intercept_give(mask);
	cr_assert_eq(removed_n, 1u);
	cr_assert_eq(add("third", 256, 256, NULL), id);
}

Test(intercept_table, calls_of_its_agent_alone)
{
	unsigned all = add("all", 0, 0, NULL), one = add("one", 0, 0, AGENT(0));
	cr_assert_eq(changed_for, AGENT(0));
	cr_assert_eq(intercept_take(&intercept_mask, AGENT(0)), UINT32_C(1) << all | UINT32_C(1) << one);
	cr_assert_eq(intercept_take(&intercept_mask, AGENT(1)), UINT32_C(1) << all);
	intercept_give(UINT32_C(1) << all | UINT32_C(1) << one);
	intercept_give(UINT32_C(1) << all);
	cr_assert_eq(intercept_remove(one, &err), FAR_OK);
	cr_assert_eq(removed_n, 1u, "nothing else refers to it");
	cr_assert_eq(changed_for, AGENT(0));
}

/* Ranges at each other's ends. Expect those that meet refused, with both ranges, and each type to find its owner. */
Test(intercept_table, ranges_do_not_overlap)
{
	static const uint16_t bad[][2] = {{1, 100}, {50, 120}, {100, 110}, {105, 300}, {110, 110}};
	unsigned first = add("first", 100, 110, NULL), second = add("second", 111, 111, NULL), id = 99;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		const struct far_interceptor x = {.tlv_first = bad[i][0], .tlv_last = bad[i][1]};
		cr_assert_eq(intercept_add(&x, &id, &err), FAR_INVALID, "[%u, %u]", bad[i][0], bad[i][1]);
		cr_assert(strstr(err.text, "overlap those of \"first\", [100, 110]"), "%s", err.text);
	}
	cr_assert_eq(id, 99u);
	uint32_t mask = UINT32_C(1) << first | UINT32_C(1) << second;
	cr_assert_eq(intercept_of_type(mask, 100), UINT32_C(1) << first);
	cr_assert_eq(intercept_of_type(mask, 110), UINT32_C(1) << first);
	cr_assert_eq(intercept_of_type(mask, 111), UINT32_C(1) << second);
	cr_assert_eq(intercept_of_type(mask, 112), 0u);
	cr_assert_eq(intercept_of_type(UINT32_C(1) << second, 100), 0u, "not among those of the call");
}

Test(intercept_table, ranges_that_are_none)
{
	static const uint16_t bad[][2] = {{5, 4}, {0, 7}, {1, FAR_TLV_TYPE_MAX + 1}, {0x8001, 0x8002}};
	unsigned id = 99;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		const struct far_interceptor x = {.tlv_first = bad[i][0], .tlv_last = bad[i][1]};
		cr_assert_eq(intercept_add(&x, &id, &err), FAR_INVALID, "[%u, %u]", bad[i][0], bad[i][1]);
		cr_assert(strstr(err.text, "a range is in [1, 32767], or 0, 0 for none"), "%s", err.text);
	}
	const struct far_interceptor x = {.reserved = {0, 0, 0, 1}};
	cr_assert_eq(intercept_add(&x, &id, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "`reserved` must be 0"), "%s", err.text);
	cr_assert(id == 99 && !intercept_any() && changed_n == 0);
}

Test(intercept_table, as_many_as_there_are_numbers)
{
	const struct far_interceptor x = {.name = "x"};
	unsigned id;
	for (unsigned i = 0; i < FAR_INTERCEPTORS_MAX; i++)
		cr_assert_eq(add("x", 0, 0, NULL), i);
	cr_assert_eq(intercept_add(&x, &id, &err), FAR_RESOURCE);
	cr_assert(strstr(err.text, "8 interceptors at most; remove one"), "%s", err.text);
	cr_assert_eq(intercept_remove(3, &err), FAR_OK);
	cr_assert_eq(add("x", 0, 0, NULL), 3u);
	cr_assert_eq(intercept_remove(FAR_INTERCEPTORS_MAX, &err), FAR_INVALID, "the engine's own are not removed");
}

/* Those of the engine see calls and requests only while they want to. */
Test(intercept_table, the_engines_own)
{
	const struct far_interceptor x = {.name = "profiler"};
	intercept_add_own(INTERCEPT_PROFILER, &x);
	cr_assert_not(intercept_any());
	intercept_own_sees(INTERCEPT_PROFILER, true);
	cr_assert_eq(intercept_take(&intercept_mask, AGENT(1)), UINT32_C(1) << INTERCEPT_PROFILER);
	cr_assert_eq(atomic_load(&intercept_every), 0u);
	intercept_own_every(INTERCEPT_PROFILER, true);
	cr_assert_eq(intercept_take(&intercept_every, AGENT(1)), UINT32_C(1) << INTERCEPT_PROFILER);
	intercept_own_every(INTERCEPT_PROFILER, false);
	intercept_own_sees(INTERCEPT_PROFILER, false);
	cr_assert(!intercept_any() && atomic_load(&intercept_every) == 0);
	cr_assert_eq(changed_n, 2u);
}
