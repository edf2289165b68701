/* SPDX-License-Identifier: BSD-3-Clause */
/** jemalloc over the page runs: its settings, arenas, and what becomes of its extents. The test's thread, and threads
 * that it starts. */
#include "region_fixture.h"

#include "memory/runs.h"

#include <jemalloc/jemalloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Hidden in the program. */
void *far_je_mallocx(size_t bytes, int flags);
void far_je_dallocx(void *p, int flags);
int far_je_mallctl(const char *name, void *old, size_t *old_bytes, void *new, size_t new_bytes);
char *far_je_getenv(const char *name);
ssize_t far_je_readlink(const char *path, char *out, size_t bytes);

static void read_setting(const char *name, void *out, size_t bytes)
{
	size_t n = bytes;
	cr_assert_eq(far_je_mallctl(name, out, &n, NULL, 0), 0, "%s", name);
	cr_assert_eq(n, bytes, "%s", name);
}

static unsigned arenas(void)
{
	unsigned n;
	read_setting("arenas.narenas", &n, sizeof n);
	return n;
}

static uint64_t runs_used(void)
{
	struct runs_stats s;
	runs_stats(&s);
	return s.used;
}

/* Neither the environment nor a file of the system, which are another allocator's of the process. */
Test(jemalloc, settings_are_its_own)
{
	static const char *const off[] = {"opt.retain", "opt.tcache"};
	static const char *const decay[] = {"opt.dirty_decay_ms", "opt.muzzy_decay_ms"};
	char link[8];
	const char *dss;
	unsigned n;
	setenv("MALLOC_CONF", "retain:true", 1);
	cr_assert_null(far_je_getenv("MALLOC_CONF"));
	cr_assert_eq(far_je_readlink("/proc/self/exe", link, sizeof link), -1);
	for (size_t i = 0; i < 2; i++) {
		bool on = true;
		ssize_t ms = -1;
		read_setting(off[i], &on, sizeof on);
		cr_assert_not(on, "%s", off[i]);
		read_setting(decay[i], &ms, sizeof ms);
		cr_assert_eq(ms, 0, "%s", decay[i]);
	}
	read_setting("opt.dss", &dss, sizeof dss);
	cr_assert_str_eq(dss, "disabled");
	read_setting("opt.narenas", &n, sizeof n);
	cr_assert_eq(n, 1u);
}

/* The calling thread runs on this processor alone. */
static bool stay_on(size_t cpu)
{
	cpu_set_t only;
	CPU_ZERO(&only);
	CPU_SET(cpu, &only);
	return pthread_setaffinity_np(pthread_self(), sizeof only, &only) == 0;
}

/* Expect page runs to have back what was freed, at once, but for jemalloc's own tables. Another processor would have
 * an arena of its own, with its tables. */
Test(jemalloc, extents_go_back_to_the_page_runs)
{
	static void *p[64];
	cr_assert(stay_on((size_t)sched_getcpu()));
	region_of(256);
	for (unsigned round = 0; round < 3; round++) {
		static uint64_t tables;
		for (unsigned i = 0; i < 64; i++) {
			p[i] = far_alloc((size_t)1 << (6 + i % 16), NULL);
			cr_assert(p[i] && region_holds(p[i]) && !region_is_slab(p[i]));
		}
		cr_assert_gt(runs_used(), 4 * (4 * MIB - 64));
		for (unsigned i = 0; i < 64; i++)
			far_free(p[i]);
		if (round == 0)
			tables = runs_used();
		cr_assert_eq(runs_used(), tables, "round %u", round);
		cr_assert_lt(tables, 8 * MIB);
		cr_assert(runs_sane());
	}
}

/* Page runs return pages that were in use before. */
Test(jemalloc, extents_that_are_to_be_zero_are_zero)
{
	static const uint8_t zeros[4096];
	region_of(64);
	unsigned before = arenas();
	void *p = far_alloc(3 * MIB, NULL);
	memset(p, 0xff, 3 * MIB);
	far_free(p);
	cr_assert_eq(arenas(), before + 1);
	uint8_t *z = far_je_mallocx(3 * MIB, MALLOCX_ARENA(before) | MALLOCX_ZERO | MALLOCX_TCACHE_NONE);
	cr_assert(z && region_holds(z));
	for (size_t at = 0; at < 3 * MIB; at += sizeof zeros)
		cr_assert_eq(memcmp(z + at, zeros, sizeof zeros), 0, "at %zu", at);
	far_je_dallocx(z, MALLOCX_TCACHE_NONE);
}

static void *take_on(void *cpu)
{
	if (!stay_on((uintptr_t)cpu))
		return NULL;
	void *p = far_alloc(MIB, NULL);
	far_free(p);
	return p;
}

/* Threads on all processors. Expect an arena for each fourth one at most, and none twice. */
Test(jemalloc, arenas_are_few)
{
	cpu_set_t all;
	bool used[4] = {false};
	unsigned before = arenas(), want = 0;
	region_of(256);
	cr_assert_eq(sched_getaffinity(0, sizeof all, &all), 0);
	for (unsigned round = 0; round < 2; round++)
		for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
			pthread_t t;
			void *got;
			if (!CPU_ISSET(cpu, &all))
				continue;
			cr_assert_eq(pthread_create(&t, NULL, take_on, (void *)(uintptr_t)cpu), 0);
			cr_assert_eq(pthread_join(t, &got), 0);
			cr_assert(got && region_holds(got));
			want += !used[cpu % 4];
			used[cpu % 4] = true;
			cr_assert_eq(arenas(), before + want, "processor %zu", cpu);
		}
}
