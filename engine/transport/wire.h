/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The bytes of the transport's packets, as engine/PROTOCOL.md tables them, and the call header that the transport
 * carries. Any thread.
 *
 * struct shm_head is the header of every packet above nic.h: the core writes and reads it (engine/core/head.h has the
 * meaning of its fields), drivers that are reliable, ordered and on one host carry it as it is. Version, incarnation
 * and token were fixed at session set-up there, and the length of the body is the driver's. It leaves FAR_LINE_PAYLOAD
 * bytes of its cache line to the payload. struct wire_head is the header of every packet on datagram drivers: the same
 * fields, those of the transport, and room for an authentication tag.
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
	uint32_t gen;       /* life of that slot */
	uint32_t tlv_bytes; /* 0 */
	uint32_t time_low;  /* request: nanoseconds left, all ones: no limit; error: the handler's code */
	uint32_t time_high;
	uint32_t reserved; /* 0; lane and memory domain of later versions */
};
static_assert(sizeof(struct shm_head) == 28, "with the ring's word, 32 bytes: half a line");
static_assert(sizeof(struct shm_head) + FAR_LINE_PAYLOAD + sizeof(uint32_t) == 64, "a small call is one line");

/** What a packet is to engine/transport. */
enum wire_kind {
	WIRE_MESSAGE = 1, /* a message of the engine, or a fragment of one */
	WIRE_ACK,         /* the acknowledgement, and grants: struct wire_grant */
	WIRE_PING,        /* answer at once; body: struct wire_words */
	WIRE_HELLO,       /* connect request; body: struct wire_words; its token is 0 */
	WIRE_WELCOME,     /* it is there; body: struct wire_words */
	WIRE_REFUSED,     /* it is not; body: struct wire_no */
	WIRE_WRONG_QUEUE, /* HELLO, WELCOME or PING came to another queue; body: struct wire_no */
	WIRE_RESET,       /* there is no such connection; body: struct wire_no */
	WIRE_BYE,         /* the connection ends */
	WIRE_CHALLENGE    /* HELLO is to come again with the cookie in this one; body: struct wire_words */
};
#define WIRE_KINDS (WIRE_CHALLENGE + 1)

enum wire_mark {
	WIRE_ASLEEP = 1,  /* the sender is about to sleep: to be kicked */
	WIRE_PIECE = 2,   /* a part of the packet only: the path has become narrower since it was numbered */
	WIRE_MORE = 4,    /* further pieces of it follow */
	WIRE_BATCH = 8,   /* whole messages; behind the first each has a struct wire_sub */
	WIRE_AGAIN = 16,  /* it was sent before; ACK: with the same `ack` */
	WIRE_TWICE = 32,  /* ACK: packet `first` came as AGAIN, and had come without */
	WIRE_UNTOLD = 64, /* and it was not acknowledged before */
	/* Small messages, whole, that may pass all packets before the one that is `offset` before this,
	 * [1, FAR_LINK_WINDOW], but neither that one nor what that one may not pass. Or a packet of a larger message,
	 * of which `offset` says what it always does, that may pass all that is no packet of its own. */
	WIRE_LOOSE = 128
};

struct wire_head {
	uint8_t version;    /* WIRE_VERSION */
	uint8_t kind;       /* enum wire_kind */
	uint8_t marks;      /* enum wire_mark */
	uint8_t lane_phase; /* bits 0–3 lane, bit 6 WIRE_EXPOSED, bit 7 key phase */
	uint8_t type;       /* as shm_head's; all that it has is 0 but in WIRE_MESSAGE */
	uint8_t flags;
	be16 fn;
	be64 incarnation; /* of the receiver's port, as the sender knows it */
	be64 token;       /* of the connection, chosen by the receiver */
	be32 packet;      /* packet number; HELLO and WELCOME: of the first that the sender will send */
	be32 ack;         /* all packets below it arrived */
	be64 ack_bits;    /* bit i: packet ack + 1 + i arrived */
	be32 call;
	be32 gen;
	be64 time;
	be32 tlv_bytes;
	be32 reserved;
	be32 length;     /* of the message; ACK: bytes of one that may be sent without a grant, 0: it is not said */
	be32 offset;     /* of this packet's bytes in it; ACK: packets that may be unacknowledged, 0: it is not said */
	be32 first;      /* packet that the message begins with; ACK: see WIRE_TWICE */
	be32 crc;        /* CRC32C of the packet, this field as zeros; 0 with a tag, or when the driver checks */
	uint8_t tag[16]; /* proof of a control message (transport/auth.c); zeros without a key, in MESSAGE and in ACK */
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

/* In `lane_phase`, of the first packet of a larger message, between ends that both have bulk: a struct wire_key follows
 * its bytes. */
#define WIRE_EXPOSED 64u

/** The last bytes of such a packet: what the driver below reads all of the message with. */
struct wire_key {
	be64 key, addr; /* struct nic_bulk_key; address of the message's first byte */
};
static_assert(sizeof(struct wire_key) == 16, "");

/** Head of a message behind the first of its packet. It lies at the next multiple of 32, the message's bytes at the
 * next one behind it, or at the next multiple of 64 when they are more than FAR_LINE_PAYLOAD; both counted from the end
 * of the struct wire_head. What is between is 0. */
struct wire_sub {
	uint8_t type; /* as wire_head's */
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

/** Body of an ACK: one for each message that the other side has under way in fragments and was granted bytes of.
 * Cumulative: the highest offset holds. */
struct wire_grant {
	be32 first;    /* packet that the message begins with */
	be32 offset;   /* packets that begin below it may be sent */
	be32 priority; /* of those packets, where the network has such; 3 the most urgent, as is what is more; bit 31:
			  WIRE_HERE */
};
/* Of an exposed message: all bytes below `offset` are here, none is read any more, and the packet that begins at it may
 * be sent. */
#define WIRE_HERE 0x80000000u
static_assert(sizeof(struct wire_grant) == 12, "");

/** Body of HELLO, CHALLENGE, WELCOME and PING: its sender, and how to answer. Then the engine's hello and the address.
 */
struct wire_words {
	be64 incarnation;  /* of the sender's port */
	be64 token;        /* that its peer is to use; not 0 */
	be16 queue;        /* the sender's */
	be16 want;         /* HELLO: the receiver's queue */
	be32 path;         /* of those that lead to other queues, the one that the packet came by */
	be32 packet_max;   /* largest packet that the sender takes */
	be16 words;        /* bytes of the engine's hello */
	be16 addr;         /* bytes of the sender's published address, which the driver below reads */
	uint8_t nonce[16]; /* of the connect request, repeated by what answers it; PING: its number in 8 bytes, then 0
			    */
	uint8_t proof[16]; /* CHALLENGE: the cookie; HELLO: the same, 0 at first; WELCOME, PING: by the session's key */
	be64 issued;       /* CHALLENGE: when, by the sender's clock; HELLO: the same; else 0 */
	uint8_t public[32]; /* HELLO, WELCOME: the sender's X25519 key for this session; 0 without a key */
};
static_assert(sizeof(struct wire_words) == 104, "");
static_assert(offsetof(struct wire_words, nonce) == 32, "");
static_assert(offsetof(struct wire_words, public) == 72, "");
#define WIRE_UNCHECKED 1u /* in `length` of a HELLO's or WELCOME's head: packets without a CRC are taken */
#define WIRE_BULK      2u /* the same place: what is WIRE_EXPOSED is read */

struct wire_no {
	be32 error;        /* errno of Linux; 0: none */
	be32 path;         /* WRONG_QUEUE: that it came by, or `path` of the PING */
	uint8_t nonce[16]; /* of the packet that it answers; BYE: 0 */
};
static_assert(sizeof(struct wire_no) == 24, "");

#endif
