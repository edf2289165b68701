/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/must.h"
#include "wire/values.h"
#include "wire/values_layout.h"

#include <errno.h>
#include <string.h>

/* The stream that is left. Both pointers are private; what they point at may change under us. */
struct cursor {
	const uint8_t *p;
	const uint8_t *end;
};

/* Where strings go; room is NULL when they stay in the payload. */
struct string_room {
	char *room;
	size_t left;
};

/* One load, which the compiler may neither repeat nor merge: a second one could see another byte than the checked. The
 * order of the loads does not matter; whoever handed the payload over has ordered it. */
static inline uint8_t load_byte(const uint8_t *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static inline bool read_byte(struct cursor *c, uint8_t *out)
{
	if (unlikely(c->p == c->end))
		return false;
	*out = load_byte(c->p++);
	return true;
}

static bool read_varint_long(struct cursor *c, uint8_t first, uint64_t *out)
{
	uint64_t x = first & 0x7f;
	for (unsigned shift = 7; shift < 64; shift += 7) {
		uint8_t b;
		if (!read_byte(c, &b))
			return false;
		x |= (uint64_t)(b & 0x7f) << shift;
		if (b & 0x80)
			continue;
		if (b == 0 || (shift == 63 && b > 1))
			return false;
		*out = x;
		return true;
	}
	return false;
}

static inline bool read_varint(struct cursor *c, uint64_t *out)
{
	uint8_t b;
	if (unlikely(!read_byte(c, &b)))
		return false;
	if (unlikely(b & 0x80))
		return read_varint_long(c, b, out);
	*out = b;
	return true;
}

static inline bool read_tensor(struct cursor *c, struct far_val *v, size_t i, struct wire_data *d)
{
	uint8_t form;
	uint8_t domain;
	if (unlikely(!read_byte(c, &form) || !read_byte(c, &domain)))
		return false;
	unsigned dtype = form >> 4;
	unsigned ndim = form & 15;
	if (unlikely(dtype == FAR_DTYPE_NONE || dtype >= FAR_DTYPE_COUNT || ndim > FAR_DIMS_MAX || domain != 0))
		return false;
	for (unsigned k = 0; k < ndim; k++)
		if (unlikely(!read_varint(c, &v->u.t.shape[k])))
			return false;
	size_t element = wire_dtype_bytes[dtype];
	size_t bytes = wire_tensor_bytes(element, ndim, v->u.t.shape);
	v->u.t.data = NULL;
	v->u.t.dtype = (uint8_t)dtype;
	v->u.t.ndim = (uint8_t)ndim;
	v->u.t.domain = domain;
	wire_data_add(d, i, element, bytes);
	return true;
}

static int read_string(struct cursor *c, struct far_val *v, struct string_room *room)
{
	uint64_t len;
	if (!read_varint(c, &len) || len >= (size_t)(c->end - c->p))
		return -EBADMSG;
	if (load_byte(c->p + len) != 0)
		return -EBADMSG;
	v->u.s.len = len;
	if (room->room) {
		if (len >= room->left)
			return -ENOBUFS;
		memcpy(room->room, c->p, len);
		room->room[len] = '\0';
		v->u.s.data = room->room;
		room->room += len + 1;
		room->left -= len + 1;
	} else {
		v->u.s.data = c->p;
	}
	c->p += len + 1;
	return 0;
}

static bool read_plain(struct cursor *c, struct far_val *v, uint8_t type, size_t i, struct wire_data *d)
{
	uint64_t x;
	uint8_t b;
	switch (type) {
	case WIRE_NONE:
		return true;
	case WIRE_BOOL:
		if (!read_byte(c, &b) || b > 1)
			return false;
		v->u.b = b != 0;
		return true;
	case WIRE_INT:
		if (!read_varint(c, &x))
			return false;
		v->u.i = (int64_t)(x >> 1 ^ (0 - (x & 1)));
		return true;
	case WIRE_FLOAT:
		if (c->end - c->p < 8)
			return false;
		memcpy(&v->u.f, c->p, 8);
		c->p += 8;
		return true;
	case WIRE_BYTES:
		if (!read_varint(c, &x))
			return false;
		v->u.s.len = x;
		v->u.s.data = NULL;
		wire_data_add(d, i, 1, x);
		return true;
	default:
		return false;
	}
}

/** Reads the descriptors; `d` gets the items of the data section. */
static int read_stream(struct cursor *c, struct far_val *v, size_t n, struct string_room *room, struct wire_data *d)
{
	for (size_t i = 0; i < n; i++) {
		uint8_t type;
		if (unlikely(!read_byte(c, &type)))
			return -EBADMSG;
		v[i].type = type;
		v[i].kw = NULL;
		v[i].own = NULL;
		if (likely(type == WIRE_TENSOR)) {
			if (unlikely(!read_tensor(c, &v[i], i, d)))
				return -EBADMSG;
		} else if (type == WIRE_STRING) {
			int rc = read_string(c, &v[i], room);
			if (rc != 0)
				return rc;
		} else if (unlikely(!read_plain(c, &v[i], type, i, d))) {
			return -EBADMSG;
		}
	}
	return 0;
}

/* Items without bytes point at the payload's start: readable as far as they go, aligned, not NULL. */
static void point_empty(struct far_val *v, size_t n, void *base)
{
	for (size_t i = 0; i < n; i++) {
		if (v[i].type == FAR_TYPE_TENSOR && !v[i].u.t.data)
			v[i].u.t.data = base;
		else if (v[i].type == FAR_TYPE_BYTES && v[i].u.s.len == 0)
			v[i].u.s.data = base;
	}
}

/**
 * The usual case, apart: up to a line of payload with nothing but tensors of one dimension below 128. The line is
 * copied first, so what is checked cannot change. False: not of this kind, or wrong; the general reader decides.
 */
static bool read_line(uint8_t *base, size_t size, struct far_val *v, size_t cap, size_t *n_out)
{
	uint8_t line[FAR_LINE_PAYLOAD];
	memcpy(line, base, size);
	__asm__ volatile("" : : : "memory"); /* `line` is what is read from here on, never `base` again */
	size_t n = line[0], pos = 1 + 4 * n, at = pos;
	if (n - 1 >= 7 || n > cap || pos > size)
		return false;
	for (size_t i = 0; i < n; i++) {
		const uint8_t *d = &line[1 + 4 * i];
		unsigned dtype = d[1] >> 4, element = wire_dtype_bytes[dtype], count = d[3];
		if (d[0] != WIRE_TENSOR || (d[1] & 15) != 1 || d[2] != 0 || element == 0 || count - 1 >= 127)
			return false;
		at = (at + element - 1) & ~(size_t)(element - 1);
		v[i].type = WIRE_TENSOR;
		v[i].kw = NULL;
		v[i].own = NULL;
		v[i].u.t.data = base + at;
		v[i].u.t.dtype = (uint8_t)dtype;
		v[i].u.t.ndim = 1;
		v[i].u.t.domain = 0;
		v[i].u.t.shape[0] = count;
		at += (size_t)element * count;
	}
	*n_out = n;
	return at == size;
}

int values_read(const void *src, size_t size, struct far_val *v, size_t cap, size_t *n_out, char *strings,
		size_t strings_cap)
{
	uint8_t *base = (uint8_t *)(uintptr_t)src; /* a tensor's data is not const; nothing is written here */
	if (likely(size - 1 < FAR_LINE_PAYLOAD && read_line(base, size, v, cap, n_out)))
		return 0;
	struct cursor c = {base, size ? base + size : base}; /* a packet without a body has no base */
	struct string_room room = {strings, strings_cap};
	uint8_t head;
	if (unlikely(!read_byte(&c, &head)))
		return -EBADMSG;
	bool wide = (head & WIRE_WIDE) != 0;
	size_t n = head & WIRE_COUNT_MASK;
	if (unlikely((head & ~(WIRE_COUNT_MASK | WIRE_WIDE)) != 0 || n > FAR_ARGS_MAX ||
		     wide != (size > FAR_LINE_PAYLOAD)))
		return -EBADMSG;
	if (unlikely(n > cap))
		return -E2BIG;
	struct wire_data d;
	d.n = 0;
	int rc = read_stream(&c, v, n, &room, &d);
	if (unlikely(rc != 0))
		return rc;
	size_t pos = (size_t)(c.p - base);
	for (unsigned k = 0; k < d.n; k++) {
		size_t at = wire_align(pos, wide ? WIRE_WIDE_ALIGN : d.align[k]);
		if (unlikely(at > size || d.bytes[k] > size - at))
			return -EBADMSG;
		struct far_val *to = &v[d.value[k]];
		if (likely(to->type == FAR_TYPE_TENSOR))
			to->u.t.data = base + at;
		else
			to->u.s.data = base + at;
		pos = at + d.bytes[k];
	}
	if (unlikely(pos != size))
		return -EBADMSG;
	if (unlikely(d.n < n))
		point_empty(v, n, base);
	*n_out = n;
	return 0;
}
