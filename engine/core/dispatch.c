/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Runs the handler of a request: finds the function, reads the arguments, calls it, and sends or keeps its answer.
 * Shard thread; dispatch_typed() and dispatch_message() also run on blocking threads, with a record.
 */

#include "core/dispatch.h"
#include "base/must.h"
#include "core/blocking.h"
#include "core/context.h"
#include "core/deferred.h"
#include "core/fiber.h"
#include "core/packet.h"
#include "core/reply.h"
#include "core/request.h"
#include "core/session.h"
#include "core/shard.h"
#include "value/registry.h"
#include "value/signature.h"
#include "value/tree.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void dispatch_detach(struct far_req *req)
{
	struct far_deferred *d = req->record;
	/* The shard may read the record of a blocking handler meanwhile. */
	if (d->fiber)
		d->fiber = NULL;
	d->here = false;
	req->record = NULL;
}

void dispatch_finish(struct far_req *req)
{
	struct far_deferred *d = req->record;
	bool here = d->here;
	dispatch_detach(req);
	if (here)
		d->shard->answered = d;
	else
		deferred_finish(d);
}

void dispatch_error(struct far_req *req, enum far_status status, enum far_executed executed, int32_t code,
		    const char *text, size_t len)
{
	trace_add(req->shard->trace, &(struct trace_event){.at = clock_now(req->shard->config.clock),
							   .kind = TRACE_REQUEST_FAILED,
							   .status = (uint8_t)status,
							   .typed = req->fn != NULL,
							   .function = req->fn ? (uint16_t)req->fn->index : UINT16_MAX,
							   .worker = req->from});
	if (unlikely(req->answer == ANSWER_ONEWAY)) { /* it has no caller */
		counter_add(&req->shard->counters.oneways_dropped, 1);
		req->answer = ANSWER_SENT;
		return;
	}
	if (req->record) {
		struct far_deferred *d = req->record;
		deferred_error(d, status, executed, code, text, len);
		/* Of a blocking handler: it leaves by dispatch_settle(), when the arguments are released. */
		if (!d->here && executed == FAR_EXECUTED_YES) {
			req->answer = ANSWER_RECORD;
			return;
		}
		dispatch_finish(req);
	} else {
		answer_error(req->shard, req->session, req->call, req->gen,
			     &(struct answer_failure){status, executed, code, text, len});
	}
	req->answer = ANSWER_SENT;
}

__attribute__((format(printf, 4, 5), cold)) static void refuse(struct far_req *req, enum far_status status,
							       enum far_executed executed, const char *format, ...)
{
	char text[FAR_ERR_TEXT_MAX];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(text, sizeof text, format, args);
	va_end(args);
	dispatch_error(req, status, executed, 0, text, n < 0 ? 0 : (size_t)n);
}

/* Moves an answer that lies outside of the record into it, and hands the record to the shard. */
__attribute__((noinline)) static void flush_to_record(struct far_req *req, enum answer answer)
{
	struct far_deferred *d = req->record;
	if (answer == ANSWER_BUFFER) {
		d->buf = req->buf;
		d->len = req->len;
	} else if (answer != ANSWER_RECORD) {
		void *at = deferred_room(d, req->len);
		if (at && req->len)
			memcpy(at, req->scratch, req->len);
	}
	dispatch_finish(req);
}

__attribute__((noinline, cold)) static void settle_rendezvous(struct far_req *req)
{
	union packet_head h;
	answer_fill_head((uint8_t *)&h, req);
	req->shard->hooks.reply_send(req->shard, req->session, &h.reply, req->buf, req->len, NULL);
	buf_unref(req->buf);
}

void dispatch_flush(struct far_req *req)
{
	struct shard *s = req->shard;
	enum answer answer = req->answer;
	if (answer == ANSWER_NONE || answer == ANSWER_SENT || answer == ANSWER_DEFERRED || answer == ANSWER_ONEWAY)
		return;
	req->answer = ANSWER_SENT;
	if (unlikely(req->record)) {
		flush_to_record(req, answer);
		return;
	}
	switch (answer) {
	case ANSWER_SCRATCH:
		answer_send(req, req->scratch, req->len);
		return;
	case ANSWER_BUFFER:
		answer_send(req, buf_data(req->buf), req->len);
		buf_unref(req->buf);
		return;
	case ANSWER_RESERVED:
		answer_fill_head(req->tx.head, req);
		req->tx.order = NIC_ORDER_NONE;
		if (unlikely(session_commit(s, req->session, &req->tx))) {
			req->session->q->ops->tx_cancel(req->session->q, &req->tx);
			answer_no_room(s, req->session);
			return;
		}
		counter_add(&s->counters.replies_sent, 1);
		session_count_sent(s, req->session, req->len);
		return;
	case ANSWER_RENDEZVOUS:
		settle_rendezvous(req);
		return;
	default:
		return;
	}
}

/* No memory for an answer of req->len bytes. */
static __attribute__((noinline, cold)) void refuse_memory(struct far_req *req)
{
	char text[FAR_ERR_TEXT_MAX];
	answer_no_memory(text, req->len);
	refuse(req, FAR_RESOURCE, FAR_EXECUTED_YES, "%s failed: %s", req->name, text);
}

void dispatch_settle(struct far_req *req, enum far_status status)
{
	if (likely(req->answer == ANSWER_SENT))
		return;
	if (likely(req->answer != ANSWER_NONE)) {
		dispatch_flush(req);
		return;
	}
	if (status == FAR_OK)
		refuse(req, FAR_REMOTE, FAR_EXECUTED_YES, "%s returned without an answer", req->name);
	else if (status == FAR_TOO_LARGE)
		refuse(req, status, FAR_EXECUTED_YES,
		       "%s failed: message too large (the caller takes %llu bytes at most)", req->name,
		       (unsigned long long)dispatch_limit(req));
	else if (status == FAR_RESOURCE && req->len)
		refuse_memory(req);
	else
		refuse(req, status, FAR_EXECUTED_YES, "%s failed: %s", req->name, far_status_text(status));
	dispatch_flush(req);
}

void dispatch_no_function(struct far_req *req)
{
	refuse(req, FAR_NO_FUNCTION, FAR_EXECUTED_NO, "worker \"%s\" has no such function; register it there too",
	       req->shard->config.name);
}

/* A request whose function is not known by its number yet. */
static const struct function *find_hashed(struct far_req *req, const uint8_t *body, uint64_t *len)
{
	struct packet_hash hash;
	if (*len < sizeof hash) {
		refuse(req, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed request");
		return NULL;
	}
	*len -= sizeof hash;
	memcpy(&hash, body + *len, sizeof hash);
	const struct function *fn = dispatch_find(req, &hash);
	req->hashed = fn != NULL;
	return fn;
}

const struct function *dispatch_find(struct far_req *req, const struct packet_hash *hash)
{
	const struct registry *r = req->shard->registry;
	const struct function *fn = registry_find_hash(r, hash->name);
	if (!fn) {
		dispatch_no_function(req);
		return NULL;
	}
	const struct function *first = fn;
	fn = registry_overload(first, hash->signature);
	if (!fn) {
		char text[FAR_ERR_TEXT_MAX];
		refuse(req, FAR_SIGNATURE, FAR_EXECUTED_NO,
		       "on worker \"%s\" the signature is %s; register the same on both sides", req->shard->config.name,
		       registry_overloads_text(first, text, sizeof text));
		return NULL;
	}
	return fn;
}

/* The caller has checked its arguments; another sender must not pass others to a handler. */
static bool arguments_fit(const struct signature *sig, const struct far_val *v, size_t n)
{
	if (n != sig->params_n)
		return false;
	for (size_t i = 0; i < n; i++)
		if (unlikely(!(sig->params[i].set.types >> v[i].type & 1)) &&
		    !signature_takes(sig, sig->params[i].set, &v[i]))
			return false;
	return true;
}

/* Starts a handler that is not inline. */
__attribute__((noinline)) static void run_elsewhere(struct far_req *req, enum far_kind kind,
						    const struct message_handler *m, const uint8_t *body, uint64_t len)
{
	if (kind == FAR_KIND_FIBER)
		fiber_start(req, m, body, len);
	else if (kind == FAR_KIND_BLOCKING)
		blocking_start(req, m, body, len);
	else
		req->shard->hooks.request_object(req, body, len);
}

/* Arguments of an unchecked call: converts them, and adds defaults. */
static bool bind_arguments(const struct signature *sig, struct far_val *args, size_t *n)
{
	struct far_val given[FAR_ARGS_MAX];
	memcpy(given, args, *n * sizeof *args);
	if (signature_bind(sig, given, *n, args, NULL, NULL))
		return false;
	*n = sig->params_n;
	return true;
}

/** Decodes arguments of custom types, unless `error` is set because they could not be read. false: the request was
 * refused.
 */
static __attribute__((noinline, cold)) bool finish_arguments(struct far_req *req, int error, struct far_val *args,
							     size_t *n, struct values_arena *arena)
{
	const struct signature *sig = &req->fn->signature;
	char text[FAR_ERR_TEXT_MAX];
	if (!error && (arguments_fit(sig, args, *n) || bind_arguments(sig, args, n))) {
		enum far_status status = tree_decode(args, *n, registry_has_type, req->shard->registry, text);
		if (!status)
			return true;
		refuse(req, status, FAR_EXECUTED_NO, "%s: an argument holds %s", sig->name, text);
	} else if (error == -ENOMEM) {
		refuse(req, FAR_RESOURCE, FAR_EXECUTED_NO, "worker \"%s\" has no memory for the arguments of %s",
		       req->shard->config.name, sig->name);
	} else {
		if (error == -EBADMSG && !req->record) /* counters are the shard's */
			counter_add(&req->shard->counters.packets_dropped, 1);
		refuse(req, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed arguments for %s", sig->text);
	}
	tree_release(NULL, 0, arena);
	return false;
}

static inline __attribute__((always_inline)) void call_typed(struct far_req *req, const uint8_t *body, uint64_t len,
							     struct values_arena *arena, const char **handler,
							     bool intercepted)
{
	const struct function *fn = req->fn;
	struct far_val args[FAR_ARGS_MAX];
	size_t n;
	int error = values_read(body, len, args, FAR_ARGS_MAX, &n, arena);
	if (unlikely(error || arena->held || !arguments_fit(&fn->signature, args, n)) &&
	    !finish_arguments(req, error, args, &n, arena))
		return;
	*handler = req->name;
	enum far_status status =
		intercepted ? req->shard->hooks.request_run(req, args, n) : fn->fn(req, args, n, fn->user);
	*handler = NULL;
	if (unlikely(arena->held))
		tree_release(args, n, arena);
	dispatch_settle(req, status);
}

void dispatch_typed(struct far_req *req, const uint8_t *body, uint64_t len, char *strings, size_t cap)
{
	struct values_arena arena = {.strings = strings, .strings_cap = cap, .more = tree_more};
	arena.scattered = req->scattered;
	const char *nobody;
	if (unlikely(req->record && req->record->addressed))
		arena.rref = tree_take_address;
	if (unlikely(req->record && req->record->extra))
		call_typed(req, body, len, &arena, &nobody, true);
	else
		call_typed(req, body, len, &arena, &nobody, false);
}

void dispatch_message(struct far_req *req, const struct message_handler *m, const uint8_t *body, uint64_t len)
{
	m->fn(req, body, len, m->user);
	if (unlikely(req->answer != ANSWER_SENT))
		dispatch_settle(req, FAR_OK);
}

static inline void run_function(struct far_req *req, const struct function *fn, const uint8_t *body, uint64_t len)
{
	struct shard *s = req->shard;
	req->fn = fn;
	req->name = fn->signature.name;
	bool intercepted = false;
	if (unlikely(req->record != NULL)) {
		req->record->fn = fn;
		req->record->hashed = req->hashed;
		intercepted = req->record->extra;
	}
	if (unlikely(fn->kind != FAR_KIND_INLINE))
		run_elsewhere(req, fn->kind, NULL, body, len);
	else if (unlikely(intercepted))
		call_typed(req, body, len, &s->arena, &s->context.handler, true);
	else
		call_typed(req, body, len, &s->arena, &s->context.handler, false);
}

/* A request that is read where it lies. */
static void run_scattered(struct far_req *req, const struct function *fn, const uint8_t *body, uint64_t len)
{
	struct shard *s = req->shard;
	if (!fn) {
		dispatch_no_function(req);
		return;
	}
	req->scattered = true;
	if (fn->kind != FAR_KIND_INLINE) {
		run_function(req, fn, body, len);
		return;
	}
	req->fn = fn;
	req->name = fn->signature.name;
	struct values_arena arena = {
		.strings = s->arena.strings, .strings_cap = s->arena.strings_cap, .more = tree_more, .scattered = true};
	call_typed(req, body, len, &arena, &s->context.handler, false);
}

__attribute__((noinline)) static void run_typed_slow(struct far_req *req, const union packet_head *h,
						     const uint8_t *body, uint64_t len)
{
	if (req->shard->body && req->shard->body->scattered && body == req->shard->body->at) {
		run_scattered(req, registry_at(req->shard->registry, h->request.handler), body, len);
		return;
	}
	const struct function *fn = h->flags & PACKET_HASHED ? find_hashed(req, body, &len)
							     : registry_at(req->shard->registry, h->request.handler);
	if (!fn && !(h->flags & PACKET_HASHED))
		refuse(req, FAR_PROTOCOL, FAR_EXECUTED_NO, "there is no function number %u here", h->request.handler);
	if (!fn)
		return;
	if (!(h->flags & PACKET_NAMED)) {
		run_function(req, fn, body, len);
		return;
	}
	req->fn = fn;
	req->name = fn->signature.name;
	if (req->record) {
		req->record->fn = fn;
		req->record->hashed = req->hashed;
	}
	req->shard->hooks.request_named(req, h->flags & PACKET_METHOD, body, len);
}

static void run_typed(struct far_req *req, const union packet_head *h, const uint8_t *body, uint64_t len)
{
	const struct function *fn = likely(!(h->flags & (PACKET_HASHED | PACKET_NAMED)))
					    ? registry_at(req->shard->registry, h->request.handler)
					    : NULL;
	if (likely(fn != NULL))
		run_function(req, fn, body, len);
	else
		run_typed_slow(req, h, body, len);
}

static inline __attribute__((always_inline)) void start_message(struct far_req *req, const struct message_handler *m,
								const uint8_t *body, uint64_t len)
{
	struct shard *s = req->shard;
	req->name = m->name;
	if (unlikely(m->kind != FAR_KIND_INLINE)) {
		run_elsewhere(req, m->kind, m, body, len);
		return;
	}
	s->context.handler = m->name;
	m->fn(req, body, len, m->user);
	s->context.handler = NULL;
	dispatch_settle(req, FAR_OK);
}

void dispatch_to(struct far_req *req, const struct message_handler *m, const uint8_t *body, uint64_t len)
{
	start_message(req, m, body, len);
}

static void run_message(struct far_req *req, const union packet_head *h, const uint8_t *body, uint64_t len)
{
	struct shard *s = req->shard;
	const struct message_handler *m = registry_message(s->registry, h->request.handler);
	if (unlikely(!m) && s->hooks.request_message(req, h->request.handler, body, len))
		return;
	if (unlikely(!m)) {
		refuse(req, FAR_NO_FUNCTION, FAR_EXECUTED_NO, "worker \"%s\" has no handler for message %u",
		       s->config.name, h->request.handler);
		return;
	}
	start_message(req, m, body, len);
}

/* A retransmitted request may have time left, and run: a caller that may send one gets no answer. */
__attribute__((noinline, cold)) static void refuse_late(struct far_req *req, const union packet_head *h)
{
	if (!(h->flags & PACKET_RETRY))
		refuse(req, FAR_TIMEOUT, FAR_EXECUTED_NO, "the deadline passed before the handler was started");
}

/* Takes what follows the payload off the body. true: the request is to be run. */
__attribute__((noinline)) static bool admit(struct far_req *req, const union packet_head *h, const uint8_t *body,
					    uint64_t *len)
{
	const struct feature_hooks *hooks = &req->shard->hooks;
	if (h->flags & PACKET_RETRY && !hooks->request_admit(req, body, len))
		return false;
	return !(h->flags & PACKET_TLV) || hooks->request_fields(req, h, body, len);
}

void dispatch(struct shard *s, struct session *se, const union packet_head *h, const uint8_t *body, uint64_t len,
	      uint64_t waited)
{
	shard_own(s);
	struct far_req req;
	uint64_t left = h->request.time_left; /* of a one-way message at the same offset */
	req.shard = s;
	req.session = se;
	req.record = NULL;
	req.from = se->worker;
	req.from_shard = se->shard;
	req.fn = NULL;
	req.name = "?";
	req.call = h->call.slot;
	req.gen = h->call.generation;
	req.hashed = req.scattered = false;
	req.answer = ANSWER_NONE;
	req.deadline = 0;
	req.time_left = left == UINT64_MAX ? left : left > waited ? left - waited : 0;
	if (unlikely(h->type == PACKET_ONEWAY))
		req.answer = ANSWER_ONEWAY;
	counter_add(&s->counters.requests_received, 1);
	session_count(&se->counters.requests, 1);
	const char *outer = s->context.handler;
	if (unlikely(req.time_left == 0))
		refuse_late(&req, h);
	else if (unlikely(h->flags & (PACKET_RETRY | PACKET_TLV)) && !admit(&req, h, body, &len))
		;
	else if (h->flags & PACKET_TYPED)
		run_typed(&req, h, body, len);
	else
		run_message(&req, h, body, len);
	s->context.handler = outer;
	s->now_pass = s->passes - 1; /* it may have taken long: the next one's calls read the clock again */
}

__attribute__((cold)) void dispatch_shown(struct shard *s, struct session *se, const union packet_head *h,
					  const uint8_t *body, uint64_t len, uint64_t waited)
{
	union packet_head head = *h;
	head.flags |= PACKET_TLV; /* as if it had fields */
	dispatch(s, se, &head, body, len, waited);
}
