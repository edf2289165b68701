/* SPDX-License-Identifier: BSD-3-Clause */
/** Forms of line payloads against the general encoder and reader. The test's thread. */
#include "value/encoding.h"
#include "value/line.h"

#include <criterion/criterion.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>

static uint64_t seed = 1;

static uint64_t dice(uint64_t n)
{
	seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (seed >> 33) % n;
}

static uint8_t bytes[4][256];
static const int64_t stride[1] = {2};

/* Arguments; most of them have a form. */
static size_t arguments(struct far_val *v, struct far_tensor *t)
{
	size_t n = dice(4) ? 1 : 1 + dice(4);
	for (size_t i = 0; i < n; i++) {
		unsigned dtype = dice(4) ? FAR_F32 : dice(20) ? (unsigned)dice(FAR_DTYPE_COUNT) : (unsigned)dice(32);
		t[i] = far_tensor_1d((enum far_dtype)dtype, bytes[i], dice(30) ? 1 + dice(4) : dice(300));
		if (!dice(40))
			t[i].ndim = (uint8_t)dice(3);
		if (!dice(40))
			t[i].strides = stride;
		if (!dice(40))
			t[i].domain = 1;
		if (!dice(40))
			t[i].data = NULL;
		v[i] = dice(2) ? far_tensor_ref(&t[i]) : far_tensor_val(&t[i]);
		if (!dice(40))
			v[i] = far_int(5);
		if (!dice(40))
			v[i].kw = "x";
	}
	return n;
}

/* What the general encoder writes for them; 0: it refuses them, or they are longer than a line. */
static size_t general(const struct far_val *v, size_t n, uint8_t line[FAR_LINE_PAYLOAD])
{
	struct values_plan plan;
	struct far_err err;
	size_t len = values_size(v, n, &plan, &err);
	if (len > FAR_LINE_PAYLOAD || plan.form != VALUES_LINE)
		return 0;
	memset(line, 0, FAR_LINE_PAYLOAD);
	values_write(v, n, &plan, line);
	return len;
}

Test(line, writes_what_the_encoder_writes)
{
	struct line_form form = {0};
	unsigned known = 0, met = 0;
	for (unsigned i = 0; i < sizeof bytes; i++)
		((uint8_t *)bytes)[i] = (uint8_t)dice(256);
	for (int round = 0; round < 200000; round++) {
		struct far_tensor t[4];
		struct far_val v[4];
		alignas(32) uint8_t expected[FAR_LINE_PAYLOAD], line[FAR_LINE_PAYLOAD];
		size_t n = arguments(v, t), len = general(v, n, expected);
		memset(line, 0xee, sizeof line);
		bool put = line_put(&form, v, n, line);
		if (put)
			met++;
		if (!put) {
			line_learn(&form, v, n);
			cr_assert_eq(form.n != 0, len && n <= LINE_ARGS_MAX, "round %d", round);
			put = line_put(&form, v, n, line);
			cr_assert_eq(put, form.n != 0);
			known += put;
		}
		if (put) {
			cr_assert_eq(form.len, len);
			cr_assert_arr_eq(line, expected, FAR_LINE_PAYLOAD);
		}
	}
	cr_assert_gt(known, 1000u);
	cr_assert_gt(met, 100u);
}

Test(line, reads_what_the_reader_reads)
{
	struct line_form form;
	line_forget(&form);
	struct far_val of_form[LINE_ARGS_MAX], out[8];
	unsigned met = 0, refused = 0;
	for (int round = 0; round < 200000; round++) {
		struct far_tensor t[4];
		struct far_val v[4];
		alignas(32) uint8_t line[FAR_LINE_PAYLOAD] = {0};
		uint64_t desc[2];
		size_t n = arguments(v, t), len = general(v, n, line), read = 0;
		if (!len)
			continue;
		if (!dice(3)) /* a hostile one */
			line[dice(16)] ^= (uint8_t)(1u << dice(8));
		if (!dice(20))
			len = dice(FAR_LINE_PAYLOAD + 1);
		memcpy(desc, line, sizeof desc);
		bool is = line_is(&form, desc[0], desc[1], len);
		cr_assert(form.n || !is, "round %d: a payload of %zu bytes has a form that is not known", round, len);
		if (is)
			met++;
		else
			line_learn_payload(&form, desc, len, of_form);
		bool reads = len && values_read(line, len, out, 8, &read, NULL) == 0;
		if (!form.n) {
			refused++;
			continue;
		}
		cr_assert(reads, "round %d: a form of a payload that the reader refuses", round);
		cr_assert_eq(read, form.n);
		for (size_t i = 0; i < read; i++) {
			cr_assert_eq(out[i].type, FAR_TYPE_TENSOR);
			cr_assert_eq((uint8_t *)out[i].u.t.data - line, form.arg[i].at);
			cr_assert_eq(out[i].u.t.shape[0], form.arg[i].count);
			cr_assert_eq(of_form[i].u.t.shape[0], form.arg[i].count);
			cr_assert_eq(out[i].u.t.dtype, of_form[i].u.t.dtype);
			cr_assert_eq(of_form[i].u.t.ndim, 1);
		}
	}
	cr_assert_gt(met, 100u);
	cr_assert_gt(refused, 1000u);
}

/* Payloads that are one tensor, whole and damaged. Expect the very ones that the writer writes and the reader reads. */
Test(line, finds_what_the_reader_reads)
{
	unsigned found = 0, refused = 0;
	for (int round = 0; round < 200000; round++) {
		alignas(32) uint8_t line[FAR_LINE_PAYLOAD] = {0};
		unsigned dtype = (unsigned)dice(18), as;
		uint64_t count = dice(30) ? dice(40) : dice(300);
		size_t at = 0, len = 0, n = 0, read = 0;
		bool put = line_put_one(line, dtype, count, &at, &len);
		if (!put) {
			line[0] = 1;
			line[1] = WIRE_TENSOR;
			line[2] = (uint8_t)(dtype << 4 | 1u);
			line[4] = (uint8_t)count;
			len = dice(FAR_LINE_PAYLOAD + 1);
		}
		bool whole = put && dice(2);
		if (put && !whole)
			line[dice(8)] ^= (uint8_t)(1u << dice(8));
		if (put && !whole && !dice(4))
			len = dice(FAR_LINE_PAYLOAD + 1);
		const uint8_t *data = line_find_one(line, len, &as, &n);
		cr_assert(!whole || data == line + at, "round %d: dtype %u, %zu elements", round, dtype, n);
		if (!data) {
			refused++;
			continue;
		}
		struct far_val v;
		found++;
		cr_assert_eq(values_read(line, len, &v, 1, &read, NULL), 0, "round %d", round);
		cr_assert(read == 1 && v.type == FAR_TYPE_TENSOR && !v.kw && v.u.t.ndim == 1 && v.u.t.dtype == as &&
				  v.u.t.shape[0] == n && v.u.t.data == data,
			  "round %d: dtype %u, %zu elements", round, as, n);
	}
	cr_assert_gt(found, 1000u);
	cr_assert_gt(refused, 1000u);
}
