/* SPDX-License-Identifier: BSD-3-Clause */
/** Peers of a port: tokens, the table of accepted ones, what packets name. The test's thread. */
#include "transport/connection.h"
#include "transport/queue.h"
#include "transport/setup.h"
#include "transport_fixture.h"

#include <criterion/criterion.h>
#include <string.h>

static struct transport_port *p;

static void setup(void)
{
	fixture_init();
	end_open(0, 2);
	p = (struct transport_port *)fixture.ends[0].port;
}

TestSuite(transport_connection, .init = setup, .fini = fixture_fini);

static struct transport_peer *make(uint64_t id, uint64_t token)
{
	struct transport_peer *peer = transport_peer_new(p, 1, TRANSPORT_ACCEPTING);
	cr_assert_not_null(peer);
	peer->remote_id = id;
	peer->remote_token = token;
	return peer;
}

static unsigned setups(void)
{
	unsigned n = 0;
	for (const struct transport_setup *s = p->setups; s; s = s->next)
		n++;
	return n;
}

/* Freed and made again. Expect the same index with another token, so that a late packet names nobody. */
Test(transport_connection, a_token_names_one_use_of_a_peer)
{
	struct transport_peer *peer = make(1, 2);
	uint64_t first = peer->token;
	cr_assert_eq(TRANSPORT_INDEX(first), peer->index);
	cr_assert(peer->owner == 1 && peer->queue == p->queues[1] && peer->via == p->queues[1]);
	cr_assert(peer->address == NIC_PEER_NONE && peer->address_old == NIC_PEER_NONE);
	struct wire_control h = {.incarnation = le64_of(p->id), .token = le64_of(first)};
	cr_assert_eq(transport_peer_named(p, &h), peer);
	h.incarnation = le64_of(p->id + 16);
	cr_assert_null(transport_peer_named(p, &h), "of another incarnation of the port");
	h.incarnation = le64_of(p->id);
	transport_peer_free(p, peer);
	cr_assert_null(transport_peer_named(p, &h), "it is free");
	struct transport_peer *again = make(3, 4);
	cr_assert_eq(again, peer);
	cr_assert_neq(again->token, first);
	cr_assert_null(transport_peer_named(p, &h), "another one has its place");
	h.token = le64_of(first + FAR_TRANSPORT_PEERS_MAX - 1);
	cr_assert_null(transport_peer_named(p, &h), "an index that was never used");
	transport_peer_free(p, again);
}

/* Expect set-ups listed while they go on, in any order of their ends. */
Test(transport_connection, set_ups_are_listed)
{
	struct transport_peer *peers[4];
	for (unsigned i = 0; i < 4; i++)
		peers[i] = make(i + 1, i + 1);
	cr_assert_eq(setups(), 4u);
	transport_setup_end(p, peers[1]);
	cr_assert(peers[1]->settled && !peers[1]->setup);
	cr_assert_eq(setups(), 3u);
	/* The poller still has its packet: it stays until that is sent. */
	atomic_store(&peers[2]->setup_full, true);
	transport_setup_end(p, peers[2]);
	cr_assert(peers[2]->settled && peers[2]->setup);
	/* So does the driver below. */
	peers[3]->lower_pending = true;
	transport_setup_end(p, peers[3]);
	cr_assert(peers[3]->settled && peers[3]->setup);
	cr_assert_eq(setups(), 3u);
	for (unsigned i = 0; i < 4; i++)
		transport_peer_free(p, peers[i]);
	cr_assert_eq(setups(), 0u);
}

/* Many that meet in the same entries of the table, removed in another order. Expect each found until it is gone. */
Test(transport_connection, accepted_ones_are_found)
{
	enum { N = 1000 };
	static struct transport_peer *peers[N];
	for (unsigned i = 0; i < N; i++) {
		/* The table takes the exclusive or of the two: a dozen values of that for all. */
		uint64_t token = i + 1;
		peers[i] = make(token ^ (1000 + i % 12), token);
		transport_accepted_add(p, peers[i]);
	}
	for (unsigned step = 0; step < N; step++) {
		unsigned gone = step * 577 % N;
		for (unsigned i = 0; i < N; i += 37)
			if (peers[i])
				cr_assert_eq(transport_accepted_find(p, peers[i]->remote_id, peers[i]->remote_token),
					     peers[i], "%u, after %u were removed", i, step);
		uint64_t id = peers[gone]->remote_id, token = peers[gone]->remote_token;
		transport_peer_free(p, peers[gone]);
		peers[gone] = NULL;
		cr_assert_null(transport_accepted_find(p, id, token));
	}
	for (size_t i = 0; i < sizeof p->accepted / sizeof *p->accepted; i++)
		cr_assert_eq(p->accepted[i], 0u);
}

/* Expect the counts of half-open and of stateless set-ups to end with their peers. */
Test(transport_connection, counts_end_with_the_peer)
{
	struct transport_peer *half = make(1, 1), *stateless = make(2, 2);
	half->half_open = stateless->stateless = true;
	p->half_open_n = p->stateless_n = 1;
	transport_peer_free(p, half);
	cr_assert(p->half_open_n == 0 && p->stateless_n == 1);
	transport_peer_free(p, stateless);
	cr_assert(p->half_open_n == 0 && p->stateless_n == 0);
}

/* Orders to the poller. Expect them added up, and the peer in the set of its own queue. */
Test(transport_connection, orders_add_up)
{
	struct transport_peer *peer = make(1, 1);
	transport_order_post(peer, TRANSPORT_ORDER_OPEN);
	transport_order_post(peer, TRANSPORT_ORDER_ACK);
	cr_assert_eq(atomic_load(&peer->due), (uint32_t)(TRANSPORT_ORDER_OPEN | TRANSPORT_ORDER_ACK));
	cr_assert_not(transport_peer_set_any(&p->queues[0]->orders));
	cr_assert_eq(transport_peer_set_take(&p->queues[1]->orders), peer->index);
	cr_assert_eq(transport_peer_set_take(&p->queues[1]->orders), UINT32_MAX);
	atomic_store(&peer->due, 0);
	transport_peer_free(p, peer);
}
