/* SPDX-License-Identifier: BSD-3-Clause */
/** Moves results to the caller's receive buffer (far_call_opts.recv_buf). On the shard, or on the thread that waits. */
#include "api/recv_buf.h"

#include "base/error.h"
#include "base/must.h"
#include "value/encoding.h"

#include <stdio.h>
#include <string.h>

#define TOO_LARGE_TEXT "the result has %zu bytes, its receive buffer %zu"

/* Elements of a value that a receive buffer takes: a tensor, or bytes. False: another type. */
static bool elements_of(const struct far_val *v, const void **data, size_t *len)
{
	if (v->type == FAR_TYPE_TENSOR) {
		*data = v->u.t.data;
		*len = far_tensor_bytes(&v->u.t);
		return true;
	}
	if (v->type == FAR_TYPE_BYTES) {
		*data = v->u.s.data;
		*len = v->u.s.len;
		return true;
	}
	return false;
}

static void refer(struct far_val *v, void *data)
{
	if (v->type == FAR_TYPE_TENSOR)
		v->u.t.data = data;
	else
		v->u.s.data = data;
	v->own = NULL;
}

void recv_buf_set(struct far_future *f, const struct far_recv_buf *recv_buf)
{
	f->recv_buf = *recv_buf;
}

void recv_buf_complete(struct far_future *f, const struct completion *o)
{
	struct far_recv_buf recv_buf = f->recv_buf;
	struct far_val v;
	const void *data;
	size_t n, len;
	if (o->status != FAR_OK || values_read(o->data, o->len, &v, 1, &n, NULL) || n != 1 ||
	    !elements_of(&v, &data, &len)) {
		agent_complete(f, o);
		return;
	}
	struct completion result = *o;
	char text[128];
	if (len > recv_buf.cap) {
		result.status = FAR_TOO_LARGE;
		result.data = text;
		result.len = (size_t)snprintf(text, sizeof text, TOO_LARGE_TEXT, len, recv_buf.cap);
		result.buf = NULL;
		agent_complete(f, &result);
		return;
	}
	if (len)
		memcpy(recv_buf.data, data, len);
	refer(&v, recv_buf.data);
	result.code = FUTURE_DECODED;
	result.data = &v;
	result.len = sizeof v;
	result.buf = NULL;
	future_complete(f, &result);
}

void recv_buf_done(void *user, const struct completion *o)
{
	recv_buf_complete(user, o);
}

enum far_status recv_buf_move(struct far_val *v, const struct far_recv_buf *recv_buf, struct far_err *err)
{
	const void *data;
	size_t len;
	if (!elements_of(v, &data, &len) || data == recv_buf->data)
		return FAR_OK;
	if (len > recv_buf->cap) {
		err_set(err, FAR_TOO_LARGE, TOO_LARGE_TEXT, len, recv_buf->cap);
		if (err)
			err->executed = FAR_EXECUTED_YES;
		return FAR_TOO_LARGE;
	}
	if (len)
		memcpy(recv_buf->data, data, len);
	buf_unref(v->own);
	refer(v, recv_buf->data);
	return FAR_OK;
}
