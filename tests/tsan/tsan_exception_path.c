/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Questions that go aside from a shard, and the control thread's answers back, each on a thread of its own: all that
 * were put are answered, in order and whole; what found a full ring never was.
 */
#include "../e2e/check.h"
#include "nic/dpdk/exception_path.h"

#include <pthread.h>
#include <sched.h>

#define QUESTIONS 20000u

static struct exception_path exception_path;
static const struct frame_addr me = {.mac = {2, 0, 0, 0, 0, 1}, .ip = {10, 8, 0, 1}};
static _Atomic unsigned dropped;
static _Atomic int over;

/* ARP, from an address that is its number. */
static unsigned question(uint8_t *frame, uint32_t number)
{
	static const uint8_t kind[8] = {0, 1, 8, 0, 6, 4, 0, 1};
	memset(frame, 0, 60);
	memset(frame, 0xff, 6);
	frame[12] = 8;
	frame[13] = 6;
	memcpy(frame + 14, kind, sizeof kind);
	frame[27] = 9;
	memcpy(frame + 28, &number, sizeof number);
	memcpy(frame + 38, me.ip, 4);
	return 60;
}

static void *control(void *unused)
{
	const struct exception_frame *request;
	while (!atomic_load(&over)) {
		struct exception_frame *to;
		while ((request = exception_next(&exception_path.in)) && (to = exception_room(&exception_path.out))) {
			to->len = responder_write(&me, request->bytes, request->len, to->bytes);
			CHECK(to->len == 60);
			exception_put(&exception_path.out);
			exception_release(&exception_path.in);
		}
		sched_yield();
	}
	return unused;
}

/* The next answer is to the next question that was put. */
static unsigned take_answers(const uint32_t *numbers, unsigned taken, unsigned n)
{
	const struct exception_frame *answer;
	while ((answer = exception_next(&exception_path.out))) {
		uint32_t to;
		memcpy(&to, answer->bytes + 38, sizeof to);
		CHECK(taken < n && to == numbers[taken] && answer->bytes[21] == 2);
		taken++;
		exception_release(&exception_path.out);
	}
	return taken;
}

int main(void)
{
	static uint32_t numbers[QUESTIONS];
	unsigned taken = 0, n = 0;
	pthread_t thread;
	alarm(HANG_GUARD_S);
	CHECK(pthread_create(&thread, NULL, control, NULL) == 0);
	for (uint32_t i = 0; i < QUESTIONS; i++) {
		struct exception_frame *to = exception_room(&exception_path.in);
		if (to) {
			to->len = question(to->bytes, i);
			numbers[n++] = i;
			exception_put(&exception_path.in);
		} else {
			atomic_fetch_add(&dropped, 1);
			sched_yield();
		}
		taken = take_answers(numbers, taken, n);
	}
	while (taken < n) {
		taken = take_answers(numbers, taken, n);
		sched_yield();
	}
	atomic_store(&over, 1);
	pthread_join(thread, NULL);
	CHECK(n >= EXCEPTION_SLOTS);
	printf("%u answered, %u found no room\n", n, atomic_load(&dropped));
	return 0;
}
