/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Encoding of typed values: the payload of a typed request (its arguments) and of a typed reply (one value). Any
 * thread.
 *
 * A payload is a descriptor stream followed by the elements of its tensors and bytes, in order. A payload of up to
 * `FAR_LINE_PAYLOAD` bytes is compact: elements are aligned to their own size. A longer one is wide: they are aligned
 * to 64 bytes. Alignment counts from the start of the payload, which is aligned to 32 bytes (compact) or 64. See
 * engine/PROTOCOL.md.
 *
 * Descriptor stream:
 *
 *   byte 0   bits 0-4  number of values, [0, 16]
 *            bit 5     items: the values contain others; a varint follows, the total of these, [1, 65536]
 *            bit 6     0
 *            bit 7     wide; set exactly when the payload is longer than 32 bytes
 *
 * then each value: its type, and the fields of the type:
 *
 *   type     followed by                                                          data section
 *   0 none   -                                                                    -
 *   1 bool   1 byte, 0 or 1                                                       -
 *   2 int    varint of the zigzag code, (i << 1) ^ (i >> 63)                      -
 *   3 float  8 bytes, IEEE 754 binary64                                           -
 *   4 string varint length, that many bytes, one 0 byte                           -
 *   5 bytes  varint length                                                        the bytes, aligned to 1 (wide: 64)
 *   6 tensor 1 byte: bits 0-3 ndim [0, 8], bits 4-7 dtype [1, 11];                the elements, row-major, aligned to
 *            1 byte: memory domain, 0; ndim varints: the shape                    their size (wide: 64)
 *   7 list   varint number of items, then each as a value                         that of the items
 *   8 dict   varint number of entries [0, 1024], then for each its key and its    that of the values
 *            value; keys are of type 1 to 4, no NaN, unique
 *   9 custom 8 bytes, hash of the type's name; varint length                      the bytes, aligned to 8 (wide: 64)
 *   10 rref  8 bytes owner, 16 id, 16 fork: struct rref_wire; 2 bytes, types     -
 *   11 on: reserved, as is bit 7 of a type.
 *
 * Lists and dicts nest to a depth of 32. A key and a value are an item each. At most 256 customs and 256 rrefs.
 *
 * dtype: 1 f32, 2 f64, 3 i8, 4 i16, 5 i32, 6 i64, 7 u8, 8 u64, 9 bool, 10 bf16, 11 f16. Everything is little-endian
 * and the stream is unaligned. A varint has seven bits per byte, low ones first, bit 7 set on all bytes but the last.
 * It has the shortest form and fits 64 bits: 1 to 10 bytes.
 *
 * The data section begins at the end of the stream. An item with at least one byte begins at the next multiple of its
 * alignment; an item without bytes takes no room and no padding. The payload ends with the last item, or with the
 * stream if there is none. Padding is written as 0 and never read.
 *
 * Example, two f32 tensors of two elements, 28 bytes:
 *   02 | 06 11 00 02 | 06 11 00 02 | 3 bytes of padding | 8 bytes | 8 bytes
 */
#ifndef FAR_VALUE_ENCODING_H
#define FAR_VALUE_ENCODING_H

#include "base/copy.h"
#include <farcall/value.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RREF_WIRE_BYTES 50 /* struct rref_wire, see features/references/wire.h */

enum values_form {
	VALUES_GENERAL,
	VALUES_PLAIN, /* dense tensors only */
	VALUES_LINE   /* as PLAIN, of one dimension below 128, compact: descriptors of 4 bytes */
};

/** Result of values_size(), input of values_write(). */
struct values_plan {
	size_t size; /* bytes of the payload */
	enum values_form form;
	uint32_t items; /* of all lists and dicts */
	uint32_t customs;
	uint32_t rrefs;
	/** Writes the RREF_WIRE_BYTES of a reference. values_write() calls it for each, in order. The caller sets it if
	 * `rrefs` is not 0. */
	void (*put_rref)(void *ctx, const struct far_rref *rref, uint8_t *dst);
	void *put_ctx;
	uint32_t custom_bytes[FAR_CUSTOMS_MAX]; /* in order: size() is called once per object */
};

/**
 * Checks values of the application (type, dtype, ndim, domain, NULL data, overflow, keyword, keys of dicts, depth,
 * number of items). Returns the bytes of the payload, also in `plan`; SIZE_MAX with `err` filled, INVALID or TOO_LARGE,
 * with the number of the argument, from 1. A payload has at most FAR_MSG_BYTES_MAX bytes, its strings with their NULs
 * at most FAR_STRINGS_BYTES_MAX.
 */
size_t values_size(const struct far_val *v, size_t n, struct values_plan *plan, struct far_err *err);

/** Writes the payload to dst[0, plan->size); data of FAR_STREAM_BYTES_MIN and more by `copy`, unless that is NULL.
 * Never reads `dst`. */
void values_write_by(const struct far_val *v, size_t n, const struct values_plan *plan, void *dst, copy_fn *copy);
/** Writes the descriptors of values without items alone, before the padding. Returns their bytes. */
size_t values_write_stream(const struct far_val *v, size_t n, const struct values_plan *plan, void *dst);
static inline void values_write(const struct far_val *v, size_t n, const struct values_plan *plan, void *dst)
{
	values_write_by(v, n, plan, dst, NULL);
}

/** Memory that values_read() needs besides the payload. A shard's comes from pools. */
struct values_arena {
	char *strings; /* receives copies of the strings, each with a NUL; NULL: they stay in the private payload */
	size_t strings_cap;
	/**
	 * Allocates memory for items, aligned to 16, and, with `strings`, for the bytes of customs. Valid until `held`
	 * is released. NULL: no such memory.
	 */
	void *(*more)(struct values_arena *arena, size_t bytes);
	struct far_buf *held; /* list of the buffers of `more`; NULL: none. Released by the user of the arena */
	/**
	 * Makes a reference from the RREF_WIRE_BYTES at `src`, a private copy, and fills `v`. NULL: a payload with
	 * references is malformed. Returns 0, or the error that values_read() returns.
	 */
	int (*rref)(struct values_arena *arena, const uint8_t *src, struct far_val *v);
	bool patch;     /* replace the encoded reference by its address; the payload is private */
	bool scattered; /* the payload lies in pieces, value/encoding_split.h: `src` is the first one, a private copy */
};

/**
 * Reads at most `cap` values from src[0, size), which a peer may change meanwhile: every descriptor byte is read once
 * and checked, and no pointer leaves the payload. Tensors and bytes point into the payload, empty ones at its start.
 * The arena decides whether strings and customs are copied. `arena` NULL: strings stay in the payload, no further
 * memory. Customs stay encoded: `type` NULL, `object` their bytes, `len` and `hash` as received. Entries of `shape`
 * past ndim are not written.
 *
 * Returns 0 with *n_out set; -EBADMSG (malformed), -E2BIG (more than `cap`), -ENOBUFS (`strings` is full), -ENOMEM (no
 * memory in the arena). After a failure `v` is undefined, and the arena may hold memory.
 */
int values_read(const void *src, size_t size, struct far_val *v, size_t cap, size_t *n_out, struct values_arena *arena);

/**
 * Lays out a payload of one tensor whose elements are written later. Returns its bytes and the offset of the elements;
 * SIZE_MAX if the shape overflows or is invalid. The caller checks the bytes against its limit. values_tensor_write()
 * writes the payload without the elements.
 */
size_t values_tensor_size(enum far_dtype dtype, unsigned ndim, const uint64_t *shape, size_t *data_offset);
void values_tensor_write(enum far_dtype dtype, unsigned ndim, const uint64_t *shape, void *dst, size_t size);

#endif
