/* SPDX-License-Identifier: BSD-3-Clause */
/** Checks, reads and writes the fields of interceptors. Any thread. */
#include "core/tlv.h"

#include <string.h>

bool tlv_head_fits(const union packet_head *h, uint64_t len)
{
	bool carries = h->type == PACKET_REQUEST || h->type == PACKET_REPLY || h->type == PACKET_ERROR ||
		       h->type == PACKET_ONEWAY;
	uint32_t bytes = h->call.tlv_bytes;
	if (!bytes || !(h->flags & PACKET_TLV))
		return !bytes && !(h->flags & PACKET_TLV);
	return carries && bytes <= FAR_TLV_BYTES_MAX && bytes <= len;
}

bool tlv_well_formed(const uint8_t *data, size_t bytes)
{
	size_t at = 0;
	while (at < bytes) {
		struct tlv_head head;
		if (bytes - at < sizeof head)
			return false;
		memcpy(&head, data + at, sizeof head);
		at += sizeof head;
		if (!(head.type & ~FAR_TLV_MANDATORY) || head.length > bytes - at)
			return false;
		at += head.length;
	}
	return true;
}

uint16_t tlv_take(const uint8_t *data, size_t *at, const void **value, size_t *len, bool *mandatory)
{
	struct tlv_head head;
	memcpy(&head, data + *at, sizeof head);
	*value = data + *at + sizeof head;
	*len = head.length;
	*mandatory = head.type & FAR_TLV_MANDATORY;
	*at += sizeof head + head.length;
	return (uint16_t)(head.type & ~FAR_TLV_MANDATORY);
}

struct far_buf *tlv_block_of(const struct far_tlv_out *out, bool *failed)
{
	*failed = false;
	if (!out->bytes)
		return NULL;
	struct far_buf *buf = buf_alloc(sizeof(struct tlv_block) + out->bytes);
	*failed = !buf;
	if (!buf)
		return NULL;
	struct tlv_block *block = buf_data(buf);
	block->bytes = out->bytes;
	memcpy(block->data, out->data, out->bytes);
	return buf;
}
