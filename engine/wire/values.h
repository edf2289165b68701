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
 *            bits 5-6  0
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
 *   6 tensor 1 byte: bits 0-3 ndim [0, 8], bits 4-7 dtype [1, 9];                 the elements, row-major, aligned to
 *            1 byte: memory domain, 0; ndim varints: the shape                    their size (wide: 64)
 *   7 list, 8 dict, 9 RRef: reserved. Bit 7 of a type (a keyword name follows): reserved.
 *
 * dtype: 1 f32, 2 f64, 3 i8, 4 i16, 5 i32, 6 i64, 7 u8, 8 u64, 9 bool. Everything is little-endian and nothing in the
 * stream is aligned. A varint has seven bits per byte, low ones first, bit 7 set on all bytes but the last; it is of
 * the shortest form and fits 64 bits, so it has 1 to 10 bytes.
 *
 * The data section begins at the end of the stream. Each item with at least one byte is put at the next multiple of its
 * alignment; an item without bytes takes no room and no padding. The payload ends with its last item, or with the
 * stream when there is none. Padding is written as 0 and never read.
 *
 * Example, two f32 tensors of two elements, 28 bytes:
 *   02 | 06 11 00 02 | 06 11 00 02 | 3 bytes of padding | 8 bytes | 8 bytes
 */
#ifndef FAR_WIRE_VALUES_H
#define FAR_WIRE_VALUES_H

#include <farcall/value.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Checks values that the application built (type, dtype, ndim, domain, NULL data, overflow, keyword) and returns the
 * bytes they take, or SIZE_MAX with `err` filled (INVALID or TOO_LARGE; the offending argument is named by number, from
 * 1). A payload is at most FAR_MSG_BYTES_MAX bytes, its strings with their NULs at most FAR_STRINGS_BYTES_MAX.
 */
size_t values_size(const struct far_val *v, size_t n, struct far_err *err);

/** Writes them to dst[0, size), size being what values_size() said. Never reads dst. */
void values_write(const struct far_val *v, size_t n, void *dst, size_t size);

/**
 * Reads at most `cap` values from src[0, size), memory that a peer may be writing: every byte of the descriptors is
 * read once and checked; no pointer leaves the payload. Tensors and bytes point into the payload, those without bytes
 * at its start. Strings are copied with a NUL to strings[0, strings_cap) when `strings` is not NULL, else they point
 * into the payload, whose NUL was checked. Entries of shape past ndim are not written. 0 with *n_out set, or -EBADMSG,
 * or -E2BIG (more than cap), or -ENOBUFS (strings); `v` and `strings` hold anything after a failure.
 */
int values_read(const void *src, size_t size, struct far_val *v, size_t cap, size_t *n_out, char *strings,
		size_t strings_cap);

/**
 * Lays out a payload of exactly one tensor whose elements are written later: returns its bytes and the offset of the
 * elements, SIZE_MAX when the shape overflows or is invalid. The caller checks the bytes against its limit.
 * values_tensor_write() then writes all but the elements.
 */
size_t values_tensor_size(enum far_dtype dtype, unsigned ndim, const uint64_t *shape, size_t *data_offset);
void values_tensor_write(enum far_dtype dtype, unsigned ndim, const uint64_t *shape, void *dst, size_t size);

#endif
