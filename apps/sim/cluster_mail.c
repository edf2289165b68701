/* SPDX-License-Identifier: BSD-3-Clause */
/* Mails from control threads to shards that come once more, late. Runs in the world's thread, between turns. */
#include "apps/sim/cluster_world.h"

#include "base/must.h"
#include "core/shard.h"
#include "sync/mailbox.h"

#include <stdlib.h>

/** A copy of a mail, until its event has run. */
struct late_mail {
	struct cluster_worker *worker;
	unsigned incarnation, shard;
	struct mail mail;
	struct late_mail *next, **prev; /* of the cluster */
};

static void delayed_free(struct late_mail *l)
{
	*l->prev = l->next;
	if (l->next)
		l->next->prev = l->prev;
	free(l);
}

/* The process that the mail was for may have ended; where the mailbox is full, the mail is dropped. */
static void on_late(void *ctx)
{
	struct late_mail *l = ctx;
	struct cluster_worker *w = l->worker;
	if (w->agent && w->incarnations == l->incarnation &&
	    mailbox_put(&w->agent->shards[l->shard]->mail_in, &l->mail))
		shard_wake(w->agent->shards[l->shard]);
	delayed_free(l);
}

static void look(struct cluster_worker *w, unsigned shard, const struct mail *mail)
{
	struct cluster *c = w->cluster;
	/* A session that only was silent may be followed by one with the same incarnation. */
	if (mail->type != MAIL_PEER_DOWN || mail->status != FAR_PEER_LOST)
		return;
	uint64_t after = c->config.mail_again(c->config.mail_ctx);
	struct late_mail *l = after ? calloc(1, sizeof *l) : NULL;
	must(l || !after);
	if (!l)
		return;
	*l = (struct late_mail){
		.worker = w, .incarnation = w->incarnations, .shard = shard, .mail = *mail, .next = c->late};
	l->prev = &c->late;
	if (l->next)
		l->next->prev = &l->next;
	c->late = l;
	sim_at(c->sim, sim_now(c->sim) + after, on_late, l);
}

void mails_mark(const struct cluster_worker *w, uint32_t tails[FAR_SHARDS_MAX])
{
	for (unsigned i = 0; i < w->shards; i++)
		tails[i] = atomic_load_explicit(&w->agent->shards[i]->mail_in.tail, memory_order_relaxed);
}

void mails_look(struct cluster_worker *w, const uint32_t tails[FAR_SHARDS_MAX])
{
	for (unsigned i = 0; w->cluster->config.mail_again && i < w->shards; i++) {
		const struct mailbox *m = &w->agent->shards[i]->mail_in;
		uint32_t tail = atomic_load_explicit(&m->tail, memory_order_relaxed);
		for (uint32_t at = tails[i]; at != tail; at++)
			look(w, i, &m->slots[at & m->mask]);
	}
}

void mails_free(struct cluster *c)
{
	while (c->late)
		delayed_free(c->late);
}
