/* SPDX-License-Identifier: BSD-3-Clause */
/** librdmacm is loaded when it is wanted; where there is none that is said, with the remedy. The test's thread. */
#include "nic/verbs/cm.h"

#include <criterion/criterion.h>
#include <string.h>

static struct nic_err err;

#ifdef VERBS_CM_LIBRARY
Test(verbs_cm, absent)
{
	for (unsigned i = 0; i < 2; i++) {
		cr_assert_null(verbs_cm_load(&err));
		cr_assert(strstr(err.text, VERBS_CM_LIBRARY) && strstr(err.text, "apt install librdmacm1"), "%s",
			  err.text);
	}
}
#else
Test(verbs_cm, all_calls_are_there)
{
	const struct verbs_cm *cm = verbs_cm_load(&err);
	cr_assert(cm, "%s", err.text);
	cr_assert_eq(cm, verbs_cm_load(&err));
	void *const *calls = (void *)cm;
	for (size_t i = 0; i < sizeof *cm / sizeof *calls; i++)
		cr_assert(calls[i]);
}
#endif
