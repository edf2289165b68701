/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * <farcall/object.h>: calls of methods, the type of a reference, objects on their owner. Application threads and
 * handlers. A method call on a confirmed reference is a typed call with the object's id behind its arguments; every
 * other one is a request of api/rref.c.
 */
#include "api/recv_buf.h"
#include "api/rref.h"
#include "api/site.h"
#include "base/error.h"
#include "base/must.h"
#include "core/context.h"
#include "core/packet.h"
#include "core/shard.h"
#include "value/encoding.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum far_status far_register_class(struct far_agent *a, const struct far_class *cls, struct far_err *err)
{
	enum far_status status = cls ? agent_prepare_class(a, cls, err) : FAR_OK;
	return status ? status : registry_add_class(&a->registry, cls, object_enter, NULL, err);
}

/* ---- calling ---- */

/* Arguments of a method, ready to be written. */
struct method_args {
	size_t n;
	const struct far_val *v;
	struct values_plan plan;
	struct rref_id object;
	struct rref_named short_id;
	bool named; /* `short_id` is sent instead of `object` */
	struct call_extra seen;
	struct far_val converted[FAR_ARGS_MAX];
};

static void write_method(const void *data, void *dst, size_t len, copy_fn *copy)
{
	const struct method_args *args = data;
	values_write_by(args->v, args->n, &args->plan, dst, copy);
	if (args->named)
		memcpy((uint8_t *)dst + len - sizeof args->short_id, &args->short_id, sizeof args->short_id);
	else
		memcpy((uint8_t *)dst + len - sizeof args->object, &args->object, sizeof args->object);
}

__attribute__((cold)) static enum far_status no_class(const struct far_rref *r, const char *method, struct far_err *err)
{
	char text[RREF_TEXT_MAX];
	rref_text(&r->base, text, sizeof text);
	if (!rref_class(r))
		return err_set(err, FAR_INVALID, "%s is not a reference to an object: it has no method '%.64s'", text,
			       method);
	return err_set(err, FAR_NO_FUNCTION,
		       "the class of %s is not registered here; register it with far_register_class on both sides",
		       text);
}

/* Finds the first overload of the method, and the destination of the call. */
static enum far_status find_method(struct far_rref *r, const char *method, struct typed_call *c, struct far_err *err)
{
	if (unlikely(!r || !method))
		return rref_null("a method call, or its method's name", err);
	const struct shard *home = rref_home(r, err);
	if (unlikely(!home))
		return FAR_SHUTDOWN;
	struct far_agent *a = home->config.agent;
	enum far_status status = rref_failed(r, err);
	if (unlikely(status))
		return status;
	uint64_t hash = rref_class(r);
	const struct object_class *cls = hash ? registry_find_class(&a->registry, hash) : NULL;
	if (unlikely(!cls))
		return no_class(r, method, err);
	c->agent = a;
	c->fn = registry_find_method(&a->registry, cls, method);
	if (unlikely(!c->fn))
		return err_set(err, FAR_NO_FUNCTION, "%s has no method '%.128s'", cls->name, method);
	c->object = r;
	c->to = (struct far_to){(int32_t)rref_rank(r->base.owner), (int32_t)rref_owner_shard(r->base.id)};
	if (unlikely(atomic_load_explicit(&a->members[c->to.worker].incarnation, memory_order_relaxed) << 16 !=
		     r->base.owner << 16))
		return err_set(err, FAR_PEER_LOST, "the object was lost with the former incarnation of worker \"%s\"",
			       r->owner_name);
	return FAR_OK;
}

/* FAR_PENDING: send it as a request of api/rref.c instead. */
static enum far_status prepare(const struct typed_call *c, struct method_args *m, struct call_start *start,
			       struct call_route *route, struct far_err *err)
{
	const struct far_agent *a = c->agent;
	const struct function *fn = c->fn;
	if (unlikely(!far_rref_confirmed_by_owner(c->object) || recv_buf_given(c->opts)))
		return FAR_PENDING;
	enum far_status status = agent_route(a, c->to, c->opts, fn->signature.name_hash, route, err);
	if (unlikely(status))
		return status;
	status = registry_fit(&fn, c->args, c->args_n, m->converted, &m->v, err);
	if (unlikely(status))
		return status;
	m->n = fn->signature.params_n;
	size_t len = values_size(m->v, m->n, &m->plan, err);
	if (unlikely(len == SIZE_MAX))
		return err ? err->status : FAR_BAD_ARGS;
	if (unlikely(m->plan.customs | m->plan.rrefs) || len + sizeof m->object > FAR_MSG_EAGER_MAX)
		return FAR_PENDING;
	m->object = c->object->base.id;
	m->named = rref_named_of(m->object, rref_incarnation((uint32_t)a->rank, agent_incarnation(a)),
				 route->via->config.index, route->shard, &m->short_id);
	*start = (struct call_start){.worker = (uint32_t)c->to.worker,
				     .shard = route->shard,
				     .fn = (uint16_t)fn->index,
				     .typed = PACKET_TYPED | PACKET_METHOD | (m->named ? PACKET_NAMED : 0),
				     .done = NULL, /* and the next two: set by the caller */
				     .user = NULL,
				     .app = NULL,
				     .data = m,
				     .len = len + (m->named ? sizeof m->short_id : sizeof m->object),
				     .write = write_method,
				     CALL_START_REST};
	agent_set_deadline(a, route->via, c->opts, start);
	agent_show(start, &m->seen, FAR_CALL_ASYNC, fn->signature.name, c->args, c->args_n);
	return FAR_OK;
}

/* ---- the fast path ---- */

/* Calls a method of a confirmed reference that this worker named, through its home shard, and returns the future and
 * the session; NULL: the general code decides. The call holds no reference: what gives the last one back leaves by the
 * same lane, behind the request. */
static inline __attribute__((always_inline)) struct far_future *call_fast(const struct far_agent *a,
									  const struct far_rref *r, const char *method,
									  const struct far_val *args, size_t n,
									  struct shard **via, struct session **out)
{
	uint64_t left, cls = rref_class(r);
	struct shard *s = agent_fast_shard(a, &left);
	struct rref_named named;
	*via = s;
	if (unlikely(!s || !method ||
		     s != atomic_load_explicit(&((struct far_rref *)(uintptr_t)r)->home, memory_order_relaxed) ||
		     !cls || !far_rref_confirmed_by_owner(r)))
		return NULL;
	struct far_to to = {(int32_t)rref_rank(r->base.owner), (int32_t)rref_owner_shard(r->base.id)};
	uint64_t incarnation = rref_incarnation((uint32_t)a->rank, agent_incarnation(a));
	if (unlikely(!rref_named_of(r->base.id, incarnation, s->config.index, (unsigned)to.shard, &named) ||
		     atomic_load_explicit(&a->members[to.worker].incarnation, memory_order_relaxed) << 16 !=
			     r->base.owner << 16))
		return NULL;
	struct call_site *site = site_of(a, s, method, cls);
	struct session *se = likely(site) ? agent_fast_session(a, s, to, &(uint64_t){0}) : NULL;
	*out = se;
	return likely(se) ? site_call(s, se, site, left, named.count, args, n) : NULL;
}

/* The agent of a reference; NULL: it has ended. */
static inline struct far_agent *agent_of(const struct far_rref *r)
{
	const struct shard *home = likely(r) ? rref_home(r, NULL) : NULL;
	return likely(home) ? home->config.agent : NULL;
}

/* Calls and waits, as far_rpc_sync() does. NULL: the general code decides. */
static struct far_future *call_and_wait_fast(const struct far_rref *r, const char *method, const struct far_val *args,
					     size_t n)
{
	struct far_agent *a = agent_of(r);
	bool entered;
	struct shard *s;
	struct session *se;
	struct far_future *f = NULL;
	if (unlikely(!a || !site_enter(a, &entered)))
		return NULL;
	const struct shard_context *top = shard_context_top();
	if (likely(top->shard && agent_may_wait_fast(top->shard)))
		f = call_fast(a, r, method, args, n, &s, &se);
	if (likely(f != NULL))
		site_await(s, se, f);
	if (entered)
		shard_leave(a->shards[0]);
	return f;
}

__attribute__((noinline)) static enum far_status sync_general(struct far_rref *r, const char *method,
							      const struct far_val *args, size_t args_n,
							      const struct far_call_opts *opts, struct far_val *out,
							      struct far_err *err);

enum far_status far_rref_rpc_sync(struct far_rref *r, const char *method, const struct far_val *args, size_t args_n,
				  const struct far_call_opts *opts, struct far_val *out, struct far_err *err)
{
	struct far_future *f = likely(!opts) ? call_and_wait_fast(r, method, args, args_n) : NULL;
	if (unlikely(!f))
		return sync_general(r, method, args, args_n, opts, out, err);
	return agent_result_last(f, out, err);
}

static enum far_status sync_general(struct far_rref *r, const char *method, const struct far_val *args, size_t args_n,
				    const struct far_call_opts *opts, struct far_val *out, struct far_err *err)
{
	struct typed_call c = {.args = args, .args_n = args_n, .opts = opts};
	struct method_args m;
	struct call_start start;
	struct call_route route;
	enum far_status status = find_method(r, method, &c, err);
	if (likely(!status))
		status = agent_may_wait("far_rref_rpc_sync", err);
	if (unlikely(status))
		return status;
	status = prepare(&c, &m, &start, &route, err);
	if (unlikely(status))
		return status == FAR_PENDING ? typed_call_sync(&c, out, err) : status;
	if (unlikely(start.extra != NULL))
		start.extra->mode = FAR_CALL_SYNC;
	struct far_future *f = future_alloc(route.via);
	if (unlikely(!f))
		return agent_no_future(err);
	return agent_call_and_take(route.via, &start, f, out, err);
}

__attribute__((noinline)) static enum far_status async_general(struct far_rref *r, const char *method,
							       const struct far_val *args, size_t args_n,
							       const struct far_call_opts *opts,
							       struct far_future **out, struct far_err *err)
{
	struct typed_call c = {.args = args, .args_n = args_n, .opts = opts};
	struct method_args m;
	struct call_start start;
	struct call_route route;
	if (!out)
		return err_set(err, FAR_INVALID, "far_rref_rpc_async: `out`, for the future, must not be NULL");
	enum far_status status = find_method(r, method, &c, err);
	if (unlikely(status))
		return status;
	status = prepare(&c, &m, &start, &route, err);
	if (unlikely(status))
		return status == FAR_PENDING ? typed_call_async(&c, out, err) : status;
	struct far_future *f = future_alloc(route.via);
	if (unlikely(!f))
		return agent_no_future(err);
	future_mark_timed(f, FUTURE_CALL, start.left);
	return agent_started(rref_start_holding(route.via, &start, r, NULL, f, err), f, out);
}

enum far_status far_rref_rpc_async(struct far_rref *r, const char *method, const struct far_val *args, size_t args_n,
				   const struct far_call_opts *opts, struct far_future **out, struct far_err *err)
{
	struct shard *s;
	struct session *se;
	const struct far_agent *a = likely(!opts && out) ? agent_of(r) : NULL;
	struct far_future *f = likely(a) ? call_fast(a, r, method, args, args_n, &s, &se) : NULL;
	if (unlikely(!f))
		return async_general(r, method, args, args_n, opts, out, err);
	scope_gather(f);
	*out = f;
	return FAR_OK;
}

enum far_status far_rref_remote(struct far_rref *r, const char *method, const struct far_val *args, size_t args_n,
				const struct far_call_opts *opts, struct far_rref **out, struct far_err *err)
{
	struct typed_call c = {.args = args, .args_n = args_n, .opts = opts};
	enum far_status status = find_method(r, method, &c, err);
	return status ? status : typed_call_make(&c, out, err);
}

/* ---- class ---- */

const char *far_rref_class(const struct far_rref *r)
{
	uint64_t hash = r ? rref_class(r) : 0;
	if (!hash)
		return NULL;
	const struct shard *home = rref_home(r, NULL);
	const struct object_class *cls = home ? registry_find_class(&home->config.agent->registry, hash) : NULL;
	return cls ? cls->name : "?";
}

/* ---- type ---- */

/* Caches the name in the handle until that is freed. The first name stays. */
static const char *keep_name(struct far_rref *r, const char *name, size_t len)
{
	struct far_buf *none = NULL, *buf = buf_alloc(len + 1);
	if (!buf)
		return NULL;
	memcpy(buf_data(buf), name, len);
	((char *)buf_data(buf))[len] = '\0';
	if (atomic_compare_exchange_strong_explicit(&r->type_name, &none, buf, memory_order_release,
						    memory_order_acquire))
		return buf_data(buf);
	buf_unref(buf);
	return buf_data(none);
}

static const char *kept_name(struct far_rref *r)
{
	struct far_buf *buf = atomic_load_explicit(&r->type_name, memory_order_acquire);
	return buf ? buf_data(buf) : NULL;
}

static enum far_status no_room(struct far_err *err)
{
	return err_set(err, FAR_RESOURCE, "no memory for the name of a type");
}

static enum far_status own_type(struct rref_record *r, uint64_t timeout_ns, const char **name, struct far_err *err)
{
	char text[SIGNATURE_TYPE_MAX];
	enum far_status status = rref_own_value(r, timeout_ns, NULL, err);
	if (status)
		return status;
	object_type_text(r, text, sizeof text);
	*name = keep_name(&r->rref, text, strlen(text));
	return *name ? FAR_OK : no_room(err);
}

enum far_status far_rref_type(struct far_rref *r, uint64_t timeout_ns, const char **name, struct far_err *err)
{
	struct fetch_call c;
	struct far_val v;
	if (!r || !name)
		return rref_null("far_rref_type, or `name`", err);
	const char *known = kept_name(r);
	if (known) {
		*name = known;
		return FAR_OK;
	}
	struct rref_record *record = rref_as_record(r);
	if (record)
		return own_type(record, timeout_ns, name, err);
	enum far_status status = agent_may_wait("far_rref_type", err);
	if (!status)
		status = rref_fetch_start(r, RREF_TYPE, timeout_ns, &c, err);
	if (status)
		return status;
	status = agent_call_and_take(c.shard, &c.start, c.future, &v, err);
	if (status)
		return status;
	if (v.type == FAR_TYPE_STRING)
		*name = keep_name(r, v.u.s.data, v.u.s.len);
	else
		status = err_set(err, FAR_PROTOCOL, "the reply is malformed");
	far_val_fini(&v);
	return status ? status : *name ? FAR_OK : no_room(err);
}

static void on_type(struct far_rref *r, const struct completion *o)
{
	struct far_val v;
	size_t n;
	if (!o->status && values_read(o->data, o->len, &v, 1, &n, NULL) == 0 && n == 1 && v.type == FAR_TYPE_STRING)
		keep_name(r, v.u.s.data, v.u.s.len);
}

/* A complete future for a cached name. */
static enum far_status known_type(const char *name, struct far_future **out, struct far_err *err)
{
	struct far_val v = far_str(name);
	struct far_future *f;
	enum far_status status = far_future_create(&f, err);
	if (status)
		return status;
	status = far_future_set_value(f, &v, err);
	if (status)
		far_future_free(f);
	else
		*out = f;
	return status;
}

enum far_status far_rref_type_async(struct far_rref *r, uint64_t timeout_ns, struct far_future **out,
				    struct far_err *err)
{
	struct fetch_call c;
	if (!r || !out)
		return rref_null("far_rref_type_async, or `out`", err);
	const char *known = kept_name(r);
	if (known)
		return known_type(known, out, err);
	enum far_status status = rref_fetch_start(r, RREF_TYPE, timeout_ns, &c, err);
	if (status)
		return status;
	future_mark_timed(c.future, FUTURE_CALL, c.start.left);
	return agent_started(rref_start_holding(c.shard, &c.start, r, on_type, c.future, err), c.future, out);
}

/* ---- the object itself ---- */

/* An object by its owner's record. The reference itself may come from a peer and is not trusted. */
struct found {
	void *object;
	const struct object_class *cls; /* NULL: not an object */
};

/* A lookup on the home shard, for a handle that is not the owner's own. In a buffer. */
struct object_query {
	struct shard_task task;
	struct rref_id id;
	struct far_future *future; /* completed with struct found, or GONE; a reference */
	struct far_buf *buf;
};

static void answer_query(struct shard *s, struct shard_task *e)
{
	struct object_query *p = (struct object_query *)(void *)e;
	static const char gone[] = "the object was destroyed";
	const struct rref_record *r = rref_table_find(&s->rrefs->records, p->id);
	const struct found found = {r ? r->object : NULL, r ? r->made : NULL};
	struct completion o = {.status = r ? FAR_OK : FAR_GONE, .agent = s->config.agent};
	o.data = o.status ? gone : (const void *)&found;
	o.len = o.status ? sizeof gone - 1 : sizeof found;
	s->config.complete(p->future, &o);
	buf_unref(&p->future->head);
	buf_unref(p->buf);
}

static enum far_status query_object(struct shard *s, struct rref_id id, struct found *found, struct far_err *err)
{
	struct far_buf *buf = buf_alloc(sizeof(struct object_query));
	struct far_future *f = buf ? future_alloc(s) : NULL;
	if (!f) {
		buf_unref(buf);
		return err_set(err, FAR_RESOURCE, "no memory to look up an object");
	}
	struct object_query *p = buf_data(buf);
	*p = (struct object_query){.task = {.run = answer_query}, .id = id, .future = f, .buf = buf};
	buf_ref(&f->head);
	if (shard_held(s))
		answer_query(s, &p->task);
	else
		shard_add_task(s, &p->task);
	enum far_status status = far_future_wait(f, 0, NULL, err);
	if (!status)
		memcpy(found, future_bytes(f), sizeof *found);
	buf_unref(&f->head);
	return status;
}

enum far_status object_local_value(struct far_rref *r, uint64_t timeout_ns, struct far_val *out, struct far_err *err)
{
	const char *name;
	struct found found;
	enum far_status status = far_rref_type(r, timeout_ns, &name, err);
	struct shard *home = status ? NULL : rref_home(r, err);
	if (!status && !home)
		status = FAR_SHUTDOWN;
	if (status)
		return status;
	const struct far_agent *a = home->config.agent;
	unsigned shard = rref_owner_shard(r->base.id);
	if (shard >= a->shards_n)
		return err_set(err, FAR_INVALID, "the reference names shard %u of worker \"%s\", which has %u", shard,
			       a->name, a->shards_n);
	status = query_object(a->shards[shard], r->base.id, &found, err);
	if (!status && !found.cls)
		return FAR_PENDING;
	if (!status && out)
		*out = far_custom(&found.cls->type, found.object);
	return status;
}

enum far_status far_rref_object(struct far_rref *r, const char *name, uint64_t timeout_ns, void **object,
				struct far_err *err)
{
	char text[RREF_TEXT_MAX];
	struct far_val v;
	if (!r || !object)
		return rref_null("far_rref_object, or `object`", err);
	/* Look up the object first, also if the reference does not state a class: a fetch would copy it. */
	enum far_status status = FAR_PENDING;
	if (!r->owned && far_rref_is_owner(r))
		status = object_local_value(r, timeout_ns, &v, err);
	if (status == FAR_PENDING)
		status = far_rref_local_value(r, timeout_ns, &v, err);
	if (status)
		return status;
	const struct object_class *cls = object_class_of(&v);
	if (cls && (!name || strcmp(cls->name, name) == 0)) {
		*object = v.u.custom.object;
		return FAR_OK;
	}
	status = err_set(err, FAR_INVALID, "%s is a reference to a %s, not to an object of %.64s",
			 rref_text(&r->base, text, sizeof text), cls ? cls->name : far_type_name((enum far_type)v.type),
			 name ? name : "a class");
	far_val_fini(&v);
	return status;
}
