/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What members tell each other: "info" through the store, "hello" in the set-up of a session. Numbers are big-endian.
 *
 *   info   offset 0: version 3 (1 byte), name bytes (1), shards (1), flags (1: bit 0 asks for sessions on demand),
 *          incarnation (8), largest message it takes (8; 0: any), addresses (1), the proof (16), then the name, then
 * per address: driver bytes (1), blob bytes (2), driver, blob. The proof is keyed with the group's key, for the purpose
 *          "info", over the rank (4), the bytes before it and the bytes behind it; zeros with security=none.
 *   hello  offset 0: magic "FCHL" (4 bytes), version 3 (2), the sender's shard (1), the receiver's shard (1), hash of
 *          the group's name (8), world size (4), rank (4), incarnation of the sender (8), incarnation of the receiver
 *          as the sender knows it (8), hash of the sender's name (8).
 *          Readers take a longer hello and ignore what they do not know.
 */
#ifndef FAR_CONTROL_INFO_H
#define FAR_CONTROL_INFO_H

#include "base/auth.h"
#include "nic/nic.h"

#include <farcall/status.h>

/* Ports of a worker: with the longest name and addresses they still fit a value of the store. */
#define INFO_PORTS_MAX 8

#define HELLO_BYTES 48

struct info {
	char name[FAR_NAME_MAX];
	uint64_t incarnation;
	unsigned shards;            /* [1, FAR_SHARDS_MAX] */
	bool lazy;                  /* wants sessions on demand */
	uint64_t message_bytes_max; /* that it takes; 0: no limit */
	unsigned addrs_n;
	struct nic_addr addrs[INFO_PORTS_MAX];
};

struct hello {
	uint64_t group; /* hash64 of its name */
	uint32_t world, rank;
	uint64_t from, to; /* incarnations */
	uint64_t name;     /* hash64 of the sender's */
	uint8_t from_shard, to_shard;
};

/** Bytes written, at most FAR_STORE_VALUE_MAX; the proof is zeros. */
size_t info_encode(const struct info *info, uint8_t *out);
/** 0 or -EPROTO; the proof is not looked at. */
int info_decode(const uint8_t *data, size_t len, struct info *out);
/** Fills the proof of an encoded info in. `key`: the group's, bound to its name (base/group_key.h). */
void info_seal(uint8_t *data, size_t len, const struct auth_key *key, int rank);
/** Did a member seal these bytes for this rank; `len` of any size. */
bool info_is_sealed(const uint8_t *data, size_t len, const struct auth_key *key, int rank);

void hello_encode(const struct hello *hello, uint8_t out[HELLO_BYTES]);
/** 0 or -EPROTO. */
int hello_decode(const void *data, size_t len, struct hello *out);

#endif
