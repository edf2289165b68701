/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The header of a safetensors file: 8 bytes, little-endian: its length; JSON: names, dtypes, shapes, offsets; then the
 * elements of all tensors. Any thread.
 */
#ifndef FAR_LIBTRAIN_SAFETENSORS_H
#define FAR_LIBTRAIN_SAFETENSORS_H

#include <farcall/value.h>

#define SAFETENSORS_HEADER_MAX 100000000 /* bytes of the JSON, the limit of the format's own library */

struct safetensor {
	const char *name; /* in the memory of the header, with a NUL */
	enum far_dtype dtype;
	unsigned ndim;
	uint64_t shape[FAR_DIMS_MAX];
	uint64_t begin, end; /* bytes, from the end of the header */
};

struct safetensors {
	struct safetensor *tensors; /* in the order of their names */
	size_t n;
};

/**
 * Reads header[0, len), which it changes and `out` refers to. `data_bytes`: of the file after the header. The tensors
 * cover them, each byte once. Errors: INVALID, UNSUPPORTED (a dtype, more dimensions than FAR_DIMS_MAX), RESOURCE.
 */
enum far_status safetensors_read(char *header, size_t len, uint64_t data_bytes, struct safetensors *out,
				 struct far_err *err);
void safetensors_free(struct safetensors *s);
/** NULL: there is no tensor of this name. */
const struct safetensor *safetensors_find(const struct safetensors *s, const char *name);

/** Writes length and JSON of tensors with begin and end set, padded to 8 bytes. False: `f` has an error. */
bool safetensors_write_header(FILE *f, const struct safetensor *tensors, size_t n);

#endif
