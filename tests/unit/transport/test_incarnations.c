/* SPDX-License-Identifier: BSD-3-Clause */
/** One end is killed and begins another incarnation at the same address. Every packet of the first incarnation comes
 * once more. The test's thread. */
#include "transport_fixture.h"

#include "base/crc32c.h"
#include "base/limits.h"
#include "transport/wire.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT_MAX = 4096, KINDS = WIRE_KINDS };

/* What was sent in the first incarnation, as it was put on the wire. */
static struct kept {
	unsigned to, queue;
	uint32_t len;
	uint8_t *bytes;
} kept[KEPT_MAX];
static unsigned kept_n;
static bool keeping, killed; /* killed: end 1 says nothing more */
static uint32_t at_0, at_1;

static bool keep(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	if (keeping && kept_n < KEPT_MAX) {
		struct kept *k = &kept[kept_n++];
		*k = (struct kept){to, queue, *len, malloc(*len)};
		memcpy(k->bytes, bytes, *len);
	}
	return !(killed && from == 1);
}

static void turns(unsigned n)
{
	while (n-- > 0)
		fixture_turn();
}

static uint64_t dropped(unsigned e)
{
	struct transport_stats st;
	transport_stats_read(fixture.ends[e].port, &st);
	return st.refused + st.unknown_connection_drops + st.closed_connection_drops + st.duplicates + st.crc_errors +
	       st.malformed;
}

static uint64_t any_len(uint64_t seq)
{
	return seq % 7 == 0 ? 5000 : seq % 90;
}

/* A connection both ways, calls of all sizes, losses, pings and endings: one packet of each kind at least. */
static void first_incarnation(unsigned from)
{
	uint32_t near, far, extra_0, extra_1;
	fixture_init();
	fixture.limit_ns = 50 * FIXTURE_MS;
	fixture.fabric.hook = keep;
	keeping = true;
	end_open(0, 1);
	end_open(1, 1);
	fixture_pair(from, 1 - from, &near, &far);
	at_0 = from ? far : near;
	at_1 = from ? near : far;
	cr_assert(fixture_stream(0, at_0, 1, 40, any_len, 20000));
	cr_assert(fixture_stream(1, at_1, 0, 40, any_len, 20000));
	turns(50);
	/* One that ends in order, one that is refused, one whose end was lost. */
	for (unsigned by = 0; by < 2; by++) {
		unsigned downs = fixture.ends[1 - by].downs;
		fixture_pair(by, 1 - by, by ? &extra_1 : &extra_0, by ? &extra_0 : &extra_1);
		turns(20);
		fixture.ends[by].q->ops->detach(fixture.ends[by].q, by ? extra_1 : extra_0);
		fixture.ends[by].port->ops->drop(fixture.ends[by].port, by ? extra_1 : extra_0);
		cr_assert(fixture_until(&fixture.ends[1 - by].downs, downs + 1, 1000));
		fixture.ends[1 - by].q->ops->detach(fixture.ends[1 - by].q, by ? extra_0 : extra_1);
		fixture.ends[1 - by].port->ops->drop(fixture.ends[1 - by].port, by ? extra_0 : extra_1);
		fixture.ends[by].refuse = -EACCES;
		unsigned fails = fixture.ends[1 - by].fails;
		cr_assert_eq(fixture_connect(1 - by, 0, by, 0, 100 * FIXTURE_MS), 0);
		cr_assert(fixture_until(&fixture.ends[1 - by].fails, fails + 1, 1000));
		fixture.ends[by].refuse = 0;
	}
	turns(20);
}

static bool never(void *ctx, uint32_t peer)
{
	return true;
}

/* End 1 is killed: nobody hears of it. End 0 finds out, and the next incarnation is there. */
static void second_incarnation(unsigned from)
{
	uint32_t near, far;
	unsigned downs = fixture.ends[0].downs;
	fixture.ends[0].q->ops->set_liveness_callback(fixture.ends[0].q, never, NULL);
	killed = true;
	cr_assert_eq(fixture_send(0, at_0, 1000, 10), 0);
	cr_assert(fixture_until(&fixture.ends[0].downs, downs + 1, 10000));
	fixture.ends[1].q->ops->detach(fixture.ends[1].q, at_1);
	end_close(1);
	killed = false;
	fixture.ends[0].q->ops->detach(fixture.ends[0].q, at_0);
	fixture.ends[0].port->ops->drop(fixture.ends[0].port, at_0);
	turns(20);
	keeping = false;
	end_open(1, 1);
	fixture_pair(from, 1 - from, &near, &far);
	at_0 = from ? far : near;
	at_1 = from ? near : far;
	fixture.ends[0].got = fixture.ends[1].got = 0;
	cr_assert(fixture_stream(0, at_0, 1, 10, any_len, 20000));
	cr_assert(fixture_stream(1, at_1, 0, 10, any_len, 20000));
	turns(50);
}

static void forget(void)
{
	while (kept_n)
		free(kept[--kept_n].bytes);
	fixture_fini();
}

/* Receive each packet of the first incarnation in the second. Expect it counted, and nothing else. */
static void replay(unsigned from, unsigned *kinds)
{
	first_incarnation(from);
	second_incarnation(from);
	struct transport_end was[2] = {fixture.ends[0], fixture.ends[1]};
	for (unsigned i = 0; i < kept_n; i++) {
		const struct kept *k = &kept[i];
		uint64_t before = dropped(k->to);
		dgram_inject(&fixture.fabric, k->to, k->queue, k->bytes, k->len);
		turns(3);
		cr_assert_geq(dropped(k->to), before + 1, "packet %u of kind %u to %u", i, k->bytes[1], k->to);
		kinds[k->bytes[1]]++;
		for (unsigned e = 0; e < 2; e++) {
			cr_assert_eq(fixture.ends[e].got, was[e].got, "packet %u of kind %u", i, k->bytes[1]);
			cr_assert_eq(fixture.ends[e].connects, was[e].connects, "packet %u of kind %u", i, k->bytes[1]);
			cr_assert_eq(fixture.ends[e].ups, was[e].ups);
			cr_assert_eq(fixture.ends[e].downs, was[e].downs, "packet %u of kind %u", i, k->bytes[1]);
			cr_assert_eq(fixture.ends[e].fails, was[e].fails);
		}
	}
	/* And all at once. */
	for (unsigned i = 0; i < kept_n; i++)
		dgram_inject(&fixture.fabric, kept[i].to, kept[i].queue, kept[i].bytes, kept[i].len);
	turns(100);
	cr_assert(fixture_stream(0, at_0, 1, 30, any_len, 20000));
	cr_assert(fixture_stream(1, at_1, 0, 30, any_len, 20000));
	for (unsigned e = 0; e < 2; e++) {
		cr_assert_eq(fixture.ends[e].downs, was[e].downs);
		cr_assert_eq(fixture.ends[e].ups, was[e].ups);
		cr_assert_eq(fixture.ends[e].connects, was[e].connects);
	}
	forget();
}

Test(transport_incarnations, packets_of_the_incarnation_before)
{
	unsigned kinds[KINDS] = {0};
	replay(0, kinds);
	replay(1, kinds);
	static const uint8_t all[] = {WIRE_MESSAGE, WIRE_ACK,    WIRE_PING, WIRE_CONNECT,
				      WIRE_ACCEPT,  WIRE_REJECT, WIRE_CLOSE};
	for (unsigned i = 0; i < sizeof all; i++)
		cr_assert_gt(kinds[all[i]], 0u, "no packet of kind %u", all[i]);
}

/* The two kinds that the first incarnation had no cause to send, made of others: their tokens are what counts. */
Test(transport_incarnations, refusals_of_the_incarnation_before)
{
	first_incarnation(0);
	second_incarnation(0);
	struct transport_end was[2] = {fixture.ends[0], fixture.ends[1]};
	unsigned n = 0;
	for (unsigned i = 0; i < kept_n; i++) {
		struct wire_message *h = (struct wire_message *)(void *)kept[i].bytes;
		if (h->kind != WIRE_CLOSE)
			continue;
		static const uint8_t made[] = {WIRE_RESET, WIRE_WRONG_QUEUE, WIRE_REJECT};
		for (unsigned k = 0; k < sizeof made; k++) {
			uint64_t before = dropped(kept[i].to);
			h->kind = made[k];
			h->crc = le32_of(0);
			h->crc = le32_of(crc32c(0, kept[i].bytes, kept[i].len));
			dgram_inject(&fixture.fabric, kept[i].to, kept[i].queue, kept[i].bytes, kept[i].len);
			turns(3);
			cr_assert_eq(dropped(kept[i].to), before + 1);
			n++;
		}
	}
	cr_assert_gt(n, 0u);
	for (unsigned e = 0; e < 2; e++) {
		struct transport_stats st;
		transport_stats_read(fixture.ends[e].port, &st);
		cr_assert_eq(st.crc_errors, 0);
		cr_assert_eq(fixture.ends[e].downs, was[e].downs);
		cr_assert_eq(fixture.ends[e].ups, was[e].ups);
	}
	forget();
}
