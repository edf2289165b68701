/* SPDX-License-Identifier: BSD-3-Clause */
/** Packs and unpacks frames. Any thread. */
#include "psv_frame.h"

#include "pst_fail.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static uint32_t crc_of(const struct psv_frame *f, const char *data)
{
	return psv_crc32c(psv_crc32c(0, f, offsetof(struct psv_frame, crc)), data, f->bytes);
}

/* ---- Packing ---- */

enum far_status psv_packer_begin(struct psv_packer *p, struct far_err *err)
{
	p->plain_n = p->out_n = 0;
	p->bytes = 0;
	p->crc = 0;
	if (!p->context)
		p->context = psv_codec_new();
	if (!p->plain)
		p->plain = malloc(PSV_FRAME_PLAIN_MAX);
	return p->plain ? FAR_OK : pst_fail(err, FAR_RESOURCE, 0, "no memory to pack rows");
}

/* Room for one more frame. */
static enum far_status make_room(struct psv_packer *p, struct far_err *err)
{
	size_t need = p->out_n + sizeof(struct psv_frame) + p->plain_n;
	if (p->out && need <= p->out_room)
		return FAR_OK;
	size_t room = need + need / 2;
	char *more = realloc(p->out, room);
	if (!more)
		return pst_fail(err, FAR_RESOURCE, 0, "no memory for a file of %zu bytes", room);
	p->out = more;
	p->out_room = room;
	return FAR_OK;
}

static enum far_status put_frame(struct psv_packer *p, struct far_err *err)
{
	struct psv_frame f = {.plain = (uint32_t)p->plain_n, .codec = (uint32_t)psv_codec_best};
	enum far_status status = make_room(p, err);
	if (status)
		return status;
	char *data = p->out + p->out_n + sizeof f;
	f.bytes = (uint32_t)psv_codec_pack(p->context, data, p->plain, p->plain_n);
	if (f.bytes == 0) {
		f.codec = PSV_CODEC_PLAIN;
		f.bytes = f.plain;
		memcpy(data, p->plain, p->plain_n);
	}
	f.crc = crc_of(&f, data);
	memcpy(p->out + p->out_n, &f, sizeof f);
	p->crc = psv_crc32c(p->crc, &f, sizeof f);
	p->out_n += sizeof f + f.bytes;
	p->plain_n = 0;
	return FAR_OK;
}

enum far_status psv_packer_put(struct psv_packer *p, const char *data, size_t len, struct far_err *err)
{
	enum far_status status = FAR_OK;
	p->bytes += len;
	while (!status && len) {
		size_t room = PSV_FRAME_PLAIN_MAX - p->plain_n, n = len < room ? len : room;
		memcpy(p->plain + p->plain_n, data, n);
		p->plain_n += n;
		data += n;
		len -= n;
		if (p->plain_n == PSV_FRAME_PLAIN_MAX)
			status = put_frame(p, err);
	}
	return status;
}

enum far_status psv_packer_end(struct psv_packer *p, struct far_err *err)
{
	return p->plain_n ? put_frame(p, err) : FAR_OK;
}

void psv_packer_free(struct psv_packer *p)
{
	psv_codec_free(p->context);
	free(p->plain);
	free(p->out);
	*p = (struct psv_packer){0};
}

/* ---- Unpacking ---- */

static enum far_status bad(const char *what, size_t at, struct far_err *err)
{
	return pst_fail(err, FAR_INVALID, 0, "the frame at byte %zu %s", at, what);
}

/* Reads the head of the frame at `at`, whose bytes are behind it. */
static enum far_status read_frame(const char *bytes, size_t len, size_t at, struct psv_frame *f, struct far_err *err)
{
	if (len - at < sizeof *f)
		return bad("is torn", at, err);
	memcpy(f, bytes + at, sizeof *f);
	if (f->bytes == 0 || f->bytes > len - at - sizeof *f)
		return bad("is torn", at, err);
	uint32_t crc = crc_of(f, bytes + at + sizeof *f);
	if (crc != f->crc)
		return pst_fail(err, FAR_INVALID, 0, "the frame at byte %zu is damaged: its CRC32C is %08x, not %08x",
				at, crc, f->crc);
	if (f->plain == 0 || f->plain > PSV_FRAME_PLAIN_MAX || (f->codec == PSV_CODEC_PLAIN && f->plain != f->bytes))
		return bad("is malformed", at, err);
	return FAR_OK;
}

static enum far_status check_frames(const char *bytes, size_t len, uint32_t crc, uint64_t n, struct far_err *err)
{
	enum far_status status = FAR_OK;
	uint32_t heads = 0;
	uint64_t plain = 0;
	struct psv_frame f;
	for (size_t at = 0; !status && at < len; at += sizeof f + f.bytes) {
		status = read_frame(bytes, len, at, &f, err);
		if (status)
			break;
		heads = psv_crc32c(heads, &f, sizeof f);
		plain += f.plain;
	}
	if (!status && heads != crc)
		status = pst_fail(err, FAR_INVALID, 0, "the CRC32C of its frames is %08x, not %08x", heads, crc);
	if (!status && plain != n)
		status = pst_fail(err, FAR_INVALID, 0, "it has %" PRIu64 " bytes unpacked, not %" PRIu64, plain, n);
	return status;
}

static enum far_status unpack_frame(const struct psv_frame *f, const char *data, size_t at, char *to,
				    struct far_err *err)
{
	if (f->codec == PSV_CODEC_PLAIN) {
		memcpy(to, data, f->plain);
		return FAR_OK;
	}
	enum psv_unpacked unpacked =
		f->codec == PSV_CODEC_ZSTD ? psv_codec_unpack(to, f->plain, data, f->bytes) : PSV_UNPACK_UNSUPPORTED;
	if (unpacked == PSV_UNPACK_BAD)
		return bad("cannot be unpacked", at, err);
	if (unpacked == PSV_UNPACKED)
		return FAR_OK;
	return f->codec == PSV_CODEC_ZSTD
		       ? pst_fail(err, FAR_UNSUPPORTED, 0,
				  "it is compressed by zstd, and this libfarcall-ps was built without libzstd")
		       : pst_fail(err, FAR_UNSUPPORTED, 0, "the frame at byte %zu has codec %u, which is unknown", at,
				  f->codec);
}

enum far_status psv_unpack(const char *bytes, size_t len, uint32_t crc, uint64_t n, char **plain, struct far_err *err)
{
	enum far_status status = check_frames(bytes, len, crc, n, err);
	*plain = NULL;
	if (status)
		return status;
	*plain = malloc(n + 1);
	if (!*plain)
		return pst_fail(err, FAR_RESOURCE, 0, "no memory for %" PRIu64 " bytes of rows", n);
	char *to = *plain;
	struct psv_frame f;
	for (size_t at = 0; !status && at < len; at += sizeof f + f.bytes, to += f.plain) {
		memcpy(&f, bytes + at, sizeof f);
		status = unpack_frame(&f, bytes + at + sizeof f, at, to, err);
	}
	if (status) {
		free(*plain);
		*plain = NULL;
	}
	return status;
}
