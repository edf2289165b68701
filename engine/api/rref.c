/* SPDX-License-Identifier: BSD-3-Clause */
/** <farcall/rref.h>: making and fetching values, and all calls whose arguments hold references. Application threads and
 * handlers; completions on the shard. */
#include "api/rref.h"

#include "api/recv_buf.h"
#include "base/error.h"
#include "base/must.h"
#include "core/packet.h"
#include "core/shard.h"
#include "features/references/rref.h"
#include "features/rendezvous/rendezvous.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct shard *rref_home(const struct far_rref *r, struct far_err *err)
{
	struct shard *s = atomic_load_explicit(&((struct far_rref *)(uintptr_t)r)->home, memory_order_acquire);
	if (!s)
		err_set(err, FAR_SHUTDOWN, "the agent of the reference is shut down");
	return s;
}

enum far_status rref_null(const char *what, struct far_err *err)
{
	return err_set(err, FAR_INVALID, "%s: the reference is NULL", what);
}

enum far_status rref_failed(struct far_rref *r, struct far_err *err)
{
	char text[RREF_TEXT_MAX];
	struct far_err why = {0};
	const struct rref_user *u = rref_as_user(r);
	if (!u || !future_done(u->known) || !u->known->status)
		return FAR_OK;
	enum far_status status = agent_result(u->known, NULL, &why);
	err_set(err, status, "%s was never made: %s", rref_text(&r->base, text, sizeof text), why.text);
	if (err) {
		err->code = why.code;
		memcpy(err->origin, why.origin, sizeof err->origin);
	}
	return status;
}

/* ---- calls ---- */

/* Checks all references among the values. Recursion is bounded: values_size() has checked the depth. */
static enum far_status check_references(const struct far_val *v, size_t n, const struct far_agent *a,
					struct far_err *err)
{
	enum far_status status = FAR_OK;
	for (size_t i = 0; i < n && !status; i++) {
		if (v[i].type == FAR_TYPE_LIST) {
			status = check_references(v[i].u.list.items, v[i].u.list.n, a, err);
		} else if (v[i].type == FAR_TYPE_DICT) {
			for (size_t k = 0; k < v[i].u.dict.n && !status; k++)
				status = check_references(&v[i].u.dict.entries[k].value, 1, a, err);
		} else if (v[i].type == FAR_TYPE_RREF) {
			const struct shard *home = rref_home(v[i].u.rref, err);
			status = home ? rref_failed(v[i].u.rref, err) : FAR_SHUTDOWN;
			if (!status && home->config.agent != a)
				status = err_set(err, FAR_INVALID,
						 "an argument is a reference of another agent; fetch its value with "
						 "far_rref_to_here");
		}
	}
	return status;
}

/* A request being prepared. Its payload is written to the message when it starts, or, with references or beyond an
 * eager message, before. */
struct rref_request {
	struct call_route route;
	struct call_start start;
	struct rref_pins *pins;
	struct far_buf *payload; /* written; NULL: write_request() writes it later, or it is in start.ready */
	const struct function *fn;
	size_t n, trailer_bytes;
	const struct far_val *v;
	struct values_plan plan;
	struct rref_method_remote trailer;
	struct call_extra seen;
	struct far_val converted[FAR_ARGS_MAX];
};

static void request_end(struct rref_request *q)
{
	if (q->start.ready)
		rendezvous_out_unref(rendezvous_out_in(q->start.ready));
	buf_unref(q->payload);
}

static enum far_status no_memory(struct far_err *err)
{
	return err_set(err, FAR_RESOURCE, "no memory for a call with references");
}

static void write_request(const void *data, void *dst, size_t len, copy_fn *copy)
{
	const struct rref_request *q = data;
	uint8_t *at = dst;
	(void)len;
	values_write_by(q->v, q->n, &q->plan, at, copy);
	memcpy(at + q->plan.size, &q->trailer, q->trailer_bytes);
}

/* Writes the payload before the start: a rendezvous message, or arguments that hold references. */
static enum far_status write_now(const struct far_agent *a, struct rref_request *q, struct far_err *err)
{
	struct call_start *start = &q->start;
	void *at = NULL;
	if (start->len > agent_message_max(a, start->worker))
		return agent_start_error(q->route.via, -EMSGSIZE, start, err);
	if (start->len > FAR_MSG_EAGER_MAX) {
		struct rendezvous_out *o = rendezvous_out_alloc(start->len, &at);
		if (!o)
			return no_memory(err);
		start->ready = o->self;
	} else {
		if (!(q->payload = buf_alloc(start->len)))
			return no_memory(err);
		at = buf_data(q->payload);
	}
	struct rref_sharing sharing;
	if (q->plan.rrefs) {
		if (rref_share(q->route.via, &q->plan, &sharing))
			return no_memory(err);
		q->pins = sharing.pins;
	}
	write_request(q, at, start->len, NULL);
	start->data = q->payload ? at : NULL;
	start->write = NULL;
	return FAR_OK;
}

static void function_hashes(const struct function *fn, struct rref_function *f)
{
	*f = (struct rref_function){fn->signature.name_hash, fn->signature.canonical_hash};
}

/* Sets the bytes behind the arguments. `made`: the value is kept under this name; NULL: it is returned. Without an
 * object the call is one of a function. */
static void prepare_trailer(const struct typed_call *c, struct rref_request *q, struct rref_wire *made)
{
	static_assert(offsetof(struct rref_method_remote, remote) == sizeof(struct rref_id),
		      "the other trailers are parts of this one");
	const struct far_agent *a = c->agent;
	const struct function *fn = q->fn;
	struct rref_method_remote *m = &q->trailer;
	if (c->object)
		m->object = c->object->base.id;
	if (!made && !c->object) {
		function_hashes(fn, (struct rref_function *)(void *)m);
		q->trailer_bytes = sizeof(struct rref_function);
		return;
	}
	if (!made) {
		struct rref_method call = {.owner = c->object->base.owner, .object = c->object->base.id};
		function_hashes(fn, &call.function);
		memcpy(m, &call, sizeof call);
		q->trailer_bytes = sizeof call;
		return;
	}
	struct shard *s = q->route.via;
	uint64_t self = rref_incarnation((uint32_t)a->rank, agent_incarnation(a)), names = rref_names(s, 2);
	made->owner = c->object ? c->object->base.owner
				: rref_incarnation((uint32_t)c->to.worker,
						   atomic_load_explicit(&a->members[c->to.worker].incarnation,
									memory_order_relaxed));
	made->id = rref_name(self, s->config.index, q->route.shard, names);
	made->fork = rref_name(self, s->config.index, 0, names + 1);
	made->types = function_result_types(fn);
	made->cls = fn->makes ? fn->makes->hash : 0;
	m->remote.owner = made->owner;
	m->remote.id = made->id;
	m->remote.fork = made->fork;
	function_hashes(fn, &m->remote.function);
	q->trailer_bytes = sizeof *m;
	if (c->object)
		return;
	memmove(m, &m->remote, sizeof m->remote);
	q->trailer_bytes = sizeof m->remote;
}

/* Makes the trailer of a far_remote() short if the session implies its other parts. The request is then a call. */
static void prepare_short(struct rref_request *q, const struct rref_wire *made)
{
	const struct shard *s = q->route.via;
	struct rref_named named;
	if (!rref_named_of(made->id, made->id.incarnation, s->config.index, q->route.shard, &named))
		return;
	q->start.fn = (uint16_t)q->fn->index;
	q->start.typed = PACKET_TYPED | PACKET_NAMED;
	q->trailer_bytes = sizeof named;
	memcpy(&q->trailer, &named, sizeof named);
}

static const uint16_t messages[2][2] = {{RREF_CALL, RREF_REMOTE}, {RREF_METHOD, RREF_METHOD_REMOTE}};

/* Prepares a call or, with `made`, a request to keep the value under that name. request_end() is due whatever it
 * returns.
 */
static enum far_status prepare_request(const struct typed_call *c, struct rref_request *q, struct rref_wire *made,
				       struct far_err *err)
{
	struct far_agent *a = c->agent;
	const struct function *fn = c->fn;
	q->start.ready = NULL;
	q->payload = NULL;
	q->pins = NULL;
	enum far_status status = agent_route(a, c->to, c->opts, fn->signature.name_hash, &q->route, err);
	if (unlikely(status))
		return status;
	status = registry_fit(&fn, c->args, c->args_n, q->converted, &q->v, err);
	if (unlikely(status))
		return status;
	q->fn = fn;
	q->n = fn->signature.params_n;
	if (unlikely(values_size(q->v, q->n, &q->plan, err) == SIZE_MAX))
		return err ? err->status : FAR_BAD_ARGS;
	if (unlikely(q->plan.customs))
		status = registry_check_customs(&a->registry, q->v, q->n, err);
	if (!status && unlikely(q->plan.rrefs))
		status = check_references(q->v, q->n, a, err);
	if (unlikely(status))
		return status;
	prepare_trailer(c, q, made);
	q->start = (struct call_start){.worker = (uint32_t)c->to.worker,
				       .shard = q->route.shard,
				       .fn = messages[c->object != NULL][made != NULL],
				       .typed = 0,
				       .done = NULL, /* and the next two: start_request() */
				       .user = NULL,
				       .app = NULL,
				       .data = q,
				       .len = 0,
				       .write = write_request,
				       CALL_START_REST};
	if (made && !c->object && fn->signature.canonical_hash && !q->plan.rrefs &&
	    q->plan.size <= FAR_MSG_EAGER_MAX - sizeof(struct rref_named))
		prepare_short(q, made);
	q->start.len = q->plan.size + q->trailer_bytes;
	agent_set_deadline(a, q->route.via, c->opts, &q->start);
	agent_show(&q->start, &q->seen, made ? FAR_CALL_REMOTE : FAR_CALL_ASYNC, fn->signature.name, c->args,
		   c->args_n);
	return unlikely(q->plan.rrefs || q->start.len > FAR_MSG_EAGER_MAX) ? write_now(a, q, err) : FAR_OK;
}

/* Starts the request. Its completion is wrapped, which keeps the references until then. `waits`: wait for room under
 * back-pressure. */
static enum far_status start_request(struct rref_request *q, struct far_rref *object, call_done_fn *done, void *user,
				     struct rref_user *makes, bool waits, struct far_err *err)
{
	struct far_buf *buf = makes ? NULL : buf_alloc(sizeof(struct rref_call));
	if (!makes && !buf) {
		rref_pins_release(q->pins);
		return no_memory(err);
	}
	struct rref_call *c = makes ? &makes->making : buf_data(buf);
	*c = (struct rref_call){
		.done = done, .user = user, .pins = q->pins, .object = object, .buf = buf, .makes = makes, .fn = q->fn};
	if (object)
		rref_ref(&object->base);
	q->start.done = rref_call_done;
	q->start.user = c;
	q->start.id = makes ? NULL : &((struct far_future *)user)->call;
	if (waits && unlikely(q->start.extra != NULL))
		q->start.extra->mode = FAR_CALL_SYNC;
	enum far_status status =
		waits ? agent_start_waiting(q->route.via, &q->start, err) : agent_start(q->route.via, &q->start, err);
	if (status) {
		rref_pins_release(q->pins);
		if (object)
			rref_unref(&object->base);
		buf_unref(buf);
	}
	return status;
}

static enum far_status call_async(const struct typed_call *c, bool waits, struct far_future **out, struct far_err *err)
{
	struct rref_request q;
	enum far_status status = prepare_request(c, &q, NULL, err);
	struct far_future *f = status ? NULL : future_alloc(q.route.via);
	if (!status && !f)
		status = agent_no_future(err);
	if (status) {
		rref_pins_release(q.pins);
		request_end(&q);
		return status;
	}
	future_mark_timed(f, FUTURE_CALL, q.start.left);
	bool recv_buf = recv_buf_given(c->opts);
	if (recv_buf)
		recv_buf_set(f, &c->opts->recv_buf);
	status = start_request(&q, c->object, recv_buf ? recv_buf_done : agent_done_future, f, NULL, waits, err);
	request_end(&q);
	if (status) {
		future_drop(f);
		return status;
	}
	*out = f;
	return FAR_OK;
}

enum far_status typed_call_async(const struct typed_call *c, struct far_future **out, struct far_err *err)
{
	enum far_status status = call_async(c, false, out, err);
	if (!status)
		scope_gather(*out);
	return status;
}

enum far_status typed_call_sync(const struct typed_call *c, struct far_val *out, struct far_err *err)
{
	struct far_future *f;
	struct far_err own;
	if (!err)
		err = &own;
	enum far_status status = call_async(c, true, &f, err);
	if (status)
		return status;
	status = far_future_wait(f, 0, out, err);
	if (!future_done(f)) /* the reply is not needed any more */
		far_future_cancel(f, NULL);
	far_future_free(f);
	return status;
}

enum far_status rref_prepare(const struct typed_call *c, const struct shard *via, struct rref_pins **pins,
			     agent_take_call *take, void *ctx, struct far_err *err)
{
	struct far_call_opts opts = *c->opts;
	struct typed_call through = *c;
	struct rref_request q;
	opts.via = FAR_VIA(via->config.index);
	through.opts = &opts;
	enum far_status status = prepare_request(&through, &q, NULL, err);
	if (!status && q.start.ready)
		status = err_set(err, FAR_TOO_LARGE, "a request of %zu bytes; in a fan-out %zu is the maximum",
				 q.start.len, FAR_MSG_EAGER_MAX);
	if (!status) {
		*pins = q.pins;
		take(ctx, &q.start);
	} else {
		rref_pins_release(q.pins);
	}
	request_end(&q);
	return status;
}

/* ---- making ---- */

static void made(void *user, const struct completion *o)
{
	struct rref_user *u = user;
	struct shard *s = atomic_load_explicit(&u->rref.home, memory_order_relaxed);
	rref_known_end(s, u, o);
	rref_make_failed(s, u, o->status);
	rref_unref(&u->rref.base);
}

enum far_status far_remote_to(struct far_agent *a, struct far_to to, const char *function, const struct far_val *args,
			      size_t n, const struct far_call_opts *opts, struct far_rref **out, struct far_err *err)
{
	const struct typed_call c = {a, agent_find_function(a, function, err), NULL, to, args, n, opts};
	return c.fn ? typed_call_make(&c, out, err) : FAR_NO_FUNCTION;
}

enum far_status typed_call_make(const struct typed_call *c, struct far_rref **out, struct far_err *err)
{
	struct rref_request q;
	struct rref_wire w;
	if (!out)
		return err_set(err, FAR_INVALID, "far_remote: `out`, for the reference, must not be NULL");
	if (recv_buf_given(c->opts))
		return err_set(err, FAR_UNSUPPORTED,
			       "far_remote: the value stays on its owner; leave opts->recv_buf empty");
	enum far_status status = prepare_request(c, &q, &w, err);
	struct rref_user *u = status ? NULL : rref_new(q.route.via, &w);
	if (!status && !u)
		status = no_memory(err);
	if (status) {
		rref_pins_release(q.pins);
		request_end(&q);
		return status;
	}
	struct far_rref *r = &u->rref;
	rref_owner_is(r, AGENT_NAME(c->agent, c->to.worker));
	rref_enter(r);
	rref_ref(&r->base); /* of the call */
	status = start_request(&q, c->object, made, u, u, false, err);
	request_end(&q);
	if (status) {
		rref_unref(&r->base);
		rref_unref(&r->base);
		return status;
	}
	*out = r;
	return FAR_OK;
}

enum far_status far_remote(struct far_agent *a, const char *to, const char *function, const struct far_val *args,
			   size_t n, const struct far_call_opts *opts, struct far_rref **out, struct far_err *err)
{
	int rank = agent_find_worker(a, to, err);
	if (rank < 0)
		return FAR_UNKNOWN_WORKER;
	return far_remote_to(a, (struct far_to){rank, -1}, function, args, n, opts, out, err);
}

/* ---- fetching ---- */

enum far_status rref_fetch_start(struct far_rref *r, enum rref_message message, uint64_t timeout_ns,
				 struct fetch_call *c, struct far_err *err)
{
	struct far_call_opts opts = {.timeout_ns = timeout_ns};
	struct shard *s = rref_home(r, err);
	if (!s)
		return FAR_SHUTDOWN;
	enum far_status status = rref_failed(r, err);
	if (status)
		return status;
	c->shard = s;
	c->fetch = (struct rref_fetch){r->base.owner, r->base.id};
	c->start = (struct call_start){.worker = rref_rank(r->base.owner),
				       .shard = (uint8_t)rref_owner_shard(r->base.id),
				       .fn = (uint16_t)message,
				       .data = &c->fetch,
				       .len = sizeof c->fetch};
	agent_set_deadline(s->config.agent, s, &opts, &c->start);
	agent_show(&c->start, &c->seen, FAR_CALL_FETCH, NULL, NULL, 0);
	c->future = future_alloc(s);
	return c->future ? FAR_OK : agent_no_future(err);
}

enum far_status rref_start_holding(struct shard *s, struct call_start *start, struct far_rref *r,
				   void (*look)(struct far_rref *, const struct completion *), struct far_future *f,
				   struct far_err *err)
{
	struct far_buf *buf = buf_alloc(sizeof(struct rref_call));
	if (!buf)
		return no_memory(err);
	struct rref_call *c = buf_data(buf);
	*c = (struct rref_call){.done = agent_done_future, .user = f, .object = r, .look = look, .buf = buf};
	rref_ref(&r->base);
	start->done = rref_call_done;
	start->user = c;
	start->id = &f->call;
	enum far_status status = agent_start(s, start, err);
	if (status) {
		rref_unref(&r->base);
		buf_unref(buf);
	}
	return status;
}

enum far_status far_rref_to_here_async(struct far_rref *r, uint64_t timeout_ns, struct far_future **out,
				       struct far_err *err)
{
	struct fetch_call c;
	if (!r || !out)
		return rref_null("far_rref_to_here_async, or `out`", err);
	enum far_status status = rref_fetch_start(r, RREF_FETCH, timeout_ns, &c, err);
	if (status)
		return status;
	future_mark_timed(c.future, FUTURE_CALL, c.start.left);
	return agent_started(rref_start_holding(c.shard, &c.start, r, NULL, c.future, err), c.future, out);
}

enum far_status rref_own_value(struct rref_record *r, uint64_t timeout_ns, struct far_val *out, struct far_err *err)
{
	const struct shard *s = rref_home(&r->rref, err);
	char text[RREF_TEXT_MAX];
	if (!s)
		return FAR_SHUTDOWN;
	if (!timeout_ns)
		timeout_ns = atomic_load_explicit(&s->config.agent->rpc_timeout_ns, memory_order_relaxed);
	enum far_status status = far_future_wait(r->value, timeout_ns, out, err);
	if (!status && out && object_class_of(out)) { /* borrowed: the handle keeps the object */
		buf_unref(out->own);
		out->own = NULL;
	}
	if (status != FAR_PENDING || future_done(r->value))
		return status;
	err_set(err, FAR_TIMEOUT, "the value of %s was not made within the time-out",
		rref_text(&r->rref.base, text, sizeof text));
	return agent_timed_out(timeout_ns, err);
}

enum far_status far_rref_to_here(struct far_rref *r, uint64_t timeout_ns, struct far_val *out, struct far_err *err)
{
	struct fetch_call c;
	if (!r)
		return rref_null("far_rref_to_here", err);
	struct rref_record *record = rref_as_record(r);
	if (record)
		return rref_own_value(record, timeout_ns, out, err);
	if (rref_as_user(r)->own)
		return far_future_value(rref_as_user(r)->own, out, err);
	enum far_status status = FAR_PENDING;
	if (rref_class(r) && far_rref_is_owner(r))
		status = object_local_value(r, timeout_ns, out, err);
	if (status != FAR_PENDING)
		return status;
	status = agent_may_wait("far_rref_to_here", err);
	if (!status)
		status = rref_fetch_start(r, RREF_FETCH, timeout_ns, &c, err);
	return status ? status : agent_call_and_take(c.shard, &c.start, c.future, out, err);
}

enum far_status far_rref_local_value(struct far_rref *r, uint64_t timeout_ns, struct far_val *out, struct far_err *err)
{
	char text[RREF_TEXT_MAX];
	if (!r)
		return rref_null("far_rref_local_value", err);
	const struct shard *s = rref_home(r, err);
	if (!s)
		return FAR_SHUTDOWN;
	if (far_rref_is_owner(r))
		return far_rref_to_here(r, timeout_ns, out, err);
	return err_set(
		err, FAR_INVALID,
		"far_rref_local_value of %s on worker \"%s\" (rank %d): its owner is worker \"%s\" (rank %u); call "
		"it there, or far_rref_to_here",
		rref_text(&r->base, text, sizeof text), s->config.name, s->config.agent->rank, r->owner_name,
		rref_rank(r->base.owner));
}
