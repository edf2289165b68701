/* SPDX-License-Identifier: BSD-3-Clause */
/** What the writer and the reader of typed values share: codes, limits, placement of data. See wire/values.h. */
#ifndef FAR_WIRE_VALUES_LAYOUT_H
#define FAR_WIRE_VALUES_LAYOUT_H

#include "base/limits.h"

#include <assert.h>
#include <farcall/value.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensors travel as they lie in memory: this needs a little-endian machine"
#endif

enum wire_type {
	WIRE_NONE = 0,
	WIRE_BOOL = 1,
	WIRE_INT = 2,
	WIRE_FLOAT = 3,
	WIRE_STRING = 4,
	WIRE_BYTES = 5,
	WIRE_TENSOR = 6
};

/* The writer emits, and the reader returns, enum far_type unchanged. */
static_assert((int)WIRE_NONE == (int)FAR_TYPE_NONE && (int)WIRE_BOOL == (int)FAR_TYPE_BOOL &&
		      (int)WIRE_INT == (int)FAR_TYPE_INT && (int)WIRE_FLOAT == (int)FAR_TYPE_FLOAT,
	      "type codes are the wire's");
static_assert((int)WIRE_STRING == (int)FAR_TYPE_STRING && (int)WIRE_BYTES == (int)FAR_TYPE_BYTES &&
		      (int)WIRE_TENSOR == (int)FAR_TYPE_TENSOR && (int)FAR_TYPE_COUNT == 7,
	      "type codes are the wire's");
static_assert(FAR_DTYPE_COUNT <= 16 && FAR_DIMS_MAX <= 15 && FAR_ARGS_MAX <= 31, "they share bytes on the wire");

#define WIRE_COUNT_MASK 0x1f
#define WIRE_WIDE       0x80
#define WIRE_WIDE_ALIGN 64

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

/** The data section: its items of at least one byte, in order. */
struct wire_data {
	unsigned n;
	uint8_t value[FAR_ARGS_MAX]; /* index of the value it belongs to */
	uint8_t align[FAR_ARGS_MAX]; /* in a compact payload */
	size_t bytes[FAR_ARGS_MAX];
};

static inline void wire_data_add(struct wire_data *d, size_t value, size_t align, size_t bytes)
{
	if (bytes == 0)
		return;
	d->value[d->n] = (uint8_t)value;
	d->align[d->n] = (uint8_t)align;
	d->bytes[d->n] = bytes;
	d->n++;
}

#endif
