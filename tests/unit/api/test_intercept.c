/* SPDX-License-Identifier: BSD-3-Clause */
/** Interceptors and flows of the public interface. The test's thread. */
#include "api/rref.h"

#include <criterion/criterion.h>
#include <farcall/intercept.h>
#include <string.h>

static struct far_err err;

/* Before the first interceptor no flow keeps anything. */
Test(api_intercept, flows_need_an_interceptor)
{
	int x;
	unsigned id;
	cr_assert_null(far_flow_get(0));
	cr_assert_eq(far_flow_set(0, &x), FAR_INVALID);
	const struct far_interceptor i = {.name = "spans"};
	cr_assert_eq(far_interceptor_add(&i, &id, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_flow_set(id, &x), FAR_OK);
	cr_assert_eq(far_flow_get(id), &x);
	cr_assert_eq(far_flow_set(FAR_INTERCEPTORS_MAX, &x), FAR_INVALID, "the engine's own");
	cr_assert_null(far_flow_get(FAR_INTERCEPTORS_MAX));
	cr_assert_eq(far_flow_set(id, NULL), FAR_OK);
	cr_assert_null(far_flow_get(id));
	cr_assert_eq(far_interceptor_remove(id, &err), FAR_OK);
}

Test(api_intercept, bad_input)
{
	const struct far_interceptor i = {.name = "spans"};
	unsigned id = 99;
	cr_assert_eq(far_interceptor_add(NULL, &id, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "far_interceptor_add"), "%s", err.text);
	cr_assert_eq(far_interceptor_add(&i, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_interceptor_remove(0, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "there is no interceptor 0"), "%s", err.text);
	cr_assert_eq(far_interceptor_remove(UINT32_MAX, NULL), FAR_INVALID);
	cr_assert_eq(id, 99u);
}

Test(api_intercept, names_of_modes)
{
	static const char *const names[] = {"sync", "async", "remote", "fetch", "message", "oneway"};
	for (unsigned i = 0; i < FAR_CALL_MODE_COUNT; i++)
		cr_assert_str_eq(far_call_mode_name((enum far_call_mode)i), names[i]);
	cr_assert_str_eq(far_call_mode_name(FAR_CALL_MODE_COUNT), "?");
	cr_assert_str_eq(far_call_mode_name((enum far_call_mode) - 1), "?");
}
