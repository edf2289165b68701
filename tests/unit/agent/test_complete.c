/* SPDX-License-Identifier: BSD-3-Clause */
/** Futures that end with the completion of a call: errors with the name of their origin, times of time-outs.
 * The test's thread. */
#include "agents_fixture.h"

#include <string.h>

static void setup(void)
{
	agents_begin(2, NULL);
}

TestSuite(complete, .init = setup, .fini = agents_end);

static enum far_status complete(const struct completion *o, uint32_t mark, uint64_t left)
{
	struct far_future *f = future_alloc(agents[0]->shards[0]);
	if (mark)
		future_mark_timed(f, mark, left);
	agent_complete(f, o);
	enum far_status status = far_future_value(f, NULL, &err);
	far_future_free(f);
	return status;
}

static struct completion failed(enum far_status status, const char *text)
{
	return (struct completion){.status = status, .origin = -1, .data = text, .len = strlen(text)};
}

/* Expect the worker's name, of one that is none this worker's, and what the completion said. */
Test(complete, the_origin_is_a_name)
{
	struct completion o = failed(FAR_REMOTE, "it broke");
	o.code = 7;
	o.executed = FAR_EXECUTED_YES;
	for (int origin = -1; origin <= 2; origin++) {
		o.origin = (int16_t)origin;
		cr_assert_eq(complete(&o, 0, 0), FAR_REMOTE);
		cr_assert_str_eq(err.origin, origin == 1 ? "w1" : "w0");
		cr_assert_str_eq(err.text, "it broke");
		cr_assert_eq(err.code, 7);
		cr_assert_eq(err.executed, FAR_EXECUTED_YES);
	}
}

/* Texts have no NUL; one beyond FAR_ERR_TEXT_MAX is cut. */
Test(complete, texts_of_any_length)
{
	static char text[2 * FAR_ERR_TEXT_MAX];
	memset(text, 'x', sizeof text);
	for (size_t n = 0; n <= sizeof text; n += n + 2 == FAR_ERR_TEXT_MAX || n + 1 == FAR_ERR_TEXT_MAX ? 1 : 2) {
		struct completion o = {.status = FAR_REMOTE, .origin = 0, .data = text, .len = n};
		cr_assert_eq(complete(&o, 0, 0), FAR_REMOTE);
		cr_assert_eq(strlen(err.text), n < FAR_ERR_TEXT_MAX ? n : FAR_ERR_TEXT_MAX - 1);
	}
}

/* A call notes how long it had; one of the fast path has the default of now. Of a handler that has run, the text is
 * the handler's. */
Test(complete, how_long_a_call_had)
{
	static const char text[] = "no answer within the time-out";
	struct completion o = failed(FAR_TIMEOUT, text);
	complete(&o, FUTURE_CALL, 2500000);
	cr_assert_str_eq(err.text, "no answer within the time-out of 2.5 ms");
	agent_set_timeout(agents[0], 7 * FAR_SEC);
	struct far_future *f = future_alloc(agents[0]->shards[0]);
	future_mark(f, FUTURE_CALL);
	agent_complete(f, &o);
	cr_assert_eq(far_future_value(f, NULL, &err), FAR_TIMEOUT);
	cr_assert_str_eq(err.text, "no answer within the time-out of 7000 ms");
	far_future_free(f);
	complete(&o, 0, 0);
	cr_assert_str_eq(err.text, text);
	o.executed = FAR_EXECUTED_YES;
	complete(&o, FUTURE_CALL, 2500000);
	cr_assert_str_eq(err.text, text);
	o = failed(FAR_TIMEOUT, "the store did not answer");
	complete(&o, FUTURE_CALL, 2500000);
	cr_assert_str_eq(err.text, "the store did not answer");
}

Test(complete, a_time_that_has_no_room)
{
	char text[FAR_ERR_TEXT_MAX];
	memset(text, 'x', sizeof text);
	memcpy(text + sizeof text - 12, "time-out", 9);
	agent_add_duration(text, 5 * FAR_MS);
	cr_assert_str_eq(text + sizeof text - 12, "time-out of");
	char alone[FAR_ERR_TEXT_MAX] = "time-out";
	agent_add_duration(alone, 0);
	cr_assert_str_eq(alone, "time-out");
}

Test(complete, values)
{
	static const char bytes[] = "a reply";
	const struct completion o = {.status = FAR_OK, .data = bytes, .len = sizeof bytes};
	struct far_future *f = future_alloc(agents[0]->shards[0]);
	agent_complete(f, &o);
	cr_assert(future_done(f));
	cr_assert_eq(future_len(f), sizeof bytes);
	cr_assert_str_eq(future_bytes(f), bytes);
	far_future_free(f);
}

/* An error of another call, as it is, when no completion of a shard led to it. */
Test(complete, with_an_error)
{
	struct far_future *f;
	struct far_err why = {
		.status = FAR_GONE, .executed = FAR_EXECUTED_NO, .code = 3, .origin = "w9", .text = "it is gone"};
	cr_assert_eq(far_future_create(&f, &err), FAR_OK);
	agent_complete_error(NULL, f, &why);
	cr_assert_eq(far_future_value(f, NULL, &err), FAR_GONE);
	cr_assert_str_eq(err.origin, "w9");
	cr_assert_str_eq(err.text, "it is gone");
	cr_assert_eq(err.code, 3);
	cr_assert_eq(err.executed, FAR_EXECUTED_NO);
	far_future_free(f);
}
