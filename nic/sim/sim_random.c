/* SPDX-License-Identifier: BSD-3-Clause */
/** Random streams: xoshiro256++ (Blackman and Vigna, 2019), seeded by splitmix64. Any thread. */
#include "base/hash.h"
#include "base/must.h"
#include "nic/sim/sim.h"

#include <string.h>

static uint64_t rotate(uint64_t x, unsigned n)
{
	return x << n | x >> (64 - n);
}

static uint64_t splitmix(uint64_t *x)
{
	uint64_t z = *x += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

void sim_random_init(struct sim_random *r, uint64_t seed, const char *purpose, uint64_t number)
{
	uint64_t x = seed;
	x = splitmix(&x) ^ hash64(purpose, strlen(purpose));
	x = splitmix(&x) ^ number;
	for (unsigned i = 0; i < 4; i++)
		r->s[i] = splitmix(&x); /* never all zero: splitmix64 gives each value once */
}

uint64_t sim_random_next(struct sim_random *r)
{
	uint64_t *s = r->s, out = rotate(s[0] + s[3], 23) + s[0], t = s[1] << 17;
	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotate(s[3], 45);
	return out;
}

uint64_t sim_random_below(struct sim_random *r, uint64_t n)
{
	must(n > 0);
	/* Numbers above the last multiple of n would favour small results: draw again. */
	uint64_t x, limit = UINT64_MAX - (UINT64_MAX % n + 1) % n;
	do
		x = sim_random_next(r);
	while (x > limit);
	return x % n;
}
