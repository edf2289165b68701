/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Flows of control: what each interceptor keeps for a thread, a fiber, a handler or a callback. Each flow is its own
 * thread's or fiber's; captured flows travel with continuations. No function here waits.
 */
#ifndef FAR_CORE_FLOW_H
#define FAR_CORE_FLOW_H

#include <farcall/intercept.h>
#include <stdatomic.h>
#include <stdbool.h>

struct far_buf;
struct fiber;

/** Interceptors of the application, and the engine's own two. */
#define FLOW_POINTERS (FAR_INTERCEPTORS_MAX + 2)

struct flow {
	void *pointer[FLOW_POINTERS]; /* by number of the interceptor; references of the flow */
};

/** A flow inside of another: of a handler that interceptors see, or of a continuation. On the stack of the flow. */
struct flow_frame {
	struct flow flow;
	struct flow_frame *outer;
	struct fiber *fiber; /* whose list it is in; NULL: the thread's */
	unsigned depth;      /* handlers that the thread ran when it was entered: it is not the flow of further ones */
	struct far_buf *buf; /* its memory, of the first one of a fiber; NULL: a stack */
};

/** True once an interceptor was added: until then no flow has a pointer. Release, pairs with flow_used(). */
extern _Atomic bool flow_enabled;
static inline bool flow_used(void)
{
	return __builtin_expect(atomic_load_explicit(&flow_enabled, memory_order_relaxed), 0);
}

/** How the pointers of an interceptor are counted. Before the first flow has one. */
void flow_define(unsigned id, void (*ref)(void *pointer, void *user), void (*unref)(void *pointer, void *user),
		 void *user);
/** Begins a flow with copies of the pointers of `from` (NULL: none). */
void flow_enter(struct flow_frame *frame, const struct flow *from);
/** Ends the innermost flow, and drops its pointers. */
void flow_leave(struct flow_frame *frame);
/** Copies the pointers of the present flow. */
void flow_capture(struct flow *out);
void flow_drop(struct flow *flow);
/** The end of a blocking handler; of a fiber that has frames. */
void flow_thread_end(void);
void flow_fiber_end(struct fiber *fiber);
void *flow_get(unsigned id);
/** FAR_INVALID: the flow keeps nothing. */
enum far_status flow_set(unsigned id, void *pointer);

#endif
