/* SPDX-License-Identifier: BSD-3-Clause */
/** Compression of frames in builds without libzstd: none. Any thread. */
#include "psv_codec.h"

const enum psv_codec psv_codec_best = PSV_CODEC_PLAIN;

void *psv_codec_new(void)
{
	return NULL;
}

void psv_codec_free(void *context)
{
	(void)context;
}

size_t psv_codec_pack(void *context, void *to, const void *from, size_t n)
{
	(void)context;
	(void)to;
	(void)from;
	(void)n;
	return 0;
}

enum psv_unpacked psv_codec_unpack(void *to, size_t n, const void *from, size_t len)
{
	(void)to;
	(void)n;
	(void)from;
	(void)len;
	return PSV_UNPACK_UNSUPPORTED;
}
