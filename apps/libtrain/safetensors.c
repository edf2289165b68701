/* SPDX-License-Identifier: BSD-3-Clause */
/** The header of a safetensors file. Any thread. */
#include "safetensors.h"

#include "fail.h"

#include <inttypes.h>
#include <stdlib.h>

static const struct {
	const char *name;
	enum far_dtype dtype;
} dtypes[] = {
	{"F64", FAR_F64}, {"F32", FAR_F32}, {"F16", FAR_F16}, {"BF16", FAR_BF16}, {"I64", FAR_I64},   {"I32", FAR_I32},
	{"I16", FAR_I16}, {"I8", FAR_I8},   {"U64", FAR_U64}, {"U8", FAR_U8},     {"BOOL", FAR_BOOL},
};

/* ---- JSON ---- */

struct reader {
	char *header;
	size_t at, len;
	struct far_err *err;
};

static enum far_status bad(const struct reader *r, const char *what)
{
	return fail(r->err, FAR_INVALID, "safetensors: byte %zu of the header: %s", r->at, what);
}

static void skip_space(struct reader *r)
{
	while (r->at < r->len && memchr(" \t\r\n", r->header[r->at], 4))
		r->at++;
}

/** Is `c` next, after space; then it is read. */
static bool next_is(struct reader *r, char c)
{
	skip_space(r);
	if (r->at >= r->len || r->header[r->at] != c)
		return false;
	r->at++;
	return true;
}

static enum far_status expect(struct reader *r, char c)
{
	char what[] = "'?' expected";
	what[1] = c;
	return next_is(r, c) ? FAR_OK : bad(r, what);
}

/** Four hexadecimal digits. */
static enum far_status read_hex(struct reader *r, unsigned *out)
{
	*out = 0;
	for (int i = 0; i < 4; i++, r->at++) {
		char c = r->at < r->len ? r->header[r->at] : '\0';
		unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
				 : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
				 : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
							: 16;
		if (digit == 16)
			return bad(r, "four hexadecimal digits expected");
		*out = *out * 16 + digit;
	}
	return FAR_OK;
}

/** The character of \uXXXX or a pair of them, as UTF-8: at most as long as the escape. */
static enum far_status read_unicode(struct reader *r, char **to)
{
	unsigned code, low;
	TRY(read_hex(r, &code));
	if (code >= 0xd800 && code < 0xdc00) {
		if (r->len - r->at < 2 || r->header[r->at] != '\\' || r->header[r->at + 1] != 'u')
			return bad(r, "the second half of a surrogate pair expected");
		r->at += 2;
		TRY(read_hex(r, &low));
		if (low < 0xdc00 || low >= 0xe000)
			return bad(r, "the second half of a surrogate pair expected");
		code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
	} else if (code == 0 || (code >= 0xdc00 && code < 0xe000)) {
		return bad(r, "not a character of a name");
	}
	unsigned more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
	static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
	*(*to)++ = (char)(first[more] | code >> (6 * more));
	while (more-- > 0)
		*(*to)++ = (char)(0x80 | (code >> (6 * more) & 0x3f));
	return FAR_OK;
}

/** A string, decoded in its place and ended by a NUL. */
static enum far_status read_string(struct reader *r, const char **out)
{
	static const char escapes[] = "\"\\/bfnrt";
	static const char meant[] = "\"\\/\b\f\n\r\t";
	TRY(expect(r, '"'));
	char *to = r->header + r->at;
	*out = to;
	for (;;) {
		if (r->at >= r->len)
			return bad(r, "the header ends in a string");
		unsigned char c = (unsigned char)r->header[r->at];
		if (c < 0x20)
			return bad(r, "a control character in a string");
		r->at++;
		if (c == '"')
			break;
		if (c != '\\') {
			*to++ = (char)c;
			continue;
		}
		char escape = r->at < r->len ? r->header[r->at] : '\0';
		const char *known = escape ? strchr(escapes, escape) : NULL;
		if (escape != 'u' && !known)
			return bad(r, "an unknown escape in a string");
		r->at++;
		if (known)
			*to++ = meant[known - escapes];
		else
			TRY(read_unicode(r, &to));
	}
	*to = '\0'; /* at the closing quote, or before it */
	return FAR_OK;
}

static enum far_status read_number(struct reader *r, uint64_t *out)
{
	skip_space(r);
	size_t first = r->at;
	*out = 0;
	while (r->at < r->len && r->header[r->at] >= '0' && r->header[r->at] <= '9') {
		if (__builtin_mul_overflow(*out, 10, out) ||
		    __builtin_add_overflow(*out, (uint64_t)(r->header[r->at] - '0'), out) || *out > PTRDIFF_MAX)
			return bad(r, "the number is too large");
		r->at++;
	}
	if (r->at == first || (r->header[first] == '0' && r->at > first + 1))
		return bad(r, "a whole number expected");
	return FAR_OK;
}

/** An array of numbers, `max` at most. */
static enum far_status read_numbers(struct reader *r, uint64_t *out, size_t max, size_t *n)
{
	*n = 0;
	TRY(expect(r, '['));
	if (next_is(r, ']'))
		return FAR_OK;
	do {
		if (*n == max)
			return bad(r, "too many numbers");
		TRY(read_number(r, &out[(*n)++]));
	} while (next_is(r, ','));
	return expect(r, ']');
}

static enum far_status read_metadata(struct reader *r)
{
	const char *ignored;
	TRY(expect(r, '{'));
	if (next_is(r, '}'))
		return FAR_OK;
	do {
		TRY(read_string(r, &ignored));
		TRY(expect(r, ':'));
		TRY(read_string(r, &ignored));
	} while (next_is(r, ','));
	return expect(r, '}');
}

/* ---- tensors ---- */

static enum far_status read_dtype(struct reader *r, struct safetensor *t)
{
	const char *name;
	TRY(read_string(r, &name));
	for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
		if (strcmp(name, dtypes[i].name) == 0) {
			t->dtype = dtypes[i].dtype;
			return FAR_OK;
		}
	return fail(r->err, FAR_UNSUPPORTED,
		    "safetensors: \"%.100s\" has the dtype \"%.20s\", which tensors do not have", t->name, name);
}

static enum far_status read_shape(struct reader *r, struct safetensor *t)
{
	uint64_t shape[64]; /* more than are supported, to distinguish many dimensions from a malformed header */
	size_t n;
	TRY(read_numbers(r, shape, 64, &n));
	if (n > FAR_DIMS_MAX)
		return fail(r->err, FAR_UNSUPPORTED, "safetensors: \"%.100s\" has %zu dimensions, the limit is %d",
			    t->name, n, FAR_DIMS_MAX);
	t->ndim = (unsigned)n;
	memcpy(t->shape, shape, n * sizeof *shape);
	return FAR_OK;
}

/** Dtype, shape and offsets fit each other and the file. */
static enum far_status check_tensor(const struct reader *r, const struct safetensor *t, uint64_t data_bytes)
{
	uint64_t bytes = far_dtype_size(t->dtype);
	bool fits = true;
	for (unsigned k = 0; k < t->ndim; k++)
		fits = fits && !__builtin_mul_overflow(bytes, t->shape[k], &bytes);
	if (t->end > data_bytes)
		return fail(r->err, FAR_INVALID,
			    "safetensors: \"%.100s\" ends at byte %" PRIu64 " of the data, which have %" PRIu64
			    ": the file is cut or wrong",
			    t->name, t->end, data_bytes);
	if (t->begin > t->end || !fits || t->end - t->begin != bytes)
		return fail(r->err, FAR_INVALID,
			    "safetensors: the offsets [%" PRIu64 ", %" PRIu64 ") of \"%.100s\" do not fit its shape",
			    t->begin, t->end, t->name);
	return FAR_OK;
}

static enum far_status read_tensor(struct reader *r, struct safetensor *t, uint64_t data_bytes)
{
	uint64_t offsets[2];
	size_t offsets_n = 0;
	bool shape = false;
	TRY(expect(r, '{'));
	do {
		const char *key;
		TRY(read_string(r, &key));
		TRY(expect(r, ':'));
		if (strcmp(key, "dtype") == 0 && t->dtype == FAR_DTYPE_NONE) {
			TRY(read_dtype(r, t));
		} else if (strcmp(key, "shape") == 0 && !shape) {
			TRY(read_shape(r, t));
			shape = true;
		} else if (strcmp(key, "data_offsets") == 0 && offsets_n == 0) {
			TRY(read_numbers(r, offsets, 2, &offsets_n));
			if (offsets_n != 2)
				return bad(r, "two offsets expected");
		} else {
			return bad(r, "a key of a tensor that is unknown or there twice");
		}
	} while (next_is(r, ','));
	TRY(expect(r, '}'));
	if (t->dtype == FAR_DTYPE_NONE || !shape || offsets_n == 0)
		return bad(r, "a tensor without dtype, shape or data_offsets");
	t->begin = offsets[0];
	t->end = offsets[1];
	return check_tensor(r, t, data_bytes);
}

static enum far_status add_tensor(struct reader *r, struct safetensors *s, const char *name, uint64_t data_bytes)
{
	if ((s->n & (s->n - 1)) == 0) { /* a power of two: the array is full */
		size_t more = s->n ? 2 * s->n : 1;
		struct safetensor *larger = realloc(s->tensors, more * sizeof *larger);
		if (!larger)
			return fail_memory(r->err, "safetensors", more * sizeof *larger);
		s->tensors = larger;
	}
	struct safetensor *t = &s->tensors[s->n++];
	memset(t, 0, sizeof *t);
	t->name = name;
	return read_tensor(r, t, data_bytes);
}

/* ---- all tensors ---- */

static int by_offset(const void *a, const void *b)
{
	const struct safetensor *x = a, *y = b;
	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return x->end < y->end ? -1 : x->end > y->end;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct safetensor *)a)->name, ((const struct safetensor *)b)->name);
}

/** Each byte of the data is of one tensor, and each name is there once. */
static enum far_status check_all(struct safetensors *s, uint64_t data_bytes, struct far_err *err)
{
	uint64_t covered = 0;
	if (s->n > 0)
		qsort(s->tensors, s->n, sizeof *s->tensors, by_offset);
	for (size_t i = 0; i < s->n; i++) {
		const struct safetensor *t = &s->tensors[i];
		if (t->begin != covered)
			return fail(err, FAR_INVALID,
				    "safetensors: \"%.100s\" begins at byte %" PRIu64 " of the data, %s", t->name,
				    t->begin, t->begin < covered ? "inside another tensor" : "after unused bytes");
		covered = t->end;
	}
	if (covered != data_bytes)
		return fail(err, FAR_INVALID,
			    "safetensors: the file has %" PRIu64 " bytes of data, its tensors %" PRIu64, data_bytes,
			    covered);
	if (s->n > 0)
		qsort(s->tensors, s->n, sizeof *s->tensors, by_name);
	for (size_t i = 1; i < s->n; i++)
		if (strcmp(s->tensors[i].name, s->tensors[i - 1].name) == 0)
			return fail(err, FAR_INVALID, "safetensors: \"%.100s\" is there twice", s->tensors[i].name);
	return FAR_OK;
}

static enum far_status read_all(struct reader *r, struct safetensors *s, uint64_t data_bytes)
{
	const char *name;
	bool metadata = false;
	TRY(expect(r, '{'));
	if (!next_is(r, '}')) {
		do {
			TRY(read_string(r, &name));
			TRY(expect(r, ':'));
			if (strcmp(name, "__metadata__") != 0) {
				TRY(add_tensor(r, s, name, data_bytes));
				continue;
			}
			if (metadata)
				return bad(r, "metadata twice");
			metadata = true;
			TRY(read_metadata(r));
		} while (next_is(r, ','));
		TRY(expect(r, '}'));
	}
	skip_space(r);
	if (r->at != r->len)
		return bad(r, "text after the end");
	return check_all(s, data_bytes, r->err);
}

enum far_status safetensors_read(char *header, size_t len, uint64_t data_bytes, struct safetensors *out,
				 struct far_err *err)
{
	struct reader r = {header, 0, len, err};
	struct safetensors s = {NULL, 0};
	enum far_status status = read_all(&r, &s, data_bytes);
	if (status)
		safetensors_free(&s);
	else
		*out = s;
	return status;
}

void safetensors_free(struct safetensors *s)
{
	free(s->tensors);
}

const struct safetensor *safetensors_find(const struct safetensors *s, const char *name)
{
	struct safetensor key = {.name = name};
	return s->n ? bsearch(&key, s->tensors, s->n, sizeof key, by_name) : NULL;
}

/* ---- writing ---- */

static void write_name(FILE *f, const char *name)
{
	fputc('"', f);
	for (; *name; name++)
		if (*name == '"' || *name == '\\')
			fprintf(f, "\\%c", *name);
		else if ((unsigned char)*name < 0x20)
			fprintf(f, "\\u%04x", (unsigned)*name);
		else
			fputc(*name, f);
	fputc('"', f);
}

static void write_json(FILE *f, const struct safetensor *tensors, size_t n)
{
	fputc('{', f);
	for (size_t i = 0; i < n; i++) {
		const struct safetensor *t = &tensors[i];
		const char *dtype = "";
		for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++)
			if (dtypes[k].dtype == t->dtype)
				dtype = dtypes[k].name;
		if (i > 0)
			fputc(',', f);
		write_name(f, t->name);
		fprintf(f, ":{\"dtype\":\"%s\",\"shape\":[", dtype);
		for (unsigned k = 0; k < t->ndim; k++)
			fprintf(f, "%s%" PRIu64, k ? "," : "", t->shape[k]);
		fprintf(f, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", t->begin, t->end);
	}
	fputc('}', f);
}

bool safetensors_write_header(FILE *f, const struct safetensor *tensors, size_t n)
{
	unsigned char length[8];
	char *json;
	size_t len;
	FILE *text = open_memstream(&json, &len);
	if (!text)
		return false;
	write_json(text, tensors, n);
	bool failed = ferror(text) != 0;
	if (fclose(text) != 0 || failed) {
		free(json);
		return false;
	}
	size_t padded = (len + 7) / 8 * 8;
	for (unsigned i = 0; i < 8; i++)
		length[i] = (unsigned char)((uint64_t)padded >> (8 * i));
	fwrite(length, 1, sizeof length, f);
	fwrite(json, 1, len, f);
	fprintf(f, "%*s", (int)(padded - len), "");
	free(json);
	return !ferror(f);
}
