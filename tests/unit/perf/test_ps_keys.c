/* SPDX-License-Identifier: BSD-3-Clause */
/** Keys of `farcall perf ps`: uniform and Zipf. The test's thread. */
#include "perf/ps_keys.h"
#include <criterion/criterion.h>
#include <stdlib.h>

#define ROWS 630000u
#define KEYS 2000u

static uint64_t keys[KEYS];

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static unsigned distinct(void)
{
	unsigned n = 1;
	qsort(keys, KEYS, sizeof *keys, by_value);
	for (unsigned i = 1; i < KEYS; i++)
		n += keys[i] != keys[i - 1];
	return n;
}

Test(ps_keys, uniform_ones_rarely_repeat)
{
	uint64_t seed = 7;
	ps_keys_draw(&seed, ROWS, false, keys, KEYS);
	unsigned n = distinct();
	cr_assert(n > KEYS - 20 && keys[0] < ROWS / 100 && keys[KEYS - 1] < ROWS && keys[KEYS - 1] > ROWS / 100 * 99,
		  "%u distinct, from %lu to %lu", n, (unsigned long)keys[0], (unsigned long)keys[KEYS - 1]);
}

/* The most frequent key of Zipf 1.2 has 1 / zeta(1.2) = 18 % of all. */
Test(ps_keys, zipf)
{
	uint64_t seed = 7;
	ps_keys_draw(&seed, ROWS, true, keys, KEYS);
	unsigned n = distinct(), most = 0;
	for (unsigned i = 0, run = 0; i < KEYS; i++) {
		run = i && keys[i] == keys[i - 1] ? run + 1 : 1;
		most = run > most ? run : most;
	}
	cr_assert(n > 600 && n < 800, "%u distinct", n);
	cr_assert(most > KEYS * 16 / 100 && most < KEYS * 23 / 100, "%u of the most frequent one", most);
	cr_assert(keys[KEYS - 1] < ROWS && keys[KEYS - 1] > ROWS / 2);
}

Test(ps_keys, a_seed_gives_the_same_keys_and_the_next_ones_differ)
{
	static uint64_t again[KEYS];
	uint64_t seed = 1, same = 1;
	ps_keys_draw(&seed, 1000, true, keys, KEYS);
	ps_keys_draw(&same, 1000, true, again, KEYS);
	cr_assert_arr_eq(keys, again, sizeof keys);
	ps_keys_draw(&seed, 1000, true, again, KEYS);
	cr_assert_arr_neq(keys, again, sizeof keys);
}

Test(ps_keys, a_single_row)
{
	uint64_t seed = 3;
	ps_keys_draw(&seed, 1, true, keys, 10);
	ps_keys_draw(&seed, 1, false, keys + 10, 10);
	for (unsigned i = 0; i < 20; i++)
		cr_assert_eq(keys[i], 0);
}
