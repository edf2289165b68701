/* SPDX-License-Identifier: BSD-3-Clause */
/** The functions that every worker has: their names, which may run again, what is said of those that are missing. The
 * test's thread. */
#include "agents_fixture.h"
#include "builtin/builtin.h"
#include "handlers.h"
#include "value/registry.h"

#include <string.h>

static struct registry own;

static void setup(void)
{
	registry_init(&own);
	cr_assert_eq(builtin_register(&own, &err), FAR_OK, "%s", err.text);
}

static void teardown(void)
{
	registry_fini(&own);
}

TestSuite(builtin, .init = setup, .fini = teardown);

static bool repeatable(const char *name)
{
	const struct function *f = registry_find(&own, name);
	cr_assert_not_null(f, "%s", name);
	return f->idempotent;
}

/* A round counts requests, and a reference is claimed once. */
Test(builtin, what_may_run_again)
{
	cr_assert(repeatable("far::identity"));
	cr_assert(repeatable("far::keep_awake"));
	cr_assert_not(repeatable("far::gather"));
	cr_assert_not(repeatable("far::rref_call"));
	cr_assert_not(repeatable("far::rref_claim"));
}

/* Names are taken once, in an agent, too. */
Test(builtin, names_are_taken)
{
	static const struct far_function again = {"far::identity(Any x) -> Any", FAR_KIND_INLINE, handler_echo, NULL};
	cr_assert_neq(builtin_register(&own, &err), FAR_OK);
	cr_assert_neq(registry_add(&own, &again, &err), FAR_OK);
}

Test(builtin, identity)
{
	static const float data[] = {1, 2, 3};
	const struct far_tensor t = far_tensor_1d(FAR_F32, data, 3);
	const struct far_val items[] = {far_int(1), far_str("two"), far_none()};
	struct far_val in = far_list(items, 3), out;
	agents_begin(2, NULL);
	cr_assert_eq(agents_call("far::identity", &in, 1, &out), FAR_OK, "%s", err.text);
	cr_assert(far_len(&out) == 3 && far_list_get(&out, 0)->u.i == 1 &&
		  far_list_get(&out, 2)->type == FAR_TYPE_NONE);
	cr_assert_str_eq(far_list_get(&out, 1)->u.s.data, "two");
	far_val_fini(&out);
	in = far_tensor_ref(&t);
	cr_assert_eq(agents_call("far::identity", &in, 1, &out), FAR_OK, "%s", err.text);
	cr_assert_eq(memcmp(out.u.t.data, data, sizeof data), 0);
	far_val_fini(&out);
	agents_end();
}

/* Another name is none of libfarcall-ops', whether that is there or not. */
Test(builtin, names_of_no_library)
{
	cr_assert_not(builtin_no_ops("t::add", &err));
	cr_assert_not(builtin_no_ops("farther::add", &err));
	cr_assert_not(builtin_no_ops(NULL, &err));
}
