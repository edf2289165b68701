/* SPDX-License-Identifier: BSD-3-Clause */
/** Links: their numbers, the list of pending ones, their doorbells, and what they take and give back.
 * The test's thread. */
#include "open_files.h"
#include "shm_pair.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct test_port a;
static struct shm_port *p;

static void setup(void)
{
	shm_dir_setup();
	test_port_open_queues(&a, 1, 2);
	p = (struct shm_port *)(void *)a.port;
}

static void teardown(void)
{
	test_port_close(&a);
	shm_dir_teardown();
}

TestSuite(shm_link, .init = setup, .fini = teardown);

Test(shm_link, the_lowest_number_first)
{
	struct shm_link *links[200];
	for (unsigned i = 0; i < 200; i++) {
		links[i] = shm_link_new(p, SHM_LINK_ACCEPTING);
		cr_assert_eq(links[i]->index, i);
		cr_assert(p->links[i] == links[i] && links[i]->state == SHM_LINK_ACCEPTING);
		cr_assert(links[i]->fd == -1 && links[i]->wake_fd == -1 && links[i]->pair_fd == -1);
		cr_assert_eq(links[i]->deadline, UINT64_MAX);
		cr_assert_eq((uintptr_t)links[i] % 64, 0u);
	}
	shm_link_free(p, links[130]);
	shm_link_free(p, links[65]);
	cr_assert_null(p->links[65]);
	links[65] = shm_link_new(p, SHM_LINK_CONNECTING);
	cr_assert_eq(links[65]->index, 65u);
	links[130] = shm_link_new(p, SHM_LINK_CONNECTING);
	cr_assert_eq(links[130]->index, 130u);
	for (unsigned i = 0; i < 200; i++)
		shm_link_free(p, links[i]);
	cr_assert_null(p->pending);
}

Test(shm_link, as_many_as_there_are_numbers)
{
	static struct shm_link *links[SHM_PEERS_MAX];
	for (unsigned i = 0; i < SHM_PEERS_MAX; i++)
		cr_assert_not_null(links[i] = shm_link_new(p, SHM_LINK_ACCEPTING));
	cr_assert_null(shm_link_new(p, SHM_LINK_ACCEPTING));
	for (unsigned i = 0; i < SHM_PEERS_MAX; i++)
		shm_link_own(links[i], p->queues[0]);
	cr_assert(links[0]->bell == 0 && links[SHM_PEERS_MAX - 1]->bell == SHM_PEERS_MAX - 1);
	for (unsigned i = 0; i < SHM_PEERS_MAX; i++)
		shm_link_free(p, links[i]);
	struct shm_link *again = shm_link_new(p, SHM_LINK_ACCEPTING);
	cr_assert_eq(again->index, 0u);
	shm_link_free(p, again);
}

/* Removed from its front, its middle and its end, and twice. */
Test(shm_link, pending_ones_are_a_list)
{
	struct shm_link *links[5];
	for (unsigned i = 0; i < 5; i++)
		links[i] = shm_link_new(p, SHM_LINK_CONNECTING);
	static const unsigned order[] = {2, 4, 0, 1, 3};
	for (unsigned left = 5; left > 0; left--) {
		unsigned n = 0;
		const struct shm_link *before = NULL;
		for (const struct shm_link *l = p->pending; l; before = l, l = l->next_pending, n++)
			cr_assert_eq(l->prev_pending, before);
		cr_assert_eq(n, left);
		struct shm_link *out = links[order[5 - left]];
		shm_link_settled(p, out);
		cr_assert(!out->next_pending && !out->prev_pending);
		shm_link_settled(p, out);
	}
	cr_assert_null(p->pending);
	for (unsigned i = 0; i < 5; i++)
		shm_link_free(p, links[i]);
}

/* Each queue has bells of its own; a bell is free again with its link. */
Test(shm_link, bells_are_of_a_queue)
{
	struct shm_link *links[4];
	for (unsigned i = 0; i < 4; i++) {
		links[i] = shm_link_new(p, SHM_LINK_CONNECTING);
		shm_link_own(links[i], p->queues[i % 2]);
		cr_assert_eq(links[i]->bell, i / 2);
		cr_assert_eq(links[i]->queue, p->queues[i % 2]);
	}
	shm_link_free(p, links[1]);
	links[1] = shm_link_new(p, SHM_LINK_CONNECTING);
	shm_link_own(links[1], p->queues[1]);
	cr_assert_eq(links[1]->bell, 0);
	for (unsigned i = 0; i < 4; i++)
		shm_link_free(p, links[i]);
}

static uint64_t taken;
static uint64_t most;

static bool take(uint64_t bytes)
{
	if (taken + bytes > most)
		return false;
	taken += bytes;
	return true;
}

static void force(uint64_t bytes)
{
	taken += bytes;
}

static void give(uint64_t bytes)
{
	cr_assert_leq(bytes, taken);
	taken -= bytes;
}

static bool is_short(void)
{
	return false;
}

/* The connecting side writes the first direction; one that is its own peer reads what it writes. */
Test(shm_link, directions_and_budget)
{
	static const struct nic_budget budget = {.take = take, .force = force, .give = give, .is_short = is_short};
	unsigned files = open_files();
	p->budget = &budget;
	most = sizeof(struct shm_direction) - 1;
	int fd = shm_pair_create();
	struct shm_link *from = shm_link_new(p, SHM_LINK_CONNECTING), *to = shm_link_new(p, SHM_LINK_ACCEPTING),
			*self = shm_link_new(p, SHM_LINK_CONNECTING);
	cr_assert_eq(shm_link_map(p, from, fd, true, false), -ENOMEM);
	cr_assert(taken == 0 && !from->map);
	most = UINT64_MAX;
	cr_assert_lt(shm_link_map(p, from, p->listen_fd, true, false), 0);
	cr_assert(taken == 0 && !from->map, "what cannot be mapped costs nothing");
	cr_assert_eq(shm_link_map(p, from, fd, true, false), 0);
	cr_assert_geq(taken, sizeof(struct shm_direction));
	cr_assert_eq(shm_link_map(p, to, fd, false, false), 0);
	cr_assert(from->tx == to->rx && from->rx == to->tx && from->tx != from->rx);
	cr_assert(from->tx_bulk == to->rx_bulk && from->rx_bulk == to->tx_bulk);
	cr_assert_eq(from->tx, &((struct shm_pair *)from->map)->direction[0]);
	cr_assert_eq(from->lane.room, LANE_LINES);
	int own = shm_pair_create();
	cr_assert_eq(shm_link_map(p, self, own, true, true), 0);
	cr_assert(self->tx == self->rx && self->tx_bulk == self->rx_bulk);
	shm_link_free(p, from);
	shm_link_free(p, to);
	self->pair_fd = own; /* what it has is closed with it */
	self->wake_fd = dup(fd);
	shm_link_free(p, self);
	close(fd);
	cr_assert_eq(taken, 0u);
	cr_assert_eq(open_files(), files);
	p->budget = NULL;
}

/* The index comes from the peer. */
Test(shm_link, a_bell_that_does_not_exist)
{
	struct shm_link *link = shm_link_new(p, SHM_LINK_ACCEPTING);
	cr_assert_eq(shm_link_bells(link, p->queues[1]->bells_fd, SHM_BELLS), -EPROTO);
	cr_assert_null(link->peer_bells);
	cr_assert_eq(shm_link_bells(link, p->queues[1]->bells_fd, SHM_BELLS - 1), 0);
	cr_assert_eq(link->peer_bells, p->queues[1]->bells);
	cr_assert_eq(link->peer_bell, SHM_BELLS - 1);
	shm_link_free(p, link);
	cr_assert_eq(p->queues[1]->bells->magic, SHM_MAGIC, "the queue's own stay mapped");
}
