/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Switching a thread between stacks. A context is one flow of control: a thread's own stack, or a stack that was made.
 * What is saved is what the ABI calls callee-saved, the floating-point control words included; signal masks are not,
 * but by the portable fallback (ucontext, two system calls a switch).
 *
 * A flow may leave on one thread and go on on another, never on two at once. It must not keep the address of anything
 * thread-local across a switch.
 */
#ifndef FAR_BASE_STACK_SWITCH_H
#define FAR_BASE_STACK_SWITCH_H

#include <stddef.h>

#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(FAR_SWITCH_UCONTEXT)
#define FAR_SWITCH_UCONTEXT
#endif
#ifdef FAR_SWITCH_UCONTEXT
#include <ucontext.h>
#endif

struct stack_context {
#ifdef FAR_SWITCH_UCONTEXT
	ucontext_t machine;
#else
	void *sp; /* while it is left */
#endif
	const void *low; /* of its stack; of a thread's own, known to sanitizers only */
	size_t bytes;
	void (*fn)(void *arg); /* of one that was made */
	void *arg;
	struct stack_context *from; /* that was left for it last */
	void *asan_fake, *tsan;     /* the sanitizers' view of it */
};

/** Prepares a flow that runs `fn(arg)`, which must never return, on the stack [low, low + bytes), at the first switch
 * to it. `c` must not move from then on. */
void stack_context_make(struct stack_context *c, void *low, size_t bytes, void (*fn)(void *arg), void *arg);
/** The flow is not running and never will again. */
void stack_context_fini(struct stack_context *c);

/** Prepares `c` to stand for the calling thread's own stack, for as long as it runs others. */
void stack_context_here(struct stack_context *c);
/** Leaves `from`, which the calling thread runs, for `to`; returns when something switches back to `from`. */
void stack_switch(struct stack_context *from, struct stack_context *to);

#endif
