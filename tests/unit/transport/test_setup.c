/* SPDX-License-Identifier: BSD-3-Clause */
/** Connections of the transport: the handshake and its failures, non-members, ends. The test's thread. */
#include "transport_fixture.h"

#include "base/limits.h"
#include "core/packet.h"
#include "transport/handshake.h"
#include "transport/mail.h"
#include "transport/transport.h"
#include "transport/wire.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static uint32_t at_0, at_1;

static uint64_t some(uint64_t seq)
{
	return seq % 200;
}

/* Drops the first `lose` packets of a kind, or counts them. */
struct sieve {
	uint8_t kind;
	unsigned lose, seen;
	unsigned from;
	uint8_t copy[1600]; /* of the last */
	uint32_t copy_len;
};

static bool sieve(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	struct sieve *s = ctx;
	if (bytes[1] != s->kind || (s->from != DGRAM_PORTS && s->from != from))
		return true;
	memcpy(s->copy, bytes, *len);
	s->copy_len = *len;
	return s->seen++ >= s->lose;
}

static void listen_for(struct sieve *s, uint8_t kind, unsigned lose)
{
	*s = (struct sieve){.kind = kind, .lose = lose, .from = DGRAM_PORTS};
	fixture.fabric.hook = sieve;
	fixture.fabric.hook_ctx = s;
}

static void turns(unsigned n)
{
	while (n-- > 0)
		fixture_turn();
}

Test(transport_setup, words_travel)
{
	fixture_init();
	fixture_two(&at_0, &at_1);
	cr_assert_str_eq(fixture.ends[0].words, "reply");
	cr_assert_str_eq(fixture.ends[1].words, "hello");
	cr_assert_eq(fixture.ends[1].connects, 1);
	fixture_fini();
}

/* Each packet of the handshake lost some times. Expect one connection. */
Test(transport_setup, lost_packets)
{
	for (unsigned kind = WIRE_ACK; kind <= WIRE_ACCEPT; kind++) {
		struct sieve s;
		fixture_init();
		listen_for(&s, (uint8_t)kind, 5);
		fixture_two(&at_0, &at_1);
		cr_assert(fixture_stream(0, at_0, 1, 10, some, 10000));
		cr_assert(fixture_stream(1, at_1, 0, 10, some, 10000));
		cr_assert_eq(fixture.ends[1].connects, 1, "kind %u", kind);
		cr_assert_eq(fixture.ends[0].ups + fixture.ends[1].ups, 2, "kind %u", kind);
		cr_assert_eq(fixture.ends[0].downs + fixture.ends[1].downs, 0, "kind %u", kind);
		fixture_fini();
	}
}

/* The acceptor sends before it knows that ACCEPT came. Expect its messages delivered, after it has. */
Test(transport_setup, acceptor_first)
{
	struct sieve s;
	fixture_init();
	listen_for(&s, WIRE_ACCEPT, 3);
	end_open(0, 1);
	end_open(1, 1);
	cr_assert_eq(fixture_connect(0, 0, 1, 0, 1000 * FIXTURE_MS), 0);
	cr_assert(fixture_until(&fixture.ends[1].ups, 1, 1000));
	at_1 = fixture.ends[1].up;
	cr_assert_eq(fixture.ends[1].q->ops->attach(fixture.ends[1].q, at_1), 0);
	for (uint64_t i = 0; i < 3; i++)
		cr_assert_eq(fixture_send(1, at_1, i, some(i)), 0);
	cr_assert(fixture_until(&fixture.ends[0].ups, 1, 10000));
	/* They come before the engine attaches the peer, and wait for it. */
	turns(200);
	cr_assert_eq(fixture.ends[0].got, 0);
	cr_assert_eq(fixture.ends[0].q->ops->attach(fixture.ends[0].q, fixture.ends[0].up), 0);
	turns(200);
	cr_assert_eq(fixture.ends[0].got, 3);
	cr_assert(!fixture.ends[0].bad);
	fixture_fini();
}

Test(transport_setup, refused)
{
	static const uint8_t lost[] = {WIRE_CONNECT, WIRE_REJECT};
	for (unsigned i = 0; i < 2; i++) {
		struct sieve s;
		fixture_init();
		listen_for(&s, lost[i], 3);
		end_open(0, 1);
		end_open(1, 1);
		fixture.ends[1].refuse = -EALREADY;
		cr_assert_eq(fixture_connect(0, 0, 1, 0, 1000 * FIXTURE_MS), 0);
		cr_assert(fixture_until(&fixture.ends[0].fails, 1, 10000));
		cr_assert_eq(fixture.ends[0].error, -EALREADY);
		cr_assert(strstr(fixture.ends[0].text, "dgram 1"), "%s", fixture.ends[0].text);
		/* One event, however often CONNECT was repeated. */
		cr_assert_eq(fixture.ends[1].connects, 1);
		cr_assert_eq(fixture.ends[1].ups, 0);
		/* And then again. */
		fixture.ends[1].refuse = 0;
		fixture_pair(0, 1, &at_0, &at_1);
		fixture_fini();
	}
}

/* A CONNECT of a refused set-up comes late. Expect it not to be taken for a new one. */
Test(transport_setup, late_connect_of_a_rejected_one)
{
	struct sieve s;
	fixture_init();
	listen_for(&s, WIRE_CONNECT, 0);
	end_open(0, 1);
	end_open(1, 1);
	fixture.ends[1].refuse = -EALREADY;
	cr_assert_eq(fixture_connect(0, 0, 1, 0, 1000 * FIXTURE_MS), 0);
	cr_assert(fixture_until(&fixture.ends[0].fails, 1, 10000));
	fixture.ends[1].refuse = 0;
	turns(100);
	dgram_inject(&fixture.fabric, 1, 0, s.copy, s.copy_len);
	turns(1000);
	cr_assert_eq(fixture.ends[1].connects, 1);
	cr_assert_eq(fixture.ends[1].ups, 0);
	fixture_fini();
}

Test(transport_setup, nobody_there)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	fixture_init();
	end_open(0, 1);
	end_open(1, 1);
	fixture.ends[1].port->ops->address(fixture.ends[1].port, &addr);
	end_close(1);
	struct nic_port *port = fixture.ends[0].port;
	cr_assert_eq(port->ops->connect(
			     port, &(struct nic_connect){0, &addr, 0, "x", 1, fixture.now + 50 * FIXTURE_MS, &fixture},
			     &err),
		     0);
	cr_assert(fixture_until(&fixture.ends[0].fails, 1, 1000));
	cr_assert_eq(fixture.ends[0].error, -ETIMEDOUT);
	cr_assert(strstr(fixture.ends[0].text, "dgram 1"));
	cr_assert_eq(fixture.ends[0].ups, 0);
	/* Another incarnation of the address says so at once. */
	end_open(1, 1);
	cr_assert_eq(port->ops->connect(
			     port,
			     &(struct nic_connect){0, &addr, 0, "x", 1, fixture.now + 10000 * FIXTURE_MS, &fixture},
			     &err),
		     0);
	cr_assert(fixture_until(&fixture.ends[0].fails, 2, 100));
	cr_assert_eq(fixture.ends[0].error, -ESTALE);
	cr_assert_eq(fixture.ends[1].connects, 0);
	fixture_fini();
}

Test(transport_setup, drop_ends_both)
{
	fixture_init();
	fixture_two(&at_0, &at_1);
	fixture.ends[0].q->ops->detach(fixture.ends[0].q, at_0);
	fixture.ends[0].port->ops->drop(fixture.ends[0].port, at_0);
	cr_assert(fixture_until(&fixture.ends[1].downs, 1, 100));
	cr_assert_eq(fixture.ends[1].down, at_1);
	cr_assert_eq(fixture.ends[0].downs, 0);
	fixture.ends[1].q->ops->detach(fixture.ends[1].q, at_1);
	fixture.ends[1].port->ops->drop(fixture.ends[1].port, at_1);
	turns(10);
	fixture_pair(0, 1, &at_0, &at_1);
	cr_assert(fixture_stream(0, at_0, 1, 10, some, 1000));
	fixture_fini();
}

Test(transport_setup, close_ends_the_others)
{
	fixture_init();
	fixture_two(&at_0, &at_1);
	fixture.ends[1].q->ops->detach(fixture.ends[1].q, at_1);
	end_close(1);
	cr_assert(fixture_until(&fixture.ends[0].downs, 1, 100));
	cr_assert_eq(fixture.ends[0].down, at_0);
	cr_assert_eq(fixture.ends[0].error, -ECONNRESET);
	fixture_fini();
}

/* CLOSE is lost, and the other side sends. Expect RESET to end it long before the limit. */
Test(transport_setup, reset_when_bye_was_lost)
{
	struct sieve s;
	fixture_init();
	fixture.limit_ns = UINT64_C(60000000000);
	listen_for(&s, WIRE_CLOSE, 100);
	fixture_two(&at_0, &at_1);
	fixture.ends[0].q->ops->detach(fixture.ends[0].q, at_0);
	fixture.ends[0].port->ops->drop(fixture.ends[0].port, at_0);
	turns(1000);
	cr_assert_eq(fixture.ends[1].downs, 0);
	cr_assert_eq(fixture_send(1, at_1, 0, 5), 0);
	cr_assert(fixture_until(&fixture.ends[1].downs, 1, 300)); /* 30 ms */
	cr_assert_eq(fixture.ends[1].error, -ESTALE);
	fixture_fini();
}

/* The same when it is another incarnation of the address. */
Test(transport_setup, reset_by_another_incarnation)
{
	struct sieve s;
	fixture_init();
	fixture.limit_ns = UINT64_C(60000000000);
	listen_for(&s, WIRE_CLOSE, 100);
	fixture_two(&at_0, &at_1);
	fixture.ends[0].q->ops->detach(fixture.ends[0].q, at_0);
	end_close(0);
	end_open(0, 1);
	cr_assert_eq(fixture_send(1, at_1, 0, 5), 0);
	cr_assert(fixture_until(&fixture.ends[1].downs, 1, 300));
	struct transport_stats stats;
	transport_stats_read(fixture.ends[0].port, &stats);
	cr_assert(stats.refused > 0);
	fixture_fini();
}

static bool until_slowly(const unsigned *count, unsigned at_least, unsigned turns, unsigned slow)
{
	for (; *count < at_least && turns > 0; turns--) {
		fixture.fabric.unready = turns % slow != 0;
		fixture_turn();
	}
	return *count >= at_least;
}

/* Every pair of queues finds its path, there and back, where places are ready at each so-manieth turn. */
static void hash_pairs(unsigned slow)
{
	fixture_init();
	fixture.fabric.hash = true;
	end_open(0, 3);
	end_open(1, 4);
	for (unsigned i = 0; i < 3; i++)
		for (unsigned k = 0; k < 4; k++) {
			unsigned ups = fixture.ends[1].ups;
			cr_assert_eq(fixture_connect(0, i, 1, k, 2000 * FIXTURE_MS), 0);
			cr_assert(until_slowly(&fixture.ends[0].ups, i * 4 + k + 1, 20000, slow), "%u to %u", i, k);
			cr_assert(until_slowly(&fixture.ends[1].ups, ups + 1, 20000, slow));
			cr_assert(fixture.ends[0].up_queue == i && fixture.ends[1].up_queue == k);
			struct nic_queue *from = fixture.ends[0].port->ops->queue(fixture.ends[0].port, i);
			struct nic_queue *to = fixture.ends[1].port->ops->queue(fixture.ends[1].port, k);
			cr_assert_eq(from->ops->attach(from, fixture.ends[0].up), 0);
			cr_assert_eq(to->ops->attach(to, fixture.ends[1].up), 0);
			struct nic_queue *q0 = fixture.ends[0].q, *q1 = fixture.ends[1].q;
			fixture.ends[0].q = from;
			fixture.ends[1].q = to;
			cr_assert(fixture_stream(0, fixture.ends[0].up, 1, 20, some, 10000), "%u to %u", i, k);
			cr_assert(fixture_stream(1, fixture.ends[1].up, 0, 20, some, 10000), "%u from %u", i, k);
			fixture.ends[0].q = q0;
			fixture.ends[1].q = q1;
		}
	cr_assert_eq(fixture.ends[0].downs + fixture.ends[1].downs, 0);
	struct transport_stats stats;
	for (unsigned e = 0; e < 2; e++) {
		transport_stats_read(fixture.ends[e].port, &stats);
		cr_assert_eq(stats.unknown_connection_drops, 0, "%u", e);
	}
	fixture_fini();
}

Test(transport_setup, steering_by_hash)
{
	hash_pairs(1);
}

/* CONNECT and ACCEPT are repeated meanwhile: neither may name a path that it does not leave by. */
Test(transport_setup, steering_by_hash_with_slow_places)
{
	for (unsigned slow = 2; slow < 120; slow++)
		hash_pairs(slow);
}

/* Before ACCEPT, sends WRONG_QUEUE to the connecting side for its last CONNECT. */
static bool contradict(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	static struct transport_handshake w;
	static uint8_t handshake[TRANSPORT_MAIL_BYTES];
	uint8_t no[TRANSPORT_MAIL_BYTES];
	if (bytes[1] == WIRE_CONNECT) {
		memcpy(handshake, bytes, *len);
		cr_assert(transport_handshake_read(handshake + TRANSPORT_HEAD_BYTES, *len - TRANSPORT_HEAD_BYTES, &w));
	}
	if (bytes[1] != WIRE_ACCEPT)
		return true;
	struct transport_reject reject = {.error = -EXDEV, .flow = w.flow, .nonce = w.nonce};
	dgram_inject(&fixture.fabric, 0, 0, no, transport_reject_write(no, WIRE_WRONG_QUEUE, w.id, w.token, &reject));
	fixture.fabric.unready = true;
	return true;
}

/* The connection is there before the place of the next path is: it stays with the path that was answered. */
Test(transport_setup, a_path_that_is_settled_stays)
{
	fixture_init();
	fixture.key = NULL;
	fixture.fabric.hash = true;
	fixture.fabric.crc = true;
	fixture.fabric.hook = contradict;
	end_open(0, 1);
	end_open(1, 4);
	for (unsigned want = 0; want < 4; want++) {
		unsigned ups = fixture.ends[0].ups, ups_1 = fixture.ends[1].ups;
		cr_assert_eq(fixture_connect(0, 0, 1, want, 1000 * FIXTURE_MS), 0);
		cr_assert(fixture_until(&fixture.ends[0].ups, ups + 1, 10000));
		cr_assert(fixture.fabric.unready);
		turns(100);
		fixture.fabric.unready = false;
		cr_assert(fixture_until(&fixture.ends[1].ups, ups_1 + 1, 10000));
		turns(100);
		struct nic_queue *q1 = fixture.ends[1].q;
		fixture.ends[1].q = fixture.ends[1].port->ops->queue(fixture.ends[1].port, want);
		cr_assert_eq(fixture.ends[0].q->ops->attach(fixture.ends[0].q, fixture.ends[0].up), 0);
		cr_assert_eq(fixture.ends[1].q->ops->attach(fixture.ends[1].q, fixture.ends[1].up), 0);
		cr_assert(fixture_stream(0, fixture.ends[0].up, 1, 20, some, 10000), "queue %u", want);
		fixture.ends[1].q = q1;
	}
	fixture_fini();
}

/* Somebody has the card spread packets otherwise while there are connections: what comes to another queue is lost, and
 * nothing that is heard there may keep the connection. */
Test(transport_setup, a_hash_that_changes)
{
	fixture_init();
	fixture.fabric.hash = true;
	end_open(0, 1);
	end_open(1, 2);
	fixture_pair(0, 1, &at_0, &at_1);
	fixture.fabric.respread = 1;
	cr_assert_eq(fixture_send(0, at_0, 0, 5), 0);
	cr_assert(fixture_until(&fixture.ends[0].downs, 1, 100000));
	cr_assert_eq(fixture.ends[0].error, -ETIMEDOUT);
	fixture_fini();
}
