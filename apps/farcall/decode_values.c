/* SPDX-License-Identifier: BSD-3-Clause */
/** Prints the typed values of a captured call. Main thread. */
#include "decode.h"
#include "features/references/wire.h"
#include "value/encoding.h"
#include "value/encoding_layout.h"
#include <farcall/message.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN 32u /* bytes of data that are printed */

static const char *const dtype_names[FAR_DTYPE_COUNT] = {
#define DTYPE_NAME(name, bytes, text) [FAR_##name] = (text),
	FAR_DTYPE_LIST(DTYPE_NAME)
#undef DTYPE_NAME
};

struct memory {
	struct values_arena arena;
	void *items;
	size_t rrefs_n;
	struct rref_wire rrefs[FAR_RREFS_MAX];
};

static int keep_rref(struct values_arena *arena, const uint8_t *src, struct far_val *v)
{
	struct memory *m = (struct memory *)(void *)arena;
	struct rref_wire *w = &m->rrefs[m->rrefs_n++];
	rref_get(src, w);
	v->u.rref = (struct far_rref *)(void *)w;
	return 0;
}

static void print_rref(FILE *out, const struct rref_wire *w)
{
	fprintf(out,
		"rref(%016" PRIx64 ",%016" PRIx64 ",%016" PRIx64 ",%016" PRIx64 ",%016" PRIx64 ",%04x,%016" PRIx64 ")",
		w->owner, w->id.incarnation, w->id.number, w->fork.incarnation, w->fork.number, (unsigned)w->types,
		w->cls);
}

/* The reader allocates once; strings and custom values stay in place. */
static void *more(struct values_arena *arena, size_t bytes)
{
	struct memory *m = (struct memory *)(void *)arena;
	return m->items ? NULL : (m->items = malloc(bytes));
}

void decode_data(FILE *out, const uint8_t *bytes, uint64_t len)
{
	fprintf(out, "%" PRIu64 ":", len);
	for (uint64_t i = 0; i < len && i < SHOWN; i++)
		fprintf(out, "%02x", bytes[i]);
	if (len > SHOWN)
		fputs("..", out);
}

void decode_text(FILE *out, const char *text, size_t len)
{
	fputc('"', out);
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];
		if (c >= 32 && c < 127 && c != '"' && c != '\\')
			fputc(c, out);
		else
			fprintf(out, "\\x%02x", c);
	}
	fputc('"', out);
}

static void print_value(FILE *out, const struct far_val *v);

static void print_tensor(FILE *out, const struct far_tensor *t)
{
	fprintf(out, "%s[", dtype_names[t->dtype]);
	for (unsigned k = 0; k < t->ndim; k++)
		fprintf(out, "%s%" PRIu64, k ? "," : "", t->shape[k]);
	fputs("](", out);
	decode_data(out, t->data, wire_tensor_bytes(wire_dtype_bytes[t->dtype], t->ndim, t->shape));
	fputc(')', out);
}

static void print_items(FILE *out, const struct far_val *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (i)
			fputc(',', out);
		print_value(out, &v[i]);
	}
}

static void print_dict(FILE *out, const struct far_val *v)
{
	fputc('{', out);
	for (size_t i = 0; i < v->u.dict.n; i++) {
		if (i)
			fputc(',', out);
		print_value(out, &v->u.dict.entries[i].key);
		fputc(':', out);
		print_value(out, &v->u.dict.entries[i].value);
	}
	fputc('}', out);
}

/* Nests to FAR_DEPTH_MAX, which the reader has checked. */
static void print_value(FILE *out, const struct far_val *v)
{
	switch ((enum far_type)v->type) {
	case FAR_TYPE_BOOL:
		fputs(v->u.b ? "true" : "false", out);
		break;
	case FAR_TYPE_INT:
		fprintf(out, "%" PRId64, (int64_t)v->u.i);
		break;
	case FAR_TYPE_FLOAT:
		if (isnan(v->u.f))
			fputs("nan", out);
		else
			fprintf(out, "%.17g", v->u.f);
		break;
	case FAR_TYPE_STRING:
		decode_text(out, v->u.s.data, v->u.s.len);
		break;
	case FAR_TYPE_BYTES:
		decode_data(out, v->u.s.data, v->u.s.len);
		break;
	case FAR_TYPE_TENSOR:
		print_tensor(out, &v->u.t);
		break;
	case FAR_TYPE_LIST:
		fputc('[', out);
		print_items(out, v->u.list.items, v->u.list.n);
		fputc(']', out);
		break;
	case FAR_TYPE_DICT:
		print_dict(out, v);
		break;
	case FAR_TYPE_CUSTOM:
		fprintf(out, "custom(%016" PRIx64 ",", (uint64_t)v->u.custom.hash);
		decode_data(out, v->u.custom.object, v->u.custom.len);
		fputc(')', out);
		break;
	case FAR_TYPE_RREF:
		print_rref(out, (const struct rref_wire *)(const void *)v->u.rref);
		break;
	default:
		fputs("none", out);
	}
}

bool decode_values(FILE *out, const uint8_t *bytes, size_t len, bool one)
{
	struct memory memory = {.arena = {.more = more, .rref = keep_rref}};
	struct far_val values[FAR_ARGS_MAX];
	size_t n;
	/* Aligned as the engine's buffers are. */
	uint8_t *copy = aligned_alloc(64, (len + 64) & ~(size_t)63);
	bool ok = copy != NULL;
	if (ok) {
		memcpy(copy, bytes, len);
		ok = values_read(copy, len, values, FAR_ARGS_MAX, &n, &memory.arena) == 0 && (!one || n == 1);
	}
	if (ok) {
		fputs(" [values] (", out);
		print_items(out, values, n);
		fputc(')', out);
	}
	free(memory.items);
	free(copy);
	return ok;
}
