/* SPDX-License-Identifier: BSD-3-Clause */
/** Mailboxes: order, room, wrapping indices. The test's thread, and threads that it starts. */
#include "sync/mailbox.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>

static struct mail slots[FAR_MAILBOX_SLOTS];
static struct mailbox box;

static void setup(void)
{
	mailbox_init(&box, slots, FAR_MAILBOX_SLOTS);
}

TestSuite(mailbox, .init = setup);

static struct mail mail_of(uint64_t i)
{
	return (struct mail){
		.type = MAIL_PEER_UP, .worker = (uint32_t)i, .peer = (uint32_t)i + 1, .incarnation = i * 3};
}

Test(mailbox, empty)
{
	struct mail m;
	cr_assert_not(mailbox_get(&box, &m));
}

Test(mailbox, in_order_and_whole)
{
	struct mail m;
	for (uint64_t i = 0; i < 5 * FAR_MAILBOX_SLOTS; i++) {
		struct mail in = mail_of(i);
		cr_assert(mailbox_put(&box, &in));
		if (i % 3 == 2)
			for (uint64_t k = i - 2; k <= i; k++) {
				cr_assert(mailbox_get(&box, &m));
				cr_assert_eq(m.worker, (uint32_t)k);
				cr_assert_eq(m.peer, (uint32_t)k + 1);
				cr_assert_eq(m.incarnation, k * 3);
			}
	}
}

Test(mailbox, full_is_refused_and_one_taken_makes_room)
{
	struct mail m, in = mail_of(1);
	for (unsigned lap = 0; lap < 3; lap++) {
		for (unsigned i = 0; i < FAR_MAILBOX_SLOTS; i++)
			cr_assert(mailbox_put(&box, &in));
		cr_assert_not(mailbox_put(&box, &in));
		cr_assert(mailbox_get(&box, &m));
		cr_assert(mailbox_put(&box, &in));
		cr_assert_not(mailbox_put(&box, &in));
		for (unsigned i = 0; i < FAR_MAILBOX_SLOTS; i++)
			cr_assert(mailbox_get(&box, &m));
		cr_assert_not(mailbox_get(&box, &m));
	}
}

Test(mailbox, indices_wrap)
{
	struct mail m, in = mail_of(4);
	box.tail = box.head = box.head_seen = box.tail_seen = UINT32_MAX - 5;
	for (int i = 0; i < 20; i++) {
		cr_assert(mailbox_put(&box, &in));
		cr_assert(mailbox_get(&box, &m));
		cr_assert_eq(m.worker, 4u);
	}
	cr_assert_not(mailbox_get(&box, &m));
}

enum { N = 200000 };

static void *produce(void *arg)
{
	for (uint64_t i = 0; i < N; i++) {
		struct mail in = mail_of(i);
		while (!mailbox_put(&box, &in))
			sched_yield();
	}
	return NULL;
}

Test(mailbox, between_two_threads, .timeout = 60)
{
	pthread_t t;
	struct mail m;
	pthread_create(&t, NULL, produce, NULL);
	for (uint64_t i = 0; i < N; i++) {
		while (!mailbox_get(&box, &m))
			sched_yield();
		cr_assert_eq(m.worker, (uint32_t)i);
		cr_assert_eq(m.incarnation, i * 3);
	}
	pthread_join(t, NULL);
}
