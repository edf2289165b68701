/* SPDX-License-Identifier: BSD-3-Clause */
/** Codes, limits and data layout of value/encoding.h, shared by its writer and its reader. Any thread. */
#ifndef FAR_VALUE_ENCODING_LAYOUT_H
#define FAR_VALUE_ENCODING_LAYOUT_H

#include "base/limits.h"

#include <assert.h>
#include <farcall/value.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the elements of tensors are sent as they are in memory: this needs a little-endian machine"
#endif

enum wire_type {
	WIRE_NONE = 0,
	WIRE_BOOL = 1,
	WIRE_INT = 2,
	WIRE_FLOAT = 3,
	WIRE_STRING = 4,
	WIRE_BYTES = 5,
	WIRE_TENSOR = 6,
	WIRE_LIST = 7,
	WIRE_DICT = 8,
	WIRE_CUSTOM = 9,
	WIRE_RREF = 10
};

/* The writer sends enum far_type unchanged. */
static_assert((int)WIRE_NONE == (int)FAR_TYPE_NONE && (int)WIRE_BOOL == (int)FAR_TYPE_BOOL &&
		      (int)WIRE_INT == (int)FAR_TYPE_INT && (int)WIRE_FLOAT == (int)FAR_TYPE_FLOAT,
	      "type codes are the wire's");
static_assert((int)WIRE_STRING == (int)FAR_TYPE_STRING && (int)WIRE_BYTES == (int)FAR_TYPE_BYTES &&
		      (int)WIRE_TENSOR == (int)FAR_TYPE_TENSOR && (int)WIRE_LIST == (int)FAR_TYPE_LIST,
	      "type codes are the wire's");
static_assert((int)WIRE_DICT == (int)FAR_TYPE_DICT && (int)WIRE_CUSTOM == (int)FAR_TYPE_CUSTOM &&
		      (int)WIRE_RREF == (int)FAR_TYPE_RREF && (int)FAR_TYPE_COUNT == 11,
	      "type codes are the wire's");
static_assert(FAR_DTYPE_COUNT <= 16 && FAR_DIMS_MAX <= 15 && FAR_ARGS_MAX <= 31, "the fields share bytes on the wire");

#define WIRE_COUNT_MASK 0x1f
#define WIRE_ITEMS      0x20
#define WIRE_WIDE       0x80
#define WIRE_WIDE_ALIGN 64

#define WIRE_CUSTOM_ALIGN 8

/* Longest descriptor of a tensor, the count byte included. */
#define WIRE_TENSOR_HEAD_MAX (1 + 3 + 10 * FAR_DIMS_MAX)

static const uint8_t wire_dtype_bytes[16] = {
#define WIRE_DTYPE_BYTES(name, bytes, text) [FAR_##name] = (bytes),
	FAR_DTYPE_LIST(WIRE_DTYPE_BYTES)
#undef WIRE_DTYPE_BYTES
};

static inline size_t wire_align(size_t pos, size_t align)
{
	return (pos + align - 1) & ~(align - 1);
}

/** Bytes of a tensor; SIZE_MAX when they overflow. A dimension of 0 makes it 0, whatever the others are. */
static inline size_t wire_tensor_bytes(size_t element, unsigned ndim, const uint64_t *shape)
{
	size_t bytes = element;
	bool over = false;
	for (unsigned k = 0; k < ndim; k++) {
		if (shape[k] == 0)
			return 0;
		over |= __builtin_mul_overflow(bytes, shape[k], &bytes);
	}
	return over ? SIZE_MAX : bytes;
}

static inline size_t wire_varint_size(uint64_t x)
{
	return x < 0x80 ? 1 : (size_t)(64 - __builtin_clzll(x) + 6) / 7;
}

static inline uint64_t wire_zigzag(int64_t i)
{
	return (uint64_t)i << 1 ^ (i < 0 ? UINT64_MAX : 0);
}

/**
 * Layout of the data section. In a wide payload the offset of an item does not depend on the start of the section. In a
 * compact one it does, so its few items are stored until the start is known.
 */
struct wire_data {
	size_t bytes_sum; /* of all items, without padding */
	size_t wide;      /* end of the section in a wide payload, from its aligned start */
	unsigned n;       /* items stored, while they fit a compact payload */
	uint8_t align[FAR_LINE_PAYLOAD];
	uint8_t bytes[FAR_LINE_PAYLOAD];
};

static inline void wire_data_init(struct wire_data *d)
{
	d->bytes_sum = 0;
	d->wide = 0;
	d->n = 0;
}

/** Adds an item of `bytes`, [0, FAR_MSG_BYTES_MAX]. */
static inline void wire_data_add(struct wire_data *d, size_t align, size_t bytes)
{
	if (bytes == 0)
		return;
	d->wide = wire_align(d->wide, WIRE_WIDE_ALIGN) + bytes;
	d->bytes_sum += bytes;
	if (d->bytes_sum > FAR_LINE_PAYLOAD)
		return;
	d->align[d->n] = (uint8_t)align;
	d->bytes[d->n] = (uint8_t)bytes;
	d->n++;
}

/** Bytes of a payload with `stream` bytes of descriptors. */
static inline size_t wire_payload_size(const struct wire_data *d, size_t stream)
{
	if (stream + d->bytes_sum <= FAR_LINE_PAYLOAD) {
		size_t pos = stream;
		for (unsigned k = 0; k < d->n; k++)
			pos = wire_align(pos, d->align[k]) + d->bytes[k];
		if (pos <= FAR_LINE_PAYLOAD)
			return pos;
	}
	return d->bytes_sum ? wire_align(stream, WIRE_WIDE_ALIGN) + d->wide : stream;
}

/** Bytes of a tensor's descriptor after its type. */
static inline size_t wire_tensor_head_size(unsigned ndim, const uint64_t *shape)
{
	size_t size = 2;
	for (unsigned k = 0; k < ndim; k++)
		size += wire_varint_size(shape[k]);
	return size;
}

#endif
