/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Shows requests to the interceptors at the callee. Shard thread, but for what runs around a handler and for
 * intercept_return(): their thread.
 */
#include "features/intercept/intercept.h"

#include "base/error.h"
#include "base/must.h"
#include "core/deferred.h"
#include "core/dispatch.h"
#include "core/feature.h"
#include "core/flow.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/timer.h"
#include "features/features.h"
#include "features/profile/probes.h"
#include "features/profile/profile.h"
#include "features/references/wire.h"
#include "value/tree.h"

#include <stdio.h>
#include <string.h>

/* Of a request with fields for interceptors. At the beginning of a buffer. */
struct intercepted {
	struct request_extra extra; /* first: far_deferred.extra */
	struct far_buf *buf;
	_Atomic uint32_t refs; /* of the record, and of the handler while it runs or is to run */
	uint32_t mask;         /* interceptors with fields; references */
	uint32_t begun;        /* those whose request_in returned FAR_OK */
	bool replied;
	struct far_call_info info;
	struct message_handler handler;        /* runs `message` */
	const struct message_handler *message; /* NULL: a function or a fetch */
	void *cookie[FLOW_POINTERS];
	uint32_t bytes;
	uint8_t data[];
};

static void unref(struct intercepted *r)
{
	if (atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1)
		return;
	for (uint32_t left = r->begun; left; left &= left - 1) {
		unsigned id = (unsigned)__builtin_ctz(left);
		const struct far_interceptor *i = intercept_at(id);
		if (i->request_over)
			i->request_over(r->cookie[id], i->user);
	}
	intercept_give(r->mask);
	buf_unref(r->extra.tlv);
	buf_unref(r->buf);
}

static void ref(struct intercepted *r)
{
	atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
}

static void end(struct intercepted *r, enum far_status status)
{
	for (uint32_t left = r->begun; left; left &= left - 1) {
		unsigned id = (unsigned)__builtin_ctz(left);
		const struct far_interceptor *i = intercept_at(id);
		if (i->request_end)
			i->request_end(&r->info, status, r->cookie[id], i->user);
	}
}

/* Calls request_in of each. Not FAR_OK: one has failed the request; those before it have ended. */
static enum far_status begin(struct intercepted *r, struct far_err *err)
{
	struct far_tlv_in in = {.data = r->data, .bytes = r->bytes};
	for (uint32_t left = r->mask; left; left &= left - 1) {
		unsigned id = (unsigned)__builtin_ctz(left);
		const struct far_interceptor *i = intercept_at(id);
		in.first = i->tlv_first;
		in.last = i->tlv_last;
		memset(err, 0, sizeof *err);
		enum far_status status =
			i->request_in ? i->request_in(&r->info, &in, &r->cookie[id], err, i->user) : FAR_OK;
		if (!status) {
			r->begun |= UINT32_C(1) << id;
			continue;
		}
		err->status = status < FAR_STATUS_COUNT ? status : FAR_REMOTE;
		if (!err->text[0])
			snprintf(err->text, sizeof err->text,
				 "the interceptor \"%s\" of the callee failed the call: %s", i->name,
				 far_status_text(err->status));
		end(r, err->status);
		return err->status;
	}
	return FAR_OK;
}

static void fail(struct far_req *req, const struct far_err *err)
{
	dispatch_error(req, err->status, FAR_EXECUTED_NO, err->code, err->text, strlen(err->text));
}

/* ---- around a handler, on its thread ---- */

static enum far_status run_function(struct far_req *req, const struct far_val *args, size_t n)
{
	struct intercepted *r = (struct intercepted *)(void *)req->record->extra;
	const struct function *fn = req->fn;
	struct flow_frame frame;
	struct far_err err;
	ref(r);
	r->info.function = fn->signature.name;
	r->info.args = args;
	r->info.args_n = n;
	flow_enter(&frame, NULL);
	enum far_status status = begin(r, &err);
	r->info.args = NULL; /* the answer may be seen when they are gone */
	r->info.args_n = 0;
	if (status) {
		fail(req, &err);
	} else {
		status = fn->fn(req, args, n, fn->user);
		end(r, status);
	}
	flow_leave(&frame);
	unref(r);
	return status;
}

static void run_message(struct far_req *req, const void *data, size_t len, void *user)
{
	struct intercepted *r = user;
	struct flow_frame frame;
	struct far_err err;
	flow_enter(&frame, NULL);
	if (begin(r, &err)) {
		fail(req, &err);
	} else {
		r->message->fn(req, data, len, r->message->user);
		end(r, FAR_OK);
	}
	flow_leave(&frame);
	unref(r);
}

/* ---- a request arrives ---- */

/* Checks the fields. Sets the interceptors that have some; false: the request was refused. */
static bool read_fields(struct far_req *req, const uint8_t *data, size_t bytes, uint32_t all, uint32_t *mask)
{
	char text[FAR_ERR_TEXT_MAX];
	size_t at = 0;
	if (!tlv_well_formed(data, bytes)) {
		static const char malformed[] = "malformed request: its fields of type, length and value";
		counter_add(&req->shard->counters.packets_dropped, 1);
		dispatch_error(req, FAR_PROTOCOL, FAR_EXECUTED_NO, 0, malformed, sizeof malformed - 1);
		return false;
	}
	while (at < bytes) {
		const void *value;
		size_t len;
		bool mandatory;
		uint16_t type = tlv_take(data, &at, &value, &len, &mandatory);
		uint32_t of = intercept_of_type(all, type);
		*mask |= of;
		if (of || !mandatory)
			continue;
		int n = snprintf(
			text, sizeof text,
			"the request has the mandatory field %#x, and worker \"%s\" has no interceptor for it; "
			"add one there with far_interceptor_add",
			type, req->shard->config.name);
		dispatch_error(req, FAR_UNSUPPORTED, FAR_EXECUTED_NO, 0, text, (size_t)n);
		return false;
	}
	return true;
}

static enum far_call_mode mode_of(const struct far_req *req, const union packet_head *h)
{
	if (req->answer == ANSWER_ONEWAY)
		return FAR_CALL_ONEWAY;
	if (h->flags & PACKET_TYPED)
		return h->flags & PACKET_NAMED && !(h->flags & PACKET_METHOD) ? FAR_CALL_REMOTE : FAR_CALL_ASYNC;
	switch (h->request.handler) {
	case RREF_REMOTE:
	case RREF_METHOD_REMOTE:
		return FAR_CALL_REMOTE;
	case RREF_FETCH:
	case RREF_TYPE:
		return FAR_CALL_FETCH;
	case RREF_CALL:
	case RREF_METHOD:
		return FAR_CALL_ASYNC;
	default:
		return FAR_CALL_MESSAGE;
	}
}

/* The record of a request whose answer interceptors see: it is open from now on. */
static bool open_record(struct far_req *req)
{
	static const char text[] = "the callee keeps too many requests open (its opts.deferred) for its interceptors";
	struct shard *s = req->shard;
	if (req->record)
		return true;
	struct far_deferred *d = deferred_alloc(s, req->session, req->call, req->gen, NULL, false);
	if (!d) {
		dispatch_error(req, FAR_RESOURCE, FAR_EXECUTED_NO, 0, text, sizeof text - 1);
		return false;
	}
	d->owned = true;
	deferred_record(req, d);
	return true;
}

static struct intercepted *intercepted_new(const struct far_req *req, const union packet_head *h, const uint8_t *data,
					   size_t bytes, uint32_t mask)
{
	const struct shard *s = req->shard;
	struct far_buf *buf = buf_alloc(sizeof(struct intercepted) + bytes);
	if (!buf)
		return NULL;
	struct intercepted *r = buf_data(buf);
	memset(r, 0, sizeof *r);
	atomic_store_explicit(&r->refs, 1, memory_order_relaxed);
	r->buf = buf;
	r->mask = mask;
	r->info = (struct far_call_info){.agent = s->config.agent,
					 .mode = mode_of(req, h),
					 .from = {(int32_t)req->from, (int32_t)req->from_shard},
					 .to = {(int32_t)s->config.rank, (int32_t)s->config.index},
					 .message = h->flags & PACKET_TYPED ? 0 : h->request.handler,
					 .received_ns = clock_now(s->config.clock)};
	r->bytes = (uint32_t)bytes;
	memcpy(r->data, data, bytes);
	return r;
}

/* Runs a message, which has a handler. */
static void run(struct far_req *req, struct intercepted *r, const struct message_handler *m, const uint8_t *body,
		uint64_t len)
{
	bool oneway = req->answer == ANSWER_ONEWAY;
	r->message = m;
	r->handler.fn = run_message;
	r->handler.kind = m->kind;
	r->handler.user = r;
	memcpy(r->handler.name, m->name, sizeof m->name);
	ref(r);
	dispatch_to(req, &r->handler, body, len);
	if (m->kind != FAR_KIND_INLINE && req->answer == ANSWER_SENT) /* refused: it will not run */
		unref(r);
	if (oneway)
		unref(r);
}

static bool fields(struct far_req *req, const union packet_head *h, const uint8_t *body, uint64_t *len)
{
	static const char no_memory[] = "the callee has no memory for what its interceptors keep of the request";
	uint8_t data[FAR_TLV_BYTES_MAX];
	uint32_t bytes = h->call.tlv_bytes, trailer = h->flags & PACKET_HASHED ? sizeof(struct packet_hash) : 0;
	uint32_t all = intercept_take(&intercept_present, req->shard->config.agent), mask = 0;
	bool whole = *len >= bytes + (uint64_t)trailer; /* else malformed, as its hash is */
	*len -= whole ? bytes : *len;
	if (bytes > sizeof data || !whole) {
		static const char text[] = "malformed request: it ends within its fields";
		counter_add(&req->shard->counters.packets_dropped, 1);
		dispatch_error(req, FAR_PROTOCOL, FAR_EXECUTED_NO, 0, text, sizeof text - 1);
		intercept_give(all);
		return false;
	}
	memcpy(data, body + *len, bytes);
	bool good = read_fields(req, data, bytes, all, &mask);
	if (req->shard->shown && (h->flags & PACKET_TYPED || h->request.handler != RREF_CONTROL))
		mask |= all & atomic_load_explicit(&intercept_every, memory_order_relaxed);
	intercept_give(all & ~mask);
	if (!good || !mask) {
		intercept_give(mask);
		return good;
	}
	bool oneway = req->answer == ANSWER_ONEWAY;
	struct intercepted *r = oneway || open_record(req) ? intercepted_new(req, h, data, bytes, mask) : NULL;
	if (!r) {
		if (req->answer != ANSWER_SENT)
			dispatch_error(req, FAR_RESOURCE, FAR_EXECUTED_NO, 0, no_memory, sizeof no_memory - 1);
		intercept_give(mask);
		return false;
	}
	if (!oneway) {
		req->record->extra = &r->extra;
		req->record->features |= FEATURE_BIT(FEATURE_INTERCEPT);
	}
	if (h->flags & PACKET_TYPED)
		return true;
	struct far_err err;
	const struct message_handler *m = registry_message(req->shard->registry, h->request.handler);
	if (m)
		run(req, r, m, body, *len);
	else if (r->info.mode == FAR_CALL_FETCH && begin(r, &err))
		fail(req, &err);
	else
		return true;
	return false;
}

/* ---- its answer ---- */

static void reply(struct far_deferred *d, const struct far_val *value, const struct far_err *err)
{
	struct intercepted *r = (struct intercepted *)(void *)d->extra;
	struct far_tlv_out out = {.bytes = 0};
	bool failed;
	r->replied = true;
	for (uint32_t left = r->begun; left; left &= left - 1) {
		unsigned id = (unsigned)__builtin_ctz(left);
		const struct far_interceptor *i = intercept_at(id);
		out.first = i->tlv_first;
		out.last = i->tlv_last;
		if (i->reply_out)
			i->reply_out(&r->info, value, err, &out, r->cookie[id], i->user);
	}
	r->extra.tlv = tlv_block_of(&out, &failed); /* without memory the answer goes without */
}

void intercept_return(struct far_deferred *d, const struct far_val *value)
{
	const struct intercepted *r = (const struct intercepted *)(const void *)d->extra;
	if (!r->replied && r->begun)
		reply(d, value, NULL);
}

static void reply_failed(struct far_deferred *d)
{
	struct far_err err = {
		.status = (enum far_status)d->status, .executed = (enum far_executed)d->executed, .code = d->code};
	size_t n = d->len < sizeof err.text ? d->len : sizeof err.text - 1;
	if (n && d->buf)
		memcpy(err.text, buf_data(d->buf), n);
	reply(d, NULL, &err);
}

/* Results that no far_val was given for. */
static void answered(struct shard *s, struct far_deferred *d)
{
	struct intercepted *r = (struct intercepted *)(void *)d->extra;
	struct values_arena arena = {.more = tree_more};
	struct far_val v;
	size_t n;
	if (r->replied || !r->begun || d->gone)
		return;
	const char *outer = s->context.handler;
	s->context.handler = "an interceptor";
	if (r->info.mode == FAR_CALL_FETCH && d->status == FAR_OK && !d->rrefs && !d->tree && d->buf)
		n = values_read(buf_data(d->buf), d->len, &v, 1, &n, &arena) == 0 ? n : 0;
	else if (d->status == FAR_OK && d->fn && !d->rrefs && !d->tree && d->buf)
		n = values_read(buf_data(d->buf), d->len, &v, 1, &n, &arena) == 0 ? n : 0;
	else
		n = 0;
	if (d->status)
		reply_failed(d);
	else
		reply(d, n == 1 ? &v : NULL, NULL);
	tree_release_memory(&arena);
	s->context.handler = outer;
}

static void over(struct shard *s, struct far_deferred *d)
{
	struct intercepted *r = (struct intercepted *)(void *)d->extra;
	(void)s;
	if (!r)
		return;
	d->extra = NULL;
	unref(r);
}

/* ---- a shard ---- */

void intercept_apply(struct shard *s)
{
	s->shown = atomic_load_explicit(&intercept_every, memory_order_acquire) != 0;
	for (struct session *se = s->known; se; se = se->next_known)
		if (se->state == SESSION_UP)
			se->backpressured =
				(uint8_t)((se->backpressured & ~SESSION_SHOWN) | (s->shown ? SESSION_SHOWN : 0));
}

static bool init(struct shard *s)
{
	profile_present();
	probes_present();
	intercept_apply(s);
	return true;
}

const struct shard_feature intercept_feature = {
	.name = "intercept",
	.init = init,
	.record_answered = answered,
	.record_over = over,
	.only = {.request_fields = fields, .request_run = run_function},
};
