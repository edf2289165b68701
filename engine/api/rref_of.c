/* SPDX-License-Identifier: BSD-3-Clause */
/** References to values and objects that this worker has already: far_rref_of(), far_rref_of_object(). Any thread; the
 * shard makes the owner's record. */
#include "api/rref.h"

#include "base/error.h"
#include "base/hash.h"

#include <string.h>

/* A value on its way to the shard. At the start of its own buffer `self`. */
struct offer {
	struct shard_task task;
	struct far_buf *self;
	struct rref_user *user;   /* the handle: a reference */
	struct far_future *value; /* done: a reference */
};

/* The handle is a fork of its own worker, as that of far_remote() to itself. */
static void settle(struct shard *s, struct shard_task *task)
{
	static const char no_room[] = "this worker has no room for another reference";
	struct offer *o = (struct offer *)(void *)task;
	struct far_future *f = o->value;
	struct rref_user *u = o->user;
	struct completion known = {.status = FAR_OK, .executed = FAR_EXECUTED_YES, .origin = -1}, value = known;
	struct rref_record *r = rref_record(s, u->rref.base.id);
	if (r && rref_fork_add(s, r, u->fork, u->session)) {
		r->rref.types = u->rref.types;
		rref_class_set(&r->rref, rref_class(&u->rref));
		value.data = future_bytes(f);
		value.len = future_len(f);
		value.buf = f->buf;
		rref_settle(s, r, &value, f->code == FUTURE_TREE);
	} else {
		known.status = FAR_RESOURCE;
		known.executed = FAR_EXECUTED_NO;
		known.data = no_room;
		known.len = sizeof no_room - 1;
	}
	rref_known_end(s, u, &known);
	if (r)
		rref_unref(&r->rref.base);
	rref_unref(&u->rref.base);
	buf_unref(&f->head);
	buf_unref(o->self);
}

/* `object`: of class `cls`, in place of `value`; the engine's on FAR_OK only. */
static enum far_status offer(struct far_agent *a, struct packed *value, uint16_t types, const struct object_class *cls,
			     void *object, struct far_rref **out, struct far_err *err)
{
	struct shard *s = agent_shard_of_thread(a);
	uint64_t self = rref_incarnation((uint32_t)a->rank, agent_incarnation(a)), names = rref_names(s, 2);
	const struct rref_wire w = {.owner = self,
				    .id = rref_name(self, s->config.index, s->config.index, names),
				    .fork = rref_name(self, s->config.index, 0, names + 1),
				    .types = types,
				    .cls = cls ? cls->hash : 0};
	struct far_buf *buf = buf_alloc(sizeof(struct offer));
	struct far_future *f = buf ? future_alloc(NULL) : NULL;
	struct rref_user *u = f ? rref_new(s, &w) : NULL;
	if (u && cls && !(value->buf = object_box(cls, object))) {
		rref_discard(u);
		u = NULL;
	}
	if (!u) {
		if (f)
			buf_unref(&f->head);
		buf_unref(buf);
		return err_set(err, FAR_RESOURCE, "no memory for another reference");
	}
	struct offer *o = buf_data(buf);
	*o = (struct offer){.task.run = settle, .self = buf, .user = u, .value = f};
	agent_complete_value(NULL, f, value);
	if (!cls) { /* the last reference of an object's value runs its destructor: the shard has it */
		buf_ref(&f->head);
		u->own = f;
	}
	rref_owner_is(&u->rref, a->name);
	rref_enter(&u->rref);
	rref_ref(&u->rref.base); /* of the offer */
	*out = &u->rref;
	shard_add_task(s, &o->task);
	return FAR_OK;
}

/* A value of plain bytes that owns its memory shares it; any other one is copied. */
static enum far_status pack(const struct far_val *value, struct packed *packed, struct far_err *err)
{
	bool plain = value->type == FAR_TYPE_TENSOR || value->type == FAR_TYPE_STRING || value->type == FAR_TYPE_BYTES;
	if (!plain || !value->own)
		return agent_pack(value, packed, err);
	struct far_val shared = *value;
	shared.kw = NULL;
	shared.own = NULL;
	*packed = (struct packed){.tree = true, .buf = tree_of(&shared, value->own)};
	return packed->buf ? FAR_OK : err_set(err, FAR_RESOURCE, "no memory for another reference");
}

enum far_status far_rref_of(struct far_agent *a, const struct far_val *value, struct far_rref **out,
			    struct far_err *err)
{
	struct packed packed;
	struct far_err own;
	if (!err)
		err = &own;
	if (!a || !value || !out)
		return err_set(err, FAR_INVALID, "far_rref_of: the agent, the value and `out` must not be NULL");
	enum far_status status = pack(value, &packed, err);
	if (status)
		return status;
	status = offer(a, &packed, (uint16_t)(1u << value->type), NULL, NULL, out, err);
	if (status)
		buf_unref(packed.buf);
	return status;
}

enum far_status far_rref_of_object(struct far_agent *a, const char *name, void *object, struct far_rref **out,
				   struct far_err *err)
{
	struct packed packed = {.tree = true};
	if (!a || !name || !out)
		return err_set(err, FAR_INVALID, "far_rref_of_object: the agent, the class and `out` must not be NULL");
	const struct object_class *cls = registry_find_class(&a->registry, hash64(name, strlen(name)));
	if (!cls)
		return err_set(err, FAR_INVALID, "class %.64s is not registered here: far_register_class()", name);
	return offer(a, &packed, 1u << FAR_TYPE_CUSTOM, cls, object, out, err);
}
