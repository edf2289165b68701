/* SPDX-License-Identifier: BSD-3-Clause */
/** Makes the packets of fuzz_shard: headers, values, names of references, and faults. Main thread. */
#include "shard_packet.h"

#include "base/must.h"
#include "core/packet.h"
#include "features/references/wire.h"

#include <string.h>

const uint8_t *input_at, *input_end;
uint8_t body[PEER_BODY_MAX];
size_t body_len;
struct peer *peer;
bool faulty;

uint8_t u8(void)
{
	return input_at < input_end ? *input_at++ : 0;
}

void add(const void *bytes, size_t len)
{
	must(body_len + len <= sizeof body);
	memcpy(body + body_len, bytes, len);
	body_len += len;
}

uint64_t duration(uint8_t b)
{
	return b == 0 ? UINT64_MAX : UINT64_C(1) << b % 36;
}

void set_time(union packet_head *h, uint64_t time)
{
	h->request.time_left = time;
}

/* ---- sending ---- */

static void spoil(union packet_head *h)
{
	uint8_t how = u8(), value = u8();
	switch (how % 4) {
	case 0:
		body_len = body_len > value ? body_len - value : 0;
		break;
	case 1:
		if (body_len)
			body[(how / 4u + value / 16u * 64u) % body_len] ^= (uint8_t)(1u << value % 8);
		break;
	case 2:
		((uint8_t *)h)[how / 4 % sizeof *h] ^= value;
		break;
	default:
		memset(body + body_len, value, how);
		body_len += how;
		break;
	}
}

void send_packet(union packet_head h)
{
	if (faulty && body_len + 256 < sizeof body)
		spoil(&h);
	peer_put(peer, &h, body, body_len);
}

/* A request is of a new call, unless it repeats one that was to be repeated. */
void send_request(union packet_head h)
{
	h.type = PACKET_REQUEST;
	h.call.slot = peer->sent_n % 1024;
	h.call.generation = peer->sent_n + 100;
	peer->sent[peer->sent_n++ % PEER_SENT] = h;
	send_packet(h);
}

/* One that was sent, the n-th from the last on. */
union packet_head was_sent(unsigned n)
{
	return peer->sent[(peer->sent_n - 1 - n % PEER_SENT) % PEER_SENT];
}

/* ---- parts of bodies ---- */

/* Bytes whose number is said by one; from the input, as long as it has some. */
void add_bytes(uint8_t size)
{
	static const size_t lens[] = {32, 33, 64, 65, 1000, 70000, 300000, 20};
	size_t len = size < 32 ? size : lens[size % 8];
	for (size_t i = 0; i < len && i < 32; i++)
		body[body_len + i] = u8();
	if (len > 32)
		memset(body + body_len + 32, 'b', len - 32);
	body_len += len;
}

struct rref_id id_of(uint8_t b)
{
	struct rref_id id = rref_name(peer_incarnation(b / 8 % 4), b / 64 % 2 ? 2 : 0, b / 32 % 2, 1 + b % 8u);
	id.incarnation ^= b / 128;
	return id;
}

uint64_t owner_of(uint8_t b)
{
	return peer_incarnation(b % 4) ^ (b / 128);
}

struct rref_id own_id(uint8_t b)
{
	return b & 8 ? id_of(b) : rref_name(peer_incarnation(peer->worker), 0, 0, 1 + b % 8u);
}

static void add_rref(void)
{
	uint8_t bytes[1 + RREF_WIRE_BYTES] = {FAR_TYPE_RREF}, owner = u8(), id = u8(), fork = u8();
	struct rref_wire w = {.owner = owner_of(owner),
			      .id = id_of(id),
			      .fork = own_id(fork),
			      .types = (uint16_t)(owner & 16 ? u8() : 0xffff)};
	rref_put(bytes + 1, &w);
	add(bytes, sizeof bytes);
}

void add_rrefs(unsigned n)
{
	size_t begin = body_len;
	add(&(uint8_t){(uint8_t)n}, 1);
	for (unsigned i = 0; i < n; i++)
		add_rref();
	if (body_len - begin > FAR_LINE_PAYLOAD)
		body[begin] |= 0x80;
}

static void add_values(const struct far_val *v, size_t n)
{
	struct values_plan plan;
	size_t len = values_size(v, n, &plan, NULL);
	must(len <= 4096);
	values_write(v, n, &plan, body + body_len);
	body_len += len;
}

void add_arguments(uint8_t how)
{
	static const float floats[] = {1, 2, 3};
	static uint8_t bytes[300];
	struct far_tensor t = {.data = (void *)(uintptr_t)floats, .ndim = 1, .dtype = FAR_F32, .shape = {3}};
	struct far_val two[] = {far_int(how), far_str("text")};
	struct far_dict_entry entry = {far_str("key"), far_int(5)};
	const struct far_val all[] = {far_none(),       far_int(how / 16),  far_float(1.5),
				      far_str("text"),  far_tensor_val(&t), far_bytes(bytes, how * 1u),
				      far_list(two, 2), far_dict(&entry, 1)};
	switch (how % 16) {
	case 8:
		add_values(NULL, 0);
		break;
	case 9:
		add_values((const struct far_val[]){far_int(how), far_int(-1)}, 2);
		break;
	case 10:
	case 11:
		add_rrefs(1 + how / 16 % 4);
		break;
	case 12:
		add_bytes(u8());
		break;
	default:
		add_values(&all[how % 8], 1);
		break;
	}
}

const struct function *function_of(uint8_t b)
{
	return app.functions[b % app.functions_n];
}

struct rref_function hashes_of(uint8_t b)
{
	const struct function *fn = function_of(b);
	return fn ? (struct rref_function){fn->signature.name_hash, fn->signature.canonical_hash ^ (b / 128)}
		  : (struct rref_function){b, b};
}

uint16_t number_of(uint8_t b)
{
	const struct function *fn = function_of(b);
	return fn ? (uint16_t)fn->index : (uint16_t)(b * 7);
}
