/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Alternate stacks for signal handlers, one per thread: a handler cannot run on a stack that has overflowed. The
 * library's own threads take one if far_crash_report_install() was called before they started. Each thread for itself.
 */
#ifndef FAR_BASE_CRASH_STACK_H
#define FAR_BASE_CRASH_STACK_H

#include <stddef.h>

struct crash_stack {
	void *low; /* NULL: none was taken */
	size_t bytes;
};

/** Enables crash_stack_take() for threads that start from now on. */
void crash_stacks_enable(void);
/** Installs a stack for the calling thread, unless not enabled or it has one. 0 or an errno. */
int crash_stack_take(struct crash_stack *c);
/** Removes it; called by the same thread before it ends. */
void crash_stack_give(struct crash_stack *c);

#endif
