/* SPDX-License-Identifier: BSD-3-Clause */
/** What the lossy driver does to packets, each thing by itself and for certain. The test's thread. */
#include "lossy_pair.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(lossy_disturb, .fini = lossy_pair_teardown);

Test(lossy_disturb, nothing)
{
	uint32_t number;
	bool whole;
	lossy_pair_open("over=shm", 0);
	for (uint32_t i = 0; i < MANY; i++) {
		cr_assert_eq(lossy_pair_send(i), 0);
		cr_assert(lossy_pair_take(&number, &whole));
		cr_assert(number == i && whole);
	}
	cr_assert_eq(lossy_pair_dropped(), 0u);
	cr_assert_eq(lossy_pair.q->ops->deadline(lossy_pair.q), UINT64_MAX);
}

Test(lossy_disturb, drop)
{
	uint32_t number;
	bool whole;
	lossy_pair_open("over=shm,drop=1", 0);
	for (uint32_t i = 0; i < MANY; i++)
		cr_assert_eq(lossy_pair_send(i), 0);
	cr_assert_not(lossy_pair_take(&number, &whole));
	cr_assert_eq(lossy_pair_dropped(), (uint64_t)MANY);
}

Test(lossy_disturb, duplicate)
{
	uint32_t number;
	bool whole;
	lossy_pair_open("over=shm,duplicate=100%", 0);
	for (uint32_t i = 0; i < MANY; i++) {
		cr_assert_eq(lossy_pair_send(i), 0);
		for (unsigned copy = 0; copy < 2; copy++) {
			cr_assert(lossy_pair_take(&number, &whole));
			cr_assert(number == i && whole);
		}
		cr_assert_not(lossy_pair_take(&number, &whole));
	}
}

Test(lossy_disturb, corrupt)
{
	uint32_t number, cut = 0;
	bool whole;
	lossy_pair_open("over=shm,corrupt=1.0", 0);
	for (uint32_t i = 0; i < MANY; i++) {
		struct nic_pkt pkt;
		cr_assert_eq(lossy_pair_send(i), 0);
		if (i % 2) {
			cr_assert_eq(lossy_pair.to_q->ops->recv(lossy_pair.to_q, &pkt, 1), 1u);
			cut += pkt.body_len < LEN;
			continue;
		}
		cr_assert(lossy_pair_take(&number, &whole));
		cr_assert_not(whole, "packet %u arrived as it was sent", i);
	}
	cr_assert(cut > MANY / 16 && cut < MANY / 4, "%u of %u were cut short", cut, MANY / 2);
}

/* One bit is all that there is to flip, or nothing. */
Test(lossy_disturb, corrupt_small)
{
	lossy_pair_open("over=shm,corrupt=1", 0);
	for (unsigned i = 0; i < 200; i++) {
		struct nic_tx tx;
		struct nic_pkt pkt;
		cr_assert_eq(lossy_pair.q->ops->tx_reserve(lossy_pair.q, lossy_pair.peer, i % 2, &tx), 0);
		if (i % 2)
			tx.body[0] = 0x5a;
		cr_assert_eq(lossy_pair.q->ops->tx_commit(lossy_pair.q, &tx), 0);
		lossy_pair.q->ops->flush(lossy_pair.q);
		cr_assert_eq(lossy_pair.to_q->ops->recv(lossy_pair.to_q, &pkt, 1), 1u);
		cr_assert(pkt.body_len == 0 || (i % 2 && pkt.body[0] != 0x5a));
	}
}

/* Nothing before it is due, all of it later: by deadline(), with nobody sending any more. */
Test(lossy_disturb, delay)
{
	uint32_t number;
	bool whole, had[50] = {false};
	lossy_pair_open("over=shm,delay=1:200ms", 0);
	uint64_t begin = lossy_now();
	for (uint32_t i = 0; i < 50; i++)
		cr_assert_eq(lossy_pair_send(i), 0);
	for (unsigned n = 0; n < 50;) {
		struct nic_pkt pkt;
		uint64_t due = lossy_pair.q->ops->deadline(lossy_pair.q), now = lossy_now();
		cr_assert(due > begin && due <= now + UINT64_C(200000000), "due in %ld ns", (long)(due - now));
		if (due > now) {
			usleep((useconds_t)((due - now) / 1000 + 1));
			cr_assert(!lossy_pair_take(&number, &whole), "nobody sent it");
		}
		cr_assert_eq(lossy_pair.q->ops->recv(lossy_pair.q, &pkt, 1), 0u);
		for (; lossy_pair_take(&number, &whole); n++) {
			cr_assert(whole && number < 50 && !had[number]);
			had[number] = true;
		}
	}
	cr_assert_eq(lossy_pair.q->ops->deadline(lossy_pair.q), UINT64_MAX);
}

/* What cannot be held is sent at once. */
Test(lossy_disturb, delay_full)
{
	uint32_t number, n = 0;
	bool whole;
	lossy_pair_open("over=shm,delay=1:10s", 0);
	for (uint32_t i = 0; i < LOSSY_HELD_MAX + 100; i++)
		cr_assert_eq(lossy_pair_send(i), 0);
	for (; lossy_pair_take(&number, &whole); n++)
		cr_assert(whole && number == LOSSY_HELD_MAX + n);
	cr_assert_eq(n, 100u);
	lossy_pair.q->ops->detach(lossy_pair.q, lossy_pair.peer);
	cr_assert_eq(lossy_pair_dropped(), (uint64_t)LOSSY_HELD_MAX);
	cr_assert_eq(lossy_pair.q->ops->deadline(lossy_pair.q), UINT64_MAX);
	cr_assert_eq(lossy_pair.q->ops->attach(lossy_pair.q, lossy_pair.peer), 0);
	cr_assert_eq(lossy_pair_send(7), 0);
	cr_assert_neq(lossy_pair.q->ops->deadline(lossy_pair.q), UINT64_MAX);
}

/* Overtaken by up to three; the last ones leave by time, not later than all of it. */
Test(lossy_disturb, reorder)
{
	uint32_t number, late = 0, n = 0;
	bool whole, had[MANY] = {false};
	lossy_pair_open("over=shm,reorder=0.3:3,seed=4", 0);
	for (uint32_t i = 0; i < MANY; i++) {
		cr_assert_eq(lossy_pair_send(i), 0);
		for (; lossy_pair_take(&number, &whole); n++) {
			cr_assert(whole && number <= i && !had[number]);
			cr_assert_leq(i - number, 3u);
			late += number < i;
			had[number] = true;
		}
	}
	cr_assert(late > MANY / 5 && late < MANY / 2, "%u late", late);
	while (n < MANY) {
		struct nic_pkt pkt;
		cr_assert_leq(lossy_pair.q->ops->deadline(lossy_pair.q), lossy_now() + LOSSY_REORDER_NS_MAX);
		cr_assert_eq(lossy_pair.q->ops->recv(lossy_pair.q, &pkt, 1), 0u);
		for (; lossy_pair_take(&number, &whole); n++)
			cr_assert(whole && !had[number]);
	}
	cr_assert_eq(lossy_pair_dropped(), 0u);
}

/* Which of many arrive, as bits. */
static void fates(const char *args, unsigned queue, uint8_t bits[MANY / 8])
{
	uint32_t number;
	bool whole;
	lossy_pair_open(args, queue);
	memset(bits, 0, MANY / 8);
	for (uint32_t i = 0; i < MANY; i++) {
		cr_assert_eq(lossy_pair_send(i), 0);
		if (lossy_pair_take(&number, &whole))
			bits[number / 8] |= (uint8_t)(1u << number % 8);
	}
	lossy_pair_close();
	cr_assert_eq(rmdir(lossy_pair.dir), 0);
}

Test(lossy_disturb, seed)
{
	uint8_t first[MANY / 8], again[MANY / 8];
	fates("over=shm,drop=0.5,seed=7", 0, first);
	fates("over=shm,drop=0.5,seed=7", 0, again);
	cr_assert_eq(memcmp(first, again, sizeof first), 0, "the seed decides");
	fates("over=shm,drop=0.5,seed=8", 0, again);
	cr_assert_neq(memcmp(first, again, sizeof first), 0, "another seed");
	fates("over=shm,drop=0.5,seed=7", 1, again);
	cr_assert_neq(memcmp(first, again, sizeof first), 0, "another queue");
	unsigned arrived = 0;
	for (unsigned i = 0; i < MANY; i++)
		arrived += first[i / 8] >> i % 8 & 1;
	cr_assert(arrived > MANY * 2 / 5 && arrived < MANY * 3 / 5, "%u of %u", arrived, MANY);
}

/* All at once: each packet arrives whole at most twice, and nearly all do. */
Test(lossy_disturb, everything)
{
	static uint8_t had[MANY];
	uint32_t number, whole_n = 0;
	bool whole;
	lossy_pair_open("over=shm,drop=1%,delay=1%:2ms,duplicate=1%,reorder=1%,corrupt=1%,seed=3", 0);
	memset(had, 0, sizeof had);
	for (uint32_t i = 0; i < MANY || lossy_pair.q->ops->deadline(lossy_pair.q) != UINT64_MAX; i++) {
		struct nic_pkt pkt;
		if (i < MANY)
			cr_assert_eq(lossy_pair_send(i), 0);
		cr_assert_eq(lossy_pair.q->ops->recv(lossy_pair.q, &pkt, 1), 0u);
		while (lossy_pair_take(&number, &whole))
			if (whole) {
				cr_assert(number < MANY && ++had[number] <= 2);
				whole_n++;
			}
	}
	cr_assert(whole_n > MANY * 95 / 100, "%u of %u", whole_n, MANY);
	cr_assert_geq(lossy_pair_dropped(), 10u);
}
