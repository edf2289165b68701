/* SPDX-License-Identifier: BSD-3-Clause */
/** Payloads in pieces: the pieces are the payload, elements stay where they are, a reader trusts no piece.
 * The test's thread. */
#include "value/encoding_split.h"

#include "encoded.h"

#include <errno.h>

#define STAYS_MIN 256

/* Memory whose elements stay. */
static _Alignas(64) uint8_t shared[8192];

static bool stays(const void *at, size_t len)
{
	uintptr_t from = (uintptr_t)at - (uintptr_t)shared;
	return from < sizeof shared && len >= STAYS_MIN && from % 64 == 0;
}

struct pieces {
	_Alignas(64) uint8_t head[VALUES_HEAD_BYTES];
	struct values_part part[VALUES_PARTS_MAX];
	unsigned n;
};

static void split(struct pieces *p, const struct far_val *v, size_t n)
{
	struct far_err err;
	struct values_plan plan;
	cr_assert_neq(values_size(v, n, &plan, &err), SIZE_MAX, "%s", err.text);
	p->n = values_split(v, n, &plan, stays, p->head, p->part);
}

/* What a receiver has. */
struct received {
	struct values_scattered pieces;
	_Alignas(64) uint8_t first[VALUES_HEAD_BYTES];
};

static void receive(const struct pieces *p, struct received *r)
{
	r->pieces.n = p->n;
	for (unsigned i = 0; i < p->n; i++) {
		r->pieces.part[i].at = p->part[i].at;
		r->pieces.part[i].len = p->part[i].len;
	}
	memcpy(r->first, p->part[0].at, p->part[0].len);
	r->pieces.part[0].at = r->first;
}

static int read_pieces(struct received *r, size_t size, struct far_val *v, size_t cap, size_t *n)
{
	struct values_arena arena = {.scattered = true};
	return values_read(r->first, size, v, cap, n, &arena);
}

/* The pieces are the payload, byte by byte; what is read is what was written, and lies where it did. */
static void check_same(const struct far_val *v, size_t n, unsigned pieces)
{
	struct pieces p;
	struct received r;
	struct far_val out[FAR_ARGS_MAX];
	size_t size, at = 0, out_n;
	uint8_t *whole = encode(v, n, &size);
	split(&p, v, n);
	cr_assert_eq(p.n, pieces);
	for (unsigned i = 0; i < p.n; at += p.part[i++].len) {
		cr_assert_leq(p.part[i].len, size - at);
		cr_assert_eq(memcmp(whole + at, p.part[i].at, p.part[i].len), 0, "piece %u", i);
	}
	cr_assert_eq(at, size);
	receive(&p, &r);
	cr_assert_eq(read_pieces(&r, size, out, FAR_ARGS_MAX, &out_n), 0);
	cr_assert_eq(out_n, n);
	for (size_t i = 0; i < n; i++) {
		cr_assert_eq(out[i].type, v[i].type);
		if (v[i].type != FAR_TYPE_BYTES && v[i].type != FAR_TYPE_TENSOR)
			continue;
		bool bytes = v[i].type == FAR_TYPE_BYTES;
		const void *was = bytes ? v[i].u.s.data : far_val_tensor(&v[i])->data;
		const void *is = bytes ? out[i].u.s.data : out[i].u.t.data;
		size_t len = bytes ? v[i].u.s.len : far_tensor_bytes(far_val_tensor(&v[i]));
		cr_assert_eq((uintptr_t)is % 64, 0u, "value %zu", i);
		cr_assert_eq(memcmp(is, was, len), 0, "value %zu", i);
		cr_assert_eq(is == was, stays(was, len), "value %zu", i);
	}
	free(whole);
}

static void fill(void)
{
	for (size_t i = 0; i < sizeof shared; i++)
		shared[i] = (uint8_t)(i * 7 + 1);
}

Test(encoding_split, pieces_are_the_payload)
{
	static const char text[] = "small bytes";
	const double few[3] = {1, 2, 3};
	struct far_tensor t = far_tensor_1d(FAR_F64, few, 3), big = far_tensor_1d(FAR_F32, shared, 100);
	struct far_val small = far_bytes(text, sizeof text), odd = far_bytes(shared + 1024, 321),
		       other = far_bytes(shared + 2048, 256), third = far_bytes(shared + 4096, 512);
	fill();
	check_same((struct far_val[]){far_tensor_val(&big)}, 1, 2);
	check_same((struct far_val[]){odd, small}, 2, 3);
	check_same((struct far_val[]){small, far_int(-5), odd, far_str("text"), far_tensor_val(&t)}, 5, 3);
	check_same((struct far_val[]){odd, other}, 2, 4);
	check_same((struct far_val[]){odd, far_tensor_val(&t), other}, 3, 4);
	check_same((struct far_val[]){other, third, far_tensor_val(&t), far_none()}, 4, 4);
	check_same((struct far_val[]){small, far_tensor_val(&t), other, third, other}, 5, 4);
	check_same((struct far_val[]){far_bytes(text, 0), odd}, 2, 2);
}

static unsigned pieces_of(const struct far_val *v, size_t n)
{
	static struct pieces p;
	split(&p, v, n);
	return p.n;
}

Test(encoding_split, what_cannot_stay_is_for_a_copy)
{
	static const uint8_t much[VALUES_HEAD_BYTES];
	static const uint64_t shape[1] = {300};
	static const int64_t strides[1] = {2};
	struct far_val odd = far_bytes(shared, 321), other = far_bytes(shared + 2048, 256);
	struct far_tensor strided = {.data = shared, .dtype = FAR_U8, .ndim = 1, .strides = strides};
	memcpy(strided.shape, shape, sizeof shape);
	cr_assert_eq(pieces_of((struct far_val[]){far_bytes(shared, STAYS_MIN - 1)}, 1), 0u);
	cr_assert_eq(pieces_of((struct far_val[]){far_bytes(shared + 8, 512)}, 1), 0u);
	cr_assert_eq(pieces_of((struct far_val[]){far_int(1)}, 1), 0u);
	cr_assert_eq(pieces_of((struct far_val[]){odd, far_bytes(much, sizeof much)}, 2), 0u);
	cr_assert_eq(pieces_of((struct far_val[]){odd, far_bytes(much, sizeof much - 256)}, 2), 3u);
	cr_assert_eq(pieces_of((struct far_val[]){odd, odd, other}, 3), 0u);
	cr_assert_eq(pieces_of((struct far_val[]){odd, far_list(&other, 1)}, 2), 0u);
	cr_assert_eq(pieces_of((struct far_val[]){odd, far_tensor_val(&strided)}, 2), 0u);
}

Test(encoding_split, a_reader_stays_within_each_piece)
{
	struct pieces p;
	struct received r;
	struct far_val v[2] = {far_bytes(shared, 320), far_bytes(shared + 1024, 320)}, out[2];
	size_t size, n;
	free(encode(v, 2, &size));
	split(&p, v, 2);
	cr_assert_eq(p.n, 3u);
	receive(&p, &r);
	cr_assert_eq(read_pieces(&r, size, out, 2, &n), 0);
	/* The second element begins in one piece and ends in the next one. */
	r.pieces.part[1].len += 64;
	r.pieces.part[2].len -= 64;
	cr_assert_eq(read_pieces(&r, size, out, 2, &n), -EBADMSG);
	/* The pieces end before it. */
	receive(&p, &r);
	r.pieces.n = 2;
	cr_assert_eq(read_pieces(&r, size, out, 2, &n), -EBADMSG);
	/* The first piece ends before its descriptors do: the rest of them is no longer its own. */
	receive(&p, &r);
	r.pieces.n = 2;
	r.pieces.part[0].len = 4;
	r.pieces.part[1].at = shared;
	r.pieces.part[1].len = size - 4;
	cr_assert_eq(read_pieces(&r, size, out, 2, &n), -EBADMSG);
}

Test(encoding_split, no_object_is_read_in_pieces)
{
	static struct received r;
	struct far_val out[1];
	size_t n;
	/* A custom of 200 bytes: its type, 8 bytes of hash, its length. */
	static const uint8_t head[64] = {0x81, 9, 1, 2, 3, 4, 5, 6, 7, 8, 0xc8, 1};
	memcpy(r.first, head, sizeof head);
	r.pieces.n = 2;
	r.pieces.part[0].at = r.first;
	r.pieces.part[0].len = sizeof head;
	r.pieces.part[1].at = shared;
	r.pieces.part[1].len = 200;
	cr_assert_eq(read_pieces(&r, sizeof head + 200, out, 1, &n), -EBADMSG);
}
