/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Switches a thread between stacks. A context is one flow of control: a thread's own stack, or a stack that was made.
 * A switch saves the callee-saved registers of the ABI and the floating-point control words; signal masks are saved
 * only by the portable fallback (ucontext, two system calls a switch). The thread that runs the flow.
 *
 * A flow may be left on one thread and continued on another, never on two at once. It must not use addresses of
 * thread-local variables across a switch.
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
	void *sp; /* stack pointer while the flow is left */
#endif
	const void *low;       /* lowest address of its stack; of a thread's own stack set in sanitizer builds only */
	size_t bytes;          /* of its stack */
	void (*fn)(void *arg); /* of a made context */
	void *arg;
	struct stack_context *from; /* the context that was last left for it */
	void *asan_fake, *tsan;     /* handles of the sanitizers */
};

/** Makes a context that runs `fn(arg)`, which must never return, on the stack [low, low + bytes) from the first switch
 * to it. `c` must not move from then on. */
void stack_context_make(struct stack_context *c, void *low, size_t bytes, void (*fn)(void *arg), void *arg);
/** Ends a context that does not run and is not switched to any more. */
void stack_context_fini(struct stack_context *c);

/** Makes `c` the context of the calling thread's own stack, while the thread runs other contexts. */
void stack_context_here(struct stack_context *c);
/** Switches the calling thread from its context `from` to `to`; returns when a thread switches back to `from`. */
void stack_switch(struct stack_context *from, struct stack_context *to);

#endif
