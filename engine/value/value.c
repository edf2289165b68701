/* SPDX-License-Identifier: BSD-3-Clause */
/** <farcall/value.h>: sizes and names of types, printing of values. Any thread. */
#include "value/half.h"

#include "base/rref.h"

#include <farcall/value.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>

/* Limits of printed values: elements, bytes of a string, bytes of a bytes value, depth. */
#define PRINT_ELEMENTS_MAX 8
#define PRINT_TEXT_MAX     64
#define PRINT_BYTES_MAX    16
#define PRINT_DEPTH_MAX    4

static const struct {
	const char *name;
	size_t bytes;
} dtypes[FAR_DTYPE_COUNT] = {[FAR_DTYPE_NONE] = {"?", 0},
#define DTYPE_ENTRY(name, bytes, text) [FAR_##name] = {text, bytes},
			     FAR_DTYPE_LIST(DTYPE_ENTRY)
#undef DTYPE_ENTRY
};

static const char *const type_names[FAR_TYPE_COUNT] = {
	[FAR_TYPE_NONE] = "none",     [FAR_TYPE_BOOL] = "bool",     [FAR_TYPE_INT] = "int",
	[FAR_TYPE_FLOAT] = "float",   [FAR_TYPE_STRING] = "string", [FAR_TYPE_BYTES] = "bytes",
	[FAR_TYPE_TENSOR] = "tensor", [FAR_TYPE_LIST] = "list",     [FAR_TYPE_DICT] = "dict",
	[FAR_TYPE_CUSTOM] = "custom", [FAR_TYPE_RREF] = "rref"};

size_t far_dtype_size(enum far_dtype dtype)
{
	return (unsigned)dtype < FAR_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

const char *far_dtype_name(enum far_dtype dtype)
{
	return (unsigned)dtype < FAR_DTYPE_COUNT ? dtypes[dtype].name : "?";
}

const char *far_type_name(enum far_type type)
{
	return (unsigned)type < FAR_TYPE_COUNT ? type_names[type] : "?";
}

/* SIZE_MAX on overflow; 0 if a dimension is 0, whatever the others are. */
static size_t shape_product(size_t first, const struct far_tensor *t)
{
	size_t product = first;
	int over = 0;
	for (unsigned k = 0; k < t->ndim && k < FAR_DIMS_MAX; k++) {
		if (t->shape[k] == 0)
			return 0;
		over |= __builtin_mul_overflow(product, t->shape[k], &product);
	}
	return over ? SIZE_MAX : product;
}

size_t far_tensor_count(const struct far_tensor *t)
{
	return shape_product(1, t);
}

size_t far_tensor_bytes(const struct far_tensor *t)
{
	return shape_product(far_dtype_size((enum far_dtype)t->dtype), t);
}

/** Prints the shortest decimal with digits_min to digits_max digits that reads back as the same number. */
static void print_float(FILE *f, double x, int digits_min, int digits_max)
{
	char text[40];
	for (int digits = digits_min; digits <= digits_max; digits++) {
		snprintf(text, sizeof text, "%.*g", digits, x);
		double back = strtod(text, NULL);
		if (digits_max <= 9 ? (float)back == (float)x : back == x)
			break;
	}
	fputs(text, f);
}

/** Offset from `data`, in elements, of element i in row-major order. */
static ptrdiff_t element_at(const struct far_tensor *t, size_t i)
{
	ptrdiff_t at = 0;
	if (!t->strides)
		return (ptrdiff_t)i;
	for (unsigned k = t->ndim; k-- > 0; i /= t->shape[k])
		at += (ptrdiff_t)(i % t->shape[k]) * t->strides[k];
	return at;
}

static void print_element(FILE *f, const struct far_tensor *t, size_t index)
{
	ptrdiff_t i = element_at(t, index);
	switch ((enum far_dtype)t->dtype) {
	case FAR_F32:
		print_float(f, (double)((const float *)t->data)[i], 6, 9);
		break;
	case FAR_F64:
		print_float(f, ((const double *)t->data)[i], 15, 17);
		break;
	case FAR_I8:
		fprintf(f, "%d", ((const int8_t *)t->data)[i]);
		break;
	case FAR_I16:
		fprintf(f, "%d", ((const int16_t *)t->data)[i]);
		break;
	case FAR_I32:
		fprintf(f, "%" PRId32, ((const int32_t *)t->data)[i]);
		break;
	case FAR_I64:
		fprintf(f, "%" PRId64, ((const int64_t *)t->data)[i]);
		break;
	case FAR_U8:
		fprintf(f, "%u", ((const uint8_t *)t->data)[i]);
		break;
	case FAR_U64:
		fprintf(f, "%" PRIu64, ((const uint64_t *)t->data)[i]);
		break;
	case FAR_BOOL:
		fputs(((const uint8_t *)t->data)[i] ? "true" : "false", f);
		break;
	case FAR_BF16:
	case FAR_F16:
		print_float(f, (double)half_to_float((enum far_dtype)t->dtype, ((const uint16_t *)t->data)[i]), 3, 9);
		break;
	case FAR_DTYPE_NONE:
	case FAR_DTYPE_COUNT:
		fputc('?', f);
		break;
	}
}

/** Number of dimensions, from the last, with a row that begins at element i. */
static unsigned rows_at(const struct far_tensor *t, size_t i)
{
	size_t row = 1;
	unsigned n = 0;
	while (n < t->ndim) {
		row *= t->shape[t->ndim - 1 - n];
		if (i % row != 0)
			break;
		n++;
	}
	return n;
}

static void print_times(FILE *f, int c, unsigned n)
{
	while (n-- > 0)
		fputc(c, f);
}

static void print_elements(FILE *f, const struct far_tensor *t, size_t count)
{
	if (count == 0 || !t->data) {
		fputs(count == 0 ? "[]" : "(null)", f);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		unsigned rows = rows_at(t, i);
		if (i > 0) {
			print_times(f, ']', rows);
			fputs(", ", f);
		}
		if (i == PRINT_ELEMENTS_MAX) {
			/* The brackets closed above stay closed; the others end with the text. */
			fputs("...", f);
			print_times(f, ']', t->ndim - rows);
			return;
		}
		print_times(f, '[', rows);
		print_element(f, t, i);
	}
	print_times(f, ']', t->ndim);
}

static void print_tensor(FILE *f, const struct far_tensor *t)
{
	if (t->ndim > FAR_DIMS_MAX || far_dtype_size((enum far_dtype)t->dtype) == 0) {
		fputs("tensor(invalid)", f);
		return;
	}
	fprintf(f, "%s[", far_dtype_name((enum far_dtype)t->dtype));
	for (unsigned k = 0; k < t->ndim; k++)
		fprintf(f, "%s%" PRIu64, k ? "," : "", t->shape[k]);
	fputs("] ", f);
	size_t count = far_tensor_count(t);
	if (count == SIZE_MAX)
		fputs("(too large)", f);
	else
		print_elements(f, t, count);
}

static void print_string(FILE *f, const unsigned char *s, size_t len)
{
	size_t shown = len < PRINT_TEXT_MAX ? len : PRINT_TEXT_MAX;
	/* Do not cut a UTF-8 character. */
	while (shown < len && shown > PRINT_TEXT_MAX - 4 && (s[shown] & 0xc0) == 0x80)
		shown--;
	fputc('"', f);
	for (size_t i = 0; i < shown; i++) {
		if (s[i] == '"' || s[i] == '\\')
			fprintf(f, "\\%c", s[i]);
		else if (s[i] == '\n')
			fputs("\\n", f);
		else if (s[i] == '\t')
			fputs("\\t", f);
		else if (s[i] < 0x20 || s[i] == 0x7f)
			fprintf(f, "\\x%02x", s[i]);
		else
			fputc(s[i], f);
	}
	fputs(shown < len ? "\"..." : "\"", f);
}

static void print_bytes(FILE *f, const unsigned char *s, size_t len)
{
	fprintf(f, "bytes[%zu]", len);
	for (size_t i = 0; i < len && i < PRINT_BYTES_MAX; i++)
		fprintf(f, " %02x", s[i]);
	if (len > PRINT_BYTES_MAX)
		fputs(" ...", f);
}

static void print_value(FILE *f, const struct far_val *v, unsigned depth);

/** Prints the separator before item i of a list or dict; false: the limit is reached. */
static bool print_between(FILE *f, size_t i)
{
	if (i > 0)
		fputs(", ", f);
	if (i < PRINT_ELEMENTS_MAX)
		return true;
	fputs("...", f);
	return false;
}

static void print_list(FILE *f, const struct far_val *v, unsigned depth)
{
	fputc('[', f);
	for (size_t i = 0; v->u.list.items && i < v->u.list.n && print_between(f, i); i++)
		print_value(f, &v->u.list.items[i], depth + 1);
	fputc(']', f);
}

static void print_dict(FILE *f, const struct far_val *v, unsigned depth)
{
	fputc('{', f);
	for (size_t i = 0; v->u.dict.entries && i < v->u.dict.n && print_between(f, i); i++) {
		print_value(f, &v->u.dict.entries[i].key, depth + 1);
		fputs(": ", f);
		print_value(f, &v->u.dict.entries[i].value, depth + 1);
	}
	fputc('}', f);
}

static void print_value(FILE *f, const struct far_val *v, unsigned depth)
{
	switch ((enum far_type)v->type) {
	case FAR_TYPE_NONE:
		fputs("none", f);
		return;
	case FAR_TYPE_BOOL:
		fputs(v->u.b ? "true" : "false", f);
		return;
	case FAR_TYPE_INT:
		fprintf(f, "%" PRId64, v->u.i);
		return;
	case FAR_TYPE_FLOAT:
		print_float(f, v->u.f, 15, 17);
		return;
	case FAR_TYPE_STRING:
		print_string(f, v->u.s.data, v->u.s.data ? v->u.s.len : 0);
		return;
	case FAR_TYPE_BYTES:
		print_bytes(f, v->u.s.data, v->u.s.data ? v->u.s.len : 0);
		return;
	case FAR_TYPE_TENSOR:
		print_tensor(f, far_val_tensor(v));
		return;
	case FAR_TYPE_LIST:
	case FAR_TYPE_DICT:
		if (depth == PRINT_DEPTH_MAX)
			fputs(v->type == FAR_TYPE_LIST ? "[...]" : "{...}", f);
		else if (v->type == FAR_TYPE_LIST)
			print_list(f, v, depth);
		else
			print_dict(f, v, depth);
		return;
	case FAR_TYPE_CUSTOM:
		fprintf(f, "%s(...)", v->u.custom.type && v->u.custom.type->name ? v->u.custom.type->name : "?");
		return;
	case FAR_TYPE_RREF: {
		char text[RREF_TEXT_MAX];
		fputs(v->u.rref ? rref_text((const struct rref_base *)v->u.rref, text, sizeof text) : "rref(NULL)", f);
		return;
	}
	case FAR_TYPE_UINT:
		fprintf(f, "%" PRIu64, (uint64_t)v->u.i);
		return;
	case FAR_TYPE_COUNT:
		break;
	}
	fputc('?', f);
}

void far_val_print(FILE *f, const struct far_val *v)
{
	print_value(f, v, 0);
}
