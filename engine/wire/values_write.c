/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "base/must.h"
#include "wire/values.h"
#include "wire/values_layout.h"

#include <farcall/message.h>

static size_t varint_size(uint64_t x)
{
	if (likely(x < 0x80))
		return 1;
	return (size_t)(64 - __builtin_clzll(x) + 6) / 7;
}

static uint64_t zigzag(int64_t i)
{
	return (uint64_t)i << 1 ^ (i < 0 ? UINT64_MAX : 0);
}

/** Bytes of a tensor's descriptor after its type. */
static size_t tensor_head_size(unsigned ndim, const uint64_t *shape)
{
	size_t size = 2;
	for (unsigned k = 0; k < ndim; k++)
		size += varint_size(shape[k]);
	return size;
}

/** End of the payload; `stream` is the length of the descriptors. */
static size_t data_end(const struct wire_data *d, size_t stream, bool wide)
{
	size_t pos = stream;
	for (unsigned k = 0; k < d->n; k++)
		pos = wire_align(pos, wide ? WIRE_WIDE_ALIGN : d->align[k]) + d->bytes[k];
	return pos;
}

static size_t payload_size(const struct wire_data *d, size_t stream)
{
	if (stream <= FAR_LINE_PAYLOAD) {
		size_t compact = data_end(d, stream, false);
		if (compact <= FAR_LINE_PAYLOAD)
			return compact;
	}
	return data_end(d, stream, true);
}

/* ---- check and size ---- */

static int too_large(struct far_err *err, size_t i, const char *what)
{
	err_set(err, FAR_TOO_LARGE, "argument %zu: the %s is larger than a message carries, %zu bytes", i + 1, what,
		FAR_MSG_BYTES_MAX);
	return -1;
}

/** Names what tensor_measure() refused. Apart from it, so that the path of a good tensor stays short. */
static __attribute__((cold, noinline)) int tensor_wrong(const struct far_tensor *t, size_t i, struct far_err *err)
{
	if (t->dtype == FAR_DTYPE_NONE || t->dtype >= FAR_DTYPE_COUNT)
		err_set(err, FAR_INVALID, "argument %zu: %u is not a dtype of a tensor", i + 1, t->dtype);
	else if (t->ndim > FAR_DIMS_MAX)
		err_set(err, FAR_INVALID, "argument %zu: a tensor of %u dimensions, at most %d are possible", i + 1,
			t->ndim, FAR_DIMS_MAX);
	else if (t->domain != 0)
		err_set(err, FAR_INVALID, "argument %zu: memory domain %u of a tensor, only 0 (host) is supported",
			i + 1, t->domain);
	else if (wire_tensor_bytes(wire_dtype_bytes[t->dtype], t->ndim, t->shape) > FAR_MSG_BYTES_MAX)
		return too_large(err, i, "tensor");
	else
		err_set(err, FAR_INVALID, "argument %zu: a tensor with elements whose data is NULL", i + 1);
	return -1;
}

static inline int tensor_measure(const struct far_tensor *t, size_t i, size_t *stream, struct wire_data *d,
				 struct far_err *err)
{
	if (unlikely(t->dtype == FAR_DTYPE_NONE || t->dtype >= FAR_DTYPE_COUNT || t->ndim > FAR_DIMS_MAX ||
		     t->domain != 0))
		return tensor_wrong(t, i, err);
	size_t element = wire_dtype_bytes[t->dtype];
	size_t bytes = wire_tensor_bytes(element, t->ndim, t->shape);
	if (unlikely(bytes > FAR_MSG_BYTES_MAX || (bytes > 0 && !t->data)))
		return tensor_wrong(t, i, err);
	*stream += tensor_head_size(t->ndim, t->shape);
	wire_data_add(d, i, element, bytes);
	return 0;
}

static int text_measure(const struct far_val *v, size_t i, size_t *stream, size_t *strings, struct wire_data *d,
			struct far_err *err)
{
	bool string = v->type == FAR_TYPE_STRING;
	size_t len = v->u.s.len;
	if (len > 0 && !v->u.s.data) {
		err_set(err, FAR_INVALID, "argument %zu: a %s of %zu bytes whose data is NULL", i + 1,
			string ? "string" : "bytes value", len);
		return -1;
	}
	*stream += varint_size(len);
	if (!string) {
		if (len > FAR_MSG_BYTES_MAX)
			return too_large(err, i, "bytes value");
		wire_data_add(d, i, 1, len);
		return 0;
	}
	if (len >= FAR_STRINGS_BYTES_MAX - *strings) {
		err_set(err, FAR_TOO_LARGE,
			"argument %zu: the strings of a call take more than %d bytes, pass longer texts as bytes",
			i + 1, FAR_STRINGS_BYTES_MAX);
		return -1;
	}
	*strings += len + 1;
	*stream += len + 1;
	return 0;
}

static int value_measure(const struct far_val *v, size_t i, size_t *stream, size_t *strings, struct wire_data *d,
			 struct far_err *err)
{
	if (unlikely(v->kw != NULL)) {
		err_set(err, FAR_INVALID, "argument %zu: keyword \"%s\" is not supported yet, pass it by position",
			i + 1, v->kw);
		return -1;
	}
	*stream += 1;
	switch ((enum far_type)v->type) {
	case FAR_TYPE_NONE:
		return 0;
	case FAR_TYPE_BOOL:
		*stream += 1;
		return 0;
	case FAR_TYPE_INT:
		*stream += varint_size(zigzag(v->u.i));
		return 0;
	case FAR_TYPE_FLOAT:
		*stream += 8;
		return 0;
	case FAR_TYPE_STRING:
	case FAR_TYPE_BYTES:
		return text_measure(v, i, stream, strings, d, err);
	case FAR_TYPE_TENSOR: /* values_size() did it */
	case FAR_TYPE_COUNT:
		break;
	}
	err_set(err, FAR_INVALID, "argument %zu: %u is not a type of a value", i + 1, v->type);
	return -1;
}

size_t values_size(const struct far_val *v, size_t n, struct far_err *err)
{
	if (n > FAR_ARGS_MAX) {
		err_set(err, FAR_INVALID, "%zu arguments, at most %d are possible", n, FAR_ARGS_MAX);
		return SIZE_MAX;
	}
	struct wire_data d;
	d.n = 0;
	size_t stream = 1;
	size_t strings = 0;
	for (size_t i = 0; i < n; i++) {
		if (likely(v[i].type == FAR_TYPE_TENSOR && !v[i].kw)) {
			stream += 1;
			if (unlikely(tensor_measure(&v[i].u.t, i, &stream, &d, err) != 0))
				return SIZE_MAX;
		} else if (value_measure(&v[i], i, &stream, &strings, &d, err) != 0) {
			return SIZE_MAX;
		}
	}
	size_t size = payload_size(&d, stream);
	if (size > FAR_MSG_BYTES_MAX) {
		err_set(err, FAR_TOO_LARGE, "the arguments take %zu bytes, a message carries at most %zu", size,
			FAR_MSG_BYTES_MAX);
		return SIZE_MAX;
	}
	return size;
}

/* ---- write ---- */

static uint8_t *put_varint(uint8_t *p, uint64_t x)
{
	while (unlikely(x >= 0x80)) {
		*p++ = (uint8_t)(x | 0x80);
		x >>= 7;
	}
	*p++ = (uint8_t)x;
	return p;
}

static uint8_t *put_tensor_head(uint8_t *p, unsigned dtype, unsigned ndim, unsigned domain, const uint64_t *shape)
{
	*p++ = WIRE_TENSOR;
	*p++ = (uint8_t)(dtype << 4 | ndim);
	*p++ = (uint8_t)domain;
	for (unsigned k = 0; k < ndim; k++)
		p = put_varint(p, shape[k]);
	return p;
}

static uint8_t *put_descriptor(uint8_t *p, const struct far_val *v)
{
	if (likely(v->type == FAR_TYPE_TENSOR))
		return put_tensor_head(p, v->u.t.dtype, v->u.t.ndim, v->u.t.domain, v->u.t.shape);
	*p++ = v->type;
	switch ((enum far_type)v->type) {
	case FAR_TYPE_BOOL:
		*p++ = v->u.b ? 1 : 0;
		break;
	case FAR_TYPE_INT:
		p = put_varint(p, zigzag(v->u.i));
		break;
	case FAR_TYPE_FLOAT:
		memcpy(p, &v->u.f, 8);
		p += 8;
		break;
	case FAR_TYPE_STRING:
		p = put_varint(p, v->u.s.len);
		if (v->u.s.len > 0)
			memcpy(p, v->u.s.data, v->u.s.len);
		p += v->u.s.len;
		*p++ = 0;
		break;
	case FAR_TYPE_BYTES:
		p = put_varint(p, v->u.s.len);
		break;
	case FAR_TYPE_NONE:
	case FAR_TYPE_TENSOR:
	case FAR_TYPE_COUNT:
		break;
	}
	return p;
}

/* Writes padding so that old memory does not travel. */
static inline size_t pad(uint8_t *base, size_t pos, size_t align, size_t room)
{
	size_t to = wire_align(pos, align);
	if (likely(to - pos <= 8 && room - pos >= 8))
		memset(base + pos, 0, 8); /* one store; the data that follows is written later */
	else
		memset(base + pos, 0, to - pos);
	return to;
}

/* The sizes of a compact payload without the call. */
static inline void copy_data(uint8_t *dst, const uint8_t *src, size_t n)
{
	if (n > 16 || n < 4) {
		memcpy(dst, src, n);
	} else if (n >= 8) {
		memcpy(dst, src, 8);
		memcpy(dst + n - 8, src + n - 8, 8);
	} else {
		memcpy(dst, src, 4);
		memcpy(dst + n - 4, src + n - 4, 4);
	}
}

void values_write(const struct far_val *v, size_t n, void *dst, size_t size)
{
	uint8_t *base = dst;
	bool wide = size > FAR_LINE_PAYLOAD;
	uint8_t *p = base;
	*p++ = (uint8_t)(n | (wide ? WIRE_WIDE : 0));
	for (size_t i = 0; i < n; i++)
		p = put_descriptor(p, &v[i]);
	size_t pos = (size_t)(p - base);
	for (size_t i = 0; i < n; i++) {
		const void *from;
		size_t bytes;
		size_t align;
		if (v[i].type == FAR_TYPE_TENSOR) {
			from = v[i].u.t.data;
			align = wire_dtype_bytes[v[i].u.t.dtype & 15];
			bytes = wire_tensor_bytes(align, v[i].u.t.ndim, v[i].u.t.shape);
		} else if (v[i].type == FAR_TYPE_BYTES) {
			from = v[i].u.s.data;
			align = 1;
			bytes = v[i].u.s.len;
		} else {
			continue;
		}
		if (bytes == 0)
			continue;
		pos = pad(base, pos, wide ? WIRE_WIDE_ALIGN : align, size);
		copy_data(base + pos, from, bytes);
		pos += bytes;
	}
	debug_must(pos == size);
}

/* ---- one tensor, its elements written in place ---- */

size_t values_tensor_size(enum far_dtype dtype, unsigned ndim, const uint64_t *shape, size_t *data_offset)
{
	if (dtype == FAR_DTYPE_NONE || (unsigned)dtype >= FAR_DTYPE_COUNT || ndim > FAR_DIMS_MAX)
		return SIZE_MAX;
	size_t align = wire_dtype_bytes[dtype];
	size_t bytes = wire_tensor_bytes(align, ndim, shape);
	if (bytes > SIZE_MAX - WIRE_TENSOR_HEAD_MAX - WIRE_WIDE_ALIGN)
		return SIZE_MAX;
	struct wire_data d;
	d.n = 0;
	wire_data_add(&d, 0, align, bytes);
	size_t size = payload_size(&d, 2 + tensor_head_size(ndim, shape));
	*data_offset = size - bytes;
	return size;
}

void values_tensor_write(enum far_dtype dtype, unsigned ndim, const uint64_t *shape, void *dst, size_t size)
{
	uint8_t *base = dst;
	bool wide = size > FAR_LINE_PAYLOAD;
	base[0] = (uint8_t)(1 | (wide ? WIRE_WIDE : 0));
	uint8_t *p = put_tensor_head(base + 1, dtype, ndim, 0, shape);
	size_t align = wire_dtype_bytes[dtype & 15];
	if (wire_tensor_bytes(align, ndim, shape) == 0)
		return;
	/* Not pad(): the elements may be there already. */
	uint8_t *to = base + wire_align((size_t)(p - base), wide ? WIRE_WIDE_ALIGN : align);
	while (p < to)
		*p++ = 0;
}
