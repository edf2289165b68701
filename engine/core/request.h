/* SPDX-License-Identifier: BSD-3-Clause */
/** Requests, the callee's side, from arrival to answer. Shard thread, except fields that name another one. */
#ifndef FAR_CORE_REQUEST_H
#define FAR_CORE_REQUEST_H

#include "nic/nic.h"

#include <farcall/rpc.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct far_buf;
struct far_deferred;
struct function;
struct job;
struct session;
struct shard;

enum answer {
	ANSWER_NONE,
	ANSWER_SENT,
	ANSWER_RESERVED,
	ANSWER_SCRATCH,
	ANSWER_BUFFER,
	ANSWER_DEFERRED,
	ANSWER_RENDEZVOUS, /* in a buffer, to be sent in fragments */
	ANSWER_RECORD,     /* an error, in the record of a blocking handler */
	ANSWER_ONEWAY      /* nobody awaits one */
};

/** A request while its handler runs. Lies where that is: on the stack of dispatch(), in the fiber, on the stack of the
 * blocking thread. */
struct far_req {
	struct shard *shard;
	struct session *session;     /* not to be used while there is a record: it may have ended */
	struct far_deferred *record; /* answers go through it, since the handler left the burst; NULL: straight out */
	const struct function *fn;   /* typed, else NULL */
	const char *name;
	uint32_t call, gen;
	uint32_t from;      /* rank of the caller */
	uint8_t from_shard; /* its shard */
	uint8_t unused[3];  /* copied with these from a session */
	uint64_t time_left; /* when it was dispatched */
	uint64_t deadline;  /* absolute, since the handler left the burst; 0: it has not */
	union {
		struct {
			union {
				struct {
					bool hashed;
					bool scattered; /* typed: the body is in pieces, of value/encoding_split.h */
				};
				uint16_t form; /* both */
			};
			uint16_t answer; /* enum answer */
		};
		uint32_t plain; /* all three: 0 while a plain request has no answer */
	};
	size_t len;            /* RESERVED, SCRATCH */
	struct far_buf *buf;   /* BUFFER, RENDEZVOUS */
	const struct job *job; /* of a blocking handler; not set elsewhere */
	struct nic_tx tx;
	alignas(16) uint8_t scratch[64];
};

/** What interceptors add to the answer of a request; at the beginning of what they keep of it. */
struct request_extra {
	struct far_buf *tlv; /* holds a struct tlv_block; NULL: nothing */
};

/** The body of a request whose handler left the burst. */
struct kept_body {
	const uint8_t *at;
	uint64_t len;
	struct far_buf *buf; /* that has it; NULL: it is in the fiber, or in the application's memory */
};

/** The body of a message that came in fragments: it lies in memory of its own, which a handler may keep. */
struct private_body {
	const uint8_t *at;
	struct far_buf *buf; /* NULL: the application's memory */
	bool scattered;      /* far_req.scattered */
	bool refused;        /* no handler has seen it: written by who was to run one */
};

#endif
