/* SPDX-License-Identifier: BSD-3-Clause */
/** Replies of targets to the application's memory: what fits is written, all else is refused whole. The test's thread.
 */
#include "features/fanout/scatter.h"
#include "value/encoding.h"
#include "value/tree.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { CAP = 16 };

static struct fanout *fo;
static struct far_target target;
static struct far_target_result r;
static uint8_t slice[CAP + 8], encoded[512];
static const char *text;

static void setup(void)
{
	fo = calloc(1, sizeof *fo + sizeof *fo->target);
	cr_assert_not_null(fo);
	target = (struct far_target){.cap = CAP};
	fo->targets = &target;
	fo->start.typed = 1;
	fo->target[0].recv_buf = slice;
	fo->target[0].cap = CAP;
	r = (struct far_target_result){.status = FAR_PENDING};
	memset(slice, 0xee, sizeof slice);
	text = "";
}

static void teardown(void)
{
	free(fo);
}

TestSuite(fanout_scatter, .init = setup, .fini = teardown);

static enum far_status put(struct far_val v)
{
	struct values_plan plan;
	size_t len = values_size(&v, 1, &plan, NULL);
	cr_assert_leq(len, sizeof encoded);
	values_write(&v, 1, &plan, encoded);
	return scatter(fo, 0, encoded, len, &r, &text);
}

static void expect_unwritten(void)
{
	for (size_t i = 0; i < sizeof slice; i++)
		cr_assert_eq(slice[i], 0xee);
}

/* Expect each type's bytes in the slice, and a value that refers to them. */
Test(fanout_scatter, values_in_a_slice)
{
	int64_t i;
	double d;
	cr_assert_eq(put(far_int(-7)), FAR_OK, "%s", text);
	memcpy(&i, slice, sizeof i);
	cr_assert(i == -7 && r.len == 8 && r.value.u.i == -7);
	cr_assert_eq(put(far_float(0.5)), FAR_OK);
	memcpy(&d, slice, sizeof d);
	cr_assert(d == 0.5 && r.len == 8);
	cr_assert_eq(put(far_bool(true)), FAR_OK);
	cr_assert(slice[0] == 1 && r.len == 1);
	cr_assert_eq(put(far_str("fifteen letters")), FAR_OK, "with its end it fits exactly");
	cr_assert(strcmp((char *)slice, "fifteen letters") == 0 && r.len == 15 && r.value.u.s.data == slice);
	cr_assert_eq(put(far_bytes("sixteen letters!", 16)), FAR_OK);
	cr_assert(memcmp(slice, "sixteen letters!", 16) == 0 && r.len == 16 && slice[CAP] == 0xee);
	cr_assert_eq(put(far_none()), FAR_OK);
	cr_assert_eq(r.len, 0u);
}

Test(fanout_scatter, larger_than_the_slice)
{
	cr_assert_eq(put(far_str("sixteen letters!")), FAR_TOO_LARGE);
	cr_assert_str_eq(text, "the reply is larger than its slice");
	cr_assert_eq(r.len, 17u, "the bytes needed");
	cr_assert_eq(put(far_bytes("seventeen letters", 17)), FAR_TOO_LARGE);
	cr_assert_eq(r.len, 17u);
	fo->start.typed = 0; /* a message */
	cr_assert_eq(scatter(fo, 0, "seventeen letters", 17, &r, &text), FAR_TOO_LARGE);
	cr_assert_eq(r.len, 17u);
	expect_unwritten();
	cr_assert_eq(scatter(fo, 0, "sixteen letters!", 16, NULL, &text), FAR_OK);
	cr_assert_eq(memcmp(slice, "sixteen letters!", 16), 0);
}

/* A tensor of the wanted dtype and shape, and others. */
Test(fanout_scatter, tensors)
{
	float x[4] = {1, 2, 3, 4}, into[4] = {0};
	int32_t n[4] = {0};
	struct far_tensor four = far_tensor_1d(FAR_F32, x, 4), three = far_tensor_1d(FAR_F32, x, 3),
			  ints = far_tensor_1d(FAR_I32, n, 4), want = far_tensor_1d(FAR_F32, into, 4);
	fo->dtype = FAR_F32;
	cr_assert_eq(put(far_tensor_val(&four)), FAR_OK, "%s", text);
	cr_assert(memcmp(slice, x, sizeof x) == 0 && r.value.u.t.data == slice);
	memset(slice, 0xee, sizeof slice);
	cr_assert_eq(put(far_tensor_val(&ints)), FAR_PROTOCOL);
	cr_assert_eq(put(far_bytes("sixteen letters!", 16)), FAR_PROTOCOL);
	target.out = &want;
	cr_assert_eq(put(far_tensor_val(&three)), FAR_PROTOCOL);
	cr_assert_str_eq(text, "the result is not a tensor of the wanted dtype and shape");
	cr_assert_eq(put(far_int(1)), FAR_PROTOCOL);
	cr_assert_eq(put(far_tensor_val(&ints)), FAR_PROTOCOL, "of the same bytes");
	cr_assert_eq(into[0], 0.0f);
	cr_assert_eq(put(far_tensor_val(&four)), FAR_OK);
	cr_assert(memcmp(into, x, sizeof x) == 0 && r.value.u.t.data == into);
	expect_unwritten();
}

/* Without a slice a result owns its bytes, those of a list too. */
Test(fanout_scatter, results_of_their_own)
{
	fo->target[0].recv_buf = NULL;
	cr_assert_eq(put(far_str("text")), FAR_OK);
	memset(encoded, 0, sizeof encoded);
	cr_assert(r.value.own && strcmp(r.value.u.s.data, "text") == 0);
	far_val_fini(&r.value);
	cr_assert_eq(put(FAR_LIST(1, "two")), FAR_OK, "%s", text);
	memset(encoded, 0, sizeof encoded);
	cr_assert(r.value.own && far_len(&r.value) == 2);
	cr_assert_str_eq(far_list_get(&r.value, 1)->u.s.data, "two");
	far_val_fini(&r.value);
	fo->target[0].recv_buf = slice;
	cr_assert_eq(put(FAR_LIST(1, "two")), FAR_UNSUPPORTED);
	cr_assert(strstr(text, "has no place in a slice"), "%s", text);
	expect_unwritten();
}

/* Cut anywhere, and two values. Expect PROTOCOL, and nothing written. */
Test(fanout_scatter, malformed)
{
	struct far_val v[] = {far_str("a text"), far_int(1)};
	struct values_plan plan;
	size_t len = values_size(v, 1, &plan, NULL);
	values_write(v, 1, &plan, encoded);
	for (size_t cut = 0; cut < len; cut++)
		cr_assert_eq(scatter(fo, 0, encoded, cut, &r, &text), FAR_PROTOCOL, "%zu bytes", cut);
	cr_assert_str_eq(text, "the answer is malformed");
	len = values_size(v, 2, &plan, NULL);
	values_write(v, 2, &plan, encoded);
	cr_assert_eq(scatter(fo, 0, encoded, len, &r, &text), FAR_PROTOCOL);
	expect_unwritten();
}

/* The value of a fan-out's future is the number of successes. */
Test(fanout_scatter, counts)
{
	struct far_val v;
	size_t n;
	size_t len = scatter_count(4096, encoded, sizeof encoded);
	cr_assert_eq(values_read(encoded, len, &v, 1, &n, NULL), 0);
	cr_assert(n == 1 && v.type == FAR_TYPE_INT && v.u.i == 4096);
}
