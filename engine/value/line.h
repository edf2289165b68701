/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Arguments and results of VALUES_LINE whose form was seen before: a form holds the descriptors as they are on the
 * wire, and where the elements lie, so that equal ones are written and read without being measured. The thread that
 * owns the form.
 */
#ifndef FAR_VALUE_LINE_H
#define FAR_VALUE_LINE_H

#include "base/must.h"
#include "value/encoding_layout.h"

#include <assert.h>
#include <farcall/value.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#define LINE_LEN_NONE UINT8_MAX /* longer than any line, so that line_is() refuses every payload */
#define LINE_ARGS_MAX 3u        /* count and descriptors of as many fit 16 bytes */

/** One to LINE_ARGS_MAX dense tensors of one dimension below 128. */
struct line_form {
	uint64_t desc[2]; /* count and descriptors, as on the wire; then zeros */
	uint64_t mask[2]; /* the bits of `desc` that they take */
	uint8_t n;        /* tensors; 0: no form is known */
	uint8_t len;      /* bytes of the payload; LINE_LEN_NONE: no form is known */
	struct line_arg {
		uint32_t kind; /* line_kind() of the tensor */
		uint8_t at;    /* offset of its elements */
		uint8_t bytes; /* of its elements */
		uint64_t count;
	} arg[LINE_ARGS_MAX];
};

/** dtype, ndim and domain of a tensor in one word: they lie together. */
static inline uint32_t line_kind(const struct far_tensor *t)
{
	uint32_t kind;
	static_assert(offsetof(struct far_tensor, domain) == offsetof(struct far_tensor, dtype) + 2, "");
	memcpy(&kind, &t->dtype, sizeof kind);
	return kind & 0xffffff;
}

/** far_val_tensor(); NULL: the value is none, or has none. */
static inline const struct far_tensor *line_tensor(const struct far_val *v)
{
	uint16_t what; /* type and by_ref */
	static_assert(offsetof(struct far_val, by_ref) == 1 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "");
	memcpy(&what, v, sizeof what);
	if (likely(what == (FAR_TYPE_TENSOR | 1 << 8)))
		return v->u.ref;
	return likely(what == FAR_TYPE_TENSOR) ? &v->u.t : NULL;
}

/* By words: a load of 16 bytes that smaller stores wrote just before waits until these have left the core, and with
 * them all before them, those to lines of a peer, too. */
static inline void line_copy_16(uint8_t *to, const uint8_t *from)
{
#if defined(__x86_64__)
	__m128d words = _mm_load_sd((const double *)(const void *)from);
	__asm__("" : "+x"(words)); /* else the compiler makes one load of two */
	_mm_storeu_pd((double *)(void *)to, _mm_loadh_pd(words, (const double *)(const void *)(from + 8)));
#else
	__builtin_memcpy(to, from, 16);
#endif
}

/** memcpy() of [1, FAR_LINE_PAYLOAD] bytes without a call. */
static inline void line_copy(uint8_t *to, const uint8_t *from, size_t len)
{
	if (len >= 16) {
		line_copy_16(to, from);
		line_copy_16(to + len - 16, from + len - 16);
	} else if (len >= 8) {
		__builtin_memcpy(to, from, 8);
		__builtin_memcpy(to + len - 8, from + len - 8, 8);
	} else if (len >= 4) {
		__builtin_memcpy(to, from, 4);
		__builtin_memcpy(to + len - 4, from + len - 4, 4);
	} else {
		to[0] = from[0];
		to[len / 2] = from[len / 2];
		to[len - 1] = from[len - 1];
	}
}

/** Writes arguments of this form to a payload of FAR_LINE_PAYLOAD bytes, form->len of them. false: they have another
 * form, and `to` is undefined. */
static inline bool line_put(const struct line_form *form, const struct far_val *v, size_t n, uint8_t *to)
{
	if (unlikely(n != form->n || n == 0))
		return false;
	__builtin_memset(to + 16, 0, 16); /* padding is zero */
	__builtin_memcpy(to, form->desc, 16);
	const struct line_arg *arg = form->arg;
	for (; n; n--, v++, arg++) {
		if (unlikely(v->kw))
			return false;
		const struct far_tensor *t = line_tensor(v);
		if (unlikely(!t || line_kind(t) != arg->kind || t->shape[0] != arg->count || t->strides || !t->data))
			return false;
		if (likely(arg->bytes == 8))
			__builtin_memcpy(to + arg->at, t->data, 8);
		else
			line_copy(to + arg->at, t->data, *(const volatile uint8_t *)&arg->bytes);
	}
	return true;
}

/** A payload of one tensor of one dimension, by dtype: where its elements begin, their size, and how many fit a line;
 * 0: there is no such dtype. */
static const struct line_one {
	alignas(4) uint8_t at; /* a power of two as its size: an index needs no multiplication */
	uint8_t element, max;
} line_ones[16] = {
#define LINE_ONE_AT(bytes) ((5 + (bytes)-1) / ((bytes) ? (bytes) : 1) * (bytes))
#define LINE_ONE(name, bytes, text)                                                                                    \
	[FAR_##name] = {LINE_ONE_AT(bytes), (bytes),                                                                   \
			(bytes) ? (FAR_LINE_PAYLOAD - LINE_ONE_AT(bytes)) / ((bytes) ? (bytes) : 1) : 0},
	FAR_DTYPE_LIST(LINE_ONE)
#undef LINE_ONE
#undef LINE_ONE_AT
};

/** Writes the head of a payload that is one tensor of one dimension; its elements are at *at, and it has *len bytes.
 * false: it is none of VALUES_LINE, and `to` is unchanged. `to`: FAR_LINE_PAYLOAD bytes. */
static inline bool line_put_one(uint8_t *to, unsigned dtype, uint64_t count, size_t *at, size_t *len)
{
	if (unlikely(dtype >= 16))
		return false;
	const struct line_one *one = &line_ones[dtype];
	if (unlikely(count - 1 >= one->max))
		return false;
	uint64_t head = 1 | (uint64_t)WIRE_TENSOR << 8 | (uint64_t)(dtype << 4 | 1u) << 16 | count << 32;
	memcpy(to, &head, 8); /* and padding */
	*at = one->at;
	*len = one->at + one->element * count;
	return true;
}

/** Finds the elements of such a payload, private bytes, and their dtype. NULL: it is another, or malformed: the general
 * reader decides. `len`: at most FUTURE_INLINE, so that a count that fits it takes one byte. */
static inline uint8_t *line_find_one(uint8_t *from, uint64_t len, unsigned *dtype, size_t *count)
{
	uint64_t head;
	memcpy(&head, from, 8);
	const struct line_one *one = &line_ones[head >> 20 & 15];
	*dtype = head >> 20 & 15;
	*count = head >> 32 & 0xff;
	uint64_t bytes = one->element * *count; /* 0: there is no such dtype, or there are no elements */
	if (unlikely((head & 0xff0fffff) != (1 | WIRE_TENSOR << 8 | 1u << 16) || !bytes || one->at + bytes != len))
		return NULL;
	return from + one->at;
}

/** Reads such a payload. false: as line_find_one(). */
static inline bool line_get_one(uint8_t *from, uint64_t len, struct far_val *v)
{
	unsigned dtype;
	size_t count;
	uint8_t *data = line_find_one(from, len, &dtype, &count);
	if (unlikely(!data))
		return false;
	v->type = FAR_TYPE_TENSOR;
	v->by_ref = false;
	v->kw = NULL;
	v->own = NULL;
	v->u.t.data = data;
	v->u.t.strides = NULL;
	v->u.t.dtype = (uint8_t)dtype;
	v->u.t.ndim = 1;
	v->u.t.domain = 0;
	v->u.t.shape[0] = count;
	return true;
}

/** Forgets a form. */
static inline void line_forget(struct line_form *form)
{
	form->n = 0;
	form->len = LINE_LEN_NONE;
}

/** Learns the form of arguments; form->n is 0 if they have none. line.c */
void line_learn(struct line_form *form, const struct far_val *v, size_t n);

/**
 * Learns the form of a payload, and fills v[0, n) but for u.t.data. `desc`: its first 16 bytes, copied out. form->n is
 * 0 if it has none, or is malformed: the general reader decides. line.c
 */
void line_learn_payload(struct line_form *form, const uint64_t desc[2], size_t len, struct far_val *v);

/** True if a payload of `len` bytes, at most FAR_LINE_PAYLOAD, that begins with these two words has this form. */
static inline bool line_is(const struct line_form *form, uint64_t desc0, uint64_t desc1, size_t len)
{
	return (uint8_t)len == form->len &&
	       !(((desc0 ^ form->desc[0]) & form->mask[0]) | ((desc1 ^ form->desc[1]) & form->mask[1]));
}

#endif
