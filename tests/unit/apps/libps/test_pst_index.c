/* SPDX-License-Identifier: BSD-3-Clause */
/** The index of a table: lookups, growth, the bound of each insert. The test's thread. */
#include "apps/libps/pst_index.h"
#include "pst_fixture.h"
#include <criterion/criterion.h>
#include <errno.h>

TestSuite(pst_index);

static int insert(struct pst_index *x, uint64_t key, uint32_t row)
{
	uint64_t hash = pst_hash(key);
	int rc = pst_index_reserve(x, hash);
	if (!rc)
		pst_index_put(x, hash, key, row);
	return rc;
}

static uint32_t lookup(const struct pst_index *x, uint64_t key)
{
	const uint32_t *row = pst_index_find(x, pst_hash(key), key);
	return row ? *row : PST_NO_ROW;
}

Test(pst_index, a_line_finds_each_of_its_keys_and_only_those_in_use)
{
	struct pst_line l = {.key = {0, 1, UINT64_MAX, UINT64_C(1) << 32, 0}, .row = {10, 11, 12, 13, 14}};
	cr_assert_eq(pst_line_match(&l, 0), 0, "nothing is in use");
	l.used = PST_LINE_FULL;
	for (unsigned i = 1; i < 4; i++)
		cr_assert_eq(pst_line_match(&l, l.key[i]), 1u << 2 * i);
	cr_assert_eq(pst_line_match(&l, 0), 1u | 1u << 8);
	cr_assert_eq(pst_line_match(&l, (UINT64_C(1) << 32) | 1), 0, "halves of two keys are no key");
	cr_assert_eq(pst_line_match(&l, UINT32_MAX), 0);
	l.used = 1u << 8;
	cr_assert_eq(pst_line_match(&l, 0), 1u << 8);
}

Test(pst_index, edge_keys_are_keys)
{
	struct pst_index x;
	cr_assert_eq(pst_index_init(&x, &pst_memory_default), 0);
	uint64_t keys[] = {0, 1, UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 63, UINT64_C(1) << 32};
	for (uint32_t i = 0; i < 6; i++) {
		cr_assert_eq(lookup(&x, keys[i]), PST_NO_ROW);
		cr_assert_eq(insert(&x, keys[i], i), 0);
	}
	for (uint32_t i = 0; i < 6; i++)
		cr_assert_eq(lookup(&x, keys[i]), i);
	cr_assert_eq(pst_index_remove(&x, pst_hash(0), 0), 0);
	cr_assert_eq(pst_index_remove(&x, pst_hash(0), 0), PST_NO_ROW);
	cr_assert_eq(lookup(&x, 0), PST_NO_ROW);
	cr_assert_eq(x.keys, 5);
	pst_index_fini(&x);
}

Test(pst_index, an_empty_partition_costs_one_line_and_one_with_a_key_two)
{
	struct pst_index x;
	pst_index_init(&x, &pst_memory_default);
	cr_assert_eq(sizeof x.part[0], 64);
	cr_assert_eq(x.lines.top - 64 - x.lines.free, 1, "the empty line that all share");
	insert(&x, 5, 5);
	cr_assert_eq(x.lines.top - 64 - x.lines.free, 2);
	pst_index_fini(&x);
}

/* The work of each insert is bounded: the entries moved, and the pointers copied when a directory doubles. */
Test(pst_index, no_insert_moves_more_than_one_segment)
{
	enum { KEYS = 3000000 };
	struct pst_index x;
	pst_index_init(&x, &pst_memory_default);
	uint64_t moved = 0;
	uint32_t most = 0;
	for (uint32_t i = 0; i < KEYS; i++) {
		/* Every third key goes to one of two partitions: they get directories. */
		uint64_t key = i % 3 ? i : key_of(pst_hash(i) >> 12 | (uint64_t)(i & 1) << 63);
		cr_assert_eq(insert(&x, key, i), 0);
		cr_assert_leq(x.work.moved_last, PST_SEGMENT_KEYS);
		moved += x.work.moved_last;
		most = x.work.moved_last > most ? x.work.moved_last : most;
	}
	cr_assert_eq(moved, x.work.moved);
	cr_assert_eq(most, x.work.moved_most);
	cr_assert_gt(x.work.split, 250);
	cr_assert_gt(x.work.doubled, 10);
	cr_assert_geq(x.part[0].directory.depth, 8);
	cr_assert_leq(x.work.copied_most, 8192);
	cr_assert_leq(moved, 8 * (uint64_t)KEYS, "%f moves for each insert", (double)moved / KEYS);
	for (uint32_t i = 0; i < KEYS; i += 7)
		cr_assert_eq(lookup(&x, i % 3 ? i : key_of(pst_hash(i) >> 12 | (uint64_t)(i & 1) << 63)), i);
	pst_index_fini(&x);
}

Test(pst_index, at_a_million_keys_it_takes_at_most_26_bytes_for_each)
{
	struct pst_index x;
	pst_index_init(&x, &pst_memory_default);
	uint64_t seed = 3;
	for (uint32_t i = 1; i <= 4000000; i++) {
		cr_assert_eq(insert(&x, draw64(&seed), i), 0);
		if (i >= 1000000 && i % 50000 == 0)
			cr_assert_leq(pst_index_bytes(&x), 26 * (size_t)i, "%.1f bytes at %u keys",
				      (double)pst_index_bytes(&x) / i, i);
	}
	pst_index_fini(&x);
}

Test(pst_index, keys_that_collide_in_their_first_bits_are_refused_in_the_end)
{
	struct pst_index x;
	pst_index_init(&x, &pst_memory_default);
	uint32_t n = 0;
	int rc = 0;
	while (n < 10000 && !rc) {
		rc = insert(&x, key_of((UINT64_C(0xabcdef12) << 32) + n), n);
		n += !rc;
	}
	cr_assert_eq(rc, -EOVERFLOW);
	cr_assert_geq(n, PST_SEGMENT_KEYS);
	for (uint32_t i = 0; i < n; i++)
		cr_assert_eq(lookup(&x, key_of((UINT64_C(0xabcdef12) << 32) + i)), i);
	cr_assert_eq(insert(&x, 1, 1), 0, "others are not affected");
	for (uint32_t i = 0; i < n; i++)
		cr_assert_eq(pst_index_remove(&x, (UINT64_C(0xabcdef12) << 32) + i,
					      key_of((UINT64_C(0xabcdef12) << 32) + i)),
			     i);
	cr_assert_eq(x.keys, 1);
	pst_index_fini(&x);
}

/* Keys 0, 4, 8 … stay; 1, 5, … are added during the scan; 2, 6, … removed. */
Test(pst_index, a_scan_reports_each_key_that_stays_once_in_the_order_of_hashes)
{
	enum { KEYS = 400000 };
	for (uint64_t seed = 1; seed <= 3; seed++) {
		struct pst_index x;
		pst_index_init(&x, &pst_memory_default);
		uint8_t *seen = calloc(KEYS, 1);
		for (uint32_t i = 0; i < KEYS; i++)
			if (i % 4 == 0 || i % 4 == 2)
				insert(&x, i, i);
		uint64_t from = 0, last_hash = 0, random = seed;
		struct pst_entry entries[50];
		bool done = false;
		uint32_t add = 1, remove = 2;
		while (!done) {
			uint32_t n = pst_index_scan(&x, &from, UINT64_MAX, entries, 1 + draw64(&random) % 50, &done);
			for (uint32_t j = 0; j < n; j++) {
				cr_assert(pst_hash(entries[j].key) >= last_hash);
				last_hash = pst_hash(entries[j].key);
				cr_assert_eq(entries[j].row, entries[j].key);
				cr_assert_lt(seen[entries[j].key], 1, "key %lu twice", (unsigned long)entries[j].key);
				seen[entries[j].key]++;
			}
			for (unsigned j = draw64(&random) % 60; j && add < KEYS; j--, add += 4)
				insert(&x, add, add);
			for (unsigned j = draw64(&random) % 40; j && remove < KEYS; j--, remove += 4)
				pst_index_remove(&x, pst_hash(remove), remove);
		}
		for (uint32_t i = 0; i < KEYS; i += 4)
			cr_assert_eq(seen[i], 1, "key %u", i);
		free(seen);
		pst_index_fini(&x);
	}
}

Test(pst_index, a_scan_of_a_partition_reports_its_keys_alone)
{
	struct pst_index x;
	pst_index_init(&x, &pst_memory_default);
	for (uint32_t i = 0; i < 100000; i++)
		insert(&x, i, i);
	uint64_t sum = 0;
	for (uint64_t p = 0; p < PST_PARTITIONS; p++) {
		uint64_t from = p << 52, last = from | UINT64_MAX >> 12;
		struct pst_entry entries[7];
		bool done = false;
		uint32_t here = 0;
		while (!done) {
			uint32_t n = pst_index_scan(&x, &from, last, entries, 7, &done);
			for (uint32_t j = 0; j < n; j++)
				cr_assert_eq(pst_partition(pst_hash(entries[j].key)), p);
			here += n;
		}
		cr_assert_eq(here, pst_index_keys(&x, (unsigned)p));
		sum += here;
	}
	cr_assert_eq(sum, 100000);
	pst_index_fini(&x);
}

/* The lines that removed keys passed no longer make lookups go on. */
Test(pst_index, removal_gives_lookups_their_short_way_back)
{
	struct pst_index x;
	pst_index_init(&x, &pst_memory_default);
	for (uint32_t i = 0; i < 2000000; i++)
		insert(&x, i, i);
	for (uint32_t i = 0; i < 2000000; i++)
		cr_assert_eq(pst_index_remove(&x, pst_hash(i), i), i);
	for (unsigned p = 0; p < PST_PARTITIONS; p++) {
		const struct pst_part *part = &x.part[p];
		uint32_t segments = part->segment.lines ? 1 : 1u << part->directory.depth;
		for (uint32_t d = 0; d < segments; d++) {
			const struct pst_segment *s = part->segment.lines ? &part->segment : part->directory.segment[d];
			for (uint32_t i = 0; i < s->lines; i++) {
				const struct pst_line *l = pst_index_line(&x, s, i);
				cr_assert_eq(l->used, 0);
				cr_assert(l->over == 0 || l->over == PST_OVER_MAX);
			}
		}
	}
	cr_assert_eq(x.keys, 0);
	pst_index_fini(&x);
}

Test(pst_index, any_failed_allocation_leaves_the_index_as_it_was)
{
	struct fake_memory f;
	fake_memory_init(&f);
	struct pst_index x;
	for (uint64_t at = 1;; at++) {
		f.fail_at = f.gets + at;
		int rc = pst_index_init(&x, &f.memory);
		f.fail_at = 0;
		if (!rc)
			break;
		cr_assert_eq(rc, -ENOMEM);
		cr_assert_eq(f.blocks, 0);
	}
	/* One partition: directories are allocated too. Every allocation fails once. */
	uint32_t n = 0, failures = 0;
	while (n < 60000) {
		uint64_t hash = UINT64_C(0x123) << 52 | pst_hash(n) >> 12;
		f.fail_at = f.gets + 1;
		uint64_t keys = x.keys, gets = f.gets;
		int rc = insert(&x, key_of(hash), n);
		f.fail_at = 0;
		if (rc) {
			cr_assert_eq(rc, -ENOMEM);
			cr_assert_eq(f.gets, gets + 1);
			cr_assert_eq(x.keys, keys);
			failures++;
			for (uint32_t i = 0; i < n; i += 1 + n / 500)
				cr_assert_eq(lookup(&x, key_of(UINT64_C(0x123) << 52 | pst_hash(i) >> 12)), i);
			cr_assert_eq(lookup(&x, key_of(hash)), PST_NO_ROW);
			cr_assert_eq(insert(&x, key_of(hash), n), 0);
		}
		n++;
	}
	cr_assert_geq(failures, 5, "the directory begins and doubles");
	pst_index_fini(&x);
	cr_assert_eq(f.blocks, 0);
	cr_assert_eq(f.bytes, 0);
}
