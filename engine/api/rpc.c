/* SPDX-License-Identifier: BSD-3-Clause */
/** Typed calls: far_rpc_sync() and far_rpc_async(). Application threads and handlers. */
#include "agent/agent.h"
#include "api/fast.h"
#include "api/parts.h"
#include "api/recv_buf.h"
#include "api/rref.h"
#include "api/site.h"
#include "base/error.h"
#include "base/must.h"
#include "base/shared.h"
#include "core/packet.h"
#include "core/shard.h"
#include "features/rendezvous/rendezvous.h"
#include "memory/budget.h"
#include "memory/heads.h"
#include "value/encoding_layout.h"
#include "value/encoding_split.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Arguments that match the signature, to be written to the message. `v` is the application's array or `converted`. */
struct arguments {
	size_t n;
	const struct far_val *v;
	struct values_plan plan;
	struct call_extra seen;
	struct far_val converted[FAR_ARGS_MAX];
};

static void write_arguments(const void *data, void *dst, size_t len, copy_fn *copy)
{
	const struct arguments *args = data;
	(void)len;
	values_write_by(args->v, args->n, &args->plan, dst, copy);
}

/* Writes the arguments of a rendezvous message to memory of their own. */
__attribute__((noinline, cold)) static enum far_status write_large(struct shard *s, struct call_start *start,
								   struct far_err *err)
{
	void *at;
	if (start->len > agent_message_max(s->config.agent, start->worker))
		return agent_start_error(s, -EMSGSIZE, start, err);
	struct rendezvous_out *o = rendezvous_out_alloc(start->len, &at);
	if (!o) {
		char why[BUDGET_TEXT_MAX];
		budget_text(why, sizeof why, start->len);
		return err_set(err, FAR_RESOURCE, "no memory for %zu bytes of arguments: %s", start->len, why);
	}
	start->write(start->data, at, start->len, NULL);
	start->write = NULL;
	start->ready = o->self;
	return FAR_OK;
}

static inline __attribute__((always_inline)) enum far_status check_call(const struct typed_call *c,
									struct arguments *checked,
									struct call_start *start,
									struct call_route *route, struct far_err *err)
{
	const struct function *fn = c->fn;
	if (unlikely(!fn))
		return FAR_NO_FUNCTION;
	enum far_status status = agent_route(c->agent, c->to, c->opts, fn->signature.name_hash, route, err);
	if (unlikely(status))
		return status;
	status = registry_fit(&fn, c->args, c->args_n, checked->converted, &checked->v, err);
	if (unlikely(status))
		return status;
	checked->n = fn->signature.params_n;
	size_t len = values_size(checked->v, checked->n, &checked->plan, err);
	if (unlikely(len == SIZE_MAX))
		return err ? err->status : FAR_BAD_ARGS;
	if (unlikely(checked->plan.customs | checked->plan.rrefs)) {
		if (checked->plan.rrefs) /* a request of api/rref.c */
			return FAR_PENDING;
		status = registry_check_customs(&c->agent->registry, checked->v, checked->n, err);
		if (status)
			return status;
	}
	*start = (struct call_start){.worker = (uint32_t)c->to.worker,
				     .shard = route->shard,
				     .fn = (uint16_t)fn->index,
				     .typed = PACKET_TYPED,
				     .done = NULL, /* and the next two: set by the caller */
				     .user = NULL,
				     .app = NULL,
				     .data = checked,
				     .len = len,
				     .write = write_arguments,
				     CALL_START_REST};
	agent_set_deadline(c->agent, route->via, c->opts, start);
	agent_show(start, &checked->seen, FAR_CALL_ASYNC, fn->signature.name, c->args, c->args_n);
	return FAR_OK;
}

static enum far_status prepare(const struct typed_call *c, struct arguments *checked, struct call_start *start,
			       struct call_route *route, struct far_err *err)
{
	enum far_status status = check_call(c, checked, start, route, err);
	return unlikely(!status && start->len > FAR_MSG_EAGER_MAX) ? write_large(route->via, start, err) : status;
}

static void written_large(const struct call_start *start)
{
	if (start->ready)
		rendezvous_out_unref(rendezvous_out_in(start->ready));
}

__attribute__((noinline, cold)) static enum far_status no_future(const struct call_start *start, struct far_err *err)
{
	written_large(start);
	return agent_no_future(err);
}

/* Starts a call with rendezvous arguments or a receive buffer. */
__attribute__((noinline, cold)) static enum far_status async_apart(struct shard *s, struct call_start *start,
								   const struct far_call_opts *opts,
								   struct far_future **out, struct far_err *err)
{
	struct far_future *f = future_alloc(s);
	if (!f)
		return no_future(start, err);
	future_mark_timed(f, FUTURE_CALL, start->left);
	start->done = agent_done_future;
	start->user = f;
	start->id = &f->call;
	if (recv_buf_given(opts)) {
		recv_buf_set(f, &opts->recv_buf);
		start->done = recv_buf_done;
	}
	enum far_status status = agent_start(s, start, err);
	written_large(start);
	if (status) {
		future_drop(f);
		return status;
	}
	*out = f;
	return FAR_OK;
}

enum far_status agent_prepare_rpc(const struct typed_call *c, agent_take_call *take, void *ctx, struct far_err *err)
{
	struct arguments checked;
	struct call_start start;
	struct call_route route;
	enum far_status status = prepare(c, &checked, &start, &route, err);
	if (likely(!status)) {
		take(ctx, &start);
		written_large(&start);
	}
	return status;
}

/* `function` becomes `c->fn`. */
__attribute__((noinline)) static enum far_status async_general(struct typed_call *c, const char *function,
							       struct far_future **out, struct far_err *err)
{
	struct arguments checked;
	struct call_start start;
	if (unlikely(!out))
		return err_set(err, FAR_INVALID, "far_rpc_async: `out`, for the future, must not be NULL");
	struct call_route route;
	c->fn = agent_find_function(c->agent, function, err);
	enum far_status status = prepare(c, &checked, &start, &route, err);
	if (unlikely(status))
		return status == FAR_PENDING ? typed_call_async(c, out, err) : status;
	if (unlikely(start.ready || recv_buf_given(c->opts)))
		return async_apart(route.via, &start, c->opts, out, err);
	struct far_future *f = future_alloc_handed(route.via);
	if (unlikely(!f))
		return no_future(&start, err);
	future_mark_timed(f, FUTURE_CALL, start.left);
	start.done = agent_done_future;
	start.user = f;
	start.id = &f->call;
	return agent_started(agent_start(route.via, &start, err), f, out);
}

/* ---- arguments in shared memory ---- */

static bool is_shared(const void *at, size_t len)
{
	uint32_t key;
	uint64_t offset;
	return len >= FAR_REFERRED_BYTES && (uintptr_t)at % WIRE_WIDE_ALIGN == 0 && shared_find(at, len, &key, &offset);
}

/* Makes a message of the arguments where they are; it takes `release` over. NULL: they are to be copied. */
static struct rendezvous_out *refer_arguments(const struct shard *s, const struct call_start *start,
					      const struct arguments *args, const struct far_zero_copy_call *call)
{
	struct values_part part[VALUES_PARTS_MAX];
	/* What is sent again, or shown to interceptors, is copied. */
	if (start->len < parts_least(s, start) || start->len > agent_message_max(s->config.agent, start->worker) ||
	    start->retry_ns || start->extra)
		return NULL;
	void *head = head_take();
	unsigned n = head ? values_split(args->v, args->n, &args->plan, is_shared, head, part) : 0;
	struct rendezvous_out *o = n ? rendezvous_out_new() : NULL;
	if (!o) {
		if (head)
			head_give(head);
		return NULL;
	}
	for (unsigned i = 0; i < n; i++)
		o->parts[i] = (struct far_part){part[i].at, part[i].len};
	o->parts_n = n;
	o->total = start->len;
	o->piece = head;
	o->released = true;
	o->release = call->release;
	o->release_user = call->release_user;
	return o;
}

static enum far_status start_zero_copy(const struct typed_call *c, const struct far_zero_copy_call *call,
				       struct far_future **out, bool *taken, struct far_err *err)
{
	struct arguments checked;
	struct call_start start;
	struct call_route route;
	enum far_status status = check_call(c, &checked, &start, &route, err);
	if (status)
		return status == FAR_PENDING ? typed_call_async(c, out, err) : status;
	struct rendezvous_out *o = refer_arguments(route.via, &start, &checked, call);
	*taken = o != NULL;
	if (o) {
		start.ready = o->self;
		start.write = NULL;
	} else if (start.len > FAR_MSG_EAGER_MAX) {
		status = write_large(route.via, &start, err);
	}
	return status ? status : async_apart(route.via, &start, c->opts, out, err);
}

enum far_status far_rpc_async_zero_copy(struct far_agent *a, const struct far_zero_copy_call *call,
					struct far_future **out, struct far_err *err)
{
	bool taken = false;
	enum far_status status = FAR_INVALID;
	if (!call || !call->release)
		return err_set(err, FAR_INVALID,
			       "far_rpc_async_zero_copy: give a call with a release callback, or use far_rpc_async_to");
	struct typed_call c = {
		.agent = a, .to = call->to, .args = call->args, .args_n = call->args_n, .opts = call->opts};
	if (!out)
		err_set(err, FAR_INVALID, "far_rpc_async_zero_copy: `out`, for the future, must not be NULL");
	else if (!(c.fn = agent_find_function(a, call->function, err)))
		status = FAR_NO_FUNCTION;
	else
		status = start_zero_copy(&c, call, out, &taken, err);
	if (!taken)
		call->release(call->release_user);
	return status;
}

/* ---- the fast path ---- */

/* Sends a typed call and returns its future, and its session; NULL: the general code decides. */
static inline __attribute__((always_inline)) struct far_future *
call_fast(const struct typed_call *c, const char *function, struct shard *s, uint64_t left, struct session **out)
{
	struct call_site *site = site_of(c->agent, s, function, 0);
	struct session *se =
		likely(site) ? agent_fast_session(c->agent, s, c->to, &site->fn->signature.name_hash) : NULL;
	*out = se;
	return likely(se) ? site_call(s, se, site, left, 0, c->args, c->args_n) : NULL;
}

enum far_status far_rpc_async_to(struct far_agent *a, struct far_to to, const char *function,
				 const struct far_val *args, size_t args_n, const struct far_call_opts *opts,
				 struct far_future **out, struct far_err *err)
{
	uint64_t left;
	struct session *se;
	struct shard *s = likely(!opts && out) ? agent_fast_shard(a, &left) : NULL;
	struct far_future *f = NULL;
	if (likely(s != NULL))
		f = call_fast(&(struct typed_call){.agent = a, .to = to, .args = args, .args_n = args_n}, function, s,
			      left, &se);
	if (unlikely(!f))
		return async_general(
			&(struct typed_call){.agent = a, .to = to, .args = args, .args_n = args_n, .opts = opts},
			function, out, err);
	scope_gather(f);
	*out = f;
	return FAR_OK;
}

__attribute__((noinline, cold)) static enum far_status sync_apart(struct shard *s, struct call_start *start,
								  struct far_future *f,
								  const struct far_call_opts *opts, struct far_val *out,
								  struct far_err *err)
{
	struct far_val v;
	const uint64_t left = start->left;
	enum far_status status;
	if (recv_buf_given(opts)) {
		recv_buf_set(f, &opts->recv_buf);
		status = agent_call_and_wait_recv_buf(s, start, f, err);
	} else {
		status = agent_call_and_wait(s, start, f, err);
	}
	written_large(start);
	if (status) {
		buf_unref(&f->head);
		return status;
	}
	status = agent_result_last(f, &v, err);
	if (status)
		return status == FAR_TIMEOUT ? agent_timed_out(left, err) : status;
	if (recv_buf_given(opts))
		status = recv_buf_move(&v, &opts->recv_buf, err);
	if (!status && out)
		*out = v;
	else
		far_val_fini(&v);
	return status;
}

/* Calls and waits, holding the shard; the thread has no context, or may wait with its shard. NULL: the general code
 * decides. */
static struct far_future *call_and_wait_fast(const struct typed_call *c, const char *function)
{
	uint64_t left;
	bool entered;
	struct session *se;
	struct far_future *f = NULL;
	if (unlikely(!site_enter(c->agent, &entered)))
		return NULL;
	struct shard *s = agent_fast_shard(c->agent, &left);
	if (likely(s && agent_may_wait_fast(s)))
		f = call_fast(c, function, s, left, &se);
	if (likely(f != NULL))
		site_await(s, se, f);
	if (entered)
		shard_leave(c->agent->shards[0]);
	return f;
}

/* `function` becomes `c->fn`. */
__attribute__((noinline)) static enum far_status sync_general(struct typed_call *c, const char *function,
							      struct far_val *out, struct far_err *err);

enum far_status far_rpc_sync_to(struct far_agent *a, struct far_to to, const char *function, const struct far_val *args,
				size_t args_n, const struct far_call_opts *opts, struct far_val *out,
				struct far_err *err)
{
	struct typed_call c = {.agent = a, .to = to, .args = args, .args_n = args_n, .opts = opts};
	struct far_future *f = likely(!opts) ? call_and_wait_fast(&c, function) : NULL;
	if (unlikely(!f))
		return sync_general(&c, function, out, err);
	return agent_result_last(f, out, err);
}

static enum far_status sync_general(struct typed_call *c, const char *function, struct far_val *out,
				    struct far_err *err)
{
	struct arguments checked;
	struct call_start start;
	struct call_route route;
	enum far_status status = agent_may_wait("far_rpc_sync", err);
	if (unlikely(status))
		return status;
	c->fn = agent_find_function(c->agent, function, err);
	status = prepare(c, &checked, &start, &route, err);
	if (unlikely(status))
		return status == FAR_PENDING ? typed_call_sync(c, out, err) : status;
	if (unlikely(start.extra != NULL))
		start.extra->mode = FAR_CALL_SYNC;
	struct far_future *f = future_alloc_handed(route.via);
	if (unlikely(!f))
		return no_future(&start, err);
	if (unlikely(start.ready || recv_buf_given(c->opts)))
		return sync_apart(route.via, &start, f, c->opts, out, err);
	return agent_call_and_take(route.via, &start, f, out, err);
}

enum far_status far_rpc_sync(struct far_agent *a, const char *to, const char *function, const struct far_val *args,
			     size_t args_n, const struct far_call_opts *opts, struct far_val *out, struct far_err *err)
{
	int rank = agent_find_worker(a, to, err);
	if (unlikely(rank < 0))
		return FAR_UNKNOWN_WORKER;
	return far_rpc_sync_to(a, (struct far_to){rank, -1}, function, args, args_n, opts, out, err);
}

enum far_status far_rpc_async(struct far_agent *a, const char *to, const char *function, const struct far_val *args,
			      size_t args_n, const struct far_call_opts *opts, struct far_future **out,
			      struct far_err *err)
{
	int rank = agent_find_worker(a, to, err);
	if (unlikely(rank < 0))
		return FAR_UNKNOWN_WORKER;
	return far_rpc_async_to(a, (struct far_to){rank, -1}, function, args, args_n, opts, out, err);
}
