/* SPDX-License-Identifier: BSD-3-Clause */
/** Names and texts of statuses, and errors. The test's thread. */
#include "base/error.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <farcall/version.h>
#include <stdlib.h>
#include <string.h>

Test(status, every_status_has_a_name_and_a_text)
{
	for (unsigned i = 0; i < FAR_STATUS_COUNT; i++) {
		cr_expect_gt(strlen(far_status_name((enum far_status)i)), 1);
		cr_expect_gt(strlen(far_status_text((enum far_status)i)), 1);
	}
	cr_expect_str_eq(far_status_name(FAR_OK), "OK");
	cr_expect_str_eq(far_status_name(FAR_SYSTEM), "SYSTEM");
	cr_expect_str_eq(far_status_text(FAR_TIMEOUT), "deadline passed");
	cr_expect_str_eq(far_status_name(FAR_STATUS_COUNT), "?");
	cr_expect_str_eq(far_status_text((enum far_status) - 1), "unknown status");
}

Test(status, names_of_executed)
{
	cr_expect_str_eq(far_executed_name(FAR_EXECUTED_NO), "NO");
	cr_expect_str_eq(far_executed_name(FAR_EXECUTED_MAYBE), "MAYBE");
	cr_expect_str_eq(far_executed_name(FAR_EXECUTED_YES), "YES");
	cr_expect_str_eq(far_executed_name((enum far_executed)9), "?");
}

Test(status, setting_an_error)
{
	struct far_err err;
	memset(&err, 0x55, sizeof err);
	cr_expect_eq(err_set(&err, FAR_BUSY, "queue of %s is full", "worker1"), FAR_BUSY);
	cr_expect_eq(err.status, FAR_BUSY);
	cr_expect_eq(err.executed, FAR_EXECUTED_NO);
	cr_expect_eq(err.code, 0);
	cr_expect_str_empty(err.origin);
	cr_expect_str_eq(err.text, "queue of worker1 is full");
	cr_expect_eq(err_set(NULL, FAR_BUSY, "unused"), FAR_BUSY);
}

Test(status, a_long_text_is_cut)
{
	char text[1000];
	struct far_err err;
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	err_set(&err, FAR_INVALID, "%s", text);
	cr_expect_eq(strlen(err.text), FAR_ERR_TEXT_MAX - 1);
	err_sys(&err, ENOENT, "%s", text);
	cr_expect_eq(strlen(err.text), FAR_ERR_TEXT_MAX - 1);
}

Test(status, a_failed_system_call)
{
	struct far_err err;
	cr_expect_eq(err_sys(&err, ENOENT, "opening %s", "/x"), FAR_SYSTEM);
	cr_expect_eq(err.code, ENOENT);
	cr_expect_str_eq(err.text, "opening /x: No such file or directory");
	cr_expect_eq(err_sys(NULL, ENOENT, "opening"), FAR_SYSTEM);
}

Test(status, printing)
{
	struct far_err err;
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	cr_assert_not_null(f);
	err_set(&err, FAR_TIMEOUT, "late");
	cr_expect_eq(far_err_print(f, &err), FAR_TIMEOUT);
	strcpy(err.origin, "worker1");
	err.code = 7;
	err.executed = FAR_EXECUTED_MAYBE;
	far_err_print(f, &err);
	fclose(f);
	cr_expect_str_eq(text, "far: TIMEOUT: late\n"
			       "far: TIMEOUT: late (origin worker1, code 7, executed MAYBE)\n");
	free(text);
}

Test(status, version)
{
	cr_expect_str_eq(far_version(), FAR_VERSION);
}
