/* SPDX-License-Identifier: BSD-3-Clause */
/** The fibers of a shard and their stacks: maps and frees them. The thread that registers handlers, the end of the
 * shard, and, for the last two functions, the thread that crashes. */
#include "core/fiber_pool.h"

#include "base/error.h"
#include "core/shard.h"
#include "memory/budget.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void pool_unmap(struct fiber_pool *p)
{
	munmap(p->stacks, p->stacks_bytes);
	munmap(p, p->bytes);
}

static int pool_map(struct fiber_pool *p)
{
	size_t guard = p->guard_bytes;
	p->stacks_bytes = (size_t)p->n * (guard + p->stack_bytes);
	p->stacks = mmap(NULL, p->stacks_bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
	if (p->stacks == MAP_FAILED)
		return errno;
	for (uint32_t i = 0; i < p->n; i++) {
		if (mprotect(fiber_stack_of(p, i) - guard, guard, PROT_NONE)) {
			int error = errno;
			munmap(p->stacks, p->stacks_bytes);
			return error;
		}
	}
	return 0;
}

enum far_status fiber_pool_add(struct shard *s, uint32_t n, size_t stack_bytes, struct far_err *err)
{
	struct fiber_pool *none = NULL, *p;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	if (fiber_pool_of(s))
		return FAR_OK;
	/* Pages of zeros, touched on use. */
	size_t bytes = sizeof *p + n * sizeof p->fibers[0];
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return err_set(err, FAR_RESOURCE, "out of memory for %u fibers", n);
	p->bytes = bytes;
	p->n = n;
	p->wanted_bytes = stack_bytes;
	p->guard_bytes = page;
	p->stack_bytes = (stack_bytes + FIBER_COLOURS * FIBER_COLOUR_BYTES + page - 1) & ~(page - 1);
	int error = pool_map(p);
	if (error) {
		munmap(p, bytes);
		return err_set(
			err, FAR_RESOURCE,
			"cannot map %u fiber stacks of %zu bytes, each with a guard page: %s; lower opts.fibers, "
			"or raise %s",
			n, stack_bytes, strerror(error),
			error == ENOMEM ? "vm.max_map_count or ulimit -v" : "the limit");
	}
	/* Pairs with the acquire of the thread that holds the shard. Another thread may have been first. */
	if (!atomic_compare_exchange_strong_explicit(&s->fibers, &none, p, memory_order_acq_rel, memory_order_relaxed))
		pool_unmap(p);
	return FAR_OK;
}

void fiber_pool_free(struct shard *s)
{
	struct fiber_pool *p = fiber_pool_of(s);
	struct fiber_wait *w;
	if (!p)
		return;
	for (uint32_t i = 0; i < p->used; i++) {
		buf_unref(p->fibers[i].buf);
		stack_context_fini(&p->fibers[i].stack);
	}
	while ((w = p->waits_free)) {
		p->waits_free = w->next;
		buf_unref(w->buf);
	}
	budget_give(p->used * FAR_STACK_COUNTED);
	pool_unmap(p);
	atomic_store_explicit(&s->fibers, NULL, memory_order_relaxed);
}

size_t fiber_stack_bytes(const struct fiber *fb)
{
	return fiber_pool_of(fb->shard)->wanted_bytes;
}

bool fiber_in_guard(const struct fiber *fb, const void *address)
{
	const struct fiber_pool *p = fiber_pool_of(fb->shard);
	uintptr_t low = (uintptr_t)fiber_stack_of(p, (uint32_t)(fb - p->fibers));
	return (uintptr_t)address < low && (uintptr_t)address >= low - p->guard_bytes;
}
