/* SPDX-License-Identifier: BSD-3-Clause */
/** Cancels calls: on the shard thread at once, from any thread by a list that the shard empties. Shard thread, but for
 * call_submit_cancel() (any thread). */
#include "core/call_cancel.h"

#include "base/must.h"
#include "core/call.h"
#include "core/feature.h"
#include "core/shard.h"
#include "core/waiting.h"

#include <errno.h>

bool call_cancel(struct shard *s, const struct call_id *id)
{
	shard_own(s);
	if (id->slot == CALL_ID_WAITING) {
		waiting_cancel(s, id->gen);
		return true;
	}
	if (!id->slot)
		return features_call_cancel(s, id);
	must(id->slot <= s->calls_n);
	struct call *c = &s->calls[id->slot - 1];
	if (c->gen != id->gen || c->state < CALL_SENT)
		return false;
	call_end_early(s, c, FAR_CANCELLED, "the call was cancelled here");
	return true;
}

bool call_cancel_future(struct shard *s, struct far_future *f)
{
	uint32_t state = future_state(f);
	return !(state & FUTURE_DONE) &&
	       ((state & FUTURE_CALL && call_cancel(s, &f->call)) || features_group_cancel(s, f));
}

void call_gather_cancels(struct shard *s)
{
	struct call_cancel_msg *msg = atomic_exchange_explicit(&s->cancels, NULL, memory_order_acquire);
	while (msg) {
		struct call_cancel_msg *next = msg->next;
		msg->next = s->cancels_taken;
		s->cancels_taken = msg;
		msg = next;
	}
}

static struct far_future *take_cancel(struct shard *s)
{
	struct call_cancel_msg *msg = s->cancels_taken;
	struct far_future *f = msg->future;
	s->cancels_taken = msg->next;
	buf_unref(msg->buf);
	return f;
}

unsigned call_run_cancels(struct shard *s)
{
	shard_own(s);
	unsigned n = 0;
	for (; s->cancels_taken; n++) {
		struct far_future *f = take_cancel(s);
		call_cancel_future(s, f);
		buf_unref(&f->head);
	}
	return n;
}

void call_drop_cancels(struct shard *s)
{
	call_gather_cancels(s);
	while (s->cancels_taken)
		buf_unref(&take_cancel(s)->head);
}

int call_submit_cancel(struct shard *s, struct far_future *f)
{
	struct far_buf *buf = buf_alloc(sizeof(struct call_cancel_msg));
	if (!buf)
		return -ENOMEM;
	struct call_cancel_msg *msg = buf_data(buf);
	msg->buf = buf;
	msg->future = f;
	buf_ref(&f->head);
	atomic_fetch_add_explicit(&s->producers, 1, memory_order_acquire);
	struct call_cancel_msg *head = atomic_load_explicit(&s->cancels, memory_order_relaxed);
	do
		msg->next = head;
	while (!atomic_compare_exchange_weak_explicit(&s->cancels, &head, msg, memory_order_release,
						      memory_order_relaxed));
	shard_notify(s);
	atomic_fetch_sub_explicit(&s->producers, 1, memory_order_release); /* pairs with agent_fini_pollers */
	return 0;
}
