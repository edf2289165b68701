/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Which part of a table a key belongs to, and the grouping of a list of keys by part. Every client must agree on it.
 * There are servers × shards parts: those of server 0 first, one for each of its shards, then those of server 1.
 * Any thread.
 */
#ifndef PSERVER_PS_SPLIT_H
#define PSERVER_PS_SPLIT_H

#include <stddef.h>
#include <stdint.h>

/** Spreads a key over 64 bits (the finaliser of splitmix64). */
static inline uint64_t ps_mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

/** Owner of a key, in [0, parts). Takes the high bits; a part's own table indexes by the low ones. */
static inline unsigned ps_owner(uint64_t key, unsigned parts)
{
	return (unsigned)(((ps_mix(key) >> 32) * parts) >> 32);
}

/** The server that has a part, and its shard. */
static inline unsigned ps_part_server(unsigned part, unsigned shards)
{
	return part / shards;
}
static inline unsigned ps_part_shard(unsigned part, unsigned shards)
{
	return part % shards;
}

/** Positions of a list of keys, grouped by owner and in their first order within a group. Reusable. */
struct ps_split {
	unsigned parts;
	size_t n;
	size_t cap;
	size_t *start;    /* [parts + 1]: group s is [start[s], start[s + 1]) of the two below */
	size_t *position; /* [n]: place in the caller's list */
	uint64_t *key;    /* [n]: the keys in grouped order */
	unsigned *owner;  /* [n]: scratch */
};

/** `parts` ≥ 1. 0 or -ENOMEM (nothing to free then). */
int ps_split_init(struct ps_split *s, unsigned parts);
void ps_split_fini(struct ps_split *s);
/** Groups keys[0, n). 0 or -ENOMEM. */
int ps_split_keys(struct ps_split *s, const uint64_t *keys, size_t n);

#endif
