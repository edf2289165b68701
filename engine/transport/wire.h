/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Layout of the transport's packets, as engine/PROTOCOL.md tables them, and of the call header that they carry. Any
 * thread.
 *
 * struct shm_head is the header of every packet above nic.h; engine/core/head.h defines its values. Drivers that are
 * reliable, ordered and on one host carry it unchanged: version, incarnation and token are fixed at session set-up, and
 * the driver knows the length of the body. It leaves FAR_LINE_PAYLOAD bytes of its cache line to the payload. struct
 * wire_head is the header on datagram drivers: the same fields, those of the transport, and an authentication tag.
 */
#ifndef FAR_TRANSPORT_WIRE_H
#define FAR_TRANSPORT_WIRE_H

#include "base/byteorder.h"
#include "base/limits.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_VERSION 2

struct shm_head {
	uint8_t type;       /* enum head_type */
	uint8_t flags;      /* enum head_flag */
	uint16_t fn;        /* request: message id or callee's function number; error: enum far_status */
	uint32_t call;      /* caller's call slot */
	uint32_t gen;       /* generation of that slot */
	uint32_t tlv_bytes; /* 0 */
	uint32_t time_low;  /* request: nanoseconds left, all ones: no limit; error: the handler's code */
	uint32_t time_high;
	uint32_t reserved; /* 0; lane and memory domain of later versions */
};
static_assert(sizeof(struct shm_head) == 28, "with the ring's word, 32 bytes: half a line");
static_assert(sizeof(struct shm_head) + FAR_LINE_PAYLOAD + sizeof(uint32_t) == 64, "a small call is one line");

/** Packet kind. */
enum wire_kind {
	WIRE_MESSAGE = 1, /* one or more messages of the core, or a fragment of one */
	WIRE_ACK,         /* acknowledgement; body: grants, struct wire_grant */
	WIRE_PING,        /* requests an immediate ACK; body: struct wire_handshake */
	WIRE_CONNECT,     /* connect request; body: struct wire_handshake; its token is 0 */
	WIRE_ACCEPT,      /* connect accept; body: struct wire_handshake */
	WIRE_REJECT,      /* connect reject; body: struct wire_reject */
	WIRE_WRONG_QUEUE, /* CONNECT, ACCEPT or PING arrived at another queue; body: struct wire_reject */
	WIRE_RESET,       /* no such connection; body: struct wire_reject */
	WIRE_CLOSE,       /* connection closed by its sender; body: struct wire_reject */
	WIRE_CHALLENGE    /* requests a CONNECT with the cookie in its body; body: struct wire_handshake */
};
#define WIRE_KINDS (WIRE_CHALLENGE + 1)

/** Marks of a packet. */
enum wire_mark {
	WIRE_ASLEEP = 1,      /* the sender's queue sleeps: kick it after sending */
	WIRE_FRAGMENT = 2,    /* fragment of a packet: the path MTU shrank after the packet got its number */
	WIRE_MORE = 4,        /* more fragments of it follow */
	WIRE_BATCH = 8,       /* complete messages; each after the first has a struct wire_sub */
	WIRE_RETRANSMIT = 16, /* retransmission; ACK: repeats the `ack` of an earlier packet */
	WIRE_DUPLICATE =
		32, /* ACK: packet `first` arrived as RETRANSMIT, and before without: a spurious retransmission */
	WIRE_UNACKED = 64, /* with DUPLICATE: the packet was not acknowledged before */
	/* Small messages, complete: the packet may pass all packets before number `packet` - `offset`, `offset` in
	 * [1, FAR_TRANSPORT_WINDOW], but neither that one nor those that that one may not pass. Of a packet of a larger
	 * message, whose `offset` keeps its meaning: it may pass all packets of other messages. */
	WIRE_UNORDERED = 128
};

struct wire_head {
	uint8_t version;    /* WIRE_VERSION */
	uint8_t kind;       /* enum wire_kind */
	uint8_t marks;      /* enum wire_mark */
	uint8_t lane_phase; /* bits 0–3 lane, bit 6 WIRE_EXPOSED, bit 7 key phase */
	uint8_t type;       /* fields of shm_head: type, flags, fn, call, gen, time, tlv_bytes. 0 except in MESSAGE */
	uint8_t flags;
	be16 fn;
	be64 incarnation; /* of the receiver's port, as the sender knows it */
	be64 token;       /* of the connection, chosen by the receiver */
	be32 packet;      /* packet number; CONNECT and ACCEPT: that of the sender's first packet */
	be32 ack;         /* all packets below it arrived */
	be64 ack_bits;    /* bit i: packet ack + 1 + i arrived */
	be32 call;        /* ACK: `path` of the PING that it answers, else 0 */
	be32 gen;
	be64 time;
	be32 tlv_bytes;
	be32 reserved;
	be32 length;     /* bytes of the message; ACK: unscheduled bytes of each message, 0: not stated */
	be32 offset;     /* of this packet's bytes in the message; ACK: window in packets, 0: not stated */
	be32 first;      /* number of the message's first packet; ACK: see WIRE_DUPLICATE */
	be32 crc;        /* CRC32C of the packet with this field 0; 0 with a tag, or if the driver below checks */
	uint8_t tag[16]; /* proof of a control packet (transport/auth.c); zeros without a key, in MESSAGE and in ACK */
};
static_assert(sizeof(struct wire_head) == 96, "");
static_assert(offsetof(struct wire_head, incarnation) == 8, "");
static_assert(offsetof(struct wire_head, token) == 16, "");
static_assert(offsetof(struct wire_head, packet) == 24, "");
static_assert(offsetof(struct wire_head, ack_bits) == 32, "");
static_assert(offsetof(struct wire_head, call) == 40, "");
static_assert(offsetof(struct wire_head, time) == 48, "");
static_assert(offsetof(struct wire_head, tlv_bytes) == 56, "");
static_assert(offsetof(struct wire_head, length) == 64, "");
static_assert(offsetof(struct wire_head, first) == 72, "");
static_assert(offsetof(struct wire_head, crc) == 76, "");
static_assert(offsetof(struct wire_head, tag) == 80, "");

#define TRANSPORT_HEAD_BYTES ((uint32_t)sizeof(struct wire_head))
#define TRANSPORT_BITMAP     64u /* packets behind `ack` that wire_head.ack_bits covers */
/* Bytes behind the head of a packet of several messages. No path MTU is smaller, so such packets are never fragmented.
 */
#define TRANSPORT_BATCH_BYTES FAR_TRANSPORT_MTU_MIN

/* In `lane_phase` of the first packet of a larger message: a struct wire_key follows the packet's bytes. Only between
 * ends that both have bulk. */
#define WIRE_EXPOSED 64u

/** Key of an exposed message: the last bytes of its first packet. */
struct wire_key {
	be64 key, addr; /* struct nic_bulk_key; address of the message's first byte */
};
static_assert(sizeof(struct wire_key) == 16, "");

/** Head of each message in a packet but the first. It starts at the next multiple of 32 bytes; its message starts at
 * the next multiple of 32 behind it, or of 64 if it is longer than FAR_LINE_PAYLOAD. Both count from the end of the
 * struct wire_head. The padding is 0. */
struct wire_sub {
	uint8_t type; /* as in struct wire_head */
	uint8_t flags;
	be16 fn;
	be32 call;
	be32 gen;
	be32 tlv_bytes;
	be64 time;
	be32 reserved;
	be32 length;
};
static_assert(sizeof(struct wire_sub) == 32, "");
static_assert(offsetof(struct wire_sub, time) == 16, "");
static_assert(offsetof(struct wire_sub, length) == 28, "");

/** Grant, in the body of an ACK: one for each message that the peer sends in fragments and has grants for. Cumulative:
 * the highest offset is valid. */
struct wire_grant {
	be32 first;    /* number of the message's first packet */
	be32 offset;   /* packets that begin below it may be sent */
	be32 priority; /* of those packets, 0 to 3 (highest); larger values count as 3. Bit 31: WIRE_READ_DONE */
};
/* Of an exposed message: all bytes below `offset` are read and no more will be; the sender sends the rest in packets,
 * the first of which begins at `offset`. */
#define WIRE_READ_DONE 0x80000000u
static_assert(sizeof(struct wire_grant) == 12, "");

/** Body of CONNECT, CHALLENGE, ACCEPT and PING: identity of the sender, and where to send the answer. The handshake
 * payload and the address follow. */
struct wire_handshake {
	be64 incarnation;  /* of the sender's port */
	be64 token;        /* for packets to the sender; not 0 */
	be16 queue;        /* the sender's */
	be16 want;         /* CONNECT: queue of the receiver */
	be32 path;         /* number of the flow by which this packet was sent (NIC_ROUTE); PING: 1 + number of the path
			    */
	be32 packet_max;   /* largest packet that the sender receives */
	be16 words;        /* bytes of handshake payload */
	be16 addr;         /* bytes of the sender's published address, for the driver below */
	uint8_t nonce[16]; /* of the connect request, copied into answers; PING: its number in 8 bytes, then 0 */
	uint8_t proof[16]; /* CHALLENGE: cookie; CONNECT: that cookie, 0 at first; ACCEPT, PING: by the session's key */
	be64 issued;       /* CHALLENGE: time of the cookie, by the sender's clock; CONNECT: the same; else 0 */
	uint8_t public[32]; /* CONNECT, ACCEPT: the sender's X25519 key for this session; 0 without a key */
};
static_assert(sizeof(struct wire_handshake) == 104, "");
static_assert(offsetof(struct wire_handshake, nonce) == 32, "");
static_assert(offsetof(struct wire_handshake, public) == 72, "");
/* Features of the sender, in `length` of the head of CONNECT and ACCEPT. */
#define WIRE_UNCHECKED 1u /* it accepts packets without a CRC */
#define WIRE_BULK      2u /* it reads messages that are WIRE_EXPOSED */

struct wire_reject {
	be32 error;        /* errno of Linux; 0: none */
	be32 path;         /* WRONG_QUEUE: `path` of the packet that it answers */
	uint8_t nonce[16]; /* of the packet that it answers; CLOSE: 0 */
};
static_assert(sizeof(struct wire_reject) == 24, "");

/** Offset of the struct wire_sub behind a message that ends at `end`, and offset of its message. */
static inline uint32_t transport_batch_sub(uint32_t end)
{
	return (end + 31) & ~31u;
}

static inline uint32_t transport_batch_body(uint32_t sub, uint32_t len)
{
	uint32_t at = sub + (uint32_t)sizeof(struct wire_sub);
	return len > FAR_LINE_PAYLOAD ? (at + 63) & ~63u : at;
}

#endif
