/* SPDX-License-Identifier: BSD-3-Clause */
/** Copies the reply of one target into the application's memory. Shard thread. */
#include "features/fanout/scatter.h"

#include "base/must.h"
#include "value/encoding.h"
#include "value/tree.h"

#include <errno.h>
#include <string.h>

static const char malformed[] = "the answer is malformed";
static const char too_large[] = "the reply is larger than its slice";
static const char no_memory[] = "no memory for the result: give it a slice, or free results";
static const char no_slice[] = "the result is a list, dict, custom value or reference, which has no place in a slice";
static const char no_tree[] = "the items of the result cannot be read here: malformed, an unknown type, or no memory";
static const char other_tensor[] = "the result is not a tensor of the wanted dtype and shape";

static enum far_status refuse(enum far_status status, const char *why, const char **text)
{
	*text = why;
	return status;
}

static bool same_tensor(const struct far_tensor *got, const struct far_tensor *want)
{
	return got->dtype == want->dtype && got->ndim == want->ndim &&
	       memcmp(got->shape, want->shape, got->ndim * sizeof *got->shape) == 0;
}

/* The bytes of a value as they go to a slice. */
static const void *bytes_of(const struct far_val *v, size_t *len)
{
	switch (v->type) {
	case FAR_TYPE_BOOL:
		*len = sizeof v->u.b;
		return &v->u.b;
	case FAR_TYPE_INT:
		*len = sizeof v->u.i;
		return &v->u.i;
	case FAR_TYPE_FLOAT:
		*len = sizeof v->u.f;
		return &v->u.f;
	case FAR_TYPE_STRING:
		*len = v->u.s.len + 1;
		return v->u.s.data;
	case FAR_TYPE_BYTES:
		*len = v->u.s.len;
		return v->u.s.data;
	case FAR_TYPE_TENSOR:
		*len = far_tensor_bytes(&v->u.t);
		return v->u.t.data;
	default:
		*len = 0;
		return NULL;
	}
}

/* A result without a slice keeps its bytes in memory of its own. */
static enum far_status take_own(const void *data, size_t len, struct far_val *v, const char **text)
{
	size_t n;
	struct far_buf *buf = buf_alloc(len);
	if (!buf)
		return refuse(FAR_RESOURCE, no_memory, text);
	memcpy(buf_data(buf), data, len);
	int error = values_read(buf_data(buf), len, v, 1, &n, NULL);
	if (error == -ENOMEM) { /* it holds others */
		enum far_status status = tree_read(buf_data(buf), len, buf, v, NULL);
		buf_unref(buf);
		return status ? refuse(status, no_tree, text) : FAR_OK;
	}
	if (error || n != 1) {
		buf_unref(buf);
		return refuse(FAR_PROTOCOL, malformed, text);
	}
	v->own = buf;
	return FAR_OK;
}

static enum far_status take_value(const struct fanout *fo, uint32_t i, const void *data, size_t len,
				  struct far_target_result *r, const char **text)
{
	const struct fanout_target *t = &fo->target[i];
	const struct far_tensor *want = fo->targets[i].out;
	struct far_val v = {0};
	size_t n, bytes;
	int error = values_read(data, len, &v, 1, &n, NULL);
	if (unlikely(error == -ENOMEM)) {
		if (want || t->recv_buf)
			return refuse(FAR_UNSUPPORTED, no_slice, text);
		enum far_status status = r ? take_own(data, len, &v, text) : FAR_OK;
		if (r && !status)
			r->value = v;
		return status;
	}
	if (unlikely(error || n != 1))
		return refuse(FAR_PROTOCOL, malformed, text);
	const void *from = bytes_of(&v, &bytes);
	if (r)
		r->len = v.type == FAR_TYPE_STRING ? bytes - 1 : bytes;
	if (want ? v.type != FAR_TYPE_TENSOR || !same_tensor(&v.u.t, want)
		 : t->recv_buf && fo->dtype && (v.type != FAR_TYPE_TENSOR || v.u.t.dtype != fo->dtype))
		return refuse(FAR_PROTOCOL, other_tensor, text);
	void *recv_buf = want ? want->data : t->recv_buf;
	if (!want && !recv_buf) {
		if (r && v.type >= FAR_TYPE_STRING) {
			enum far_status status = take_own(data, len, &v, text);
			if (status)
				return status;
		}
	} else {
		if (unlikely(!want && bytes > t->cap)) {
			if (r)
				r->len = bytes;
			return refuse(FAR_TOO_LARGE, too_large, text);
		}
		if (bytes)
			memcpy(recv_buf, from, bytes);
		if (v.type == FAR_TYPE_STRING)
			((char *)recv_buf)[bytes - 1] = '\0'; /* the peer may have changed it after it was checked */
		if (v.type == FAR_TYPE_TENSOR)
			v.u.t.data = recv_buf;
		else if (v.type >= FAR_TYPE_STRING)
			v.u.s.data = recv_buf;
	}
	if (r)
		r->value = v;
	return FAR_OK;
}

enum far_status scatter(const struct fanout *fo, uint32_t i, const void *data, size_t len, struct far_target_result *r,
			const char **text)
{
	const struct fanout_target *t = &fo->target[i];
	if (fo->start.typed)
		return take_value(fo, i, data, len, r, text);
	if (r)
		r->len = len;
	if (unlikely(len > t->cap))
		return refuse(FAR_TOO_LARGE, too_large, text);
	if (len)
		memcpy(t->recv_buf, data, len);
	return FAR_OK;
}

enum far_status scatter_tree(const struct fanout *fo, uint32_t i, struct far_buf *tree, struct far_target_result *r,
			     const char **text)
{
	if (fo->targets[i].out || fo->target[i].recv_buf)
		return refuse(FAR_UNSUPPORTED, no_slice, text);
	if (!r)
		return FAR_OK;
	r->value = tree_root(tree);
	r->value.own = tree;
	buf_ref(tree);
	return FAR_OK;
}

size_t scatter_count(uint32_t n, void *dst, size_t cap)
{
	struct far_val v = far_int(n);
	struct values_plan plan;
	size_t size = values_size(&v, 1, &plan, NULL);
	must(size <= cap);
	values_write(&v, 1, &plan, dst);
	return size;
}
