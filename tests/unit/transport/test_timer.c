/* SPDX-License-Identifier: BSD-3-Clause */
/** When a link sends: time-outs, probes and acknowledgements over a network with a length, by the clock of the test.
 * The test's thread. */
#include "base/limits.h"
#include "delay_line.h"

#include <criterion/criterion.h>
#include <errno.h>

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define S  UINT64_C(1000000000)
/* Between a look at the timers and the next one but one, at the pace of fixture_turn(). */
#define LOOKS (100 * US)

static uint32_t at_0, at_1;
static bool delayed;

static bool awaits_reply(void *ctx, uint32_t peer)
{
	return *(bool *)ctx;
}

/* Two ends with so long a way between them, and `calls` calls made. */
static void begin(uint64_t delay_ns, uint64_t limit_ns, unsigned calls)
{
	line_init(delay_ns);
	fixture.limit_ns = limit_ns;
	delayed = false;
	end_open(0, 1);
	end_open(1, 1);
	fixture.ends[0].q->ops->set_liveness_callback(fixture.ends[0].q, awaits_reply, &delayed);
	fixture_pair(0, 1, &at_0, &at_1);
	for (unsigned i = 0; i < calls; i++)
		cr_assert(line_call(at_0, at_1, i, 32, 10 * S), "call %u", i);
	line_run(4 * S / 1000);
	line_forget();
}

/* Both ends are what they were, and nothing is on the way or kept. */
static void end(void)
{
	cr_assert(!fixture.ends[0].bad && !fixture.ends[1].bad);
	cr_assert_eq(fixture.ends[0].downs + fixture.ends[1].downs, 0);
	for (unsigned e = 0; e < 2; e++)
		cr_assert_eq(fixture.ends[e].q->ops->tx_room(fixture.ends[e].q, e ? at_1 : at_0), FAR_TRANSPORT_SLOTS);
	line_fini();
}

/* In a packet of its own. */
static void send_alone(uint64_t seq)
{
	cr_assert_eq(fixture_send(0, at_0, seq, 32), 0);
	fixture.ends[0].q->ops->flush(fixture.ends[0].q);
}

static bool lose_from_0(unsigned from, const struct wire_message *head)
{
	return from == 0;
}

static uint64_t sending(unsigned i)
{
	unsigned n = 0;
	for (unsigned k = 0; k < line.seen_n; k++)
		if (line.seen[k].from == 0 && line.seen[k].kind == WIRE_MESSAGE && n++ == i)
			return line.seen[k].at;
	cr_assert_fail("message %u was not sent", i);
	return 0;
}

/* A packet that vanishes. Expect a probe after two round trips, a time-out of microseconds after that, each next one
 * after twice the time, up to the ceiling. */
Test(transport_timer, times_of_sending)
{
	static const uint64_t delays[] = {5 * US, 50 * US, 200 * US};
	for (unsigned i = 0; i < 3; i++) {
		begin(delays[i], S, 300);
		uint64_t rtt = 2 * delays[i];
		line.lose = lose_from_0;
		cr_assert_eq(fixture_send(0, at_0, 300, 32), 0);
		line_run(700 * MS);
		uint64_t probe = sending(1) - sending(0), timeout = sending(2) - sending(1);
		cr_assert_geq(probe, 2 * rtt);
		cr_assert_leq(probe, 2 * rtt + FAR_TRANSPORT_ACK_NS + rtt / 2 + LOOKS, "%u ns", (unsigned)probe);
		cr_assert_geq(timeout, rtt + FAR_TRANSPORT_MARGIN_NS - LOOKS);
		cr_assert_leq(timeout, rtt + FAR_TRANSPORT_MARGIN_NS + rtt / 2 + LOOKS, "%u ns", (unsigned)timeout);
		for (unsigned k = 3; k < 10; k++) {
			uint64_t next = sending(k) - sending(k - 1);
			cr_assert_leq(next, 2 * timeout + LOOKS);
			cr_assert_leq(next, FAR_TRANSPORT_RTO_NS_MAX + LOOKS);
			cr_assert_geq(next + LOOKS, 2 * timeout < FAR_TRANSPORT_RTO_NS_MAX ? 2 * timeout - LOOKS
											   : FAR_TRANSPORT_RTO_NS_MAX);
			timeout = next;
		}
		cr_assert_eq(line_stats(0).tail_loss_probes, 1);
		line.lose = NULL;
		cr_assert(line_until_got(1, 301, S));
		line_run(S / 10);
		end();
	}
}

/* A network slower than the first time-out. Expect it to be learned from what was sent again for nothing, and silence
 * after that. */
Test(transport_timer, slow_network)
{
	begin(15 * MS, 10 * S, 5);
	struct transport_stats before = line_stats(0);
	cr_assert_leq(before.resent, 6);
	cr_assert_geq(before.spurious_retransmits, 1);
	for (unsigned i = 5; i < 60; i++)
		cr_assert(line_call(at_0, at_1, i, 32, S));
	cr_assert_eq(line_stats(0).resent + line_stats(0).tail_loss_probes, before.resent + before.tail_loss_probes);
	line_run(S / 10);
	end();
}

/* Time in which nobody runs the other end's shard. */
static void stall(uint64_t ns)
{
	struct nic_port *port = fixture.ends[1].port;
	uint64_t until = fixture.now + ns;
	fixture.ends[1].port = NULL;
	while (fixture.now < until)
		fixture_turn();
	fixture.ends[1].port = port;
}

/* A peer on a busy host: 4 ms without it, fifty times a second. Expect a packet sent for nothing about once a second,
 * not fifty times. */
Test(transport_timer, busy_peer)
{
	enum { SECONDS = 5 };
	begin(20 * US, S, 1000);
	uint64_t seq = 1000;
	for (unsigned i = 0; i < SECONDS * 50; i++) {
		uint64_t until = fixture.now + 16 * MS;
		while (fixture.now < until) {
			cr_assert(line_call(at_0, at_1, seq++, 32, S));
			line_run(200 * US);
		}
		cr_assert_eq(fixture_send(0, at_0, seq, 32), 0);
		stall(4 * MS);
		cr_assert(line_until_got(1, seq + 1, S));
		cr_assert_eq(fixture_send(1, at_1, seq, 32), 0);
		cr_assert(line_until_got(0, ++seq, S));
	}
	struct transport_stats stats = line_stats(0);
	cr_assert_leq(stats.spurious_retransmits, 3 * SECONDS, "%u", (unsigned)stats.spurious_retransmits);
	cr_assert_leq(stats.resent + stats.tail_loss_probes, 3 * SECONDS);
	line_run(S / 10);
	end();
}

/* Our own thread did not run while answers came. Expect it to take them before it believes anything to be late. */
Test(transport_timer, own_pause)
{
	begin(20 * US, S, 1000);
	struct transport_stats before = line_stats(0);
	for (unsigned i = 0; i < 100; i++) {
		struct nic_port *port = fixture.ends[0].port;
		uint64_t until = fixture.now + 5 * MS;
		for (unsigned k = 0; k < 40; k++)
			cr_assert_eq(fixture_send(0, at_0, 1000 + i * 40 + k, 32), 0);
		line_run(10 * US); /* they are on their way */
		fixture.ends[0].port = NULL;
		while (fixture.now < until)
			fixture_turn();
		fixture.ends[0].port = port;
		cr_assert(line_until_got(1, 1000 + (i + 1) * 40, S));
		line_run(MS);
	}
	cr_assert_eq(line_stats(0).timeouts, before.timeouts);
	line_run(S / 10);
	end();
}

/* ---- acknowledgements ---- */

static uint64_t ack_delay(uint64_t from)
{
	for (unsigned i = 0; i < line.seen_n; i++)
		if (line.seen[i].from == 1 && line.seen[i].kind == WIRE_ACK)
			return line.seen[i].at - from;
	return UINT64_MAX;
}

/* Nothing goes back. Expect the acknowledgement alone within a quarter of the least time-out, and once. */
Test(transport_timer, delayed_acknowledgement)
{
	begin(0, S, 100);
	for (unsigned i = 0; i < 50; i++) {
		line_forget();
		uint64_t from = fixture.now;
		cr_assert_eq(fixture_send(0, at_0, 100 + i, 32), 0);
		line_run(2 * MS + i * 1000);
		cr_assert_eq(line_count(1, WIRE_ACK), 1);
		cr_assert_leq(ack_delay(from), FAR_TRANSPORT_ACK_NS, "%u ns", (unsigned)ack_delay(from));
		cr_assert_geq(ack_delay(from), FAR_TRANSPORT_ACK_NS / 2);
	}
	cr_assert_eq(line_stats(0).resent + line_stats(0).tail_loss_probes, 0);
	end();
}

static unsigned lose_n;

static bool lose_one_message(unsigned from, const struct wire_message *head)
{
	return from == 0 && head->kind == WIRE_MESSAGE && lose_n && --lose_n == 0;
}

static bool lose_one_ack(unsigned from, const struct wire_message *head)
{
	return from == 1 && head->kind == WIRE_ACK && lose_n && --lose_n == 0;
}

/* A gap and a duplicate are acknowledged at once. */
Test(transport_timer, acknowledged_at_once)
{
	begin(0, S, 100);
	lose_n = 1;
	line.lose = lose_one_message;
	send_alone(100);
	uint64_t from = fixture.now;
	send_alone(101);
	fixture_turn();
	cr_assert_leq(ack_delay(from), 0);
	cr_assert(line_until_got(1, 102, S));
	line_run(S / 10);
	/* The acknowledgement of one is lost, so that its probe is a duplicate. */
	struct transport_stats before = line_stats(0);
	line_forget();
	lose_n = 1;
	line.lose = lose_one_ack;
	cr_assert_eq(fixture_send(0, at_0, 102, 32), 0);
	line_run(10 * MS);
	cr_assert_eq(line_count(0, WIRE_MESSAGE), 2);
	cr_assert_eq(line_count(1, WIRE_ACK), 2);
	cr_assert_leq(line.seen[3].at - sending(1), fixture.step_ns);
	cr_assert(line.seen[3].kind == WIRE_ACK && line.seen[3].duplicate == 102);
	cr_assert_eq(line.seen[3].flags & (WIRE_DUPLICATE | WIRE_UNACKED), WIRE_DUPLICATE);
	cr_assert_eq(line_stats(0).spurious_retransmits, before.spurious_retransmits + 1);
	end();
}

/* A handler that answers after ten seconds. Expect its request to be acknowledged alone, sent again once at most, and
 * its caller to wait. */
Test(transport_timer, answer_after_ten_seconds)
{
	begin(20 * US, S, 1000);
	struct transport_stats before = line_stats(0);
	delayed = true;
	cr_assert_eq(fixture_send(0, at_0, 1000, 32), 0);
	line_run(MS);
	cr_assert_eq(line_count(0, WIRE_MESSAGE), 1);
	cr_assert_eq(line_count(1, WIRE_ACK), 1);
	fixture.step_ns = 100 * US;
	line_run(10 * S);
	cr_assert_leq(line_count(0, WIRE_MESSAGE), 2);
	cr_assert_eq(fixture_send(1, at_1, 1000, 32), 0);
	cr_assert(line_until_got(0, 1001, S));
	delayed = false;
	cr_assert_eq(line_stats(0).timeouts, before.timeouts);
	line_run(S / 10);
	end();
}

/* ---- loss, and death ---- */

static uint64_t mixed(uint64_t seq)
{
	return seq % 50 == 7 ? 20000 : seq % 7 == 3 ? 3000 : seq % 129;
}

/* A tenth lost each way, repeated and overtaken too, for minutes. Expect every call answered and nobody taken for dead,
 * over a network of microseconds, one of milliseconds, and one slower than the first time-out. */
Test(transport_timer, a_tenth_lost)
{
	static const struct {
		uint64_t delay, step, seconds, calls;
	} nets[] = {{20 * US, 20 * US, 20, 10000}, {500 * US, 100 * US, 120, 15000}, {10 * MS, 500 * US, 240, 3000}};
	for (unsigned i = 0; i < 3; i++) {
		line_init(nets[i].delay);
		fixture.limit_ns = 0; /* 1 s */
		end_open(0, 1);
		end_open(1, 1);
		fixture.ends[0].q->ops->set_liveness_callback(fixture.ends[0].q, awaits_reply, &delayed);
		fixture.ends[1].q->ops->set_liveness_callback(fixture.ends[1].q, awaits_reply, &delayed);
		fixture.step_ns = nets[i].step;
		delayed = true;
		line.seed = i + 1;
		fixture_pair(0, 1, &at_0, &at_1);
		line.drop = line.repeat = 100;
		line.jitter_ns = nets[i].delay;
		uint64_t seq = 0, until = fixture.now + nets[i].seconds * S;
		while (fixture.now < until) {
			cr_assert(line_call(at_0, at_1, seq, mixed(seq), 10 * S), "net %u, call %u", i, (unsigned)seq);
			seq++;
			if (seq % 2000 == 0)
				line_run(3 * S / 2); /* and pauses, in which answers are owed */
		}
		/* Time-outs that grow with each other's losses would show here. */
		cr_assert_geq(seq, nets[i].calls, "net %u: %u calls", i, (unsigned)seq);
		cr_assert_geq(line_stats(0).timeouts + line_stats(0).tail_loss_probes, seq / 20);
		delayed = false;
		line.drop = 0;
		line_run(S);
		end();
	}
}

/* Silence. Expect DOWN at the limit, not before, at the bounds of the setting too, and a look more at most. */
Test(transport_timer, limit)
{
	static const uint64_t limits[] = {FAR_PEER_LIMIT_NS_MIN, 300 * MS, 0, 20 * S};
	for (unsigned i = 0; i < 4; i++) {
		uint64_t limit = limits[i] ? limits[i] : FAR_PEER_LIMIT_NS;
		begin(20 * US, limits[i], 200);
		line.lose = lose_from_0;
		if (limit > S)
			fixture.step_ns = 50 * US;
		cr_assert_eq(fixture_send(0, at_0, 200, 32), 0);
		uint64_t from = fixture.now;
		while (fixture.ends[0].downs == 0 && fixture.now < from + 2 * limit)
			fixture_turn();
		cr_assert_eq(fixture.ends[0].downs, 1);
		cr_assert_eq(fixture.ends[0].error, -ETIMEDOUT);
		cr_assert_geq(fixture.now - from, limit);
		cr_assert_leq(fixture.now - from, limit + MS + 50 * fixture.step_ns, "%u: %u us", i,
			      (unsigned)((fixture.now - from) / US));
		cr_assert_geq(line_count(0, WIRE_PING), 5);
		line_fini();
	}
}

static bool lose_messages_of_0(unsigned from, const struct wire_message *head)
{
	return from == 0 && head->kind == WIRE_MESSAGE;
}

/* Messages vanish, pings do not. Expect it to be tried for ever, and nobody to be dead: he is heard. */
Test(transport_timer, no_death_by_count)
{
	begin(20 * US, S, 200);
	line.lose = lose_messages_of_0;
	fixture.step_ns = 20 * US;
	cr_assert_eq(fixture_send(0, at_0, 200, 32), 0);
	line_run(30 * S);
	cr_assert_eq(fixture.ends[0].downs, 0);
	cr_assert_geq(line_stats(0).timeouts, 250);
	line.lose = NULL;
	cr_assert(line_until_got(1, 201, S));
	line_run(S / 10);
	end();
}

static uint64_t heard_at;

static bool lose_but_now_and_then(unsigned from, const struct wire_message *head)
{
	if (from == 0)
		return false;
	if (fixture.now < heard_at)
		return true;
	heard_at = fixture.now + 950 * MS;
	return false;
}

/* One packet in each 0.95 s of the limit of 1 s. */
Test(transport_timer, heard_just_in_time)
{
	begin(20 * US, S, 200);
	fixture.step_ns = 20 * US;
	delayed = true;
	line.lose = lose_but_now_and_then;
	heard_at = fixture.now + 950 * MS;
	for (unsigned i = 0; i < 20; i++) {
		line_run(950 * MS);
		cr_assert_eq(fixture.ends[0].downs, 0, "%u", i);
	}
	line.lose = NULL;
	delayed = false;
	line_fini();
}

/* Karn: after time-outs the longer one stays until a packet that was sent once comes back, but half of the back-off is
 * taken off by an answer that comes as soon as what was sent by time can have been answered. */
Test(transport_timer, back_off_is_kept)
{
	begin(20 * US, 10 * S, 1000);
	struct transport_stats before = line_stats(0);
	line.lose = lose_from_0;
	cr_assert_eq(fixture_send(0, at_0, 1000, 32), 0);
	while (line_stats(0).timeouts < before.timeouts + 5)
		fixture_turn();
	line.lose = NULL;
	cr_assert(line_until_got(1, 1001, S)); /* by the sixth copy: no sample */
	line_run(MS);
	line.lose = lose_from_0;
	cr_assert_eq(fixture_send(0, at_0, 1001, 32), 0);
	line_run(16 * MS);
	cr_assert_eq(line_stats(0).timeouts, before.timeouts + 7); /* 8 ms; not 64, nor 1, 2, 4 and 8 */
	line.lose = NULL;
	cr_assert(line_until_got(1, 1002, S));
	line_run(MS);
	/* And then one that was sent once. */
	cr_assert_eq(fixture_send(0, at_0, 1002, 32), 0);
	line_run(MS);
	before = line_stats(0);
	line.lose = lose_from_0;
	cr_assert_eq(fixture_send(0, at_0, 1003, 32), 0);
	line_run(2 * MS);
	cr_assert_eq(line_stats(0).timeouts, before.timeouts + 1);
	line.lose = NULL;
	line_run(S / 10);
	cr_assert_eq(fixture.ends[1].got, 1004);
	end();
}
