/* SPDX-License-Identifier: BSD-3-Clause */
/** Compression of frames by libzstd. Any thread. */
#include "psv_codec.h"

#include <zstd.h>

/* Rows of numbers give little more at higher levels, and take several times as long. */
#define LEVEL 1

const enum psv_codec psv_codec_best = PSV_CODEC_ZSTD;

void *psv_codec_new(void)
{
	return ZSTD_createCCtx();
}

void psv_codec_free(void *context)
{
	ZSTD_freeCCtx(context);
}

size_t psv_codec_pack(void *context, void *to, const void *from, size_t n)
{
	size_t len = context ? ZSTD_compressCCtx(context, to, n - 1, from, n, LEVEL) : 0;
	return ZSTD_isError(len) ? 0 : len;
}

enum psv_unpacked psv_codec_unpack(void *to, size_t n, const void *from, size_t len)
{
	return ZSTD_decompress(to, n, from, len) == n ? PSV_UNPACKED : PSV_UNPACK_BAD;
}
