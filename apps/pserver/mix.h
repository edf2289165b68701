/* SPDX-License-Identifier: BSD-3-Clause */
/** The hash of keys and seeds. Any thread. */
#ifndef PSERVER_MIX_H
#define PSERVER_MIX_H

#include <stdint.h>

/** Spreads a key over 64 bits (the finaliser of splitmix64). */
static inline uint64_t ps_mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

#endif
