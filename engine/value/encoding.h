/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Typed values as bytes: the payload of a typed request (its arguments) and of a typed reply (one value). Anyone.
 *
 * A payload is a descriptor stream followed by the elements of its tensors and bytes, in order. When the whole fits
 * `FAR_LINE_PAYLOAD` bytes it is compact: elements aligned to their own size; else wide: aligned to 64 bytes. Alignment
 * counts from the start of the payload, which is aligned to 32 bytes (compact) or 64. engine/PROTOCOL.md tables every
 * byte.
 *
 * Descriptor stream:
 *
 *   byte 0   bits 0-4  values that follow, [0, 16]
 *            bit 5     items: the values contain others; a varint follows, their number in all, [1, 65536]
 *            bit 6     0
 *            bit 7     wide; set exactly when the payload is longer than 32 bytes
 *
 * then for each value its type and what the type has:
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
 *   7 list   varint number of items, then each as a value                         what the items have
 *   8 dict   varint number of entries [0, 1024], then for each its key and its    what the values have
 *            value; keys are of type 1 to 4, no NaN, no two the same
 *   9 custom 8 bytes, hash of the type's name; varint length                      the bytes, aligned to 8 (wide: 64)
 *   10 rref  8 bytes owner, 16 id, 16 fork: struct rref_wire; 2 bytes, types     -
 *   11 on: reserved, as is bit 7 of a type.
 *
 * Lists and dicts nest to a depth of 32. A key and a value are an item each. There are 256 customs at most, and 256
 * rrefs.
 *
 * dtype: 1 f32, 2 f64, 3 i8, 4 i16, 5 i32, 6 i64, 7 u8, 8 u64, 9 bool, 10 bf16, 11 f16. Everything is little-endian
 * and nothing in the stream is aligned. A varint has seven bits per byte, low ones first, bit 7 set on all bytes but
 * the last; it is of the shortest form and fits 64 bits, so it has 1 to 10 bytes.
 *
 * The data section begins at the end of the stream. Each item with at least one byte is put at the next multiple of its
 * alignment; an item without bytes takes no room and no padding. The payload ends with its last item, or with the
 * stream when there is none. Padding is written as 0 and never read.
 *
 * Example, two f32 tensors of two elements, 28 bytes:
 *   02 | 06 11 00 02 | 06 11 00 02 | 3 bytes of padding | 8 bytes | 8 bytes
 */
#ifndef FAR_VALUE_ENCODING_H
#define FAR_VALUE_ENCODING_H

#include <farcall/value.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RREF_WIRE_BYTES 50 /* struct rref_wire, see features/references/wire.h */

enum values_form {
	VALUES_GENERAL,
	VALUES_PLAIN, /* nothing but dense tensors */
	VALUES_LINE   /* the same, of one dimension below 128, in a compact payload: descriptors of 4 bytes */
};

/** What the check of values found out and their writer needs. */
struct values_plan {
	size_t size; /* of the payload */
	enum values_form form;
	uint32_t items;
	uint32_t customs;
	uint32_t rrefs;
	/** Writes the RREF_WIRE_BYTES of a reference; the writer calls it for each, in their order. Set by who finds
	 * that there are any. */
	void (*put_rref)(void *ctx, const struct far_rref *rref, uint8_t *dst);
	void *put_ctx;
	uint32_t custom_bytes[FAR_CUSTOMS_MAX]; /* in their order: an object is asked for its size once */
};

/**
 * Checks values that the application built (type, dtype, ndim, domain, NULL data, overflow, keyword, keys of dicts,
 * depth, number of items) and returns the bytes they take, also in `plan`, or SIZE_MAX with `err` filled (INVALID or
 * TOO_LARGE; the offending argument is named by number, from 1). A payload is at most FAR_MSG_BYTES_MAX bytes, its
 * strings with their NULs at most FAR_STRINGS_BYTES_MAX.
 */
size_t values_size(const struct far_val *v, size_t n, struct values_plan *plan, struct far_err *err);

/** Writes them to dst[0, plan->size). Never reads dst. */
void values_write(const struct far_val *v, size_t n, const struct values_plan *plan, void *dst);

/** Memory for what a payload does not hold as the reader's caller needs it. A shard's comes from pools. */
struct values_arena {
	char *strings; /* where strings are copied, each with a NUL; NULL: they stay in the payload, which is private */
	size_t strings_cap;
	/**
	 * Memory for items, aligned to 16, and, with `strings`, for the bytes of customs; NULL: there is none. It lives
	 * until `held` is let go.
	 */
	void *(*more)(struct values_arena *arena, size_t bytes);
	struct far_buf *held; /* what `more` took; NULL: nothing. Its user lets go of it */
	/**
	 * Makes a reference of the RREF_WIRE_BYTES at `src`, which are private, and fills in `v`; NULL: there must be
	 * none. 0, or what values_read() returns then.
	 */
	int (*rref)(struct values_arena *arena, const uint8_t *src, struct far_val *v);
	bool patch; /* the payload is private: where the reference stood its address is written */
};

/**
 * Reads at most `cap` values from src[0, size), memory that a peer may be writing: every byte of the descriptors is
 * read once and checked; no pointer leaves the payload. Tensors and bytes point into the payload, those without bytes
 * at its start. Strings and customs are copied by the arena's rules; `arena` may be NULL: strings stay in the payload,
 * and there is no more. Customs are left encoded: `type` NULL, `object` their bytes, `len` and `hash` what was sent.
 * Entries of shape past ndim are not written. 0 with *n_out set, or -EBADMSG, or -E2BIG (more than cap), or -ENOBUFS
 * (strings), or -ENOMEM (the arena has no more). After a failure `v` holds anything; the arena may hold memory.
 */
int values_read(const void *src, size_t size, struct far_val *v, size_t cap, size_t *n_out, struct values_arena *arena);

/**
 * Lays out a payload of exactly one tensor whose elements are written later: returns its bytes and the offset of the
 * elements, SIZE_MAX when the shape overflows or is invalid. The caller checks the bytes against its limit.
 * values_tensor_write() then writes all but the elements.
 */
size_t values_tensor_size(enum far_dtype dtype, unsigned ndim, const uint64_t *shape, size_t *data_offset);
void values_tensor_write(enum far_dtype dtype, unsigned ndim, const uint64_t *shape, void *dst, size_t size);

#endif
