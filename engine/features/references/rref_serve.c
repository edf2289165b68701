/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Serves requests about references: runs a function whose arguments hold some, fetches a value; rref_make.c makes one.
 * Shard thread.
 *
 * Each is open as a record, and waits as a copy of its own: it holds neither a thread nor memory of the transport.
 */
#include "features/references/rref.h"

#include "base/must.h"
#include "core/blocking.h"
#include "core/context.h"
#include "core/deferred.h"
#include "core/dispatch.h"
#include "core/fiber.h"
#include "core/reply.h"
#include "core/request.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/timer.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

void rref_refuse(struct far_req *req, enum far_status status, const char *format, ...)
{
	char text[FAR_ERR_TEXT_MAX];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(text, sizeof text, format, args);
	va_end(args);
	dispatch_error(req, status, FAR_EXECUTED_NO, 0, text, n < 0 ? 0 : (size_t)n);
}

void rref_malformed(struct far_req *req)
{
	counter_add(&req->shard->counters.packets_dropped, 1);
	rref_refuse(req, FAR_PROTOCOL, "malformed request about a reference");
}

struct rref_record *rref_record_of(struct far_req *req, struct rref_id id)
{
	struct rref_record *r = rref_record(req->shard, id);
	if (!r)
		rref_refuse(req, FAR_RESOURCE, "worker \"%s\" has no room for another reference",
			    req->shard->config.name);
	return r;
}

/* ---- open requests ---- */

void rref_open_free(struct rref_open *open)
{
	struct values_arena arena = {.held = open->held};
	tree_release_memory(&arena);
	if (open->value)
		rref_unref(&open->value->rref.base);
	if (open->object)
		rref_unref(&open->object->rref.base);
	buf_unref(open->buf);
}

void rref_release_held(struct far_deferred *d)
{
	struct values_arena arena = {.held = d->held};
	d->held = NULL;
	tree_release_memory(&arena);
}

void rref_refuse_open(struct far_req *req)
{
	rref_refuse(req, FAR_RESOURCE,
		    "worker \"%s\" keeps too many requests open (its opts.deferred), or has no memory for this one",
		    req->shard->config.name);
}

struct rref_open *rref_open_new(struct far_req *req, enum rref_purpose purpose, const uint8_t *body, uint64_t len)
{
	struct shard *s = req->shard;
	struct far_buf *buf = buf_alloc(sizeof(struct rref_open) + len);
	struct far_deferred *d = req->record; /* of a request that may be repeated */
	if (buf && !d)
		d = deferred_alloc(s, req->session, req->call, req->gen, req->fn, req->hashed);
	if (!buf || !d) {
		buf_unref(buf);
		rref_refuse_open(req);
		return NULL;
	}
	struct rref_open *open = buf_data(buf);
	*open = (struct rref_open){.buf = buf,
				   .record = d,
				   .purpose = (uint8_t)purpose,
				   .deadline = req->deadline ? req->deadline : TIME_NEVER,
				   .name = req->name,
				   .from = req->from,
				   .from_shard = req->from_shard,
				   .len = len};
	if (len)
		memcpy(open->body, body, len);
	d->owned = true;
	d->fn = req->fn;
	d->rref = open;
	d->features |= FEATURE_BIT(FEATURE_REFERENCES);
	if (!req->record && req->time_left != FAR_FOREVER) {
		open->deadline = time_after(clock_now(s->config.clock), req->time_left);
		timer_arm(&s->wheel, &d->timer.timer, open->deadline);
	}
	req->record = NULL;
	req->answer = ANSWER_DEFERRED;
	return open;
}

/* ---- running ---- */

void rref_fail(struct far_deferred *d, enum far_status status, const char *text)
{
	deferred_error(d, status, FAR_EXECUTED_NO, 0, text, strlen(text));
	deferred_finish(d);
}

static void run_handler(struct shard *s, struct far_req *req, struct rref_record *object, const uint8_t *body,
			uint64_t len)
{
	const char *outer = s->context.handler;
	switch (req->fn->run_kind) {
	case FAR_KIND_FIBER:
		fiber_start(req, NULL, body, len);
		return;
	case FAR_KIND_BLOCKING:
		blocking_start(req, NULL, body, len);
		return;
	default:
		s->context.handler = req->name;
		s->rrefs->calling = object;
		req->record->here = true;
		dispatch_typed(req, body, len, s->strings, FAR_STRINGS_BYTES_MAX);
		s->rrefs->calling = NULL;
		s->context.handler = outer;
		s->now_pass--;
		struct far_deferred *answered = rref_take_answered(s);
		if (answered) /* it goes with the burst, as other answers do */
			answer_deferred(s, answered);
	}
}

static uint64_t left_until(const struct shard *s, uint64_t deadline)
{
	uint64_t now = clock_now(s->config.clock);
	return deadline == TIME_NEVER ? FAR_FOREVER : deadline > now ? deadline - now : 0;
}

static void run(struct shard *s, struct rref_open *open)
{
	struct far_deferred *d = open->record;
	if (open->over) {
		rref_open_free(open);
		return;
	}
	bool calls = open->purpose == RREF_TO_CALL;
	struct far_req req = {.shard = s,
			      .session = &s->sessions[d->session],
			      .record = d,
			      .fn = d->fn,
			      .name = open->name,
			      .call = d->call,
			      .gen = d->gen,
			      .from = open->from,
			      .from_shard = open->from_shard,
			      .time_left = left_until(s, open->deadline),
			      .deadline = open->deadline};
	if (calls)
		d->rref = NULL;
	/* A blocking handler takes hold of its arguments in its own time. */
	d->held = open->held;
	open->held = NULL;
	open->started = true;
	if (open->refused)
		deferred_finish(d); /* choose_overload() has written the answer */
	else if (open->failed)
		rref_fail(d, (enum far_status)open->failed,
			  "the owner of a reference among the arguments does not know of "
			  "it, or was lost");
	else if (object_may_run(open))
		run_handler(s, &req, open->object, open->body, open->len);
	if (calls)
		rref_open_free(open);
}

static void run_task(struct shard *s, struct shard_task *e)
{
	run(s, (struct rref_open *)(void *)e);
}

void rref_open_step(struct shard *s, struct rref_open *open)
{
	if (--open->unknown)
		return;
	if (open->over) {
		rref_open_free(open);
		return;
	}
	/* Not inside of whatever completes just now. */
	open->task.run = run_task;
	shard_add_task(s, &open->task);
}

void rref_open_go(struct shard *s, struct rref_open *open)
{
	if (--open->unknown == 0)
		run(s, open);
}

/* Of an unchecked call. What does not fit is its answer, which is sent when the references are known. */
static void choose_overload(struct far_req *req, struct rref_open *open, const struct far_val *args, size_t n)
{
	struct far_val converted[FAR_ARGS_MAX];
	struct far_deferred *d = open->record;
	const struct function *fn;
	struct far_err err;
	enum far_status status = registry_resolve(req->fn, args, n, &fn, converted, &err);
	if (status) {
		open->refused = true;
		deferred_error(d, status, FAR_EXECUTED_NO, 0, err.text, strlen(err.text));
		return;
	}
	d->fn = fn;
	if (open->value)
		rref_will_be(open->value, fn);
}

/* Each is to be known to its owner before the handler runs. */
void rref_take_arguments(struct far_req *req, struct rref_open *open)
{
	struct shard *s = req->shard;
	struct far_val args[FAR_ARGS_MAX];
	size_t n;
	struct rref_adopting a = {.arena = {.more = tree_more, .rref = rref_adopt, .patch = true},
				  .shard = s,
				  .session = req->session,
				  .open = open};
	open->unknown = 1;
	int error = values_read(open->body, open->len, args, FAR_ARGS_MAX, &n, &a.arena);
	open->held = a.arena.held;
	open->record->addressed = true;
	if (error) {
		open->failed = error == -ENOMEM ? FAR_RESOURCE : FAR_PROTOCOL;
		if (error == -EBADMSG)
			counter_add(&s->counters.packets_dropped, 1);
	} else if (open->unchecked) {
		choose_overload(req, open, args, n);
	}
	if (open->object)
		object_await(open);
	rref_open_go(s, open);
}

const struct function *rref_function_of(struct far_req *req, struct rref_function f)
{
	const struct function *first = f.signature ? NULL : registry_find_hash(req->shard->registry, f.name);
	if (first)
		f.signature = first->signature.canonical_hash;
	const struct function *fn = dispatch_find(req, &(struct packet_hash){f.name, f.signature});
	if (!fn)
		return NULL;
	req->fn = fn;
	req->name = fn->signature.name;
	return fn;
}

static void serve_call(struct far_req *req, const uint8_t *body, uint64_t len)
{
	struct rref_function f;
	if (!rref_trailer(req, body, &len, &f, sizeof f) || !rref_function_of(req, f))
		return;
	struct rref_open *open = rref_open_new(req, RREF_TO_CALL, body, len);
	if (!open)
		return;
	open->unchecked = !f.signature;
	rref_take_arguments(req, open);
}

/* ---- the owner ---- */

bool rref_names_us(struct far_req *req, uint64_t owner, struct rref_id id)
{
	const struct shard *s = req->shard;
	if (owner != rref_incarnation(s->config.rank, s->config.incarnation)) {
		rref_refuse(req, FAR_PEER_LOST, "the reference is to a former incarnation of worker \"%s\"",
			    s->config.name);
		return false;
	}
	if (rref_owner_shard(id) == s->config.index && (id.number & RREF_COUNT_MASK))
		return true;
	rref_malformed(req);
	return false;
}

static void serve_remote(struct far_req *req, const uint8_t *body, uint64_t len)
{
	struct rref_remote m;
	if (rref_trailer(req, body, &len, &m, sizeof m))
		rref_serve_make(req, &m, NULL, body, len);
}

void rref_record_gone(struct shard *s, struct far_deferred *d)
{
	struct rref_open *open = d->rref;
	bool ours = !open->started, fetches = open->purpose == RREF_TO_FETCH || open->purpose == RREF_TO_TYPE;
	bool ends = fetches || open->started;
	if (open->purpose == RREF_TO_MAKE)
		rref_make_gone(s, open);
	if (open->object && open->started) { /* until its handler has ended */
		open->purpose = RREF_TO_METHOD;
		if (open->value)
			rref_unref(&open->value->rref.base);
		open->value = NULL;
		return;
	}
	d->rref = NULL;
	if (open->prev) {
		list_remove(open);
		open->prev = NULL;
		if (!fetches) /* the object was what it waited for */
			ends = --open->unknown == 0;
	}
	if (ends) {
		rref_open_free(open);
	} else { /* it waits for answers of owners: the last one frees it */
		struct values_arena arena = {.held = open->held};
		open->held = NULL;
		open->over = true;
		tree_release_memory(&arena);
	}
	if (ours)
		deferred_finish(d);
}

/* ---- fetching ---- */

void rref_copy_failure(const struct rref_record *r, struct far_deferred *d, enum far_executed executed)
{
	deferred_error(d, (enum far_status)r->status, executed, r->code, r->why ? buf_data(r->why) : NULL,
		       r->why ? r->why_len : 0);
}

void rref_fetched(struct shard *s, struct rref_open *open)
{
	struct far_deferred *d = open->record;
	if (open->object) { /* it awaited that */
		rref_open_step(s, open);
		return;
	}
	const struct rref_record *r = open->value;
	struct far_future *f = r->value;
	struct values_plan plan;
	struct far_err err;
	d->rref = NULL;
	if (f->status) {
		rref_copy_failure(r, d, (enum far_executed)r->executed);
	} else if (open->purpose == RREF_TO_TYPE) {
		object_type(r, d);
	} else if (r->made && !r->made->travels) {
		char text[FAR_ERR_TEXT_MAX];
		int n = snprintf(
			text, sizeof text,
			"an object of %s stays with worker \"%s\": call its methods, give its class a codec, so "
			"that copies can travel, or, there, use far_rref_object",
			r->made->name, s->config.name);
		deferred_error(d, FAR_UNSUPPORTED, FAR_EXECUTED_YES, 0, text, (size_t)n);
	} else if (f->code == FUTURE_TREE) {
		struct far_val root = tree_root(f->buf);
		if (values_size(&root, 1, &plan, &err) == SIZE_MAX)
			deferred_error(d, err.status, FAR_EXECUTED_YES, 0, err.text, strlen(err.text));
		else
			rref_answer_value(d, &root, &plan);
	} else if (f->buf && future_len(f) <= d->limit) {
		d->buf = f->buf;
		d->len = future_len(f);
		buf_ref(d->buf);
	} else {
		void *at = deferred_room(d, future_len(f));
		if (at && future_len(f))
			memcpy(at, future_bytes(f), future_len(f));
	}
	deferred_finish(d);
	rref_open_free(open);
}

/* A value that is there, of bytes, is answered on the burst. */
static bool answer_at_once(struct far_req *req, const struct rref_record *r)
{
	const struct session *se = req->session;
	if (!r || !r->settled || r->status || r->made || req->record)
		return false;
	struct far_future *f = r->value;
	if (f->code == FUTURE_TREE || future_len(f) > se->eager_max || future_len(f) > se->message_max)
		return false;
	req->answer = ANSWER_SENT;
	answer_send(req, future_bytes(f), future_len(f));
	return true;
}

static void serve_fetch(struct far_req *req, enum rref_purpose purpose, const uint8_t *body, uint64_t len)
{
	struct rref_fetch fetch;
	if (len != sizeof fetch) {
		rref_malformed(req);
		return;
	}
	memcpy(&fetch, body, sizeof fetch);
	if (!rref_names_us(req, fetch.owner, fetch.id))
		return;
	struct rref_record *r = rref_table_find(&req->shard->rrefs->records, fetch.id);
	if (purpose == RREF_TO_FETCH && answer_at_once(req, r))
		return;
	r = rref_record_of(req, fetch.id);
	struct rref_open *open = r ? rref_open_new(req, purpose, NULL, 0) : NULL;
	if (!open) {
		if (r)
			rref_unref(&r->rref.base);
		return;
	}
	open->value = r;
	if (r->settled) {
		rref_fetched(req->shard, open);
		return;
	}
	list_put(r->awaited, open);
}

void rref_serve(struct far_req *req, uint16_t message, const uint8_t *body, uint64_t len)
{
	if (req->answer == ANSWER_ONEWAY) {
		rref_refuse(req, FAR_PROTOCOL, "it wants an answer");
		return;
	}
	req->name = "a reference";
	switch (message) {
	case RREF_CALL:
		serve_call(req, body, len);
		return;
	case RREF_REMOTE:
		serve_remote(req, body, len);
		return;
	case RREF_FETCH:
		serve_fetch(req, RREF_TO_FETCH, body, len);
		return;
	case RREF_TYPE:
		serve_fetch(req, RREF_TO_TYPE, body, len);
		return;
	case RREF_METHOD:
	case RREF_METHOD_REMOTE:
		object_serve(req, message, body, len);
		return;
	case RREF_CONTROL:
		rref_control(req, body, len);
		return;
	default:
		rref_refuse(req, FAR_UNSUPPORTED, "worker \"%s\" knows no message %u", req->shard->config.name,
			    message);
	}
}

/* ---- answers that hold references ---- */

static const char no_memory[] = "the callee has no memory for a result that holds references";

void rref_answer_value(struct far_deferred *d, const struct far_val *value, struct values_plan *plan)
{
	struct rref_sharing sharing;
	struct far_val copy;
	if (d->makes) {
		if (far_val_dup(value, &copy, NULL)) {
			deferred_error(d, FAR_RESOURCE, FAR_EXECUTED_YES, 0, no_memory, sizeof no_memory - 1);
			return;
		}
		d->buf = copy.own;
		d->tree = true;
		return;
	}
	if (rref_share(d->shard, plan, &sharing)) {
		deferred_error(d, FAR_RESOURCE, FAR_EXECUTED_YES, 0, no_memory, sizeof no_memory - 1);
		return;
	}
	void *at = deferred_room(d, plan->size);
	if (!at) {
		rref_pins_release(sharing.pins);
		return;
	}
	values_write(value, 1, plan, at);
	d->pins = sharing.pins;
	d->rrefs = true;
}
