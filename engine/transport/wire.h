/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Layout of the transport's packets, as engine/PROTOCOL.md tables them. They carry the head of a message
 * (core/packet.h) as bytes. All numbers are little-endian. Any thread.
 */
#ifndef FAR_TRANSPORT_WIRE_H
#define FAR_TRANSPORT_WIRE_H

#include "base/byteorder.h"
#include "base/limits.h"

#include <assert.h>
#include <stdalign.h>
#include <stddef.h>

#define WIRE_VERSION 3

/** Head of a message, which the transport does not read: struct nic_pkt has it aligned to 4. */
struct wire_call {
	alignas(4) uint8_t bytes[28];
};

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
enum wire_flag {
	WIRE_ASLEEP = 1,      /* the sender's queue sleeps: kick it after sending */
	WIRE_FRAGMENT = 2,    /* fragment of a packet: the path MTU shrank after the packet got its number */
	WIRE_MORE = 4,        /* more fragments of it follow */
	WIRE_BATCH = 8,       /* complete messages; each after the first has a struct wire_sub */
	WIRE_RETRANSMIT = 16, /* retransmission; ACK: repeats the `ack` of an earlier packet */
	WIRE_DUPLICATE =
		32, /* ACK: packet `duplicate` arrived as RETRANSMIT, and before without: a spurious retransmission */
	WIRE_UNACKED = 64, /* with DUPLICATE: the packet was not acknowledged before */
	/* Small messages, complete: the packet may pass all packets before number `packet` - `offset`, `offset` in
	 * [1, FAR_TRANSPORT_WINDOW], but neither that one nor those that that one may not pass. Of a packet of a larger
	 * message, whose `offset` keeps its meaning: it may pass all packets of other messages. */
	WIRE_UNORDERED = 128
};

/* Fields that begin every packet. */
#define WIRE_HEAD                                                                                                      \
	uint8_t version;    /* WIRE_VERSION */                                                                         \
	uint8_t kind;       /* enum wire_kind */                                                                       \
	uint8_t flags;      /* enum wire_flag; 0 except in MESSAGE and ACK */                                          \
	uint8_t lane_phase; /* bits 0–3 lane, bit 6 WIRE_EXPOSED, bit 7 key phase; 0 except in MESSAGE */            \
	le32 crc;           /* CRC32C of the packet with this field 0; 0 with a tag, or if the driver below checks */  \
	le64 incarnation;   /* of the receiver's port, as the sender knows it */                                       \
	le64 token;         /* of the connection, chosen by the receiver; CONNECT: 0 */

struct wire_head {
	WIRE_HEAD
};
static_assert(sizeof(struct wire_head) == 24, "");

/** MESSAGE. Bytes of the message follow. */
struct wire_message {
	WIRE_HEAD
	le32 packet;                            /* packet number */
	le32 ack;                               /* all packets below it arrived */
	le64 ack_bits;                          /* bit i: packet ack + 1 + i arrived */
	uint8_t call[sizeof(struct wire_call)]; /* head of the message, or of the first of them */
	le32 length;                            /* bytes of that message */
	le32 offset;                            /* of this packet's bytes in the message; see WIRE_UNORDERED */
	le32 first;                             /* number of the message's first packet */
	uint8_t zero[16];                       /* dropped if not 0: the tag of a control packet lies here */
};
static_assert(sizeof(struct wire_message) == 96, "");

/** ACK. Grants follow, struct wire_grant. */
struct wire_ack {
	WIRE_HEAD
	le32 packet;            /* number of the sender's next packet */
	le32 ack;               /* as in struct wire_message */
	le64 ack_bits;          /* likewise */
	le32 path;              /* `path` of the PING that it answers. 0: none */
	le32 duplicate;         /* packet of WIRE_DUPLICATE */
	le32 unscheduled_bytes; /* of each message that may be sent without a grant. 0: not stated */
	le32 window;            /* packets that may be unacknowledged. 0: not stated */
	uint8_t zero[40];
};
static_assert(sizeof(struct wire_ack) == 96, "");
static_assert(offsetof(struct wire_ack, ack) == offsetof(struct wire_message, ack), "read before the kind is known");
static_assert(offsetof(struct wire_ack, ack_bits) == offsetof(struct wire_message, ack_bits), "likewise");

/** A received MESSAGE or ACK. */
union wire_packet {
	struct wire_head head;
	struct wire_message message;
	struct wire_ack ack;
};

/** Control packets: all other kinds. A struct wire_handshake or struct wire_reject follows. */
struct wire_control {
	WIRE_HEAD
	le32 first_packet; /* CONNECT, ACCEPT: number of the sender's first packet; else 0 */
	le32 features;     /* CONNECT, ACCEPT: enum wire_feature; else 0 */
	le32 window;       /* CONNECT, ACCEPT: packets that may be unacknowledged. 0: not stated */
	uint8_t zero[44];
	uint8_t tag[16]; /* proof (transport/auth.c); zeros without a key */
};
static_assert(sizeof(struct wire_control) == 96, "");

/** Features of the sender of CONNECT or ACCEPT. */
enum wire_feature {
	WIRE_UNCHECKED = 1, /* it accepts packets without a CRC */
	WIRE_BULK = 2,      /* it reads messages that are WIRE_EXPOSED */
	WIRE_WIDE = 4       /* it accepts packets of several messages up to TRANSPORT_WIDE_BYTES */
};

#define TRANSPORT_HEAD_BYTES ((uint32_t)sizeof(struct wire_message)) /* before the body, in every kind */
#define TRANSPORT_BITMAP     64u /* packets behind `ack` that wire_message.ack_bits covers */
/* Most bytes behind the head of a packet of several messages. No path MTU is smaller, so the transport never fragments
 * such packets. And of a wide one, to a peer with WIRE_WIDE, on a path of TRANSPORT_WIDE_PATH and more (loopback),
 * where IP would fragment it after a fall of the path MTU. */
#define TRANSPORT_BATCH_BYTES FAR_TRANSPORT_MTU_MIN
#define TRANSPORT_WIDE_BYTES  (FAR_TRANSPORT_WIDE_PACKET - TRANSPORT_HEAD_BYTES)
#define TRANSPORT_WIDE_PATH   16384u

/* In `lane_phase` of the first packet of a larger message: a struct wire_key follows the packet's bytes. Only between
 * ends that both have bulk. */
#define WIRE_EXPOSED 64u

/** Key of an exposed message: the last bytes of its first packet. */
struct wire_key {
	le64 key, addr; /* struct nic_bulk_key; address of the message's first byte */
};
static_assert(sizeof(struct wire_key) == 16, "");

/** Head of each message in a packet but the first. It starts at the next multiple of 32 bytes; its message starts at
 * the next multiple of 32 behind it, or of 64 if it is longer than FAR_LINE_PAYLOAD. Both count from the end of the
 * struct wire_message. The padding is 0. */
struct wire_sub {
	uint8_t call[sizeof(struct wire_call)]; /* as in struct wire_message */
	le32 length;
};
static_assert(sizeof(struct wire_sub) == 32, "");

/** Grant, in the body of an ACK: one for each message that the peer sends in fragments and has grants for. Cumulative:
 * the highest offset is valid. */
struct wire_grant {
	le32 first;    /* number of the message's first packet */
	le32 offset;   /* packets that begin below it may be sent */
	le32 priority; /* of those packets, 0 to 3 (highest); larger values count as 3. Bit 31: WIRE_READ_DONE */
};
/* Of an exposed message: all bytes below `offset` are read and no more will be; the sender sends the rest in packets,
 * the first one begins at `offset`. */
#define WIRE_READ_DONE 0x80000000u
static_assert(sizeof(struct wire_grant) == 12, "");

/** Body of CONNECT, CHALLENGE, ACCEPT and PING: the sender, and where to send the answer. A field that a kind has no
 * use for is 0. The handshake payload and the address follow. */
struct wire_handshake {
	le64 incarnation;       /* of the sender's port */
	le64 token;             /* for packets to the sender; not 0 */
	le16 queue;             /* the sender's */
	le16 wanted_queue;      /* CONNECT: queue of the receiver */
	le32 flow;              /* CONNECT, ACCEPT: number of the flow by which this packet was sent (NIC_ROUTE) */
	le32 path;              /* PING: 1 + number of the path that it probes. 0: none */
	le32 packet_max;        /* largest packet that the sender receives */
	le16 payload_bytes;     /* CONNECT, ACCEPT: of the handshake payload */
	le16 address_bytes;     /* of the sender's published address, for the driver below; CHALLENGE: 0 */
	uint8_t nonce[16];      /* of the connect request, copied into answers; PING: its number in 8 bytes, then 0 */
	uint8_t cookie[16];     /* CHALLENGE, and the CONNECT that follows it */
	uint8_t proof[16];      /* ACCEPT, PING: by the session's key */
	le64 issued;            /* CHALLENGE, CONNECT: time of the cookie, by the clock of the sender of CHALLENGE */
	uint8_t public_key[32]; /* CONNECT, ACCEPT: the sender's X25519 key for this session; 0 without a key */
};
static_assert(sizeof(struct wire_handshake) == 124, "");

/** Body of REJECT, WRONG_QUEUE, RESET and CLOSE. */
struct wire_reject {
	le32 error;        /* errno of Linux; CLOSE: 0 */
	le32 flow;         /* WRONG_QUEUE: `flow` of the packet that it answers; else 0 */
	le32 path;         /* WRONG_QUEUE: `path` of the PING that it answers; else 0 */
	uint8_t nonce[16]; /* of the packet that it answers; CLOSE: 0 */
};
static_assert(sizeof(struct wire_reject) == 28, "");

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
