/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Reads the input as a value of the type far::Var from a peer. What reads well is in memory of its own, becomes a
 * variable, and is the same bytes when it is written again. Main thread.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined. With -DFUZZ_MAIN: as fuzz_values.c.
 */
#include "base/must.h"
#include "wire.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_variable(struct far_pool *pool, struct wire *wire)
{
	struct far_var *var;
	struct far_err err;
	struct far_pool_stats stats;
	bool wants = wire->id > 0;
	must(far_var_borrow(pool, &wire->t, wants, NULL, NULL, &var, &err) == FAR_OK);
	must(far_var_requires_grad(var) == wants);
	must(far_tensor_bytes(far_var_tensor(var)) == far_tensor_bytes(&wire->t));
	far_var_free(var);
	far_pool_get_stats(pool, &stats);
	must(stats.used_bytes == 0);
}

/** Is the tensor of `wire` well-formed, and apart from the input. */
static void check_tensor(const struct wire *wire, const uint8_t *src, size_t size)
{
	const uint8_t *at = wire->t.data;
	size_t bytes = far_tensor_bytes(&wire->t);
	must(wire->t.ndim <= FAR_DIMS_MAX && wire->rank >= 0 && bytes <= size && wire->refs == 1 && !wire->var);
	must((uintptr_t)at % 64 == 0 && (at + bytes <= src || src + size <= at));
	must(bytes == 0 || memcmp(at, src + size - bytes, bytes) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct far_pool *pool;
	struct far_err err;
	void *object;
	must(pool || (far_pool_new(0, &pool, &err) == FAR_OK && wire_start()));
	/* In memory of exactly its size, so that a sanitizer sees a read past the end. */
	uint8_t *src = malloc(size ? size : 1), *again = malloc(size ? size : 1);
	must(src && again);
	if (size > 0)
		memcpy(src, data, size);
	enum far_status status = wire_type.decode(src, size, &object, NULL);
	must(status == FAR_OK || status == FAR_BAD_ARGS);
	if (status == FAR_OK) {
		check_tensor(object, src, size);
		must(wire_type.size(object, NULL) == size);
		wire_type.encode(object, again, size, NULL);
		must(memcmp(again, src, size) == 0);
		check_variable(pool, object);
		wire_type.destroy(object, NULL);
	}
	free(again);
	free(src);
	return 0;
}

#ifdef FUZZ_MAIN
#include "corpus_main.h"
#endif
