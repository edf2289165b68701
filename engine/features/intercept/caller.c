/* SPDX-License-Identifier: BSD-3-Clause */
/** Shows calls to the interceptors at the caller. The thread that starts a call, and the one that completes it. */
#include "features/intercept/intercept.h"

#include "base/error.h"
#include "base/must.h"
#include "core/flow.h"
#include "core/shard.h"
#include "features/rendezvous/rendezvous.h"

#include <stdio.h>
#include <string.h>

/* Of a call, from call_out to reply_in. At the beginning of a buffer. */
struct intercepted_call {
	struct call_extra extra; /* first: call_start.extra is call_start.user */
	struct far_buf *buf;
	const struct shard *shard;
	call_done_fn *done;
	void *user;
	uint32_t mask; /* interceptors that saw it; references */
	struct far_call_info info;
	void *cookie[FLOW_POINTERS];
};

static void reply(struct intercepted_call *c, const uint8_t *fields, uint32_t bytes, const struct far_err *err)
{
	struct far_tlv_in in = {.data = fields, .bytes = bytes};
	for (uint32_t left = c->mask; left; left &= left - 1) {
		unsigned id = (unsigned)__builtin_ctz(left);
		const struct far_interceptor *i = intercept_at(id);
		in.first = i->tlv_first;
		in.last = i->tlv_last;
		if (i->reply_in)
			i->reply_in(&c->info, &in, err, c->cookie[id], i->user);
	}
	intercept_give(c->mask);
}

static void call_free(struct intercepted_call *c)
{
	buf_unref(c->extra.tlv);
	buf_unref(c->buf);
}

static enum far_status no_memory(struct far_err *err)
{
	return err_set(err, FAR_RESOURCE, "no memory for a call that interceptors see");
}

/* Moves the payload of a request that is too large with its fields to a message in fragments. */
static bool fits(struct call_start *start, const struct tlv_block *fields)
{
	void *at;
	if (start->ready || start->len + fields->bytes <= FAR_MSG_EAGER_MAX)
		return true;
	struct rendezvous_out *o = rendezvous_out_alloc(start->len, &at);
	if (!o)
		return false;
	if (start->write)
		start->write(start->data, at, start->len, NULL);
	else
		memcpy(at, start->data, start->len);
	start->write = NULL;
	start->ready = o->self;
	return true;
}

/* Calls call_out of each. The first that fails ends those before it. */
static enum far_status call_out(struct intercepted_call *c, uint32_t mask, struct far_tlv_out *out, struct far_err *err)
{
	for (uint32_t left = mask; left; left &= left - 1) {
		unsigned id = (unsigned)__builtin_ctz(left);
		const struct far_interceptor *i = intercept_at(id);
		enum far_status status = FAR_OK;
		out->first = i->tlv_first;
		out->last = i->tlv_last;
		memset(err, 0, sizeof *err);
		if (i->call_out)
			status = i->call_out(&c->info, out, &c->cookie[id], err, i->user);
		if (status) {
			err->status = status;
			if (!err->text[0])
				snprintf(err->text, sizeof err->text, "the interceptor \"%s\" failed the call: %s",
					 i->name, far_status_text(status));
			intercept_give(left);
			return status;
		}
		c->mask |= UINT32_C(1) << id;
	}
	return FAR_OK;
}

enum far_status intercept_call(const struct shard *s, struct call_start *start, struct far_err *err)
{
	const struct call_extra *seen = start->extra;
	struct far_buf *buf = buf_alloc(sizeof(struct intercepted_call));
	struct far_tlv_out out;
	struct far_err own;
	if (!err)
		err = &own;
	if (!buf)
		return no_memory(err);
	struct intercepted_call *c = buf_data(buf);
	*c = (struct intercepted_call){.extra = *seen,
				       .buf = buf,
				       .shard = s,
				       .done = start->done,
				       .user = start->user,
				       .info = {.agent = s->config.agent,
						.mode = (enum far_call_mode)seen->mode,
						.from = {(int32_t)s->config.rank, (int32_t)s->config.index},
						.to = {(int32_t)start->worker, start->shard},
						.function = seen->function,
						.message = seen->function ? 0 : start->fn,
						.args = seen->args,
						.args_n = seen->args_n}};
	c->extra.wrapped = true;
	out.bytes = 0;
	enum far_status status = call_out(c, intercept_take(&intercept_mask, s->config.agent), &out, err);
	c->info.args = NULL;
	c->info.args_n = 0;
	bool failed = false;
	if (!status)
		c->extra.tlv = tlv_block_of(&out, &failed);
	if (!status && (failed || (c->extra.tlv && !fits(start, tlv_block_in(c->extra.tlv)))))
		status = no_memory(err);
	if (status) {
		reply(c, NULL, 0, err);
		call_free(c);
		return status;
	}
	start->done = start->done ? intercept_done : NULL;
	start->user = c;
	start->extra = &c->extra;
	return FAR_OK;
}

static void error_of(const struct intercepted_call *c, const struct completion *o, struct far_err *err)
{
	const struct shard_config *config = &c->shard->config;
	size_t n = o->len < sizeof err->text ? o->len : sizeof err->text - 1;
	memset(err, 0, sizeof *err);
	err->status = o->status;
	err->executed = o->executed;
	err->code = o->code;
	if (n)
		memcpy(err->text, o->data, n);
	if (o->origin >= 0 && config->name_of)
		config->name_of(config->agent, (uint32_t)o->origin, err->origin);
}

void intercept_done(void *user, const struct completion *o)
{
	struct intercepted_call *c = user;
	const struct shard *s = c->shard;
	struct far_err err;
	uint8_t fields[FAR_TLV_BYTES_MAX];
	uint32_t bytes = s->answer_fields ? s->answer_fields_bytes : 0;
	if (bytes) /* a peer may still write them */
		memcpy(fields, s->answer_fields, bytes);
	if (!tlv_well_formed(fields, bytes))
		bytes = 0;
	if (o->status)
		error_of(c, o, &err);
	reply(c, fields, bytes, o->status ? &err : NULL);
	c->done(c->user, o);
	call_free(c);
}

void intercept_unsent(struct call_start *start, enum far_status status, const char *text)
{
	struct intercepted_call *c = (struct intercepted_call *)(void *)start->extra;
	struct far_err err = {.status = status};
	snprintf(err.text, sizeof err.text, "%s", text);
	start->done = c->done;
	start->user = c->user;
	start->extra = NULL;
	reply(c, NULL, 0, status ? &err : NULL);
	call_free(c);
}

void intercept_unwrap(call_done_fn **done, void **user)
{
	const struct intercepted_call *c = *user;
	*done = c->done;
	*user = c->user;
}
