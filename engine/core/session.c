/* SPDX-License-Identifier: BSD-3-Clause */
/** Sessions with remote shards: opened and closed by mail of the control thread. Shard thread. */
#include "core/call.h"

#include "base/must.h"
#include "base/mutant.h"
#include "base/rref.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

static bool post(struct shard *s, struct session *se, enum mail_type type)
{
	struct mail mail = {
		.type = type, .worker = se->worker, .shard = (uint8_t)se->shard, .peer = se->peer, .port = se->port};
	return mailbox_put(&s->mail_out, &mail);
}

void session_post_again(struct shard *s)
{
	shard_own(s);
	bool posted = false;
	while (s->unposted) {
		struct session *se = s->unposted;
		/* In the order of the types, in which a session sends them. */
		for (unsigned type = 0; se->unposted; type++) {
			if (!(se->unposted >> type & 1))
				continue;
			if (!post(s, se, (enum mail_type)type))
				goto full;
			se->unposted &= (uint8_t) ~(1u << type);
			s->undetached_n -= type == MAIL_DETACHED;
			posted = true;
		}
		s->unposted = se->next_unposted;
		se->next_unposted = NULL;
	}
full:
	if (posted)
		s->config.ctl_wake(s->config.ctl_ctx);
}

static void post_to_ctl(struct shard *s, enum mail_type type, struct session *se)
{
	if (!s->unposted && post(s, se, type)) {
		s->config.ctl_wake(s->config.ctl_ctx);
		return;
	}
	if (!se->unposted) {
		struct session **at = &s->unposted;
		while (*at)
			at = &(*at)->next_unposted;
		*at = se;
	}
	se->unposted |= (uint8_t)(1u << type);
	s->undetached_n += type == MAIL_DETACHED;
}

void session_know(struct shard *s, struct session *se)
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
	session_know(s, se);
	se->state = SESSION_CONNECTING;
	post_to_ctl(s, MAIL_CONNECT, se);
}

bool session_owes(const struct shard *s, const struct session *se)
{
	return se->calls_active || (se->has_large && s->hooks.session_owes(se));
}

void session_learn(struct shard *s, const struct session *se, uint32_t local, uint32_t there)
{
	session_functions(s, se)[local] = (uint16_t)(there + 1);
	s->lives[se->worker].learned = true;
}

/* Another incarnation of the worker has other functions; the sessions of the one before have ended. */
static void life_begins(struct shard *s, uint32_t worker, uint64_t incarnation)
{
	struct worker_life *w = &s->lives[worker];
	if (w->learned && w->incarnation != incarnation && !MUTANT(FUNCTIONS_KEPT))
		memset(&s->functions[worker], 0, sizeof s->functions[worker]);
	w->learned &= w->incarnation == incarnation;
	w->incarnation = incarnation;
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
	session_know(s, se);
	se->state = SESSION_UP;
	se->peer = mail->peer;
	se->port = (uint8_t)mail->port;
	se->q = sq->q;
	se->poisoned = false;
	if (se->life_open && se->incarnation != rref_life(se->worker, mail->incarnation))
		features_worker_lost(s, se);
	life_begins(s, se->worker, mail->incarnation);
	se->incarnation = rref_life(se->worker, mail->incarnation);
	se->life_open = true;
	se->message_max = mail->message_bytes_max ? mail->message_bytes_max : FAR_MSG_BYTES_MAX;
	se->whole_max = (uint32_t)(se->message_max < FAR_MSG_WHOLE_MAX ? se->message_max : FAR_MSG_WHOLE_MAX);
	features_session_up(s, se);
	sq->peer_session[mail->peer] = index + 1;
	sq->peers++;
	if (se->port)
		queues_touched(s, se->port);
	atomic_fetch_add_explicit(&s->sessions_opened, 1, memory_order_release);
	se->blocked = s->hold_answers ? SESSION_KEPT : 0;
	if (!MUTANT(WAITING_KEPT) || !se->waiting)
		waiting_flush(s, se);
	features_session_settled(s, se);
}

static void session_close(struct shard *s, struct session *se)
{
	bool up = se->state == SESSION_UP;
	se->state = SESSION_DEAD;
	se->calls_max = 0;
	if (!up)
		return;
	features_session_detach(s, se);
	answer_drop_all(s, se);
	deferred_all_gone(s, se);
	struct shard_queue *sq = &s->queues[se->port];
	sq->ops->detach(sq->q, se->peer);
	sq->peer_session[se->peer] = 0;
	sq->peers--;
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
	se->life_open = false;
	call_fail_all(s, se, FAR_PEER_LOST, text);
	waiting_fail(s, se, FAR_PEER_LOST, text);
	features_session_fail(s, se, FAR_PEER_LOST, text);
	features_worker_lost(s, se);
}

/* True if the mail is about the session that is up. The peer's handle may be that of a former incarnation, which the
 * port uses again. */
static bool is_about(const struct session *se, const struct mail *mail)
{
	bool is_life = se->incarnation == rref_life(mail->worker, mail->incarnation) || MUTANT(STALE_MAIL);
	return se->state == SESSION_UP && se->peer == mail->peer && is_life;
}

static void session_down(struct shard *s, const struct mail *mail)
{
	char text[MAIL_TEXT_MAX + 64];
	struct session *se = &s->sessions[session_index(s, mail->worker, mail->shard)];
	if (!is_about(se, mail))
		return;
	/* What the peer sent before it went is still in the ring: answers count. */
	unsigned passes = 0, n;
	do {
		queues_poll_all(s);
		n = shard_pass(s);
	} while (n && ++passes < 4096);
	if (se->state != SESSION_UP)
		return;
	nic_text_set(text, sizeof text, "connection to the worker lost: %s",
		     mail->text[0] ? mail->text : "its process is gone");
	session_close(s, se);
	if (mail->status == FAR_UNREACHABLE)
		session_lost(s, se, text);
	else
		session_over(s, se, text);
	features_session_down(s, se);
	post_to_ctl(s, MAIL_DETACHED, se);
	se->unposted &=
		(uint8_t) ~(1u << MAIL_POISONED); /* else the control thread would apply it to the next session */
}

static void session_unreached(struct shard *s, const struct mail *mail)
{
	struct session *se = &s->sessions[session_index(s, mail->worker, mail->shard)];
	enum far_status status = (enum far_status)mail->status;
	char text[MAIL_TEXT_MAX + 64];
	bool over = status == FAR_PEER_LOST && se->life_open; /* what the sessions before left ends */
	if (se->state != SESSION_CONNECTING && !(over && se->state == SESSION_CLOSED))
		return;
	se->state = status == FAR_PEER_LOST ? SESSION_DEAD : SESSION_CLOSED;
	se->life_open &= !over;
	nic_text_set(text, sizeof text, "no session with worker %u, shard %u: %s", se->worker, (unsigned)se->shard,
		     mail->text);
	waiting_fail(s, se, status, text);
	if (over)
		features_worker_lost(s, se);
}

static void session_back(struct shard *s, const struct mail *mail)
{
	struct session *se = &s->sessions[session_index(s, mail->worker, mail->shard)];
	if (se->state == SESSION_DEAD && !s->stopped)
		se->state = SESSION_CLOSED;
}

static void session_ask(struct shard *s, const struct mail *mail)
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
	case MAIL_UNREACHED:
		session_unreached(s, mail);
		break;
	case MAIL_PROBE:
		session_ask(s, mail);
		break;
	case MAIL_PEER_BACK:
		session_back(s, mail);
		break;
	default:
		break;
	}
}

unsigned session_unblock(struct shard *s)
{
	shard_own(s);
	unsigned n = answer_unblock(s);
	for (struct session *se = s->known; se; se = se->next_known)
		if (se->flushing)
			n += waiting_flush(s, se);
	return n;
}

void session_poisoned(struct shard *s, struct session *se)
{
	shard_own(s);
	if (se->poisoned)
		return;
	se->poisoned = true;
	post_to_ctl(s, MAIL_POISONED, se);
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
