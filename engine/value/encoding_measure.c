/* SPDX-License-Identifier: BSD-3-Clause */
/** values_size(): checks values of the application and measures their payload. Any thread. */
#include "base/error.h"
#include "base/must.h"
#include "value/dict.h"
#include "value/encoding.h"
#include "value/encoding_layout.h"

#include <farcall/message.h>
#include <inttypes.h>
#include <stdarg.h>

/* Totals of a walk over the values, in bytes and counts. */
struct measure {
	size_t stream;
	size_t strings;
	uint32_t items, customs, rrefs;
	struct wire_data data;
	struct values_plan *plan;
	struct far_err *err;
};

/* Position of a value: argument i, `depth` lists and dicts down. */
struct position {
	size_t i;
	unsigned depth;
};

__attribute__((format(printf, 4, 5), cold, noinline)) static int wrong(struct far_err *err, enum far_status status,
								       struct position at, const char *format, ...)
{
	char what[256];
	va_list args;
	va_start(args, format);
	vsnprintf(what, sizeof what, format, args);
	va_end(args);
	err_set(err, status, "argument %zu%s: %s", at.i + 1, at.depth ? ", inside it" : "", what);
	return -1;
}

static int too_large(struct measure *m, struct position at, const char *what)
{
	return wrong(m->err, FAR_TOO_LARGE, at, "the %s is larger than a message carries, %zu bytes", what,
		     FAR_MSG_BYTES_MAX);
}

/** The error for a tensor that tensor_measure() refused. Out of line: the path of a valid tensor stays short. */
static __attribute__((cold, noinline)) int tensor_wrong(struct measure *m, const struct far_tensor *t,
							struct position at)
{
	if (t->dtype == FAR_DTYPE_NONE || t->dtype >= FAR_DTYPE_COUNT)
		return wrong(m->err, FAR_INVALID, at, "%u is not a dtype of a tensor", t->dtype);
	if (t->ndim > FAR_DIMS_MAX)
		return wrong(m->err, FAR_INVALID, at, "a tensor of %u dimensions, at most %d are possible", t->ndim,
			     FAR_DIMS_MAX);
	if (t->domain != 0)
		return wrong(m->err, FAR_INVALID, at, "memory domain %u of a tensor, only 0 (host) is supported",
			     t->domain);
	if (wire_tensor_bytes(wire_dtype_bytes[t->dtype], t->ndim, t->shape) > FAR_MSG_BYTES_MAX)
		return too_large(m, at, "tensor");
	return wrong(m->err, FAR_INVALID, at, "a tensor with elements whose data is NULL");
}

static inline int tensor_measure(struct measure *m, const struct far_tensor *t, struct position at)
{
	if (unlikely(t->dtype == FAR_DTYPE_NONE || t->dtype >= FAR_DTYPE_COUNT || t->ndim > FAR_DIMS_MAX ||
		     t->domain != 0))
		return tensor_wrong(m, t, at);
	size_t element = wire_dtype_bytes[t->dtype];
	size_t bytes = wire_tensor_bytes(element, t->ndim, t->shape);
	if (unlikely(bytes > FAR_MSG_BYTES_MAX || (bytes > 0 && !t->data)))
		return tensor_wrong(m, t, at);
	m->stream += 1 + wire_tensor_head_size(t->ndim, t->shape);
	wire_data_add(&m->data, element, bytes);
	return 0;
}

static int text_measure(struct measure *m, const struct far_val *v, struct position at)
{
	bool string = v->type == FAR_TYPE_STRING;
	size_t len = v->u.s.len;
	if (len > 0 && !v->u.s.data)
		return wrong(m->err, FAR_INVALID, at, "a %s of %zu bytes whose data is NULL",
			     string ? "string" : "bytes value", len);
	m->stream += wire_varint_size(len);
	if (!string) {
		if (len > FAR_MSG_BYTES_MAX)
			return too_large(m, at, "bytes value");
		wire_data_add(&m->data, 1, len);
		return 0;
	}
	if (len >= FAR_STRINGS_BYTES_MAX - m->strings)
		return wrong(m->err, FAR_TOO_LARGE, at,
			     "the strings of a call take more than %d bytes, pass longer texts as bytes",
			     FAR_STRINGS_BYTES_MAX);
	m->strings += len + 1;
	m->stream += len + 1;
	return 0;
}

static int custom_measure(struct measure *m, const struct far_val *v, struct position at)
{
	const struct far_custom_type *type = v->u.custom.type;
	if (!type || !type->name || !type->size || !type->encode)
		return wrong(m->err, FAR_INVALID, at,
			     "a value of a custom type whose type, name, size or encode is NULL");
	if (m->customs == FAR_CUSTOMS_MAX)
		return wrong(m->err, FAR_TOO_LARGE, at,
			     "more than %d values of custom types in a message; make a type that holds several",
			     FAR_CUSTOMS_MAX);
	size_t len = type->size(v->u.custom.object, type->user);
	if (len == SIZE_MAX)
		return wrong(m->err, FAR_INVALID, at,
			     "this object of type %.100s cannot be sent (its size function returned SIZE_MAX)",
			     type->name);
	if (len > FAR_MSG_BYTES_MAX)
		return too_large(m, at, "object of a custom type");
	m->plan->custom_bytes[m->customs++] = (uint32_t)len;
	m->stream += 8 + wire_varint_size(len);
	wire_data_add(&m->data, WIRE_CUSTOM_ALIGN, len);
	return 0;
}

static int rref_measure(struct measure *m, const struct far_val *v, struct position at)
{
	if (!v->u.rref)
		return wrong(m->err, FAR_INVALID, at, "a reference that is NULL");
	if (m->rrefs == FAR_RREFS_MAX)
		return wrong(m->err, FAR_TOO_LARGE, at, "more than %d references in a message", FAR_RREFS_MAX);
	m->rrefs++;
	m->stream += RREF_WIRE_BYTES;
	return 0;
}

static int value_measure(struct measure *m, const struct far_val *v, struct position at);

/** Counts `n` * `per` items one level down, or fails. */
static int descend(struct measure *m, const void *items, size_t n, size_t per, struct position *at)
{
	if (n > 0 && !items)
		return wrong(m->err, FAR_INVALID, *at, "a list or dict of %zu whose items are NULL", n);
	if (at->depth == FAR_DEPTH_MAX)
		return wrong(m->err, FAR_TOO_LARGE, *at, "lists and dicts nested more than %d deep", FAR_DEPTH_MAX);
	if (n > (FAR_ITEMS_MAX - m->items) / per)
		return wrong(m->err, FAR_TOO_LARGE, *at,
			     "the lists and dicts of a message have more than %d items, pass numbers as a tensor",
			     FAR_ITEMS_MAX);
	m->items += (uint32_t)(n * per);
	m->stream += wire_varint_size(n);
	at->depth++;
	return 0;
}

static int list_measure(struct measure *m, const struct far_val *v, struct position at)
{
	int rc = descend(m, v->u.list.items, v->u.list.n, 1, &at);
	for (size_t k = 0; !rc && k < v->u.list.n; k++)
		rc = value_measure(m, &v->u.list.items[k], at);
	return rc;
}

static int dict_measure(struct measure *m, const struct far_val *v, struct position at)
{
	const struct far_dict_entry *entries = v->u.dict.entries;
	size_t n = v->u.dict.n, bad;
	int rc = descend(m, entries, n, 2, &at);
	for (size_t k = 0; !rc && k < n; k++) {
		rc = value_measure(m, &entries[k].key, at);
		if (!rc)
			rc = value_measure(m, &entries[k].value, at);
	}
	if (rc)
		return rc;
	switch (dict_check(entries, n, &bad)) {
	case DICT_OK:
		return 0;
	case DICT_KEY_TYPE:
		return wrong(m->err, FAR_INVALID, at, "key %zu of a dict is a %s, keys are bool, int, float or string",
			     bad + 1, far_type_name((enum far_type)entries[bad].key.type));
	case DICT_KEY_NAN:
		return wrong(m->err, FAR_INVALID, at, "key %zu of a dict is NaN, which equals nothing", bad + 1);
	case DICT_KEY_DUPLICATE:
		return wrong(m->err, FAR_INVALID, at, "key %zu of a dict is a duplicate", bad + 1);
	case DICT_TOO_LONG:
		break;
	}
	return wrong(m->err, FAR_TOO_LARGE, at, "a dict of %zu entries, at most %d are possible", n, FAR_DICT_MAX);
}

static int value_measure(struct measure *m, const struct far_val *v, struct position at)
{
	if (unlikely(v->kw != NULL))
		return wrong(m->err, FAR_INVALID, at,
			     "keyword \"%.64s\" is not allowed here, pass the value by position", v->kw);
	if (v->type == FAR_TYPE_TENSOR) {
		const struct far_tensor *t = far_val_tensor(v);
		return t ? tensor_measure(m, t, at)
			 : wrong(m->err, FAR_INVALID, at, "a pointer to a tensor that is NULL");
	}
	m->stream += 1;
	switch ((enum far_type)v->type) {
	case FAR_TYPE_NONE:
		return 0;
	case FAR_TYPE_BOOL:
		m->stream += 1;
		return 0;
	case FAR_TYPE_INT:
		m->stream += wire_varint_size(wire_zigzag(v->u.i));
		return 0;
	case FAR_TYPE_FLOAT:
		m->stream += 8;
		return 0;
	case FAR_TYPE_STRING:
	case FAR_TYPE_BYTES:
		return text_measure(m, v, at);
	case FAR_TYPE_LIST:
		return list_measure(m, v, at);
	case FAR_TYPE_DICT:
		return dict_measure(m, v, at);
	case FAR_TYPE_CUSTOM:
		return custom_measure(m, v, at);
	case FAR_TYPE_RREF:
		return rref_measure(m, v, at);
	case FAR_TYPE_TENSOR:
	case FAR_TYPE_COUNT:
		break;
	case FAR_TYPE_UINT:
		return wrong(m->err, FAR_INVALID, at, "%" PRIu64 " is beyond the largest int %" PRId64,
			     (uint64_t)v->u.i, INT64_MAX);
	}
	return wrong(m->err, FAR_INVALID, at, "%u is not a type of a value", v->type);
}

static __attribute__((cold, noinline)) size_t whole_too_large(size_t size, struct far_err *err)
{
	err_set(err, FAR_TOO_LARGE, "the arguments take %zu bytes, a message carries at most %zu", size,
		FAR_MSG_BYTES_MAX);
	return SIZE_MAX;
}

static __attribute__((cold, noinline)) size_t too_many(size_t n, struct far_err *err)
{
	err_set(err, FAR_INVALID, "%zu arguments, at most %d are possible", n, FAR_ARGS_MAX);
	return SIZE_MAX;
}

/** Bytes of a payload of VALUES_LINE; 0: another form, or invalid: general_size() decides. */
static inline size_t line_size(const struct far_val *v, size_t n)
{
	size_t pos = 1 + 4 * n;
	if (n - 1 >= FAR_LINE_PAYLOAD / 4 - 1)
		return 0;
	for (size_t i = 0; i < n; i++) {
		const struct far_tensor *t = far_val_tensor(&v[i]);
		if (unlikely(v[i].type != FAR_TYPE_TENSOR || !t))
			return 0;
		size_t element = wire_dtype_bytes[t->dtype & 15];
		if (unlikely(t->dtype >= FAR_DTYPE_COUNT || t->ndim != 1 || t->domain != 0 || t->shape[0] - 1 >= 127))
			return 0;
		if (unlikely(element == 0 || !t->data || t->strides || v[i].kw))
			return 0;
		pos = wire_align(pos, element) + element * t->shape[0];
	}
	return pos <= FAR_LINE_PAYLOAD ? pos : 0;
}

/** Bytes of a payload of VALUES_PLAIN; 0: another form, or invalid. */
static inline size_t plain_size(const struct far_val *v, size_t n)
{
	struct wire_data d;
	size_t stream = 1;
	wire_data_init(&d);
	for (size_t i = 0; i < n; i++) {
		const struct far_tensor *t = far_val_tensor(&v[i]);
		if (unlikely(v[i].type != FAR_TYPE_TENSOR || v[i].kw || !t || t->strides))
			return 0;
		size_t element = wire_dtype_bytes[t->dtype & 15];
		if (unlikely(t->dtype >= FAR_DTYPE_COUNT || element == 0 || t->ndim > FAR_DIMS_MAX || t->domain != 0))
			return 0;
		size_t bytes = wire_tensor_bytes(element, t->ndim, t->shape);
		if (unlikely(bytes > FAR_MSG_BYTES_MAX || (bytes > 0 && !t->data)))
			return 0;
		stream += 1 + wire_tensor_head_size(t->ndim, t->shape);
		wire_data_add(&d, element, bytes);
	}
	return wire_payload_size(&d, stream);
}

static __attribute__((noinline)) size_t general_size(const struct far_val *v, size_t n, struct values_plan *plan,
						     struct far_err *err)
{
	struct measure m;
	m.stream = 1;
	m.strings = 0;
	m.items = 0;
	m.customs = 0;
	m.rrefs = 0;
	m.plan = plan;
	m.err = err;
	wire_data_init(&m.data);
	for (size_t i = 0; i < n; i++)
		if (value_measure(&m, &v[i], (struct position){i, 0}) != 0)
			return SIZE_MAX;
	if (m.items)
		m.stream += wire_varint_size(m.items);
	plan->form = VALUES_GENERAL;
	plan->items = m.items;
	plan->customs = m.customs;
	plan->rrefs = m.rrefs;
	plan->put_rref = NULL;
	plan->size = wire_payload_size(&m.data, m.stream);
	return plan->size <= FAR_MSG_BYTES_MAX ? plan->size : whole_too_large(plan->size, err);
}

size_t values_size(const struct far_val *v, size_t n, struct values_plan *plan, struct far_err *err)
{
	if (unlikely(n > FAR_ARGS_MAX))
		return too_many(n, err);
	size_t size = line_size(v, n);
	plan->form = VALUES_LINE;
	if (unlikely(size == 0)) {
		size = plain_size(v, n);
		plan->form = VALUES_PLAIN;
	}
	if (unlikely(size == 0 || size > FAR_MSG_BYTES_MAX))
		return general_size(v, n, plan, err);
	plan->items = 0;
	plan->customs = 0;
	plan->rrefs = 0;
	plan->size = size;
	return size;
}
