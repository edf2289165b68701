/* SPDX-License-Identifier: BSD-3-Clause */
/* Submission ring: submit_put() runs on any thread, submit_pop() on the holder of the progress token. */
#include "sync/submit.h"

#include "base/must.h"

#include <errno.h>

void submit_init(struct submit_ring *r, struct submit_cell *cells, uint32_t n)
{
	must(n >= FAR_SUBMIT_SLOTS_MIN && (n & (n - 1)) == 0);
	r->cells = cells;
	r->mask = n - 1;
	atomic_init(&r->tail, 0);
	atomic_init(&r->head, 0);
	atomic_init(&r->due, 1);
	atomic_init(&r->next, cells);
}

static void fill(const struct call_start *c, void *dst)
{
	if (c->write)
		c->write(c->data, dst, c->len, NULL);
	else
		memcpy(dst, c->data, c->len);
}

int submit_put(struct submit_ring *r, const struct call_start *c)
{
	struct far_buf *buf = NULL;
	if (c->ready) {
		buf = c->ready;
		buf_ref(buf);
	} else if (c->len > SUBMIT_INLINE) {
		buf = buf_alloc(c->len);
		if (!buf)
			return -ENOMEM;
		fill(c, buf_data(buf));
	}
	struct submit_cell *cell;
	uint32_t lap, at = atomic_load_explicit(&r->tail, memory_order_relaxed);
	for (;;) {
		cell = &r->cells[at & r->mask];
		uint32_t turn = atomic_load_explicit(&cell->turn, memory_order_acquire);
		lap = at & ~r->mask;
		if (turn == lap) {
			if (atomic_compare_exchange_weak_explicit(&r->tail, &at, at + 1, memory_order_relaxed,
								  memory_order_relaxed))
				break;
		} else if ((int32_t)(turn - lap) < 0) {
			buf_unref(buf);
			return -EAGAIN;
		} else {
			at = atomic_load_explicit(&r->tail, memory_order_relaxed);
		}
	}
	cell->worker = c->worker;
	cell->fn = c->fn;
	cell->typed = c->typed;
	cell->shard = c->shard;
	cell->ready = c->ready != NULL;
	cell->extra = c->extra != NULL;
	cell->deadline = c->deadline;
	cell->retry_ns = c->retry_ns;
	cell->done = c->done;
	cell->user = c->user;
	cell->id = c->id;
	cell->app = c->app;
	cell->len = c->len;
	cell->buf = buf;
	if (!buf && c->len)
		fill(c, cell->bytes);
	atomic_store_explicit(&cell->turn, lap + 1, memory_order_release);
	/* The consumer wrote to the next cell a lap ago: this thread's next call finds it here. */
	const struct submit_cell *next = &r->cells[(at + 1) & r->mask];
	__builtin_prefetch(next, 1);
	__builtin_prefetch(next->bytes, 1);
	return 0;
}

void submit_pop(struct submit_ring *r, struct submit_cell *cell)
{
	buf_unref(cell->buf);
	cell->buf = NULL;
	uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
	uint32_t lap = head++ & ~r->mask;
	atomic_store_explicit(&cell->turn, lap + r->mask + 1, memory_order_release);
	atomic_store_explicit(&r->next, &r->cells[head & r->mask], memory_order_relaxed);
	atomic_store_explicit(&r->due, (head & ~r->mask) + 1, memory_order_relaxed);
	atomic_store_explicit(&r->head, head, memory_order_release); /* pairs with submit_waiting() */
}
