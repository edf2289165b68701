/* SPDX-License-Identifier: BSD-3-Clause */
/** User-made futures, without any agent. The test's thread, and threads that it starts. */
#include "user_futures.h"

#include <pthread.h>
#include <string.h>

Test(api_future, a_user_made_future_takes_any_value_once)
{
	static uint8_t bytes[100000];
	float x[3] = {1, 2, 3};
	struct far_tensor t = far_tensor_1d(FAR_F32, x, 3);
	struct far_val values[] = {far_none(), far_int(-5),
				   far_str("a text that is longer than the future itself is, so "
					   "that it has to lie in a buffer of its own"),
				   far_bytes(bytes, sizeof bytes), far_tensor_val(&t)};
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		struct far_future *f = make();
		struct far_val out;
		cr_assert_not(far_future_done(f));
		cr_assert_eq(far_future_value(f, &out, &err), FAR_PENDING);
		cr_assert_eq(far_future_set_value(f, &values[i], &err), FAR_OK);
		cr_assert(far_future_done(f));
		cr_assert_eq(far_future_set_value(f, &values[i], &err), FAR_INVALID);
		cr_assert(strstr(err.text, "already completed"));
		cr_assert_eq(far_future_set_error(f, FAR_REMOTE, 1, "no"), FAR_INVALID);
		for (int again = 0; again < 2; again++) {
			cr_assert_eq(far_future_wait(f, 0, &out, &err), FAR_OK);
			cr_assert_eq(out.type, values[i].type);
			if (out.type == FAR_TYPE_STRING)
				cr_assert_str_eq(out.u.s.data, values[i].u.s.data);
			if (out.type == FAR_TYPE_TENSOR)
				cr_assert_eq(((const float *)out.u.t.data)[2], 3.0f);
			if (again)
				far_future_free(f); /* the value outlives it */
			if (out.type == FAR_TYPE_BYTES)
				cr_assert_eq(memcmp(out.u.s.data, bytes, sizeof bytes), 0);
			far_val_fini(&out);
		}
	}
	struct far_future *f = make();
	cr_assert_eq(far_future_set_value(f, NULL, NULL), FAR_OK, "NULL is none");
	far_future_free(f);
}

Test(api_future, a_user_made_future_takes_an_error_once)
{
	struct far_future *f = make();
	cr_assert_eq(far_future_set_error(f, FAR_OK, 0, "x"), FAR_INVALID);
	cr_assert_eq(far_future_set_error(f, (enum far_status) - 1, 0, "x"), FAR_INVALID);
	cr_assert_eq(far_future_set_error(f, FAR_STATUS_COUNT, 0, "x"), FAR_INVALID);
	cr_assert_not(far_future_done(f));
	cr_assert_eq(far_future_set_error(f, FAR_DENIED, -3, "no %s for %d", "entry", 7), FAR_OK);
	cr_assert_eq(far_future_wait(f, 0, NULL, &err), FAR_DENIED);
	cr_assert_eq(err.status, FAR_DENIED);
	cr_assert_eq(err.code, -3);
	cr_assert_str_eq(err.text, "no entry for 7");
	cr_assert_str_eq(err.origin, "");
	cr_assert_eq(far_future_set_value(f, NULL, &err), FAR_INVALID);
	far_future_free(f);
	f = make();
	char text[1000];
	memset(text, 'y', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	cr_assert_eq(far_future_set_error(f, FAR_REMOTE, 0, "%s", text), FAR_OK);
	cr_assert_eq(far_future_wait(f, 0, NULL, &err), FAR_REMOTE);
	cr_assert_eq(strlen(err.text), (size_t)FAR_ERR_TEXT_MAX - 1);
	far_future_free(f);
	f = make();
	cr_assert_eq(far_future_set_error(f, FAR_TIMEOUT, 0, NULL), FAR_OK);
	cr_assert_eq(far_future_value(f, NULL, &err), FAR_TIMEOUT);
	cr_assert_str_eq(err.text, far_status_text(FAR_TIMEOUT));
	far_future_free(f);
}

Test(api_future, a_user_made_future_takes_the_error_of_another_call_as_it_is)
{
	struct far_future *f = make();
	struct far_err given = {.status = FAR_OK, .executed = FAR_EXECUTED_YES, .code = 7, .origin = "worker3"};
	memset(given.text, 'y', sizeof given.text); /* without a NUL */
	cr_assert_eq(far_future_pass_error(f, &given), FAR_INVALID);
	given.status = FAR_STATUS_COUNT;
	cr_assert_eq(far_future_pass_error(f, &given), FAR_INVALID);
	given.status = FAR_DENIED;
	cr_assert_eq(far_future_pass_error(NULL, &given), FAR_INVALID);
	cr_assert_eq(far_future_pass_error(f, NULL), FAR_INVALID);
	cr_assert_not(far_future_done(f));
	cr_assert_eq(far_future_pass_error(f, &given), FAR_OK);
	cr_assert_eq(far_future_wait(f, 0, NULL, &err), FAR_DENIED);
	cr_assert_eq(err.executed, FAR_EXECUTED_YES);
	cr_assert_eq(err.code, 7);
	cr_assert_str_eq(err.origin, "worker3");
	cr_assert_eq(strlen(err.text), (size_t)FAR_ERR_TEXT_MAX - 1);
	cr_assert_eq(far_future_pass_error(f, &given), FAR_INVALID);
	far_future_free(f);
}

Test(api_future, a_value_that_is_wrong_leaves_the_future_pending)
{
	struct far_future *f = make();
	struct far_val v = {.type = 99}, large = far_bytes("x", FAR_MSG_BYTES_MAX + 1);
	cr_assert_neq(far_future_set_value(f, &v, &err), FAR_OK);
	cr_assert_eq(far_future_set_value(f, &large, &err), FAR_TOO_LARGE);
	cr_assert_not(far_future_done(f));
	set_int(f, 1);
	far_future_free(f);
}

Test(api_future, of_racing_completions_one_wins, .timeout = 60)
{
	for (int round = 0; round < 200; round++) {
		struct far_future *f = make();
		pthread_t t[3];
		int won = 0;
		for (int i = 0; i < 3; i++)
			cr_assert_eq(pthread_create(&t[i], NULL, set_it, f), 0);
		cr_assert_eq(far_future_wait(f, FAR_FOREVER, NULL, &err), FAR_OK);
		for (int i = 0; i < 3; i++) {
			void *status;
			pthread_join(t[i], &status);
			cr_assert((intptr_t)status == FAR_OK || (intptr_t)status == FAR_INVALID);
			won += (intptr_t)status == FAR_OK;
		}
		cr_assert_eq(won, 1);
		far_future_free(f);
	}
}
