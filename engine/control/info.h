/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Encoding of a member's info (a record in the store) and of the handshake payload of a session's set-up. Any thread;
 * no state. Numbers are little-endian.
 *
 *   info       offset 0: version 4 (1 byte), name bytes (1), shards (1), flags (1; bit 0: sessions on demand),
 *              incarnation (8), largest message that it accepts (8; 0: any), number of addresses (1), the proof (16),
 *              the name, then for each address: driver bytes (1), blob bytes (2), driver, blob. The proof is keyed with
 *              the group's key for the purpose "info" and covers the rank (4) and all bytes but its own; zeros with
 *              security=none.
 *   handshake  offset 0: magic 0x4643484c (4 bytes), version 3 (2), the sender's shard (1), the receiver's shard (1),
 * hash of the group's name (8), world size (4), rank (4), incarnation of the sender (8), incarnation of the receiver
 * that the sender has (8), hash of the sender's name (8). Readers accept a longer payload and ignore the rest.
 */
#ifndef FAR_CONTROL_INFO_H
#define FAR_CONTROL_INFO_H

#include "base/auth.h"
#include "nic/nic.h"

#include <farcall/status.h>

/* Ports of a worker: an info with the longest name and addresses fits a value of the store. */
#define INFO_PORTS_MAX 8

#define HANDSHAKE_BYTES 48

struct info {
	char name[FAR_NAME_MAX];
	uint64_t incarnation;
	unsigned shards;            /* [1, FAR_SHARDS_MAX] */
	bool lazy;                  /* requests sessions on demand for the whole group */
	uint64_t message_bytes_max; /* largest message that it accepts, in bytes; 0: no limit */
	unsigned addrs_n;
	struct nic_addr addrs[INFO_PORTS_MAX];
};

/** Handshake payload of a connect request and of its reply. */
struct handshake {
	uint64_t group; /* hash64 of its name */
	uint32_t world, rank;
	uint64_t from, to; /* incarnations of sender and receiver */
	uint64_t name;     /* hash64 of the sender's name */
	uint8_t from_shard, to_shard;
};

/** Encodes an info with zeros for the proof; returns its bytes, at most FAR_STORE_VALUE_MAX. */
size_t info_encode(const struct info *info, uint8_t *out);
/** Decodes an info: 0 or -EPROTO; does not check the proof. */
int info_decode(const uint8_t *data, size_t len, struct info *out);
/** Writes the proof of an encoded info. `key`: the group's, bound to its name (base/group_key.h). */
void info_seal(uint8_t *data, size_t len, const struct auth_key *key, int rank);
/** Verifies the proof for this rank; any `len`. */
bool info_is_sealed(const uint8_t *data, size_t len, const struct auth_key *key, int rank);

void handshake_encode(const struct handshake *handshake, uint8_t out[HANDSHAKE_BYTES]);
/** Decodes a handshake payload: 0 or -EPROTO. */
int handshake_decode(const void *data, size_t len, struct handshake *out);

#endif
