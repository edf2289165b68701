/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Methods of objects at their owner. Shard thread, but for object_enter() and the far_* functions (the thread of the
 * handler).
 *
 * A call of an inline method whose object is there runs on the burst like any other. Every other one is an open
 * request, which holds the object until it is answered. object_enter() holds the object for a handler that goes on
 * after its answer.
 */
#include "features/references/rref.h"

#include "base/must.h"
#include "core/context.h"
#include "core/deferred.h"
#include "core/dispatch.h"
#include "core/feature.h"
#include "core/request.h"
#include "core/session.h"
#include "core/shard.h"
#include "value/types.h"

#include <errno.h>
#include <string.h>

/* ---- what a value is ---- */

const char *object_type_text(const struct rref_record *r, char *buf, size_t len)
{
	const struct far_future *f = r->value;
	struct far_val v = {0};
	size_t n;
	int error = 0;
	if (r->made) {
		snprintf(buf, len, "%s", r->made->name);
		return buf;
	}
	if (f->code == FUTURE_TREE)
		v = tree_root(f->buf);
	else
		error = values_read(future_bytes((struct far_future *)(uintptr_t)f), future_len(f), &v, 1, &n, NULL);
	const char *name = far_type_name((enum far_type)v.type);
	if (error == -ENOMEM) { /* it has parts, or is of a custom type: the bytes of a value begin so */
		struct values_arena arena = {.more = tree_more, .rref = tree_take_address};
		error = values_read(future_bytes((struct far_future *)(uintptr_t)f), future_len(f), &v, 1, &n, &arena);
		const struct custom_type *t = !error && v.type == FAR_TYPE_CUSTOM ? types_find(v.u.custom.hash) : NULL;
		name = t ? t->type.name : far_type_name((enum far_type)v.type);
		tree_release_memory(&arena);
	} else if (v.type == FAR_TYPE_CUSTOM && v.u.custom.type) {
		name = v.u.custom.type->name;
	}
	snprintf(buf, len, "%s", error ? "?" : name);
	return buf;
}

void object_type(const struct rref_record *r, struct far_deferred *d)
{
	char text[SIGNATURE_TYPE_MAX];
	struct far_val v = far_str(object_type_text(r, text, sizeof text));
	struct values_plan plan;
	struct far_err err;
	size_t len = values_size(&v, 1, &plan, &err);
	void *at = deferred_room(d, len);
	if (at)
		values_write(&v, 1, &plan, at);
}

/* ---- may it run ---- */

static const char makes[] = "it makes objects: call it with far_remote, or a method with far_rref_remote";

/* Writes what a value is that is not the wanted object. */
static void no_object(const struct rref_record *r, const struct method *m, char *text, size_t len)
{
	char rref[RREF_TEXT_MAX], type[SIGNATURE_TYPE_MAX];
	snprintf(text, len, "%s is not an object of %s, but a %s", rref_text(&r->rref.base, rref, sizeof rref),
		 m->cls->name, object_type_text(r, type, sizeof type));
}

bool object_may_run(struct rref_open *open)
{
	struct far_deferred *d = open->record;
	const struct function *fn = d->fn;
	const struct rref_record *r = open->object;
	char text[FAR_ERR_TEXT_MAX];
	if (likely(!fn->method && !fn->makes && !r))
		return true;
	if (!fn->method != !r) {
		rref_fail(d, FAR_PROTOCOL,
			  fn->method ? "a method was called without its object" : "it is not a method");
		return false;
	}
	if (fn->makes && open->purpose != RREF_TO_MAKE) {
		rref_fail(d, FAR_INVALID, makes);
		return false;
	}
	if (!r)
		return true;
	if (r->status) {
		rref_copy_failure(r, d, FAR_EXECUTED_NO);
		deferred_finish(d);
		return false;
	}
	if (r->made == fn->method->cls)
		return true;
	no_object(r, fn->method, text, sizeof text);
	rref_fail(d, FAR_INVALID, text);
	return false;
}

/* ---- requests ---- */

void object_await(struct rref_open *open)
{
	struct rref_record *r = open->object;
	if (r->settled)
		return;
	open->unknown++;
	list_put(r->awaited, open);
}

static void run_at_once(struct far_req *req, struct rref_record *r, const uint8_t *body, uint64_t len)
{
	struct shard *s = req->shard;
	s->context.handler = req->name;
	s->rrefs->calling = r;
	dispatch_typed(req, body, len, s->strings, FAR_STRINGS_BYTES_MAX);
	s->rrefs->calling = NULL;
}

/* A typed request of a method, or of a function that makes objects. */
static void object_request(struct far_req *req, const uint8_t *body, uint64_t len)
{
	struct rref_id id;
	if (!req->fn->method) {
		rref_refuse(req, FAR_INVALID, "%s: %s", req->fn->signature.name, makes);
		return;
	}
	if (rref_trailer(req, body, &len, &id, sizeof id))
		object_called(req, id, body, len);
}

void object_called(struct far_req *req, struct rref_id id, const uint8_t *body, uint64_t len)
{
	struct shard *s = req->shard;
	const struct function *fn = req->fn;
	struct rref_record *r = rref_table_find(&s->rrefs->records, id);
	if (unlikely(!r)) {
		rref_refuse(req, FAR_GONE, "%s: the object was destroyed: worker \"%s\" knows of no reference to it",
			    fn->signature.name, s->config.name);
		return;
	}
	if (likely(fn->run_kind == FAR_KIND_INLINE && r->made == fn->method->cls && !fn->makes && !req->record)) {
		run_at_once(req, r, body, len);
		return;
	}
	struct rref_open *open = rref_open_new(req, RREF_TO_METHOD, body, len);
	if (!open)
		return;
	rref_ref(&r->rref.base);
	open->object = r;
	open->unknown = 1;
	object_await(open);
	rref_open_go(s, open);
}

static bool find_at_once(struct shard *s, const struct session *se, const struct function *fn, uint32_t count)
{
	struct rref_record *r =
		rref_table_find(&s->rrefs->records, rref_name(se->incarnation, se->shard, s->config.index, count));
	if (unlikely(!r || r->made != fn->method->cls))
		return false;
	s->rrefs->calling = r; /* until object_enter() */
	return true;
}

static void serve_method(struct far_req *req, const uint8_t *body, uint64_t len)
{
	struct rref_method m;
	if (!rref_trailer(req, body, &len, &m, sizeof m) || !rref_names_us(req, m.owner, m.object) ||
	    !rref_function_of(req, m.function))
		return;
	struct rref_record *r = rref_record_of(req, m.object);
	struct rref_open *open = r ? rref_open_new(req, RREF_TO_METHOD, body, len) : NULL;
	if (open) {
		open->object = r;
		rref_take_arguments(req, open);
	} else if (r) {
		rref_unref(&r->rref.base);
	}
}

static void serve_method_remote(struct far_req *req, const uint8_t *body, uint64_t len)
{
	struct rref_method_remote m;
	if (!rref_trailer(req, body, &len, &m, sizeof m) || !rref_names_us(req, m.remote.owner, m.object))
		return;
	struct rref_record *r = rref_record_of(req, m.object);
	if (!r)
		return;
	rref_serve_make(req, &m.remote, r, body, len);
	rref_unref(&r->rref.base);
}

void object_serve(struct far_req *req, uint16_t message, const uint8_t *body, uint64_t len)
{
	if (message == RREF_METHOD)
		serve_method(req, body, len);
	else
		serve_method_remote(req, body, len);
}

/* ---- in the handler's time ---- */

static struct rref_record *object_of(const struct far_req *req)
{
	const struct function *fn = req->fn;
	if (!fn || !fn->method)
		return NULL;
	if (fn->run_kind == FAR_KIND_INLINE)
		return req->shard->rrefs->calling;
	return req->record && req->record->rref ? req->record->rref->object : NULL;
}

enum far_status object_enter(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const struct method *m = user;
	struct rref_record *r = object_of(req);
	if (unlikely(!r)) {
		static const char text[] = "a method was called without its object";
		dispatch_error(req, FAR_PROTOCOL, FAR_EXECUTED_YES, 0, text, sizeof text - 1);
		return FAR_OK;
	}
	if (likely(m->kind == FAR_KIND_INLINE)) { /* nothing that ends it is looked at meanwhile */
		enum far_status status = m->fn(req, r->object, args, n, m->user);
		req->shard->rrefs->calling = NULL;
		return status;
	}
	rref_ref(&r->rref.base);
	enum far_status status = m->fn(req, r->object, args, n, m->user);
	rref_unref(&r->rref.base);
	return status;
}

struct far_rref *far_req_rref(const struct far_req *req)
{
	struct rref_record *r = object_of(req);
	return r ? &r->rref : NULL;
}

int object_keep(struct shard *s, struct far_buf **held)
{
	struct values_arena arena = {0};
	struct rref_base *base = &s->rrefs->calling->rref.base;
	rref_ref(base);
	if (tree_hold(&arena, base)) {
		rref_unref(base);
		return -ENOMEM;
	}
	*held = arena.held;
	return 0;
}

enum far_status far_return_object(struct far_req *req, void *object)
{
	const struct function *fn = req->fn;
	struct far_deferred *d = req->record;
	if (!fn || !fn->makes || !d || !d->makes || req->answer != ANSWER_NONE)
		return FAR_INVALID;
	struct far_buf *box = object_box(fn->makes, object);
	if (!box)
		return FAR_RESOURCE;
	d->buf = box;
	d->tree = true;
	dispatch_finish(req);
	req->answer = ANSWER_SENT;
	return FAR_OK;
}

enum far_status far_deferred_return_object(struct far_deferred *d, void *object)
{
	static const char none[] = "the function answered with an object, which its signature does not declare",
			  memory[] = "no memory for another object";
	enum far_status status = d->fn && d->fn->makes && d->makes ? FAR_OK : FAR_INVALID;
	struct far_buf *box = status ? NULL : object_box(d->fn->makes, object);
	if (box) {
		d->buf = box;
		d->tree = true;
		return deferred_finish(d);
	}
	if (status)
		deferred_error(d, FAR_SIGNATURE, FAR_EXECUTED_YES, 0, none, sizeof none - 1);
	else
		deferred_error(d, FAR_RESOURCE, FAR_EXECUTED_YES, 0, memory, sizeof memory - 1);
	deferred_finish(d);
	return status ? status : FAR_RESOURCE;
}

const struct shard_feature objects_feature = {
	.name = "objects",
	.only = {.request_object = object_request, .object_find = find_at_once},
};
