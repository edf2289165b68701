/* SPDX-License-Identifier: BSD-3-Clause */
/** The interceptor with static probes: FAR_PROBES decides whether it is there, and calls end as without it. Each case
 * has a process of its own. The test's thread, which steps two agents. */
#include "agents_fixture.h"
#include "features/intercept/intercept.h"
#include "features/profile/probes.h"
#include "handlers.h"

#include <farcall/log.h>
#include <stdlib.h>
#include <string.h>

static unsigned logged;
static char last[256];

static void on_log(enum far_log_level level, const char *text, const struct far_log_field *fields, size_t n, void *user)
{
	logged++;
	snprintf(last, sizeof last, "%s", text);
}

static void present(const char *wanted)
{
	far_log_set(on_log, NULL);
	if (wanted)
		setenv("FAR_PROBES", wanted, 1);
	else
		unsetenv("FAR_PROBES");
	probes_present();
	probes_present();
}

static void expect_none(const char *wanted)
{
	present(wanted);
	cr_assert(!intercept_any() && !intercept_every && !intercept_present && logged == 0);
}

Test(profile_probes, not_without_the_variable)
{
	expect_none(NULL);
}

Test(profile_probes, not_if_it_is_empty)
{
	expect_none("");
}

Test(profile_probes, not_if_it_is_0)
{
	expect_none("0");
}

Test(profile_probes, another_value_is_named)
{
	present("yes");
	cr_assert(!intercept_any() && logged == 1);
	cr_assert_str_eq(last, "FAR_PROBES is \"yes\": it is 0 or 1; calls have no probes");
}

/* Expect it to see every call and every request, once, and to change none. */
Test(profile_probes, calls_end_as_without_them)
{
	static const struct far_function functions[] = {
		{"t::twice(int a) -> int", FAR_KIND_INLINE, handler_twice, NULL},
		{"t::never() -> int", FAR_KIND_FIBER, handler_never, NULL}};
	const struct far_opts opts = {.functions = functions, .functions_n = 2};
	const struct far_call_opts soon = {.timeout_ns = FAR_MS};
	struct far_future *f;
	struct far_val out;
	present("1");
	cr_assert_eq(intercept_mask, 1u << INTERCEPT_PROBES);
	cr_assert_eq(intercept_every, 1u << INTERCEPT_PROBES);
	agents_begin(2, &opts);
	cr_assert_eq(far_rpc_async(agents[0], "w1", "t::twice", FAR_ARGS(4), NULL, &f, &err), FAR_OK, "%s", err.text);
	agents_until(f);
	cr_assert_eq(far_future_value(f, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 8);
	far_future_free(f);
	cr_assert_eq(far_rpc_async(agents[0], "w1", "t::never", NULL, 0, &soon, &f, &err), FAR_OK, "%s", err.text);
	agents_pass(2 * FAR_MS);
	agents_until(f);
	cr_assert_eq(far_future_value(f, &out, &err), FAR_TIMEOUT);
	far_future_free(f);
	agents_end();
}
