/* SPDX-License-Identifier: BSD-3-Clause */
/** values_write(): writes the payload of checked values. Any thread. */
#include "base/hash.h"
#include "base/limits.h"
#include "base/must.h"
#include "value/encoding.h"
#include "value/encoding_layout.h"
#include "value/encoding_view.h"

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

static uint8_t *put_tensor(uint8_t *p, const struct far_tensor *t)
{
	return put_tensor_head(p, t->dtype, t->ndim, t->domain, t->shape);
}

/* The descriptor stream. `custom`: index of the next custom. */
struct stream {
	uint8_t *p;
	const struct values_plan *plan;
	uint32_t custom;
};

static void put_value(struct stream *s, const struct far_val *v);

static void put_custom(struct stream *s, const struct far_val *v)
{
	const char *name = v->u.custom.type->name;
	uint64_t hash = hash64(name, strlen(name));
	memcpy(s->p, &hash, 8);
	s->p = put_varint(s->p + 8, s->plan->custom_bytes[s->custom++]);
}

static void put_plain(struct stream *s, const struct far_val *v)
{
	uint8_t *p = s->p;
	switch ((enum far_type)v->type) {
	case FAR_TYPE_BOOL:
		*p++ = v->u.b ? 1 : 0;
		break;
	case FAR_TYPE_INT:
		p = put_varint(p, wire_zigzag(v->u.i));
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
	default:
		break;
	}
	s->p = p;
}

static void put_value(struct stream *s, const struct far_val *v)
{
	if (v->type == FAR_TYPE_TENSOR) {
		s->p = put_tensor(s->p, far_val_tensor(v));
		return;
	}
	*s->p++ = v->type;
	if (v->type == FAR_TYPE_LIST) {
		s->p = put_varint(s->p, v->u.list.n);
		for (size_t k = 0; k < v->u.list.n; k++)
			put_value(s, &v->u.list.items[k]);
	} else if (v->type == FAR_TYPE_DICT) {
		s->p = put_varint(s->p, v->u.dict.n);
		for (size_t k = 0; k < v->u.dict.n; k++) {
			put_value(s, &v->u.dict.entries[k].key);
			put_value(s, &v->u.dict.entries[k].value);
		}
	} else if (v->type == FAR_TYPE_CUSTOM) {
		put_custom(s, v);
	} else if (v->type == FAR_TYPE_RREF) {
		must(s->plan->put_rref != NULL);
		s->plan->put_rref(s->plan->put_ctx, v->u.rref, s->p);
		s->p += RREF_WIRE_BYTES;
	} else {
		put_plain(s, v);
	}
}

/* ---- the data section ---- */

struct section {
	uint8_t *base;
	size_t pos;
	const struct values_plan *plan;
	copy_fn *copy;
	uint32_t custom;
	bool wide;
};

/* Writes padding as 0: memory of the sender must not leak. */
static inline size_t pad(uint8_t *base, size_t pos, size_t align, size_t room)
{
	size_t to = wire_align(pos, align);
	if (likely(to - pos <= 8 && room - pos >= 8))
		memset(base + pos, 0, 8); /* one store; the following data overwrites its end */
	else
		memset(base + pos, 0, to - pos);
	return to;
}

/* memcpy() without the call for the sizes of a compact payload. */
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

static inline void copy_data_by(copy_fn *copy, uint8_t *dst, const uint8_t *src, size_t n)
{
	if (unlikely(n >= FAR_STREAM_BYTES_MIN) && copy)
		copy(dst, src, n);
	else
		copy_data(dst, src, n);
}

/** Takes room for an item of `bytes`, at least one. */
static inline uint8_t *section_take(struct section *s, size_t align, size_t bytes)
{
	size_t at = pad(s->base, s->pos, s->wide ? WIRE_WIDE_ALIGN : align, s->plan->size);
	s->pos = at + bytes;
	return s->base + at;
}

static void put_elements(struct section *s, const struct far_tensor *t)
{
	size_t element = wire_dtype_bytes[t->dtype & 15];
	size_t bytes = wire_tensor_bytes(element, t->ndim, t->shape);
	if (unlikely(bytes == 0))
		return;
	uint8_t *to = section_take(s, element, bytes);
	if (unlikely(t->strides != NULL))
		view_gather(t, element, to);
	else
		copy_data_by(s->copy, to, t->data, bytes);
}

static void put_data(struct section *s, const struct far_val *v)
{
	const struct far_custom_type *type;
	size_t bytes;
	switch ((enum far_type)v->type) {
	case FAR_TYPE_TENSOR:
		put_elements(s, far_val_tensor(v));
		break;
	case FAR_TYPE_BYTES:
		if (v->u.s.len > 0)
			copy_data_by(s->copy, section_take(s, 1, v->u.s.len), v->u.s.data, v->u.s.len);
		break;
	case FAR_TYPE_LIST:
		for (size_t k = 0; k < v->u.list.n; k++)
			put_data(s, &v->u.list.items[k]);
		break;
	case FAR_TYPE_DICT:
		for (size_t k = 0; k < v->u.dict.n; k++)
			put_data(s, &v->u.dict.entries[k].value);
		break;
	case FAR_TYPE_CUSTOM:
		type = v->u.custom.type;
		bytes = s->plan->custom_bytes[s->custom++];
		if (bytes > 0)
			type->encode(v->u.custom.object, section_take(s, WIRE_CUSTOM_ALIGN, bytes), bytes, type->user);
		break;
	default:
		break;
	}
}

static inline void line_write(const struct far_val *v, size_t n, uint8_t *base, size_t size)
{
	size_t pos = 1 + 4 * n;
	base[0] = (uint8_t)n;
	for (size_t i = 0; i < n; i++) {
		const struct far_tensor *t = far_val_tensor(&v[i]);
		uint32_t head = WIRE_TENSOR | (t->dtype << 4 | 1u) << 8 | (uint32_t)t->shape[0] << 24;
		memcpy(base + 1 + 4 * i, &head, 4);
	}
	for (size_t i = 0; i < n; i++) {
		const struct far_tensor *t = far_val_tensor(&v[i]);
		size_t element = wire_dtype_bytes[t->dtype & 15];
		size_t bytes = element * t->shape[0];
		pos = pad(base, pos, element, size);
		copy_data(base + pos, t->data, bytes);
		pos += bytes;
	}
	debug_must(pos == size);
}

static __attribute__((noinline)) void plain_write(const struct far_val *v, size_t n, uint8_t *base, size_t size,
						  copy_fn *copy)
{
	bool wide = size > FAR_LINE_PAYLOAD;
	uint8_t *p = base;
	*p++ = (uint8_t)(n | (wide ? WIRE_WIDE : 0));
	for (size_t i = 0; i < n; i++)
		p = put_tensor(p, far_val_tensor(&v[i]));
	size_t pos = (size_t)(p - base);
	for (size_t i = 0; i < n; i++) {
		const struct far_tensor *t = far_val_tensor(&v[i]);
		size_t align = wire_dtype_bytes[t->dtype & 15];
		size_t bytes = wire_tensor_bytes(align, t->ndim, t->shape);
		if (unlikely(bytes == 0))
			continue;
		pos = pad(base, pos, wide ? WIRE_WIDE_ALIGN : align, size);
		copy_data_by(copy, base + pos, t->data, bytes);
		pos += bytes;
	}
	debug_must(pos == size);
}

static uint8_t *write_stream(const struct far_val *v, size_t n, const struct values_plan *plan, uint8_t *base)
{
	bool wide = plan->size > FAR_LINE_PAYLOAD;
	struct stream stream = {base, plan, 0};
	*stream.p++ = (uint8_t)(n | (wide ? WIRE_WIDE : 0) | (plan->items ? WIRE_ITEMS : 0));
	if (plan->items)
		stream.p = put_varint(stream.p, plan->items);
	for (size_t i = 0; i < n; i++)
		put_value(&stream, &v[i]);
	return stream.p;
}

size_t values_write_stream(const struct far_val *v, size_t n, const struct values_plan *plan, void *dst)
{
	return (size_t)(write_stream(v, n, plan, dst) - (uint8_t *)dst);
}

static __attribute__((noinline)) void general_write(const struct far_val *v, size_t n, const struct values_plan *plan,
						    uint8_t *base, copy_fn *copy)
{
	bool wide = plan->size > FAR_LINE_PAYLOAD;
	struct section section = {base, (size_t)(write_stream(v, n, plan, base) - base), plan, copy, 0, wide};
	for (size_t i = 0; i < n; i++)
		put_data(&section, &v[i]);
	debug_must(section.pos == plan->size);
}

void values_write_by(const struct far_val *v, size_t n, const struct values_plan *plan, void *dst, copy_fn *copy)
{
	if (likely(plan->form == VALUES_LINE))
		line_write(v, n, dst, plan->size);
	else if (plan->form == VALUES_PLAIN)
		plain_write(v, n, dst, plan->size, copy);
	else
		general_write(v, n, plan, dst, copy);
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
	wire_data_init(&d);
	wire_data_add(&d, align, bytes);
	size_t size = wire_payload_size(&d, 2 + wire_tensor_head_size(ndim, shape));
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
