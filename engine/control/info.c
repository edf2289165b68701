/* SPDX-License-Identifier: BSD-3-Clause */
/* Encodes, decodes and proves infos; encodes and decodes handshake payloads. Any thread; no state. */
#include "control/info.h"

#include "base/byteorder.h"
#include "base/limits.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define INFO_VERSION      4
#define INFO_PROOF_AT     21
#define INFO_HEAD_BYTES   (INFO_PROOF_AT + AUTH_PROOF_BYTES)
#define INFO_ADDR_BYTES   3
#define HANDSHAKE_MAGIC   UINT32_C(0x4643484c)
#define HANDSHAKE_VERSION 3

static_assert(INFO_HEAD_BYTES + FAR_NAME_MAX + INFO_PORTS_MAX * (INFO_ADDR_BYTES + 16 + NIC_ADDR_BYTES_MAX) <=
		      FAR_STORE_VALUE_MAX,
	      "the longest info fits a value");
static_assert(HANDSHAKE_BYTES <= NIC_HANDSHAKE_BYTES_MAX, "a handshake payload fits a connect request");

static uint64_t get(const uint8_t **p, size_t bytes)
{
	*p += bytes;
	return le_get(*p - bytes, bytes);
}

static uint8_t *put_bytes(uint8_t *p, const void *data, size_t len)
{
	if (len)
		memcpy(p, data, len);
	return p + len;
}

size_t info_encode(const struct info *info, uint8_t *out)
{
	size_t name_len = strlen(info->name);
	uint8_t *p = le_put(out, INFO_VERSION, 1);
	p = le_put(p, name_len, 1);
	p = le_put(p, info->shards, 1);
	p = le_put(p, info->lazy, 1);
	p = le_put(p, info->incarnation, 8);
	p = le_put(p, info->message_bytes_max, 8);
	p = le_put(p, info->addrs_n, 1);
	memset(p, 0, AUTH_PROOF_BYTES);
	p += AUTH_PROOF_BYTES;
	p = put_bytes(p, info->name, name_len);
	for (unsigned i = 0; i < info->addrs_n; i++) {
		const struct nic_addr *a = &info->addrs[i];
		size_t driver_len = strnlen(a->driver, sizeof a->driver - 1);
		p = le_put(p, driver_len, 1);
		p = le_put(p, a->len, 2);
		p = put_bytes(p, a->driver, driver_len);
		p = put_bytes(p, a->blob, a->len);
	}
	return (size_t)(p - out);
}

static void info_proof(const uint8_t *data, size_t len, const struct auth_key *key, int rank,
		       uint8_t out[AUTH_PROOF_BYTES])
{
	struct auth_key own;
	struct auth_mac m;
	uint8_t number[4];
	le_put(number, (uint32_t)rank, sizeof number);
	auth_derive(&own, key, "info", "");
	auth_mac_begin(&m, &own, "info");
	auth_mac_add(&m, number, sizeof number);
	auth_mac_add(&m, data, INFO_PROOF_AT);
	auth_mac_add(&m, data + INFO_HEAD_BYTES, len - INFO_HEAD_BYTES);
	auth_mac_end(&m, out);
	auth_erase(&own, sizeof own);
}

void info_seal(uint8_t *data, size_t len, const struct auth_key *key, int rank)
{
	info_proof(data, len, key, rank, data + INFO_PROOF_AT);
}

bool info_is_sealed(const uint8_t *data, size_t len, const struct auth_key *key, int rank)
{
	uint8_t right[AUTH_PROOF_BYTES];
	if (len < INFO_HEAD_BYTES)
		return false;
	info_proof(data, len, key, rank, right);
	return auth_equal(data + INFO_PROOF_AT, right);
}

int info_decode(const uint8_t *data, size_t len, struct info *out)
{
	const uint8_t *p = data, *end = data + len;
	if (len < INFO_HEAD_BYTES || get(&p, 1) != INFO_VERSION)
		return -EPROTO;
	size_t name_len = (size_t)get(&p, 1);
	memset(out, 0, sizeof *out);
	out->shards = (unsigned)get(&p, 1);
	out->lazy = get(&p, 1) & 1;
	out->incarnation = get(&p, 8);
	out->message_bytes_max = get(&p, 8);
	out->addrs_n = (unsigned)get(&p, 1);
	p += AUTH_PROOF_BYTES;
	if (name_len == 0 || name_len >= FAR_NAME_MAX || name_len > (size_t)(end - p) || out->shards == 0 ||
	    out->shards > FAR_SHARDS_MAX || out->incarnation == 0 || out->addrs_n > INFO_PORTS_MAX ||
	    memchr(p, 0, name_len))
		return -EPROTO;
	memcpy(out->name, p, name_len);
	p += name_len;
	for (unsigned i = 0; i < out->addrs_n; i++) {
		struct nic_addr *a = &out->addrs[i];
		if (end - p < INFO_ADDR_BYTES)
			return -EPROTO;
		size_t driver_len = (size_t)get(&p, 1), blob_len = (size_t)get(&p, 2);
		if (driver_len == 0 || driver_len >= sizeof a->driver || blob_len > sizeof a->blob ||
		    driver_len + blob_len > (size_t)(end - p) || memchr(p, 0, driver_len))
			return -EPROTO;
		memcpy(a->driver, p, driver_len);
		p += driver_len;
		memcpy(a->blob, p, blob_len);
		p += blob_len;
		a->len = (uint16_t)blob_len;
	}
	return p == end ? 0 : -EPROTO;
}

void handshake_encode(const struct handshake *handshake, uint8_t out[HANDSHAKE_BYTES])
{
	uint8_t *p = le_put(out, HANDSHAKE_MAGIC, 4);
	p = le_put(p, HANDSHAKE_VERSION, 2);
	p = le_put(p, handshake->from_shard, 1);
	p = le_put(p, handshake->to_shard, 1);
	p = le_put(p, handshake->group, 8);
	p = le_put(p, handshake->world, 4);
	p = le_put(p, handshake->rank, 4);
	p = le_put(p, handshake->from, 8);
	p = le_put(p, handshake->to, 8);
	le_put(p, handshake->name, 8);
}

int handshake_decode(const void *data, size_t len, struct handshake *out)
{
	const uint8_t *p = data;
	if (len < HANDSHAKE_BYTES || get(&p, 4) != HANDSHAKE_MAGIC || get(&p, 2) != HANDSHAKE_VERSION)
		return -EPROTO;
	out->from_shard = (uint8_t)get(&p, 1);
	out->to_shard = (uint8_t)get(&p, 1);
	out->group = get(&p, 8);
	out->world = (uint32_t)get(&p, 4);
	out->rank = (uint32_t)get(&p, 4);
	out->from = get(&p, 8);
	out->to = get(&p, 8);
	out->name = get(&p, 8);
	return 0;
}
