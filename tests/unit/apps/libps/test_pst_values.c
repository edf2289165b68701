/* SPDX-License-Identifier: BSD-3-Clause */
/** The allocator of values: waste and reuse. The test's thread. */
#include "apps/libps/pst_values.h"
#include "pst_fixture.h"
#include <criterion/criterion.h>

TestSuite(pst_values);

Test(pst_values, a_block_wastes_at_most_a_fifth_and_what_64_bytes_round_up)
{
	struct pst_values v;
	pst_values_init(&v, &pst_memory_default);
	for (uint32_t bytes = 0; bytes <= PST_VALUE_MAX; bytes += bytes < 2000 ? 1 : bytes / 37) {
		uint64_t before = v.bytes;
		uint32_t block = pst_values_get(&v, bytes);
		uint64_t took = v.bytes - before;
		cr_assert_neq(block, PST_VALUES_NONE);
		cr_assert_geq(took, bytes + sizeof(struct pst_value));
		if (bytes >= 256)
			cr_assert_leq(took - bytes - sizeof(struct pst_value), took / 5 + 63, "%u bytes take %lu",
				      bytes, (unsigned long)took);
		pst_values_put(&v, block);
	}
	pst_values_fini(&v);
}

Test(pst_values, random_blocks_never_overlap_and_slabs_serve_other_sizes_again)
{
	enum { HELD = 600 };
	struct fake_memory f;
	fake_memory_init(&f);
	struct pst_values v;
	pst_values_init(&v, &f.memory);
	static uint32_t block[HELD], bytes[HELD];
	memset(block, 0xff, sizeof block);
	uint64_t seed = 8;
	for (int step = 0; step < 60000; step++) {
		unsigned i = (unsigned)(draw64(&seed) % HELD);
		if (block[i] != PST_VALUES_NONE) {
			struct pst_value *value = pst_values_at(&v, block[i]);
			cr_assert_eq(value->bytes, bytes[i]);
			for (uint32_t j = 0; j < bytes[i]; j += 1 + bytes[i] / 50)
				cr_assert_eq(value->data[j], (unsigned char)(i * 31 + 7));
			pst_values_put(&v, block[i]);
			block[i] = PST_VALUES_NONE;
		} else {
			/* Sizes change with time: a small range now. */
			bytes[i] = (uint32_t)(draw64(&seed) % (step / 10000 % 2 ? 300 : 9000));
			block[i] = pst_values_get(&v, bytes[i]);
			memset(pst_values_at(&v, block[i])->data, (int)(i * 31 + 7), bytes[i]);
		}
	}
	for (unsigned i = 0; i < HELD; i++)
		if (block[i] != PST_VALUES_NONE)
			pst_values_put(&v, block[i]);
	cr_assert_eq(v.bytes, 0);
	uint32_t empty = 0;
	for (uint32_t i = v.empty; i != PST_VALUES_NONE; i = v.slab[i].next)
		empty++;
	cr_assert_eq(empty, v.slab_n, "all slabs are free for any size");
	pst_values_fini(&v);
	cr_assert_eq(f.blocks, 0);
}

Test(pst_values, without_memory_nothing_changes)
{
	struct fake_memory f;
	fake_memory_init(&f);
	struct pst_values v;
	pst_values_init(&v, &f.memory);
	unsigned failures = 0;
	for (int i = 0; i < 40; i++) {
		f.fail_at = f.gets + 1;
		uint64_t before = v.bytes;
		uint32_t block = pst_values_get(&v, PST_VALUE_MAX);
		f.fail_at = 0;
		if (block != PST_VALUES_NONE)
			continue;
		failures++;
		cr_assert_eq(v.bytes, before);
		cr_assert_neq(pst_values_get(&v, PST_VALUE_MAX), PST_VALUES_NONE);
	}
	cr_assert_geq(failures, 3);
	pst_values_fini(&v);
	cr_assert_eq(f.blocks, 0);
}
