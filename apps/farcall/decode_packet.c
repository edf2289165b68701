/* SPDX-License-Identifier: BSD-3-Clause */
/** Each structure of engine/wire/head.h as a list of its fields, in their order; engine/PROTOCOL.md tables the same. */
#include "base/crc32c.h"
#include "base/rref.h"
#include "ctl/info.h"
#include "decode.h"
#include "link/link_assemble.h"
#include "wire/head.h"
#include "wire/rref.h"
#include <farcall/status.h>
#include <inttypes.h>
#include <string.h>

enum encoding { NUMBER, ID, TAG, KIND, MARK, TYPE, FLAG, FN, TIME, LARGE_KIND };

struct field {
	const char *name;
	uint16_t at;
	uint8_t bytes;
	uint8_t encoding;
	uint64_t low, high; /* that the engine takes */
};

struct layout {
	const char *name;
	uint32_t bytes;
	bool little;
	unsigned n;
	const struct field *fields;
};

/* What is being printed. */
struct printer {
	FILE *out;
	const char *bad; /* what is wrong: of a layout, and, if not NULL, a field of it */
	const char *bad_field;
};

#define ANY UINT64_MAX
#define FIELD_MUST(s, member, encoding, low, high)                                                                     \
	{                                                                                                              \
#member, offsetof(struct s, member), sizeof(((struct s *)0)->member), (encoding), (low), (high)        \
	}
#define FIELD(s, member, encoding) FIELD_MUST(s, member, encoding, 0, ANY)
#define LAYOUT(name, s, little, fields)                                                                                \
	{                                                                                                              \
		(name), sizeof(struct s), (little), sizeof(fields) / sizeof *(fields), (fields)                        \
	}

static const struct field head_fields[] = {
	FIELD_MUST(wire_head, version, NUMBER, WIRE_VERSION, WIRE_VERSION),
	FIELD_MUST(wire_head, kind, KIND, WIRE_MESSAGE, WIRE_BYE),
	FIELD(wire_head, marks, MARK),
	FIELD(wire_head, lane_phase, NUMBER),
	FIELD(wire_head, type, TYPE),
	FIELD(wire_head, flags, FLAG),
	FIELD(wire_head, fn, FN),
	FIELD(wire_head, incarnation, ID),
	FIELD(wire_head, token, ID),
	FIELD(wire_head, packet, NUMBER),
	FIELD(wire_head, ack, NUMBER),
	FIELD(wire_head, ack_bits, ID),
	FIELD(wire_head, call, NUMBER),
	FIELD(wire_head, gen, NUMBER),
	FIELD(wire_head, time, TIME),
	FIELD(wire_head, tlv_bytes, NUMBER),
	FIELD(wire_head, reserved, NUMBER),
	FIELD(wire_head, length, NUMBER),
	FIELD(wire_head, offset, NUMBER),
	FIELD(wire_head, first, NUMBER),
	FIELD(wire_head, crc, ID),
	FIELD(wire_head, tag, TAG),
};
static const struct layout head_layout = LAYOUT("head", wire_head, false, head_fields);

static const struct field sub_fields[] = {
	FIELD(wire_sub, type, TYPE),   FIELD(wire_sub, flags, FLAG),      FIELD(wire_sub, fn, FN),
	FIELD(wire_sub, call, NUMBER), FIELD(wire_sub, gen, NUMBER),      FIELD(wire_sub, tlv_bytes, NUMBER),
	FIELD(wire_sub, time, TIME),   FIELD(wire_sub, reserved, NUMBER), FIELD(wire_sub, length, NUMBER),
};
static const struct layout sub_layout = LAYOUT("sub", wire_sub, false, sub_fields);

static const struct field words_fields[] = {
	FIELD_MUST(wire_words, incarnation, ID, 1, ANY),
	FIELD_MUST(wire_words, token, ID, 1, ANY),
	FIELD_MUST(wire_words, queue, NUMBER, 0, FAR_LINK_QUEUES_MAX - 1),
	FIELD(wire_words, want, NUMBER),
	FIELD_MUST(wire_words, path, NUMBER, 0, NIC_PATHS - 1),
	FIELD_MUST(wire_words, packet_max, NUMBER, LINK_PACKET_MIN, ANY),
	FIELD_MUST(wire_words, words, NUMBER, 0, NIC_HELLO_BYTES_MAX),
	FIELD_MUST(wire_words, addr, NUMBER, 0, NIC_ADDR_BYTES_MAX - LINK_ID_BYTES),
};
static const struct layout words_layout = LAYOUT("words", wire_words, false, words_fields);

static const struct field no_fields[] = {FIELD(wire_no, error, NUMBER), FIELD(wire_no, path, NUMBER)};
static const struct layout no_layout = LAYOUT("no", wire_no, false, no_fields);

static const struct field grant_fields[] = {FIELD(wire_grant, first, NUMBER), FIELD(wire_grant, offset, NUMBER),
					    FIELD(wire_grant, priority, NUMBER)};
static const struct layout grant_layout = LAYOUT("grant", wire_grant, false, grant_fields);

static const struct field large_fields[] = {
	FIELD_MUST(head_large, total, NUMBER, 1, ANY),
	FIELD_MUST(head_large, lane, NUMBER, 0, FAR_LARGE_LANES - 1),
	FIELD(head_large, life, NUMBER),
	FIELD_MUST(head_large, kind, LARGE_KIND, LARGE_REQUEST, LARGE_REPLY),
	FIELD(head_large, reserved, NUMBER),
};
static const struct layout large_layout = LAYOUT("large", head_large, true, large_fields);

static const struct field units_fields[] = {FIELD(head_units, done, NUMBER)};
static const struct layout units_layout = LAYOUT("units", head_units, true, units_fields);

static const struct field hash_fields[] = {FIELD(head_hash, name, ID), FIELD(head_hash, signature, ID)};
static const struct layout hash_layout = LAYOUT("hash", head_hash, true, hash_fields);

static const struct field retry_fields[] = {FIELD_MUST(head_retry, seq, NUMBER, 1, ANY),
					    FIELD_MUST(head_retry, floor, NUMBER, 1, ANY)};
static const struct layout retry_layout = LAYOUT("retry", head_retry, true, retry_fields);

static const struct field object_fields[] = {FIELD(rref_id, life, ID), FIELD(rref_id, number, ID)};
static const struct layout object_layout = LAYOUT("object", rref_id, true, object_fields);

static const struct field named_fields[] = {FIELD_MUST(rref_named, count, NUMBER, 1, ANY)};
static const struct layout named_layout = LAYOUT("named", rref_named, true, named_fields);

/* ---- names ---- */

#define NAMES_MAX 32

static const char *const kinds[NAMES_MAX] = {
	[WIRE_MESSAGE] = "MESSAGE",
	[WIRE_ACK] = "ACK",
	[WIRE_PING] = "PING",
	[WIRE_HELLO] = "HELLO",
	[WIRE_WELCOME] = "WELCOME",
	[WIRE_REFUSED] = "REFUSED",
	[WIRE_WRONG_QUEUE] = "WRONG_QUEUE",
	[WIRE_RESET] = "RESET",
	[WIRE_BYE] = "BYE",
};
static const char *const types[NAMES_MAX] = {
	[HEAD_REQUEST] = "REQUEST",     [HEAD_REPLY] = "REPLY",   [HEAD_ERROR] = "ERROR",   [HEAD_CANCEL] = "CANCEL",
	[HEAD_CANCELLED] = "CANCELLED", [HEAD_ONEWAY] = "ONEWAY", [HEAD_CREDIT] = "CREDIT", [HEAD_ASK] = "ASK",
	[HEAD_LARGE] = "LARGE",         [HEAD_DATA] = "DATA",     [HEAD_GRANT] = "GRANT",   [HEAD_REFUSE] = "REFUSE",
	[HEAD_ABORT] = "ABORT",
};
static const char *const large_kinds[NAMES_MAX] = {
	[LARGE_REQUEST] = "REQUEST", [LARGE_ONEWAY] = "ONEWAY", [LARGE_REPLY] = "REPLY"};
static const char *const statuses[] = {
#define STATUS_NAME(name, text) #name,
	FAR_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
};
static_assert(sizeof statuses / sizeof *statuses <= NAMES_MAX, "print_code() looks so far");

struct bit {
	unsigned value;
	const char *name;
	uint32_t types; /* of messages, as bits; 0: whatever it is */
};

#define OF(type) (1u << HEAD_##type)
#define ANSWERS  (OF(REPLY) | OF(ERROR) | OF(CANCELLED))
static const struct bit marks[] = {
	{WIRE_ASLEEP, "ASLEEP", 0}, {WIRE_PIECE, "PIECE", 0}, {WIRE_MORE, "MORE", 0},     {WIRE_BATCH, "BATCH", 0},
	{WIRE_AGAIN, "AGAIN", 0},   {WIRE_TWICE, "TWICE", 0}, {WIRE_UNTOLD, "UNTOLD", 0}, {WIRE_LOOSE, "LOOSE", 0},
};
static const struct bit flags[] = {
	{HEAD_TYPED, "TYPED", OF(REQUEST) | OF(LARGE)},
	{HEAD_ASKED, "ASKED", OF(CREDIT)},
	{HEAD_HASHED, "HASHED", OF(REQUEST) | OF(REPLY) | OF(LARGE)},
	{HEAD_TLV, "TLV", (2u << HEAD_ABORT) - 2},
	{HEAD_RETRY, "RETRY", OF(REQUEST) | OF(CANCEL) | ANSWERS},
	{HEAD_RREFS, "RREFS", OF(REPLY) | OF(LARGE)},
	{HEAD_METHOD, "METHOD", OF(REQUEST) | OF(LARGE)},
	{HEAD_NAMED, "NAMED", OF(REQUEST)},
	{FAR_EXECUTED_MAYBE << HEAD_EXECUTED_SHIFT, "MAYBE", OF(ERROR) | OF(CANCELLED)},
	{FAR_EXECUTED_YES << HEAD_EXECUTED_SHIFT, "YES", OF(ERROR) | OF(CANCELLED)},
};

static void print_code(FILE *out, const char *const *names, uint64_t n, uint64_t value)
{
	if (value < n && names[value])
		fputs(names[value], out);
	else
		fprintf(out, "%" PRIu64, value);
}

static void print_bits(FILE *out, const struct bit *bits, size_t n, uint64_t value, unsigned type)
{
	const char *between = "";
	if (!value)
		fputc('-', out);
	for (size_t i = 0; i < n; i++) {
		if (!(value & bits[i].value) || (bits[i].types && (type >= 32 || !(bits[i].types >> type & 1))))
			continue;
		fprintf(out, "%s%s", between, bits[i].name);
		value &= ~(uint64_t)bits[i].value;
		between = "+";
	}
	if (value)
		fprintf(out, "%s0x%" PRIx64, between, value);
}

/* ---- fields ---- */

static uint64_t get(const struct layout *l, const struct field *f, const uint8_t *bytes)
{
	uint64_t v = 0;
	for (unsigned i = 0; i < f->bytes; i++)
		v = v << 8 | bytes[f->at + (l->little ? f->bytes - 1u - i : i)];
	return v;
}

static void print_field(FILE *out, const struct field *f, const uint8_t *at, uint64_t v, unsigned type)
{
	switch ((enum encoding)f->encoding) {
	case ID:
		fprintf(out, "%0*" PRIx64, 2 * f->bytes, v);
		return;
	case TAG:
		decode_data(out, at, f->bytes);
		return;
	case KIND:
		print_code(out, kinds, NAMES_MAX, v);
		return;
	case TYPE:
		print_code(out, types, NAMES_MAX, v);
		return;
	case LARGE_KIND:
		print_code(out, large_kinds, NAMES_MAX, v);
		return;
	case MARK:
		print_bits(out, marks, sizeof marks / sizeof *marks, v, 0);
		return;
	case FLAG:
		print_bits(out, flags, sizeof flags / sizeof *flags, v, type);
		return;
	case FN:
		if (type == HEAD_ERROR)
			print_code(out, statuses, sizeof statuses / sizeof *statuses, v);
		else
			fprintf(out, "%" PRIu64, v);
		return;
	case TIME:
		if (type == HEAD_ERROR) {
			fprintf(out, "%" PRId32, (int32_t)(uint32_t)v);
			return;
		}
		break;
	case NUMBER:
		break;
	}
	fprintf(out, "%" PRIu64, v);
}

static bool wrong(struct printer *p, const char *layout, const char *field)
{
	p->bad = layout;
	p->bad_field = field;
	return false;
}

/* All fields are printed, right or wrong; the first wrong one is named. */
static bool print_layout(struct printer *p, const struct layout *l, const uint8_t *bytes, uint64_t len, unsigned type)
{
	bool good = true;
	if (len < l->bytes)
		return wrong(p, l->name, "size");
	fprintf(p->out, " [%s]", l->name);
	for (unsigned i = 0; i < l->n; i++) {
		const struct field *f = &l->fields[i];
		uint64_t v = f->encoding == TAG ? 0 : get(l, f, bytes);
		fprintf(p->out, " %s=", f->name);
		print_field(p->out, f, bytes + f->at, v, type);
		if (good && (v < f->low || v > f->high))
			good = wrong(p, l->name, f->name);
	}
	return good;
}

static bool print_exactly(struct printer *p, const struct layout *l, const uint8_t *bytes, uint64_t len, unsigned type)
{
	return print_layout(p, l, bytes, len, type) && (len == l->bytes || wrong(p, l->name, "size"));
}

/* ---- bodies ---- */

static bool print_payload(struct printer *p, const uint8_t *bytes, uint64_t len)
{
	if (len == 0)
		return true;
	fputs(" [payload] data=", p->out);
	decode_data(p->out, bytes, len);
	return true;
}

static bool print_request(struct printer *p, unsigned bits, const uint8_t *bytes, uint64_t len)
{
	struct head_retry retry;
	if (bits & HEAD_RETRY) {
		if (len < sizeof retry)
			return wrong(p, "retry", "size");
		len -= sizeof retry;
		memcpy(&retry, bytes + len, sizeof retry);
		if (!print_layout(p, &retry_layout, bytes + len, sizeof retry, 0))
			return false;
		if (retry.floor > retry.seq || retry.seq - retry.floor >= FAR_RETRY_WINDOW)
			return wrong(p, "retry", "window");
	}
	if (bits & HEAD_HASHED) {
		if (len < sizeof(struct head_hash))
			return wrong(p, "hash", "size");
		len -= sizeof(struct head_hash);
		if (!print_layout(p, &hash_layout, bytes + len, sizeof(struct head_hash), 0))
			return false;
	}
	if (bits & HEAD_NAMED) {
		if (len < sizeof(struct rref_named))
			return wrong(p, "named", "size");
		len -= sizeof(struct rref_named);
		if (!print_layout(p, &named_layout, bytes + len, sizeof(struct rref_named), 0))
			return false;
	} else if (bits & HEAD_METHOD) {
		if (len < sizeof(struct rref_id))
			return wrong(p, "object", "size");
		len -= sizeof(struct rref_id);
		if (!print_layout(p, &object_layout, bytes + len, sizeof(struct rref_id), 0))
			return false;
	}
	if (!(bits & HEAD_TYPED))
		return print_payload(p, bytes, len);
	return decode_values(p->out, bytes, len) || wrong(p, "values", NULL);
}

/* A whole message, whose head was that of `layout`. */
static bool print_message(struct printer *p, const char *layout, unsigned type, unsigned bits, const uint8_t *bytes,
			  uint64_t len)
{
	switch ((enum head_type)type) {
	case HEAD_REQUEST:
		return print_request(p, bits, bytes, len);
	case HEAD_ERROR:
		fputs(" [text] ", p->out);
		decode_text(p->out, (const char *)bytes, len);
		return true;
	case HEAD_CREDIT:
	case HEAD_GRANT:
	case HEAD_REFUSE:
		return print_exactly(p, &units_layout, bytes, len, 0);
	case HEAD_LARGE:
		return print_exactly(p, &large_layout, bytes, len, 0);
	case HEAD_REPLY:
	case HEAD_CANCEL:
	case HEAD_CANCELLED:
	case HEAD_ONEWAY:
	case HEAD_ASK:
	case HEAD_DATA:
	case HEAD_ABORT:
		return print_payload(p, bytes, len);
	}
	return wrong(p, layout, "type");
}

/* Several messages, by the engine's own steps from one to the next. */
static bool print_batch(struct printer *p, const struct wire_head *h, const uint8_t *bytes, uint32_t len)
{
	struct link_fragment f = {
		be32_get(h->packet), be32_get(h->first), be32_get(h->length), be32_get(h->offset), len, bytes};
	if (!link_batch_sane(&f, h->marks))
		return wrong(p, "batch", NULL);
	struct link_batch b = {.bytes = bytes, .at = f.length, .end = len};
	if (!print_message(p, "head", h->type, h->flags, bytes, f.length))
		return false;
	for (;;) {
		struct shm_head head;
		uint32_t length, sub = link_batch_sub(b.at);
		int more = link_batch_next(&b, &head, &length);
		if (more == 0)
			return true;
		if (sub + sizeof(struct wire_sub) > len)
			return wrong(p, "sub", "size");
		if (!print_layout(p, &sub_layout, bytes + sub, sizeof(struct wire_sub), bytes[sub]))
			return false;
		if (more < 0)
			return wrong(p, "sub", "length");
		if (!print_message(p, "sub", head.type, head.flags, bytes + b.at - length, length))
			return false;
	}
}

static bool print_bytes_of_message(struct printer *p, const struct wire_head *h, const uint8_t *bytes, uint32_t len)
{
	uint32_t length = be32_get(h->length), offset = be32_get(h->offset);
	uint32_t before = be32_get(h->packet) - be32_get(h->first);
	bool piece = h->marks & WIRE_PIECE;
	bool batch = h->marks & WIRE_BATCH, small = before == 0 && offset != 0;
	if (h->marks & WIRE_LOOSE) {
		if (piece || (small ? offset > FAR_LINK_WINDOW || (!batch && len != length) : batch))
			return wrong(p, "loose", NULL);
		offset = small ? 0 : offset;
	}
	if (h->marks & WIRE_BATCH)
		return print_batch(p, h, bytes, len);
	if (length > LINK_BODY_MAX || (uint64_t)offset + len > length || (len == 0 && length) || before > INT32_MAX)
		return wrong(p, "fragment", NULL);
	if (!piece && (offset == 0) != (before == 0))
		return wrong(p, "fragment", NULL);
	if (len == length && !piece)
		return print_message(p, "head", h->type, h->flags, bytes, len);
	fputs(" [fragment] data=", p->out);
	decode_data(p->out, bytes, len);
	return true;
}

static bool print_grants(struct printer *p, const uint8_t *bytes, uint32_t len)
{
	if (len % sizeof(struct wire_grant) || len > FAR_LINK_OPEN * sizeof(struct wire_grant))
		return wrong(p, "grants", NULL);
	for (uint32_t at = 0; at < len; at += (uint32_t)sizeof(struct wire_grant))
		print_layout(p, &grant_layout, bytes + at, sizeof(struct wire_grant), 0);
	return true;
}

/* The engine's words, as the control core reads them. */
static bool print_hello(struct printer *p, const uint8_t *bytes, size_t len)
{
	struct hello hello;
	if (len == 0)
		return true;
	if (hello_decode(bytes, len, &hello))
		return wrong(p, "hello", NULL);
	fprintf(p->out,
		" [hello] magic=%08x version=%u from_shard=%u to_shard=%u group=%016" PRIx64 " world=%" PRIu32
		" rank=%" PRIu32 " from=%016" PRIx64 " to=%016" PRIx64,
		0x4643484cu, bytes[4] << 8 | bytes[5], hello.from_shard, hello.to_shard, hello.group, hello.world,
		hello.rank, hello.from, hello.to);
	return true;
}

static bool print_words(struct printer *p, const uint8_t *bytes, uint32_t len)
{
	struct link_words words;
	struct wire_words w;
	if (len < sizeof w)
		return wrong(p, "words", "size");
	memcpy(&w, bytes, sizeof w);
	uint32_t words_len = be16_get(w.words), addr_len = be16_get(w.addr), rest = len - (uint32_t)sizeof w;
	bool good = print_layout(p, &words_layout, bytes, len, 0);
	if (words_len > rest)
		return good && wrong(p, "words", "size");
	fputs(" hello=", p->out);
	decode_data(p->out, bytes + sizeof w, words_len);
	if (addr_len > rest - words_len)
		return good && wrong(p, "words", "size");
	fputs(" address=", p->out);
	decode_data(p->out, bytes + sizeof w + words_len, addr_len);
	if (!good)
		return false;
	if (!link_words_read(bytes, len, &words))
		return wrong(p, "words", "size");
	return print_hello(p, words.words, words.words_len);
}

static bool crc_fits(const struct wire_head *h, const uint8_t *bytes, uint32_t len)
{
	struct wire_head zeroed = *h;
	zeroed.crc = be32_of(0);
	uint32_t crc = crc32c(0, &zeroed, sizeof zeroed);
	return be32_get(h->crc) == 0 || crc32c(crc, bytes + sizeof *h, len - sizeof *h) == be32_get(h->crc);
}

static bool print_packet(struct printer *p, const uint8_t *bytes, uint32_t len)
{
	struct wire_head h;
	if (len < sizeof h)
		return wrong(p, "head", "size");
	memcpy(&h, bytes, sizeof h);
	if (!print_layout(p, &head_layout, bytes, len, h.type))
		return false;
	if (!crc_fits(&h, bytes, len))
		return wrong(p, "crc", NULL);
	bytes += sizeof h;
	len -= (uint32_t)sizeof h;
	switch ((enum wire_kind)h.kind) {
	case WIRE_MESSAGE:
		return print_bytes_of_message(p, &h, bytes, len);
	case WIRE_HELLO:
	case WIRE_WELCOME:
	case WIRE_PING:
		return print_words(p, bytes, len);
	case WIRE_REFUSED:
	case WIRE_WRONG_QUEUE:
	case WIRE_RESET:
	case WIRE_BYE:
		return print_exactly(p, &no_layout, bytes, len, 0);
	case WIRE_ACK:
		return print_grants(p, bytes, len);
	}
	return true;
}

void decode_packet(FILE *out, const uint8_t *bytes, uint32_t len)
{
	struct printer p = {.out = out};
	if (print_packet(&p, bytes, len))
		fputs(" ok", out);
	else
		fprintf(out, " bad=%s%s%s", p.bad, p.bad_field ? "." : "", p.bad_field ? p.bad_field : "");
}

bool decode_likely(const uint8_t *bytes, uint32_t len)
{
	static const uint8_t no_tag[16];
	struct wire_head h;
	if (len < sizeof h)
		return false;
	memcpy(&h, bytes, sizeof h);
	return h.version == WIRE_VERSION && h.kind >= WIRE_MESSAGE && h.kind <= WIRE_BYE &&
	       memcmp(h.tag, no_tag, sizeof h.tag) == 0;
}
