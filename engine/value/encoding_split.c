/* SPDX-License-Identifier: BSD-3-Clause */
/** Payloads in pieces: large elements stay where they are, the rest is written behind each other. Any thread. */
#include "value/encoding_split.h"

#include "value/encoding_layout.h"

#include <string.h>

/* Elements of a value; `bytes` 0: it has none. */
struct elements {
	const void *at;
	size_t bytes;
	bool dense;
};

static struct elements elements_of(const struct far_val *v)
{
	if (v->type == FAR_TYPE_BYTES)
		return (struct elements){v->u.s.data, v->u.s.len, true};
	if (v->type != FAR_TYPE_TENSOR)
		return (struct elements){NULL, 0, true};
	const struct far_tensor *t = far_val_tensor(v);
	return (struct elements){t->data, wire_tensor_bytes(wire_dtype_bytes[t->dtype & 15], t->ndim, t->shape),
				 !t->strides};
}

/* The pieces so far. What is written lies at head[0, used); [open, used) of it is in no piece yet. */
struct split {
	uint8_t *head;
	size_t used, open;
	struct values_part *parts;
	unsigned n;
};

static bool add(struct split *s, const void *at, size_t len)
{
	if (s->n == VALUES_PARTS_MAX)
		return false;
	s->parts[s->n++] = (struct values_part){at, len};
	return true;
}

static bool close_piece(struct split *s)
{
	bool ok = s->used == s->open || add(s, s->head + s->open, s->used - s->open);
	s->open = s->used;
	return ok;
}

/* The next piece is aligned as the payload is at `pos`. */
static bool open_piece(struct split *s, size_t pos)
{
	size_t skip = (pos - s->used) % WIRE_WIDE_ALIGN;
	if (skip > VALUES_HEAD_BYTES - s->used)
		return false;
	s->open = s->used += skip;
	return true;
}

static bool pad(struct split *s, size_t n)
{
	if (n > VALUES_HEAD_BYTES - s->used)
		return false;
	memset(s->head + s->used, 0, n);
	s->used += n;
	return true;
}

static bool add_elements(struct split *s, const struct elements *e, bool stays)
{
	if (stays)
		return close_piece(s) && add(s, e->at, e->bytes);
	if (!e->dense || e->bytes > VALUES_HEAD_BYTES - s->used)
		return false;
	memcpy(s->head + s->used, e->at, e->bytes);
	s->used += e->bytes;
	return true;
}

/* Bytes of all elements, each aligned; SIZE_MAX: none stays. */
static size_t section_bytes(const struct far_val *v, size_t n, bool (*stays)(const void *at, size_t len))
{
	size_t bytes = 0;
	bool any = false;
	for (size_t i = 0; i < n; i++) {
		struct elements e = elements_of(&v[i]);
		if (!e.bytes)
			continue;
		any |= e.dense && stays(e.at, e.bytes);
		bytes = wire_align(bytes, WIRE_WIDE_ALIGN) + e.bytes;
	}
	return any ? bytes : SIZE_MAX;
}

unsigned values_split(const struct far_val *v, size_t n, const struct values_plan *plan,
		      bool (*stays)(const void *at, size_t len), uint8_t *head, struct values_part *parts)
{
	struct split s = {.head = head, .parts = parts};
	if (plan->items | plan->customs | plan->rrefs || plan->size <= FAR_LINE_PAYLOAD)
		return 0;
	size_t section = section_bytes(v, n, stays), pos = 0; /* in the section, which is aligned */
	if (section == SIZE_MAX || plan->size - section > VALUES_HEAD_BYTES)
		return 0;
	s.used = values_write_stream(v, n, plan, head);
	if (!pad(&s, plan->size - section - s.used))
		return 0;
	for (size_t i = 0; i < n; i++) {
		struct elements e = elements_of(&v[i]);
		if (!e.bytes)
			continue;
		size_t at = wire_align(pos, WIRE_WIDE_ALIGN);
		bool keeps = e.dense && stays(e.at, e.bytes);
		if (!pad(&s, at - pos) || !add_elements(&s, &e, keeps))
			return 0;
		pos = at + e.bytes;
		if (keeps && !open_piece(&s, pos))
			return 0;
	}
	return close_piece(&s) ? s.n : 0;
}

const uint8_t *values_scattered_at(const struct values_scattered *from, uint64_t at, uint64_t len)
{
	for (unsigned i = 0; i < from->n; i++) {
		if (at >= from->part[i].len) {
			at -= from->part[i].len;
			continue;
		}
		return len <= from->part[i].len - at ? from->part[i].at + at : NULL;
	}
	return NULL;
}
