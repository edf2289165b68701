/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * References in messages: keeps them until the receiver has its own, and adopts those that arrive. Shard thread, but
 * for rref_share() (any thread).
 */
#include "features/intercept/intercept.h"
#include "features/references/rref.h"

#include "base/must.h"
#include "base/mutant.h"
#include "core/call.h"
#include "core/deferred.h"
#include "core/packet.h"
#include "core/session.h"
#include "core/shard.h"

#include <errno.h>
#include <string.h>

/* ---- the sender ---- */

static void put(void *ctx, const struct far_rref *rref, uint8_t *dst)
{
	struct rref_sharing *sharing = ctx;
	struct rref_pins *p = sharing->pins;
	struct far_rref *r = (struct far_rref *)(uintptr_t)rref;
	struct rref_wire w = {.owner = r->base.owner,
			      .id = r->base.id,
			      .fork = rref_name(sharing->incarnation, sharing->creator, 0, p->first + p->n),
			      .types = r->types,
			      .cls = rref_class(r)};
	rref_ref(&r->base);
	p->at[p->n++] = r;
	p->left++;
	rref_put(dst, &w);
}

int rref_share(struct shard *s, struct values_plan *plan, struct rref_sharing *sharing)
{
	struct far_buf *buf = buf_alloc(sizeof *sharing->pins + plan->rrefs * sizeof sharing->pins->at[0]);
	if (!buf)
		return -ENOMEM;
	struct rref_pins *p = buf_data(buf);
	*p = (struct rref_pins){.buf = buf, .first = rref_names(s, plan->rrefs)};
	*sharing = (struct rref_sharing){p, rref_incarnation(s->config.rank, s->config.incarnation), s->config.index};
	plan->put_rref = put;
	plan->put_ctx = sharing;
	return 0;
}

void rref_pins_release(struct rref_pins *p)
{
	if (!p)
		return;
	for (uint32_t i = 0; i < p->n; i++)
		if (p->at[i])
			rref_unref(&p->at[i]->base);
	buf_unref(p->buf);
}

void rref_pins_sent(struct shard *s, struct far_deferred *d)
{
	struct session *se = &s->sessions[d->session];
	struct rref_pins *p = d->pins;
	d->pins = NULL;
	if (d->gone || se->state != SESSION_UP) {
		rref_pins_release(p);
		return;
	}
	list_put(se->rref_pins, p);
}

void rref_pins_accepted(struct shard *s, struct session *se, struct rref_id fork)
{
	if (fork.incarnation != rref_incarnation(s->config.rank, s->config.incarnation) ||
	    rref_creator_shard(fork) != s->config.index)
		return;
	uint64_t count = fork.number & RREF_COUNT_MASK;
	for (struct rref_pins *p = se->rref_pins; p; p = p->next) {
		uint64_t i = (count - p->first) & RREF_COUNT_MASK;
		if (i >= p->n)
			continue;
		struct far_rref *r = p->at[i];
		p->at[i] = NULL;
		if (r) {
			rref_unref(&r->base);
			p->left--;
		}
		if (p->left)
			return;
		list_remove(p);
		buf_unref(p->buf);
		return;
	}
}

bool rref_call_reaches(const struct call_start *start, uint64_t incarnation)
{
	call_done_fn *done = start->done;
	void *user = start->user;
	intercept_inner(&done, &user);
	const struct rref_call *c = user;
	return start->typed & PACKET_METHOD || c->makes->rref.base.owner == incarnation;
}

void rref_message_name(uint16_t message, call_done_fn *done, void *user, char *buf, size_t len)
{
	intercept_inner(&done, &user);
	const struct function *fn = done == rref_call_done ? ((struct rref_call *)user)->fn : NULL;
	snprintf(buf, len, "%s",
		 fn                        ? fn->signature.name
		 : message == RREF_FETCH   ? "the fetch of a reference"
		 : message == RREF_TYPE    ? "the request for the type of a reference"
		 : message == RREF_CONTROL ? "a control message about references"
					   : "a call with references");
}

void rref_call_done(void *user, const struct completion *o)
{
	struct rref_call *c = user;
	struct far_buf *buf = c->buf;
	if (c->look)
		c->look(c->object, o);
	/* Before the call's completion: a worker that leaves the group then has given them back. */
	rref_pins_release(c->pins);
	if (c->object)
		rref_unref(&c->object->base);
	c->done(c->user, o);
	buf_unref(buf);
}

/* ---- making a value, when it ends badly ---- */

static void owed(void *user, const struct completion *o)
{
	(void)user, (void)o;
}

void rref_call_ended_early(struct shard *s, struct call *c)
{
	call_done_fn *done = c->done;
	void *user = c->user;
	intercept_inner(&done, &user);
	struct rref_user *u = done == rref_call_done ? ((struct rref_call *)user)->makes : NULL;
	if (!u)
		return;
	rref_ref(&u->rref.base);
	counter_add_shared(&s->rrefs->unknown_n, 1);
	c->done = owed;
	c->user = u;
	c->features |= FEATURE_BIT(FEATURE_REFERENCES);
}

void rref_call_over(struct shard *s, struct call *c)
{
	struct rref_user *u = c->user;
	if (c->done != owed)
		return;
	counter_add_shared(&s->rrefs->unknown_n, UINT64_MAX);
	rref_unref(&u->rref.base);
}

void rref_make_failed(struct shard *s, struct rref_user *u, enum far_status status)
{
	bool lost = status == FAR_PEER_LOST || status == FAR_UNREACHABLE;
	/* The request may have come before the session ended: the owner keeps the value until it is given back. */
	if (status == FAR_OK || status == FAR_SHUTDOWN || (lost && !s->sessions[u->session].worker_alive))
		return;
	u->owner_notified = true;
	rref_ref(&u->rref.base);
	rref_user_send(s, u, RREF_FAILED, status);
}

/* ---- the receiver ---- */

static bool sound(const struct shard *s, const struct session *se, const struct rref_wire *w)
{
	return rref_rank(w->fork.incarnation) == se->worker && rref_rank(w->owner) < s->world &&
	       rref_rank(w->id.incarnation) < s->world && rref_owner_shard(w->id) < FAR_SHARDS_MAX &&
	       rref_creator_shard(w->id) < FAR_SHARDS_MAX && (w->id.number & RREF_COUNT_MASK) != 0;
}

/* The value lies here. The sender of a result gets ACCEPT. */
static struct far_rref *come_home(const struct rref_adopting *a, const struct rref_wire *w)
{
	struct shard *s = a->shard;
	struct rref_record *record = rref_record(s, w->id);
	if (!record)
		return NULL;
	struct far_rref *r = &record->rref;
	if (record->expected && !rref_class(r)) /* the sender has the class */
		rref_class_set(r, w->cls);
	if (!a->result)
		return r;
	struct far_buf *buf = buf_alloc(sizeof(struct rref_msg));
	if (!buf) { /* it keeps its own until its session ends */
		rref_unref(&r->base);
		return NULL;
	}
	struct rref_msg *msg = buf_data(buf);
	*msg = (struct rref_msg){.rref = r, .kind = RREF_ACCEPT, .fork = w->fork, .buf = buf};
	rref_ref(&r->base);
	rref_msg_send(s, a->session->index, msg);
	return r;
}

static bool wait_for(struct rref_user *u, struct rref_open *open)
{
	struct far_buf *buf = buf_alloc(sizeof(struct rref_wait));
	if (!buf)
		return false;
	struct rref_wait *w = buf_data(buf);
	*w = (struct rref_wait){.next = u->waits, .buf = buf, .open = open};
	u->waits = w;
	open->unknown++;
	return true;
}

static struct far_rref *make_fork(const struct rref_adopting *a, const struct rref_wire *w)
{
	struct shard *s = a->shard;
	struct rref_user *u = rref_new(s, w);
	if (!u)
		return NULL;
	if (a->open && !MUTANT(RREF_EARLY) && !wait_for(u, a->open)) {
		rref_discard(u);
		return NULL;
	}
	s->config.name_of(s->config.agent, rref_rank(w->owner), u->rref.owner_name);
	rref_enter(&u->rref);
	if (a->result)
		u->accept_session = a->session->index + 1;
	rref_ref(&u->rref.base);
	rref_user_send(s, u, RREF_FORK, FAR_OK);
	return &u->rref;
}

int rref_adopt(struct values_arena *arena, const uint8_t *src, struct far_val *v)
{
	struct rref_adopting *a = (struct rref_adopting *)(void *)arena;
	struct shard *s = a->shard;
	struct rref_wire w;
	rref_get(src, &w);
	if (!sound(s, a->session, &w))
		return -EBADMSG;
	bool home = w.owner == rref_incarnation(s->config.rank, s->config.incarnation) &&
		    rref_owner_shard(w.id) == s->config.index;
	struct far_rref *r = home ? come_home(a, &w) : make_fork(a, &w);
	if (!r)
		return -ENOMEM;
	v->u.rref = r;
	int error = tree_hold(arena, &r->base);
	if (error)
		rref_unref(&r->base);
	return error;
}

void rref_adopt_result(struct shard *s, struct session *se, const uint8_t *body, uint64_t len, struct completion *o,
		       struct far_err *err)
{
	struct rref_adopting a = {
		.arena = {.more = tree_more, .rref = rref_adopt}, .shard = s, .session = se, .result = true};
	struct far_buf *buf = buf_alloc(len ? len : 1);
	struct far_val v = {0};
	enum far_status status = FAR_RESOURCE;
	if (buf) {
		if (len)
			memcpy(buf_data(buf), body, len);
		status = tree_read_with(buf_data(buf), len, buf, &a.arena, &v, err);
		buf_unref(buf);
	} else {
		snprintf(err->text, sizeof err->text, "no memory for a result that holds references");
	}
	if (!status) {
		o->tree = v.own;
		return;
	}
	o->status = status;
	o->executed = FAR_EXECUTED_YES;
	o->data = err->text;
	o->len = strlen(err->text);
	o->buf = NULL;
}
