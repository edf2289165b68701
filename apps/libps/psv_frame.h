/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Frames: the bytes of a data file, cut into pieces of at most a MiB, each compressed and with a CRC32C. Any thread.
 *
 * A frame, little-endian: struct psv_frame; `bytes` bytes. The file's own CRC32C is that of its frames' heads, which
 * have the CRC32C of what follows them.
 */
#ifndef PSV_FRAME_H
#define PSV_FRAME_H

#include "psv_codec.h"
#include <assert.h>
#include <farcall/status.h>

#define PSV_FRAME_PLAIN_MAX ((size_t)1 << 20)

struct psv_frame {
	uint32_t bytes, plain; /* in the file, and unpacked; each at least 1 */
	uint32_t codec;        /* enum psv_codec; PLAIN: bytes is plain */
	uint32_t crc;          /* CRC32C of the three above and of the bytes */
};

static_assert(sizeof(struct psv_frame) == 16, "layout of files");

uint32_t psv_crc32c(uint32_t crc, const void *data, size_t len);

/** A data file in memory. */
struct psv_packer {
	void *context;
	char *plain; /* of the frame that is being filled */
	size_t plain_n;
	char *out; /* frames */
	size_t out_n, out_room;
	uint64_t bytes; /* put so far */
	uint32_t crc;
};

/** Zeroed before the first use. RESOURCE. */
enum far_status psv_packer_begin(struct psv_packer *p, struct far_err *err);
enum far_status psv_packer_put(struct psv_packer *p, const char *data, size_t len, struct far_err *err);
/** The last frame; then `out` [0, out_n) is the file. The caller may take `out`, and sets it to NULL then. */
enum far_status psv_packer_end(struct psv_packer *p, struct far_err *err);
void psv_packer_free(struct psv_packer *p);

/** Checks the frames of a file and gives its bytes, `n` of them, aligned to 8, which the caller free()s. INVALID: a
 * frame is damaged or malformed; UNSUPPORTED: this build cannot unpack it; RESOURCE. */
enum far_status psv_unpack(const char *bytes, size_t len, uint32_t crc, uint64_t n, char **plain, struct far_err *err);

#endif
