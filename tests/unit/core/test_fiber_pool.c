/* SPDX-License-Identifier: BSD-3-Clause */
/** The fibers of a shard and their stacks. The test's thread. */
#include "core/fiber_pool.h"
#include "memory/budget.h"
#include "shard_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { FIBERS = 5, STACK = 100000 };

TestSuite(core_fiber_pool, .init = shard_setup, .fini = shard_teardown);

static const struct fiber_pool *made(void)
{
	struct far_err err;
	cr_assert_eq(fiber_pool_add(shard, FIBERS, STACK, &err), FAR_OK, "%s", err.text);
	return fiber_pool_of(shard);
}

/* Expect whole pages, at least as long as wanted at each colour, all of them writable, none above another. */
Test(core_fiber_pool, stacks_have_the_bytes_that_were_wanted)
{
	const struct fiber_pool *p = made();
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	cr_assert_eq(p->n, FIBERS);
	cr_assert_eq(p->used + p->live, 0u);
	cr_assert_eq(p->guard_bytes, page);
	cr_assert_eq(p->stack_bytes % page, 0u);
	cr_assert_geq(p->stack_bytes, STACK + (FIBER_COLOURS - 1) * FIBER_COLOUR_BYTES);
	cr_assert_lt(p->stack_bytes, STACK + FIBER_COLOURS * FIBER_COLOUR_BYTES + page);
	for (uint32_t i = 0; i < FIBERS; i++)
		memset(fiber_stack_of(p, i), (int)i + 1, p->stack_bytes);
	for (uint32_t i = 0; i < FIBERS; i++)
		for (size_t at = 0; at < p->stack_bytes; at += p->stack_bytes - 1)
			cr_assert_eq(fiber_stack_of(p, i)[at], i + 1);
	cr_assert_eq(fiber_stack_of(p, FIBERS - 1) + p->stack_bytes, p->stacks + p->stacks_bytes);
}

/* Can the kernel read this byte? */
static bool readable(const uint8_t *at)
{
	int ends[2];
	cr_assert_eq(pipe(ends), 0);
	bool can = write(ends[1], at, 1) == 1;
	cr_assert(can || errno == EFAULT);
	close(ends[0]);
	close(ends[1]);
	return can;
}

Test(core_fiber_pool, below_each_stack_is_a_guard)
{
	const struct fiber_pool *p = made();
	for (uint32_t i = 0; i < FIBERS; i++) {
		const uint8_t *low = fiber_stack_of(p, i);
		cr_assert(readable(low) && readable(low + p->stack_bytes - 1));
		cr_assert(!readable(low - 1) && !readable(low - p->guard_bytes));
	}
}

Test(core_fiber_pool, an_address_in_the_guard_is_known)
{
	struct fiber_pool *p = (struct fiber_pool *)(uintptr_t)made();
	struct fiber *fb = &p->fibers[2];
	const uint8_t *low = fiber_stack_of(p, 2);
	fb->shard = shard;
	cr_assert_eq(fiber_stack_bytes(fb), STACK);
	cr_assert_not(fiber_in_guard(fb, low));
	cr_assert(fiber_in_guard(fb, low - 1));
	cr_assert(fiber_in_guard(fb, low - p->guard_bytes));
	cr_assert_not(fiber_in_guard(fb, low - p->guard_bytes - 1), "the stack of another fiber");
}

/* Added twice, as by two registrations. Expect the first pool to stay. */
Test(core_fiber_pool, a_shard_has_one_pool)
{
	const struct fiber_pool *p = made();
	struct far_err err;
	cr_assert_eq(fiber_pool_add(shard, 2 * FIBERS, 2 * STACK, &err), FAR_OK);
	cr_assert_eq(fiber_pool_of(shard), p);
	cr_assert_eq(p->n, FIBERS);
	fiber_pool_free(shard);
	cr_assert_null(fiber_pool_of(shard));
	fiber_pool_free(shard); /* without one: no effect */
	made();
}

/* More address space than there is. Expect the number, the bytes and what to lower in the text, and no pool. */
Test(core_fiber_pool, stacks_that_cannot_be_mapped)
{
	struct far_err err;
	cr_assert_eq(fiber_pool_add(shard, FIBERS, (size_t)1 << 46, &err), FAR_RESOURCE);
	cr_assert(strstr(err.text, "cannot map 5 fiber stacks of 70368744177664 bytes"), "%s", err.text);
	cr_assert(strstr(err.text, "lower opts.fibers"), "%s", err.text);
	cr_assert(strstr(err.text, "vm.max_map_count"), "%s", err.text);
	cr_assert_null(fiber_pool_of(shard));
	made();
}
