/* SPDX-License-Identifier: BSD-3-Clause */
/** Fields of type, length and value that interceptors add to calls, as engine/PROTOCOL.md tables them. Any thread. */
#ifndef FAR_CORE_TLV_H
#define FAR_CORE_TLV_H

#include "core/packet.h"
#include "memory/buf.h"

#include <farcall/intercept.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Begins each field; `length` bytes follow, without padding. */
struct tlv_head {
	uint16_t type; /* with FAR_TLV_MANDATORY or not */
	uint16_t length;
};
static_assert(sizeof(struct tlv_head) == 4, "");

/** Fields of a message. At the beginning of a buffer. */
struct tlv_block {
	uint32_t bytes; /* [1, FAR_TLV_BYTES_MAX] */
	uint8_t data[];
};

static inline const struct tlv_block *tlv_block_in(struct far_buf *buf)
{
	return (const struct tlv_block *)buf_data(buf);
}

/** Fields being written: far_tlv_put(). */
struct far_tlv_out {
	uint16_t first, last; /* types that the present interceptor may write */
	uint32_t bytes;
	uint8_t data[FAR_TLV_BYTES_MAX];
};

/** Fields being read: far_tlv_next(). Well-formed, and private. */
struct far_tlv_in {
	uint16_t first, last; /* types that the present interceptor sees */
	uint32_t bytes;
	const uint8_t *data;
};

/** True if flag and number of bytes of a head fit each other and a body of `len` bytes. */
bool tlv_head_fits(const union packet_head *h, uint64_t len);
/** True if private bytes are a sequence of complete fields of types that may be. */
bool tlv_well_formed(const uint8_t *data, size_t bytes);
/** Takes the field at *at, less than `bytes`, of well-formed ones: its type without FAR_TLV_MANDATORY. */
uint16_t tlv_take(const uint8_t *data, size_t *at, const void **value, size_t *len, bool *mandatory);
/** A buffer with what was written; NULL: nothing was, or, *failed, there is no memory. */
struct far_buf *tlv_block_of(const struct far_tlv_out *out, bool *failed);

#endif
