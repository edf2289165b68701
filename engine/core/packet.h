/* SPDX-License-Identifier: BSD-3-Clause */
/** What the fields of a call header (struct shm_head, transport/wire.h) mean, and the bodies of the core's own packets,
 * as engine/PROTOCOL.md tables them. Any thread. */
#ifndef FAR_CORE_HEAD_H
#define FAR_CORE_HEAD_H

#include "base/limits.h"
#include "transport/wire.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum head_type {
	HEAD_REQUEST = 1, /* caller → callee: run `fn` */
	HEAD_REPLY,       /* callee → caller: its value */
	HEAD_ERROR,       /* callee → caller: its failure; body is the text */
	HEAD_CANCEL,      /* caller → callee: nobody waits any more */
	HEAD_CANCELLED,   /* callee → caller: nothing else will come for this call */
	HEAD_ONEWAY,      /* run message `fn`; nothing goes back for it */
	HEAD_CREDIT,      /* so many one-ways arrived (`time`, cumulative); body: struct head_units */
	HEAD_ASK,         /* say CREDIT now */
	HEAD_LARGE,       /* a REQUEST, ONEWAY or REPLY whose body comes in fragments; body: struct head_rendezvous */
	HEAD_DATA,        /* the next fragment of lane `call`, epoch `gen`, from offset `time` on */
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
	HEAD_RREFS = 16,  /* reply: the value holds references */
	HEAD_METHOD = 32, /* typed request: of an object, whose id ends the payload: struct rref_id */
	HEAD_NAMED = 64,  /* typed request: a struct rref_named ends the payload: with METHOD the object's, in place of
			     its id, else of the value, which stays here */
	HEAD_ASKED = 1,   /* credit: the answer to ASK */
	HEAD_EXECUTED_SHIFT = 6, /* error, cancelled: enum far_executed in bits 6–7 */
};

enum rendezvous_kind { RENDEZVOUS_REQUEST = 1, RENDEZVOUS_ONEWAY, RENDEZVOUS_REPLY };

/** Body of HEAD_LARGE. Its head is the one that the whole message would have. */
struct head_rendezvous {
	uint64_t total; /* bytes of the message, at least 1 */
	uint32_t lane;  /* [0, FAR_RENDEZVOUS_LANES), free */
	uint32_t life;  /* of the lane, repeated by whatever is about it */
	uint32_t kind;  /* enum rendezvous_kind */
	uint32_t reserved;
};
static_assert(sizeof(struct head_rendezvous) <= FAR_LINE_PAYLOAD, "an announcement is one line");

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

/**
 * The head of a packet that is being written. Its fields are stored one by one: a head assembled on the stack and
 * copied would be read in wider pieces than it was written in, which stalls (perf/NOTES.md, "heads").
 */
static inline struct shm_head *head_at(uint8_t *bytes)
{
	return (struct shm_head *)(void *)bytes;
}

/** memcpy(); a body of exactly one line, the usual one, without a call. */
static inline void copy_body(void *dst, const void *src, size_t len)
{
	if (len == FAR_LINE_PAYLOAD)
		__builtin_memcpy(dst, src, FAR_LINE_PAYLOAD);
	else if (len)
		__builtin_memcpy(dst, src, len);
}

static inline uint64_t head_time(const struct shm_head *h)
{
	return (uint64_t)h->time_high << 32 | h->time_low;
}

#endif
