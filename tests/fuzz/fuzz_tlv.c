/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Feeds the reader of interceptors' fields. Checked: it accepts exactly what a second reader, written apart, accepts,
 * takes the fields in order, each inside of the input, and ends where the input ends. Main thread.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined. With -DFUZZ_MAIN: see corpus_main.h.
 */
#include "base/must.h"
#include "core/tlv.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The second reader: numbers of fields, or -1. */
static long count(const uint8_t *d, size_t n)
{
	if (n == 0)
		return 0;
	if (n < 4)
		return -1;
	size_t type = d[0] | (size_t)(d[1] & 0x7f) << 8, len = d[2] | (size_t)d[3] << 8;
	if (type == 0 || len > n - 4)
		return -1;
	long rest = count(d + 4 + len, n - 4 - len);
	return rest < 0 ? -1 : rest + 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > FAR_TLV_BYTES_MAX)
		return 0;
	long n = count(data, size);
	must(tlv_well_formed(data, size) == (n >= 0));
	size_t at = 0;
	for (long i = 0; i < n; i++) {
		const void *value;
		size_t before = at, len;
		bool mandatory;
		uint16_t type = tlv_take(data, &at, &value, &len, &mandatory);
		must(type > 0 && type <= FAR_TLV_TYPE_MAX && mandatory == (data[before + 1] >> 7));
		must(value == data + before + 4 && at == before + 4 + len && at <= size);
	}
	must(n < 0 || at == size);
	return 0;
}

#ifdef FUZZ_MAIN
#include "corpus_main.h"
#endif
