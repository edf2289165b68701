/* SPDX-License-Identifier: BSD-3-Clause */
/** The keys of an operation: which positions are equal, and the division, at once and in steps. The test's thread. */
#include "apps/libps/psv_keys.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(psv_keys);

static uint64_t *draw(size_t n, uint64_t different)
{
	uint64_t *keys = malloc(n * sizeof *keys), state = 7;
	for (size_t i = 0; i < n; i++)
		keys[i] = pst_hash(pst_hash(++state) % different);
	return keys;
}

static struct psv_view *view_of(uint32_t slots)
{
	struct psv_view *v = calloc(1, sizeof *v);
	v->slots = slots;
	for (unsigned p = 0; p < FAR_PS_PARTITIONS; p++)
		v->owner[p] = (uint16_t)(p % slots);
	return v;
}

static struct psv_keys begun(const uint64_t *keys, size_t n, bool merge, void **memory)
{
	struct psv_keys k;
	size_t bytes = (psv_keys_bytes(n, merge) + 63) / 64 * 64;
	*memory = aligned_alloc(64, bytes);
	memset(*memory, 0xaa, bytes);
	psv_keys_init(&k, *memory, keys, 0, n, merge);
	return k;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* Each position has a key that is equal, numbers are given in the order of first positions, `again` has the others. */
static void check_numbers(const struct psv_keys *k, const uint64_t *keys)
{
	uint32_t distinct = 0, again = 0;
	for (uint32_t i = 0; i < k->n; i++) {
		cr_assert_leq(k->at[i], distinct);
		cr_assert_eq(k->key[k->at[i]], keys[i]);
		if (k->at[i] == distinct) {
			cr_assert_eq(k->first[distinct], i);
			distinct++;
		} else {
			cr_assert_eq(k->again[again], i);
			again++;
		}
	}
	cr_assert_eq(k->distinct, distinct);
	cr_assert_eq(k->numbered, k->n);
	uint64_t *sorted = malloc(distinct * sizeof *sorted);
	memcpy(sorted, k->key, distinct * sizeof *sorted);
	qsort(sorted, distinct, sizeof *sorted, compare);
	for (uint32_t i = 1; i < distinct; i++)
		cr_assert_neq(sorted[i - 1], sorted[i]);
	for (uint32_t i = 0; i < distinct; i++)
		cr_assert_eq(k->hash[i], pst_hash(k->key[i]));
	free(sorted);
}

/* One table, and parts. */
Test(psv_keys, equal_keys_have_one_number)
{
	static const struct {
		uint32_t n;
		uint64_t different;
	} cases[] = {{1, 1},       {3, 1},       {2000, 700},       {2000, UINT64_MAX},
		     {65535, 900}, {65536, 900}, {70000, 1u << 20}, {300000, 100000},
		     {300000, 1}};
	for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
		uint64_t *keys = draw(cases[c].n, cases[c].different);
		void *memory;
		struct psv_keys k = begun(keys, cases[c].n, true, &memory);
		while (psv_keys_go_on(&k))
			cr_assert_lt(k.numbered, k.n);
		check_numbers(&k, keys);
		free(memory);
		free(keys);
	}
}

/* Whose table grows; with n more than twice as many as the first size of the table has, at the last key too. */
Test(psv_keys, one_part_has_all_keys)
{
	for (uint32_t n = 65536; n <= 131072; n += 65536)
		for (int repeats = 0; repeats < 2; repeats++) {
			uint64_t *keys = malloc(n * sizeof *keys), key = 0;
			void *memory;
			for (uint32_t i = 0; i < n; i++) {
				while (pst_hash(++key) >> 60)
					;
				keys[i] = repeats && i % 3 == 2 ? keys[i / 2] : key;
			}
			struct psv_keys k = begun(keys, n, true, &memory);
			while (psv_keys_go_on(&k))
				;
			check_numbers(&k, keys);
			cr_assert(repeats ? k.distinct < n : k.distinct == n);
			free(memory);
			free(keys);
		}
}

Test(psv_keys, many_keys_are_looked_at_in_small_turns)
{
	uint64_t *keys = draw(1u << 20, UINT64_MAX);
	void *memory;
	struct psv_keys k = begun(keys, 1u << 20, true, &memory);
	uint32_t turns = 0;
	while (psv_keys_go_on(&k))
		turns++;
	check_numbers(&k, keys);
	cr_assert_geq(turns, 3 * ((1u << 20) >> 14));
	free(memory);
	free(keys);
}

Test(psv_keys, steps_find_equal_keys_of_earlier_steps)
{
	uint64_t *keys = draw(5000, 900);
	void *memory;
	struct psv_keys k = begun(keys, 5000, true, &memory);
	for (uint32_t to = 1; to < k.n; to += to)
		psv_keys_number(&k, to);
	psv_keys_number(&k, k.n);
	check_numbers(&k, keys);
	free(memory);
	free(keys);
}

/* Each key once, in a chunk of its slot, of at most `most` keys; chunks of a slot are numbered. */
static void check_division(const struct psv_keys *k, const struct psv_view *v, const struct psv_division *d,
			   uint32_t most)
{
	bool *seen = calloc(k->distinct, sizeof *seen);
	uint32_t index[8] = {0}, n = 0;
	for (uint32_t c = 0; c < d->n; c++) {
		const struct psv_chunk *chunk = &d->chunk[c];
		cr_assert(chunk->n >= 1 && chunk->n <= most);
		cr_assert_eq(chunk->index, index[chunk->slot]);
		index[chunk->slot]++;
		for (uint32_t i = chunk->from; i < chunk->from + chunk->n; i++) {
			cr_assert_not(seen[k->order[i]]);
			seen[k->order[i]] = true;
			cr_assert_eq(psv_slot_of(v, k->hash[k->order[i]]), chunk->slot);
			cr_assert(!k->in_order || k->order[i] == i);
		}
		n += chunk->n;
	}
	cr_assert_eq(n, k->distinct);
	free(seen);
}

Test(psv_keys, a_division_at_once_has_each_key_once)
{
	uint64_t *keys = draw(5000, 3000);
	for (uint32_t slots = 1; slots <= 8; slots++) {
		struct psv_view *v = view_of(slots);
		struct psv_division d = {0};
		void *memory;
		struct psv_keys k = begun(keys, 5000, true, &memory);
		psv_keys_number(&k, k.n);
		cr_assert(psv_keys_divide(&k, NULL, v, 100, &d));
		cr_assert_eq(k.in_order, slots == 1);
		check_division(&k, v, &d, 100);
		free(d.chunk);
		free(memory);
		free(v);
	}
	free(keys);
}

/* So the servers begin while the client fills the next requests. No more chunks than otherwise. */
Test(psv_keys, the_first_chunk_of_a_slot_has_what_the_others_leave)
{
	uint64_t *keys = draw(5000, 3000);
	for (uint32_t slots = 1; slots <= 8; slots++)
		for (uint32_t most = 1; most <= 5000; most = 2 * most + 1) {
			struct psv_view *v = view_of(slots);
			struct psv_division d = {.short_first = true}, whole = {0};
			void *memory;
			struct psv_keys k = begun(keys, 5000, true, &memory);
			psv_keys_number(&k, k.n);
			cr_assert(psv_keys_divide(&k, NULL, v, most, &whole));
			k.divided = 0;
			cr_assert(psv_keys_divide(&k, NULL, v, most, &d));
			check_division(&k, v, &d, most);
			cr_assert_eq(d.n, whole.n);
			cr_assert_eq(d.deepest, whole.deepest);
			for (uint32_t c = 0; c < d.n; c++)
				cr_assert(d.chunk[c].index == 0 || d.chunk[c].n == most);
			free(d.chunk);
			free(whole.chunk);
			free(memory);
			free(v);
		}
	free(keys);
}

/* With one slot the indexes go on; with several ones a slot may have no key in a step. */
Test(psv_keys, divisions_of_steps_have_each_key_once)
{
	uint64_t *keys = draw(5000, 3000);
	struct psv_view *v = view_of(1);
	struct psv_division d = {0};
	void *memory;
	struct psv_keys k = begun(keys, 5000, true, &memory);
	cr_assert(psv_division_room(&d, 5000 / 30));
	while (k.numbered < k.n) {
		psv_keys_number(&k, k.numbered + 50);
		cr_assert(psv_keys_divide(&k, NULL, v, 30, &d));
	}
	check_division(&k, v, &d, 30);
	free(d.chunk);
	free(memory);
	free(v);
	free(keys);
}

Test(psv_keys, a_division_of_open_keys_has_these_alone)
{
	uint64_t *keys = draw(900, UINT64_MAX);
	bool open[900];
	for (int slots = 1; slots <= 3; slots++) {
		struct psv_view *v = view_of((uint32_t)slots);
		struct psv_division d = {0};
		void *memory;
		struct psv_keys k = begun(keys, 900, true, &memory);
		psv_keys_number(&k, k.n);
		uint32_t want = 0, n = 0;
		for (uint32_t i = 0; i < k.n; i++)
			want += open[i] = i % 3 == 0;
		cr_assert(psv_keys_divide(&k, open, v, 40, &d));
		cr_assert_not(k.in_order);
		for (uint32_t c = 0; c < d.n; c++)
			for (uint32_t i = d.chunk[c].from; i < d.chunk[c].from + d.chunk[c].n; i++, n++)
				cr_assert(open[k.order[i]]);
		cr_assert_eq(n, want);
		free(d.chunk);
		free(memory);
		free(v);
	}
	free(keys);
}

Test(psv_keys, without_a_merge_each_position_is_a_key)
{
	const uint64_t keys[] = {5, 5, 7, 5};
	void *memory;
	struct psv_keys k = begun(keys, 4, false, &memory);
	psv_keys_number(&k, 4);
	cr_assert_eq(k.distinct, 4);
	cr_assert_arr_eq(k.key, keys, sizeof keys);
	free(memory);
	psv_keys_init(&k, memory = aligned_alloc(64, 1024), NULL, 40, 3, true);
	psv_keys_number(&k, 3);
	cr_assert(k.distinct == 3 && k.key[0] == 40 && k.key[2] == 42);
	free(memory);
}
