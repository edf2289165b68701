/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_req.h"

#include "base/must.h"
#include "builtin/builtin.h"
#include "value/signature.h"

#include <farcall/message.h>
#include <stdarg.h>
#include <stdlib.h>

enum far_status far_return(struct far_req *req, const struct far_val *value)
{
	req->answers++;
	req->status = FAR_OK;
	req->value = *value;
	return FAR_OK;
}

enum far_status far_return_tensor(struct far_req *req, enum far_dtype dtype, unsigned ndim, const uint64_t *shape,
				  void **data)
{
	struct far_tensor t = {.dtype = (uint8_t)dtype, .ndim = (uint8_t)ndim};
	memcpy(t.shape, shape, ndim * sizeof shape[0]);
	size_t bytes = far_tensor_bytes(&t);
	if (bytes > req->bytes_max)
		return FAR_TOO_LARGE;
	req->data = malloc(bytes ? bytes : 1);
	must(req->data);
	memset(req->data, 0xee, bytes);
	t.data = req->data;
	req->answers++;
	req->status = FAR_OK;
	req->value = far_tensor_val(&t);
	*data = t.data;
	return FAR_OK;
}

enum far_status far_fail(struct far_req *req, enum far_status status, int32_t code, const char *format, ...)
{
	va_list args;
	req->answers++;
	req->status = status;
	req->err.status = status;
	req->err.code = code;
	va_start(args, format);
	vsnprintf(req->err.text, sizeof req->err.text, format, args);
	va_end(args);
	return FAR_OK;
}

enum far_status fake_req_call(struct far_req *req, const char *name, const struct far_val *args, size_t n)
{
	memset(req, 0, sizeof *req);
	req->bytes_max = FAR_MSG_WHOLE_MAX;
	for (size_t i = 0; i < builtin_functions_n; i++) {
		const struct far_function *f = &builtin_functions[i];
		struct signature sig;
		must(signature_parse(f->signature, &sig, NULL) == FAR_OK);
		if (strcmp(sig.name, name) == 0 && sig.params_n == n)
			return f->fn(req, args, n, f->user);
	}
	must_fail(name, __FILE__, __LINE__);
}

void fake_req_fini(struct far_req *req)
{
	free(req->data);
	memset(req, 0, sizeof *req);
}
