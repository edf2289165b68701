/* SPDX-License-Identifier: BSD-3-Clause */
/** Starts fan-outs: checks, the record, the hand-over of n calls to the shard. Application threads and handlers. */
#include "features/fanout/fanout.h"

#include "agent/agent.h"
#include "api/fast.h"
#include "api/rref.h"
#include "base/error.h"
#include "base/must.h"
#include "core/call.h"
#include "core/call_cancel.h"
#include "core/context.h"
#include "core/packet.h"
#include "core/shard.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

/* State of one far_*_fanout(), on the caller's stack. */
struct plan {
	struct far_agent *a;
	struct shard *s;      /* sends all calls: the calling thread's */
	uint64_t hash;        /* chooses the shard of targets with shard −1 */
	const char *what;     /* "far_rpc_fanout": prefix of error texts */
	const char *function; /* NULL: a message, `id` */
	const struct function *fn;
	uint16_t id;
	const struct far_target *targets;
	size_t n;
	const struct far_fanout_opts *opts;
	struct far_call_opts call_opts;
	struct far_target_result *results;
	struct far_err *err;
	enum far_status status;
	struct far_future *future;
	struct fanout *fo;
	const struct call_start *common;   /* the common request; NULL: no target uses it */
	const struct far_val *common_args; /* instead of `common` if they hold references; else NULL */
	size_t common_n;
	bool on_shard; /* this thread holds `s` and sends directly */
	uint32_t i;    /* target being prepared, [0, n) */
};

/* ---- checks ---- */

static enum far_status check_opts(const struct plan *p)
{
	const struct far_fanout_opts *o = p->opts;
	size_t bytes;
	if (p->n > FAR_FANOUT_MAX || (p->n && !p->targets))
		return err_set(p->err, FAR_INVALID, "%s: %zu targets; give an array of at most %d", p->what, p->n,
			       FAR_FANOUT_MAX);
	if (o->k > p->n)
		return err_set(p->err, FAR_INVALID, "%s: k is %zu, but there are %zu targets", p->what, o->k, p->n);
	if ((unsigned)o->errors > FAR_ERRORS_COLLECT || (unsigned)o->hedge > FAR_HEDGE_NEXT ||
	    (unsigned)o->dtype >= FAR_DTYPE_COUNT)
		return err_set(p->err, FAR_INVALID, "%s: options: errors, hedge or dtype is out of range", p->what);
	if (o->slices && o->slice_bytes)
		return err_set(p->err, FAR_INVALID, "%s: options: give slices or slice_bytes, not both", p->what);
	if (!o->recv_buf && (o->slices || o->slice_bytes))
		return err_set(p->err, FAR_INVALID, "%s: options: slices need the buffer `recv_buf`", p->what);
	if (__builtin_mul_overflow(o->slice_bytes, p->n, &bytes))
		return err_set(p->err, FAR_INVALID, "%s: %zu slices of %zu bytes are more than any buffer holds",
			       p->what, p->n, o->slice_bytes);
	return FAR_OK;
}

static enum far_status check_target(const struct plan *p, size_t i)
{
	const struct far_target *t = &p->targets[i];
	const char *wrong = NULL;
	if (likely(!t->data && !t->len && !t->args && !t->args_n && !t->recv_buf && !t->cap && !t->out))
		return FAR_OK;
	if (p->function ? t->data || t->len : t->args || t->args_n)
		wrong = p->function ? "`data` is a message's; a function takes `args`"
				    : "`args` are a function's; a message takes `data`";
	else if (p->opts->recv_buf && (t->recv_buf || t->out))
		wrong = "the options have one buffer for all; leave the target's own `recv_buf` and `out` empty";
	else if (t->recv_buf && t->out)
		wrong = "give `recv_buf` or `out`, not both";
	else if (!t->recv_buf && t->cap)
		wrong = "`cap` is given without `recv_buf`";
	else if (t->out && !p->function)
		wrong = "`out` takes tensors, and messages have none; give `recv_buf`";
	else if (t->out && (t->out->ndim > FAR_DIMS_MAX || !far_dtype_size((enum far_dtype)t->out->dtype) ||
			    far_tensor_bytes(t->out) == SIZE_MAX || (!t->out->data && far_tensor_bytes(t->out))))
		wrong = "`out` is no tensor that can be written: its dtype, ndim, shape or data";
	return wrong ? err_set(p->err, FAR_INVALID, "%s: target %zu: %s", p->what, i, wrong) : FAR_OK;
}

static enum far_status not_idempotent(const struct plan *p, struct far_err *err)
{
	char message[32];
	snprintf(message, sizeof message, "message %u", p->id);
	return err_set(
		err, FAR_INVALID,
		"%s: %s cannot be hedged, because it may run twice then; register it here with FAR_IDEMPOTENT if "
		"that does no harm",
		p->what, p->function ? p->function : message);
}

/* True if the function or handler may run twice. */
static bool idempotent(const struct plan *p, uint16_t number)
{
	const struct registry *r = &p->a->registry;
	if (p->function) {
		const struct function *fn = registry_at(r, number);
		return fn && fn->idempotent;
	}
	const struct message_handler *m = registry_message(r, number);
	return m && m->idempotent;
}

static enum far_status check(const struct plan *p, struct far_future *const *out)
{
	if (!out)
		return err_set(p->err, FAR_INVALID, "%s: `out`, for the future, must not be NULL", p->what);
	enum far_status status = check_opts(p);
	for (size_t i = 0; i < p->n && !status; i++)
		status = check_target(p, i);
	return status;
}

/* ---- the record ---- */

/* Sets the hedge destinations: the next target of another worker, cyclically. Two rounds from the end, because the last
 * targets continue at the first. */
static void hedge_to_next(struct fanout *fo)
{
	for (uint32_t left = 2 * fo->n; left-- > 0;) {
		struct fanout_target *t = &fo->target[left % fo->n], *next = &fo->target[(left + 1) % fo->n];
		t->hedge_to = next->to.worker != t->to.worker ? next->to : next->hedge_to;
	}
}

static void fill_targets(struct fanout *fo, const struct plan *p)
{
	const struct far_fanout_opts *o = p->opts;
	bool seconds = o->hedge_after_ns && o->hedge == FAR_HEDGE_SECOND;
	char *at = o->recv_buf;
	memset(fo->target, 0, fo->n * sizeof *fo->target);
	for (uint32_t i = 0; i < fo->n; i++) {
		const struct far_target *given = &p->targets[i];
		struct fanout_target *t = &fo->target[i];
		size_t slice = o->slices ? o->slices[i] : o->slice_bytes;
		t->recv_buf = o->recv_buf ? at : given->recv_buf;
		t->cap = o->recv_buf ? slice : given->cap;
		t->to = given->to;
		t->hedge_to = seconds && given->second ? *given->second : (struct far_to){-1, -1};
		t->attempt[0].fanout = t->attempt[1].fanout = fo;
		t->attempt[1].second = 1;
		if (o->recv_buf)
			at += slice;
		if (p->results) {
			struct far_target_result *r = &p->results[i];
			memset(r, 0, offsetof(struct far_target_result, text) + 1);
			r->status = FAR_PENDING;
			r->from = given->to;
		}
	}
	if (o->hedge_after_ns && o->hedge == FAR_HEDGE_NEXT)
		hedge_to_next(fo);
}

static enum far_status make_record(struct plan *p, const struct call_start *common)
{
	const struct far_fanout_opts *o = p->opts;
	struct shard *s = p->s;
	struct far_buf *buf = buf_alloc(sizeof(struct fanout) + p->n * sizeof(struct fanout_target));
	if (!buf)
		return err_set(p->err, FAR_RESOURCE, "%s: no memory for a fan-out to %zu targets; free some results",
			       p->what, p->n);
	p->future = future_alloc(s);
	if (!p->future) {
		buf_unref(buf);
		return agent_no_future(p->err);
	}
	future_mark(p->future, FUTURE_FANOUT);
	buf_ref(&p->future->head);
	struct fanout *fo = buf_data(buf);
	*fo = (struct fanout){.buf = buf,
			      .shard = s,
			      .future = p->future,
			      .complete = agent_complete,
			      .start = {.typed = p->function ? PACKET_TYPED : 0},
			      .name = p->fn ? p->fn->signature.name : NULL,
			      .message = p->id,
			      .targets = p->targets,
			      .results = p->results,
			      .n = (uint32_t)p->n,
			      .k = (uint32_t)(o->k ? o->k : p->n),
			      .partial = o->partial,
			      .errors = o->errors,
			      .dtype = o->dtype,
			      .hedge_at = TIME_NEVER};
	if (common && p->function) { /* with its deadline, just prepared */
		fo->start.deadline = common->deadline;
		fo->start.left = common->left;
	} else {
		agent_set_deadline(p->a, s, &p->call_opts, &fo->start);
	}
	fo->timeout = fo->start.left;
	if (o->hedge_after_ns)
		fo->hedge_at = time_after(clock_now(p->a->clock), o->hedge_after_ns);
	fill_targets(fo, p);
	p->fo = fo;
	return FAR_OK;
}

/* ---- n calls ---- */

static void take_request(struct plan *p, const struct call_start *start, bool common)
{
	struct far_err err;
	if (unlikely(p->opts->hedge_after_ns) && !common && !idempotent(p, start->fn))
		fanout_refuse(p->fo, p->i, not_idempotent(p, &err), err.text);
	else if (unlikely(start->len > FAR_MSG_EAGER_MAX))
		fanout_refuse(p->fo, p->i, FAR_TOO_LARGE,
			      "the request is longer than an eager message; fan-outs take no other");
	else if (likely(p->on_shard))
		fanout_launch(p->fo, p->i, start, common);
	else if (fanout_keep(p->fo, p->i, start, common))
		fanout_refuse(p->fo, p->i, FAR_RESOURCE, "no memory to hand the request over");
}

static void take_own(void *plan, const struct call_start *start)
{
	take_request(plan, start, false);
}

/* Checks a destination and replaces shard −1. */
static enum far_status resolve(const struct plan *p, struct far_to *to, struct far_err *err)
{
	struct call_route route;
	enum far_status status = agent_route(p->a, *to, NULL, p->hash, &route, err);
	if (likely(!status))
		to->shard = route.shard;
	return status;
}

static struct typed_call call_of(const struct plan *p, struct far_to to, const struct far_val *args, size_t n)
{
	return (struct typed_call){
		.agent = p->a, .fn = p->fn, .to = to, .args = args, .args_n = n, .opts = &p->call_opts};
}

/* Every request carries forks of its own, so there is no common request. For the same reason none can be hedged. */
static enum far_status start_with_references(struct plan *p, const struct typed_call *c, struct far_err *err)
{
	struct rref_pins **pins = &p->fo->target[p->i].pins;
	if (p->opts->hedge_after_ns)
		return err_set(
			err, FAR_UNSUPPORTED,
			"%s: calls with references among their arguments cannot be hedged; leave hedge_after_ns 0",
			p->what);
	return rref_prepare(c, p->s, pins, take_own, p, err);
}

static void start_target(struct plan *p, uint32_t i)
{
	const struct far_target *t = &p->targets[i];
	struct far_to *second = &p->fo->target[i].hedge_to;
	struct far_err err;
	p->i = i;
	enum far_status status = resolve(p, &p->fo->target[i].to, &err);
	if (likely(!status) && unlikely(second->worker >= 0))
		status = resolve(p, second, &err);
	if (likely(!status)) {
		if (t->args) {
			const struct typed_call c = call_of(p, p->fo->target[i].to, t->args, t->args_n);
			status = agent_prepare_rpc(&c, take_own, p, &err);
			if (status == FAR_PENDING)
				status = start_with_references(p, &c, &err);
		} else if (unlikely(p->common_args != NULL)) {
			const struct typed_call c = call_of(p, p->fo->target[i].to, p->common_args, p->common_n);
			status = start_with_references(p, &c, &err);
		} else if (t->data) {
			struct call_extra seen;
			struct call_start own = {.fn = p->id, .data = t->data, .len = t->len};
			agent_show(&own, &seen, FAR_CALL_MESSAGE, NULL, NULL, 0);
			take_request(p, &own, false);
		} else {
			take_request(p, p->common, true);
		}
	}
	if (unlikely(status))
		fanout_refuse(p->fo, i, status, err.text);
}

/* A target of the common request, by the fast path. false: the general code decides. */
static inline bool start_line(const struct plan *p, struct fanout_line *line, uint32_t i)
{
	const struct far_target *t = &p->targets[i];
	struct session *se = agent_fast_session(p->a, p->s, t->to, &p->hash);
	if (unlikely(!se || t->args || t->data))
		return false;
	unsigned number = (uint16_t)line->call.what;
	if (p->function) {
		number = session_functions(p->s, se)[number];
		if (unlikely(!number)) /* not known yet at the callee */
			return false;
		number--;
	}
	fanout_launch_line(p->fo, i, se, line, number);
	return true;
}

/* `common` and what it points to are readable until this returns. */
static void start_all(void *plan, const struct call_start *common)
{
	struct plan *p = plan;
	struct shard *s = p->s;
	struct far_err *err = p->err;
	p->common = common;
	if (p->opts->hedge_after_ns && common && !idempotent(p, common->fn)) {
		p->status = not_idempotent(p, err);
		return;
	}
	p->status = make_record(p, common);
	if (p->status)
		return;
	uint32_t n = p->fo->n;
	bool held = shard_held(s), entered = !held && s->config.progress == FAR_PROGRESS_SHARED && shard_enter(s);
	atomic_fetch_add_explicit(&s->fanouts_begun, 1, memory_order_relaxed);
	p->on_shard = held || entered;
	if (p->on_shard)
		fanout_begin(p->fo);
	struct fanout_line line;
	bool fast = p->on_shard && common && !common->extra && !p->opts->hedge_after_ns &&
		    fanout_line(p->fo, common, &line);
	for (uint32_t i = 0; i < n; i++)
		if (!fast || !start_line(p, &line, i))
			start_target(p, i);
	if (p->on_shard)
		fanout_launched(p->fo);
	else
		fanout_submit(p->fo);
	if (entered)
		shard_leave_quietly(s, false);
}

/* True if a target uses the common request. */
static bool common_wanted(const struct plan *p)
{
	for (size_t i = 0; i < p->n; i++)
		if (!p->targets[i].args && !p->targets[i].data)
			return true;
	return p->n == 0;
}

static enum far_status give(const struct plan *p, struct far_future **out)
{
	scope_gather(p->future);
	*out = p->future;
	return FAR_OK;
}

static const struct far_fanout_opts defaults;

enum far_status far_rpc_fanout(struct far_agent *a, const char *function, const struct far_val *args, size_t args_n,
			       const struct far_target *targets, size_t n, const struct far_fanout_opts *opts,
			       struct far_target_result *results, struct far_future **out, struct far_err *err)
{
	struct plan p = {.a = a,
			 .s = agent_shard_of_thread(a),
			 .what = "far_rpc_fanout",
			 .function = function ? function : "(NULL)",
			 .targets = targets,
			 .n = n,
			 .opts = opts ? opts : &defaults,
			 .results = results,
			 .err = err};
	p.call_opts.timeout_ns = p.opts->timeout_ns;
	enum far_status status = check(&p, out);
	if (status)
		return status;
	const struct function *fn = agent_find_function(a, function, err);
	if (!fn)
		return FAR_NO_FUNCTION;
	p.hash = fn->signature.name_hash;
	p.fn = fn;
	if (p.opts->hedge_after_ns && !common_wanted(&p) && !fn->idempotent)
		return not_idempotent(&p, err);
	if (common_wanted(&p)) {
		const struct typed_call c = call_of(&p, (struct far_to){a->rank, -1}, args, args_n);
		status = agent_prepare_rpc(&c, start_all, &p, err);
	} else {
		start_all(&p, NULL);
	}
	if (unlikely(status == FAR_PENDING)) { /* the arguments hold references */
		p.common_args = args;
		p.common_n = args_n;
		status = FAR_OK;
		start_all(&p, NULL);
	}
	status = status ? status : p.status;
	return status ? status : give(&p, out);
}

enum far_status far_msg_fanout(struct far_agent *a, uint16_t id, const void *data, size_t len,
			       const struct far_target *targets, size_t n, const struct far_fanout_opts *opts,
			       struct far_target_result *results, struct far_future **out, struct far_err *err)
{
	struct plan p = {.a = a,
			 .s = agent_shard_of_thread(a),
			 .hash = id,
			 .what = "far_msg_fanout",
			 .id = id,
			 .targets = targets,
			 .n = n,
			 .opts = opts ? opts : &defaults,
			 .results = results,
			 .err = err};
	p.call_opts.timeout_ns = p.opts->timeout_ns;
	enum far_status status = check(&p, out);
	if (status)
		return status;
	if (id >= FAR_MSG_HANDLERS_MAX)
		return err_set(err, FAR_INVALID, "message ids are in [0, %d)", FAR_MSG_HANDLERS_MAX);
	if (len > FAR_MSG_EAGER_MAX)
		return err_set(err, FAR_TOO_LARGE, "a message of %zu bytes; %zu at most", len, FAR_MSG_EAGER_MAX);
	struct call_extra seen;
	struct call_start common = {.fn = id, .data = data, .len = len};
	agent_show(&common, &seen, FAR_CALL_MESSAGE, NULL, NULL, 0);
	start_all(&p, &common);
	return p.status ? p.status : give(&p, out);
}

/* ---- release ---- */

/* A stepped shard is polled in its turns only: poll it here. shard_wake() gives it a turn, also if it slept. */
static void drive_stepped(struct shard *s)
{
	if (!s->config.stepped || !shard_enter(s))
		return;
	shard_leave(s);
	shard_wake(s);
}

void fanout_release(struct far_future *f)
{
	/* Two references: the application's and the fan-out's. More: another thread still waits for the result. */
	if (atomic_load_explicit(&f->head.refs, memory_order_acquire) > 2)
		return;
	bool cancelled = shard_held(f->shard) && call_cancel_future(f->shard, f);
	while (!future_done(f)) {
		if (!cancelled)
			cancelled = far_future_cancel(f, NULL) == FAR_OK;
		if (future_done(f))
			return;
		if (shard_in_handler() || agent_wait_future(f, TIME_NEVER)) { /* another shard's */
			shard_notify(f->shard);
			drive_stepped(f->shard);
			sched_yield();
		}
	}
}
