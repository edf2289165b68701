/* SPDX-License-Identifier: BSD-3-Clause */
/* Submission ring: submit_put() runs on any thread, submit_pop() on the holder of the progress token. */
#include "sync/submit.h"

#include "base/must.h"

#include <errno.h>
#include <stdbool.h>

void submit_init(struct submit_ring *r, struct submit_cell *cells, uint32_t n, call_done_fn *done)
{
	must(n >= FAR_SUBMIT_SLOTS_MIN && (n & (n - 1)) == 0);
	r->cells = cells;
	r->mask = n - 1;
	r->done = done;
	atomic_init(&r->tail, 0);
	atomic_init(&r->head_seen, 0);
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

/* Claims the next position. false: the ring is full. */
static bool claim(struct submit_ring *r, uint32_t *out)
{
	uint32_t at = atomic_load_explicit(&r->tail, memory_order_relaxed);
	do {
		/* More than a ring: other threads have taken positions since `at` was read, and the exchange fails. */
		uint32_t head = atomic_load_explicit(&r->head_seen, memory_order_acquire);
		if (likely(at - head <= r->mask))
			continue;
		head = atomic_load_explicit(&r->head, memory_order_acquire);
		atomic_store_explicit(&r->head_seen, head, memory_order_release);
		if (at - head == r->mask + 1)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&r->tail, &at, at + 1, memory_order_relaxed,
							memory_order_relaxed));
	*out = at;
	return true;
}

static bool is_plain(const struct submit_ring *r, const struct call_start *c)
{
	return r->done && c->done == r->done && c->len <= SUBMIT_LINE && !c->ready && !c->extra && !c->retry_ns &&
	       !c->app && c->id == &((struct far_future *)c->user)->call;
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
	uint32_t at;
	if (unlikely(!claim(r, &at))) {
		buf_unref(buf);
		return -EAGAIN;
	}
	struct submit_cell *cell = &r->cells[at & r->mask];
	cell->plain = is_plain(r, c);
	if (!cell->plain) {
		cell->done = c->done;
		cell->id = c->id;
		cell->app = c->app;
		cell->retry_ns = c->retry_ns;
		cell->len = c->len;
		cell->buf = buf;
	}
	cell->worker = c->worker;
	cell->fn = c->fn;
	cell->typed = c->typed;
	cell->shard = c->shard;
	cell->ready = c->ready != NULL;
	cell->extra = c->extra != NULL;
	cell->plain_len = (uint8_t)c->len;
	cell->deadline = c->deadline;
	cell->user = c->user;
	if (!buf && c->len)
		fill(c, cell->bytes);
	atomic_store_explicit(&cell->turn, (at & ~r->mask) + 1, memory_order_release);
	return 0;
}

void submit_read(const struct submit_ring *r, const struct submit_cell *cell, struct call_start *start)
{
	*start = (struct call_start){
		.worker = cell->worker,
		.fn = cell->fn,
		.typed = cell->typed,
		.shard = cell->shard,
		.deadline = cell->deadline,
		.user = cell->user,
		.data = cell->bytes,
	};
	if (likely(cell->plain)) {
		start->done = r->done;
		start->id = &((struct far_future *)cell->user)->call;
		start->len = cell->plain_len;
		return;
	}
	start->done = cell->done;
	start->id = cell->id;
	start->app = cell->app;
	start->retry_ns = cell->retry_ns;
	start->len = cell->len;
	start->data = cell->buf ? buf_data(cell->buf) : cell->bytes;
	start->ready = cell->ready ? cell->buf : NULL;
	start->extra = cell->extra ? cell->user : NULL;
}

void submit_pop(struct submit_ring *r, struct submit_cell *cell)
{
	if (!cell->plain)
		buf_unref(cell->buf);
	uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed) + 1;
	atomic_store_explicit(&r->next, &r->cells[head & r->mask], memory_order_relaxed);
	atomic_store_explicit(&r->due, (head & ~r->mask) + 1, memory_order_relaxed);
	/* Pairs with submit_waiting(), and with claim(): what was read of the cell has been read. */
	atomic_store_explicit(&r->head, head, memory_order_release);
}
