/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Control messages between engines about references: FORK, DELETE, ACCEPT, FAILED, RECALL. Shard thread.
 *
 * Those to one session wait in a list and leave in batches, one batch under way at a time, each an ordinary request.
 * So they are lost with the session only, and take no credit that a call waits for: one credit is reserved for them.
 */
#include "features/references/rref.h"

#include "base/must.h"
#include "base/mutant.h"
#include "core/call.h"
#include "core/deferred.h"
#include "core/dispatch.h"
#include "core/reply.h"
#include "core/request.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/timer.h"

#include <errno.h>
#include <string.h>

static void send_batch(struct shard *s, struct session *se);

/* ---- those that go ---- */

void rref_msg_done(struct shard *s, struct rref_msg *msg, enum far_status status, const char *text)
{
	struct far_rref *r = msg->rref;
	struct far_buf *buf = msg->buf;
	enum rref_kind kind = (enum rref_kind)msg->kind;
	counter_add(&s->rrefs->msgs_n, UINT64_MAX);
	counter_add(&s->counters.sends_ended, 1);
	if (kind == RREF_RECALL) {
		rref_recalled(s, msg, status);
		return;
	}
	if (kind == RREF_DELETE) { /* it had no hold */
		rref_end(s, rref_as_user(r));
		return;
	}
	if (kind == RREF_FORK) {
		struct rref_user *u = rref_as_user(r);
		rref_known_end(s, u,
			       &(struct completion){.status = status,
						    .executed = status ? FAR_EXECUTED_MAYBE : FAR_EXECUTED_YES,
						    .origin = (int16_t)rref_rank(r->base.owner),
						    .data = text,
						    .len = status ? strlen(text) : 0});
		if (u->accept_session) {
			u->accept = (struct rref_msg){.rref = r, .kind = RREF_ACCEPT, .fork = u->fork};
			rref_ref(&r->base);
			rref_msg_send(s, u->accept_session - 1, &u->accept);
		}
	}
	rref_unref(&r->base);
	buf_unref(buf);
}

static void again(struct shard *s, struct shard_timer *t)
{
	(void)t;
	s->rrefs->retry_armed = false;
	for (struct session *se = s->known; se; se = se->next_known)
		if (se->msgs && !se->msgs_in_flight)
			send_batch(s, se);
}

static void arm_retry(struct shard *s, uint64_t ns)
{
	if (s->rrefs->retry_armed || s->stopped)
		return;
	s->rrefs->retry_armed = true;
	s->rrefs->again.fn = again;
	timer_arm(&s->wheel, &s->rrefs->again.timer, time_after(clock_now(s->config.clock), ns));
}

/* The batch that is out goes back to the front of those that wait. */
static void take_back(struct session *se)
{
	struct rref_msg *first = se->msgs_in_flight, *last = first;
	if (!first)
		return;
	while (last->next)
		last = last->next;
	last->next = se->msgs;
	first->last = se->msgs ? se->msgs->last : last;
	se->msgs = first;
	se->msgs_in_flight = NULL;
}

static const char not_known[] = "the owner does not know the reference";

static void end_batch(struct shard *s, struct session *se, const struct completion *o)
{
	const uint8_t *statuses = o->status ? NULL : o->data;
	size_t n = o->status ? 0 : o->len;
	char text[FAR_ERR_TEXT_MAX];
	size_t text_n = o->status && o->len < sizeof text ? o->len : 0;
	if (text_n)
		memcpy(text, o->data, text_n);
	text[text_n] = '\0';
	struct rref_msg *msg, *out = se->msgs_in_flight;
	se->msgs_in_flight = NULL;
	for (size_t i = 0; (msg = out); i++) {
		out = msg->next;
		/* A missing status is a protocol error. */
		unsigned status = o->status ? (unsigned)o->status : i < n ? statuses[i] : (unsigned)FAR_PROTOCOL;
		if (status >= FAR_STATUS_COUNT)
			status = FAR_PROTOCOL;
		if (status == FAR_RESOURCE && (msg->kind == RREF_FORK || msg->kind == RREF_FAILED) &&
		    rref_msg_retry(s, msg))
			continue;
		if (status == FAR_BUSY && msg->kind == RREF_RECALL && !s->stopped) {
			rref_recall_again(s, msg);
			continue;
		}
		rref_msg_done(s, msg, (enum far_status)status, o->status ? text : not_known);
	}
}

/* When to send a failed batch again, ns; 0: never. Every control message may arrive twice: the owner's answer to one
 * that was lost with its session is the answer to its repeat. */
static uint64_t batch_retry_ns(const struct shard *s, const struct session *se, const struct completion *o)
{
	bool no_room = o->executed == FAR_EXECUTED_NO && (o->status == FAR_BUSY || o->status == FAR_RESOURCE);
	if (!o->status || s->stopped)
		return 0;
	if (no_room || (o->status == FAR_PEER_LOST && se->worker_alive))
		return FAR_RREF_AGAIN_NS;
	return o->status == FAR_UNREACHABLE && se->worker_alive ? FAR_RREF_UNREACHED_NS : 0;
}

static void batch_done(void *user, const struct completion *o)
{
	struct session *se = user;
	struct shard *s = se->msgs_in_flight->home;
	uint64_t ns = batch_retry_ns(s, se, o);
	if (ns) {
		take_back(se);
		arm_retry(s, ns);
		return;
	}
	end_batch(s, se, o);
	if (se->msgs && !se->msgs_in_flight) /* the end of one may have sent others */
		send_batch(s, se);
}

/* One request more than calls may take, and before those that wait for a credit: what they wait for may need it. */
static int call_over(struct shard *s, struct session *se, const struct call_start *start)
{
	if (se->state != SESSION_UP || s->hold_calls) /* fault.c does the same */
		return shard_call(s, start);
	uint16_t max = se->calls_max;
	se->calls_max = (uint16_t)(s->config.limits.peer_calls + 1);
	int error = shard_call(s, start);
	se->calls_max = max;
	return error;
}

static void send_batch(struct shard *s, struct session *se)
{
	struct rref_op *ops = s->rrefs->batch;
	struct rref_msg *msg = se->msgs, *last = NULL;
	unsigned n = 0;
	for (; msg && n < RREF_OPS_MAX; msg = msg->next, n++) {
		const struct far_rref *r = msg->rref;
		ops[n] = (struct rref_op){.kind = msg->kind,
					  .status = msg->status,
					  .owner = !r || msg->kind == RREF_ACCEPT ? 0 : r->base.owner,
					  .id = r ? r->base.id : (struct rref_id){0},
					  .fork = msg->fork};
		last = msg;
	}
	if (!n)
		return;
	se->msgs_in_flight = se->msgs;
	if (last->next)
		last->next->last = se->msgs->last;
	se->msgs = last->next;
	last->next = NULL;
	struct call_start start = {.worker = se->worker,
				   .shard = se->shard,
				   .fn = RREF_CONTROL,
				   .deadline = TIME_NEVER,
				   .left = TIME_NEVER,
				   .done = batch_done,
				   .user = se,
				   .data = ops,
				   .len = n * sizeof *ops};
	int error = call_over(s, se, &start);
	if (!error)
		return;
	if (error == -EAGAIN || error == -ENOMEM || (error == -EPIPE && se->worker_alive)) {
		take_back(se);
		arm_retry(s, FAR_RREF_AGAIN_NS);
		return;
	}
	struct completion lost = {.status = error == -ESHUTDOWN ? FAR_SHUTDOWN : FAR_PEER_LOST};
	end_batch(s, se, &lost);
}

void rref_msg_send(struct shard *s, uint32_t session, struct rref_msg *msg)
{
	struct session *se = &s->sessions[session];
	if (!se->known) {
		se->worker = session % s->world;
		se->shard = (uint8_t)(session / s->world);
		session_list_in(s, se);
	}
	msg->session = session;
	counter_add(&s->rrefs->msgs_n, 1);
	counter_add(&s->counters.sends_begun, 1);
	rref_msg_resend(s, msg);
}

void rref_msg_resend(struct shard *s, struct rref_msg *msg)
{
	struct session *se = &s->sessions[msg->session];
	if (rref_msg_fault(s, msg))
		return;
	msg->next = NULL;
	if (se->msgs)
		se->msgs->last->next = msg;
	else
		se->msgs = msg;
	se->msgs->last = msg;
	msg->home = s;
	if (!se->msgs_in_flight)
		send_batch(s, se);
}

void rref_msgs_drop(struct shard *s, struct session *se, enum far_status status)
{
	static const char lost[] = "the worker that has the value was lost";
	struct rref_msg *msg, *all = se->msgs;
	se->msgs = NULL;
	while ((msg = all)) {
		all = msg->next;
		rref_msg_done(s, msg, status, lost);
	}
	if (s->rrefs->late_n)
		rref_delayed_drop(s, se->index, status, lost);
}

/* ---- those that come ---- */

/* The count of an expected record's forks keeps it; so does what makes it. */
static enum far_status on_fork(struct shard *s, const struct session *se, const struct rref_op *op)
{
	if (op->owner != rref_incarnation(s->config.rank, s->config.incarnation))
		return FAR_PEER_LOST;
	if (rref_owner_shard(op->id) != s->config.index)
		return FAR_INVALID;
	struct rref_record *r = rref_record(s, op->id);
	if (!r)
		return FAR_RESOURCE;
	bool added = MUTANT(RREF_UNCOUNTED) || rref_fork_add(s, r, op->fork, se->index);
	if (MUTANT(RREF_TWICE))
		rref_fork_add(s, r, op->fork, se->index);
	rref_unref(&r->rref.base);
	return added ? FAR_OK : FAR_RESOURCE;
}

static enum far_status on_delete(struct shard *s, const struct session *se, const struct rref_op *op)
{
	struct rref_fork *f = rref_table_find(&s->rrefs->forks, op->fork);
	if (f && f->session == se->index && f->record->rref.base.id.incarnation == op->id.incarnation &&
	    f->record->rref.base.id.number == op->id.number)
		rref_fork_end(s, f);
	return FAR_OK;
}

/* Only the worker that requested the value may report that it failed. A request to make it that arrives later is
 * refused: the record has its failure. */
static enum far_status on_failed(struct shard *s, const struct session *se, const struct rref_op *op)
{
	static const char text[] = "the request that was to make the value has failed";
	struct completion o = {.status = (enum far_status)op->status, .data = text, .len = sizeof text - 1};
	if (op->status == FAR_OK || op->status >= FAR_STATUS_COUNT || rref_rank(op->id.incarnation) != se->worker)
		return FAR_PROTOCOL;
	enum far_status status = on_fork(s, se, op);
	struct rref_record *r = status ? NULL : rref_find(s, op->id);
	if (!r)
		return status;
	rref_settle(s, r, &o, false);
	rref_unref(&r->rref.base);
	return FAR_OK;
}

static enum far_status on_op(struct shard *s, struct session *se, const struct rref_op *op)
{
	switch (op->kind) {
	case RREF_FORK:
		return on_fork(s, se, op);
	case RREF_DELETE:
		return on_delete(s, se, op);
	case RREF_ACCEPT:
		rref_pins_accepted(s, se, op->fork);
		return FAR_OK;
	case RREF_FAILED:
		return on_failed(s, se, op);
	case RREF_RECALL:
		return rref_on_recall(s, se, op);
	default:
		return FAR_PROTOCOL;
	}
}

void rref_control(struct far_req *req, const uint8_t *body, uint64_t len)
{
	struct rref_op op;
	uint8_t statuses[RREF_OPS_MAX];
	size_t n = len / sizeof op;
	if (len % sizeof op || n == 0 || n > RREF_OPS_MAX) {
		static const char text[] = "malformed control messages about references";
		counter_add(&req->shard->counters.packets_dropped, 1);
		dispatch_error(req, FAR_PROTOCOL, FAR_EXECUTED_NO, 0, text, sizeof text - 1);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		memcpy(&op, body + i * sizeof op, sizeof op); /* a peer may rewrite it */
		statuses[i] = (uint8_t)on_op(req->shard, req->session, &op);
	}
	if (req->record) { /* it may be sent again */
		void *at = deferred_room(req->record, n);
		if (at)
			memcpy(at, statuses, n);
		struct far_deferred *d = req->record;
		dispatch_detach(req);
		deferred_finish(d);
	} else {
		answer_send(req, statuses, n);
	}
	req->answer = ANSWER_SENT;
}
