/* SPDX-License-Identifier: BSD-3-Clause */
/** Runs the handlers of requests. Shard thread, except functions that name another one. */
#ifndef FAR_CORE_DISPATCH_H
#define FAR_CORE_DISPATCH_H

#include "core/deferred.h"
#include "core/request.h"
#include "core/session.h"

#include <farcall/rpc.h>
#include <stddef.h>
#include <stdint.h>

struct packet_hash;
struct message_handler;
union packet_head;

/** Reads the arguments of a request, calls its handler, and settles the answer. `strings[0, cap)` is room for the texts
 * of the arguments. The thread of the handler. */
void dispatch_typed(struct far_req *req, const uint8_t *body, uint64_t len, char *strings, size_t cap);
void dispatch_message(struct far_req *req, const struct message_handler *m, const uint8_t *body, uint64_t len);
/** Starts the handler of a message, of any kind, and settles the answer of an inline one. Shard thread. */
void dispatch_to(struct far_req *req, const struct message_handler *m, const uint8_t *body, uint64_t len);
/** Bytes of an answer that the caller takes. */
static inline uint64_t dispatch_limit(const struct far_req *req)
{
	return req->record ? req->record->limit : req->session->message_max;
}
/** Sends what the handler left: an answer, or an error when it left none. */
void dispatch_settle(struct far_req *req, enum far_status status);
/** Sends what the handler has answered so far, if it has. */
void dispatch_flush(struct far_req *req);
/** Detaches the request from its record: the owner of the record answers it. */
void dispatch_detach(struct far_req *req);
/** The same, and hands the record, which has the answer, to the shard. */
void dispatch_finish(struct far_req *req);
/** Answers with an error: through the record, or at once. */
void dispatch_error(struct far_req *req, enum far_status status, enum far_executed executed, int32_t code,
		    const char *text, size_t len);
/** Refuses a call of a function that is not here, or not any more. The thread of the handler. */
void dispatch_no_function(struct far_req *req);
/** The function of these hashes; NULL: the request was refused. */
const struct function *dispatch_find(struct far_req *req, const struct packet_hash *hash);
/** Runs a request's handler and sends its answer. The body is readable until it returns. */
void dispatch(struct shard *s, struct session *se, const union packet_head *h, const uint8_t *body, uint64_t len,
	      uint64_t waited);
/** The same, shown to interceptors although it may have no fields. */
void dispatch_shown(struct shard *s, struct session *se, const union packet_head *h, const uint8_t *body, uint64_t len,
		    uint64_t waited);
/** The same for any session, SESSION_HELD and SESSION_SHOWN included. */
void dispatch_checked(struct shard *s, struct session *se, const union packet_head *h, const uint8_t *body,
		      uint64_t len, uint64_t waited);

#endif
