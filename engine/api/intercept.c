/* SPDX-License-Identifier: BSD-3-Clause */
/** <farcall/intercept.h>: interceptors, flows of control. Any thread. */
#include "features/intercept/intercept.h"

#include "base/error.h"
#include "core/flow.h"

enum far_status far_interceptor_add(const struct far_interceptor *interceptor, unsigned *id, struct far_err *err)
{
	if (!interceptor || !id)
		return err_set(err, FAR_INVALID, "far_interceptor_add: the interceptor, or `id`, is NULL");
	return intercept_add(interceptor, id, err);
}

enum far_status far_interceptor_remove(unsigned id, struct far_err *err)
{
	return intercept_remove(id, err);
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
