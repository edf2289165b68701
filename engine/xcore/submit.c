/* SPDX-License-Identifier: BSD-3-Clause */
#include "xcore/submit.h"

#include <errno.h>

static void fill(const struct call_start *c, void *dst)
{
	if (c->write)
		c->write(c->data, dst, c->len);
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
	uint32_t at = atomic_load_explicit(&r->tail, memory_order_relaxed);
	for (;;) {
		cell = &r->cells[at % FAR_SUBMIT_SLOTS];
		uint32_t turn = atomic_load_explicit(&cell->turn, memory_order_acquire);
		if (turn == SUBMIT_TURN(at)) {
			if (atomic_compare_exchange_weak_explicit(&r->tail, &at, at + 1, memory_order_relaxed,
								  memory_order_relaxed))
				break;
		} else if ((int32_t)(turn - SUBMIT_TURN(at)) < 0) {
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
	cell->deadline = c->deadline;
	cell->retry_ns = c->retry_ns;
	cell->done = c->done;
	cell->user = c->user;
	cell->app = c->app;
	cell->len = c->len;
	cell->buf = buf;
	if (!buf && c->len)
		fill(c, cell->bytes);
	atomic_store_explicit(&cell->turn, SUBMIT_TURN(at) + 1, memory_order_release);
	return 0;
}

void submit_pop(struct submit_ring *r, struct submit_cell *cell)
{
	buf_unref(cell->buf);
	cell->buf = NULL;
	uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
	atomic_store_explicit(&cell->turn, SUBMIT_TURN(head) + FAR_SUBMIT_SLOTS, memory_order_release);
	atomic_store_explicit(&r->head, head + 1, memory_order_release); /* pairs with submit_waiting() */
}
