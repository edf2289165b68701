/* SPDX-License-Identifier: BSD-3-Clause */
/** values_read(): reads a payload that a peer may change meanwhile. Any thread. */
#include "base/must.h"
#include "value/dict.h"
#include "value/encoding.h"
#include "value/encoding_layout.h"
#include "value/encoding_split.h"

#include <errno.h>
#include <string.h>

/* The rest of the stream. The pointers are private; the bytes they point to may change at any time. */
struct cursor {
	const uint8_t *p;
	const uint8_t *end;
	char *strings; /* next copy of a string; NULL: no copies */
	size_t strings_left;
	struct far_val *items; /* next free one of the items announced by the payload */
	size_t items_left;
	uint32_t customs, rrefs;
	struct values_arena *arena;
};

/* One load that the compiler may neither repeat nor merge: a second load could return another byte than the checked
 * one. Relaxed: the hand-over of the payload has ordered its bytes. */
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

static inline bool read_tensor(struct cursor *c, struct far_val *v)
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
	v->u.t.data = NULL;
	v->u.t.strides = NULL;
	v->u.t.dtype = (uint8_t)dtype;
	v->u.t.ndim = (uint8_t)ndim;
	v->u.t.domain = domain;
	return true;
}

static int read_string(struct cursor *c, struct far_val *v)
{
	uint64_t len;
	if (!read_varint(c, &len) || len >= (size_t)(c->end - c->p))
		return -EBADMSG;
	if (load_byte(c->p + len) != 0)
		return -EBADMSG;
	v->u.s.len = len;
	if (c->strings) {
		if (len >= c->strings_left)
			return -ENOBUFS;
		memcpy(c->strings, c->p, len);
		c->strings[len] = '\0';
		v->u.s.data = c->strings;
		c->strings += len + 1;
		c->strings_left -= len + 1;
	} else {
		v->u.s.data = c->p;
	}
	c->p += len + 1;
	return 0;
}

static bool read_custom(struct cursor *c, struct far_val *v)
{
	uint64_t len;
	if (c->customs == FAR_CUSTOMS_MAX || c->end - c->p < 8)
		return false;
	c->customs++;
	memcpy(&v->u.custom.hash, c->p, 8);
	c->p += 8;
	if (!read_varint(c, &len))
		return false;
	v->u.custom.type = NULL;
	v->u.custom.object = NULL;
	v->u.custom.len = len;
	return true;
}

/* Copies the bytes first: a peer may rewrite them. */
static int read_rref(struct cursor *c, struct far_val *v)
{
	uint8_t bytes[RREF_WIRE_BYTES];
	if (c->rrefs == FAR_RREFS_MAX || (size_t)(c->end - c->p) < sizeof bytes)
		return -EBADMSG;
	c->rrefs++;
	if (!c->arena || !c->arena->more) /* a value with a reference needs an arena */
		return -ENOMEM;
	if (!c->arena->rref)
		return -EBADMSG;
	memcpy(bytes, c->p, sizeof bytes);
	__asm__ volatile("" : : : "memory");
	c->p += sizeof bytes;
	int rc = c->arena->rref(c->arena, bytes, v);
	if (!rc && c->arena->patch)
		memcpy((uint8_t *)(uintptr_t)c->p - sizeof bytes, &v->u.rref, sizeof v->u.rref);
	return rc;
}

static bool read_plain(struct cursor *c, struct far_val *v, uint8_t type)
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
		return true;
	case WIRE_CUSTOM:
		return read_custom(c, v);
	default:
		return false;
	}
}

static int read_items(struct cursor *c, struct far_val *v, size_t n, unsigned depth);

/* Reads a count, and takes `per` items for each. */
static bool take_items(struct cursor *c, size_t per, unsigned depth, struct far_val **items, size_t *n)
{
	uint64_t count;
	if (depth == FAR_DEPTH_MAX || !read_varint(c, &count) || count > c->items_left / per)
		return false;
	*items = c->items;
	*n = count;
	if (!count) /* c->items may be NULL */
		return true;
	c->items += count * per;
	c->items_left -= count * per;
	return true;
}

static int read_list(struct cursor *c, struct far_val *v, unsigned depth)
{
	struct far_val *items;
	size_t n;
	if (!take_items(c, 1, depth, &items, &n))
		return -EBADMSG;
	v->u.list.items = items;
	v->u.list.n = n;
	return read_items(c, items, n, depth + 1);
}

static int read_dict(struct cursor *c, struct far_val *v, unsigned depth)
{
	struct far_val *items;
	size_t n, bad;
	if (!take_items(c, 2, depth, &items, &n))
		return -EBADMSG;
	int rc = read_items(c, items, 2 * n, depth + 1);
	if (rc)
		return rc;
	v->u.dict.entries = (const struct far_dict_entry *)items;
	v->u.dict.n = n;
	return dict_check(v->u.dict.entries, n, &bad) == DICT_OK ? 0 : -EBADMSG;
}

static_assert(sizeof(struct far_dict_entry) == 2 * sizeof(struct far_val), "an entry is a key and a value, in a row");

/** Reads the descriptors of `n` values, `depth` lists and dicts down. */
static int read_items(struct cursor *c, struct far_val *v, size_t n, unsigned depth)
{
	for (size_t i = 0; i < n; i++) {
		uint8_t type;
		int rc = 0;
		if (unlikely(!read_byte(c, &type)))
			return -EBADMSG;
		v[i].type = type;
		v[i].by_ref = false;
		v[i].kw = NULL;
		v[i].own = NULL;
		if (likely(type == WIRE_TENSOR))
			rc = read_tensor(c, &v[i]) ? 0 : -EBADMSG;
		else if (type == WIRE_STRING)
			rc = read_string(c, &v[i]);
		else if (type == WIRE_LIST)
			rc = read_list(c, &v[i], depth);
		else if (type == WIRE_DICT)
			rc = read_dict(c, &v[i], depth);
		else if (unlikely(type == WIRE_RREF))
			rc = read_rref(c, &v[i]);
		else if (!read_plain(c, &v[i], type))
			rc = -EBADMSG;
		if (unlikely(rc))
			return rc;
	}
	return 0;
}

/** Allocates all items. An item has at least one descriptor byte, so the payload bounds the allocation. */
static int begin_items(struct cursor *c)
{
	uint64_t n;
	if (!read_varint(c, &n) || n == 0 || n > FAR_ITEMS_MAX || n > (size_t)(c->end - c->p))
		return -EBADMSG;
	if (!c->arena || !c->arena->more || !(c->items = c->arena->more(c->arena, n * sizeof *c->items)))
		return -ENOMEM;
	c->items_left = n;
	return 0;
}

/* ---- the data section: from here on only private memory is read ---- */

struct section {
	uint8_t *base;
	size_t pos, size;
	bool wide;
	struct values_arena *arena;
	const struct values_scattered *scattered;
};

/** Address of the next `bytes`; NULL: beyond the payload. For 0 bytes the start of the payload. */
static inline void *section_next(struct section *s, size_t align, size_t bytes)
{
	if (unlikely(bytes == 0))
		return s->base;
	size_t at = wire_align(s->pos, s->wide ? WIRE_WIDE_ALIGN : align);
	if (unlikely(at > s->size || bytes > s->size - at))
		return NULL;
	s->pos = at + bytes;
	if (unlikely(s->scattered != NULL))
		return (void *)(uintptr_t)values_scattered_at(s->scattered, at, bytes);
	return s->base + at;
}

static int locate_custom(struct section *s, struct far_val *v)
{
	size_t len = v->u.custom.len;
	if (s->scattered) /* no sender leaves the bytes of an object where they are */
		return -EBADMSG;
	void *bytes = section_next(s, WIRE_CUSTOM_ALIGN, len);
	if (!bytes)
		return -EBADMSG;
	/* Decoding needs an arena, which owns the objects. A private payload is decoded in place. */
	if (!s->arena || !s->arena->more)
		return -ENOMEM;
	if (s->arena->strings) {
		void *copy = s->arena->more(s->arena, len ? len : 1);
		if (!copy)
			return -ENOMEM;
		memcpy(copy, bytes, len);
		bytes = copy;
	}
	v->u.custom.object = bytes;
	return 0;
}

static int locate_items(struct section *s, struct far_val *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct far_tensor *t = &v[i].u.t;
		size_t element;
		int rc = 0;
		switch ((enum far_type)v[i].type) {
		case FAR_TYPE_TENSOR:
			element = wire_dtype_bytes[t->dtype];
			t->data = section_next(s, element, wire_tensor_bytes(element, t->ndim, t->shape));
			rc = t->data ? 0 : -EBADMSG;
			break;
		case FAR_TYPE_BYTES:
			v[i].u.s.data = section_next(s, 1, v[i].u.s.len);
			rc = v[i].u.s.data ? 0 : -EBADMSG;
			break;
		case FAR_TYPE_LIST:
			rc = locate_items(s, (struct far_val *)(uintptr_t)v[i].u.list.items, v[i].u.list.n);
			break;
		case FAR_TYPE_DICT:
			rc = locate_items(s, (struct far_val *)(uintptr_t)v[i].u.dict.entries, 2 * v[i].u.dict.n);
			break;
		case FAR_TYPE_CUSTOM:
			rc = locate_custom(s, &v[i]);
			break;
		default:
			break;
		}
		if (unlikely(rc))
			return rc;
	}
	return 0;
}

/**
 * Reads a payload of VALUES_LINE, the usual case. Copies the line first, so the checked bytes cannot change. False:
 * another form, or malformed: the general reader decides.
 */
static bool read_line(uint8_t *base, size_t size, struct far_val *v, size_t cap, size_t *n_out)
{
	uint8_t line[FAR_LINE_PAYLOAD];
	memcpy(line, base, size);
	__asm__ volatile("" : : : "memory"); /* only `line` is read from here on, not `base` */
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
		v[i].by_ref = false;
		v[i].kw = NULL;
		v[i].own = NULL;
		v[i].u.t.data = base + at;
		v[i].u.t.strides = NULL;
		v[i].u.t.dtype = (uint8_t)dtype;
		v[i].u.t.ndim = 1;
		v[i].u.t.domain = 0;
		v[i].u.t.shape[0] = count;
		at += (size_t)element * count;
	}
	*n_out = n;
	return at == size;
}

int values_read(const void *src, size_t size, struct far_val *v, size_t cap, size_t *n_out, struct values_arena *arena)
{
	uint8_t *base = (uint8_t *)(uintptr_t)src; /* tensor data is not const; no byte is written here */
	if (likely(size - 1 < FAR_LINE_PAYLOAD && read_line(base, size, v, cap, n_out)))
		return 0;
	struct cursor c = {
		.p = base, .end = size ? base + size : base, .arena = arena}; /* an empty payload has no base */
	uint8_t head;
	const struct values_scattered *scattered = NULL;
	if (arena) {
		scattered = arena->scattered ? values_scattered_of(src) : NULL;
		c.strings = arena->strings;
		c.strings_left = arena->strings_cap;
	}
	if (unlikely(scattered != NULL))
		c.end = base + scattered->part[0].len;
	if (unlikely(!read_byte(&c, &head)))
		return -EBADMSG;
	bool wide = (head & WIRE_WIDE) != 0;
	size_t n = head & WIRE_COUNT_MASK;
	if (unlikely((head & ~(WIRE_COUNT_MASK | WIRE_ITEMS | WIRE_WIDE)) != 0 || n > FAR_ARGS_MAX ||
		     wide != (size > FAR_LINE_PAYLOAD)))
		return -EBADMSG;
	if (unlikely(n > cap))
		return -E2BIG;
	int rc = unlikely(head & WIRE_ITEMS) ? begin_items(&c) : 0;
	if (likely(!rc))
		rc = read_items(&c, v, n, 0);
	if (unlikely(rc))
		return rc;
	if (unlikely(c.items_left))
		return -EBADMSG;
	struct section section = {base, (size_t)(c.p - base), size, wide, arena, scattered};
	rc = locate_items(&section, v, n);
	if (unlikely(rc))
		return rc;
	if (unlikely(section.pos != size))
		return -EBADMSG;
	*n_out = n;
	return 0;
}
