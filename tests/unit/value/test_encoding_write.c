/* SPDX-License-Identifier: BSD-3-Clause */
/** A tensor whose elements are written into the message has the bytes of one that is copied there. The test's thread.
 */
#include "encoded.h"

Test(encoding_write, a_tensor_written_in_place_has_the_same_bytes)
{
	static double data[64];
	for (size_t i = 0; i < 64; i++)
		data[i] = (double)i;
	for (unsigned dtype = 1; dtype < FAR_DTYPE_COUNT; dtype++) {
		for (uint64_t n = 0; n <= 64; n++) {
			struct far_tensor t = far_tensor_2d((enum far_dtype)dtype, data, 1, n);
			struct far_val v = far_tensor_val(&t);
			size_t size, offset = 0;
			uint8_t *want = encode(&v, 1, &size);
			cr_assert_eq(values_tensor_size((enum far_dtype)dtype, 2, t.shape, &offset), size);
			uint8_t *p = payload_alloc(size);
			memset(p, 0xee, size);
			memcpy(p + offset, data, far_tensor_bytes(&t));
			values_tensor_write((enum far_dtype)dtype, 2, t.shape, p, size);
			cr_assert_eq(memcmp(p, want, size), 0, "%u %zu", dtype, (size_t)n);
			free(p);
			free(want);
		}
	}
}
