/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Serves requests to run a function and keep its value. Shard thread.
 *
 * The record of the value is there before the function runs, and has a fork of the maker. An inline handler whose
 * arguments hold no references runs on the burst.
 */
#include "features/references/rref.h"

#include "base/must.h"
#include "core/context.h"
#include "core/deferred.h"
#include "core/dispatch.h"
#include "core/reply.h"
#include "core/request.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/timer.h"

#include <farcall/message.h>

static struct rref_record *record_to_make(struct far_req *req, const struct rref_remote *m)
{
	struct shard *s = req->shard;
	if (rref_rank(m->id.incarnation) != req->session->worker ||
	    rref_rank(m->fork.incarnation) != req->session->worker) {
		rref_malformed(req);
		return NULL;
	}
	struct rref_record *r = rref_record(s, m->id);
	if (r && r->expected && rref_fork_add(s, r, m->fork, req->session->index))
		return r;
	if (!r || r->expected)
		rref_refuse(req, FAR_RESOURCE, "worker \"%s\" has no room for another reference", s->config.name);
	else
		rref_refuse(req, FAR_INVALID, "the value of this reference was made before");
	if (r)
		rref_unref(&r->rref.base);
	return NULL;
}

void rref_will_be(struct rref_record *r, const struct function *fn)
{
	r->rref.types = function_result_types(fn);
	rref_class_set(&r->rref, fn->makes ? fn->makes->hash : 0);
}

/* The record of a value that a function is to make; NULL: the request was refused. */
static struct rref_record *begin_making(struct far_req *req, const struct rref_remote *m)
{
	struct rref_record *r = record_to_make(req, m);
	if (!r)
		return NULL;
	r->expected = false;
	rref_will_be(r, req->fn);
	return r;
}

/* It was not begun after all. */
static void unmake(struct shard *s, struct rref_record *r, struct rref_id fork)
{
	r->expected = true;
	rref_fork_end(s, rref_table_find(&s->rrefs->forks, fork));
	rref_unref(&r->rref.base);
}

static void make(struct far_req *req, const struct rref_remote *m, struct rref_record *object, const uint8_t *body,
		 uint64_t len)
{
	struct rref_record *r = begin_making(req, m);
	if (!r)
		return;
	struct rref_open *open = rref_open_new(req, RREF_TO_MAKE, body, len);
	if (!open) {
		unmake(req->shard, r, m->fork);
		return;
	}
	if ((open->object = object))
		rref_ref(&object->rref.base);
	open->value = r;
	open->fork = m->fork;
	open->record->limit = FAR_MSG_BYTES_MAX;
	open->record->makes = true;
	open->unchecked = !m->function.signature;
	rref_take_arguments(req, open);
}

void rref_serve_make(struct far_req *req, const struct rref_remote *m, struct rref_record *object, const uint8_t *body,
		     uint64_t len)
{
	if (rref_names_us(req, m->owner, m->id) && rref_function_of(req, m->function))
		make(req, m, object, body, len);
}

/* Settles the value. The answer carries the failure when nothing was made, else no value. */
static void settle_made(struct shard *s, struct far_deferred *d, struct rref_record *r, struct rref_id fork)
{
	struct completion o = {.status = (enum far_status)d->status,
			       .executed = (enum far_executed)d->executed,
			       .code = d->code,
			       .data = d->buf ? buf_data(d->buf) : NULL,
			       .len = d->len,
			       .buf = d->buf};
	rref_settle(s, r, &o, d->tree);
	if (d->status && d->executed == FAR_EXECUTED_NO) {
		struct rref_fork *f = rref_table_find(&s->rrefs->forks, fork);
		if (f)
			rref_fork_end(s, f);
		return;
	}
	buf_unref(d->buf);
	d->buf = NULL;
	d->len = 0;
	d->status = FAR_OK;
	d->tree = false;
}

void rref_answered(struct shard *s, struct far_deferred *d)
{
	struct rref_open *open = d->rref;
	d->rref = NULL;
	if (open->purpose != RREF_TO_METHOD)
		settle_made(s, d, open->value, open->fork);
	rref_open_free(open);
}

/* ---- on the burst ---- */

/* An inline handler that makes a value has parted with its record, and will answer, or has, from elsewhere: that comes
 * by the list of answers, which is looked at later. */
static void answers_later(struct far_req *req, struct far_deferred *d, struct rref_record *r, struct rref_id fork)
{
	struct shard *s = req->shard;
	struct far_buf *buf = s->rrefs->spare;
	struct rref_open *open = buf_data(buf);
	s->rrefs->spare = NULL;
	*open = (struct rref_open){.buf = buf,
				   .record = d,
				   .purpose = RREF_TO_MAKE,
				   .started = true,
				   .deadline = TIME_NEVER,
				   .name = req->name,
				   .from = req->from,
				   .from_shard = req->from_shard,
				   .value = r,
				   .fork = fork};
	d->rref = open;
	d->features |= FEATURE_BIT(FEATURE_REFERENCES);
	if (req->time_left == FAR_FOREVER)
		return;
	open->deadline = time_after(clock_now(s->config.clock), req->time_left);
	timer_arm(&s->wheel, &d->timer.timer, open->deadline);
}

/* Its arguments hold no references, and are read where they came. */
static void make_at_once(struct far_req *req, const struct rref_remote *m, const uint8_t *body, uint64_t len)
{
	struct shard *s = req->shard;
	struct rref_record *r = begin_making(req, m);
	if (!r)
		return;
	if (!s->rrefs->spare)
		s->rrefs->spare = buf_alloc(sizeof(struct rref_open));
	struct far_deferred *d =
		s->rrefs->spare ? deferred_alloc(s, req->session, req->call, req->gen, req->fn, req->hashed) : NULL;
	if (!d) {
		unmake(s, r, m->fork);
		rref_refuse_open(req);
		return;
	}
	const char *outer = s->context.handler;
	d->owned = d->makes = d->here = true;
	d->limit = FAR_MSG_BYTES_MAX;
	req->record = d;
	s->context.handler = req->name;
	dispatch_typed(req, body, len, s->strings, FAR_STRINGS_BYTES_MAX);
	s->context.handler = outer;
	if (!rref_take_answered(s)) {
		answers_later(req, d, r, m->fork);
		return;
	}
	settle_made(s, d, r, m->fork);
	rref_unref(&r->rref.base);
	answer_deferred(s, d);
}

void rref_serve_named(struct far_req *req, bool method, const uint8_t *body, uint64_t len)
{
	const struct shard *s = req->shard;
	const struct session *se = req->session;
	struct rref_named named;
	if (!rref_trailer(req, body, &len, &named, sizeof named))
		return;
	if (!named.count || (method && !req->fn->method) || req->answer == ANSWER_ONEWAY) {
		rref_malformed(req);
		return;
	}
	struct rref_remote m = {.function.signature = req->fn->signature.canonical_hash,
				.id = rref_name(se->incarnation, se->shard, s->config.index, named.count),
				.fork = rref_name(se->incarnation, se->shard, 0, (uint64_t)named.count + 1)};
	if (method)
		object_called(req, m.id, body, len);
	else if (req->fn->run_kind == FAR_KIND_INLINE && !req->fn->method && !req->record)
		make_at_once(req, &m, body, len);
	else
		make(req, &m, NULL, body, len);
}

void rref_make_gone(struct shard *s, struct rref_open *open)
{
	static const char late[] = "the time-out of the call that was to make the value passed",
			  lost[] = "the worker that had the value made was lost before it was there";
	bool up = s->sessions[open->record->session].state == SESSION_UP;
	if (up && clock_now(s->config.clock) < open->deadline) {
		open->value->expected = true;
		return;
	}
	struct completion o = {.status = up ? FAR_TIMEOUT : FAR_PEER_LOST,
			       .executed = open->started ? FAR_EXECUTED_MAYBE : FAR_EXECUTED_NO,
			       .data = up ? late : lost,
			       .len = up ? sizeof late - 1 : sizeof lost - 1};
	rref_settle(s, open->value, &o, false);
}
