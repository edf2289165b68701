/* SPDX-License-Identifier: BSD-3-Clause */
/** Packets that are held back: their slots, when they leave, and where they cannot. The test's thread. */
#include "lossy_pair.h"

#include <criterion/criterion.h>
#include <string.h>

static struct lossy_queue *q;
static struct lossy_peer *to;

static void setup(void)
{
	lossy_pair_open("over=shm", 0);
	q = (struct lossy_queue *)lossy_pair.q;
	to = &q->port->peers[lossy_pair.peer];
}

TestSuite(lossy_held, .init = setup, .fini = lossy_pair_teardown);

/* Holds a packet with a number as lossy_pair_take() reads it. */
static void hold(uint32_t peer, uint32_t number, uint64_t due, uint32_t after)
{
	uint8_t body[LEN];
	uint32_t inverse = ~number;
	memset(body, (int)number, sizeof body);
	memcpy(body, &number, sizeof number);
	memcpy(body + sizeof number, &inverse, sizeof inverse);
	int slot = lossy_slot_fill(q, body, sizeof body, 0);
	cr_assert_geq(slot, 0);
	lossy_hold(q, peer, slot, sizeof body, due, after);
}

static bool arrived(uint32_t number)
{
	uint32_t taken;
	bool whole;
	lossy_pair.q->ops->flush(lossy_pair.q);
	if (!lossy_pair_take(&taken, &whole))
		return false;
	cr_assert(whole && taken == number, "%u instead of %u", taken, number);
	return true;
}

Test(lossy_held, each_slot_has_one_owner)
{
	bool taken[LOSSY_HELD_MAX] = {false};
	for (unsigned i = 0; i < LOSSY_HELD_MAX; i++) {
		uint8_t byte = (uint8_t)i;
		int slot = lossy_slot_fill(q, &byte, 1, (uint8_t)(i % 8));
		cr_assert(slot >= 0 && slot < (int)LOSSY_HELD_MAX && !taken[slot]);
		taken[slot] = true;
		cr_assert(*lossy_slot(q, slot) == byte && q->priority[slot] == i % 8);
	}
	cr_assert_eq(lossy_slot_fill(q, "x", 1, 0), -1);
	lossy_slot_free(q, -1);
	cr_assert_eq(lossy_slot_fill(q, "x", 1, 0), -1, "-1 frees nothing");
	lossy_slot_free(q, 17);
	cr_assert_eq(lossy_slot_fill(q, NULL, 0, 0), 17);
}

Test(lossy_held, leaves_when_it_is_due)
{
	hold(lossy_pair.peer, 1, 5000, 0);
	hold(lossy_pair.peer, 2, 3000, 0);
	hold(lossy_pair.peer, 3, 9000, 0);
	cr_assert_eq(q->due, 3000u);
	cr_assert_not(lossy_held_send(q, 2999));
	cr_assert_not(arrived(0));
	cr_assert(lossy_held_send(q, 3000));
	cr_assert_eq(q->due, 5000u);
	cr_assert(arrived(2) && !arrived(0));
	cr_assert(lossy_held_send(q, 9000));
	cr_assert(arrived(1) && arrived(3), "in order of arrival");
	cr_assert(q->held_n == 0 && q->due == UINT64_MAX && q->free_n == LOSSY_HELD_MAX);
	cr_assert_not(lossy_held_send(q, UINT64_MAX - 1));
}

/* Counts of packets wrap around. */
Test(lossy_held, leaves_when_later_ones_have_passed)
{
	uint64_t before = lossy_now();
	to->sent = UINT32_MAX - 1;
	hold(lossy_pair.peer, 1, 0, to->sent + 3);
	cr_assert(q->due >= before + LOSSY_REORDER_NS_MAX && q->due <= lossy_now() + LOSSY_REORDER_NS_MAX);
	cr_assert_eq(q->reorder_n, 1u);
	cr_assert_not(lossy_held_send(q, 0));
	to->sent += 2;
	cr_assert_not(lossy_held_send(q, 0));
	to->sent++;
	cr_assert(lossy_held_send(q, 0));
	cr_assert(arrived(1) && q->reorder_n == 0);
	/* A delayed packet does not count them. */
	hold(lossy_pair.peer, 2, UINT64_MAX - 1, to->sent);
	cr_assert_not(lossy_held_send(q, 0));
}

/* Where the ring below is full it stays, and is due again a little later. */
Test(lossy_held, without_room_it_is_tried_again)
{
	uint32_t number;
	bool whole;
	unsigned filled = 0;
	while (lossy_pair_send(filled) == 0)
		filled++;
	cr_assert_gt(filled, 0u);
	hold(lossy_pair.peer, 7000, 0, to->sent);
	cr_assert_not(lossy_held_send(q, 1000));
	cr_assert_eq(q->held_n, 1u);
	cr_assert_eq(q->due, 1000 + LOSSY_AGAIN_NS);
	cr_assert_eq(q->reorder_n, 0u, "from now on it waits for the time alone");
	while (lossy_pair_take(&number, &whole))
		filled--;
	cr_assert_eq(filled, 0u);
	cr_assert_not(lossy_held_send(q, 999 + LOSSY_AGAIN_NS));
	cr_assert(lossy_held_send(q, 1000 + LOSSY_AGAIN_NS));
	cr_assert(arrived(7000));
	cr_assert_eq(lossy_pair_dropped(), 0u);
}

Test(lossy_held, to_a_peer_that_has_ended_it_is_lost)
{
	hold(lossy_pair.peer, 1, 10, 0);
	atomic_store(&to->dead, 1);
	cr_assert(lossy_held_send(q, 10));
	cr_assert_eq(lossy_pair_dropped(), 1u);
	cr_assert_eq(q->free_n, LOSSY_HELD_MAX);
	atomic_store(&to->dead, 0);
	cr_assert_not(arrived(0));
}

/* Of one peer: those of others stay. */
Test(lossy_held, forgotten_with_their_peer)
{
	uint32_t other = lossy_pair.peer + 1;
	hold(other, 1, 100, 0);
	hold(lossy_pair.peer, 2, 200, 0);
	hold(other, 3, 0, 5);
	lossy_held_forget(q, other);
	cr_assert(q->held_n == 1 && q->reorder_n == 0 && q->free_n == LOSSY_HELD_MAX - 1);
	cr_assert_eq(lossy_pair_dropped(), 2u);
	cr_assert(q->due <= 200, "it is not late for the one that stays");
	cr_assert(lossy_held_send(q, 200));
	cr_assert(arrived(2));
	hold(other, 4, 100, 0);
	lossy_held_forget(q, other);
	cr_assert_eq(q->due, UINT64_MAX);
}
