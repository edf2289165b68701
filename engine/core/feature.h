/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a feature registers with the core. The core calls a feature through these functions only and names none; the
 * table is constant, assembled in features/features.c and given to shard_create(). Shard thread, but for init and fini
 * (start and stop only).
 *
 * A feature is known by its place in the table. It sets its bit, 1 << place, in `features` of a call or of a record
 * whose end it handles, and in shard.poll_due or shard.poll_idle when a pass is to run its poll function: in the usual
 * case the core tests one word.
 */
#ifndef FAR_CORE_FEATURE_H
#define FAR_CORE_FEATURE_H

#include "sync/submit.h"

#include <farcall/rpc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct call;
struct far_deferred;
struct far_req;
struct function;
struct packet_data;
struct packet_reply;
struct packet_request;
struct packet_retry;
struct nic_placement;
struct nic_pkt;
struct session;
union packet_head;
struct shard;

#define SHARD_FEATURES_MAX 8u /* bits that a record has room for */
#define CALL_FEATURES_MAX  6u /* those of the first so many features have room in struct call, too */

/** How far the message of a call in fragments has come when the call ends early. CALL_OFFERED: the callee may have read
 * all of the request. */
enum call_progress { CALL_NOT_BEGUN, CALL_PART_SENT, CALL_OFFERED, CALL_PART_RECEIVED };

/** Each of these functions belongs to exactly one feature. */
struct feature_hooks {
	/* ---- a call that may be sent again ---- */

	/** Keeps a copy of a call that is about to be sent, and fills in its trailer. 0, -EAGAIN, -ENOMEM. */
	int (*call_keep)(const struct shard *s, struct session *se, const struct call_start *start, void **copy,
			 struct packet_retry *trailer);
	/** The call could not be sent. `copy` may be NULL. */
	void (*call_abandon)(void *copy);
	/** The call has left, in slot `c`. */
	void (*call_sent)(struct shard *s, void *copy, struct call *c);

	/* ---- a request that may come again ---- */

	/** Takes the trailer off a request's body. true: it is new, is to be run, and has a record. */
	bool (*request_admit)(struct far_req *req, const uint8_t *body, uint64_t *len);
	/** True if the request, its trailer included, was admitted before. */
	bool (*request_seen)(const struct session *se, const uint8_t *body, uint64_t len);

	/* ---- what interceptors see ---- */

	/** Takes the fields of type, length and value off a request's body. true: it is to be run; else it was run or
	 * refused. */
	bool (*request_fields)(struct far_req *req, const union packet_head *h, const uint8_t *body, uint64_t *len);
	/** Calls the handler of a typed request whose record has `extra`. The thread of the handler. */
	enum far_status (*request_run)(struct far_req *req, const struct far_val *args, size_t n);

	/* ---- what is held back: shard.hold_calls, shard.hold_answers ---- */

	/** A call of a session without credits: 0: it was sent or is held back; 1: it waits as any other; or why not.
	 */
	int (*call_hold)(struct shard *s, struct session *se, const struct call_start *start);
	/** dispatch() of a request whose answer may be held back. */
	void (*request_hold)(struct shard *s, struct session *se, const union packet_head *h, const uint8_t *body,
			     uint64_t len, uint64_t waited);
	/** A record's answer is about to be sent. true: it is held back. */
	bool (*answer_hold)(struct shard *s, struct far_deferred *d);

	/* ---- messages in fragments, one-way messages ---- */

	/** Sends a request whose bytes lie ready in start->ready, in fragments. */
	void (*request_send)(struct shard *s, struct session *se, const struct call_start *start,
			     const struct packet_request *head);
	/** Sends a reply in fragments, with the fields in `tlv` (NULL: none): references are taken. */
	void (*reply_send)(struct shard *s, struct session *se, const struct packet_reply *h, struct far_buf *buf,
			   size_t len, struct far_buf *tlv);
	/** Drops the message of a call in CALL_RENDEZVOUS, which is CALL_SENT again. */
	enum call_progress (*call_detach)(struct shard *s, struct session *se, struct call *c);
	/** Cancels a request that arrives, or a reply that has not begun to leave. false: there is none. */
	bool (*request_cancel)(struct shard *s, struct session *se, uint32_t call, uint32_t gen);
	/** A reference of call_start.ready; its end, as a callback in the application's eyes. */
	void (*ready_hold)(struct far_buf *ready);
	void (*ready_drop)(struct shard *s, struct far_buf *ready);
	/** A packet that is not about a call. true: it is kept, and is released by the feature. */
	bool (*packet)(struct shard *s, struct session *se, const union packet_head *h, const struct nic_pkt *pkt);
	/** nic_placement_fn of a session that is up and has_rendezvous. */
	bool (*receive_place)(const struct session *se, const struct packet_data *h, uint64_t len,
			      struct nic_placement *out);
	/** True if an acknowledgement of the peer is due, or a message between the two is under way: of a session that
	 * has_rendezvous. */
	bool (*session_owes)(const struct session *se);
	/** Queues a one-way message that a thread has handed over. */
	void (*oneway_queue)(struct shard *s, uint32_t worker, uint32_t shard, struct far_buf *message);
	/** Requests an acknowledgement of what has been sent: of one session, of all that await one. */
	void (*ack_request)(struct shard *s, struct session *se);
	void (*ack_request_all)(struct shard *s);

	/* ---- references ---- */

	/** Reads a reply that holds references: o->tree, which is the caller's to give back, or the error in `o` and
	 * `err`. */
	void (*result_read)(struct shard *s, struct session *se, const uint8_t *body, uint64_t len,
			    struct completion *o, struct far_err *err);
	/** True if a request with PACKET_NAMED reaches the worker that it is about: of the session's incarnation. */
	bool (*call_reaches)(const struct call_start *start, uint64_t incarnation);
	/** Names what a call of one of the engine's own messages is about, for error texts. `done`, `user`: of its
	 * call_start. */
	void (*message_name)(uint16_t message, call_done_fn *done, void *user, char *buf, size_t len);
	/** Serves a request that has no handler: a message of the engine's own. false: it is none. */
	bool (*request_message)(struct far_req *req, uint16_t message, const uint8_t *body, uint64_t len);
	/** Serves a typed request with PACKET_NAMED. */
	void (*request_named)(struct far_req *req, bool method, const uint8_t *body, uint64_t len);
	/** Serves a typed request of a method, or of a function that makes objects. */
	void (*request_object)(struct far_req *req, const uint8_t *body, uint64_t len);
	/** Finds the object that the peer named with this count, whose inline method `fn` is about to run on the burst:
	 * its handler must be called next. false: the general code decides. */
	bool (*object_find)(struct shard *s, const struct session *se, const struct function *fn, uint32_t count);
};

/** Any function may be NULL, but for those of `only` that another feature does not have. Those of all features are
 * called in the order of the table. */
struct shard_feature {
	const char *name;
	/** false: no memory. What was made is fini's. */
	bool (*init)(struct shard *s);
	void (*fini)(struct shard *s);
	/** The shard ends: no session is up, and no call is left. */
	void (*stop)(struct shard *s);
	/** A pass while the feature's bit is in shard.poll_due, which it takes out. Returns how many things it did. */
	unsigned (*poll)(struct shard *s);
	/** A pass that has found nothing else to do, or one of PASSES_PER_IDLE, while the feature's bit is in
	 * shard.poll_idle. Returns how many things it did. */
	unsigned (*poll_idle)(struct shard *s);

	/* ---- a session ---- */

	/** The session is up. Nothing has been sent or received. */
	void (*session_up)(struct shard *s, struct session *se);
	/** The session's set-up has succeeded, and the calls that waited for it have left; or it has failed. */
	void (*session_settled)(struct shard *s, struct session *se);
	/** The session has ended: gives back what lies in its queue, which is still attached. */
	void (*session_detach)(struct shard *s, struct session *se);
	/** The session has ended, and its calls with it. */
	void (*session_down)(struct shard *s, struct session *se);

	/** The session is lost, and its worker still a member of the group. Calls to it have ended. */
	void (*session_lost)(struct shard *s, struct session *se);
	/** The worker's incarnation is lost, and its session with it. */
	void (*worker_lost)(struct shard *s, struct session *se);
	/** The session (NULL: all) ends: ends the calls to it that are held back, executed NO, and the answers. */
	void (*session_fail)(struct shard *s, const struct session *se, enum far_status status, const char *text);

	/* ---- a call ---- */

	/** Ends the call with this call_start.id, CANCELLED, executed NO. false: it is not held back. */
	bool (*call_cancel)(struct shard *s, const struct call_id *id);

	/** Ends the group of calls that completes `future`, CANCELLED. false: there is none. */
	bool (*group_cancel)(struct shard *s, const void *future);
	/** The call has ended here before its answer: a deadline, a cancel. Its slot waits for the peer's last packet.
	 */
	void (*call_ended)(struct shard *s, struct call *c);
	/** The slot is about to be given back. For calls with the feature's bit. */
	void (*call_over)(struct shard *s, struct call *c);

	/* ---- a record, with the feature's bit ---- */

	/** Its answer is about to be sent. */
	void (*record_answered)(struct shard *s, struct far_deferred *d);
	/** Nobody waits for its answer any more. */
	void (*record_gone)(struct shard *s, struct far_deferred *d);
	/** It is about to be given back: its answer has left, or never will. Of all features, for a record with any bit
	 * or with references in its answer. */
	void (*record_over)(struct shard *s, struct far_deferred *d);

	struct feature_hooks only;
};

bool features_init(struct shard *s);
void features_fini(struct shard *s);
void features_stop(struct shard *s);
unsigned features_poll(struct shard *s);
unsigned features_poll_idle(struct shard *s);
void features_session_up(struct shard *s, struct session *se);
void features_session_settled(struct shard *s, struct session *se);
void features_session_detach(struct shard *s, struct session *se);
void features_session_down(struct shard *s, struct session *se);
void features_session_lost(struct shard *s, struct session *se);
void features_worker_lost(struct shard *s, struct session *se);
void features_session_fail(struct shard *s, const struct session *se, enum far_status status, const char *text);
bool features_call_cancel(struct shard *s, const struct call_id *id);
bool features_group_cancel(struct shard *s, const void *future);
void features_call_ended(struct shard *s, struct call *c);
void features_call_over(struct shard *s, struct call *c);
void features_record_answered(struct shard *s, struct far_deferred *d);
void features_record_gone(struct shard *s, struct far_deferred *d);
void features_record_over(struct shard *s, struct far_deferred *d);

#endif
