/* SPDX-License-Identifier: BSD-3-Clause */
/** Copies past the caches, with every alignment, and lengths around those of lines. */
#include "nic/shm/shm.h"

#include <criterion/criterion.h>
#include <string.h>

enum { LINE = 64, ROOM = 8 * LINE };

static uint8_t from[ROOM], to[ROOM], wanted[ROOM];

static void check(size_t at, size_t to_at, size_t len)
{
	memset(to, 0xee, sizeof to);
	memset(wanted, 0xee, sizeof wanted);
	memcpy(wanted + to_at, from + at, len);
	shm_tx_copy(to + to_at, from + at, len);
	cr_assert_arr_eq(to, wanted, sizeof to, "%zu bytes from %zu to %zu", len, at, to_at);
}

Test(shm_copy, copies_what_memcpy_copies)
{
	for (size_t i = 0; i < sizeof from; i++)
		from[i] = (uint8_t)(i * 7 + i / 251);
	for (size_t at = 0; at < 3; at++)
		for (size_t to_at = 0; to_at <= LINE; to_at++)
			for (size_t len = 0; len <= 5 * LINE; len += len < 2 * LINE + 3 ? 1 : 31)
				check(at, to_at, len);
}
