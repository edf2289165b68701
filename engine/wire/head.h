/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Headers: one list of fields, two layouts (tabled in engine/PROTOCOL.md).
 *
 * shm_head is for drivers that are reliable, ordered and on one host: version, incarnation and token were fixed at
 * session set-up, a packet number would say nothing, the body's length is the driver's. It leaves FAR_LINE_PAYLOAD
 * bytes of its cache line to the payload. wire_head is for everything else and carries all of it, room for an
 * authentication tag included. No driver uses it yet; its offsets are part of the protocol all the same.
 */
#ifndef FAR_WIRE_HEAD_H
#define FAR_WIRE_HEAD_H

#include "base/limits.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_VERSION 1

enum head_type {
	HEAD_REQUEST = 1, /* caller → callee: run `fn` */
	HEAD_REPLY,       /* callee → caller: its value */
	HEAD_ERROR,       /* callee → caller: its failure; body is the text */
	HEAD_CANCEL,      /* caller → callee: nobody waits any more */
	HEAD_CANCELLED,   /* callee → caller: nothing else will come for this call */
	HEAD_ONEWAY,      /* run message `fn`; nothing goes back for it */
	HEAD_CREDIT,      /* so many one-ways arrived (`time`, cumulative); body: struct head_units */
	HEAD_ASK,         /* say CREDIT now */
	HEAD_LARGE,       /* a REQUEST, ONEWAY or REPLY whose body comes in fragments; body: struct head_large */
	HEAD_DATA,        /* the next fragment of lane `call`, life `gen`, from offset `time` on */
	HEAD_GRANT,       /* the lane's bytes up to offset `time` may be sent; body: struct head_units */
	HEAD_REFUSE,      /* nobody wants the lane's message any more; body: struct head_units */
	HEAD_ABORT,       /* the lane's message ends here, unfinished */
};

enum head_flag {
	HEAD_TYPED = 1,  /* request: `fn` is a typed function, not a message id */
	HEAD_HASHED = 2, /* request: `fn` is not known yet, the body ends with {name hash, signature hash}; reply: `fn`
			    is its number */
	HEAD_TLV =
		4, /* the body begins with `tlv_bytes` of type-length-value fields; none is defined, so it is refused */
	HEAD_RETRY =
		8, /* request: the body ends with a struct head_retry; cancel: of such a request; answer: to a repeat */
	HEAD_ASKED = 1,          /* credit: the answer to ASK */
	HEAD_EXECUTED_SHIFT = 6, /* error, cancelled: enum far_executed in bits 6–7 */
};

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

typedef struct {
	uint8_t b[2];
} be16;
typedef struct {
	uint8_t b[4];
} be32;
typedef struct {
	uint8_t b[8];
} be64;

struct wire_head {
	uint8_t version;    /* WIRE_VERSION */
	uint8_t type;       /* enum head_type; packets of the transport's own from 32 on */
	uint8_t flags;      /* enum head_flag */
	uint8_t lane_phase; /* bits 0–3 lane, bit 7 key phase */
	be16 fn;
	be16 tlv_bytes;
	be64 incarnation; /* of the receiver, as the sender knows it */
	be64 token;       /* of the session, chosen by the receiver */
	be32 packet;      /* packet number */
	be32 ack;         /* all packets below it arrived */
	be64 ack_bits;    /* bit i: packet ack + 1 + i arrived */
	be32 call;
	be32 gen;
	be64 time;       /* as shm_head's */
	be64 length;     /* of the message */
	be64 offset;     /* of this packet's bytes in it */
	be32 credits;    /* cumulative credit returned to the peer */
	be32 crc;        /* CRC32C of the packet, this field as zeros; zeros with a tag */
	uint8_t tag[16]; /* authentication tag; zeros without a key */
};
static_assert(sizeof(struct wire_head) == 96, "");
static_assert(offsetof(struct wire_head, incarnation) == 8, "");
static_assert(offsetof(struct wire_head, token) == 16, "");
static_assert(offsetof(struct wire_head, packet) == 24, "");
static_assert(offsetof(struct wire_head, ack_bits) == 32, "");
static_assert(offsetof(struct wire_head, call) == 40, "");
static_assert(offsetof(struct wire_head, time) == 48, "");
static_assert(offsetof(struct wire_head, length) == 56, "");
static_assert(offsetof(struct wire_head, credits) == 72, "");
static_assert(offsetof(struct wire_head, crc) == 76, "");
static_assert(offsetof(struct wire_head, tag) == 80, "");

enum large_kind { LARGE_REQUEST = 1, LARGE_ONEWAY, LARGE_REPLY };

/** Body of HEAD_LARGE. Its head is the one that the whole message would have. */
struct head_large {
	uint64_t total; /* bytes of the message, at least 1 */
	uint32_t lane;  /* [0, FAR_LARGE_LANES), free */
	uint32_t life;  /* of the lane, repeated by whatever is about it */
	uint32_t kind;  /* enum large_kind */
	uint32_t reserved;
};
static_assert(sizeof(struct head_large) <= FAR_LINE_PAYLOAD, "an announcement is one line");

/** Body of CREDIT, GRANT and REFUSE: LARGE, DATA and ABORT packets that the receiver is done with, cumulative. */
struct head_units {
	uint64_t done;
};

/** The last 16 bytes of a HEAD_HASHED request's body. */
struct head_hash {
	uint64_t name;
	uint64_t signature;
};

/** The end of a HEAD_RETRY request's body, after a struct head_hash. */
struct head_retry {
	uint64_t seq;   /* of the call among those of its session that may be repeated, from 1 on */
	uint64_t floor; /* no call below it will be repeated; floor <= seq < floor + FAR_RETRY_WINDOW */
};

#endif
