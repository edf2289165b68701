/* SPDX-License-Identifier: BSD-3-Clause */
/** JSON of etcd's gateway: requests written, replies read. All that a reply holds is checked. Any thread; no state. */
#ifndef FAR_ETCD_MESSAGE_H
#define FAR_ETCD_MESSAGE_H

#include "control/etcd_module.h"

#include <jansson.h>

#define ETCD_TEXT_MAX     512             /* bytes of an error's text */
#define ETCD_REVISION_MAX (INT64_MAX / 2) /* a greater one is malformed: sums do not overflow */

/** Codes of gRPC in errors. */
enum {
	GRPC_INVALID = 3,
	GRPC_NOT_FOUND = 5,
	GRPC_EXISTS = 6,
	GRPC_DENIED = 7,
	GRPC_EXHAUSTED = 8,
	GRPC_FAILED = 9,
	GRPC_OUT_OF_RANGE = 11,
	GRPC_UNIMPLEMENTED = 12,
	GRPC_UNAUTHENTICATED = 16
};

/** Bodies of requests, of malloc(); NULL: no memory. */
char *message_txn(const struct etcd_txn *t);
char *message_lease(int64_t id, int64_t ttl_s);
char *message_watch(const struct etcd_range *of, int64_t revision);
char *message_login(const char *user, const char *password);

/** A decoded reply, and what it points into. */
struct message {
	struct etcd_reply reply;
	struct etcd_kv *kvs;
	uint8_t *bytes;
};

/** Reads the reply to a transaction or about a lease: 0, -EPROTO, -ENOMEM. */
int message_read(struct message *m, const char *text, size_t len);
void message_free(struct message *m);
/** Reads the token of a login; NULL: there is none that can be a header's value. Of malloc(). */
char *message_token(const char *text, size_t len);
/** Reads an error: its code, [0, 16], with the text, in which "?" replaces control characters; −1: it is none. */
int message_error(const char *text, size_t len, char *out, size_t cap);

/** Reads a number, which the gateway writes as a string; 0 if it is missing. False: malformed. */
bool message_number(const json_t *object, const char *name, int64_t *out);
/** Likewise, a number in [0, ETCD_REVISION_MAX]. */
bool message_revision(const json_t *object, const char *name, int64_t *out);
/** Reads one key; its bytes are appended at *at, which has room for all. False: malformed. */
bool message_kv(const json_t *object, struct etcd_kv *out, uint8_t **at);

#endif
