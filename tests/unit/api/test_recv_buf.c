/* SPDX-License-Identifier: BSD-3-Clause */
/** Results that go to a buffer of the caller. The test's thread. */
#include "agents_fixture.h"
#include "api/recv_buf.h"
#include "value/encoding.h"

#include <string.h>

enum { CAP = 64 };

static uint8_t buffer[CAP + 8], encoded[8192];
static const struct far_recv_buf recv_buf = {buffer, CAP};

static void setup(void)
{
	agents_begin(1, NULL);
	memset(buffer, 0xee, sizeof buffer);
}

TestSuite(api_recv_buf, .init = setup, .fini = agents_end);

/* A call with the buffer ends with this value, or with this status and text. */
static struct far_future *completed(const struct far_val *v, enum far_status status, const char *text)
{
	struct far_future *f = future_alloc(agents[0]->shards[0]);
	struct completion o = {
		.status = status, .executed = FAR_EXECUTED_YES, .origin = -1, .agent = agents[0], .data = text};
	if (v) {
		struct values_plan plan;
		o.len = values_size(v, 1, &plan, NULL);
		cr_assert_leq(o.len, sizeof encoded);
		values_write(v, 1, &plan, encoded);
		o.data = encoded;
	} else {
		o.len = strlen(text);
	}
	recv_buf_set(f, &recv_buf);
	recv_buf_complete(f, &o);
	cr_assert(future_done(f));
	return f;
}

Test(api_recv_buf, tensors_and_bytes_are_copied_to_it)
{
	float x[CAP / 4];
	for (int i = 0; i < CAP / 4; i++)
		x[i] = (float)i;
	struct far_tensor t = far_tensor_1d(FAR_F32, x, CAP / 4);
	const struct far_val values[] = {far_tensor_val(&t), far_bytes("some bytes", 10), far_bytes("", 0)};
	for (size_t i = 0; i < 3; i++) {
		struct far_val out;
		struct far_future *f = completed(&values[i], FAR_OK, NULL);
		memset(encoded, 0, sizeof encoded);
		cr_assert_eq(far_future_value(f, &out, &err), FAR_OK, "%s", err.text);
		cr_assert_eq(out.type, values[i].type);
		if (out.type == FAR_TYPE_TENSOR) {
			cr_assert(out.u.t.data == buffer && out.u.t.shape[0] == CAP / 4);
			cr_assert_eq(memcmp(buffer, x, sizeof x), 0);
		} else {
			cr_assert(out.u.s.data == buffer && out.u.s.len == values[i].u.s.len);
			cr_assert(out.u.s.len == 0 || memcmp(buffer, "some bytes", 10) == 0);
		}
		cr_assert_eq(buffer[CAP], 0xee);
		far_val_fini(&out);
		far_future_free(f);
	}
}

/* One byte more than there is room for. Expect both lengths named, and the buffer as it was. */
Test(api_recv_buf, a_result_that_is_too_large)
{
	static uint8_t bytes[CAP + 1];
	struct far_val v = far_bytes(bytes, sizeof bytes), own;
	struct far_future *f = completed(&v, FAR_OK, NULL);
	cr_assert_eq(far_future_value(f, NULL, &err), FAR_TOO_LARGE);
	cr_assert_str_eq(err.text, "the result has 65 bytes, its receive buffer 64");
	cr_assert_eq(err.executed, FAR_EXECUTED_YES);
	far_future_free(f);
	cr_assert_eq(far_val_dup(&v, &own, &err), FAR_OK);
	const void *data = own.u.s.data;
	cr_assert_eq(recv_buf_move(&own, &recv_buf, &err), FAR_TOO_LARGE);
	cr_assert_str_eq(err.text, "the result has 65 bytes, its receive buffer 64");
	cr_assert_eq(err.executed, FAR_EXECUTED_YES);
	cr_assert(own.own && own.u.s.data == data, "unchanged");
	cr_assert_eq(recv_buf_move(&own, &recv_buf, NULL), FAR_TOO_LARGE);
	far_val_fini(&own);
	cr_assert_eq(buffer[0], 0xee);
}

/* Other types and errors have no use for it. */
Test(api_recv_buf, what_it_does_not_take)
{
	struct far_val out, v = far_int(7);
	struct far_future *f = completed(&v, FAR_OK, NULL);
	cr_assert_eq(far_future_value(f, &out, &err), FAR_OK);
	cr_assert(out.type == FAR_TYPE_INT && out.u.i == 7);
	far_future_free(f);
	v = far_str("a text");
	f = completed(&v, FAR_OK, NULL);
	cr_assert_eq(far_future_value(f, &out, &err), FAR_OK);
	cr_assert_str_eq(out.u.s.data, "a text");
	cr_assert_neq(out.u.s.data, (char *)buffer);
	far_val_fini(&out);
	far_future_free(f);
	f = completed(NULL, FAR_DENIED, "no entry");
	cr_assert_eq(far_future_value(f, NULL, &err), FAR_DENIED);
	cr_assert_str_eq(err.text, "no entry");
	far_future_free(f);
	cr_assert_eq(buffer[0], 0xee);
}

/* A result that lies in memory of the engine. Expect that given back, and a second move to do nothing. */
Test(api_recv_buf, moved_out_of_memory_of_the_engine)
{
	struct far_val v = far_bytes("some bytes", 10), own;
	cr_assert_eq(far_val_dup(&v, &own, &err), FAR_OK);
	struct far_buf *buf = own.own;
	buf_ref(buf);
	cr_assert_eq(recv_buf_move(&own, &recv_buf, &err), FAR_OK);
	cr_assert(own.u.s.data == buffer && !own.own && buf->refs == 1);
	cr_assert_eq(recv_buf_move(&own, &recv_buf, &err), FAR_OK);
	cr_assert_eq(memcmp(buffer, "some bytes", 10), 0);
	buf_unref(buf);
	struct far_val number = far_int(3);
	cr_assert_eq(recv_buf_move(&number, &recv_buf, &err), FAR_OK);
	cr_assert_eq(number.u.i, 3);
}
