/* SPDX-License-Identifier: BSD-3-Clause */
/** Each structure of engine/transport/wire.h and engine/core/head.h as a list of its fields, in their order;
 * engine/PROTOCOL.md tables the same. */
#include "decode_fields.h"
#include "base/rref.h"
#include "core/head.h"
#include "decode.h"
#include "features/references/wire.h"
#include "transport/mail.h"
#include "transport/port.h"
#include "transport/wire.h"
#include <farcall/status.h>
#include <inttypes.h>

enum encoding { NUMBER, ID, TAG, KIND, MARK, TYPE, FLAG, FN, TIME, LARGE_KIND, RREF_KIND, STATUS };

struct field {
	const char *name;
	uint16_t at;
	uint8_t bytes;
	uint8_t encoding;
	uint64_t low, high; /* that the engine takes */
};

#define ANY UINT64_MAX
#define FIELD_MUST(s, member, encoding, low, high)                                                                     \
	{                                                                                                              \
#member, offsetof(struct s, member), sizeof(((struct s *)0)->member), (encoding), (low), (high)        \
	}
#define FIELD(s, member, encoding) FIELD_MUST(s, member, encoding, 0, ANY)
#define LAYOUT(name, s, fields)                                                                                        \
	{                                                                                                              \
		(name), sizeof(struct s), sizeof(fields) / sizeof *(fields), (fields)                                  \
	}

/* The call header, in the bytes `call` of a struct. */
#define CALL_FIELD(s, name, member, bytes, encoding)                                                                   \
	{                                                                                                              \
		(name), offsetof(struct s, call) + offsetof(struct shm_head, member), (bytes), (encoding), 0, ANY      \
	}
#define CALL_FIELDS(s)                                                                                                 \
	CALL_FIELD(s, "type", type, 1, TYPE), CALL_FIELD(s, "flags", flags, 1, FLAG), CALL_FIELD(s, "fn", fn, 2, FN),  \
		CALL_FIELD(s, "call", call, 4, NUMBER), CALL_FIELD(s, "gen", gen, 4, NUMBER),                          \
		CALL_FIELD(s, "tlv_bytes", tlv_bytes, 4, NUMBER), CALL_FIELD(s, "time", time_low, 8, TIME),            \
		CALL_FIELD(s, "reserved", reserved, 4, NUMBER)

static const struct field head_fields[] = {
	FIELD_MUST(wire_head, version, NUMBER, WIRE_VERSION, WIRE_VERSION),
	FIELD_MUST(wire_head, kind, KIND, WIRE_MESSAGE, WIRE_CHALLENGE),
	FIELD(wire_head, marks, MARK),
	FIELD(wire_head, lane_phase, NUMBER),
	FIELD(wire_head, crc, ID),
	FIELD(wire_head, incarnation, ID),
	FIELD(wire_head, token, ID),
};
const struct layout layout_head = LAYOUT("head", wire_head, head_fields);

/* A layout of what is behind the head: `at` counts from there. */
#define REST(s, member, encoding)                                                                                      \
	{                                                                                                              \
#member, offsetof(struct s, member) - sizeof(struct wire_head), sizeof(((struct s *)0)->member),       \
			(encoding), 0, ANY                                                                             \
	}
#define REST_LAYOUT(name, s, fields)                                                                                   \
	{                                                                                                              \
		(name), sizeof(struct s) - sizeof(struct wire_head), sizeof(fields) / sizeof *(fields), (fields)       \
	}

/* struct wire_message behind the head. */
struct message_rest {
	uint8_t before[offsetof(struct wire_message, call) - sizeof(struct wire_head)];
	uint8_t call[sizeof(struct shm_head)];
};
static const struct field message_fields[] = {
	REST(wire_message, packet, NUMBER), REST(wire_message, ack, NUMBER),    REST(wire_message, ack_bits, ID),
	CALL_FIELDS(message_rest),          REST(wire_message, length, NUMBER), REST(wire_message, offset, NUMBER),
	REST(wire_message, first, NUMBER),  REST(wire_message, zero, TAG),
};
const struct layout layout_message = REST_LAYOUT("message", wire_message, message_fields);

static const struct field ack_fields[] = {
	REST(wire_ack, packet, NUMBER), REST(wire_ack, ack, NUMBER),       REST(wire_ack, ack_bits, ID),
	REST(wire_ack, path, NUMBER),   REST(wire_ack, duplicate, NUMBER), REST(wire_ack, unscheduled_bytes, NUMBER),
	REST(wire_ack, window, NUMBER), REST(wire_ack, zero, TAG),
};
const struct layout layout_ack = REST_LAYOUT("ack", wire_ack, ack_fields);

static const struct field control_fields[] = {
	REST(wire_control, first_packet, NUMBER),
	REST(wire_control, features, NUMBER),
	REST(wire_control, window, NUMBER),
	REST(wire_control, zero, TAG),
	REST(wire_control, tag, TAG),
};
const struct layout layout_control = REST_LAYOUT("control", wire_control, control_fields);

static const struct field sub_fields[] = {CALL_FIELDS(wire_sub), FIELD(wire_sub, length, NUMBER)};
const struct layout layout_sub = LAYOUT("sub", wire_sub, sub_fields);

static const struct field handshake_fields[] = {
	FIELD_MUST(wire_handshake, incarnation, ID, 1, ANY),
	FIELD_MUST(wire_handshake, token, ID, 1, ANY),
	FIELD_MUST(wire_handshake, queue, NUMBER, 0, FAR_TRANSPORT_QUEUES_MAX - 1),
	FIELD(wire_handshake, wanted_queue, NUMBER),
	FIELD_MUST(wire_handshake, flow, NUMBER, 0, NIC_FLOWS - 1),
	FIELD_MUST(wire_handshake, path, NUMBER, 0, 1 + FAR_TRANSPORT_SECONDARY_PATHS_MAX),
	FIELD_MUST(wire_handshake, packet_max, NUMBER, TRANSPORT_PACKET_MIN, ANY),
	FIELD_MUST(wire_handshake, payload_bytes, NUMBER, 0, NIC_HANDSHAKE_BYTES_MAX),
	FIELD_MUST(wire_handshake, address_bytes, NUMBER, 0, NIC_ADDR_BYTES_MAX - TRANSPORT_ID_BYTES),
	FIELD(wire_handshake, nonce, TAG),
	FIELD(wire_handshake, cookie, TAG),
	FIELD(wire_handshake, proof, TAG),
	FIELD(wire_handshake, issued, NUMBER),
	FIELD(wire_handshake, public_key, TAG),
};
const struct layout layout_handshake = LAYOUT("handshake", wire_handshake, handshake_fields);

static const struct field reject_fields[] = {FIELD(wire_reject, error, NUMBER), FIELD(wire_reject, flow, NUMBER),
					     FIELD(wire_reject, path, NUMBER), FIELD(wire_reject, nonce, TAG)};
const struct layout layout_reject = LAYOUT("reject", wire_reject, reject_fields);

static const struct field grant_fields[] = {FIELD(wire_grant, first, NUMBER), FIELD(wire_grant, offset, NUMBER),
					    FIELD(wire_grant, priority, NUMBER)};
const struct layout layout_grant = LAYOUT("grant", wire_grant, grant_fields);

static const struct field exposed_fields[] = {FIELD(wire_key, key, ID), FIELD(wire_key, addr, ID)};
const struct layout layout_exposed = LAYOUT("exposed", wire_key, exposed_fields);

static const struct field large_fields[] = {
	FIELD_MUST(head_rendezvous, total, NUMBER, 1, ANY),
	FIELD_MUST(head_rendezvous, lane, NUMBER, 0, FAR_RENDEZVOUS_LANES - 1),
	FIELD(head_rendezvous, life, NUMBER),
	FIELD_MUST(head_rendezvous, kind, LARGE_KIND, RENDEZVOUS_REQUEST, RENDEZVOUS_REPLY),
	FIELD(head_rendezvous, reserved, NUMBER),
};
const struct layout layout_large = LAYOUT("large", head_rendezvous, large_fields);

static const struct field units_fields[] = {FIELD(head_units, done, NUMBER)};
const struct layout layout_units = LAYOUT("units", head_units, units_fields);

static const struct field hash_fields[] = {FIELD(head_hash, name, ID), FIELD(head_hash, signature, ID)};
const struct layout layout_hash = LAYOUT("hash", head_hash, hash_fields);

static const struct field retry_fields[] = {FIELD_MUST(head_retry, seq, NUMBER, 1, ANY),
					    FIELD_MUST(head_retry, floor, NUMBER, 1, ANY)};
const struct layout layout_retry = LAYOUT("retry", head_retry, retry_fields);

static const struct field object_fields[] = {FIELD(rref_id, life, ID), FIELD(rref_id, number, ID)};
const struct layout layout_object = LAYOUT("object", rref_id, object_fields);

static const struct field named_fields[] = {FIELD_MUST(rref_named, count, NUMBER, 1, ANY)};
const struct layout layout_named = LAYOUT("named", rref_named, named_fields);

static const struct field rref_remote_fields[] = {
	FIELD(rref_remote, owner, ID),
	FIELD(rref_remote, id.life, ID),
	FIELD(rref_remote, id.number, ID),
	FIELD(rref_remote, fork.life, ID),
	FIELD(rref_remote, fork.number, ID),
	FIELD(rref_remote, function.name, ID),
	FIELD(rref_remote, function.signature, ID),
};
const struct layout layout_rref_remote = LAYOUT("rref_remote", rref_remote, rref_remote_fields);

static const struct field rref_fetch_fields[] = {FIELD(rref_fetch, owner, ID), FIELD(rref_fetch, id.life, ID),
						 FIELD(rref_fetch, id.number, ID)};
const struct layout layout_rref_fetch = LAYOUT("rref_fetch", rref_fetch, rref_fetch_fields);

static const struct field rref_method_fields[] = {
	FIELD(rref_method, owner, ID),
	FIELD(rref_method, object.life, ID),
	FIELD(rref_method, object.number, ID),
	FIELD(rref_method, function.name, ID),
	FIELD(rref_method, function.signature, ID),
};
const struct layout layout_rref_method = LAYOUT("rref_method", rref_method, rref_method_fields);

static const struct field rref_method_remote_fields[] = {
	FIELD(rref_method_remote, object.life, ID),
	FIELD(rref_method_remote, object.number, ID),
	FIELD(rref_method_remote, remote.owner, ID),
	FIELD(rref_method_remote, remote.id.life, ID),
	FIELD(rref_method_remote, remote.id.number, ID),
	FIELD(rref_method_remote, remote.fork.life, ID),
	FIELD(rref_method_remote, remote.fork.number, ID),
	FIELD(rref_method_remote, remote.function.name, ID),
	FIELD(rref_method_remote, remote.function.signature, ID),
};
const struct layout layout_rref_method_remote =
	LAYOUT("rref_method_remote", rref_method_remote, rref_method_remote_fields);

static const struct field rref_op_fields[] = {
	FIELD_MUST(rref_op, kind, RREF_KIND, RREF_FORK, RREF_RECALL),
	FIELD(rref_op, status, STATUS),
	FIELD(rref_op, owner, ID),
	FIELD(rref_op, id.life, ID),
	FIELD(rref_op, id.number, ID),
	FIELD(rref_op, fork.life, ID),
	FIELD(rref_op, fork.number, ID),
};
const struct layout layout_rref_op = LAYOUT("rref_op", rref_op, rref_op_fields);

/* ---- names ---- */

#define NAMES_MAX 32

static const char *const kinds[NAMES_MAX] = {
	[WIRE_MESSAGE] = "MESSAGE",         [WIRE_ACK] = "ACK",       [WIRE_PING] = "PING",
	[WIRE_CONNECT] = "CONNECT",         [WIRE_ACCEPT] = "ACCEPT", [WIRE_REJECT] = "REJECT",
	[WIRE_WRONG_QUEUE] = "WRONG_QUEUE", [WIRE_RESET] = "RESET",   [WIRE_CLOSE] = "CLOSE",
	[WIRE_CHALLENGE] = "CHALLENGE",
};
static const char *const types[NAMES_MAX] = {
	[HEAD_REQUEST] = "REQUEST",     [HEAD_REPLY] = "REPLY",   [HEAD_ERROR] = "ERROR",   [HEAD_CANCEL] = "CANCEL",
	[HEAD_CANCELLED] = "CANCELLED", [HEAD_ONEWAY] = "ONEWAY", [HEAD_CREDIT] = "CREDIT", [HEAD_ASK] = "ASK",
	[HEAD_LARGE] = "LARGE",         [HEAD_DATA] = "DATA",     [HEAD_GRANT] = "GRANT",   [HEAD_REFUSE] = "REFUSE",
	[HEAD_ABORT] = "ABORT",
};
static const char *const large_kinds[NAMES_MAX] = {
	[RENDEZVOUS_REQUEST] = "REQUEST", [RENDEZVOUS_ONEWAY] = "ONEWAY", [RENDEZVOUS_REPLY] = "REPLY"};
static const char *const rref_kinds[NAMES_MAX] = {[RREF_FORK] = "FORK",
						  [RREF_DELETE] = "DELETE",
						  [RREF_ACCEPT] = "ACCEPT",
						  [RREF_FAILED] = "FAILED",
						  [RREF_RECALL] = "RECALL"};
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
	{WIRE_ASLEEP, "ASLEEP", 0},   {WIRE_FRAGMENT, "FRAGMENT", 0},     {WIRE_MORE, "MORE", 0},
	{WIRE_BATCH, "BATCH", 0},     {WIRE_RETRANSMIT, "RETRANSMIT", 0}, {WIRE_DUPLICATE, "DUPLICATE", 0},
	{WIRE_UNACKED, "UNACKED", 0}, {WIRE_UNORDERED, "UNORDERED", 0},
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

void print_status(FILE *out, uint64_t status)
{
	print_code(out, statuses, sizeof statuses / sizeof *statuses, status);
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

static uint64_t get(const struct field *f, const uint8_t *bytes)
{
	uint64_t v = 0;
	for (unsigned i = 0; i < f->bytes; i++)
		v = v << 8 | bytes[f->at + f->bytes - 1u - i];
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
	case RREF_KIND:
		print_code(out, rref_kinds, NAMES_MAX, v);
		return;
	case STATUS:
		print_status(out, v);
		return;
	case MARK:
		print_bits(out, marks, sizeof marks / sizeof *marks, v, 0);
		return;
	case FLAG:
		print_bits(out, flags, sizeof flags / sizeof *flags, v, type);
		return;
	case FN:
		if (type == HEAD_ERROR)
			print_status(out, v);
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

bool wrong(struct printer *p, const char *layout, const char *field)
{
	p->bad = layout;
	p->bad_field = field;
	return false;
}

bool print_layout(struct printer *p, const struct layout *l, const uint8_t *bytes, uint64_t len, unsigned type)
{
	bool good = true;
	if (len < l->bytes)
		return wrong(p, l->name, "size");
	fprintf(p->out, " [%s]", l->name);
	for (unsigned i = 0; i < l->n; i++) {
		const struct field *f = &l->fields[i];
		uint64_t v = f->encoding == TAG ? 0 : get(f, bytes);
		fprintf(p->out, " %s=", f->name);
		print_field(p->out, f, bytes + f->at, v, type);
		if (good && (v < f->low || v > f->high))
			good = wrong(p, l->name, f->name);
	}
	return good;
}

bool print_exactly(struct printer *p, const struct layout *l, const uint8_t *bytes, uint64_t len, unsigned type)
{
	return print_layout(p, l, bytes, len, type) && (len == l->bytes || wrong(p, l->name, "size"));
}
