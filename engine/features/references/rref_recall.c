/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Keeps references across the end of a session whose worker is still a member. Shard thread.
 *
 * Forks stay, and control messages that were not answered are sent again by the next session: each may arrive twice.
 * What is left are the references of results that the session may have lost: their sender holds its own for a receiver
 * that may never have got the result. RECALL requests the receiver's state.
 */
#include "features/references/rref.h"

#include "base/mutant.h"
#include "core/session.h"
#include "core/shard.h"

#include <string.h>

/* Was name `a` given before `b`, by the same shard. Names have the low bits of a count only. */
static bool named_before(uint64_t a, uint64_t b)
{
	return a != b && ((b - a) & RREF_COUNT_MASK) <= RREF_COUNT_MASK / 2;
}

/* ---- the sender of results ---- */

static void pins_drop(struct session *se, uint64_t before)
{
	struct rref_pins *p = se->rref_pins, *next;
	for (; p; p = next) {
		next = p->next;
		if (!named_before(p->first & RREF_COUNT_MASK, before))
			continue;
		list_remove(p);
		rref_pins_release(p);
	}
}

void rref_session_lost(struct shard *s, struct session *se)
{
	if (!se->rref_pins || MUTANT(RREF_UNRECALLED))
		return;
	/* Whatever is shared from now on leaves by the next session: its names are later ones. */
	uint64_t before = rref_names(s, 1);
	struct rref_msg *msg = se->rref_recall;
	if (msg) { /* an earlier loss has not been settled: this RECALL is about both */
		msg->fork.number = rref_name(0, s->config.index, 0, before).number;
		return;
	}
	struct far_buf *buf = buf_alloc(sizeof *msg);
	if (!buf) { /* then the receiver has what the owners know of already */
		pins_drop(se, before & RREF_COUNT_MASK);
		return;
	}
	msg = buf_data(buf);
	*msg = (struct rref_msg){
		.kind = RREF_RECALL,
		.buf = buf,
		.fork = rref_name(rref_incarnation(s->config.rank, s->config.incarnation), s->config.index, 0, before)};
	se->rref_recall = msg;
	rref_msg_send(s, se->index, msg);
}

void rref_recalled(struct shard *s, struct rref_msg *msg, enum far_status status)
{
	struct session *se = &s->sessions[msg->session];
	se->rref_recall = NULL;
	/* Else the worker is lost, and they are given back with all that it held. */
	if (status != FAR_PEER_LOST && status != FAR_SHUTDOWN)
		pins_drop(se, msg->fork.number & RREF_COUNT_MASK);
	buf_unref(msg->buf);
}

/* ---- the receiver of results ---- */

/* The session that they came by is closed, and what came by it was taken in before: none is added. */
enum far_status rref_on_recall(const struct shard *s, const struct session *se, const struct rref_op *op)
{
	if (op->fork.incarnation != se->incarnation || rref_creator_shard(op->fork) != se->shard)
		return FAR_PROTOCOL;
	uint64_t before = op->fork.number & RREF_COUNT_MASK;
	for (const struct far_rref *r = s->rrefs->list; r; r = r->next) {
		const struct rref_user *u = rref_as_user(r);
		if (u && u->accept_session == se->index + 1 && !future_done(u->known) &&
		    named_before(u->fork.number & RREF_COUNT_MASK, before))
			return FAR_BUSY;
	}
	return FAR_OK;
}
