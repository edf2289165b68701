/* SPDX-License-Identifier: BSD-3-Clause */
/** What travels of remote references: in typed values, and between the engines. Little-endian, as typed values are;
 * tabled in engine/PROTOCOL.md. Any thread. */
#ifndef FAR_REFERENCES_WIRE_H
#define FAR_REFERENCES_WIRE_H

#include "base/rref.h"
#include "value/encoding.h"

#include <assert.h>
#include <string.h>

/** A reference in a value, as it stands behind its type: not aligned. */
struct rref_wire {
	uint64_t owner;
	struct rref_id id, fork; /* fork: the one that the receiver gets, named by the sender */
	uint16_t types;          /* bit (1 << enum far_type): what the value may be, by the function's signature */
	uint64_t cls;            /* hash64 of the name of the object's class; 0: the value is no object */
};

static inline void rref_put(uint8_t *dst, const struct rref_wire *w)
{
	memcpy(dst, &w->owner, 8);
	memcpy(dst + 8, &w->id, 16);
	memcpy(dst + 24, &w->fork, 16);
	memcpy(dst + 40, &w->types, 2);
	memcpy(dst + 42, &w->cls, 8);
}

static inline void rref_get(const uint8_t *src, struct rref_wire *w)
{
	memcpy(&w->owner, src, 8);
	memcpy(&w->id, src + 8, 16);
	memcpy(&w->fork, src + 24, 16);
	memcpy(&w->types, src + 40, 2);
	memcpy(&w->cls, src + 42, 8);
}

/** Requests between the engines: numbers that no message handler has. */
enum rref_message {
	RREF_CALL = 0xff00, /* run a function whose arguments hold references; payload, struct rref_function */
	RREF_REMOTE,        /* run a function and keep its value; payload, struct rref_remote */
	RREF_FETCH,         /* the value; struct rref_fetch */
	RREF_CONTROL,       /* struct rref_op, 1 to RREF_OPS_MAX; answered by a byte each, enum far_status */
	RREF_METHOD,        /* run a method of an object; payload, struct rref_method */
	RREF_METHOD_REMOTE, /* run one and keep its value; payload, struct rref_method_remote */
	RREF_TYPE,          /* what the value is, a string; struct rref_fetch */
	RREF_LAST = RREF_TYPE
};

#define RREF_OPS_MAX 64u

/** The end of a PACKET_NAMED request's payload: the count of a name whose other parts the session implies: the
 * caller's incarnation and shard, and the callee's shard. A value that is made so has the fork that is named next. */
struct rref_named {
	uint32_t count; /* not 0 */
};

static inline bool rref_named_of(struct rref_id id, uint64_t incarnation, unsigned creator, unsigned owner_shard,
				 struct rref_named *named)
{
	named->count = (uint32_t)id.number;
	return id.incarnation == incarnation &&
	       id.number >> RREF_COUNT_BITS == ((uint64_t)creator << 8 | owner_shard) &&
	       (id.number & RREF_COUNT_MASK) <= UINT32_MAX;
}

struct rref_function {
	uint64_t name, signature; /* hashes, as struct packet_hash; signature 0: the callee chooses the overload */
};

struct rref_remote {
	uint64_t owner; /* the receiver, as the sender knows it */
	struct rref_id id, fork;
	struct rref_function function;
};
static_assert(sizeof(struct rref_remote) == 56, "");

struct rref_fetch {
	uint64_t owner;
	struct rref_id id;
};
static_assert(sizeof(struct rref_fetch) == 24, "");

struct rref_method {
	uint64_t owner;
	struct rref_id object;
	struct rref_function function;
};
static_assert(sizeof(struct rref_method) == 40, "");

struct rref_method_remote {
	struct rref_id object;
	struct rref_remote remote;
};
static_assert(sizeof(struct rref_method_remote) == 72, "");

enum rref_kind {
	RREF_FORK = 1, /* user → owner: `fork` is mine */
	RREF_DELETE,   /* user → owner: it is not any more */
	RREF_ACCEPT,   /* who got it → who sent it in a result: the owner knows of `fork` */
	RREF_FAILED,   /* who had the value made → owner: that failed, with `status`; and `fork` is mine */
	RREF_RECALL /* sender of results → their receiver: does a reference of them, with a name before `fork`, wait
		       for its owner */
};

struct rref_op {
	uint32_t kind;           /* enum rref_kind */
	uint32_t status;         /* FAILED: enum far_status; 0 of all others */
	uint64_t owner;          /* ACCEPT, RECALL: 0 */
	struct rref_id id, fork; /* id of RECALL: 0 */
};
static_assert(sizeof(struct rref_op) == 48, "");

#endif
