/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Reads the input as a payload of typed values. What reads well is written again and read again, and must be the same.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined. With -DFUZZ_MAIN: a program that runs the files and
 * directories it is given, each file also cut short and with each bit flipped.
 */
#include "base/must.h"
#include "wire/values.h"

#include <errno.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Allocated to the byte, so that a sanitizer sees a read past the end. */
static uint8_t *payload_alloc(size_t size)
{
	void *p = NULL;
	must(posix_memalign(&p, 64, size ? size : 1) == 0);
	return p;
}

static void check_inside(const void *p, size_t len, size_t align, const uint8_t *src, size_t size)
{
	uintptr_t at = (uintptr_t)p;
	uintptr_t from = (uintptr_t)src;
	must(at >= from && at <= from + size && len <= from + size - at);
	must(at % align == 0);
}

static void check_value(const struct far_val *v, const uint8_t *src, size_t size)
{
	must(!v->kw && !v->own);
	if (v->type == FAR_TYPE_TENSOR) {
		size_t element = far_dtype_size((enum far_dtype)v->u.t.dtype);
		must(element > 0 && v->u.t.ndim <= FAR_DIMS_MAX && v->u.t.domain == 0);
		check_inside(v->u.t.data, far_tensor_bytes(&v->u.t), size > 32 ? 64 : element, src, size);
	} else if (v->type == FAR_TYPE_BYTES) {
		check_inside(v->u.s.data, v->u.s.len, 1, src, size);
	} else if (v->type == FAR_TYPE_STRING) {
		check_inside(v->u.s.data, v->u.s.len + 1, 1, src, size);
		must(((const char *)v->u.s.data)[v->u.s.len] == '\0');
	} else {
		must(v->type < FAR_TYPE_COUNT);
	}
}

static void check_same(const struct far_val *a, const struct far_val *b)
{
	must(a->type == b->type);
	switch ((enum far_type)a->type) {
	case FAR_TYPE_BOOL:
		must(a->u.b == b->u.b);
		break;
	case FAR_TYPE_INT:
		must(a->u.i == b->u.i);
		break;
	case FAR_TYPE_FLOAT:
		must(memcmp(&a->u.f, &b->u.f, sizeof a->u.f) == 0);
		break;
	case FAR_TYPE_STRING:
	case FAR_TYPE_BYTES:
		must(a->u.s.len == b->u.s.len && memcmp(a->u.s.data, b->u.s.data, a->u.s.len) == 0);
		break;
	case FAR_TYPE_TENSOR:
		must(a->u.t.dtype == b->u.t.dtype && a->u.t.ndim == b->u.t.ndim);
		must(memcmp(a->u.t.shape, b->u.t.shape, a->u.t.ndim * sizeof a->u.t.shape[0]) == 0);
		must(memcmp(a->u.t.data, b->u.t.data, far_tensor_bytes(&a->u.t)) == 0);
		break;
	case FAR_TYPE_NONE:
	case FAR_TYPE_COUNT:
		break;
	}
}

static void check_again(const struct far_val *v, size_t n)
{
	struct far_val again[FAR_ARGS_MAX];
	size_t n_again;
	struct far_err err;
	size_t size = values_size(v, n, &err);
	if (size == SIZE_MAX) {
		must(err.status == FAR_TOO_LARGE); /* the writer has limits that the reader leaves to its caller */
		return;
	}
	uint8_t *p = payload_alloc(size);
	memset(p, 0xee, size);
	values_write(v, n, p, size);
	must(values_read(p, size, again, FAR_ARGS_MAX, &n_again, NULL, 0) == 0 && n_again == n);
	for (size_t i = 0; i < n; i++)
		check_same(&v[i], &again[i]);
	free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct far_val v[FAR_ARGS_MAX];
	struct far_val copied[FAR_ARGS_MAX];
	char strings[256];
	size_t n;
	size_t n_copied;
	uint8_t *p = payload_alloc(size);
	if (size > 0)
		memcpy(p, data, size);
	int rc = values_read(p, size, v, FAR_ARGS_MAX, &n, NULL, 0);
	int rc_copied = values_read(p, size, copied, FAR_ARGS_MAX, &n_copied, strings, sizeof strings);
	must(rc_copied == rc || rc_copied == -ENOBUFS);
	if (rc == 0) {
		must(n <= FAR_ARGS_MAX);
		for (size_t i = 0; i < n; i++)
			check_value(&v[i], p, size);
		for (size_t i = 0; rc_copied == 0 && i < n; i++)
			check_same(&v[i], &copied[i]);
		check_again(v, n);
	}
	free(p);
	return 0;
}

#ifdef FUZZ_MAIN
#include "corpus_main.h"
#endif
