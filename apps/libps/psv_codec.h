/* SPDX-License-Identifier: BSD-3-Clause */
/** Compression of frames: psv_codec_zstd.c, or psv_codec_none.c where the build has no libzstd. Any thread. */
#ifndef PSV_CODEC_H
#define PSV_CODEC_H

#include <stddef.h>
#include <stdint.h>

enum psv_codec { PSV_CODEC_PLAIN, PSV_CODEC_ZSTD };

/** The codec that this build writes. */
extern const enum psv_codec psv_codec_best;

/** A context of psv_codec_pack(); NULL: no memory, or none is needed. */
void *psv_codec_new(void);
void psv_codec_free(void *context);

/** Compresses `n` bytes to fewer; returns their number. 0: it cannot; leave them plain. */
size_t psv_codec_pack(void *context, void *to, const void *from, size_t n);

enum psv_unpacked { PSV_UNPACKED, PSV_UNPACK_BAD, PSV_UNPACK_UNSUPPORTED };

/** Fills `to` [0, n) from a frame of ZSTD. BAD: it has another number of bytes, or is malformed. */
enum psv_unpacked psv_codec_unpack(void *to, size_t n, const void *from, size_t len);

#endif
