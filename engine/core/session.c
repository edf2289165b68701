/* SPDX-License-Identifier: BSD-3-Clause */
/** Sessions with remote shards: opened and closed by mail of the control thread. Shard thread. */
#include "core/call.h"

#include "base/must.h"
#include "base/mutant.h"
#include "base/probe.h"
#include "base/rref.h"
#include "base/text.h"
#include "core/context.h"
#include "core/deferred.h"
#include "core/feature.h"
#include "core/lease.h"
#include "core/loop.h"
#include "core/queues.h"
#include "core/reply.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/waiting.h"

#include <farcall/message.h>
#include <stdio.h>
#include <string.h>

struct nic_lane session_no_lane;

static bool send_mail(struct shard *s, struct session *se, enum mail_type type)
{
	struct mail mail = {
		.type = type, .worker = se->worker, .shard = (uint8_t)se->shard, .peer = se->peer, .port = se->port};
	return mailbox_put(&s->mail_out, &mail);
}

void session_retry_mails(struct shard *s)
{
	shard_own(s);
	bool posted = false;
	while (s->unsent_mails) {
		struct session *se = s->unsent_mails;
		/* In the order of the types, in which a session sends them. */
		for (unsigned type = 0; se->unsent_mails; type++) {
			if (!(se->unsent_mails >> type & 1))
				continue;
			if (!send_mail(s, se, (enum mail_type)type))
				goto full;
			se->unsent_mails &= (uint8_t) ~(1u << type);
			s->undetached_n -= type == MAIL_DETACHED;
			posted = true;
		}
		s->unsent_mails = se->next_unsent;
		se->next_unsent = NULL;
	}
full:
	if (posted)
		s->config.ctl_wake(s->config.ctl_ctx);
}

static void mail_to_control(struct shard *s, enum mail_type type, struct session *se)
{
	if (!s->unsent_mails && send_mail(s, se, type)) {
		s->config.ctl_wake(s->config.ctl_ctx);
		return;
	}
	if (!se->unsent_mails) {
		struct session **at = &s->unsent_mails;
		while (*at)
			at = &(*at)->next_unsent;
		*at = se;
	}
	se->unsent_mails |= (uint8_t)(1u << type);
	s->undetached_n += type == MAIL_DETACHED;
}

void session_list_in(struct shard *s, struct session *se)
{
	shard_own(s);
	if (se->known)
		return;
	se->known = true;
	se->index = session_index(s, se->worker, se->shard);
	se->next_known = s->known;
	s->known = se;
}

void session_connect(struct shard *s, struct session *se)
{
	shard_own(s);
	session_list_in(s, se);
	se->state = SESSION_CONNECTING;
	mail_to_control(s, MAIL_CONNECT, se);
}

bool session_owes(const struct shard *s, const struct session *se)
{
	return se->calls_active || (se->has_rendezvous && s->hooks.session_owes(se));
}

void session_learn(struct shard *s, const struct session *se, uint32_t local, uint32_t there)
{
	shard_own(s);
	session_functions(s, se)[local] = (uint16_t)(there + 1);
	s->incarnations[se->worker].learned = true;
}

static void event(struct shard *s, const struct session *se, enum trace_kind kind)
{
	trace_add(s->trace,
		  &(struct trace_event){.at = clock_now(s->config.clock), .kind = kind, .worker = se->worker});
}

/* Another incarnation of the worker has other functions; the sessions of the one before have ended. */
static void incarnation_begins(struct shard *s, uint32_t worker, uint64_t incarnation)
{
	struct worker_incarnation *w = &s->incarnations[worker];
	if (w->learned && w->incarnation != incarnation && !MUTANT(FUNCTIONS_KEPT))
		memset(&s->functions[worker], 0, sizeof s->functions[worker]);
	w->learned &= w->incarnation == incarnation;
	w->incarnation = incarnation;
}

static bool is_loopback(const struct shard *s, const struct session *se)
{
	return se->worker == s->config.rank && se->shard == s->config.index;
}

static void session_open(struct shard *s, const struct mail *mail)
{
	uint32_t index = session_index(s, mail->worker, mail->shard);
	struct session *se = &s->sessions[index];
	struct shard_queue *sq = &s->queues[mail->port];
	/* After the end of the shard nothing would close it, or wait for its handlers. */
	if (s->stopped || se->state == SESSION_UP || se->state == SESSION_DEAD ||
	    sq->ops->attach(sq->q, mail->peer) < 0) {
		return;
	}
	se->worker = mail->worker;
	se->shard = mail->shard;
	session_list_in(s, se);
	se->state = SESSION_UP;
	se->peer = mail->peer;
	se->port = (uint8_t)mail->port;
	se->q = sq->q;
	atomic_store_explicit(&s->refers[index], sq->ops->refer != NULL, memory_order_relaxed);
	se->lane = &session_no_lane;
	if (sq->ops->lane)
		sq->ops->lane(sq->q, se->peer, &se->lane);
	if (sq->ops->recv_lane && se->lane != &session_no_lane)
		se->lane->user = se;
	se->protocol_error = false;
	if (se->worker_alive && se->incarnation != rref_incarnation(se->worker, mail->incarnation))
		features_worker_lost(s, se);
	incarnation_begins(s, se->worker, mail->incarnation);
	se->incarnation = rref_incarnation(se->worker, mail->incarnation);
	se->worker_alive = true;
	se->message_max = mail->message_bytes_max ? mail->message_bytes_max : FAR_MSG_BYTES_MAX;
	se->eager_max = (uint32_t)(se->message_max < FAR_MSG_EAGER_MAX ? se->message_max : FAR_MSG_EAGER_MAX);
	features_session_up(s, se);
	sq->peer_session[mail->peer] = index + 1;
	sq->peers++;
	sq->itself |= is_loopback(s, se);
	if (se->port)
		queues_touched(s, se->port);
	atomic_fetch_add_explicit(&s->sessions_opened, 1, memory_order_release);
	se->backpressured = (uint8_t)((s->hold_answers ? SESSION_HELD : 0) | (s->shown ? SESSION_SHOWN : 0));
	if (!MUTANT(WAITING_KEPT) || !se->waiting)
		waiting_send(s, se);
	event(s, se, TRACE_SESSION_UP);
	PROBE(session_up, s->config.rank, s->config.index, se->worker, se->shard);
	features_session_settled(s, se);
	lease_watch(s);
	if (lease_is_over(s))
		session_end(s, se, "the lease of this worker has run out");
}

static void session_close(struct shard *s, struct session *se)
{
	bool up = se->state == SESSION_UP;
	se->state = SESSION_DEAD;
	se->calls_max = 0;
	if (!up)
		return;
	if (se->lane->user)
		se->lane->user = NULL;
	se->lane = &session_no_lane;
	features_session_detach(s, se);
	answer_drop_all(s, se);
	deferred_all_gone(s, se);
	struct shard_queue *sq = &s->queues[se->port];
	sq->ops->detach(sq->q, se->peer);
	sq->peer_session[se->peer] = 0;
	sq->peers--;
	sq->itself &= !is_loopback(s, se);
}

/* The worker is still a member: calls fail, references stay, and the next call gets a new session. */
static void session_lost(struct shard *s, struct session *se, const char *text)
{
	waiting_fail(s, se, FAR_PEER_LOST, text);
	features_session_fail(s, se, FAR_PEER_LOST, text);
	/* Completion callbacks may call the worker again. */
	se->state = SESSION_CLOSED;
	call_fail_all(s, se, FAR_PEER_LOST, text);
	features_session_lost(s, se);
}

static void session_over(struct shard *s, struct session *se, const char *text)
{
	se->worker_alive = false;
	call_fail_all(s, se, FAR_PEER_LOST, text);
	waiting_fail(s, se, FAR_PEER_LOST, text);
	features_session_fail(s, se, FAR_PEER_LOST, text);
	features_worker_lost(s, se);
}

/* True if the mail is about the session that is up. The peer's handle may be that of a former incarnation, which the
 * port uses again. */
static bool is_about(const struct session *se, const struct mail *mail)
{
	bool is_incarnation =
		se->incarnation == rref_incarnation(mail->worker, mail->incarnation) || MUTANT(STALE_MAIL);
	return se->state == SESSION_UP && se->peer == mail->peer && is_incarnation;
}

/* Ends a session that is up. `lost`: the worker is still a member. */
static void session_down_by(struct shard *s, struct session *se, const char *text, bool lost)
{
	event(s, se, TRACE_SESSION_DOWN);
	PROBE(session_down, s->config.rank, s->config.index, se->worker, se->shard, text);
	session_close(s, se);
	if (lost)
		session_lost(s, se, text);
	else
		session_over(s, se, text);
	features_session_down(s, se);
	mail_to_control(s, MAIL_DETACHED, se);
	se->unsent_mails &=
		(uint8_t) ~(1u << MAIL_PROTOCOL_ERROR); /* else the control thread would apply it to the next session */
}

void session_end(struct shard *s, struct session *se, const char *text)
{
	shard_own(s);
	if (se->state == SESSION_UP) {
		session_down_by(s, se, text, false);
		return;
	}
	bool over = se->worker_alive; /* what the sessions before left ends */
	se->worker_alive = false;
	waiting_fail(s, se, FAR_PEER_LOST, text);
	if (over)
		features_worker_lost(s, se);
}

static void session_down(struct shard *s, const struct mail *mail)
{
	char text[MAIL_TEXT_MAX + 64];
	struct session *se = &s->sessions[session_index(s, mail->worker, mail->shard)];
	if (lease_is_over(s) || !is_about(se, mail))
		return;
	/* What the peer sent before it went is still in the ring: answers count. */
	unsigned passes = 0, n;
	do {
		queues_poll_all(s);
		n = shard_pass(s);
	} while (n && ++passes < 4096);
	if (se->state != SESSION_UP)
		return;
	text_set(text, sizeof text, "connection to the worker lost: %s",
		 mail->text[0] ? mail->text : "its process is gone");
	session_down_by(s, se, text, mail->status == FAR_UNREACHABLE);
}

static void session_unreached(struct shard *s, const struct mail *mail)
{
	struct session *se = &s->sessions[session_index(s, mail->worker, mail->shard)];
	enum far_status status = (enum far_status)mail->status;
	char text[MAIL_TEXT_MAX + 64];
	bool over = status == FAR_PEER_LOST && se->worker_alive; /* what the sessions before left ends */
	if (se->state != SESSION_CONNECTING && !(over && se->state == SESSION_CLOSED))
		return;
	se->state = status == FAR_PEER_LOST ? SESSION_DEAD : SESSION_CLOSED;
	se->worker_alive &= !over;
	text_set(text, sizeof text, "no session with worker %u, shard %u: %s", se->worker, (unsigned)se->shard,
		 mail->text);
	waiting_fail(s, se, status, text);
	if (over)
		features_worker_lost(s, se);
}

bool session_is_dead(struct shard *s, struct session *se)
{
	if (se->state == SESSION_DEAD && s->config.renewed &&
	    s->config.renewed(s->config.agent, se->worker, se->incarnation))
		se->state = SESSION_CLOSED;
	return se->state == SESSION_DEAD;
}

static void session_restarted(struct shard *s, const struct mail *mail)
{
	struct session *se = &s->sessions[session_index(s, mail->worker, mail->shard)];
	if (se->state == SESSION_DEAD && !s->stopped)
		se->state = SESSION_CLOSED;
}

static void session_request_credit(struct shard *s, const struct mail *mail)
{
	struct session *se = &s->sessions[session_index(s, mail->worker, mail->shard)];
	if (is_about(se, mail))
		s->hooks.ack_request(s, se);
}

void session_on_mail(struct shard *s, const struct mail *mail)
{
	shard_own(s);
	must(mail->worker < s->world && mail->shard < FAR_SHARDS_MAX);
	switch (mail->type) {
	case MAIL_PEER_UP:
		must(mail->port < s->queues_n && mail->peer < s->queues[mail->port].peers_max);
		session_open(s, mail);
		break;
	case MAIL_PEER_DOWN:
		session_down(s, mail);
		break;
	case MAIL_PEER_UNREACHABLE:
		session_unreached(s, mail);
		break;
	case MAIL_PROBE:
		session_request_credit(s, mail);
		break;
	case MAIL_PEER_RESTARTED:
		session_restarted(s, mail);
		break;
	case MAIL_RENEWED:
		lease_renew(s, mail->incarnation);
		break;
	default:
		break;
	}
}

unsigned session_resume(struct shard *s)
{
	shard_own(s);
	unsigned n = answer_resume(s);
	for (struct session *se = s->known; se; se = se->next_known)
		if (se->draining)
			n += waiting_send(s, se);
	return n;
}

void session_count_error(struct shard *s, struct session *se, enum far_status status, bool typed, uint16_t function)
{
	shard_own(s);
	static const uint8_t class_of[FAR_STATUS_COUNT] = {
		[FAR_TIMEOUT] = SESSION_ERROR_TIMEOUT + 1,     [FAR_PEER_LOST] = SESSION_ERROR_LOST + 1,
		[FAR_UNREACHABLE] = SESSION_ERROR_LOST + 1,    [FAR_CANCELLED] = SESSION_ERROR_CANCELLED + 1,
		[FAR_NO_FUNCTION] = SESSION_ERROR_REFUSED + 1, [FAR_SIGNATURE] = SESSION_ERROR_REFUSED + 1,
		[FAR_BAD_ARGS] = SESSION_ERROR_REFUSED + 1,    [FAR_TOO_LARGE] = SESSION_ERROR_REFUSED + 1,
		[FAR_PROTOCOL] = SESSION_ERROR_REFUSED + 1,    [FAR_RESOURCE] = SESSION_ERROR_RESOURCE + 1,
		[FAR_BUSY] = SESSION_ERROR_RESOURCE + 1,       [FAR_REMOTE] = SESSION_ERROR_HANDLER + 1,
		[FAR_SHUTDOWN] = SESSION_ERROR_SHUTDOWN + 1,
	};
	unsigned class = class_of[status];
	se->counters.errors[class ? class - 1 : SESSION_ERROR_OTHER]++;
	trace_add(s->trace, &(struct trace_event){.at = clock_now(s->config.clock),
						  .kind = TRACE_CALL_FAILED,
						  .status = (uint8_t)status,
						  .typed = typed,
						  .function = function,
						  .worker = se->worker});
}

void session_protocol_error(struct shard *s, struct session *se)
{
	shard_own(s);
	if (se->protocol_error)
		return;
	se->protocol_error = true;
	mail_to_control(s, MAIL_PROTOCOL_ERROR, se);
}

void session_close_all(struct shard *s)
{
	shard_own(s);
	if (s->config.closing)
		s->config.closing(s);
	s->stopped = true;
	for (struct session *se = s->known; se; se = se->next_known)
		session_close(s, se);
	call_fail_all(s, NULL, FAR_SHUTDOWN, "the agent was shut down");
	features_session_fail(s, NULL, FAR_SHUTDOWN, "the agent was shut down");
	for (struct session *se = s->known; se; se = se->next_known) {
		waiting_fail(s, se, FAR_SHUTDOWN, "the agent was shut down");
		features_session_down(s, se);
	}
	features_stop(s);
}
