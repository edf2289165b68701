/* SPDX-License-Identifier: BSD-3-Clause */
/** Keys are admitted to a table at their n-th push. The test's thread. */
#include "apps/libps/pst_admit.h"
#include "apps/libps/pst_hash.h"
#include "pst_fixture.h"
#include <criterion/criterion.h>
#include <errno.h>

TestSuite(pst_admit);

Test(pst_admit, a_key_is_admitted_at_its_nth_push_and_then_begins_anew)
{
	struct pst_admit a;
	struct pst_admit_undo undo;
	cr_assert_eq(pst_admit_init(&a, 1 << 16, &pst_memory_default), 0);
	for (unsigned n = 2; n <= PST_ADMIT_MAX; n++)
		for (uint64_t key = 0; key < 50; key++) {
			uint64_t hash = key == 49 ? 0 : pst_hash(key + 1000 * n);
			for (unsigned i = 1; i < n; i++) {
				cr_assert_not(pst_admit_push(&a, hash, n, &undo));
				cr_assert_eq(pst_admit_count(&a, hash), i);
			}
			cr_assert(pst_admit_push(&a, hash, n, &undo));
			cr_assert_eq(pst_admit_count(&a, hash), 0);
		}
	pst_admit_fini(&a);
}

Test(pst_admit, an_undone_push_did_not_count)
{
	struct pst_admit a;
	struct pst_admit_undo undo;
	pst_admit_init(&a, 8, &pst_memory_default);
	uint64_t set = UINT64_C(5) << 56;
	for (uint64_t i = 1; i <= 8; i++)
		for (uint64_t j = 0; j < i; j++)
			pst_admit_push(&a, set + i, 20, &undo);
	struct pst_admit_set before = a.set[5];
	for (uint64_t i = 1; i <= 9; i++) { /* the ninth takes another's place */
		pst_admit_push(&a, set + i, i == 8 ? 9 : 20, &undo);
		cr_assert_neq(memcmp(&before, &a.set[5], sizeof before), 0);
		*undo.candidate = undo.was;
		cr_assert_eq(memcmp(&before, &a.set[5], sizeof before), 0);
	}
	pst_admit_fini(&a);
}

Test(pst_admit, in_a_full_set_the_lowest_count_gives_way)
{
	struct pst_admit a;
	struct pst_admit_undo undo;
	pst_admit_init(&a, 8, &pst_memory_default);
	uint64_t set = UINT64_C(9) << 56;
	for (uint64_t i = 1; i <= 8; i++)
		for (uint64_t j = 0; j < (i == 6 ? 2 : 3); j++)
			pst_admit_push(&a, set + i, 20, &undo);
	cr_assert_not(pst_admit_push(&a, set + 99, 20, &undo));
	cr_assert_eq(pst_admit_count(&a, set + 99), 1);
	cr_assert_eq(pst_admit_count(&a, set + 6), 0);
	for (uint64_t i = 1; i <= 8; i++)
		if (i != 6)
			cr_assert_eq(pst_admit_count(&a, set + i), 3);
	pst_admit_fini(&a);
}

Test(pst_admit, no_memory)
{
	struct fake_memory f;
	fake_memory_init(&f);
	f.fail_at = 1;
	struct pst_admit a;
	cr_assert_eq(pst_admit_init(&a, 100, &f.memory), -ENOMEM);
	pst_admit_fini(&a);
}
