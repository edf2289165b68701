/* SPDX-License-Identifier: BSD-3-Clause */
/** Arrays that grow by slabs and never move. The test's thread. */
#include "apps/libps/pst_slabs.h"
#include "pst_fixture.h"
#include <criterion/criterion.h>
#include <errno.h>

TestSuite(pst_slabs);

Test(pst_slabs, a_slab_is_a_multiple_of_2_mib_and_wastes_at_most_a_sixteenth)
{
	for (uint32_t stride = 4; stride <= 1 << 20; stride += stride < 4096 ? 4 : 4092) {
		struct pst_slabs s;
		pst_slabs_init(&s, stride, &pst_memory_default);
		size_t used = (size_t)stride << s.shift;
		cr_assert_eq(s.slab_bytes % PST_HUGE_BYTES, 0);
		cr_assert_leq(used, s.slab_bytes);
		cr_assert_leq(s.slab_bytes - used, s.slab_bytes / 16, "stride %u", stride);
	}
}

Test(pst_slabs, elements_are_zero_and_never_move)
{
	struct pst_slabs s;
	pst_slabs_init(&s, 64, &pst_memory_default);
	cr_assert_eq(pst_slabs_reserve(&s, 1), 0);
	char *first = pst_slabs_at(&s, 0);
	cr_assert_eq((uintptr_t)first % PST_HUGE_BYTES, 0);
	cr_assert_eq(pst_slabs_reserve(&s, 40 * 32768), 0);
	cr_assert_eq(pst_slabs_at(&s, 0), first);
	for (uint32_t i = 0; i < 40 * 32768; i += 997)
		for (unsigned j = 0; j < 64; j++)
			cr_assert_eq(((char *)pst_slabs_at(&s, i))[j], 0);
	pst_slabs_fini(&s);
}

Test(pst_slabs, the_next_slab_is_wanted_at_half_of_the_last_and_taken_when_it_is_ready)
{
	struct fake_memory f;
	fake_memory_init(&f);
	struct pst_slabs s;
	pst_slabs_init(&s, 64, &f.memory);
	cr_assert_eq(pst_slabs_reserve(&s, 1), 0);
	cr_assert_eq(s.pages[0], PST_PAGES_SMALL);
	cr_assert_not(pst_slabs_ahead(&s), "nothing is wanted yet");
	pst_slabs_used(&s, 16383);
	cr_assert_not(pst_slabs_ahead(&s));
	pst_slabs_used(&s, 16384);
	f.fail_at = f.gets + 1;
	cr_assert_not(pst_slabs_ahead(&s), "without memory it is still wanted");
	cr_assert(pst_slabs_ahead(&s));
	cr_assert_not(pst_slabs_ahead(&s), "one at a time");
	uint64_t gets = f.gets;
	cr_assert_eq(pst_slabs_reserve(&s, 32769), 0);
	cr_assert_eq(f.gets, gets, "the prepared slab was not used");
	cr_assert_eq(s.pages[1], PST_PAGES_HUGE);
	pst_slabs_used(&s, 32768 + 16384);
	cr_assert(pst_slabs_ahead(&s));
	pst_slabs_fini(&s);
	cr_assert_eq(f.blocks, 0, "a prepared slab is freed too");
}

Test(pst_slabs, without_memory_the_array_is_as_before)
{
	struct fake_memory f;
	fake_memory_init(&f);
	struct pst_slabs s;
	pst_slabs_init(&s, 64, &f.memory);
	for (uint64_t at = 1; at <= 3; at++) {
		f.fail_at = f.gets + at;
		cr_assert_eq(pst_slabs_reserve(&s, 1), -ENOMEM);
		cr_assert_eq(s.slabs, 0);
		if (at == 2)
			break;
	}
	f.fail_at = 0;
	cr_assert_eq(pst_slabs_reserve(&s, 1), 0);
	pst_slabs_fini(&s);
	cr_assert_eq(f.blocks, 0);
}

Test(pst_slabs, bytes_are_those_held)
{
	struct pst_slabs s;
	pst_slabs_init(&s, 64, &pst_memory_default);
	pst_slabs_reserve(&s, 2 * 32768);
	size_t table = s.slabs_max * (sizeof *s.at + 1);
	cr_assert_eq(pst_slabs_bytes(&s, 32768 + 65), table + PST_HUGE_BYTES + 8192);
	pst_slabs_fini(&s);
}
