/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Alternate stacks for signal handlers, one per thread: a handler cannot run on a stack that has overflowed. The
 * library's own threads take one when far_crash_report_install() was called before they began.
 */
#ifndef FAR_BASE_CRASH_STACK_H
#define FAR_BASE_CRASH_STACK_H

#include <stddef.h>

struct crash_stack {
	void *low; /* NULL: none was taken */
	size_t bytes;
};

/** From now on threads take one. */
void crash_stacks_enable(void);
/** Gives the calling thread one, unless nobody asked for it or it has one. 0 or an errno. */
int crash_stack_take(struct crash_stack *c);
/** Before the thread that took it ends. */
void crash_stack_give(struct crash_stack *c);

#endif
