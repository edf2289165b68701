/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Packets of the core, one struct for the head of each kind, and the bodies of the core's own packets, as
 * engine/PROTOCOL.md tables them. Any thread.
 *
 * Each head has 28 bytes. Reliable, ordered drivers on one host carry it unchanged, and the driver knows the length of
 * the body; struct wire_message (transport/wire.h) carries the same bytes beside the fields of the transport. A head
 * leaves FAR_LINE_PAYLOAD bytes of its cache line to the payload. All numbers are little-endian (base/byteorder.h).
 */
#ifndef FAR_CORE_PACKET_H
#define FAR_CORE_PACKET_H

#include "base/byteorder.h"
#include "base/limits.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum packet_type {
	PACKET_REQUEST = 1,    /* caller → callee: run a handler */
	PACKET_REPLY,          /* callee → caller: its value */
	PACKET_ERROR,          /* callee → caller: its failure; body: the text */
	PACKET_CANCEL,         /* caller → callee: the caller no longer waits */
	PACKET_CANCELLED,      /* callee → caller: nothing else will come for this call */
	PACKET_ONEWAY,         /* run a message handler; no answer */
	PACKET_CREDIT,         /* acknowledges one-way messages; body: struct packet_acked */
	PACKET_CREDIT_REQUEST, /* send CREDIT now */
	PACKET_RENDEZVOUS,     /* announces a message whose body comes in DATA; body: the head of that message */
	PACKET_DATA,           /* next fragment of a lane */
	PACKET_GRANT,          /* bytes of a lane may be sent; body: struct packet_acked */
	PACKET_REFUSE,         /* the lane's message is not wanted any more; body: struct packet_acked */
	PACKET_ABORT           /* the lane's message ends here, incomplete */
};

enum packet_flag {
	PACKET_TYPED = 1,   /* REQUEST: `handler` is the callee's number of a function, the payload is typed values */
	PACKET_HASHED = 2,  /* REQUEST: the function's number is not known yet, the body ends with a struct packet_hash;
			       REPLY: answers such a request */
	PACKET_TLV = 4,     /* `tlv_bytes` of fields (core/tlv.h) follow the payload, behind a struct packet_hash and
			       before a struct packet_retry */
	PACKET_RETRY = 8,   /* REQUEST: the body ends with a struct packet_retry; CANCEL of such a request; answer to a
			       retransmission */
	PACKET_RREFS = 16,  /* REPLY: the value holds references */
	PACKET_METHOD = 32, /* TYPED: of an object, whose id ends the payload: struct rref_id */
	PACKET_NAMED = 64,  /* TYPED: a struct rref_named ends the payload: with METHOD the object's, in place of its
			       id, else of the value, which stays at the callee */
	PACKET_REFERRED = 64, /* RENDEZVOUS: `at` of the parts are references of the driver, in place of addresses */
	PACKET_KEPT = 64, /* GRANT, with PULLED: the receiver still reads the referred message; one without follows */
	PACKET_REQUESTED = 128, /* CREDIT: answers a CREDIT_REQUEST */
	PACKET_PULLED = 128     /* GRANT: the receiver has read the whole offered message */
};

/* Heads are aligned to 4 bytes. */
typedef uint64_t packet_u64 __attribute__((aligned(4)));

/* Fields that begin every head. */
#define PACKET_HEAD                                                                                                    \
	uint8_t type;  /* enum packet_type */                                                                          \
	uint8_t flags; /* enum packet_flag */

/** Fields of every packet of a call; CANCEL has no others. */
struct packet_call {
	PACKET_HEAD
	uint16_t zero;
	uint32_t slot;       /* of the caller; repeated in the answer */
	uint32_t generation; /* of that slot */
	uint32_t tlv_bytes;  /* with PACKET_TLV [1, FAR_TLV_BYTES_MAX], else 0 */
	uint32_t zeros[2];
	uint32_t reserved; /* 0; lane and memory domain of later versions */
};

struct packet_request {
	PACKET_HEAD
	uint16_t handler; /* message id or, TYPED, number of the function at the callee; HASHED: 0 */
	uint32_t slot, generation;
	uint32_t tlv_bytes;
	packet_u64 time_left; /* ns. UINT64_MAX: no limit */
	uint32_t reserved;
};

struct packet_reply {
	PACKET_HEAD
	uint16_t function; /* HASHED: its number at the callee; else 0 */
	uint32_t slot, generation;
	uint32_t tlv_bytes;
	uint32_t zeros[2];
	uint32_t reserved;
};

struct packet_error {
	PACKET_HEAD
	uint16_t status; /* enum far_status */
	uint32_t slot, generation;
	uint32_t tlv_bytes;
	int32_t code;      /* the handler's */
	uint32_t executed; /* enum far_executed */
	uint32_t reserved;
};

struct packet_cancelled {
	PACKET_HEAD
	uint16_t zero;
	uint32_t slot, generation;
	uint32_t tlv_bytes;
	uint32_t zeros;
	uint32_t executed; /* enum far_executed */
	uint32_t reserved;
};

struct packet_oneway {
	PACKET_HEAD
	uint16_t handler; /* message id */
	uint32_t zeros[2];
	uint32_t tlv_bytes;
	packet_u64 time_left; /* as in a request */
	uint32_t reserved;
};

struct packet_credit {
	PACKET_HEAD
	uint16_t zero;
	uint32_t zeros[2];
	uint32_t tlv_bytes;
	packet_u64 oneways; /* one-way messages that have arrived, cumulative */
	uint32_t reserved;
};

struct packet_rendezvous {
	PACKET_HEAD
	uint16_t zero;
	uint32_t lane;  /* [0, FAR_RENDEZVOUS_LANES), free */
	uint32_t epoch; /* number of the lane's message, from 1 on; repeated by every packet about it */
	uint32_t tlv_bytes;
	packet_u64 total; /* bytes of the message, at least 1 */
	uint32_t reserved;
};

/** Fields of every packet of a lane; REFUSE and ABORT have no others. */
struct packet_lane {
	PACKET_HEAD
	uint16_t zero;
	uint32_t lane, epoch;
	uint32_t tlv_bytes;
	uint32_t zeros[2];
	uint32_t reserved;
};

struct packet_data {
	PACKET_HEAD
	uint16_t zero;
	uint32_t lane, epoch;
	uint32_t tlv_bytes;
	packet_u64 offset; /* of the fragment in the message */
	uint32_t reserved;
};

struct packet_grant {
	PACKET_HEAD
	uint16_t zero;
	uint32_t lane, epoch;
	uint32_t tlv_bytes;
	packet_u64 granted; /* bytes that may be sent: those of the whole message */
	uint32_t reserved;
};

/** The head of a packet. `type` is its kind. */
union packet_head {
	struct {
		PACKET_HEAD
		uint8_t rest[26];
	};
	struct packet_call call; /* REQUEST, REPLY, ERROR, CANCEL, CANCELLED */
	struct packet_request request;
	struct packet_reply reply;
	struct packet_error error;
	struct packet_cancelled cancelled;
	struct packet_oneway oneway;
	struct packet_credit credit;
	struct packet_rendezvous rendezvous;
	struct packet_lane lane; /* RENDEZVOUS, DATA, GRANT, REFUSE, ABORT */
	struct packet_data data;
	struct packet_grant grant;
};

/* Each of a size, and the fields of struct packet_call and struct packet_lane at one offset in every packet. */
#define PACKET_ASSERT(s, first, second)                                                                                \
	static_assert(sizeof(struct s) == 28 && _Alignof(struct s) == 4 && offsetof(struct s, first) == 4 &&           \
			      offsetof(struct s, second) == 8 && offsetof(struct s, tlv_bytes) == 12 &&                \
			      offsetof(struct s, reserved) == 24,                                                      \
		      "")
PACKET_ASSERT(packet_call, slot, generation);
PACKET_ASSERT(packet_request, slot, generation);
PACKET_ASSERT(packet_reply, slot, generation);
PACKET_ASSERT(packet_error, slot, generation);
PACKET_ASSERT(packet_cancelled, slot, generation);
PACKET_ASSERT(packet_oneway, zeros[0], zeros[1]);
PACKET_ASSERT(packet_credit, zeros[0], zeros[1]);
PACKET_ASSERT(packet_rendezvous, lane, epoch);
PACKET_ASSERT(packet_lane, lane, epoch);
PACKET_ASSERT(packet_data, lane, epoch);
PACKET_ASSERT(packet_grant, lane, epoch);
#undef PACKET_ASSERT
static_assert(offsetof(struct packet_request, handler) == 2 && offsetof(struct packet_request, time_left) == 16, "");
static_assert(offsetof(struct packet_oneway, handler) == 2 && offsetof(struct packet_oneway, time_left) == 16,
	      "dispatch() reads a one-way message as a request");
static_assert(offsetof(struct packet_error, code) == 16 && offsetof(struct packet_error, executed) == 20 &&
		      offsetof(struct packet_cancelled, executed) == 20,
	      "");
static_assert(sizeof(union packet_head) == 28, "");
static_assert(sizeof(union packet_head) + FAR_LINE_PAYLOAD + sizeof(uint32_t) == 64,
	      "a small packet is one line, with the ring's word");

/** A part of an offered message, in the sender's memory. `at`: its address; with PACKET_REFERRED a reference. */
struct packet_part {
	uint64_t at, len;
};

/** Body of RENDEZVOUS: `head`; the rest only if the message is offered, as far as `parts_n` parts go. */
struct packet_announced {
	union packet_head head; /* of the announced message */
	uint32_t parts_n;       /* [1, FAR_PULL_PARTS_MAX] */
	uint64_t offer;         /* address of a struct packet_offer in the sender's memory; with PACKET_REFERRED 0 */
	struct packet_part parts[FAR_PULL_PARTS_MAX];
};
static_assert(offsetof(struct packet_announced, parts) == 40 && sizeof(struct packet_part) == 16, "");

/** Bytes of a body with `n` parts. */
static inline size_t packet_announced_bytes(unsigned n)
{
	return n ? offsetof(struct packet_announced, parts) + n * sizeof(struct packet_part)
		 : sizeof(union packet_head);
}

/** What the receiver of an offered message reads from the sender's memory after the last byte. If it is as announced,
 * all bytes were the message's when they were read. */
struct packet_offer {
	uint64_t from, to; /* rref_incarnation() of the sender and the receiver */
	uint64_t tag;      /* packet_offer_tag(); 0: withdrawn */
};

static inline uint64_t packet_offer_tag(uint32_t lane, uint32_t epoch, uint32_t from_shard, uint32_t to_shard)
{
	return (uint64_t)epoch << 32 | lane << 24 | from_shard << 16 | to_shard << 8 | 1;
}

/** Body of CREDIT, GRANT and REFUSE. */
struct packet_acked {
	uint64_t packets; /* RENDEZVOUS, DATA and ABORT that the sender is done with, cumulative */
};

/** The last 16 bytes of a HASHED request's body. */
struct packet_hash {
	uint64_t name;
	uint64_t signature;
};

/** The end of a RETRY request's body, after a struct packet_hash. */
struct packet_retry {
	uint64_t seq;   /* of the call among those of its session that may be retransmitted, from 1 on */
	uint64_t floor; /* no call below it will be retransmitted; floor <= seq < floor + FAR_RETRY_WINDOW */
};

/**
 * The head of a packet that is being written. Its fields are stored one by one: a head assembled on the stack and
 * copied would be read in wider pieces than it was written in, which stalls (perf/NOTES.md, "heads").
 */
static inline union packet_head *packet_at(uint8_t *head)
{
	return (union packet_head *)(void *)head;
}

/** Writes the fields of struct packet_call or packet_lane, and 0 to the rest but bytes 2–3 and 16–23. */
static inline void packet_begin(union packet_head *h, enum packet_type type, unsigned flags, uint32_t first,
				uint32_t second)
{
	h->type = (uint8_t)type;
	h->flags = (uint8_t)flags;
	h->call.slot = first;
	h->call.generation = second;
	h->call.tlv_bytes = 0;
	h->call.reserved = 0;
}

/** memcpy(); a body of exactly one line, the usual one, without a call. */
static inline void copy_body(void *dst, const void *src, size_t len)
{
	if (len == FAR_LINE_PAYLOAD)
		__builtin_memcpy(dst, src, FAR_LINE_PAYLOAD);
	else if (len)
		__builtin_memcpy(dst, src, len);
}

#endif
