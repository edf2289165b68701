/* SPDX-License-Identifier: BSD-3-Clause */
/** Packets, messages and what they hold. Main thread. */
#include "base/crc32c.h"
#include "control/info.h"
#include "core/packet.h"
#include "core/tlv.h"
#include "decode.h"
#include "decode_engine.h"
#include "decode_summary.h"
#include "features/references/wire.h"
#include "transport/assemble.h"
#include "transport/handshake.h"
#include "transport/message.h"
#include "transport/recv.h"
#include "transport/wire.h"
#include <inttypes.h>
#include <string.h>

static bool print_payload(struct printer *p, const uint8_t *bytes, uint64_t len)
{
	if (len == 0)
		return true;
	fputs(" [payload] data=", p->out);
	decode_data(p->out, bytes, len);
	return true;
}

/* Takes the fields of interceptors off the end of a message. */
static bool print_fields(struct printer *p, const union packet_head *h, const uint8_t *bytes, uint64_t *len)
{
	uint32_t n = h->flags & PACKET_TLV ? h->call.tlv_bytes : 0;
	if (!n)
		return true;
	if (n > *len || n > FAR_TLV_BYTES_MAX || !tlv_well_formed(bytes + *len - n, n))
		return wrong(p, "fields", NULL);
	*len -= n;
	fputs(" [fields] data=", p->out);
	decode_data(p->out, bytes + *len, n);
	return true;
}

static bool print_request(struct printer *p, const union packet_head *h, const uint8_t *bytes, uint64_t len)
{
	unsigned bits = h->flags;
	struct packet_retry retry;
	if (bits & PACKET_RETRY) {
		if (len < sizeof retry)
			return wrong(p, "retry", "size");
		len -= sizeof retry;
		memcpy(&retry, bytes + len, sizeof retry);
		if (!print_layout(p, &layout_retry, bytes + len, sizeof retry, 0))
			return false;
		if (retry.floor > retry.seq || retry.seq - retry.floor >= FAR_RETRY_WINDOW)
			return wrong(p, "retry", "window");
	}
	if (!print_fields(p, h, bytes, &len))
		return false;
	if (bits & PACKET_HASHED) {
		if (len < sizeof(struct packet_hash))
			return wrong(p, "hash", "size");
		len -= sizeof(struct packet_hash);
		if (!print_layout(p, &layout_hash, bytes + len, sizeof(struct packet_hash), 0))
			return false;
	}
	if (bits & PACKET_NAMED) {
		if (len < sizeof(struct rref_named))
			return wrong(p, "named", "size");
		len -= sizeof(struct rref_named);
		if (!print_layout(p, &layout_named, bytes + len, sizeof(struct rref_named), 0))
			return false;
	} else if (bits & PACKET_METHOD) {
		if (len < sizeof(struct rref_id))
			return wrong(p, "object", "size");
		len -= sizeof(struct rref_id);
		if (!print_layout(p, &layout_object, bytes + len, sizeof(struct rref_id), 0))
			return false;
	}
	if (engine_is_request(h))
		return engine_request(p, h, bytes, len);
	if (!(bits & PACKET_TYPED))
		return print_payload(p, bytes, len);
	return decode_values(p->out, bytes, len, false) || wrong(p, "values", NULL);
}

/* The head of a message or of its first fragment that is decoded. */
static void note(struct printer *p, const union packet_head *h)
{
	engine_note(p, h);
	if (p->summary)
		summary_message(p->summary, h);
}

/* The head of a message that comes in DATA. */
static bool print_announced(struct printer *p, const uint8_t *bytes, uint64_t len)
{
	union packet_head h;
	if (len != sizeof h)
		return wrong(p, "announced", "size");
	memcpy(&h, bytes, sizeof h);
	if (h.type != PACKET_REQUEST && h.type != PACKET_ONEWAY && h.type != PACKET_REPLY)
		return wrong(p, "announced", "type");
	note(p, &h);
	return print_head(p, &h);
}

/* A complete message, whose head was that of `layout`. */
static bool print_message(struct printer *p, const char *layout, const union packet_head *h, const uint8_t *bytes,
			  uint64_t len)
{
	uint16_t answered;
	note(p, h);
	if ((h->type == PACKET_REPLY || h->type == PACKET_ERROR || h->type == PACKET_ONEWAY) &&
	    !print_fields(p, h, bytes, &len))
		return false;
	switch ((enum packet_type)h->type) {
	case PACKET_REQUEST:
		return print_request(p, h, bytes, len);
	case PACKET_ERROR:
		fputs(" [text] ", p->out);
		decode_text(p->out, (const char *)bytes, len);
		return true;
	case PACKET_CREDIT:
	case PACKET_GRANT:
	case PACKET_REFUSE:
		return print_exactly(p, &layout_acked, bytes, len, 0);
	case PACKET_RENDEZVOUS:
		return print_announced(p, bytes, len);
	case PACKET_REPLY:
		answered = engine_answered(p, h);
		return answered ? engine_reply(p, answered, bytes, len) : print_payload(p, bytes, len);
	case PACKET_CANCEL:
	case PACKET_CANCELLED:
	case PACKET_ONEWAY:
	case PACKET_CREDIT_REQUEST:
	case PACKET_DATA:
	case PACKET_ABORT:
		return print_payload(p, bytes, len);
	}
	return wrong(p, layout, "type");
}

/* Several messages, by the engine's own steps from one to the next. */
static bool print_batch(struct printer *p, const struct wire_message *h, const union packet_head *first,
			const uint8_t *bytes, uint32_t len)
{
	struct transport_span f = {
		le32_get(h->packet), le32_get(h->first), le32_get(h->length), le32_get(h->offset), len, bytes};
	if (!transport_batch_valid(&f, h->flags))
		return wrong(p, "batch", NULL);
	struct transport_batch b = {.bytes = bytes, .at = f.length, .end = len};
	if (!print_message(p, "message", first, bytes, f.length))
		return false;
	for (;;) {
		union packet_head head;
		uint8_t call[sizeof(struct wire_call)];
		uint32_t length, sub = transport_batch_sub(b.at);
		int more = transport_batch_next(&b, call, &length);
		if (more == 0)
			return true;
		if (sub + sizeof(struct wire_sub) > len)
			return wrong(p, "sub", "size");
		if (!print_layout(p, &layout_sub, bytes + sub, sizeof(struct wire_sub), 0))
			return false;
		memcpy(&head, bytes + sub, sizeof head);
		if (!print_head(p, &head))
			return false;
		if (more < 0)
			return wrong(p, "sub", "length");
		if (!print_message(p, "sub", &head, bytes + b.at - length, length))
			return false;
	}
}

static bool print_bytes_of_message(struct printer *p, const struct wire_message *h, const uint8_t *bytes, uint32_t len)
{
	uint32_t length = le32_get(h->length), offset = le32_get(h->offset);
	uint32_t before = le32_get(h->packet) - le32_get(h->first);
	union packet_head head;
	memcpy(&head, h->call, sizeof head);
	if (!print_head(p, &head))
		return false;
	bool piece = h->flags & WIRE_FRAGMENT;
	bool batch = h->flags & WIRE_BATCH, small = before == 0 && offset != 0;
	if (h->flags & WIRE_UNORDERED) {
		if (piece || (small ? offset > FAR_TRANSPORT_WINDOW || (!batch && len != length) : batch))
			return wrong(p, "unordered", NULL);
		offset = small ? 0 : offset;
	}
	bool exposed = h->lane_phase & WIRE_EXPOSED && len != length;
	if (exposed) {
		if (piece || batch || before || offset || len <= sizeof(struct wire_key) ||
		    length <= TRANSPORT_INLINE_BYTES || len - sizeof(struct wire_key) >= length)
			return wrong(p, "exposed", NULL);
		len -= (uint32_t)sizeof(struct wire_key);
	}
	if (h->flags & WIRE_BATCH)
		return print_batch(p, h, &head, bytes, len);
	if (length > TRANSPORT_BODY_MAX || (uint64_t)offset + len > length || (len == 0 && length) ||
	    before > INT32_MAX)
		return wrong(p, "fragment", NULL);
	if (!piece && (offset == 0) != (before == 0))
		return wrong(p, "fragment", NULL);
	if (len == length && !piece)
		return print_message(p, "message", &head, bytes, len);
	note(p, &head); /* each fragment has it */
	fputs(" [fragment] data=", p->out);
	decode_data(p->out, bytes, len);
	return !exposed || print_layout(p, &layout_exposed, bytes + len, sizeof(struct wire_key), 0);
}

static bool print_grants(struct printer *p, const uint8_t *bytes, uint32_t len)
{
	if (len % sizeof(struct wire_grant) || len > FAR_TRANSPORT_OPEN_MAX * sizeof(struct wire_grant))
		return wrong(p, "grants", NULL);
	for (uint32_t at = 0; at < len; at += (uint32_t)sizeof(struct wire_grant))
		print_layout(p, &layout_grant, bytes + at, sizeof(struct wire_grant), 0);
	return true;
}

/* The engine's words, as the control thread reads them. */
static bool print_session(struct printer *p, const uint8_t *bytes, size_t len)
{
	struct handshake session;
	if (len == 0)
		return true;
	if (handshake_decode(bytes, len, &session))
		return wrong(p, "session", NULL);
	fprintf(p->out,
		" [session] magic=%08x version=%u from_shard=%u to_shard=%u group=%016" PRIx64 " world=%" PRIu32
		" rank=%" PRIu32 " from=%016" PRIx64 " to=%016" PRIx64 " name=%016" PRIx64,
		0x4643484cu, bytes[5] << 8 | bytes[4], session.from_shard, session.to_shard, session.group,
		session.world, session.rank, session.from, session.to, session.name);
	return true;
}

static bool print_handshake(struct printer *p, const uint8_t *bytes, uint32_t len)
{
	struct transport_handshake handshake;
	struct wire_handshake w;
	if (len < sizeof w)
		return wrong(p, "handshake", "size");
	memcpy(&w, bytes, sizeof w);
	uint32_t payload_len = le16_get(w.payload_bytes), addr_len = le16_get(w.address_bytes),
		 rest = len - (uint32_t)sizeof w;
	bool good = print_layout(p, &layout_handshake, bytes, len, 0);
	if (payload_len > rest)
		return good && wrong(p, "handshake", "size");
	fputs(" session=", p->out);
	decode_data(p->out, bytes + sizeof w, payload_len);
	if (addr_len > rest - payload_len)
		return good && wrong(p, "handshake", "size");
	fputs(" address=", p->out);
	decode_data(p->out, bytes + sizeof w + payload_len, addr_len);
	fputs(" padding=", p->out);
	decode_data(p->out, bytes + sizeof w + payload_len + addr_len, rest - payload_len - addr_len);
	if (!good)
		return false;
	if (!transport_handshake_read(bytes, len, &handshake))
		return wrong(p, "handshake", "size");
	return print_session(p, handshake.payload, handshake.payload_len);
}

static bool crc_fits(const struct wire_head *h, const uint8_t *bytes, uint32_t len)
{
	struct wire_head zeroed = *h;
	zeroed.crc = le32_of(0);
	uint32_t crc = crc32c(0, &zeroed, sizeof zeroed);
	return le32_get(h->crc) == 0 || crc32c(crc, bytes + sizeof *h, len - sizeof *h) == le32_get(h->crc);
}

static bool print_packet(struct printer *p, const uint8_t *bytes, uint32_t len)
{
	union wire_packet h = {.message = {.kind = 0}};
	if (!print_layout(p, &layout_head, bytes, len, 0))
		return false;
	memcpy(&h.head, bytes, sizeof h.head);
	if (!crc_fits(&h.head, bytes, len))
		return wrong(p, "crc", NULL);
	memcpy(&h, bytes, len < sizeof h ? len : sizeof h);
	const uint8_t *rest = bytes + sizeof h.head, *body = bytes + TRANSPORT_HEAD_BYTES;
	uint32_t rest_len = len - (uint32_t)sizeof h.head, body_len = len - TRANSPORT_HEAD_BYTES;
	switch ((enum wire_kind)h.head.kind) {
	case WIRE_MESSAGE:
		if (p->summary)
			summary_packet(p->summary, p->from, p->to, p->time_ns, len, h.message.flags & WIRE_RETRANSMIT);
		return print_layout(p, &layout_message, rest, rest_len, 0) &&
		       print_bytes_of_message(p, &h.message, body, body_len);
	case WIRE_ACK:
		if (p->summary)
			summary_packet(p->summary, p->from, p->to, p->time_ns, len, false);
		return print_layout(p, &layout_ack, rest, rest_len, 0) && print_grants(p, body, body_len);
	case WIRE_CONNECT:
	case WIRE_CHALLENGE:
	case WIRE_ACCEPT:
	case WIRE_PING:
		return print_layout(p, &layout_control, rest, rest_len, 0) && print_handshake(p, body, body_len);
	case WIRE_REJECT:
	case WIRE_WRONG_QUEUE:
	case WIRE_RESET:
	case WIRE_CLOSE:
		return print_layout(p, &layout_control, rest, rest_len, 0) &&
		       print_exactly(p, &layout_reject, body, body_len, 0);
	}
	return true;
}

void decode_packet(const struct decode *d, const struct decode_frame *f)
{
	struct printer p = {.out = d->out,
			    .calls = d->calls,
			    .summary = d->summary,
			    .from = f->from,
			    .to = f->to,
			    .time_ns = f->time_ns};
	if (print_packet(&p, f->bytes, f->len))
		fputs(" ok", d->out);
	else
		fprintf(d->out, " bad=%s%s%s", p.bad, p.bad_field ? "." : "", p.bad_field ? p.bad_field : "");
}

bool decode_likely(const uint8_t *bytes, uint32_t len)
{
	static const uint8_t zero[sizeof((struct wire_message *)0)->zero];
	struct wire_message h;
	if (len < sizeof h)
		return false;
	memcpy(&h, bytes, sizeof h);
	/* struct wire_ack is 0 there, too. */
	return h.version == WIRE_VERSION && h.kind >= WIRE_MESSAGE && h.kind < WIRE_KINDS &&
	       (h.kind > WIRE_ACK || memcmp(h.zero, zero, sizeof zero) == 0);
}
