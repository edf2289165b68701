/* SPDX-License-Identifier: BSD-3-Clause */
/** <farcall/intercept.h>: interceptors, their fields, flows of control. Any thread. */
#include "features/intercept/intercept.h"

#include "agent/agent.h"
#include "base/error.h"
#include "base/must.h"
#include "core/flow.h"

#include <string.h>

enum far_status far_interceptor_add(const struct far_interceptor *interceptor, unsigned *id, struct far_err *err)
{
	if (!interceptor || !id)
		return err_set(err, FAR_INVALID, "far_interceptor_add: the interceptor, or `id`, is NULL");
	enum far_status status = intercept_add(interceptor, id, err);
	if (!status)
		agents_intercepted(interceptor->agent);
	return status;
}

enum far_status far_interceptor_remove(unsigned id, struct far_err *err)
{
	struct far_agent *agent = id < FAR_INTERCEPTORS_MAX ? intercept_at(id)->agent : NULL;
	enum far_status status = intercept_remove(id, err);
	if (!status)
		agents_intercepted(agent);
	return status;
}

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

void *far_flow_get(unsigned id)
{
	return id < FAR_INTERCEPTORS_MAX && flow_used() ? flow_get(id) : NULL;
}

enum far_status far_flow_set(unsigned id, void *pointer)
{
	return id < FAR_INTERCEPTORS_MAX && flow_used() ? flow_set(id, pointer) : FAR_INVALID;
}

const char *far_call_mode_name(enum far_call_mode mode)
{
	static const char *const names[] = {
#define NAME(name, text) text,
		FAR_CALL_MODE_LIST(NAME)
#undef NAME
	};
	return (unsigned)mode < FAR_CALL_MODE_COUNT ? names[mode] : "?";
}
