/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Frames of the store on a byte stream: encoding and decoding. Any thread; no state. In both directions a frame is a
 * head of 40 bytes and, in this order, key, value and expected value. Numbers are little-endian.
 *
 *   offset bytes field
 *    0     4     magic "FCST"
 *    4     1     version, STORE_VERSION
 *    5     1     operation; a reply has bit 7 set
 *    6     1     status; 0 in a request
 *    7     1     0
 *    8     8     id: chosen by the client, repeated in the reply; not reused while the request is outstanding
 *   16     8     remaining time of the request in ns, 2^64-1 for none; 0 in a reply
 *   24     8     number: what ADD adds, and in its reply the sum, two's complement; of WATCH, COPY, REPORT, below; 0
 *                otherwise
 *   32     2     key bytes [1, 255]; 0 in LOGIN, PROVE, PING and REPORT, and in replies but those of WATCH and COPY
 *   34     2     value bytes [0, 4096]
 *   36     2     expected bytes [0, 4096]; 0 but in CAS
 *   38     2     0
 *
 * A client begins with LOGIN and, if the store has a key, PROVE (store_proof.h), and sends nothing else before their
 * replies arrive. After that up to STORE_REQUESTS_MAX requests may be outstanding; replies arrive in any order. A
 * server replies to a frame of another version with a LOGIN reply of its own version, and closes; it closes on any
 * other malformed frame at once.
 *
 *   LOGIN value    begins a connection: identity of the client; reply value: challenge   OK
 *   PROVE value    answers the challenge; DENIED: wrong proof, the connection ends       OK, DENIED
 *   SET key value  makes key hold value                                                  OK, FULL
 *   GET key        reply value                                                           OK, MISSING
 *   ADD key number decimal number kept as text, 0 when missing; reply number: the sum    OK, FULL, BAD
 *   CAS key value  when key holds `expected`, or is missing and expected is empty, makes it hold value;
 *       expected   reply value: what it holds otherwise                                  OK, DIFFERS, FULL
 *   WAIT key       reply as soon as key exists; reply value                              OK, TIMEOUT
 *   DELETE key                                                                           OK, MISSING
 *   HOLD key value makes key hold value while this connection lasts; its end deletes     OK, DIFFERS, TIMEOUT, FULL
 *                  the key. DIFFERS, with the value held: another client holds it and
 *                  has just answered a PING, or the key exists and is not held. A
 *                  holder that answers none for FAR_STORE_SILENT_NS is dropped
 *   WATCH key      begins a watch of all keys that begin with this one; the first reply  OK, FULL; MISSING
 *         number   has no key. A further reply of the same id reports each change, with
 *                  the key: OK and the value, or MISSING when it was deleted. Changes are
 *                  reported in the order of each key's last change, with its present
 *                  value: a slow client misses those in between. Number: 1 leaves out
 *                  keys that exist already, 2 watches this key alone; 3 both
 *   PING           keep-alive. A PING reply with id 0 is the server's request of one OK
 *                  with id 0, which has no reply
 *   COPY key value a reply with id 0, a key of the application for the member that    OK, MISSING,
 *                  has a copy of them (store_backup.c). Without a key, MISSING: a     DIFFERS
 *                  copy begins; OK: it is complete, and has `number` as version;
 *                  DIFFERS: the member's copy is out of date. The member answers OK
 *                  with COPY and that number, and no reply follows
 *   REPORT value   a member connects again. Number: version of its copy, 0: it has     OK, DIFFERS
 *          number  none; value: keys of the copy (4 bytes), then for each incarnation
 *                  that has ended its rank (4) and number (8). OK: the store begins
 *                  anew, and the member sends COPY with key and value for each key
 *
 * A request that would change a record of another member (store_owner.c) is answered DENIED.
 */
#ifndef FAR_CONTROL_STORE_WIRE_H
#define FAR_CONTROL_STORE_WIRE_H

#include "base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORE_MAGIC      UINT32_C(0x54534346)
#define STORE_VERSION    8
#define STORE_HEAD_BYTES 40
#define STORE_FRAME_MAX  (STORE_HEAD_BYTES + FAR_STORE_KEY_MAX + 2 * FAR_STORE_VALUE_MAX)

/* Requests that a client may have outstanding: for each member one WAIT and one query, and a few of its own. */
#define STORE_REQUESTS_MAX (2 * FAR_WORLD_MAX + 32)

/* HOLD's number, of a member that returns: DIFFERS at once if another client holds the key, or another incarnation has
 * had its rank in this store. */
#define STORE_HOLD_AT_ONCE 1
/* WATCH's number. */
#define STORE_WATCH_FROM_NOW 1
#define STORE_WATCH_EXACT    2
/* WATCH's number in the report of a key that is missing: its holder's lease has ended. */
#define STORE_WATCH_LEASE 1

enum store_op {
	STORE_LOGIN = 1,
	STORE_SET,
	STORE_GET,
	STORE_ADD,
	STORE_CAS,
	STORE_WAIT,
	STORE_DELETE,
	STORE_HOLD,
	STORE_WATCH,
	STORE_PING,
	STORE_PROVE,
	STORE_COPY,
	STORE_REPORT,
	STORE_OP_COUNT
};

enum store_status {
	STORE_OK,
	STORE_MISSING, /* no such key */
	STORE_DIFFERS, /* CAS: holds something else, or is missing */
	STORE_TIMEOUT, /* WAIT: the key did not come in time; HOLD: it was not decided in time */
	STORE_FULL,    /* keys or memory are used up */
	STORE_BAD,     /* ADD: the value is no number, or the sum has no room */
	STORE_DENIED,  /* the record belongs to another member; PROVE: the proof is wrong */
	STORE_STATUS_COUNT
};

/** A decoded frame; fields as above. The pointers are borrowed. */
struct store_msg {
	enum store_op op;
	bool reply;
	enum store_status status;              /* of a reply; else STORE_OK */
	uint64_t id;                           /* of the request, returned in its reply */
	uint64_t timeout_ns;                   /* left of a request; UINT64_MAX: no limit; 0 in a reply */
	int64_t number;                        /* of ADD, WATCH, PING; else 0 */
	const uint8_t *key, *value, *expected; /* NULL if the length is 0 */
	size_t key_len, value_len, expected_len;
};

/** A request whose key is still to be set. `value`: NULL with `len` 0: none. */
static inline struct store_msg store_request(enum store_op op, const void *value, size_t len)
{
	return (struct store_msg){.op = op, .value = value, .value_len = len};
}

/** Checks the fields of a message: 0, -EINVAL or -EMSGSIZE. */
int store_msg_check(const struct store_msg *msg);
/** Writes a message that store_msg_check() accepts; returns its bytes, [STORE_HEAD_BYTES, STORE_FRAME_MAX]. */
size_t store_msg_encode(const struct store_msg *msg, uint8_t out[STORE_FRAME_MAX]);
/**
 * Reads one frame from data[0, len): its bytes when it is complete (the message points into data), 0 when more is
 * needed, -EPROTONOSUPPORT for another version, -EMSGSIZE for a length out of range, -EPROTO for anything else
 * malformed.
 */
long store_msg_decode(const uint8_t *data, size_t len, struct store_msg *out);

#endif
