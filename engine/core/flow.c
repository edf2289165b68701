/* SPDX-License-Identifier: BSD-3-Clause */
/** Finds the flow of control that calls, and counts the pointers in it. Any thread. */
#include "core/flow.h"

#include "core/context.h"
#include "core/fiber.h"
#include "memory/buf.h"

#include <string.h>

_Atomic bool flow_enabled;

/* By id, how a pointer of a flow is counted. Written by flow_define() before a flow has such a pointer. */
static struct {
	void (*ref)(void *pointer, void *user);
	void (*unref)(void *pointer, void *user);
	void *user; /* of both */
} counted[FLOW_POINTERS];

/* Of a thread. Not kept across a wait, after which a fiber may be on another thread. */
static _Thread_local struct flow thread_flow;
static _Thread_local struct flow_frame *thread_frames;

void flow_define(unsigned id, void (*ref)(void *pointer, void *user), void (*unref)(void *pointer, void *user),
		 void *user)
{
	counted[id].ref = ref;
	counted[id].unref = unref;
	counted[id].user = user;
	atomic_store_explicit(&flow_enabled, true, memory_order_release);
}

static void drop(unsigned id, void *pointer)
{
	if (pointer && counted[id].unref)
		counted[id].unref(pointer, counted[id].user);
}

static void copy(struct flow *to, const struct flow *from)
{
	*to = *from;
	for (unsigned i = 0; i < FLOW_POINTERS; i++)
		if (to->pointer[i] && counted[i].ref)
			counted[i].ref(to->pointer[i], counted[i].user);
}

void flow_drop(struct flow *flow)
{
	for (unsigned i = 0; i < FLOW_POINTERS; i++) {
		void *pointer = flow->pointer[i];
		flow->pointer[i] = NULL;
		drop(i, pointer);
	}
}

/* Handlers, callbacks and fibers that the thread is inside of. */
static unsigned depth(void)
{
	unsigned n = 0;
	for (const struct shard_context *c = shard_context_top(); c; c = c->outer)
		n += (c->handler != NULL) + (c->fiber != NULL) + (c->req != NULL);
	return n;
}

static __attribute__((noinline)) struct flow_frame **frames_of(const struct fiber *fiber)
{
	return fiber ? (struct flow_frame **)(uintptr_t)&fiber->frames : &thread_frames;
}

void flow_enter(struct flow_frame *frame, const struct flow *from)
{
	if (from)
		copy(&frame->flow, from);
	else
		memset(&frame->flow, 0, sizeof frame->flow);
	frame->fiber = shard_in_fiber();
	frame->depth = depth();
	frame->buf = NULL;
	struct flow_frame **frames = frames_of(frame->fiber);
	frame->outer = *frames;
	*frames = frame;
}

void flow_leave(struct flow_frame *frame)
{
	*frames_of(frame->fiber) = frame->outer;
	flow_drop(&frame->flow);
}

/* NULL: the flow that calls keeps nothing. */
static __attribute__((noinline)) struct flow *present(const struct fiber *fiber)
{
	struct flow_frame *frame = *frames_of(fiber);
	if (frame && (fiber || frame->depth == depth()))
		return &frame->flow;
	return fiber || shard_in_handler() ? NULL : &thread_flow;
}

void flow_capture(struct flow *out)
{
	const struct flow *flow = present(shard_in_fiber());
	if (flow)
		copy(out, flow);
	else
		memset(out, 0, sizeof *out);
}

__attribute__((noinline)) void flow_thread_end(void)
{
	flow_drop(&thread_flow);
}

void flow_fiber_end(struct fiber *fiber)
{
	struct flow_frame *frame = fiber->frames;
	fiber->frames = NULL;
	flow_drop(&frame->flow);
	buf_unref(frame->buf);
}

void *flow_get(unsigned id)
{
	const struct flow *flow = present(shard_in_fiber());
	return flow ? flow->pointer[id] : NULL;
}

enum far_status flow_set(unsigned id, void *pointer)
{
	struct fiber *fiber = shard_in_fiber();
	struct flow *flow = present(fiber);
	if (!flow && !fiber)
		return FAR_INVALID;
	if (!flow) {
		struct far_buf *buf = buf_alloc(sizeof(struct flow_frame));
		if (!buf)
			return FAR_RESOURCE;
		struct flow_frame *frame = buf_data(buf);
		flow_enter(frame, NULL);
		frame->buf = buf;
		flow = &frame->flow;
	}
	void *before = flow->pointer[id];
	flow->pointer[id] = pointer;
	drop(id, before);
	return FAR_OK;
}
