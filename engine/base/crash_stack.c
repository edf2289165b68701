/* SPDX-License-Identifier: BSD-3-Clause */
/* Alternate signal stacks of threads. Each thread for itself. */
#include "base/crash_stack.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

/* Bytes for the report and the unwinder, besides the kernel's signal frame. */
#define REPORT_BYTES ((size_t)64 << 10)

static _Atomic bool enabled;

void crash_stacks_enable(void)
{
	atomic_store_explicit(&enabled, true, memory_order_relaxed);
}

static size_t saved_bytes(void)
{
#ifdef _SC_MINSIGSTKSZ
	long bytes = sysconf(_SC_MINSIGSTKSZ); /* depends on the vector registers of the machine */
	if (bytes > 0)
		return (size_t)bytes;
#endif
	return (size_t)16 << 10;
}

int crash_stack_take(struct crash_stack *c)
{
	stack_t now;
	c->low = NULL;
	if (!atomic_load_explicit(&enabled, memory_order_relaxed) || sigaltstack(NULL, &now) ||
	    !(now.ss_flags & SS_DISABLE))
		return 0;
	size_t guard = (size_t)sysconf(_SC_PAGESIZE);
	size_t bytes = (REPORT_BYTES + saved_bytes() + 2 * guard - 1) / guard * guard;
	char *low = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (low == MAP_FAILED)
		return errno;
	stack_t stack = {.ss_sp = low + guard, .ss_size = bytes - guard};
	if (mprotect(low, guard, PROT_NONE) || sigaltstack(&stack, NULL)) {
		int error = errno;
		munmap(low, bytes);
		return error;
	}
	c->low = low;
	c->bytes = bytes;
	return 0;
}

void crash_stack_give(struct crash_stack *c)
{
	stack_t none = {.ss_flags = SS_DISABLE};
	if (!c->low)
		return;
	sigaltstack(&none, NULL);
	munmap(c->low, c->bytes);
	c->low = NULL;
}
