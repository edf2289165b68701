/* SPDX-License-Identifier: BSD-3-Clause */
#include "shard/shard.h"

#include "base/must.h"
#include "shard/retry.h"

#include <string.h>

static void post_to_ctl(struct shard *s, enum mail_type type, const struct session *se)
{
	struct mail mail = {
		.type = type, .worker = se->worker, .peer = se->peer, .port = se->port, .incarnation = se->incarnation};
	/* One DETACHED and one POISONED per session at most, and the mailbox holds that many. */
	must(mailbox_put(&s->mail_out, &mail));
	s->config.ctl_wake(s->config.ctl_ctx);
}

static void session_open(struct shard *s, const struct mail *mail)
{
	struct session *se = &s->sessions[mail->worker];
	if (se->state == SESSION_UP || s->ops->attach(s->q, mail->peer) < 0)
		return;
	se->state = SESSION_UP;
	se->peer = mail->peer;
	se->port = mail->port;
	se->incarnation = mail->incarnation;
	se->poisoned = false;
	memset(se->fn_map, 0, FAR_FUNCTIONS_MAX * sizeof *se->fn_map);
	s->peer_session[mail->peer] = mail->worker + 1;
	atomic_fetch_add_explicit(&s->sessions_opened, 1, memory_order_release);
}

static void session_close(struct shard *s, struct session *se)
{
	if (se->state != SESSION_UP)
		return;
	se->state = SESSION_DEAD;
	answer_drop_all(s, se);
	deferred_all_gone(s, se);
	s->ops->detach(s->q, se->peer);
	s->peer_session[se->peer] = 0;
}

static void session_down(struct shard *s, const struct mail *mail)
{
	struct session *se = &s->sessions[mail->worker];
	if (se->state != SESSION_UP || se->peer != mail->peer)
		return;
	/* What the peer sent before it went is still in the ring: answers count. */
	for (unsigned passes = 0; passes < 4096 && shard_pass(s); passes++)
		;
	if (se->state != SESSION_UP)
		return;
	session_close(s, se);
	call_fail_all(s, se->worker, FAR_PEER_LOST, "the worker's process is gone");
	retry_drop(se);
	post_to_ctl(s, MAIL_DETACHED, se);
}

void session_on_mail(struct shard *s, const struct mail *mail)
{
	switch (mail->type) {
	case MAIL_PEER_UP:
		must(mail->worker < s->config.world && mail->peer < s->config.peers_max);
		session_open(s, mail);
		break;
	case MAIL_PEER_DOWN:
		must(mail->worker < s->config.world);
		session_down(s, mail);
		break;
	default:
		break;
	}
}

void session_poisoned(struct shard *s, struct session *se)
{
	if (se->poisoned)
		return;
	se->poisoned = true;
	post_to_ctl(s, MAIL_POISONED, se);
}

void session_close_all(struct shard *s)
{
	s->stopped = true;
	for (uint32_t w = 0; w < s->config.world; w++)
		session_close(s, &s->sessions[w]);
	call_fail_all(s, UINT32_MAX, FAR_SHUTDOWN, "the agent was shut down");
	for (uint32_t w = 0; w < s->config.world; w++)
		retry_drop(&s->sessions[w]);
}
