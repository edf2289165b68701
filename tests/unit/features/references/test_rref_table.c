/* SPDX-License-Identifier: BSD-3-Clause */
/** The table of references, against a list. The test's thread. */
#include "features/references/rref.h"

#include <criterion/criterion.h>

enum { PLACES = 256, IDS = 200 };

static struct rref_id name(unsigned i)
{
	/* Few incarnations, counts that follow each other: what real ones look like. */
	return rref_name(rref_incarnation(i % 3, 9), i % 2, 0, 1 + i / 6);
}

/* Any order of puts and removals: what is in is found, and nothing else. */
Test(rref_table, agrees_with_a_list)
{
	struct rref_table t;
	uint64_t random = 7;
	bool in[IDS] = {false};
	int at[IDS];
	uint32_t n = 0;
	cr_assert(rref_table_init(&t, PLACES));
	for (unsigned round = 0; round < 100000; round++) {
		unsigned i =
			(unsigned)((random = random * UINT64_C(6364136223846793005) + 1442695040888963407) >> 33) % IDS;
		if (in[i]) {
			rref_table_remove(&t, name(i));
			in[i] = false;
			n--;
		} else if (n < PLACES / 2) {
			cr_assert(rref_table_put(&t, name(i), &at[i]));
			in[i] = true;
			n++;
		} else {
			cr_assert_not(rref_table_put(&t, name(i), &at[i]), "half full");
		}
		cr_assert_eq(t.n, n);
		unsigned k = round % IDS;
		cr_assert_eq(rref_table_find(&t, name(k)), in[k] ? (void *)&at[k] : NULL);
	}
	for (unsigned i = 0; i < IDS; i++)
		rref_table_remove(&t, name(i));
	cr_assert_eq(t.n, 0u);
	for (unsigned i = 0; i < PLACES; i++)
		cr_assert_null(t.slots[i].at);
	rref_table_free(&t);
}

Test(rref_table, what_is_not_there)
{
	struct rref_table t;
	int at;
	cr_assert(rref_table_init(&t, 4));
	cr_assert_null(rref_table_find(&t, name(1)));
	rref_table_remove(&t, name(1));
	cr_assert(rref_table_put(&t, name(1), &at));
	rref_table_remove(&t, name(2));
	cr_assert_eq(rref_table_find(&t, name(1)), (void *)&at);
	rref_table_free(&t);
}

Test(rref_table, names_say_who_gave_them)
{
	struct rref_id id = rref_name(rref_incarnation(513, UINT64_MAX), 15, 7, RREF_COUNT_MASK + 3);
	cr_assert_eq(rref_rank(id.incarnation), 513u);
	cr_assert_eq(rref_creator_shard(id), 15u);
	cr_assert_eq(rref_owner_shard(id), 7u);
	cr_assert_eq(id.number & RREF_COUNT_MASK, 2u, "a count keeps to its bits");
}
