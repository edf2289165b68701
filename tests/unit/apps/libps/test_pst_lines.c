/* SPDX-License-Identifier: BSD-3-Clause */
/** The allocator of blocks of cache lines. The test's thread. */
#include "apps/libps/pst_lines.h"
#include "pst_fixture.h"
#include <criterion/criterion.h>

TestSuite(pst_lines);

Test(pst_lines, blocks_are_aligned_to_their_size_and_apart_from_the_bitmap)
{
	struct fake_memory f;
	fake_memory_init(&f);
	struct pst_lines l;
	pst_lines_init(&l, &f.memory);
	for (unsigned class = 0; class < PST_LINES_CLASSES; class ++)
		for (int i = 0; i < 100; i++) {
			uint32_t block = pst_lines_get(&l, class);
			cr_assert_eq(block % (1u << class), 0);
			cr_assert_geq(block % 32768, 64);
		}
	pst_lines_fini(&l);
	cr_assert_eq(f.blocks, 0);
}

Test(pst_lines, freed_buddies_merge_to_a_whole_block)
{
	struct pst_lines l;
	pst_lines_init(&l, &pst_memory_default);
	uint32_t block[64];
	for (int i = 0; i < 64; i++)
		block[i] = pst_lines_get(&l, 0);
	uint32_t top = l.top;
	for (int i = 0; i < 64; i += 2)
		pst_lines_put(&l, block[i], 0);
	for (int i = 1; i < 64; i += 2)
		pst_lines_put(&l, block[i], 0);
	cr_assert_eq(l.free, 64);
	uint32_t whole = pst_lines_get(&l, PST_LINES_CLASSES - 1);
	cr_assert_eq(l.top, top, "a merged block is used before the slab grows");
	cr_assert_eq(whole, block[0]);
	cr_assert_eq(l.free, 0);
	pst_lines_fini(&l);
}

/* Against a map of lines: no two blocks overlap, contents stay, and all merges when all is freed. */
Test(pst_lines, random_blocks_never_overlap)
{
	enum { HELD = 3000 };
	struct pst_lines l;
	pst_lines_init(&l, &pst_memory_default);
	static uint32_t block[HELD];
	static uint8_t class[HELD];
	uint64_t seed = 7, lines = 0;
	for (int step = 0; step < 200000; step++) {
		unsigned i = (unsigned)(draw64(&seed) % HELD);
		if (block[i]) {
			for (unsigned j = 0; j < 1u << class[i]; j++)
				cr_assert_eq(*(uint32_t *)pst_lines_at(&l, block[i] + j), i);
			pst_lines_put(&l, block[i], class[i]);
			lines -= UINT64_C(1) << class[i];
			block[i] = 0;
		} else {
			class[i] = (uint8_t)(draw64(&seed) % PST_LINES_CLASSES);
			block[i] = pst_lines_get(&l, class[i]);
			lines += UINT64_C(1) << class[i];
			for (unsigned j = 0; j < 1u << class[i]; j++)
				*(uint32_t *)pst_lines_at(&l, block[i] + j) = i;
		}
	}
	uint64_t maps = (l.top + 32767) / 32768 * 64;
	cr_assert_eq(l.free + lines + maps, l.top);
	for (unsigned i = 0; i < HELD; i++)
		if (block[i])
			pst_lines_put(&l, block[i], class[i]);
	for (unsigned c = 0; c + 1 < PST_LINES_CLASSES; c++)
		cr_assert_eq(l.lists[c], PST_LINES_NONE);
	cr_assert_eq(l.free + maps, l.top);
	pst_lines_fini(&l);
}

Test(pst_lines, without_memory_nothing_changes)
{
	struct fake_memory f;
	fake_memory_init(&f);
	struct pst_lines l;
	pst_lines_init(&l, &f.memory);
	f.fail_at = 3; /* the slab itself */
	cr_assert_eq(pst_lines_get(&l, 2), PST_LINES_NONE);
	cr_assert_eq(l.top, 0);
	cr_assert_neq(pst_lines_get(&l, 2), PST_LINES_NONE);
	pst_lines_fini(&l);
	cr_assert_eq(f.blocks, 0);
}
