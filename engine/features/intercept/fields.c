/* SPDX-License-Identifier: BSD-3-Clause */
/** Writes and reads fields for interceptors. Any thread. */
#include "core/tlv.h"

#include <string.h>

enum far_status far_tlv_put(struct far_tlv_out *out, uint16_t type, const void *data, size_t len)
{
	struct tlv_head head = {type, (uint16_t)len};
	uint16_t plain = (uint16_t)(type & ~FAR_TLV_MANDATORY);
	if (!plain || plain < out->first || plain > out->last)
		return FAR_INVALID;
	if (len > sizeof out->data || sizeof head + len > sizeof out->data - out->bytes)
		return FAR_TOO_LARGE;
	memcpy(out->data + out->bytes, &head, sizeof head);
	if (len)
		memcpy(out->data + out->bytes + sizeof head, data, len);
	out->bytes += (uint32_t)(sizeof head + len);
	return FAR_OK;
}

bool far_tlv_next(const struct far_tlv_in *in, size_t *cursor, uint16_t *type, const void **value, size_t *len)
{
	bool mandatory;
	while (*cursor < in->bytes) {
		const void *found;
		size_t bytes;
		uint16_t of = tlv_take(in->data, cursor, &found, &bytes, &mandatory);
		if (of < in->first || of > in->last)
			continue;
		*type = of;
		*value = found;
		*len = bytes;
		return true;
	}
	return false;
}

bool far_tlv_find(const struct far_tlv_in *in, uint16_t type, const void **value, size_t *len)
{
	size_t cursor = 0, bytes;
	const void *found;
	uint16_t of;
	while (far_tlv_next(in, &cursor, &of, &found, &bytes)) {
		if (of != type)
			continue;
		*value = found;
		*len = bytes;
		return true;
	}
	return false;
}
