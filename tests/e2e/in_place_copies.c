/* SPDX-License-Identifier: BSD-3-Clause */
/** The C library's functions that copy, in place of its own: also for libraries that are loaded later. Compiled such
 * that the compiler makes no call of them out of their loops. Main thread of each process. */
#include "in_place.h"

#include <stdatomic.h>
#include <stdint.h>

/* A run of so many of the bytes is none by chance. What is shorter, and nothing else, counts too. */
#define RUN 4

static _Atomic unsigned copies;
static _Atomic unsigned long bytes;

unsigned in_place_copies(void)
{
	return atomic_exchange(&copies, 0);
}

unsigned long in_place_copied_bytes(void)
{
	return atomic_exchange(&bytes, 0);
}

static void look(const uint8_t *from, size_t n)
{
	size_t run = 0, longest = 0;
	for (size_t i = 0; i < n && longest < RUN; i++) {
		run = from[i] == IN_PLACE_BYTE ? run + 1 : 0;
		longest = run > longest ? run : longest;
	}
	if (longest < RUN && (n < 2 || longest < n))
		return;
	atomic_fetch_add(&copies, 1);
	atomic_fetch_add(&bytes, n);
}

static void *copy(void *to, const void *from, size_t n)
{
	uint8_t *d = to;
	const uint8_t *s = from;
	look(s, n);
	if (d < s || d >= s + n)
		for (size_t i = 0; i < n; i++)
			d[i] = s[i];
	else
		for (size_t i = n; i-- > 0;)
			d[i] = s[i];
	return to;
}

void *memcpy(void *to, const void *from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *mempcpy(void *to, const void *from, size_t n);
void *__memcpy_chk(void *to, const void *from, size_t n, size_t room);
void *__memmove_chk(void *to, const void *from, size_t n, size_t room);
void *__mempcpy_chk(void *to, const void *from, size_t n, size_t room);
void bcopy(const void *from, void *to, size_t n);

void *memcpy(void *to, const void *from, size_t n)
{
	return copy(to, from, n);
}

void *memmove(void *to, const void *from, size_t n)
{
	return copy(to, from, n);
}

void *mempcpy(void *to, const void *from, size_t n)
{
	return (uint8_t *)copy(to, from, n) + n;
}

static void must_fit(size_t n, size_t room)
{
	if (n > room)
		__builtin_trap();
}

void *__memcpy_chk(void *to, const void *from, size_t n, size_t room)
{
	must_fit(n, room);
	return copy(to, from, n);
}

void *__memmove_chk(void *to, const void *from, size_t n, size_t room)
{
	must_fit(n, room);
	return copy(to, from, n);
}

void *__mempcpy_chk(void *to, const void *from, size_t n, size_t room)
{
	must_fit(n, room);
	return (uint8_t *)copy(to, from, n) + n;
}

void bcopy(const void *from, void *to, size_t n)
{
	copy(to, from, n);
}
