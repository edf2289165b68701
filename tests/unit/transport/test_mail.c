/* SPDX-License-Identifier: BSD-3-Clause */
/** Sets of peers and rings of packets between poller and control thread. The test's thread, and one that it starts. */
#include "transport/mail.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

static struct transport_peer_set set;
static struct transport_mailbox box;

static void setup(void)
{
	memset(&set, 0, sizeof set);
	memset(&box, 0, sizeof box);
}

TestSuite(transport_mail, .init = setup);

/* Each end of each level. Expect each index once, in ascending order, and the set empty before and after. */
Test(transport_mail, a_set_holds_each_once)
{
	static const uint32_t some[] = {
		0, 1, 63, 64, 65, 4095, 4096, 4097, FAR_TRANSPORT_PEERS_MAX - 64, FAR_TRANSPORT_PEERS_MAX - 1};
	const size_t n = sizeof some / sizeof *some;
	cr_assert_not(transport_peer_set_any(&set));
	cr_assert_eq(transport_peer_set_take(&set), UINT32_MAX);
	for (unsigned round = 0; round < 2; round++) {
		for (size_t i = n; i-- > 0;) {
			cr_assert_eq(transport_peer_set_add(&set, some[i]), i == n - 1, "the first finds it empty");
			transport_peer_set_add(&set, some[i]);
		}
		for (size_t i = 0; i < n; i++) {
			cr_assert(transport_peer_set_any(&set));
			cr_assert_eq(transport_peer_set_take(&set), some[i]);
		}
		cr_assert_eq(transport_peer_set_take(&set), UINT32_MAX);
		cr_assert_not(transport_peer_set_any(&set));
	}
}

/* Taken and added again between. Expect none lost. */
Test(transport_mail, an_index_may_come_back)
{
	transport_peer_set_add(&set, 70);
	transport_peer_set_add(&set, 71);
	cr_assert_eq(transport_peer_set_take(&set), 70u);
	transport_peer_set_add(&set, 70);
	cr_assert_eq(transport_peer_set_take(&set), 70u);
	cr_assert_eq(transport_peer_set_take(&set), 71u);
	cr_assert_eq(transport_peer_set_take(&set), UINT32_MAX);
}

enum { ROUNDS = 500 };

static _Atomic uint32_t added, taken;

/* Adds the next one when the one before was taken, which is while the other thread clears the levels above. */
static void *add_many(void *arg)
{
	for (uint32_t i = 0; i < ROUNDS; i++) {
		while (atomic_load(&taken) != i)
			sched_yield();
		atomic_store(&added, i + 1);
		transport_peer_set_add(&set, i % 2);
	}
	return NULL;
}

/* One thread adds, another takes. Expect each addition found; one that is lost is never taken, and the test ends by its
 * limit. */
Test(transport_mail, two_threads, .timeout = 60)
{
	pthread_t t;
	cr_assert_eq(pthread_create(&t, NULL, add_many, NULL), 0);
	while (atomic_load(&taken) < ROUNDS) {
		uint32_t i = transport_peer_set_take(&set);
		if (i == UINT32_MAX) {
			sched_yield();
			continue;
		}
		cr_assert_eq(i, atomic_load(&taken) % 2);
		cr_assert_eq(atomic_load(&added), atomic_load(&taken) + 1);
		atomic_fetch_add(&taken, 1);
	}
	cr_assert_eq(pthread_join(t, NULL), 0);
	cr_assert_not(transport_peer_set_any(&set) && transport_peer_set_take(&set) != UINT32_MAX);
}

Test(transport_mail, packets_come_in_order_with_their_port)
{
	uint8_t bytes[TRANSPORT_MAIL_BYTES];
	const struct transport_port *ports = (const struct transport_port *)(const void *)bytes;
	cr_assert_null(transport_mail_get(&box));
	for (unsigned i = 0; i < 3; i++) {
		memset(bytes, (int)i + 1, sizeof bytes);
		cr_assert(transport_mail_put(&box, i == 1 ? ports : NULL, bytes, i == 0 ? 0 : TRANSPORT_MAIL_BYTES));
	}
	for (unsigned i = 0; i < 3; i++) {
		const struct transport_mail *m = transport_mail_get(&box);
		cr_assert_not_null(m);
		cr_assert_eq(transport_mail_get(&box), m, "it stays until it is done with");
		cr_assert_eq(m->via, i == 1 ? ports : NULL);
		cr_assert_eq(m->len, i == 0 ? 0 : TRANSPORT_MAIL_BYTES);
		if (i)
			cr_assert(m->bytes[0] == i + 1 && m->bytes[TRANSPORT_MAIL_BYTES - 1] == i + 1);
		transport_mail_done(&box);
	}
	cr_assert_null(transport_mail_get(&box));
}

/* Full, and across the end of the counters. Expect one too many refused, and nothing overwritten. */
Test(transport_mail, a_ring_is_bounded)
{
	uint8_t bytes[TRANSPORT_MAIL_BYTES + 1] = {0};
	atomic_store(&box.written, UINT32_MAX - 10);
	atomic_store(&box.read, UINT32_MAX - 10);
	cr_assert_not(transport_mail_put(&box, NULL, bytes, sizeof bytes), "longer than a slot");
	for (unsigned i = 0; i < TRANSPORT_MAIL_SLOTS; i++) {
		bytes[0] = (uint8_t)i;
		cr_assert(transport_mail_put(&box, NULL, bytes, 1));
	}
	cr_assert_not(transport_mail_put(&box, NULL, bytes, 1));
	cr_assert_eq(transport_mail_get(&box)->bytes[0], 0);
	transport_mail_done(&box);
	bytes[0] = TRANSPORT_MAIL_SLOTS;
	cr_assert(transport_mail_put(&box, NULL, bytes, 1));
	for (unsigned i = 1; i <= TRANSPORT_MAIL_SLOTS; i++) {
		cr_assert_eq(transport_mail_get(&box)->bytes[0], i);
		transport_mail_done(&box);
	}
	cr_assert_null(transport_mail_get(&box));
}
