/* SPDX-License-Identifier: BSD-3-Clause */
/* Exchanges mails with the shards, through config.post and config.take. Control thread. */
#include "base/text.h"
#include "control/group.h"

#include <stdio.h>

#define MAIL_RETRY_NS UINT64_C(1000000) /* until a full mailbox is tried again */
#define TAKES_MAX     64                /* mails of one shard that one step handles */

void mails_queue(struct pair *pair)
{
	struct group *g = pair->peer->group;
	struct mail_queue *q = &g->out[pair->local];
	g->busy = true;
	if (pair->queued)
		return;
	pair->queued = true;
	pair->next_queued = NULL;
	if (q->head)
		q->tail->next_queued = pair;
	else
		q->head = pair;
	q->tail = pair;
}

static bool post(struct pair *pair, enum mail_type type, bool *due)
{
	struct group *g = pair->peer->group;
	struct mail mail = {.type = type,
			    .worker = (uint32_t)pair->peer->rank,
			    .shard = pair->remote,
			    .peer = pair->handle,
			    .port = pair->port,
			    .status = pair->status,
			    .incarnation = pair->accepted,
			    .message_bytes_max = g->members[pair->peer->rank].message_bytes_max};
	if (!*due)
		return true;
	text_set(mail.text, sizeof mail.text, "%s", pair->text ? pair->text : "");
	if (!g->config.post(g->config.ctx, pair->local, &mail))
		return false;
	*due = false;
	g->busy = true;
	g->ups_posted += type == MAIL_PEER_UP;
	return true;
}

/* Posts a pair's mails in the order of its states. false: the mailbox is full; the same mail is tried again first. */
static bool post_all(struct pair *pair)
{
	return post(pair, MAIL_PEER_RESTARTED, &pair->due_restarted) &&
	       post(pair, MAIL_PEER_UNREACHABLE, &pair->due_unreachable) && post(pair, MAIL_PEER_UP, &pair->due_up) &&
	       post(pair, MAIL_PROBE, &pair->due_probe) && post(pair, MAIL_PEER_DOWN, &pair->due_down);
}

/* Sends a shard the new incarnation, before the sessions that it has. false: the mailbox is full. */
static bool post_renewal(struct group *g, unsigned shard)
{
	struct mail mail = {
		.type = MAIL_RENEWED, .worker = (uint32_t)g->url.rank, .incarnation = g->config.incarnation};
	if (!(g->renewal_due >> shard & 1) || g->phase < PHASE_CONNECT || g->phase == PHASE_FAILING)
		return true;
	if (!g->config.post(g->config.ctx, shard, &mail))
		return false;
	g->renewal_due &= ~(1u << shard);
	return true;
}

uint64_t mails_post(struct group *g)
{
	uint64_t next = TIME_NEVER;
	for (unsigned shard = 0; shard < g->config.shards; shard++) {
		struct mail_queue *q = &g->out[shard];
		if (!post_renewal(g, shard)) {
			next = g->now + MAIL_RETRY_NS;
			continue;
		}
		while (q->head && post_all(q->head)) {
			struct pair *pair = q->head;
			q->head = pair->next_queued;
			pair->queued = false;
			pair_free_if_unused(pair);
		}
		if (q->head)
			next = g->now + MAIL_RETRY_NS;
	}
	return next;
}

static void take(struct group *g, unsigned shard, const struct mail *mail)
{
	struct pair *pair;
	if (mail->type == MAIL_CONNECT) {
		pair = mail->worker < (uint32_t)g->url.world &&
				       mail->shard < (g->url.dynamic ? FAR_SHARDS_MAX : g->members[mail->worker].shards)
			       ? pair_get(&g->peers[mail->worker], shard, mail->shard)
			       : NULL;
		/* NULL: no memory; the calls end at their deadlines. */
		if (pair)
			pair_request(pair);
		return;
	}
	pair = pair_of_handle(g, mail->port, mail->peer);
	if (!pair || pair->local != shard)
		return;
	if (mail->type == MAIL_PROTOCOL_ERROR && !pair->is_retired) {
		peer_lost(pair->peer, "it broke the protocol");
	} else if (mail->type == MAIL_DETACHED) {
		if (pair->state != PAIR_DEAD)
			lease_is_over_at_shard(g, pair->peer);
		pair_drop(pair);
		pair_free_if_unused(pair);
	}
}

void mails_take(struct group *g)
{
	struct mail mail;
	for (unsigned shard = 0; shard < g->config.shards; shard++) {
		for (int i = 0; i < TAKES_MAX && g->config.take(g->config.ctx, shard, &mail); i++) {
			g->busy = true;
			take(g, shard, &mail);
		}
	}
}
