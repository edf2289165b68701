/* SPDX-License-Identifier: BSD-3-Clause */
/** Packets of protocol_trace whose bytes are worth changing: the first of each kind that was sent. Main thread. */
#include "base/must.h"
#include "features/references/wire.h"
#include "trace.h"
#include "transport/wire.h"

#include <string.h>

enum sample_of {
	SAMPLE_CONNECT,
	SAMPLE_BATCH,
	SAMPLE_HASHED,
	SAMPLE_LARGE,
	SAMPLE_VALUES,
	SAMPLE_GRANTS,
	SAMPLE_LOOSE,
	SAMPLE_LOOSE_PART,
	SAMPLE_MADE,
	SAMPLE_WORDS,
	SAMPLE_EXPOSED,
	SAMPLE_HERE,
	SAMPLE_FIELDS,
	SAMPLES
};
enum { SAMPLE_MAX = 2048 };
struct sample {
	uint32_t len;
	uint8_t bytes[SAMPLE_MAX];
};

static struct sample samples[SAMPLES];

void trace_sample(const uint8_t *bytes, uint32_t len)
{
	struct wire_message h;
	union packet_head call;
	must(len >= sizeof h && len <= SAMPLE_MAX);
	memcpy(&h, bytes, sizeof h);
	memcpy(&call, h.call, sizeof call);
	enum sample_of of = SAMPLES;
	if (h.kind == WIRE_CONNECT)
		of = SAMPLE_CONNECT;
	else if (h.kind == WIRE_MESSAGE && h.flags & WIRE_UNORDERED && le32_get(h.offset))
		of = le32_get(h.packet) == le32_get(h.first) ? SAMPLE_LOOSE : SAMPLE_LOOSE_PART;
	else if (h.kind == WIRE_MESSAGE && h.flags & WIRE_BATCH)
		of = SAMPLE_BATCH;
	else if (h.kind == WIRE_MESSAGE && call.type == PACKET_REQUEST && call.flags & PACKET_TLV &&
		 call.call.tlv_bytes <= len)
		of = SAMPLE_FIELDS;
	else if (h.kind == WIRE_MESSAGE && call.type == PACKET_REQUEST && call.flags & PACKET_HASHED)
		of = SAMPLE_HASHED;
	else if (h.lane_phase & WIRE_EXPOSED)
		of = SAMPLE_EXPOSED;
	else if (h.kind == WIRE_ACK && len > sizeof h &&
		 bytes[sizeof h + offsetof(struct wire_grant, priority) + 3] & 0x80)
		of = SAMPLE_HERE;
	else if (h.kind == WIRE_MESSAGE && call.type == PACKET_RENDEZVOUS)
		of = SAMPLE_LARGE;
	else if (h.kind == WIRE_ACK && len > sizeof h)
		of = SAMPLE_GRANTS;
	else if (h.kind == WIRE_MESSAGE && call.type == PACKET_REQUEST && call.request.handler == RREF_METHOD_REMOTE)
		of = SAMPLE_MADE;
	else if (h.kind == WIRE_MESSAGE && call.type == PACKET_REQUEST && call.request.handler == RREF_CONTROL)
		of = SAMPLE_WORDS;
	else if (h.kind == WIRE_MESSAGE && trace_sample_values)
		of = SAMPLE_VALUES;
	if (of == SAMPLES || samples[of].len)
		return;
	samples[of].len = len;
	memcpy(samples[of].bytes, bytes, len);
}

/* Each byte of a packet changed in turn, without a checksum, so that what it says is looked at; then cut short. */
static void damage(const struct sample *s)
{
	uint8_t bytes[SAMPLE_MAX];
	must(s->len);
	for (uint32_t i = 0; i < s->len; i++) {
		memcpy(bytes, s->bytes, s->len);
		memset(bytes + offsetof(struct wire_head, crc), 0, sizeof(le32));
		bytes[i] ^= i % 2 ? 0x41 : 0x05;
		trace_capture(3, 4, bytes, s->len);
	}
	for (uint32_t cut = 1; cut < s->len; cut += 7)
		trace_capture(3, 4, s->bytes, cut);
}

void trace_damage(void)
{
	for (unsigned i = 0; i < SAMPLES; i++)
		damage(&samples[i]);
}
