/* SPDX-License-Identifier: BSD-3-Clause */
/** The hash of a key, the same on every server and client. Any thread. */
#ifndef PST_HASH_H
#define PST_HASH_H

#include <stdint.h>

#define PST_PARTITION_BITS 12u
#define PST_PARTITIONS     (1u << PST_PARTITION_BITS)

/** The finalizer of MurmurHash3: a bijection, each bit of the result depends on each of the key. */
static inline uint64_t pst_hash(uint64_t key)
{
	key ^= key >> 33;
	key *= UINT64_C(0xff51afd7ed558ccd);
	key ^= key >> 33;
	key *= UINT64_C(0xc4ceb9fe1a85ec53);
	return key ^ key >> 33;
}

/** Partition of a hash, in [0, PST_PARTITIONS): its upper bits. A partition is a range of hashes. */
static inline unsigned pst_partition(uint64_t hash)
{
	return (unsigned)(hash >> (64 - PST_PARTITION_BITS));
}

#endif
