/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages in parts, rendezvous and zero-copy sends, one-way messages. Application threads and handlers. */
#include "api/parts.h"

#include "base/error.h"
#include "base/must.h"
#include "base/shared.h"
#include "core/context.h"
#include "core/session.h"
#include "core/shard.h"
#include "memory/budget.h"

#include <errno.h>
#include <string.h>

/* ---- parts ---- */

static void write_parts(const void *data, void *dst, size_t len, copy_fn *copy)
{
	const struct parts *parts = data;
	uint8_t *at = dst;
	(void)len;
	for (size_t i = 0; i < parts->n; i++) {
		copy_by(parts->part[i].len < FAR_STREAM_BYTES_MIN ? NULL : copy, at, parts->part[i].data,
			parts->part[i].len);
		at += parts->part[i].len;
	}
}

static enum far_status parts_check(const struct parts *parts, size_t *len, struct far_err *err)
{
	*len = 0;
	if (parts->n > FAR_PARTS_MAX || (parts->n && !parts->part))
		return err_set(err, FAR_INVALID, "a message of %zu parts; give an array of at most %d", parts->n,
			       FAR_PARTS_MAX);
	for (size_t i = 0; i < parts->n; i++) {
		if (parts->part[i].len && !parts->part[i].data)
			return err_set(err, FAR_INVALID, "part %zu of the message has %zu bytes, but its data is NULL",
				       i, parts->part[i].len);
		if (parts->part[i].len > FAR_MSG_BYTES_MAX - *len)
			return err_set(err, FAR_TOO_LARGE, "a message of more than %zu bytes", FAR_MSG_BYTES_MAX);
		*len += parts->part[i].len;
	}
	return FAR_OK;
}

static enum far_status large_start(struct shard *s, struct call_start *start, const struct parts *parts,
				   enum parts_owner owner, struct far_err *err)
{
	bool borrow = owner != PARTS_COPIED;
	struct rendezvous_out *o;
	void *at;
	if (start->len > agent_message_max(s->config.agent, start->worker))
		return agent_start_error(s, -EMSGSIZE, start, err);
	if (borrow) {
		o = rendezvous_out_new();
		if (o) {
			if (parts->n)
				memcpy(o->parts, parts->part, parts->n * sizeof *parts->part);
			o->parts_n = (unsigned)parts->n;
			o->total = start->len;
			o->released = owner == PARTS_RELEASED;
		}
	} else {
		o = rendezvous_out_alloc(start->len, &at);
		if (o)
			write_parts(parts, at, start->len, NULL);
	}
	if (!o) {
		char why[BUDGET_TEXT_MAX];
		budget_text(why, sizeof why, start->len);
		return err_set(err, FAR_RESOURCE, "no memory for a message of %zu bytes: %s%s", start->len, why,
			       borrow ? "" : "; with a release callback it is sent without a copy");
	}
	start->ready = o->self;
	return FAR_OK;
}

static bool is_shared(const struct far_part *part)
{
	uint32_t key;
	uint64_t offset;
	return shared_find(part->data, part->len, &key, &offset);
}

size_t parts_least(const struct shard *s, const struct call_start *start)
{
	return atomic_load_explicit(&s->refers[session_index(s, start->worker, start->shard)], memory_order_relaxed)
		       ? FAR_REFERRED_BYTES
		       : FAR_REGISTERED_BYTES;
}

/* True if a part that is long enough for a zero-copy send is in registered or shared memory. */
static bool registered(const struct shard *s, const struct call_start *start, const struct parts *parts)
{
	struct far_agent *a = s->config.agent;
	if (start->len < parts_least(s, start))
		return false;
	for (size_t i = 0; i < parts->n; i++)
		if (parts->part[i].len >= FAR_ZERO_COPY_BYTES_MIN &&
		    (is_shared(&parts->part[i]) || (start->len >= FAR_REGISTERED_BYTES &&
						    mems_hold(&a->mems, parts->part[i].data, parts->part[i].len))))
			return true;
	return false;
}

enum far_status parts_start(struct shard *s, struct call_start *start, const struct parts *parts,
			    enum parts_owner owner, struct far_err *err)
{
	enum far_status status = parts_check(parts, &start->len, err);
	if (status)
		return status;
	start->data = parts;
	start->write = write_parts;
	bool rendezvous = start->len > FAR_MSG_EAGER_MAX || (owner == PARTS_RELEASED && registered(s, start, parts));
	return rendezvous ? large_start(s, start, parts, owner, err) : FAR_OK;
}

void parts_end(const struct call_start *start, far_msg_release_fn *release, void *user)
{
	if (start->ready) {
		struct rendezvous_out *o = rendezvous_out_in(start->ready);
		o->release = release; /* read after the last reference is given back, so not before this */
		o->release_user = user;
		rendezvous_out_unref(o);
	} else if (release) {
		release(user);
	}
}

/* ---- one-way messages ---- */

static enum far_status post_error(struct shard *s, int error, const struct call_start *start, struct far_err *err)
{
	if (error != -EAGAIN)
		return agent_start_error(s, error, start, err);
	counter_add_shared(&s->counters.busy_refusals, 1);
	return err_set(
		err, FAR_BUSY,
		"%d one-way messages wait for worker \"%s\"; have the shard polled (wait, or poll it) and try again",
		FAR_ONEWAYS_QUEUED_MAX, AGENT_NAME(s->config.agent, start->worker));
}

/* Queues the message, in order: behind those handed over by other threads and those that wait for the window. */
static int post_later(struct shard *s, struct call_start *start, bool on_shard)
{
	const struct far_agent *a = s->config.agent;
	_Atomic uint32_t *queued = &s->oneways_queued[session_index(s, start->worker, start->shard)];
	if (start->len > agent_message_max(a, start->worker))
		return -EMSGSIZE;
	if (!atomic_load_explicit(&a->members[start->worker].alive, memory_order_relaxed))
		return -EPIPE;
	int error = -EAGAIN;
	if (atomic_fetch_add_explicit(queued, 1, memory_order_relaxed) < FAR_ONEWAYS_QUEUED_MAX) {
		struct oneway *oneway = oneway_new(start, start->ready ? rendezvous_out_in(start->ready) : NULL);
		struct call_start handed = {
			.worker = start->worker, .shard = start->shard, .deadline = start->deadline};
		if (oneway && on_shard && !submit_peek(&s->submit)) {
			oneway_enqueue(s, start->worker, start->shard, oneway);
			return 0;
		}
		if (oneway)
			handed.ready = oneway->self;
		error = oneway ? submit_put(&s->submit, &handed) : -ENOMEM;
		if (!error)
			return 0;
		if (oneway)
			oneway_free(oneway);
	}
	atomic_fetch_sub_explicit(queued, 1, memory_order_relaxed);
	return error;
}

static enum far_status post_start(struct shard *s, struct call_start *start, struct far_err *err);

/* The same of a message that interceptors see: for them it ends when it was handed over. */
__attribute__((noinline, cold)) static enum far_status post_seen(struct shard *s, struct call_start *start,
								 struct far_err *err)
{
	struct far_err own;
	struct far_buf *ready = start->ready;
	if (!err)
		err = &own;
	enum far_status status = intercept_call(s, start, err);
	if (status)
		return status;
	status = post_start(s, start, err);
	intercept_unsent(start, status, status ? err->text : "");
	if (start->ready != ready)
		rendezvous_out_unref(rendezvous_out_in(start->ready));
	start->ready = ready;
	return status;
}

static enum far_status post_start(struct shard *s, struct call_start *start, struct far_err *err)
{
	if (unlikely(start->extra != NULL) && !start->extra->wrapped)
		return post_seen(s, start, err);
	bool held = shard_held(s), entered = !held && s->config.progress == FAR_PROGRESS_SHARED && shard_enter(s);
	int error = -EAGAIN;
	if ((held || entered) && !start->ready)
		error = oneway_send_now(s, start);
	if (error == -EAGAIN)
		error = post_later(s, start, held || entered);
	if (entered) {
		/* Without room, wake the poller, so that a caller in a retry loop makes progress. */
		shard_leave_quietly(s, error == -EAGAIN);
	} else if (!held) {
		shard_notify(s);
	}
	return error ? post_error(s, error, start, err) : FAR_OK;
}

enum far_status far_msg_oneway_parts(struct far_agent *a, struct far_to to, uint16_t id, const struct far_part *parts,
				     size_t n, far_msg_release_fn *release, void *release_user,
				     const struct far_call_opts *opts, struct far_err *err)
{
	struct parts p = {parts, n};
	struct call_extra seen;
	struct call_start start = {.fn = id};
	struct call_route route;
	enum far_status status = agent_route(a, to, opts, id, &route, err);
	if (!status && id >= FAR_MSG_HANDLERS_MAX)
		status = err_set(err, FAR_INVALID, "message ids are in [0, %d)", FAR_MSG_HANDLERS_MAX);
	if (!status && opts && opts->recv_buf.data)
		status = err_set(err, FAR_INVALID, "a one-way message has no reply; leave opts->recv_buf empty");
	if (!status) {
		start.worker = (uint32_t)to.worker;
		start.shard = route.shard;
		status = parts_start(route.via, &start, &p, release ? PARTS_RELEASED : PARTS_COPIED, err);
	}
	if (!status) {
		agent_set_deadline(a, route.via, opts, &start);
		agent_show(&start, &seen, FAR_CALL_ONEWAY, NULL, NULL, 0);
		status = post_start(route.via, &start, err);
	}
	parts_end(&start, release, release_user);
	return status;
}

enum far_status far_msg_oneway(struct far_agent *a, struct far_to to, uint16_t id, const void *data, size_t len,
			       const struct far_call_opts *opts, struct far_err *err)
{
	struct far_part part = {data, len};
	return far_msg_oneway_parts(a, to, id, &part, 1, NULL, NULL, opts, err);
}
