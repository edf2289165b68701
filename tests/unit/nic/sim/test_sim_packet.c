/* SPDX-License-Identifier: BSD-3-Clause */
/** Packets: their memory, their accounts, and the lists that they are in. The test's thread. */
#include "nic/sim/sim_world.h"
#include "sim_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(sim_packet, .init = sim_fixture_init, .fini = sim_fixture_fini);

/* Packets that an earlier incarnation has sent still arrive, at a later one too. */
Test(sim_packet, packets_outlive_their_sender_and_their_receiver)
{
	sim_fixture.config.topology.host.delay_ns = 1000000;
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	cr_assert_eq(sim_fixture_send(0, at_1, 7, 64), 0);
	sim_fixture_run(1000);
	sim_host_crash(sim_fixture.ends[0].host);
	sim_host_crash(sim_fixture.ends[1].host);
	sim_fixture_port_close(1);
	sim_host_restart(sim_fixture.ends[1].host);
	sim_fixture_port_open(1);
	sim_fixture_run(10000000);
	cr_assert_eq(sim_fixture_drain(1), 1);
}

/* What takes more memory than was allowed ends the run, and says so. */
Test(sim_packet, packets_are_bounded)
{
	sim_fixture.config.packet_bytes_max = 100000;
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	int error = 0;
	unsigned n = 0;
	for (; n < 200 && !error; n++)
		error = sim_fixture_send(0, at_1, n, 1400);
	cr_assert_eq(error, -ENOBUFS);
	cr_assert(n > 50 && n < 72);
	cr_assert(strstr(sim_failure(sim_fixture.sim), "packet_bytes_max"));
	cr_assert_not(sim_step(sim_fixture.sim));
}

static uint64_t bytes_of(const struct sim *sim, uint64_t *max)
{
	struct sim_stats stats;
	sim_stats(sim, &stats);
	*max = stats.packet_bytes_max;
	return stats.packet_bytes;
}

/* Freed in any order, from the front, the middle and the end of the list of all. */
Test(sim_packet, memory_is_counted)
{
	struct sim *sim = sim_fixture_world(0);
	struct sim_packet *p[4];
	uint64_t max, most;
	for (unsigned i = 0; i < 4; i++) {
		uint64_t before = bytes_of(sim, &max);
		p[i] = sim_packet_new(sim, i * 100);
		cr_assert(p[i] && (uintptr_t)p[i]->body % 64 == 0);
		cr_assert_geq(bytes_of(sim, &max) - before, sizeof *p[i] + i * 100 + 63, "room for a shift");
	}
	most = bytes_of(sim, &max);
	cr_assert_eq(most, max);
	static const unsigned order[] = {1, 3, 0, 2};
	for (unsigned i = 0; i < 4; i++) {
		sim_packet_free(p[order[i]]);
		unsigned n = 0;
		for (const struct sim_packet *at = sim->packets; at; at = at->older, n++)
			cr_assert(!at->older || at->older->younger == at);
		cr_assert_eq(n, 3 - i);
	}
	cr_assert_eq(bytes_of(sim, &max), 0u);
	cr_assert_eq(max, most);
	sim_destroy(sim);
}

/* The copy has a body of its own, with the same misalignment, and is in nobody's queue or buffer. */
Test(sim_packet, a_copy_is_a_packet_of_its_own)
{
	struct sim *sim = sim_fixture_world(0);
	struct sim_switch buffer = {0};
	struct sim_packet *p = sim_packet_new(sim, 100), *other = sim_packet_new(sim, 1);
	p->body += 3;
	memset(p->body, 7, 100);
	p->next = other;
	p->buffered = &buffer;
	p->number = 11;
	sim_packet_launch(p);
	struct sim_packet *copy = sim_packet_copy(p);
	cr_assert(copy->body != p->body && copy->body - copy->room == 3);
	cr_assert_eq(memcmp(copy->body, p->body, 100), 0);
	cr_assert(!copy->next && !copy->buffered && !copy->flying && copy->number == 11);
	sim_packet_free(p);
	cr_assert_eq(copy->body[99], 7);
	cr_assert(sim->packets == copy && copy->older == other);
	sim->config.packet_bytes_max = 1;
	cr_assert_null(sim_packet_copy(copy));
	cr_assert_not_null(sim_failure(sim));
	sim_destroy(sim);
}

/* In flight once, however often it lands. A packet that was not in flight is not lost on the way. */
Test(sim_packet, accounts)
{
	struct sim *sim = sim_fixture_world(0);
	struct sim_packet *p = sim_packet_new(sim, 100), *q = sim_packet_new(sim, 30);
	p->from = p->to = q->from = q->to = sim_fixture_host(sim, 0, 0);
	sim_packet_launch(p);
	sim_packet_launch(q);
	cr_assert(sim->stats.in_flight == 2 && sim->stats.in_flight_bytes == 130);
	sim_packet_landed(p);
	sim_packet_landed(p);
	cr_assert(sim->stats.in_flight == 1 && sim->stats.in_flight_bytes == 30 &&
		  sim->stats.in_flight_bytes_max == 130);
	sim_packet_drop(q, SIM_DROP_LOSS, NULL, q->from);
	cr_assert(sim->stats.in_flight == 0 && sim->stats.in_flight_bytes == 0);
	cr_assert(sim->stats.dropped[SIM_DROP_LOSS] == 1 && p->from->stats.dropped[SIM_DROP_LOSS] == 1);
	sim_packet_drop(p, SIM_DROP_LOSS, NULL, NULL);
	cr_assert_eq(sim->stats.dropped[SIM_DROP_LOSS], 1u);
	sim_destroy(sim);
}

Test(sim_packet, queues_are_in_order)
{
	struct sim *sim = sim_fixture_world(0);
	struct sim_fifo f = {0};
	for (unsigned round = 0; round < 2; round++) {
		cr_assert_null(sim_fifo_take(&f));
		struct sim_packet *p[3];
		for (unsigned i = 0; i < 3; i++) {
			p[i] = sim_packet_new(sim, 8);
			p[i]->wire = 100 + i;
			sim_fifo_put(&f, p[i]);
		}
		cr_assert(f.n == 3 && f.bytes == 303);
		for (unsigned i = 0; i < 3; i++)
			cr_assert_eq(sim_fifo_take(&f), p[i]);
		cr_assert(f.n == 0 && f.bytes == 0 && !f.first && !f.last);
	}
	sim_destroy(sim);
}

/* Each byte counts, and the length; a world that is neither hashed nor printed signs nothing. */
Test(sim_packet, signed_by_its_bytes)
{
	struct sim *sim = sim_fixture_world(0);
	for (uint32_t len = 1; len < 20; len++) {
		struct sim_packet *p = sim_packet_new(sim, len);
		memset(p->body, 0, len);
		sim_packet_sign(p);
		uint64_t zero = p->hash;
		p->len--;
		sim_packet_sign(p);
		cr_assert_neq(p->hash, zero);
		p->len++;
		for (uint32_t i = 0; i < len; i++) {
			p->body[i] = 1;
			sim_packet_sign(p);
			cr_assert_neq(p->hash, zero, "byte %u of %u", i, len);
			p->body[i] = 0;
		}
		sim_packet_sign(p);
		cr_assert_eq(p->hash, zero);
		sim->config.untraced = true;
		p->hash = 5;
		sim_packet_sign(p);
		cr_assert_eq(p->hash, 5u);
		sim->config.untraced = false;
	}
	sim_destroy(sim);
}
