/* SPDX-License-Identifier: BSD-3-Clause */
/** Keys are divided among servers. The test's thread. */
#include "apps/pserver/ps_split.h"
#include <criterion/criterion.h>
#include <stdlib.h>

TestSuite(ps_split);

/* Each position once, in its owner's group, in the caller's order within the group. */
static void check(struct ps_split *s, const uint64_t *keys, size_t n)
{
	bool *seen = calloc(n + 1, sizeof *seen);
	cr_assert_eq(ps_split_keys(s, keys, n), 0);
	cr_assert_eq(s->start[0], 0);
	cr_assert_eq(s->start[s->parts], n);
	for (unsigned o = 0; o < s->parts; o++) {
		cr_assert_leq(s->start[o], s->start[o + 1]);
		for (size_t i = s->start[o]; i < s->start[o + 1]; i++) {
			size_t p = s->position[i];
			cr_assert_lt(p, n);
			cr_assert_not(seen[p]);
			seen[p] = true;
			cr_assert_eq(s->key[i], keys[p]);
			cr_assert_eq(ps_owner(keys[p], s->parts), o);
			cr_assert(i == s->start[o] || s->position[i - 1] < p);
		}
	}
	free(seen);
}

Test(ps_split, groups_unsorted_and_duplicate_keys)
{
	uint64_t keys[] = {9, 3, 9, 0, UINT64_MAX, 3, 3, 1000000007, 9, 42};
	for (unsigned servers = 1; servers <= 7; servers++) {
		struct ps_split s;
		cr_assert_eq(ps_split_init(&s, servers), 0);
		check(&s, keys, 10);
		ps_split_fini(&s);
	}
}

Test(ps_split, is_reusable_with_any_number_of_keys)
{
	uint64_t keys[1000];
	struct ps_split s;
	for (size_t i = 0; i < 1000; i++)
		keys[i] = i % 300;
	cr_assert_eq(ps_split_init(&s, 3), 0);
	size_t sizes[] = {0, 1, 1000, 2, 0, 999};
	for (size_t i = 0; i < 6; i++)
		check(&s, keys, sizes[i]);
	ps_split_fini(&s);
}

Test(ps_split, leaves_servers_empty)
{
	uint64_t keys[] = {5, 5, 5};
	struct ps_split s;
	cr_assert_eq(ps_split_init(&s, 64), 0);
	check(&s, keys, 3);
	ps_split_fini(&s);
}

/* Small consecutive keys are the usual ones: no server may get much more than its share of them. */
Test(ps_split, spreads_consecutive_keys)
{
	size_t count[5] = {0};
	for (uint64_t k = 0; k < 50000; k++) {
		unsigned o = ps_owner(k, 5);
		cr_assert_lt(o, 5);
		count[o]++;
	}
	for (int o = 0; o < 5; o++)
		cr_assert(count[o] > 9500 && count[o] < 10500, "server %d owns %zu of 50000", o, count[o]);
}

/* Every shard of every server is one part, and no two are the same. */
Test(ps_split, parts_are_servers_times_shards)
{
	bool seen[7][5] = {{false}};
	size_t count[35] = {0};
	for (unsigned p = 0; p < 35; p++) {
		unsigned server = ps_part_server(p, 5), shard = ps_part_shard(p, 5);
		cr_assert_lt(server, 7);
		cr_assert_lt(shard, 5);
		cr_assert_not(seen[server][shard]);
		seen[server][shard] = true;
	}
	for (uint64_t k = 0; k < 70000; k++)
		count[ps_owner(k, 35)]++;
	for (int p = 0; p < 35; p++)
		cr_assert(count[p] > 1700 && count[p] < 2300, "part %d owns %zu of 70000", p, count[p]);
	/* One shard each: the parts are the servers. */
	for (unsigned s = 0; s < 4; s++)
		cr_assert(ps_part_server(s, 1) == s && ps_part_shard(s, 1) == 0);
}
