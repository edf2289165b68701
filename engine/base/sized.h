/* SPDX-License-Identifier: BSD-3-Clause */
/** Structs of the public interface that grow at their end: the caller passes the size that its headers gave them. Any
 * thread. */
#ifndef FAR_BASE_SIZED_H
#define FAR_BASE_SIZED_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/** Copies options of `src_bytes` to a struct of `dst_bytes`, with 0 in the fields that the caller does not know. False:
 * it has set a field that is not known here. */
static inline bool sized_in(void *dst, size_t dst_bytes, const void *src, size_t src_bytes)
{
	const unsigned char *bytes = src;
	for (size_t i = dst_bytes; i < src_bytes; i++)
		if (bytes[i])
			return false;
	memset(dst, 0, dst_bytes);
	memcpy(dst, src, src_bytes < dst_bytes ? src_bytes : dst_bytes);
	return true;
}

/** Copies a result of `src_bytes` to the caller's struct of `out_bytes`, with 0 in the fields that are not known here.
 */
static inline void sized_out(void *out, size_t out_bytes, const void *src, size_t src_bytes)
{
	memset(out, 0, out_bytes);
	memcpy(out, src, src_bytes < out_bytes ? src_bytes : out_bytes);
}

#endif
