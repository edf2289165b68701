/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Reads the input as a safetensors file: the length of the header, the header, data. What reads well covers the data
 * exactly, and is the same when it is written and read again. Main thread.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined. With -DFUZZ_MAIN: as fuzz_values.c.
 */
#include "base/must.h"
#include "safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/** A header in memory of exactly its size, so that a sanitizer sees a read past the end. */
static enum far_status read_header(const void *json, size_t len, uint64_t data_bytes, char **header,
				   struct safetensors *s)
{
	struct far_err err = {0};
	*header = malloc(len ? len : 1);
	must(*header != NULL);
	memcpy(*header, json, len);
	enum far_status status = safetensors_read(*header, len, data_bytes, s, &err);
	must(status == FAR_OK || status == FAR_INVALID || status == FAR_UNSUPPORTED);
	must(status == err.status && (status == FAR_OK) == (err.text[0] == '\0'));
	return status;
}

static void check_tensors(const struct safetensors *s, uint64_t data_bytes)
{
	uint64_t covered = 0;
	for (size_t i = 0; i < s->n; i++) {
		const struct safetensor *t = &s->tensors[i];
		uint64_t bytes = far_dtype_size(t->dtype);
		must(bytes > 0 && t->ndim <= FAR_DIMS_MAX && t->begin <= t->end && t->end <= data_bytes);
		for (unsigned k = 0; k < t->ndim; k++)
			bytes *= t->shape[k];
		must(bytes == t->end - t->begin);
		must(safetensors_find(s, t->name) == t);
		covered += bytes;
	}
	must(covered == data_bytes);
}

static void write_again(const struct safetensors *s, uint64_t data_bytes)
{
	char *text, *header;
	size_t len;
	struct safetensors again;
	FILE *f = open_memstream(&text, &len);
	must(f && safetensors_write_header(f, s->tensors, s->n) && fclose(f) == 0);
	must(len >= 8 && read_header(text + 8, len - 8, data_bytes, &header, &again) == FAR_OK && again.n == s->n);
	for (size_t i = 0; i < s->n; i++) {
		const struct safetensor *a = &s->tensors[i], *b = &again.tensors[i];
		must(strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->ndim == b->ndim &&
		     a->begin == b->begin && a->end == b->end);
		must(memcmp(a->shape, b->shape, sizeof a->shape) == 0);
	}
	safetensors_free(&again);
	free(header);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t len = 0;
	char *header;
	struct safetensors s;
	if (size < 8)
		return 0;
	for (unsigned i = 0; i < 8; i++)
		len |= (uint64_t)data[i] << (8 * i);
	if (len > size - 8)
		return 0;
	uint64_t data_bytes = size - 8 - len;
	if (read_header(data + 8, (size_t)len, data_bytes, &header, &s) == FAR_OK) {
		check_tensors(&s, data_bytes);
		write_again(&s, data_bytes);
		safetensors_free(&s);
	}
	free(header);
	return 0;
}

#ifdef FUZZ_MAIN
#include "corpus_main.h"
#endif
