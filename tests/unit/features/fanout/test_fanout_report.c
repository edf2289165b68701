/* SPDX-License-Identifier: BSD-3-Clause */
/** Texts and results of fan-outs. The test's thread. */
#include "features/fanout/fanout.h"

#include <criterion/criterion.h>
#include <string.h>

static struct fanout fo;
static char text[FAR_ERR_TEXT_MAX];

static void setup(void)
{
	fo = (struct fanout){.name = "t::rows", .timeout = 250 * FAR_MS, .n = 8, .k = 5, .ok_n = 4, .failed_n = 4};
	memset(text, 0xee, sizeof text);
}

TestSuite(fanout_report, .init = setup);

static struct completion error_of(enum far_status status)
{
	struct completion o;
	fanout_error(&fo, status, text, sizeof text, &o);
	cr_assert(o.data == text && o.len == strlen(text) && o.origin == -1);
	return o;
}

/* Expect the class, code and origin of the first failure, and all counts. */
Test(fanout_report, too_many_failed)
{
	const struct completion failed = {
		.status = FAR_DENIED, .code = -7, .origin = 3, .data = "no entry, at all", .len = 8};
	struct completion o;
	fanout_record_failure(&fo, 6, &failed);
	fanout_error(&fo, FAR_OK, text, sizeof text, &o);
	cr_assert(o.status == FAR_DENIED && o.code == -7 && o.origin == 3);
	cr_assert_eq(o.executed, FAR_EXECUTED_NO);
	cr_assert_str_eq(text, "4 of 8 targets failed, 4 succeeded, 5 had to; the first, target 6: no entry");
	fo.touched = true;
	fanout_error(&fo, FAR_OK, text, sizeof text, &o);
	cr_assert_eq(o.executed, FAR_EXECUTED_MAYBE);
}

Test(fanout_report, ended_from_outside)
{
	fo.failed_n = 1;
	cr_assert_eq(error_of(FAR_TIMEOUT).status, FAR_TIMEOUT);
	cr_assert_str_eq(text,
			 "no answer to t::rows within the time-out of 250 ms: 4 of 8 targets had succeeded, 1 failed, "
			 "5 had to succeed");
	cr_assert_eq(error_of(FAR_CANCELLED).executed, FAR_EXECUTED_NO);
	cr_assert_str_eq(text,
			 "the fan-out was cancelled here: 4 of 8 targets had succeeded, 1 failed, 5 had to succeed");
	cr_assert_eq(error_of(FAR_SHUTDOWN).status, FAR_SHUTDOWN);
	cr_assert_eq(strncmp(text, FANOUT_STOPPED ": 4 of 8", strlen(FANOUT_STOPPED) + 8), 0, "%s", text);
}

Test(fanout_report, messages_have_numbers)
{
	fo.name = NULL;
	fo.message = 17;
	fo.timeout = 1500;
	fanout_write_timeout(&fo, text, sizeof text);
	cr_assert_str_eq(text, "no answer to message 17 within the time-out of 0.0015 ms");
}

/* Texts beyond the room for them. Expect them cut, with their end. */
Test(fanout_report, long_texts_are_cut)
{
	char longer[2 * FAR_ERR_TEXT_MAX];
	struct completion failed = {.status = FAR_REMOTE, .data = longer, .len = sizeof longer}, o;
	memset(longer, 'l', sizeof longer);
	fanout_record_failure(&fo, 0, &failed);
	cr_assert_eq(strlen(fo.failure.text), sizeof fo.failure.text - 1);
	fanout_error(&fo, FAR_OK, text, 40, &o);
	cr_assert(o.len == 39 && strlen(text) == 39);
	cr_assert_eq((uint8_t)text[40], 0xee);
	failed.len = 0;
	fanout_write_text(text, sizeof text, &failed);
	cr_assert_str_empty(text);
}

/* Expect the error text of a failure in the target's result, none of a success, and nothing without results. */
Test(fanout_report, results_of_targets)
{
	static struct far_target_result results[8];
	struct completion o = {.status = FAR_BUSY, .executed = FAR_EXECUTED_NO, .code = 9, .data = "full", .len = 4};
	fanout_write_result(&fo, 2, (struct far_to){4, 1}, &o);
	fo.results = results;
	fanout_write_result(&fo, 2, (struct far_to){4, 1}, &o);
	cr_assert(results[2].status == FAR_BUSY && results[2].code == 9 && results[2].executed == FAR_EXECUTED_NO);
	cr_assert(results[2].from.worker == 4 && results[2].from.shard == 1);
	cr_assert_str_eq(results[2].text, "full");
	o.status = FAR_OK;
	fanout_write_result(&fo, 2, (struct far_to){5, 0}, &o);
	cr_assert(results[2].status == FAR_OK && results[2].from.worker == 5);
	cr_assert_str_empty(results[2].text);
}
