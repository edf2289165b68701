/* SPDX-License-Identifier: BSD-3-Clause */
/** The region: its bound, how it is reserved, both ends of its gap. Each case has a process of its own. The test's
 * thread. */
#include "base/limits.h"
#include "memory/buf.h"
#include "region_fixture.h"

#include <farcall/farcall.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static struct far_memory memory(void)
{
	struct far_memory m;
	far_memory_stats(&m);
	return m;
}

Test(region, a_bad_bound_is_named)
{
	static const char *const bad[] = {
		"x", "-1", "8X", "8GG", "1.5G", " 8G", "G", "0", "15M", "2T", "99999999999999999999999", "8 G", "M8"};
	struct far_err err;
	struct far_agent *agent;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		setenv("FAR_MEMORY_MAX", bad[i], 1);
		cr_assert_null(far_alloc(1, &err), "%s", bad[i]);
		cr_assert_eq(err.status, FAR_INVALID, "%s", bad[i]);
		cr_assert(strstr(err.text, "FAR_MEMORY_MAX"), "%s", err.text);
		cr_assert_eq(far_init_rpc("a", 0, 1, NULL, &agent, &err), FAR_INVALID);
		cr_assert(strstr(err.text, "FAR_MEMORY_MAX"), "%s", err.text);
		cr_assert_null(buf_alloc(1));
	}
	cr_assert_eq(far_memory_limit(0, &err), FAR_INVALID);
	cr_assert_eq(far_memory_limit(UINT64_MAX, &err), FAR_INVALID);
	cr_assert_eq(far_memory_limit(16 * MIB - 1, &err), FAR_INVALID);
	cr_assert_eq(far_memory_limit(32 * MIB, &err), FAR_OK, "the program's word counts more");
	void *p = far_alloc(1, &err);
	cr_assert_not_null(p);
	cr_assert_eq(memory().reserved, 32 * MIB);
	cr_assert_eq(far_memory_limit(64 * MIB, &err), FAR_ALREADY_INITIALIZED);
	far_free(p);
}

static void reserved_by(const char *text, uint64_t want)
{
	setenv("FAR_MEMORY_MAX", text, 1);
	far_free(far_alloc(1, NULL));
	cr_assert_eq(memory().reserved, want, "%s", text);
}

Test(region, bound_in_bytes)
{
	reserved_by("33554432", 32 * MIB);
}

Test(region, bound_in_mib)
{
	reserved_by("48m", 48 * MIB);
}

Test(region, bound_in_tib)
{
	reserved_by("1T", (uint64_t)1 << 40);
}

/* Pages come with first use even then, or not at all: a process may lock little. */
Test(region, locked_memory_is_not_taken_at_once)
{
	struct far_err err;
	cr_assert_eq(far_memory_limit(256 * MIB, NULL), FAR_OK);
	cr_assert_eq(mlockall(MCL_FUTURE), 0);
	uint8_t *p = far_alloc(100 * MIB, &err);
	if (p) {
		static unsigned char in[256 * 256];
		size_t left = 0;
		cr_assert_eq(mincore(region.base, region.bytes, in), 0);
		for (size_t i = 0; i < region.bytes / far_pages_size(); i++)
			left += in[i] & 1;
		cr_assert_lt(left * far_pages_size(), 32 * MIB);
		memset(p, 1, 100 * MIB);
		far_free(p);
		cr_assert_leq(memory().committed, 80 * MIB);
	} else {
		cr_assert_eq(err.status, FAR_RESOURCE);
	}
}

#ifndef UNDER_SANITIZER /* which takes terabytes of address space for itself */
/* A process with little address space has a smaller region, and room for the rest. */
Test(region, a_limited_address_space_is_shared)
{
	struct rlimit limit = {(rlim_t)1 << 30, (rlim_t)1 << 30};
	cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
	void *p = far_alloc(MIB, NULL);
	cr_assert_not_null(p);
	cr_assert_leq(memory().reserved, 512 * MIB);
	void *rest = mmap(NULL, 128 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(rest, MAP_FAILED);
	far_free(p);
}
#endif

/* Expect slabs from the lowest address on, runs from the highest, and a sixteenth that runs leave to slabs. */
Test(region, both_ends_of_the_gap)
{
	region_of(16);
	uint64_t pages = region.bytes / page, share = region.bytes / FAR_MEMORY_SLAB_SHARE / page;
	cr_assert_eq(region_reserved(), 16 * MIB);
	cr_assert(region_bottom() == pages && region_slabs() == 0);
	cr_assert_not(region_lower(pages - share + 1));
	cr_assert_eq(region_bottom(), pages, "a refusal changes nothing");
	cr_assert(region_lower(pages - share));
	cr_assert_not(region_lower(1));
	uint8_t *slab = region_carve(64);
	cr_assert_eq(slab, region.base);
	cr_assert_eq(region_carve(64), slab + 64);
	cr_assert(region_is_slab(slab + 127) && !region_is_slab(slab + 128) && region_holds(slab + 128));
	cr_assert_null(region_carve(region.bytes / FAR_MEMORY_SLAB_SHARE), "it would meet the runs");
	cr_assert_eq(region_slabs(), 128u);
	cr_assert_not_null(region_carve(region.bytes / FAR_MEMORY_SLAB_SHARE - 128));
	region_raise(pages - share);
	cr_assert_eq(region_bottom(), pages);
	cr_assert_not_null(region_carve(64), "what runs returned is the gap's");
	cr_assert_not(region_lower(pages - share));
	cr_assert_not(region_holds(region.base + region.bytes));
	cr_assert_not(region_holds(&pages));
}

/* A mapping outside the region: zeros, without memory until they are used. */
Test(region, mapped_outside)
{
	region_of(16);
	uint8_t *m = region_map(8 * MIB);
	cr_assert(m && !region_holds(m));
	cr_assert_eq(resident(m, 8 * MIB), 0u);
	cr_assert_eq(m[5 * MIB], 0);
	m[5 * MIB] = 1;
	cr_assert_eq(munmap(m, 8 * MIB), 0);
	cr_assert_null(region_map(UINT64_C(1) << 60));
}
