/* SPDX-License-Identifier: BSD-3-Clause */
/** Scopes of calls. The test's thread, and threads that it starts. */
#include "user_futures.h"

#include <pthread.h>

static void *end_elsewhere(void *arg)
{
	return (void *)(intptr_t)far_scope_end(arg, 0, NULL);
}

Test(api_scope, scopes_nest_and_end_once_where_they_began)
{
	struct far_scope outer, inner;
	pthread_t t;
	void *status;
	cr_assert_eq(far_scope_begin(&outer), FAR_OK);
	cr_assert_eq(far_scope_begin(&outer), FAR_INVALID);
	cr_assert_eq(far_scope_begin(&inner), FAR_OK);
	cr_assert_eq(pthread_create(&t, NULL, end_elsewhere, &outer), 0);
	pthread_join(t, &status);
	cr_assert_eq((intptr_t)status, FAR_INVALID);
	cr_assert_eq(far_scope_end(&outer, 0, &err), FAR_OK, "in any order");
	cr_assert_eq(far_scope_end(&outer, 0, &err), FAR_INVALID);
	far_scope_abandon(&inner);
	cr_assert_eq(far_scope_end(&inner, 0, &err), FAR_INVALID);
}
