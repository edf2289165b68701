/* SPDX-License-Identifier: BSD-3-Clause */
/** Error texts. Any thread. */
#include "fail.h"

#include <inttypes.h>
#include <stdarg.h>

enum far_status fail(struct far_err *err, enum far_status status, const char *format, ...)
{
	if (!err)
		return status;
	memset(err, 0, sizeof *err);
	err->status = status;
	err->executed = FAR_EXECUTED_NO;
	va_list args;
	va_start(args, format);
	vsnprintf(err->text, sizeof err->text, format, args);
	va_end(args);
	return status;
}

enum far_status fail_memory(struct far_err *err, const char *what, size_t bytes)
{
	return fail(err, FAR_RESOURCE,
		    "%s: no memory for %zu bytes: the system has none, or the limit of the pool is reached", what,
		    bytes);
}

void fail_clear(struct far_err *err)
{
	err->status = FAR_OK;
	err->executed = FAR_EXECUTED_NO;
	err->code = 0;
	err->origin[0] = '\0';
	err->text[0] = '\0';
}

enum far_status fail_named(struct far_err *err, enum far_status status, const char *name)
{
	if (status && !err->text[0])
		return fail(err, status, "%s: %s", name, far_status_text(status));
	err->status = status;
	return status;
}

const char *tensor_text(const struct far_tensor *t, char text[TENSOR_TEXT])
{
	size_t at = (size_t)snprintf(text, TENSOR_TEXT, "%s[", far_dtype_name((enum far_dtype)t->dtype));
	for (unsigned k = 0; k < t->ndim; k++)
		at += (size_t)snprintf(text + at, TENSOR_TEXT - at, "%s%" PRIu64, k ? "," : "", t->shape[k]);
	snprintf(text + at, TENSOR_TEXT - at, "]");
	return text;
}
