/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Reads the input as a payload of typed values. What reads well is written again and read again, and must be the same.
 * Main thread.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined. With -DFUZZ_MAIN: a program that runs the files and
 * directories it is given, each file also cut short and with each bit flipped.
 */
#include "base/must.h"
#include "value/encoding.h"
#include "value_trees.h"

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

/** A type that encodes what arrived; its name does not have the hash that did. */
static size_t raw_size(const void *object, void *user)
{
	return ((const struct far_val *)object)->u.custom.len;
}

static void raw_encode(const void *object, void *dst, size_t len, void *user)
{
	memcpy(dst, ((const struct far_val *)object)->u.custom.object, len);
}

static const struct far_custom_type raw_type = {"fuzz::Raw", raw_size, raw_encode, NULL, NULL, NULL};

/** Makes the customs sendable again; `kept` remembers what they were. */
static void customs_sendable(struct far_val *v, size_t n, struct far_val *kept, size_t *kept_n)
{
	for (size_t i = 0; i < n; i++) {
		if (v[i].type == FAR_TYPE_LIST) {
			customs_sendable((struct far_val *)(uintptr_t)v[i].u.list.items, v[i].u.list.n, kept, kept_n);
		} else if (v[i].type == FAR_TYPE_DICT) {
			customs_sendable((struct far_val *)(uintptr_t)v[i].u.dict.entries, 2 * v[i].u.dict.n, kept,
					 kept_n);
		} else if (v[i].type == FAR_TYPE_CUSTOM) {
			must(*kept_n < FAR_CUSTOMS_MAX);
			kept[*kept_n] = v[i];
			v[i] = far_custom(&raw_type, &kept[(*kept_n)++]);
		}
	}
}

/** Do the customs that were read again have the bytes that were sent. */
static void check_customs(const struct far_val *v, size_t n, const struct far_val *kept, size_t *kept_n)
{
	for (size_t i = 0; i < n; i++) {
		if (v[i].type == FAR_TYPE_LIST) {
			check_customs(v[i].u.list.items, v[i].u.list.n, kept, kept_n);
		} else if (v[i].type == FAR_TYPE_DICT) {
			check_customs((const struct far_val *)v[i].u.dict.entries, 2 * v[i].u.dict.n, kept, kept_n);
		} else if (v[i].type == FAR_TYPE_CUSTOM) {
			const struct far_val *k = &kept[(*kept_n)++];
			must(v[i].u.custom.len == k->u.custom.len);
			must(k->u.custom.len == 0 ||
			     memcmp(v[i].u.custom.object, k->u.custom.object, k->u.custom.len) == 0);
		}
	}
}

static void check_again(struct far_val *v, size_t n)
{
	static struct test_arena arena;
	static struct far_val kept[FAR_CUSTOMS_MAX];
	struct far_val again[FAR_ARGS_MAX];
	struct values_plan plan;
	struct far_err err;
	size_t n_again, kept_n = 0;
	customs_sendable(v, n, kept, &kept_n);
	size_t size = values_size(v, n, &plan, &err);
	if (size == SIZE_MAX) {
		must(err.status == FAR_TOO_LARGE); /* the writer has limits that the reader leaves to its caller */
		return;
	}
	uint8_t *p = payload_alloc(size);
	memset(p, 0xee, size);
	values_write(v, n, &plan, p);
	test_arena_init(&arena, false);
	must(values_read(p, size, again, FAR_ARGS_MAX, &n_again, &arena.arena) == 0 && n_again == n);
	if (kept_n == 0)
		for (size_t i = 0; i < n; i++)
			must(tree_same(&v[i], &again[i]));
	kept_n = 0;
	check_customs(again, n, kept, &kept_n);
	test_arena_fini(&arena);
	free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct test_arena arena, arena_copied;
	struct far_val v[FAR_ARGS_MAX];
	struct far_val copied[FAR_ARGS_MAX];
	size_t n;
	size_t n_copied;
	uint8_t *p = payload_alloc(size);
	if (size > 0)
		memcpy(p, data, size);
	test_arena_init(&arena, false);
	test_arena_init(&arena_copied, true);
	arena_copied.arena.strings_cap = 256;
	int rc = values_read(p, size, v, FAR_ARGS_MAX, &n, &arena.arena);
	int rc_copied = values_read(p, size, copied, FAR_ARGS_MAX, &n_copied, &arena_copied.arena);
	must(rc_copied == rc || rc_copied == -ENOBUFS);
	must(rc == 0 || rc == -EBADMSG);
	if (rc == 0) {
		must(n <= FAR_ARGS_MAX && tree_inside(v, n, p, size, true));
		if (rc_copied == 0) {
			must(n_copied == n && tree_inside(copied, n, p, size, false));
			for (size_t i = 0; i < n; i++)
				must(tree_same(&v[i], &copied[i]));
		}
		check_again(v, n);
	}
	test_arena_fini(&arena);
	test_arena_fini(&arena_copied);
	free(p);
	return 0;
}

#ifdef FUZZ_MAIN
#include "corpus_main.h"
#endif
