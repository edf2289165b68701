/* SPDX-License-Identifier: BSD-3-Clause */
/** Each structure of engine/transport/wire.h and engine/core/packet.h as a list of its fields, in their order;
 * engine/PROTOCOL.md tables the same. Main thread. */
#include "decode_fields.h"
#include "base/rref.h"
#include "core/packet.h"
#include "decode.h"
#include "features/references/wire.h"
#include "transport/mail.h"
#include "transport/port.h"
#include "transport/wire.h"
#include <farcall/status.h>
#include <inttypes.h>

enum encoding { NUMBER, SIGNED, ID, TAG, HEAD, KIND, HEAD_FLAG, TYPE, FLAG, EXECUTED, RREF_KIND, STATUS };

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

static const struct field head_fields[] = {
	FIELD_MUST(wire_head, version, NUMBER, WIRE_VERSION, WIRE_VERSION),
	FIELD_MUST(wire_head, kind, KIND, WIRE_MESSAGE, WIRE_CHALLENGE),
	FIELD(wire_head, flags, HEAD_FLAG),
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

static const struct field message_fields[] = {
	REST(wire_message, packet, NUMBER), REST(wire_message, ack, NUMBER),    REST(wire_message, ack_bits, ID),
	REST(wire_message, call, HEAD),     REST(wire_message, length, NUMBER), REST(wire_message, offset, NUMBER),
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

static const struct field sub_fields[] = {FIELD(wire_sub, call, HEAD), FIELD(wire_sub, length, NUMBER)};
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

/* ---- heads of messages ---- */

#define FIELD_HEAD(s) FIELD(s, type, TYPE), FIELD(s, flags, FLAG)
#define FIELD_CALL(s) FIELD(s, slot, NUMBER), FIELD(s, generation, NUMBER), FIELD(s, tlv_bytes, NUMBER)
#define FIELD_LANE(s)                                                                                                  \
	FIELD_HEAD(s), FIELD(s, zero, NUMBER), FIELD(s, lane, NUMBER), FIELD(s, epoch, NUMBER),                        \
		FIELD(s, tlv_bytes, NUMBER)

static const struct field request_fields[] = {FIELD_HEAD(packet_request), FIELD(packet_request, handler, NUMBER),
					      FIELD_CALL(packet_request), FIELD(packet_request, time_left, NUMBER),
					      FIELD(packet_request, reserved, NUMBER)};
static const struct layout layout_request = LAYOUT("request", packet_request, request_fields);

static const struct field reply_fields[] = {FIELD_HEAD(packet_reply), FIELD(packet_reply, function, NUMBER),
					    FIELD_CALL(packet_reply), FIELD(packet_reply, zeros, NUMBER),
					    FIELD(packet_reply, reserved, NUMBER)};
static const struct layout layout_reply = LAYOUT("reply", packet_reply, reply_fields);

static const struct field error_fields[] = {FIELD_HEAD(packet_error),
					    FIELD(packet_error, status, STATUS),
					    FIELD_CALL(packet_error),
					    FIELD(packet_error, code, SIGNED),
					    FIELD(packet_error, executed, EXECUTED),
					    FIELD(packet_error, reserved, NUMBER)};
static const struct layout layout_error = LAYOUT("error", packet_error, error_fields);

static const struct field cancel_fields[] = {FIELD_HEAD(packet_call), FIELD(packet_call, zero, NUMBER),
					     FIELD_CALL(packet_call), FIELD(packet_call, zeros, NUMBER),
					     FIELD(packet_call, reserved, NUMBER)};
static const struct layout layout_cancel = LAYOUT("cancel", packet_call, cancel_fields);

static const struct field cancelled_fields[] = {FIELD_HEAD(packet_cancelled),
						FIELD(packet_cancelled, zero, NUMBER),
						FIELD_CALL(packet_cancelled),
						FIELD(packet_cancelled, zeros, NUMBER),
						FIELD(packet_cancelled, executed, EXECUTED),
						FIELD(packet_cancelled, reserved, NUMBER)};
static const struct layout layout_cancelled = LAYOUT("cancelled", packet_cancelled, cancelled_fields);

static const struct field oneway_fields[] = {FIELD_HEAD(packet_oneway),
					     FIELD(packet_oneway, handler, NUMBER),
					     FIELD(packet_oneway, zeros, NUMBER),
					     FIELD(packet_oneway, tlv_bytes, NUMBER),
					     FIELD(packet_oneway, time_left, NUMBER),
					     FIELD(packet_oneway, reserved, NUMBER)};
static const struct layout layout_oneway = LAYOUT("oneway", packet_oneway, oneway_fields);

static const struct field credit_fields[] = {FIELD_HEAD(packet_credit),
					     FIELD(packet_credit, zero, NUMBER),
					     FIELD(packet_credit, zeros, NUMBER),
					     FIELD(packet_credit, tlv_bytes, NUMBER),
					     FIELD(packet_credit, oneways, NUMBER),
					     FIELD(packet_credit, reserved, NUMBER)};
static const struct layout layout_credit = LAYOUT("credit", packet_credit, credit_fields);

static const struct field rendezvous_fields[] = {
	FIELD_HEAD(packet_rendezvous),
	FIELD(packet_rendezvous, zero, NUMBER),
	FIELD_MUST(packet_rendezvous, lane, NUMBER, 0, FAR_RENDEZVOUS_LANES - 1),
	FIELD(packet_rendezvous, epoch, NUMBER),
	FIELD(packet_rendezvous, tlv_bytes, NUMBER),
	FIELD_MUST(packet_rendezvous, total, NUMBER, 1, ANY),
	FIELD(packet_rendezvous, reserved, NUMBER)};
static const struct layout layout_rendezvous = LAYOUT("rendezvous", packet_rendezvous, rendezvous_fields);

static const struct field data_fields[] = {FIELD_LANE(packet_data), FIELD(packet_data, offset, NUMBER),
					   FIELD(packet_data, reserved, NUMBER)};
static const struct layout layout_data = LAYOUT("data", packet_data, data_fields);

static const struct field lane_grant_fields[] = {FIELD_LANE(packet_grant), FIELD(packet_grant, granted, NUMBER),
						 FIELD(packet_grant, reserved, NUMBER)};
static const struct layout layout_lane_grant = LAYOUT("lane_grant", packet_grant, lane_grant_fields);

static const struct field lane_fields[] = {FIELD_LANE(packet_lane), FIELD(packet_lane, zeros, NUMBER),
					   FIELD(packet_lane, reserved, NUMBER)};
static const struct layout layout_lane = LAYOUT("lane", packet_lane, lane_fields);

static const struct layout *const heads[] = {
	[PACKET_REQUEST] = &layout_request,
	[PACKET_REPLY] = &layout_reply,
	[PACKET_ERROR] = &layout_error,
	[PACKET_CANCEL] = &layout_cancel,
	[PACKET_CANCELLED] = &layout_cancelled,
	[PACKET_ONEWAY] = &layout_oneway,
	[PACKET_CREDIT] = &layout_credit,
	[PACKET_CREDIT_REQUEST] = &layout_credit,
	[PACKET_RENDEZVOUS] = &layout_rendezvous,
	[PACKET_DATA] = &layout_data,
	[PACKET_GRANT] = &layout_lane_grant,
	[PACKET_REFUSE] = &layout_lane,
	[PACKET_ABORT] = &layout_lane,
};

/* ---- bodies ---- */

static const struct field acked_fields[] = {FIELD(packet_acked, packets, NUMBER)};
const struct layout layout_acked = LAYOUT("acked", packet_acked, acked_fields);

static const struct field hash_fields[] = {FIELD(packet_hash, name, ID), FIELD(packet_hash, signature, ID)};
const struct layout layout_hash = LAYOUT("hash", packet_hash, hash_fields);

static const struct field retry_fields[] = {FIELD_MUST(packet_retry, seq, NUMBER, 1, ANY),
					    FIELD_MUST(packet_retry, floor, NUMBER, 1, ANY)};
const struct layout layout_retry = LAYOUT("retry", packet_retry, retry_fields);

static const struct field object_fields[] = {FIELD(rref_id, incarnation, ID), FIELD(rref_id, number, ID)};
const struct layout layout_object = LAYOUT("object", rref_id, object_fields);

static const struct field named_fields[] = {FIELD_MUST(rref_named, count, NUMBER, 1, ANY)};
const struct layout layout_named = LAYOUT("named", rref_named, named_fields);

static const struct field rref_remote_fields[] = {
	FIELD(rref_remote, owner, ID),
	FIELD(rref_remote, id.incarnation, ID),
	FIELD(rref_remote, id.number, ID),
	FIELD(rref_remote, fork.incarnation, ID),
	FIELD(rref_remote, fork.number, ID),
	FIELD(rref_remote, function.name, ID),
	FIELD(rref_remote, function.signature, ID),
};
const struct layout layout_rref_remote = LAYOUT("rref_remote", rref_remote, rref_remote_fields);

static const struct field rref_fetch_fields[] = {FIELD(rref_fetch, owner, ID), FIELD(rref_fetch, id.incarnation, ID),
						 FIELD(rref_fetch, id.number, ID)};
const struct layout layout_rref_fetch = LAYOUT("rref_fetch", rref_fetch, rref_fetch_fields);

static const struct field rref_method_fields[] = {
	FIELD(rref_method, owner, ID),
	FIELD(rref_method, object.incarnation, ID),
	FIELD(rref_method, object.number, ID),
	FIELD(rref_method, function.name, ID),
	FIELD(rref_method, function.signature, ID),
};
const struct layout layout_rref_method = LAYOUT("rref_method", rref_method, rref_method_fields);

static const struct field rref_method_remote_fields[] = {
	FIELD(rref_method_remote, object.incarnation, ID),
	FIELD(rref_method_remote, object.number, ID),
	FIELD(rref_method_remote, remote.owner, ID),
	FIELD(rref_method_remote, remote.id.incarnation, ID),
	FIELD(rref_method_remote, remote.id.number, ID),
	FIELD(rref_method_remote, remote.fork.incarnation, ID),
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
	FIELD(rref_op, id.incarnation, ID),
	FIELD(rref_op, id.number, ID),
	FIELD(rref_op, fork.incarnation, ID),
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
	[PACKET_REQUEST] = "REQUEST",       [PACKET_REPLY] = "REPLY",
	[PACKET_ERROR] = "ERROR",           [PACKET_CANCEL] = "CANCEL",
	[PACKET_CANCELLED] = "CANCELLED",   [PACKET_ONEWAY] = "ONEWAY",
	[PACKET_CREDIT] = "CREDIT",         [PACKET_CREDIT_REQUEST] = "CREDIT_REQUEST",
	[PACKET_RENDEZVOUS] = "RENDEZVOUS", [PACKET_DATA] = "DATA",
	[PACKET_GRANT] = "GRANT",           [PACKET_REFUSE] = "REFUSE",
	[PACKET_ABORT] = "ABORT",
};
static const char *const executed_names[NAMES_MAX] = {
	[FAR_EXECUTED_NO] = "NO", [FAR_EXECUTED_MAYBE] = "MAYBE", [FAR_EXECUTED_YES] = "YES"};
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

#define OF(type) (1u << PACKET_##type)
#define ANSWERS  (OF(REPLY) | OF(ERROR) | OF(CANCELLED))
static const struct bit head_flags[] = {
	{WIRE_ASLEEP, "ASLEEP", 0},   {WIRE_FRAGMENT, "FRAGMENT", 0},     {WIRE_MORE, "MORE", 0},
	{WIRE_BATCH, "BATCH", 0},     {WIRE_RETRANSMIT, "RETRANSMIT", 0}, {WIRE_DUPLICATE, "DUPLICATE", 0},
	{WIRE_UNACKED, "UNACKED", 0}, {WIRE_UNORDERED, "UNORDERED", 0},
};
static const struct bit flags[] = {
	{PACKET_TYPED, "TYPED", OF(REQUEST)},
	{PACKET_HASHED, "HASHED", OF(REQUEST) | OF(REPLY)},
	{PACKET_TLV, "TLV", (2u << PACKET_ABORT) - 2},
	{PACKET_RETRY, "RETRY", OF(REQUEST) | OF(CANCEL) | ANSWERS},
	{PACKET_RREFS, "RREFS", OF(REPLY)},
	{PACKET_METHOD, "METHOD", OF(REQUEST)},
	{PACKET_NAMED, "NAMED", OF(REQUEST)},
	{PACKET_REFERRED, "REFERRED", OF(RENDEZVOUS)},
	{PACKET_KEPT, "KEPT", OF(GRANT)},
	{PACKET_REQUESTED, "REQUESTED", OF(CREDIT)},
	{PACKET_PULLED, "PULLED", OF(GRANT)},
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
	case EXECUTED:
		print_code(out, executed_names, NAMES_MAX, v);
		return;
	case RREF_KIND:
		print_code(out, rref_kinds, NAMES_MAX, v);
		return;
	case STATUS:
		print_status(out, v);
		return;
	case HEAD_FLAG:
		print_bits(out, head_flags, sizeof head_flags / sizeof *head_flags, v, 0);
		return;
	case FLAG:
		print_bits(out, flags, sizeof flags / sizeof *flags, v, type);
		return;
	case SIGNED:
		fprintf(out, "%" PRId32, (int32_t)(uint32_t)v);
		return;
	case HEAD: /* print_head() */
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
		if (f->encoding == HEAD)
			continue;
		uint64_t v = f->encoding == TAG ? 0 : get(f, bytes);
		fprintf(p->out, " %s=", f->name);
		print_field(p->out, f, bytes + f->at, v, type);
		if (good && (v < f->low || v > f->high))
			good = wrong(p, l->name, f->name);
	}
	return good;
}

bool print_head(struct printer *p, const union packet_head *h)
{
	unsigned type = h->type;
	if (type >= sizeof heads / sizeof *heads || !heads[type])
		return true;
	return print_layout(p, heads[type], (const uint8_t *)h, sizeof *h, type);
}

bool print_exactly(struct printer *p, const struct layout *l, const uint8_t *bytes, uint64_t len, unsigned type)
{
	return print_layout(p, l, bytes, len, type) && (len == l->bytes || wrong(p, l->name, "size"));
}
