/* SPDX-License-Identifier: BSD-3-Clause */
/** Connections that have more than one way. Ends 0 and 1 are connected; 2 is a second port of the worker of 0, and 3 of
 * that of 1. */
#include "base/crc32c.h"
#include "transport/port.h"
#include "transport_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

enum { OWN, OTHER, RAILS };

static struct {
	bool cut[2][RAILS]; /* what the first of a rail's ends sends, what the second one does */
	uint64_t carried[2][RAILS];
	unsigned rarely; /* ends 2 and 3 are polled by themselves once in so many turns */
	uint32_t at_0, at_1;
} net;

static bool carry(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	net.carried[from % 2][from / 2]++;
	return !net.cut[from % 2][from / 2];
}

static void cut(unsigned rail, bool is)
{
	net.cut[0][rail] = net.cut[1][rail] = is;
}

/* As a shard polls queues that have no peers. */
static void poll_others(void)
{
	if (bench.turns % net.rarely)
		return;
	for (unsigned e = 2; e < 4; e++)
		if (bench.ends[e].port)
			bench_take(e, 0);
}

static void init(void)
{
	bench_init();
	memset(&net, 0, sizeof net);
	net.rarely = 8;
	bench.fabric.hook = carry;
	bench.before = poll_others;
}

TestSuite(link_ways, .init = init, .fini = bench_fini, .timeout = 60);

static int add_way(unsigned from, uint32_t peer, unsigned via, unsigned to)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	bench.ends[to].port->ops->address(bench.ends[to].port, &addr);
	return link_way_add(bench.ends[from].port, peer, bench.ends[via].port, &addr, via, &err);
}

static void join(unsigned a, unsigned b)
{
	struct nic_port *both[] = {bench.ends[a].port, bench.ends[b].port};
	link_join(both, 2);
}

static void open_four(void)
{
	for (unsigned e = 0; e < 4; e++)
		end_open(e, 1);
	join(0, 2);
	join(1, 3);
	bench.ends[2].queues = bench.ends[3].queues = 0;
	bench_pair(0, 1, &net.at_0, &net.at_1);
}

static void turns(unsigned n)
{
	while (n-- > 0)
		bench_turn();
}

static void two_rails(void)
{
	open_four();
	cr_assert_eq(add_way(0, net.at_0, 2, 3), 0);
	cr_assert_eq(add_way(1, net.at_1, 3, 2), 0);
	turns(4);
}

static uint64_t moves(unsigned e)
{
	struct transport_stats s;
	transport_stats_read(bench.ends[e].port, &s);
	return s.moves;
}

static bool is_at(unsigned e, unsigned via)
{
	uint32_t number = link_way_taken(bench.ends[e].port, e ? net.at_1 : net.at_0);
	return number == (via == e ? LINK_WAY_OWN : via);
}

static void all_alive(void)
{
	for (unsigned e = 0; e < 4; e++)
		cr_assert(bench.ends[e].downs == 0 && !bench.ends[e].bad);
}

static uint64_t small(uint64_t seq)
{
	return seq % 100;
}

static uint64_t mixed(uint64_t seq)
{
	return seq % 7 == 0 ? 300000 + seq : seq % 3 == 0 ? 5000 : seq % 200;
}

/* Messages both ways at once, `n` each, whatever `each_turn` does to the network. */
static bool both_ways(uint64_t n, uint64_t (*len_of)(uint64_t seq), unsigned most, void (*each_turn)(unsigned turn))
{
	uint64_t from_0 = bench.ends[1].got, from_1 = bench.ends[0].got, until_0 = from_0 + n, until_1 = from_1 + n;
	for (unsigned turn = 0; turn < most && (bench.ends[1].got < until_0 || bench.ends[0].got < until_1); turn++) {
		if (each_turn)
			each_turn(turn);
		if (from_0 < until_0 && bench_send(0, net.at_0, from_0, len_of(from_0)) == 0)
			from_0++;
		if (from_1 < until_1 && bench_send(1, net.at_1, from_1, len_of(from_1)) == 0)
			from_1++;
		bench_turn();
	}
	return bench.ends[1].got == until_0 && bench.ends[0].got == until_1;
}

/* ---- a way that fails ---- */

static void cut_at_50(unsigned turn)
{
	if (turn == 50)
		cut(OWN, true);
}

Test(link_ways, a_connection_goes_on_by_the_other)
{
	two_rails();
	cr_assert(both_ways(200, small, 3000, cut_at_50));
	all_alive();
	cr_assert(is_at(0, 2) && is_at(1, 3));
	cr_assert(moves(0) >= 1 && moves(1) >= 1);
	/* And stays there, at its full pace: nothing waits for a time-out any more. */
	unsigned before = bench.turns;
	cr_assert(both_ways(100, small, 1000, NULL));
	cr_assert_lt(bench.turns - before, 130);
}

Test(link_ways, long_messages_go_on_where_they_were)
{
	two_rails();
	cr_assert(both_ways(30, mixed, 20000, cut_at_50));
	all_alive();
	cr_assert(is_at(0, 2) && is_at(1, 3));
}

/* What was numbered for a wide way goes by a narrow one in pieces, and back. */
Test(link_ways, the_other_may_be_narrower)
{
	bench.fabric.packet_max = 9000;
	bench.fabric.narrow[2] = bench.fabric.narrow[3] = 1300;
	two_rails();
	cr_assert(both_ways(200, mixed, 40000, cut_at_50));
	all_alive();
	cr_assert(is_at(0, 2) && is_at(1, 3));
	cut(OWN, false);
	cr_assert(both_ways(15000, small, 40000, NULL));
	cr_assert(is_at(0, 0) && is_at(1, 1));
	uint64_t before = net.carried[0][OWN];
	cr_assert(both_ways(7, mixed, 1000, NULL));
	cr_assert_leq(net.carried[0][OWN] - before, 100, "packets are as wide as they were");
	all_alive();
}

static void cut_there_at_50(unsigned turn)
{
	if (turn == 50)
		net.cut[0][OWN] = true;
}

static void cut_back_at_50(unsigned turn)
{
	if (turn == 50)
		net.cut[1][OWN] = true;
}

Test(link_ways, one_direction_is_enough_to_fail)
{
	two_rails();
	cr_assert(both_ways(200, small, 5000, cut_there_at_50));
	all_alive();
	cr_assert(is_at(0, 2));
	/* What does not arrive cannot be told from what is not answered: the other goes on by it too. */
	cr_assert(is_at(1, 3));
}

Test(link_ways, the_other_direction_too)
{
	two_rails();
	cr_assert(both_ways(200, small, 5000, cut_back_at_50));
	all_alive();
	cr_assert(is_at(0, 2) && is_at(1, 3));
}

Test(link_ways, an_idle_connection_moves_when_it_is_used)
{
	two_rails();
	turns(2000);
	cut(OWN, true);
	turns(30000);
	all_alive();
	cr_assert(is_at(0, 0) && is_at(1, 1));
	cr_assert(both_ways(1, small, 500, NULL));
	all_alive();
}

static uint64_t nothing(uint64_t seq)
{
	return 8;
}

/* A call whose answer comes long after the way went: who answers finds that out, who asked has nothing to send. */
Test(link_ways, an_answer_comes_by_the_other)
{
	two_rails();
	cr_assert(bench_stream(0, net.at_0, 1, 1, nothing, 100));
	turns(100);
	cut(OWN, true);
	cr_assert(bench_stream(1, net.at_1, 0, 1, nothing, 2000));
	turns(300);
	all_alive();
	struct nic_queue *q = bench.ends[1].q;
	cr_assert_eq(q->ops->tx_room(q, net.at_1), FAR_LINK_SLOTS, "its acknowledgement came back");
}

/* Nobody looks at other ports for it for ever. */
Test(link_ways, who_was_heard_by_another_is_at_home_again)
{
	two_rails();
	const struct link_peer *p = ((struct link_port *)bench.ends[0].port)->peers[net.at_0];
	struct wire_head h = {.version = WIRE_VERSION,
			      .kind = WIRE_ACK,
			      .incarnation = be64_of(p->queue->id),
			      .token = be64_of(p->token)};
	h.crc = be32_of(crc32c(0, &h, sizeof h));
	for (unsigned k = 0; k < 3; k++) {
		dgram_inject(&bench.fabric, 2, 0, &h, sizeof h);
		turns(10);
		cr_assert_eq(p->queue->abroad_n, 1);
	}
	turns(1000);
	cr_assert(p->queue->abroad_n == 0 && p->queue->actives_n == 0);
}

/* ---- no way at all, and back ---- */

Test(link_ways, with_no_way_left_it_ends_in_time)
{
	two_rails();
	cr_assert(both_ways(10, small, 1000, NULL));
	cut(OWN, true);
	cut(OTHER, true);
	cr_assert_eq(bench_send(0, net.at_0, bench.ends[1].got, 8), 0);
	unsigned before = bench.turns;
	cr_assert(bench_until(&bench.ends[0].downs, 1, 13000));
	cr_assert_eq(bench.ends[0].error, -ETIMEDOUT);
	cr_assert_geq(bench.turns - before, 10000, "not before the limit");
}

Test(link_ways, a_gap_in_all_of_them_is_borne)
{
	two_rails();
	cr_assert(both_ways(10, small, 1000, NULL));
	cut(OWN, true);
	cut(OTHER, true);
	cr_assert_eq(bench_send(0, net.at_0, bench.ends[1].got, bench.ends[1].got % 100), 0);
	turns(5000);
	cr_assert(is_at(0, 0), "nobody answers by any: no reason to change");
	cut(OTHER, false);
	turns(4000);
	all_alive();
	cr_assert_eq(bench.ends[1].got, 11);
	cr_assert(is_at(0, 2));
}

Test(link_ways, a_way_that_is_back_is_taken_back)
{
	two_rails();
	cr_assert(both_ways(100, small, 3000, cut_at_50));
	cr_assert(is_at(0, 2) && is_at(1, 3));
	cut(OWN, false);
	cr_assert(both_ways(25000, small, 40000, NULL));
	cr_assert(is_at(0, 0) && is_at(1, 1));
	uint64_t other = net.carried[0][OTHER] + net.carried[1][OTHER];
	turns(200);
	cr_assert(both_ways(100, small, 1000, NULL));
	cr_assert_leq(net.carried[0][OTHER] + net.carried[1][OTHER], other + 4);
	all_alive();
}

static void flap(unsigned turn)
{
	cut(OWN, turn / 150 % 2);
}

static void flap_in_turns(unsigned turn)
{
	cut(OWN, turn / 220 % 2);
	cut(OTHER, !(turn / 220 % 2));
}

Test(link_ways, a_cable_that_flaps)
{
	two_rails();
	cr_assert(both_ways(3000, small, 30000, flap));
	all_alive();
}

Test(link_ways, two_that_flap_in_turns)
{
	two_rails();
	cr_assert(both_ways(2000, small, 60000, flap_in_turns));
	all_alive();
	cr_assert_gt(moves(0), 2);
}

Test(link_ways, losses_do_not_break_it)
{
	bench.fabric.drop = 100;
	two_rails();
	turns(100);
	cr_assert(both_ways(500, mixed, 200000, cut_at_50));
	all_alive();
}

/* A host that stands still answers by no way, and nobody changes. */
Test(link_ways, who_is_slow_is_not_fled_from)
{
	two_rails();
	cr_assert(both_ways(10, small, 1000, NULL));
	struct link_end *slow = &bench.ends[1];
	cr_assert_eq(bench_send(0, net.at_0, slow->got, slow->got % 100), 0);
	slow->queues = 0;
	net.rarely = 1000000;
	turns(3000);
	slow->queues = 1;
	net.rarely = 8;
	turns(3000);
	all_alive();
	cr_assert_eq(slow->got, 11);
	cr_assert(moves(0) == 0 && moves(1) == 0);
}

/* ---- who has what ---- */

Test(link_ways, a_second_way_carries_nothing_while_the_first_works)
{
	two_rails();
	uint64_t before = net.carried[0][OTHER] + net.carried[1][OTHER];
	cr_assert(both_ways(1000, mixed, 100000, NULL));
	cr_assert_eq(net.carried[0][OTHER] + net.carried[1][OTHER], before);
	cr_assert(moves(0) == 0 && moves(1) == 0);
}

Test(link_ways, a_way_that_only_one_end_has_is_none)
{
	open_four();
	cr_assert_eq(add_way(0, net.at_0, 2, 3), 0);
	cut(OWN, true);
	cr_assert_eq(bench_send(0, net.at_0, 0, 8), 0);
	cr_assert(bench_until(&bench.ends[0].downs, 1, 13000) || bench.ends[1].got == 1);
	cr_assert(is_at(0, 0));
}

Test(link_ways, what_is_none_is_refused)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	open_four();
	struct nic_port *p = bench.ends[0].port, *via = bench.ends[2].port;
	bench.ends[3].port->ops->address(bench.ends[3].port, &addr);
	cr_assert_eq(link_way_add(p, net.at_0, p, &addr, 7, &err), -EINVAL, "no way beside itself");
	cr_assert(err.text[0]);
	cr_assert_eq(link_way_add(p, net.at_0, bench.ends[3].port, &addr, 7, &err), -EINVAL, "another worker's port");
	cr_assert_eq(link_way_add(p, net.at_0 + 1, via, &addr, 7, &err), -EINVAL, "no such connection");
	cr_assert_eq(link_way_add(p, UINT32_MAX, via, &addr, 7, &err), -EINVAL);
	cr_assert_eq(link_way_add(link_lower(p), 0, via, &addr, 7, &err), -EINVAL, "no link");
	addr.len = 4;
	cr_assert_eq(link_way_add(p, net.at_0, via, &addr, 7, &err), -EINVAL, "malformed");
	for (unsigned k = 0; k < FAR_LINK_WAYS_MAX; k++)
		cr_assert_eq(add_way(0, net.at_0, 2, 3), 0);
	cr_assert_eq(add_way(0, net.at_0, 2, 3), -ENOSPC);
	turns(10);
	cr_assert(both_ways(10, small, 1000, NULL));
}

Test(link_ways, a_connection_ends_with_all_of_its_ways)
{
	two_rails();
	cut(OWN, true);
	cr_assert(both_ways(20, small, 1000, NULL));
	struct link_end *e = &bench.ends[0];
	e->q->ops->detach(e->q, net.at_0);
	e->port->ops->drop(e->port, net.at_0);
	cr_assert(bench_until(&bench.ends[1].downs, 1, 1000), "BYE goes by the way that is used");
	cr_assert_eq(bench.ends[1].error, -ECONNRESET);
	cut(OWN, false);
	uint32_t at_0, at_1;
	for (unsigned k = 0; k < 3; k++) {
		bench_pair(0, 1, &at_0, &at_1);
		cr_assert_eq(add_way(0, at_0, 2, 3), 0);
		e->q->ops->detach(e->q, at_0);
		e->port->ops->drop(e->port, at_0);
		turns(20);
	}
}

Test(link_ways, ports_close_in_any_order)
{
	two_rails();
	cut(OWN, true);
	cr_assert(both_ways(20, small, 1000, NULL));
	end_close(2);
	end_close(0);
	end_close(1);
	end_close(3);
}

Test(link_ways, a_port_closes_while_a_way_is_being_made)
{
	open_four();
	bench.fabric.unready = true;
	cr_assert_eq(add_way(0, net.at_0, 2, 3), 0);
	cr_assert_eq(add_way(1, net.at_1, 3, 2), 0);
	turns(3);
	end_close(2);
	end_close(0);
}

/* ---- queues that a hash chooses ---- */

/* Each path of the fabric leads to another queue than the one that is named, or to it: by chance. */
static void open_hashed(unsigned queues)
{
	bench.fabric.hash = true;
	for (unsigned e = 0; e < 4; e++)
		end_open(e, queues);
	join(0, 2);
	join(1, 3);
	bench_pair(0, 1, &net.at_0, &net.at_1);
}

/* A question that comes to another shard's queue ends nothing: the connection is known there, by its token. */
Test(link_ways, a_question_at_another_queue_ends_nothing)
{
	open_hashed(2);
	cr_assert_eq(add_way(0, net.at_0, 2, 3), 0);
	turns(4);
	struct transport_stats s;
	for (unsigned k = 0; k < 20; k++) {
		struct link_queue *q = (struct link_queue *)bench.ends[0].q;
		q->now = 0;
		link_way_ask(q, q->port->peers[net.at_0], bench.now);
		turns(200);
	}
	all_alive();
	transport_stats_read(bench.ends[3].port, &s);
	cr_assert_eq(s.refused, 0, "nobody is told that there is no such connection");
	cr_assert(both_ways(50, small, 1000, NULL));
	cr_assert(is_at(0, 0) && is_at(1, 1));
}

/* The ways lead to the connection's queue, there and back, whichever path that takes. */
Test(link_ways, ways_find_their_queue)
{
	for (unsigned queues = 2; queues <= DGRAM_QUEUES; queues++) {
		open_hashed(queues);
		cr_assert_eq(add_way(0, net.at_0, 2, 3), 0);
		cr_assert_eq(add_way(1, net.at_1, 3, 2), 0);
		turns(60);
		cr_assert(both_ways(200, small, 3000, cut_at_50), "%u queues", queues);
		all_alive();
		cr_assert(is_at(0, 2) && is_at(1, 3), "%u queues", queues);
		cut(OWN, false);
		bench_fini();
	}
}

/* ---- who lies ---- */

static void inject(unsigned to, enum wire_kind kind, uint64_t id, uint64_t token, uint32_t offset)
{
	struct wire_head h = {.version = WIRE_VERSION,
			      .kind = (uint8_t)kind,
			      .incarnation = be64_of(id),
			      .token = be64_of(token),
			      .offset = be32_of(offset)};
	h.crc = be32_of(crc32c(0, &h, sizeof h));
	dgram_inject(&bench.fabric, to, 0, &h, sizeof h);
}

static const struct link_peer *peer_at(unsigned e)
{
	return ((struct link_port *)bench.ends[e].port)->peers[e ? net.at_1 : net.at_0];
}

Test(link_ways, answers_that_nobody_asked_for_move_nothing)
{
	struct transport_stats s;
	two_rails();
	const struct link_peer *p = peer_at(0);
	for (uint32_t k = 0; k < 300; k++) {
		/* "Your way over the other port leads to me", and others that there are not. */
		inject(0, WIRE_ACK, p->queue->id, p->token, 2);
		inject(2, WIRE_ACK, p->queue->id, p->token, 2);
		inject(2, WIRE_ACK, p->queue->id, p->token, k % 2 ? k + 2 : UINT32_MAX - k);
		bench_turn();
	}
	transport_stats_read(bench.ends[0].port, &s);
	cr_assert(s.unknown == 0 && s.crc_errors == 0 && s.malformed == 0, "%u unknown, %u damaged, %u malformed",
		  (unsigned)s.unknown, (unsigned)s.crc_errors, (unsigned)s.malformed);
	cr_assert(both_ways(50, small, 1000, NULL));
	cr_assert(is_at(0, 0) && moves(0) == 0);
	all_alive();
}

Test(link_ways, a_token_is_needed_at_the_other_port_too)
{
	struct transport_stats s;
	two_rails();
	const struct link_peer *p = peer_at(0);
	inject(2, WIRE_BYE, p->queue->id, p->token ^ UINT64_C(1) << 40, 0);
	inject(2, WIRE_RESET, p->queue->id, 0, 0);
	inject(2, WIRE_MESSAGE, p->queue->id, p->token ^ UINT64_C(1) << 50, 0);
	inject(2, WIRE_HELLO, p->queue->id, p->token, 0);
	inject(2, WIRE_PING, p->queue->id, p->token ^ UINT64_C(1) << 50, 0);
	turns(100);
	all_alive();
	transport_stats_read(bench.ends[0].port, &s);
	cr_assert_geq(s.unknown + s.refused, 3);
	cr_assert(both_ways(50, small, 1000, NULL));
}
