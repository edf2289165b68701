/* SPDX-License-Identifier: BSD-3-Clause */
/** Sends answers, keeps those that find no memory, and pauses requests meanwhile. Shard thread. */
#ifndef FAR_CORE_REPLY_H
#define FAR_CORE_REPLY_H

#include "base/limits.h"
#include "core/packet.h"

#include <farcall/rpc.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct far_buf;
struct far_deferred;
struct far_req;
struct function;
struct nic_pkt;
struct session;
struct shard;

/** A request that arrived while its session's answers waited for memory. Bounded by the caller's credits. */
struct paused_request {
	union packet_head head;
	bool cancelled;
	struct far_buf *buf; /* body beyond a line: copied, so that the peer gets its memory back */
	uint64_t body_len;
	uint64_t arrived;
	alignas(32) uint8_t line[FAR_LINE_PAYLOAD];
};

/** Queued requests of a session whose answers wait for memory. */
struct paused_requests {
	struct paused_requests *next_free;
	struct paused_request ring[FAR_SESSION_REQUESTS_MAX];
};

/** Sends an answer; on -ENOBUFS (no bulk memory now) keeps it and sends it later. Never fails: an answer that cannot be
 * kept becomes an error. */
void answer_send(const struct far_req *req, const void *data, size_t len);
/** The same without keeping: 0, -ENOBUFS, -EAGAIN. For an answer that a handler gives while it runs. */
int answer_now(const struct far_req *req, const void *data, size_t len);
/** Writes the error text of an answer of `len` bytes that finds no memory; returns its length. Any thread. */
size_t answer_no_memory(char text[FAR_ERR_TEXT_MAX], size_t len);

struct answer_failure {
	enum far_status status;
	enum far_executed executed;
	int32_t code; /* the handler's */
	const char *text;
	size_t len;
};
void answer_error(struct shard *s, struct session *se, uint32_t slot, uint32_t generation,
		  const struct answer_failure *f);
void answer_cancelled(struct shard *s, struct session *se, enum far_executed executed, uint32_t slot,
		      uint32_t generation);
/** Sends a cancel, which may be lost. */
void answer_cancel(struct shard *s, struct session *se, uint32_t slot, uint32_t generation, unsigned flags);
/** Sends a record's answer, or keeps it until there is memory; then frees the record. */
void answer_deferred(struct shard *s, struct far_deferred *d);
/** Sends a record's answer: 0, -ENOBUFS, -EAGAIN, -EPIPE. */
int answer_send_record(struct shard *s, struct session *se, const struct far_deferred *d, unsigned flags);
/** Sends a packet that has a ring slot of its own: 0, or why not now. */
int answer_packet(struct shard *s, struct session *se, const union packet_head *h, const void *data, size_t len);
/** The ring has no slot for an answer: the peer exceeds its credits, or returns none. Its session is taken down. */
void answer_no_room(struct shard *s, struct session *se);
void answer_fill_head(uint8_t *head, const struct far_req *req);
/** Sends answers of backpressured sessions, then runs their queued requests. */
unsigned answer_resume(struct shard *s);
void answer_pause_request(struct shard *s, struct session *se, const union packet_head *h, const struct nic_pkt *pkt);
void answer_drop_all(struct shard *s, struct session *se);

#endif
