/* SPDX-License-Identifier: BSD-3-Clause */
/** Keeps a fixed number of messages in flight towards one shard. One thread per flow. */
#include "flow.h"
#include "floor_ring.h"
#include <sched.h>
#include <string.h>

#define LOOK     16            /* passes between two looks at the clock */
#define DRAIN_NS (5 * FAR_SEC) /* for the calls in flight at the end */

static uint64_t completed(struct flow *f)
{
	return atomic_load_explicit(&f->done, memory_order_acquire);
}

static uint64_t answered(struct flow *f)
{
	return completed(f) - atomic_load_explicit(&f->refused, memory_order_relaxed);
}

static void fail(struct flow *f, const struct far_err *err)
{
	if (atomic_load_explicit(&f->failed, memory_order_relaxed))
		return;
	f->err = *err;
	atomic_store_explicit(&f->failed, true, memory_order_release);
}

static bool send_one(struct flow *f);

static void on_done(enum far_status status, const void *data, size_t len, const struct far_err *err, void *user)
{
	struct flow_mark *m = user;
	struct flow *f = m->flow;
	(void)data;
	(void)len;
	if (m == &f->sample) {
		hist_record(f->samples, floor_now() - m->sent_at);
		atomic_store_explicit(&f->sampling, false, memory_order_release); /* pairs with send_one() */
	}
	/* A call that was handed over and then found no room is no call, nor a failure: another one takes its place. */
	if (status == FAR_BUSY)
		atomic_store_explicit(&f->refused, atomic_load_explicit(&f->refused, memory_order_relaxed) + 1,
				      memory_order_relaxed);
	else if (status != FAR_OK)
		fail(f, err);
	/* One writer: no read-modify-write is needed. */
	atomic_store_explicit(&f->done, atomic_load_explicit(&f->done, memory_order_relaxed) + 1, memory_order_release);
	if (f->resend)
		send_one(f);
}

static void on_release(void *user)
{
	struct flow_buffer *b = user;
	b->next = b->flow->free;
	b->flow->free = b;
}

/* NULL: the receiver may still read all of them. */
static struct flow_buffer *take_buffer(struct flow *f)
{
	struct flow_buffer *b = f->free;
	if (!b)
		return NULL;
	f->free = b->next;
	if (f->written)
		memset(b->at, (int)f->sent, f->bytes);
	return b;
}

static void on_answer(struct far_future *future, void *user)
{
	struct far_val v = {.type = FAR_TYPE_NONE};
	struct far_err err;
	enum far_status status = far_future_value(future, &v, &err);
	far_val_fini(&v);
	on_done(status, NULL, 0, &err, user);
}

static enum far_status send_typed(struct flow *f, struct flow_mark *m, struct far_err *err)
{
	struct flow_buffer *b = f->released ? take_buffer(f) : NULL;
	if (f->released && !b)
		return FAR_BUSY;
	struct far_tensor x = far_tensor_1d(FAR_U8, b ? b->at : f->request, f->bytes);
	const struct far_val arg = far_tensor_val(&x);
	const struct far_call_opts *opts = f->held ? NULL : &f->opts;
	struct far_future *future;
	enum far_status status;
	if (b && !f->copied) {
		const struct far_zero_copy_call call = {.to = f->to,
							.function = f->function,
							.args = &arg,
							.args_n = 1,
							.release = on_release,
							.release_user = b,
							.opts = opts};
		status = far_rpc_async_zero_copy(f->agent, &call, &future, err);
	} else {
		status = far_rpc_async_to(f->agent, f->to, f->function, &arg, 1, opts, &future, err);
		if (b)
			on_release(b);
	}
	if (status == FAR_OK) {
		status = far_future_on_done(future, on_answer, m, err);
		far_future_free(future);
	}
	return status;
}

static enum far_status send_released(struct flow *f, struct flow_mark *m, struct far_err *err)
{
	struct flow_buffer *b = take_buffer(f);
	if (!b)
		return FAR_BUSY;
	struct far_part part = {b->at, f->bytes};
	return far_msg_send_parts(f->agent, f->to, f->id, &part, 1, on_release, b, f->held ? NULL : &f->opts, on_done,
				  m, err);
}

/* False: back-pressure, or an error, kept in `f`. */
static bool send_one(struct flow *f)
{
	struct far_err err;
	struct flow_mark *m = &f->plain;
	if (!atomic_load_explicit(&f->sampling, memory_order_acquire)) {
		m = &f->sample;
		m->sent_at = floor_now();
		atomic_store_explicit(&f->sampling, true, memory_order_relaxed);
	}
	enum far_status status = f->function   ? send_typed(f, m, &err)
				 : f->released ? send_released(f, m, &err)
					       : far_msg_send(f->agent, f->to, f->id, f->request, f->bytes,
							      f->held ? NULL : &f->opts, on_done, m, &err);
	if (status == FAR_OK) {
		f->sent++;
		return true;
	}
	if (m == &f->sample)
		atomic_store_explicit(&f->sampling, false, memory_order_relaxed);
	if (status != FAR_BUSY)
		fail(f, &err);
	return false;
}

static void fill(struct flow *f)
{
	while (f->sent - completed(f) < f->inflight && send_one(f))
		;
}

static void progress(struct flow *f)
{
	if (f->held) {
		for (int i = 0; i < LOOK; i++)
			far_shard_poll_at(f->agent, f->shard);
		return;
	}
	uint64_t before = completed(f);
	for (unsigned i = 0; i < FLOOR_SPINS; i++)
		if (completed(f) != before)
			return;
	sched_yield();
}

int flow_run(struct flow *f, uint64_t ns, uint64_t *calls, uint64_t *busy_ns)
{
	uint64_t start = floor_now(), now = start, first = answered(f), end = first;
	f->plain.flow = f->sample.flow = f;
	f->opts = (struct far_call_opts){.via = FAR_VIA(f->shard)};
	if (f->held) /* else the shard's thread may still be reading it, behind the last completion */
		f->resend = true;
	while (now - start < ns && !atomic_load_explicit(&f->failed, memory_order_acquire)) {
		fill(f);
		progress(f);
		now = floor_now();
		end = answered(f);
	}
	*calls += end - first;
	*busy_ns += now - start;
	if (f->held)
		f->resend = false;
	uint64_t stop = floor_now() + DRAIN_NS;
	while (completed(f) != f->sent && floor_now() < stop)
		progress(f);
	if (completed(f) != f->sent)
		fail(f, &(struct far_err){.status = FAR_TIMEOUT, .text = "calls in flight were never answered"});
	return atomic_load_explicit(&f->failed, memory_order_acquire);
}
