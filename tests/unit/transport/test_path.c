/* SPDX-License-Identifier: BSD-3-Clause */
/** Connections that have more than one way. Ends 0 and 1 are connected; 2 is a second port of the worker of 0, and 3 of
 * that of 1. The test's thread. */
#include "base/crc32c.h"
#include "transport/path.h"
#include "transport/peer.h"
#include "transport/port.h"
#include "transport/queue.h"
#include "transport/transport.h"
#include "transport/wire.h"
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
	if (fixture.turns % net.rarely)
		return;
	for (unsigned e = 2; e < 4; e++)
		if (fixture.ends[e].port)
			fixture_take(e, 0);
}

static void init(void)
{
	fixture_init();
	memset(&net, 0, sizeof net);
	net.rarely = 8;
	fixture.fabric.hook = carry;
	fixture.before = poll_others;
}

TestSuite(transport_path, .init = init, .fini = fixture_fini, .timeout = 60);

static int add_way(unsigned from, uint32_t peer, unsigned via, unsigned to)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	fixture.ends[to].port->ops->address(fixture.ends[to].port, &addr);
	return transport_path_add(fixture.ends[from].port, peer, fixture.ends[via].port, &addr, via, &err);
}

static void join(unsigned a, unsigned b)
{
	struct nic_port *both[] = {fixture.ends[a].port, fixture.ends[b].port};
	transport_join(both, 2);
}

static void open_four(void)
{
	for (unsigned e = 0; e < 4; e++)
		end_open(e, 1);
	join(0, 2);
	join(1, 3);
	fixture.ends[2].queues = fixture.ends[3].queues = 0;
	fixture_pair(0, 1, &net.at_0, &net.at_1);
}

static void turns(unsigned n)
{
	while (n-- > 0)
		fixture_turn();
}

static void two_rails(void)
{
	open_four();
	cr_assert_eq(add_way(0, net.at_0, 2, 3), 0);
	cr_assert_eq(add_way(1, net.at_1, 3, 2), 0);
	turns(4);
}

static uint64_t path_migrations(unsigned e)
{
	struct transport_stats s;
	transport_stats_read(fixture.ends[e].port, &s);
	return s.path_migrations;
}

static bool is_at(unsigned e, unsigned via)
{
	uint32_t number = transport_path_current(fixture.ends[e].port, e ? net.at_1 : net.at_0);
	return number == (via == e ? TRANSPORT_PATH_PRIMARY : via);
}

static void all_alive(void)
{
	for (unsigned e = 0; e < 4; e++)
		cr_assert(fixture.ends[e].downs == 0 && !fixture.ends[e].bad);
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
	uint64_t from_0 = fixture.ends[1].got, from_1 = fixture.ends[0].got, until_0 = from_0 + n, until_1 = from_1 + n;
	for (unsigned turn = 0; turn < most && (fixture.ends[1].got < until_0 || fixture.ends[0].got < until_1);
	     turn++) {
		if (each_turn)
			each_turn(turn);
		if (from_0 < until_0 && fixture_send(0, net.at_0, from_0, len_of(from_0)) == 0)
			from_0++;
		if (from_1 < until_1 && fixture_send(1, net.at_1, from_1, len_of(from_1)) == 0)
			from_1++;
		fixture_turn();
	}
	return fixture.ends[1].got == until_0 && fixture.ends[0].got == until_1;
}

/* ---- a way that fails ---- */

static void cut_at_50(unsigned turn)
{
	if (turn == 50)
		cut(OWN, true);
}

Test(transport_path, a_connection_goes_on_by_the_other)
{
	two_rails();
	cr_assert(both_ways(200, small, 3000, cut_at_50));
	all_alive();
	cr_assert(is_at(0, 2) && is_at(1, 3));
	cr_assert(path_migrations(0) >= 1 && path_migrations(1) >= 1);
	/* And stays there, at its full pace: nothing waits for a time-out any more. */
	unsigned before = fixture.turns;
	cr_assert(both_ways(100, small, 1000, NULL));
	cr_assert_lt(fixture.turns - before, 130);
}

Test(transport_path, long_messages_go_on_where_they_were)
{
	two_rails();
	cr_assert(both_ways(100, mixed, 20000, cut_at_50));
	all_alive();
	cr_assert(is_at(0, 2) && is_at(1, 3));
}

/* What was numbered for a wide way goes by a narrow one in pieces, and back. */
Test(transport_path, the_other_may_be_narrower)
{
	fixture.fabric.packet_max = 9000;
	fixture.fabric.packet_max_of[2] = fixture.fabric.packet_max_of[3] = 1300;
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

Test(transport_path, one_direction_is_enough_to_fail)
{
	two_rails();
	cr_assert(both_ways(200, small, 5000, cut_there_at_50));
	all_alive();
	cr_assert(is_at(0, 2));
	/* A lost packet and a lost answer look alike to the sender: the other end uses this path, too. */
	cr_assert(is_at(1, 3));
}

Test(transport_path, the_other_direction_too)
{
	two_rails();
	cr_assert(both_ways(200, small, 5000, cut_back_at_50));
	all_alive();
	cr_assert(is_at(0, 2) && is_at(1, 3));
}

Test(transport_path, an_idle_connection_moves_when_it_is_used)
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

/* A call whose answer comes long after the path failed: the callee finds that out, the caller has nothing to send. */
Test(transport_path, an_answer_comes_by_the_other)
{
	two_rails();
	cr_assert(fixture_stream(0, net.at_0, 1, 1, nothing, 100));
	turns(100);
	cut(OWN, true);
	cr_assert(fixture_stream(1, net.at_1, 0, 1, nothing, 2000));
	turns(300);
	all_alive();
	struct nic_queue *q = fixture.ends[1].q;
	cr_assert_eq(q->ops->tx_room(q, net.at_1), FAR_TRANSPORT_SLOTS, "its acknowledgement came back");
}

/* Nobody looks at other ports for it for ever. */
Test(transport_path, who_was_heard_by_another_is_at_home_again)
{
	two_rails();
	const struct transport_peer *p = ((struct transport_port *)fixture.ends[0].port)->peers[net.at_0];
	struct wire_message h = {.version = WIRE_VERSION,
				 .kind = WIRE_ACK,
				 .incarnation = le64_of(p->queue->id),
				 .token = le64_of(p->token)};
	h.crc = le32_of(crc32c(0, &h, sizeof h));
	for (unsigned k = 0; k < 3; k++) {
		dgram_inject(&fixture.fabric, 2, 0, &h, sizeof h);
		turns(10);
		cr_assert_eq(p->queue->failed_over_n, 1);
	}
	turns(1000);
	cr_assert(p->queue->failed_over_n == 0 && p->queue->actives_n == 0);
}

/* ---- no way at all, and back ---- */

Test(transport_path, with_no_way_left_it_ends_in_time)
{
	two_rails();
	cr_assert(both_ways(10, small, 1000, NULL));
	cut(OWN, true);
	cut(OTHER, true);
	cr_assert_eq(fixture_send(0, net.at_0, fixture.ends[1].got, 8), 0);
	unsigned before = fixture.turns;
	cr_assert(fixture_until(&fixture.ends[0].downs, 1, 13000));
	cr_assert_eq(fixture.ends[0].error, -ETIMEDOUT);
	cr_assert_geq(fixture.turns - before, 10000, "not before the limit");
}

Test(transport_path, a_gap_in_all_of_them_is_borne)
{
	two_rails();
	cr_assert(both_ways(10, small, 1000, NULL));
	cut(OWN, true);
	cut(OTHER, true);
	cr_assert_eq(fixture_send(0, net.at_0, fixture.ends[1].got, fixture.ends[1].got % 100), 0);
	turns(5000);
	cr_assert(is_at(0, 0), "nobody answers by any: no reason to change");
	cut(OTHER, false);
	turns(4000);
	all_alive();
	cr_assert_eq(fixture.ends[1].got, 11);
	cr_assert(is_at(0, 2));
}

Test(transport_path, a_way_that_is_back_is_taken_back)
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

Test(transport_path, a_cable_that_flaps)
{
	two_rails();
	cr_assert(both_ways(3000, small, 30000, flap));
	all_alive();
}

Test(transport_path, two_that_flap_in_turns)
{
	two_rails();
	cr_assert(both_ways(2000, small, 60000, flap_in_turns));
	all_alive();
	cr_assert_gt(path_migrations(0), 2);
}

Test(transport_path, losses_do_not_break_it)
{
	fixture.fabric.drop = 100;
	two_rails();
	turns(100);
	cr_assert(both_ways(500, mixed, 200000, cut_at_50));
	all_alive();
}

/* A host that stands still answers by no way, and nobody changes. */
Test(transport_path, who_is_slow_is_not_fled_from)
{
	two_rails();
	cr_assert(both_ways(10, small, 1000, NULL));
	struct transport_end *slow = &fixture.ends[1];
	cr_assert_eq(fixture_send(0, net.at_0, slow->got, slow->got % 100), 0);
	slow->queues = 0;
	net.rarely = 1000000;
	turns(3000);
	slow->queues = 1;
	net.rarely = 8;
	turns(3000);
	all_alive();
	cr_assert_eq(slow->got, 11);
	cr_assert(path_migrations(0) == 0 && path_migrations(1) == 0);
}

/* ---- who has what ---- */

Test(transport_path, a_second_way_carries_nothing_while_the_first_works)
{
	two_rails();
	uint64_t before = net.carried[0][OTHER] + net.carried[1][OTHER];
	cr_assert(both_ways(1000, mixed, 100000, NULL));
	cr_assert_eq(net.carried[0][OTHER] + net.carried[1][OTHER], before);
	cr_assert(path_migrations(0) == 0 && path_migrations(1) == 0);
}

Test(transport_path, a_way_that_only_one_end_has_is_none)
{
	open_four();
	cr_assert_eq(add_way(0, net.at_0, 2, 3), 0);
	cut(OWN, true);
	cr_assert_eq(fixture_send(0, net.at_0, 0, 8), 0);
	cr_assert(fixture_until(&fixture.ends[0].downs, 1, 13000) || fixture.ends[1].got == 1);
	cr_assert(is_at(0, 0));
}

Test(transport_path, what_is_none_is_refused)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	open_four();
	struct nic_port *p = fixture.ends[0].port, *via = fixture.ends[2].port;
	fixture.ends[3].port->ops->address(fixture.ends[3].port, &addr);
	cr_assert_eq(transport_path_add(p, net.at_0, p, &addr, 7, &err), -EINVAL, "no way beside itself");
	cr_assert(err.text[0]);
	cr_assert_eq(transport_path_add(p, net.at_0, fixture.ends[3].port, &addr, 7, &err), -EINVAL,
		     "another worker's port");
	cr_assert_eq(transport_path_add(p, net.at_0 + 1, via, &addr, 7, &err), -EINVAL, "no such connection");
	cr_assert_eq(transport_path_add(p, UINT32_MAX, via, &addr, 7, &err), -EINVAL);
	cr_assert_eq(transport_path_add(transport_lower(p), 0, via, &addr, 7, &err), -EINVAL, "no link");
	addr.len = 4;
	cr_assert_eq(transport_path_add(p, net.at_0, via, &addr, 7, &err), -EINVAL, "malformed");
	for (unsigned k = 0; k < FAR_TRANSPORT_SECONDARY_PATHS_MAX; k++)
		cr_assert_eq(add_way(0, net.at_0, 2, 3), 0);
	cr_assert_eq(add_way(0, net.at_0, 2, 3), -ENOSPC);
	turns(10);
	cr_assert(both_ways(10, small, 1000, NULL));
}

Test(transport_path, a_connection_ends_with_all_of_its_ways)
{
	two_rails();
	cut(OWN, true);
	cr_assert(both_ways(20, small, 1000, NULL));
	struct transport_end *e = &fixture.ends[0];
	e->q->ops->detach(e->q, net.at_0);
	e->port->ops->drop(e->port, net.at_0);
	cr_assert(fixture_until(&fixture.ends[1].downs, 1, 1000), "CLOSE goes by the way that is used");
	cr_assert_eq(fixture.ends[1].error, -ECONNRESET);
	cut(OWN, false);
	uint32_t at_0, at_1;
	for (unsigned k = 0; k < 3; k++) {
		fixture_pair(0, 1, &at_0, &at_1);
		cr_assert_eq(add_way(0, at_0, 2, 3), 0);
		e->q->ops->detach(e->q, at_0);
		e->port->ops->drop(e->port, at_0);
		turns(20);
	}
}

Test(transport_path, ports_close_in_any_order)
{
	two_rails();
	cut(OWN, true);
	cr_assert(both_ways(20, small, 1000, NULL));
	end_close(2);
	end_close(0);
	end_close(1);
	end_close(3);
}

Test(transport_path, a_port_closes_while_a_way_is_being_made)
{
	open_four();
	fixture.fabric.unready = true;
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
	fixture.fabric.hash = true;
	for (unsigned e = 0; e < 4; e++)
		end_open(e, queues);
	join(0, 2);
	join(1, 3);
	fixture_pair(0, 1, &net.at_0, &net.at_1);
}

/* A question that comes to another shard's queue ends nothing: the connection is known there, by its token. */
Test(transport_path, a_question_at_another_queue_ends_nothing)
{
	open_hashed(2);
	cr_assert_eq(add_way(0, net.at_0, 2, 3), 0);
	turns(4);
	struct transport_stats s;
	for (unsigned k = 0; k < 20; k++) {
		struct transport_queue *q = (struct transport_queue *)fixture.ends[0].q;
		q->now = 0;
		transport_paths_probe(q, q->port->peers[net.at_0], fixture.now);
		turns(200);
	}
	all_alive();
	transport_stats_read(fixture.ends[3].port, &s);
	cr_assert_eq(s.refused, 0, "no RESET is sent for an unknown connection");
	cr_assert(both_ways(50, small, 1000, NULL));
	cr_assert(is_at(0, 0) && is_at(1, 1));
}

/* The ways lead to the connection's queue, there and back, whichever path that takes. */
Test(transport_path, ways_find_their_queue)
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
		fixture_fini();
	}
}

/* ---- who lies ---- */

static void inject(unsigned to, enum wire_kind kind, uint64_t id, uint64_t token, uint32_t path)
{
	struct wire_ack h = {.version = WIRE_VERSION,
			     .kind = (uint8_t)kind,
			     .incarnation = le64_of(id),
			     .token = le64_of(token),
			     .path = le32_of(path)};
	h.crc = le32_of(crc32c(0, &h, sizeof h));
	dgram_inject(&fixture.fabric, to, 0, &h, sizeof h);
}

static const struct transport_peer *peer_at(unsigned e)
{
	return ((struct transport_port *)fixture.ends[e].port)->peers[e ? net.at_1 : net.at_0];
}

Test(transport_path, answers_that_nobody_asked_for_move_nothing)
{
	struct transport_stats s;
	two_rails();
	const struct transport_peer *p = peer_at(0);
	for (uint32_t k = 0; k < 300; k++) {
		/* "Your way over the other port leads to me", and others that there are not. */
		inject(0, WIRE_ACK, p->queue->id, p->token, 2);
		inject(2, WIRE_ACK, p->queue->id, p->token, 2);
		inject(2, WIRE_ACK, p->queue->id, p->token, k % 2 ? k + 2 : UINT32_MAX - k);
		fixture_turn();
	}
	transport_stats_read(fixture.ends[0].port, &s);
	cr_assert(s.unknown_connection_drops == 0 && s.crc_errors == 0 && s.malformed == 0,
		  "%u unknown, %u damaged, %u malformed", (unsigned)s.unknown_connection_drops, (unsigned)s.crc_errors,
		  (unsigned)s.malformed);
	cr_assert(both_ways(50, small, 1000, NULL));
	cr_assert(is_at(0, 0) && path_migrations(0) == 0);
	all_alive();
}

Test(transport_path, a_token_is_needed_at_the_other_port_too)
{
	struct transport_stats s;
	two_rails();
	const struct transport_peer *p = peer_at(0);
	inject(2, WIRE_CLOSE, p->queue->id, p->token ^ UINT64_C(1) << 40, 0);
	inject(2, WIRE_RESET, p->queue->id, 0, 0);
	inject(2, WIRE_MESSAGE, p->queue->id, p->token ^ UINT64_C(1) << 50, 0);
	inject(2, WIRE_CONNECT, p->queue->id, p->token, 0);
	inject(2, WIRE_PING, p->queue->id, p->token ^ UINT64_C(1) << 50, 0);
	turns(100);
	all_alive();
	transport_stats_read(fixture.ends[0].port, &s);
	cr_assert_geq(s.unknown_connection_drops + s.refused, 3);
	cr_assert(both_ways(50, small, 1000, NULL));
}
