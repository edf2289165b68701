/* SPDX-License-Identifier: BSD-3-Clause */
/** Bulk memory of a shm session, also against a hostile peer. The test's thread. */
#include "nic/shm/shm_bulk.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct shm_bulk bulk;

static void setup(void)
{
	cr_assert_eq(shm_bulk_init(&bulk, NULL, NULL), 0);
}

static void teardown(void)
{
	shm_bulk_fini(&bulk);
}

TestSuite(shm_bulk, .init = setup, .fini = teardown);

static uint32_t blocks_for(uint64_t bytes)
{
	uint32_t blocks = 1;
	while ((uint64_t)blocks * SHM_BLOCK < bytes)
		blocks *= 2;
	return blocks;
}

/* Bodies of the largest power of two that fills the area without a rest. */
enum { WHOLE = 16 << 20, WHOLES = (int)(SHM_BULK_BYTES / WHOLE) };

Test(shm_bulk, the_largest_body_fits)
{
	uint32_t at = shm_bulk_alloc(&bulk, SHM_BODY_MAX), other = shm_bulk_alloc(&bulk, SHM_BODY_MAX);
	cr_assert_neq(at, SHM_NIL);
	cr_assert_neq(other, SHM_NIL);
	cr_assert_leq((uint64_t)at * SHM_BLOCK + SHM_BODY_MAX, SHM_BULK_BYTES);
	cr_assert_leq((uint64_t)other * SHM_BLOCK + SHM_BODY_MAX, SHM_BULK_BYTES);
}

Test(shm_bulk, large_bodies_fill_it)
{
	uint32_t at[WHOLES];
	for (int i = 0; i < WHOLES; i++) {
		at[i] = shm_bulk_alloc(&bulk, WHOLE);
		cr_assert_neq(at[i], SHM_NIL);
		cr_assert_leq((uint64_t)at[i] * SHM_BLOCK + WHOLE, SHM_BULK_BYTES);
	}
	cr_assert_eq(shm_bulk_alloc(&bulk, WHOLE), SHM_NIL);
	cr_assert_eq(shm_bulk_alloc(&bulk, 1), SHM_NIL);
	cr_assert(shm_bulk_free(&bulk, at[2]));
	cr_assert_eq(shm_bulk_alloc(&bulk, WHOLE), at[2]);
}

Test(shm_bulk, larger_than_a_body_is_refused)
{
	cr_assert_eq(shm_bulk_alloc(&bulk, SHM_BODY_MAX + 1), SHM_NIL);
	cr_assert_eq(shm_bulk_alloc(&bulk, UINT64_MAX), SHM_NIL);
	cr_assert_eq(bulk.in_use, 0u);
}

Test(shm_bulk, runs_in_flight_are_bounded)
{
	for (unsigned i = 0; i < SHM_RETURNS; i++)
		cr_assert_neq(shm_bulk_alloc(&bulk, 0), SHM_NIL);
	cr_assert_eq(shm_bulk_alloc(&bulk, 1), SHM_NIL);
}

/* A peer may say anything: only what was handed out is taken back, once. */
Test(shm_bulk, returns_that_make_no_sense)
{
	uint32_t at = shm_bulk_alloc(&bulk, 4 * SHM_BLOCK);
	for (uint32_t block = 0; block < SHM_BLOCKS; block += block < 64 ? 1 : 997)
		if (block != at)
			cr_assert_not(shm_bulk_free(&bulk, block));
	cr_assert_not(shm_bulk_free(&bulk, SHM_BLOCKS));
	cr_assert_not(shm_bulk_free(&bulk, SHM_NIL));
	cr_assert_eq(bulk.in_use, 1u);
	cr_assert(shm_bulk_free(&bulk, at));
	cr_assert_not(shm_bulk_free(&bulk, at));
	cr_assert_eq(bulk.in_use, 0u);
}

/* What small blocks broke up becomes whole again, those on quick lists included. */
Test(shm_bulk, small_ones_given_back_make_room_for_large_ones)
{
	static uint32_t at[SHM_RETURNS];
	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < SHM_RETURNS; i++)
			cr_assert_neq(at[i] = shm_bulk_alloc(&bulk, SHM_BULK_BYTES / SHM_RETURNS), SHM_NIL);
		for (unsigned i = 0; i < SHM_RETURNS; i++)
			cr_assert(shm_bulk_free(&bulk, at[(i * 389) % SHM_RETURNS]));
		for (int i = 0; i < WHOLES; i++)
			cr_assert_neq(at[i] = shm_bulk_alloc(&bulk, WHOLE), SHM_NIL);
		for (int i = 0; i < WHOLES; i++)
			cr_assert(shm_bulk_free(&bulk, at[i]));
	}
}

Test(shm_bulk, freed_memory_is_warm)
{
	uint32_t a = shm_bulk_alloc(&bulk, 1000), b = shm_bulk_alloc(&bulk, 1000);
	shm_bulk_free(&bulk, a);
	shm_bulk_free(&bulk, b);
	cr_assert_eq(shm_bulk_alloc(&bulk, 1000), b);
	cr_assert_eq(shm_bulk_alloc(&bulk, 1000), a);
}

/* A block that is written while the peer's core has its lines is slow: so the next one is another. */
Test(shm_bulk, larger_blocks_take_turns)
{
	enum { BYTES = 64 << 10, N = SHM_TURN_BYTES / BYTES };
	uint32_t at[N];
	for (int i = 0; i < N; i++) {
		cr_assert_neq(at[i] = shm_bulk_alloc(&bulk, BYTES), SHM_NIL);
		for (int k = 0; k < i; k++)
			cr_assert_neq(at[i], at[k]);
		cr_assert(shm_bulk_free(&bulk, at[i]));
	}
	for (int i = 0; i < 3 * N; i++) {
		cr_assert_eq(shm_bulk_alloc(&bulk, BYTES), at[i % N], "the one that was freed first");
		cr_assert(shm_bulk_free(&bulk, at[i % N]));
	}
	uint32_t a = shm_bulk_alloc(&bulk, BYTES), b = shm_bulk_alloc(&bulk, BYTES);
	cr_assert(shm_bulk_free(&bulk, b));
	cr_assert(shm_bulk_free(&bulk, a));
	for (int i = 2; i < N; i++)
		cr_assert(shm_bulk_free(&bulk, shm_bulk_alloc(&bulk, BYTES)));
	cr_assert_eq(shm_bulk_alloc(&bulk, BYTES), b);
	cr_assert_eq(shm_bulk_alloc(&bulk, BYTES), a);
}

/* Random sizes against a map of what is taken: nothing overlaps, and an empty area is whole. */
Test(shm_bulk, never_overlaps)
{
	static uint8_t taken[SHM_BLOCKS];
	static struct {
		uint32_t at, blocks;
	} held[SHM_RETURNS];
	unsigned n = 0;
	uint64_t seed = 11;
	for (unsigned step = 0; step < 100000; step++) {
		seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
		uint64_t random = seed >> 24;
		if (random % 5 < 3 && n < SHM_RETURNS) {
			uint64_t bytes = (random >> 8) % (UINT64_C(1) << (8 + (random >> 40) % 14));
			uint32_t at = shm_bulk_alloc(&bulk, bytes), blocks = blocks_for(bytes);
			if (at == SHM_NIL)
				continue;
			if (at % blocks || at + blocks > SHM_BLOCKS || memchr(taken + at, 1, blocks))
				cr_assert_fail("block %u of %u blocks is taken or outside", at, blocks);
			memset(taken + at, 1, blocks);
			held[n].at = at;
			held[n++].blocks = blocks;
		} else if (n) {
			unsigned i = (unsigned)((random >> 8) % n);
			if (!shm_bulk_free(&bulk, held[i].at))
				cr_assert_fail("block %u was not taken back", held[i].at);
			memset(taken + held[i].at, 0, held[i].blocks);
			held[i] = held[--n];
		}
	}
	while (n)
		cr_assert(shm_bulk_free(&bulk, held[--n].at));
	for (int i = 0; i < WHOLES; i++)
		cr_assert_neq(shm_bulk_alloc(&bulk, WHOLE), SHM_NIL);
}

/* ---- the process's budget ---- */

static int64_t room;
static bool room_take(uint64_t bytes)
{
	if ((int64_t)bytes > room)
		return false;
	room -= (int64_t)bytes;
	return true;
}
static void room_force(uint64_t bytes)
{
	room -= (int64_t)bytes;
}
static void room_give(uint64_t bytes)
{
	room += (int64_t)bytes;
}
static const struct nic_budget budget = {.take = room_take, .force = room_force, .give = room_give};

static void with_budget(uint64_t bytes)
{
	shm_bulk_fini(&bulk);
	room = (int64_t)bytes;
	cr_assert_eq(shm_bulk_init(&bulk, NULL, &budget), 0);
}

Test(shm_bulk, pages_are_counted_once_and_given_back)
{
	with_budget(SHM_BULK_BYTES);
	uint32_t at = shm_bulk_alloc(&bulk, 100), large = shm_bulk_alloc(&bulk, 10 * SHM_PIECE);
	int64_t left = room;
	cr_assert_leq(left, (int64_t)(SHM_BULK_BYTES - 11 * SHM_PIECE));
	cr_assert(shm_bulk_free(&bulk, at));
	cr_assert(shm_bulk_free(&bulk, large));
	for (int i = 0; i < 10; i++) {
		cr_assert_neq(large = shm_bulk_alloc(&bulk, 10 * SHM_PIECE), SHM_NIL);
		cr_assert(shm_bulk_free(&bulk, large));
	}
	cr_assert_geq(room + (int64_t)(10 * SHM_PIECE), left, "what was used before is used again");
	shm_bulk_fini(&bulk);
	cr_assert_eq(room, (int64_t)SHM_BULK_BYTES);
}

Test(shm_bulk, without_room_a_piece_is_left)
{
	with_budget(0);
	cr_assert_eq(shm_bulk_alloc(&bulk, SHM_PIECE + 1), SHM_NIL);
	cr_assert_eq(bulk.in_use, 0u, "which shows that none will come back");
	uint32_t at = shm_bulk_alloc(&bulk, SHM_PIECE);
	cr_assert_eq(at, 0u);
	cr_assert_eq(shm_bulk_alloc(&bulk, 1), SHM_NIL);
	cr_assert_eq(bulk.in_use, 1u);
	cr_assert(shm_bulk_free(&bulk, at));
	cr_assert_eq(shm_bulk_alloc(&bulk, 1), 0u);
}

/* Blocks that would be new memory do not take turns, and one that was used is enough. */
Test(shm_bulk, without_room_no_block_joins_a_turn)
{
	enum { BYTES = 128 << 10 };
	with_budget(SHM_PIECE);
	uint32_t small = shm_bulk_alloc(&bulk, 1);
	for (int i = 0; i < 32; i++) {
		uint32_t at = shm_bulk_alloc(&bulk, BYTES);
		cr_assert_neq(at, SHM_NIL);
		cr_assert(shm_bulk_free(&bulk, at));
	}
	cr_assert_eq(room, 0);
	cr_assert(shm_bulk_free(&bulk, small));
	room_give(SHM_BULK_BYTES);
	uint32_t first = shm_bulk_alloc(&bulk, BYTES);
	cr_assert(shm_bulk_free(&bulk, first));
	cr_assert_eq(shm_bulk_alloc(&bulk, BYTES), first, "not before a trim");
	cr_assert(shm_bulk_free(&bulk, first));
	shm_bulk_trim(&bulk);
	first = shm_bulk_alloc(&bulk, BYTES);
	cr_assert(shm_bulk_free(&bulk, first));
	cr_assert_neq(shm_bulk_alloc(&bulk, BYTES), first);
}

/* The pages that it holds somewhere else go back for a body that needs as many in one place. */
Test(shm_bulk, what_is_unused_makes_room)
{
	enum { N = 8 };
	uint32_t at[N];
	with_budget(N * SHM_PIECE);
	for (int i = 0; i < N; i++)
		cr_assert_neq(at[i] = shm_bulk_alloc(&bulk, SHM_PIECE), SHM_NIL);
	cr_assert_eq(shm_bulk_alloc(&bulk, SHM_PIECE), SHM_NIL);
	for (int i = 1; i < N; i++)
		cr_assert(shm_bulk_free(&bulk, at[i]));
	shm_bulk_trim(&bulk);
	cr_assert_eq(room, 0, "not while one is in use");
	cr_assert(shm_bulk_free(&bulk, at[0]));
	shm_bulk_trim(&bulk);
	cr_assert_eq(room, (int64_t)((N - 1) * SHM_PIECE));
	cr_assert_neq(shm_bulk_alloc(&bulk, N * SHM_PIECE), SHM_NIL);
	cr_assert_eq(room, 0);
}
