/* SPDX-License-Identifier: BSD-3-Clause */
/** The submission ring: order, room, writing in place. The test's thread, and threads that it starts. */
#include "sync/submit.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>

static struct submit_cell cells[FAR_SUBMIT_SLOTS];
static struct submit_ring ring;

static void nothing(void *user, const struct completion *o)
{
}

/* Of plain calls. */
static void complete(void *user, const struct completion *o)
{
}

static void setup(void)
{
	submit_init(&ring, cells, FAR_SUBMIT_SLOTS, complete);
}

TestSuite(submit, .init = setup);

static int put(const void *data, size_t len, void *user)
{
	struct call_start c = {.worker = 3,
			       .fn = 9,
			       .typed = true,
			       .deadline = 77,
			       .done = nothing,
			       .user = user,
			       .data = data,
			       .len = len};
	return submit_put(&ring, &c);
}

Test(submit, empty_ring_has_nothing)
{
	cr_assert_null(submit_peek(&ring));
}

Test(submit, carries_a_call_whole)
{
	static uint8_t bytes[3000];
	static const size_t sizes[] = {0, 1, SUBMIT_INLINE, SUBMIT_INLINE + 1, sizeof bytes};
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)(i * 11);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		cr_assert_eq(put(bytes, sizes[i], &bytes[i]), 0);
		struct submit_cell *cell = submit_peek(&ring);
		cr_assert_not_null(cell);
		cr_assert_eq(cell->worker, 3u);
		cr_assert_eq(cell->fn, 9);
		cr_assert(cell->typed);
		cr_assert_eq(cell->deadline, 77u);
		cr_assert_eq(cell->user, &bytes[i]);
		cr_assert_eq(cell->len, sizes[i]);
		cr_assert_eq(cell->buf != NULL, sizes[i] > SUBMIT_INLINE);
		cr_assert_eq(memcmp(cell->buf ? buf_data(cell->buf) : cell->bytes, bytes, sizes[i]), 0);
		submit_pop(&ring, cell);
		cr_assert_null(submit_peek(&ring));
	}
}

Test(submit, a_plain_call_is_one_line)
{
	static struct far_future f;
	static const char bytes[] = "0123456789abcdef0123456789abcdef0123456789";
	const struct call_start plain = {.worker = 3,
					 .fn = 9,
					 .typed = 1,
					 .shard = 2,
					 .deadline = 77,
					 .done = complete,
					 .user = &f,
					 .id = &f.call,
					 .data = bytes,
					 .len = SUBMIT_LINE};
	struct call_start others[] = {plain, plain, plain, plain, plain, plain};
	others[1].len++;
	others[2].done = nothing;
	others[3].id = NULL;
	others[4].retry_ns = 5;
	others[5].app = (void (*)(void))nothing;
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		const struct call_start *c = &others[i];
		struct call_start read;
		void *second = (uint8_t *)&cells[i] + 64;
		uint8_t before[64];
		memset(second, 0xa5, sizeof before);
		memset(before, 0xa5, sizeof before);
		cr_assert_eq(submit_put(&ring, c), 0);
		struct submit_cell *cell = submit_peek(&ring);
		cr_assert_eq(cell, &cells[i]);
		cr_assert_eq(cell->plain, i == 0);
		cr_assert(submit_replies(cell));
		cr_assert_eq(memcmp(second, before, sizeof before) == 0, i == 0);
		submit_read(&ring, cell, &read);
		cr_assert(read.worker == 3 && read.fn == 9 && read.typed == 1 && read.shard == 2 &&
			  read.deadline == 77);
		cr_assert(read.done == c->done && read.user == &f && read.id == c->id && read.app == c->app);
		cr_assert(read.retry_ns == c->retry_ns && !read.ready && !read.extra && !read.write);
		cr_assert_eq(read.len, c->len);
		cr_assert_eq(memcmp(read.data, bytes, c->len), 0);
		submit_pop(&ring, cell);
	}
}

Test(submit, the_consumer_writes_no_cell)
{
	cr_assert_eq(put("x", 1, NULL), 0);
	struct submit_cell *cell = submit_peek(&ring), before;
	struct call_start read;
	memcpy(&before, cell, sizeof before);
	submit_read(&ring, cell, &read);
	submit_pop(&ring, cell);
	cr_assert_eq(memcmp(cell, &before, sizeof before), 0);
	cr_assert_null(submit_peek(&ring));
}

static void fill_with_q(const void *data, void *dst, size_t len, copy_fn *copy)
{
	(void)copy;
	memset(dst, 'q', len);
}

Test(submit, a_writer_fills_in_place)
{
	struct call_start c = {.done = nothing, .len = 5, .write = fill_with_q};
	cr_assert_eq(submit_put(&ring, &c), 0);
	cr_assert_eq(memcmp(submit_peek(&ring)->bytes, "qqqqq", 5), 0);
	submit_pop(&ring, submit_peek(&ring));
}

Test(submit, full_is_eagain_and_one_pop_makes_room)
{
	for (unsigned lap = 0; lap < 3; lap++) {
		for (uintptr_t i = 0; i < FAR_SUBMIT_SLOTS; i++)
			cr_assert_eq(put("x", 1, (void *)i), 0);
		cr_assert_eq(put("x", 1, NULL), -EAGAIN);
		static uint8_t large[1000];
		cr_assert_eq(put(large, sizeof large, NULL), -EAGAIN);
		submit_pop(&ring, submit_peek(&ring));
		cr_assert_eq(put("x", 1, (void *)(uintptr_t)FAR_SUBMIT_SLOTS), 0);
		cr_assert_eq(put("x", 1, NULL), -EAGAIN);
		for (uintptr_t i = 1; i <= FAR_SUBMIT_SLOTS; i++) {
			struct submit_cell *cell = submit_peek(&ring);
			cr_assert_not_null(cell);
			cr_assert_eq(cell->user, (void *)i);
			submit_pop(&ring, cell);
		}
		cr_assert_null(submit_peek(&ring));
	}
}

Test(submit, no_buffer_is_enomem)
{
	cr_assert_eq(put(NULL, SIZE_MAX / 2, NULL), -ENOMEM);
	cr_assert_null(submit_peek(&ring));
}

enum { PRODUCERS = 4, EACH = 20000 };

static void *produce(void *arg)
{
	uintptr_t id = (uintptr_t)arg;
	for (uintptr_t i = 0; i < EACH; i++) {
		uintptr_t word = id << 32 | i;
		while (put(&word, sizeof word, (void *)word) == -EAGAIN)
			sched_yield();
	}
	return NULL;
}

Test(submit, each_producer_keeps_its_order, .timeout = 60)
{
	pthread_t t[PRODUCERS];
	uintptr_t next[PRODUCERS] = {0};
	for (uintptr_t i = 0; i < PRODUCERS; i++)
		pthread_create(&t[i], NULL, produce, (void *)i);
	for (unsigned n = 0; n < PRODUCERS * EACH;) {
		struct submit_cell *cell = submit_peek(&ring);
		if (!cell) {
			sched_yield();
			continue;
		}
		uintptr_t word;
		memcpy(&word, cell->bytes, sizeof word);
		cr_assert_eq((void *)word, cell->user);
		cr_assert_lt(word >> 32, PRODUCERS);
		cr_assert_eq(word & UINT32_MAX, next[word >> 32]++);
		submit_pop(&ring, cell);
		n++;
	}
	for (int i = 0; i < PRODUCERS; i++)
		pthread_join(t[i], NULL);
	cr_assert_null(submit_peek(&ring));
}
