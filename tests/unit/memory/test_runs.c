/* SPDX-License-Identifier: BSD-3-Clause */
/** Page runs, also against a model of their owners. The test's thread, and threads that it starts. */
#include "memory/runs.h"
#include "region_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

static struct runs_stats stats(void)
{
	struct runs_stats s;
	runs_stats(&s);
	return s;
}

Test(runs, whole_pages_at_their_alignment)
{
	region_of(64);
	for (size_t align = 1; align <= 4 * MIB; align *= 2) {
		uint8_t *p = runs_alloc(page + 1, align, NULL);
		cr_assert_not_null(p, "align %zu", align);
		cr_assert_eq((uintptr_t)p % align, 0u);
		cr_assert_eq((uintptr_t)p % page, 0u);
		cr_assert_eq(runs_size(p), 2 * page);
		memset(p, 1, 2 * page);
		cr_assert(runs_sane());
	}
	cr_assert_eq(runs_size(region.base + 1), 0u);
	cr_assert_eq(runs_size(&page), 0u);
}

Test(runs, freed_neighbours_become_one_and_go_back_to_the_gap)
{
	region_of(64);
	uint8_t *p[8];
	for (int i = 0; i < 8; i++)
		p[i] = runs_alloc(MIB, 1, NULL);
	for (int i = 0; i < 8; i += 2)
		runs_free(p[i], MIB);
	cr_assert_eq(stats().free_runs, 4u);
	for (int i = 1; i < 8; i += 2)
		runs_free(p[i], MIB);
	cr_assert(runs_sane());
	cr_assert_eq(stats().used, 0u);
	cr_assert_leq(stats().free_runs, 1u);
	cr_assert_not_null(runs_alloc(50 * MIB, 1, NULL), "nothing is fragmented");
}

Test(runs, the_best_fit_is_taken)
{
	region_of(64);
	uint8_t *a = runs_alloc(5 * MIB, 1, NULL), *wall = runs_alloc(page, 1, NULL), *b = runs_alloc(4 * MIB, 1, NULL);
	cr_assert(wall && runs_alloc(page, 1, NULL));
	runs_free(a, 5 * MIB);
	runs_free(b, 4 * MIB);
	cr_assert_eq(runs_alloc(4 * MIB, 1, NULL), b);
	cr_assert_eq(runs_alloc(5 * MIB, 1, NULL), a);
}

Test(runs, parts_and_neighbours_can_be_freed_together)
{
	region_of(64);
	uint8_t *low = runs_alloc(8 * page, 1, NULL), *high = low;
	low = runs_alloc(8 * page, 1, NULL);
	cr_assert_eq(low + 8 * page, high);
	runs_free(low + 2 * page, 10 * page);
	cr_assert(runs_sane());
	cr_assert_eq(stats().used, 6 * page);
	runs_free(high + 4 * page, 4 * page);
	runs_free(low, 2 * page);
	cr_assert(runs_sane());
	cr_assert_eq(stats().used, 0u);
}

Test(runs, exhaustion_is_null_and_recovers)
{
	region_of(64);
	cr_assert_null(runs_alloc(64 * MIB, 1, NULL), "a sixteenth is for slabs");
	uint8_t *all = runs_alloc(60 * MIB, 1, NULL);
	cr_assert_not_null(all);
	cr_assert_null(runs_alloc(1, 1, NULL));
	cr_assert_null(runs_alloc(SIZE_MAX, 1, NULL));
	cr_assert_null(runs_alloc(1, (size_t)1 << 40, NULL));
	runs_free(all, 60 * MIB);
	cr_assert_eq(runs_alloc(60 * MIB, 1, NULL), all);
	cr_assert(runs_sane());
}

Test(runs, slabs_and_runs_never_meet)
{
	region_of(64);
	uint8_t *slab, *last = NULL, *run = runs_alloc(20 * MIB, 1, NULL);
	while ((slab = region_carve(MIB + 64)))
		last = slab;
	cr_assert_leq(last + MIB + 64, run);
	cr_assert_null(runs_alloc(2 * MIB, 1, NULL));
	cr_assert_gt(last + 2 * (MIB + 64), run, "all of the gap was used");
	runs_free(run, 20 * MIB);
	cr_assert(runs_sane());
}

Test(runs, pages_go_back_to_the_system_beyond_the_retained)
{
	region_of(512);
	size_t bytes = 200 * MIB;
	uint8_t *p = runs_alloc(bytes, 1, NULL);
	memset(p, 1, bytes);
	cr_assert_eq(resident(p, bytes), bytes / page);
	runs_free(p, bytes);
	cr_assert_eq(resident(p, bytes), 0u);
	cr_assert_eq(stats().retained, 0u);
	/* Small ones stay, up to the bound. */
	uint8_t *small[16];
	for (int i = 0; i < 16; i++) {
		small[i] = runs_alloc(8 * MIB, 1, NULL);
		memset(small[i], 1, 8 * MIB);
	}
	uint8_t *low = small[15];
	for (int i = 0; i < 16; i++) {
		runs_free(small[i], 8 * MIB);
		cr_assert_leq(stats().retained, 64 * MIB);
		cr_assert(runs_sane());
	}
	cr_assert_leq(resident(low, 128 * MIB), 64 * MIB / page);
}

Test(runs, a_kept_run_is_used_again_without_a_fault)
{
	region_of(64);
	bool zeroed = false;
	uint8_t *p = runs_alloc(16 * MIB, 1, &zeroed);
	cr_assert(zeroed);
	memset(p, 1, 16 * MIB);
	runs_free(p, 16 * MIB);
	cr_assert_eq(runs_alloc(16 * MIB, 1, &zeroed), p);
	cr_assert_not(zeroed);
	cr_assert_eq(resident(p, 16 * MIB), 16 * MIB / page);
	cr_assert_eq(stats().retained, 0u);
}

Test(runs, twice_freed_ends_the_process, .signal = SIGABRT)
{
	region_of(64);
	uint8_t *a = runs_alloc(page, 1, NULL);
	runs_alloc(page, 1, NULL);
	runs_free(a, page);
	runs_free(a, page);
}

/* ---- against a model: who owns each page, and whether a run that is said to be zero is ---- */

enum { SLOTS = 200, STEPS = 30000 };

struct run {
	uint8_t *p;
	size_t bytes;
	uint8_t mark;
};

static uint32_t next_random(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

static void put_marks(const struct run *r)
{
	for (size_t at = 0; at < r->bytes; at += page)
		r->p[at] = r->mark;
}

static bool has_marks(const struct run *r, uint8_t mark)
{
	for (size_t at = 0; at < r->bytes; at += page)
		if (r->p[at] != mark)
			return false;
	return true;
}

static bool random_step(struct run *r, uint32_t *seed)
{
	if (r->p) {
		if (!has_marks(r, r->mark))
			return false;
		runs_free(r->p, r->bytes);
		r->p = NULL;
		return true;
	}
	uint32_t kind = next_random(seed) % 100;
	size_t pages = 1 + next_random(seed) % (kind < 80 ? 16 : kind < 99 ? 300 : 5000);
	size_t align = (size_t)1 << next_random(seed) % 22;
	bool zeroed = false;
	r->bytes = pages * page;
	r->mark = (uint8_t)(1 + next_random(seed) % 255);
	if (!(r->p = runs_alloc(r->bytes, align, &zeroed)))
		return true;
	if ((uintptr_t)r->p % align || runs_size(r->p) != r->bytes || (zeroed && !has_marks(r, 0)))
		return false;
	put_marks(r);
	return true;
}

Test(runs, random_runs_agree_with_a_model, .timeout = 60)
{
	static struct run runs[SLOTS];
	uint32_t seed = 7;
	size_t used = 0;
	region_of(96);
	for (int i = 0; i < STEPS; i++) {
		struct run *r = &runs[next_random(&seed) % SLOTS];
		size_t before = r->p ? r->bytes : 0;
		cr_assert(random_step(r, &seed), "step %d", i);
		used = used - before + (r->p ? r->bytes : 0);
		cr_assert_eq(stats().used, used, "step %d", i);
		if (i % 64 == 0)
			cr_assert(runs_sane(), "step %d", i);
		if (i % 16 == 0 && region_slabs() < 20 * MIB)
			region_carve(64 * 64);
	}
	for (int i = 0; i < SLOTS; i++)
		if (runs[i].p)
			cr_assert(random_step(&runs[i], &seed));
	cr_assert(runs_sane());
	cr_assert_eq(stats().used, 0u);
	cr_assert_not_null(runs_alloc(60 * MIB, 1, NULL), "all of it is one piece again");
}

static void *churn(void *arg)
{
	static const int steps = 4000;
	struct run runs[16] = {{NULL, 0, 0}};
	uint32_t seed = (uint32_t)(uintptr_t)arg;
	for (int i = 0; i < steps; i++)
		if (!random_step(&runs[next_random(&seed) % 16], &seed))
			return (void *)1;
	for (int i = 0; i < 16; i++)
		if (runs[i].p && !random_step(&runs[i], &seed))
			return (void *)1;
	return NULL;
}

Test(runs, threads_never_share_a_page, .timeout = 60)
{
	pthread_t t[4];
	region_of(128);
	for (uintptr_t i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&t[i], NULL, churn, (void *)(i + 1)), 0);
	for (int i = 0; i < 4; i++) {
		void *bad;
		pthread_join(t[i], &bad);
		cr_assert_null(bad);
	}
	cr_assert(runs_sane());
	cr_assert_eq(stats().used, 0u);
}
