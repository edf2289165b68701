/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Senders without the group's key that have seen every packet: they send them again, to the same end and to others,
 * early and late, changed and reflected. Nothing of the members changes, and no more bytes leave than came.
 * The test's thread.
 */
#include "transport_fixture.h"

#include "base/limits.h"
#include "transport/auth.h"
#include "transport/mail.h"
#include "transport/peer.h"
#include "transport/port.h"
#include "transport/transport.h"
#include "transport/wire.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT_MAX = 4096 };

static struct kept {
	unsigned from, to, queue;
	uint32_t len;
	uint8_t *bytes;
} kept[KEPT_MAX];
static unsigned kept_n;
static bool keeping;
static uint8_t lost;         /* packets of this kind are; 0: none */
static int alone = -1;       /* what this end sends is counted and goes nowhere */
static uint64_t alone_bytes; /* of that */
static unsigned alone_kinds;
static uint32_t at_0, at_1;

static bool hook(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	if (keeping && kept_n < KEPT_MAX) {
		struct kept *k = &kept[kept_n++];
		*k = (struct kept){from, to, queue, *len, malloc(*len)};
		memcpy(k->bytes, bytes, *len);
	}
	if ((int)from != alone)
		return bytes[1] != lost;
	alone_bytes += *len;
	alone_kinds |= 1u << bytes[1];
	return false;
}

static void turns(unsigned n)
{
	while (n-- > 0)
		fixture_turn();
}

static void begin(void)
{
	fixture_init();
	fixture.limit_ns = 50 * FIXTURE_MS;
	fixture.fabric.crc = true;
	fixture.fabric.hook = hook;
	kept_n = 0;
	keeping = false;
	lost = 0;
	alone = -1;
	end_open(0, 1);
	end_open(1, 1);
	end_open(2, 1);
}

static void end(void)
{
	fixture_fini();
	for (unsigned i = 0; i < kept_n; i++)
		free(kept[i].bytes);
}

static const struct transport_port *port_at(unsigned e)
{
	return (struct transport_port *)fixture.ends[e].port;
}

static bool awaits_reply(void *ctx, uint32_t peer)
{
	return true;
}

/* End `e` pings for a while, since nothing comes of what it awaits. */
static void ping(unsigned e)
{
	fixture.ends[e].q->ops->set_liveness_callback(fixture.ends[e].q, awaits_reply, NULL);
	lost = WIRE_ACK;
	cr_assert_eq(fixture_send(e, e ? at_1 : at_0, 0, 0), 0);
	turns(200);
	lost = 0;
	fixture.ends[e].q->ops->set_liveness_callback(fixture.ends[e].q, NULL, NULL);
	turns(100);
}

static void drop(unsigned e, uint32_t peer)
{
	fixture.ends[e].q->ops->detach(fixture.ends[e].q, peer);
	fixture.ends[e].port->ops->drop(fixture.ends[e].port, peer);
	turns(20);
}

/* A connection that pings, one that is refused, one that ends: all control messages but those about paths. */
static void watched_session(void)
{
	uint32_t a, b;
	begin();
	keeping = true;
	fixture_pair(0, 1, &at_0, &at_1);
	ping(0);
	ping(1);
	fixture.ends[1].refuse = -EALREADY;
	cr_assert_eq(fixture_connect(0, 0, 1, 0, 1000 * FIXTURE_MS), 0);
	cr_assert(fixture_until(&fixture.ends[0].fails, 1, 1000));
	fixture.ends[1].refuse = 0;
	fixture_pair(0, 1, &a, &b);
	drop(1, b);
	drop(0, a);
	turns(50);
	cr_assert(fixture.ends[0].downs == 1 && fixture.ends[1].downs == 0);
	keeping = false;
	unsigned kinds = 0;
	for (unsigned i = 0; i < kept_n; i++)
		kinds |= 1u << kept[i].bytes[1];
	for (unsigned kind = WIRE_MESSAGE; kind < WIRE_KINDS; kind++)
		cr_assert(kinds >> kind & 1 || kind == WIRE_WRONG_QUEUE || kind == WIRE_RESET, "kind %u", kind);
}

static struct transport_stats stats_of(unsigned e)
{
	struct transport_stats st;
	transport_stats_read(fixture.ends[e].port, &st);
	return st;
}

static unsigned peers_of(unsigned e)
{
	unsigned n = 0;
	for (uint32_t i = 0; i < port_at(e)->peers_n; i++)
		n += port_at(e)->peers[i]->state != TRANSPORT_FREE;
	return n;
}

/* A packet comes to end `e`, which is alone and stopped in time: nothing is reported or kept, and no more is sent than
 * came. */
static void harmless(unsigned e, const uint8_t *bytes, uint32_t len, const char *what, unsigned i)
{
	struct transport_end was = fixture.ends[e];
	unsigned peers = peers_of(e);
	alone = (int)e;
	alone_bytes = alone_kinds = 0;
	dgram_inject(&fixture.fabric, e, 0, bytes, len);
	turns(10);
	alone = -1;
	const struct transport_end *is = &fixture.ends[e];
	cr_expect_leq(alone_bytes, len, "%s %u, kind %u: %u bytes drew %u", what, i, bytes[1], len,
		      (unsigned)alone_bytes);
	cr_expect(is->ups == was.ups && is->downs == was.downs && is->fails == was.fails &&
			  is->connects == was.connects && is->got == was.got,
		  "%s %u, kind %u: reported", what, i, bytes[1]);
	cr_expect_eq(peers_of(e), peers, "%s %u, kind %u: kept", what, i, bytes[1]);
}

static void again(bool to_all, const char *what)
{
	fixture.step_ns = 0;
	for (unsigned i = 0; i < kept_n; i++) {
		for (unsigned e = 0; e < 3; e++)
			if (fixture.ends[e].port && (to_all || e == kept[i].to))
				harmless(e, kept[i].bytes, kept[i].len, what, i);
	}
	fixture.step_ns = 100000;
}

static uint64_t some(uint64_t seq)
{
	return seq % 200;
}

static void alive(void)
{
	fixture.ends[0].got = fixture.ends[1].got = 0;
	cr_assert(fixture_stream(0, at_0, 1, 20, some, 3000));
	cr_assert(fixture_stream(1, at_1, 0, 20, some, 3000));
}

/* Every packet once more, to its receiver, to its sender and to a third member, while the connection is up, when its
 * cookies are old, and when one end of it has begun another incarnation at the same address. */
Test(transport_auth, every_packet_again)
{
	watched_session();
	again(true, "at once");
	alive();
	fixture.now += 2 * FAR_TRANSPORT_COOKIE_NS;
	turns(5);
	again(true, "late");
	alive();
	drop(1, at_1);
	drop(0, at_0);
	end_close(1);
	end_open(1, 1);
	again(true, "to another incarnation");
	end();
}

/* What is drawn by what: copies of PING nothing, copies of CONNECT at most CHALLENGE or REFUSED. */
Test(transport_auth, what_copies_draw)
{
	watched_session();
	fixture.step_ns = 0;
	for (unsigned i = 0; i < kept_n; i++) {
		uint8_t kind = kept[i].bytes[1];
		harmless(kept[i].to, kept[i].bytes, kept[i].len, "copy", i);
		if (kind == WIRE_CONNECT)
			cr_expect_eq(alone_kinds & ~(1u << WIRE_CHALLENGE | 1u << WIRE_REJECT), 0, "%#x", alone_kinds);
		else if (kind == WIRE_ACCEPT) /* as when an acknowledgement was lost; of a former one RESET */
			cr_expect_eq(alone_kinds & ~(1u << WIRE_ACK | 1u << WIRE_RESET), 0, "%#x", alone_kinds);
		else if (kind > WIRE_ACK)
			cr_expect_eq(alone_kinds, 0, "kind %u drew %#x", kind, alone_kinds);
		harmless(2, kept[i].bytes, kept[i].len, "to another", i);
		cr_expect_eq(alone_kinds, 0, "kind %u drew %#x of another member", kind, alone_kinds);
	}
	end();
}

static const struct kept *last_of(uint8_t kind, unsigned from)
{
	for (unsigned i = kept_n; i-- > 0;)
		if (kept[i].bytes[1] == kind && kept[i].from == from)
			return &kept[i];
	cr_assert_fail("no packet of kind %u", kind);
	return NULL;
}

/* Each bit of each kind, as it was first sent. Expect nothing to be sent and nothing to happen: the finding was a PING
 * with another token, which drew a RESET with the right one. */
Test(transport_auth, every_bit)
{
	static const uint8_t kinds[] = {WIRE_PING, WIRE_CONNECT, WIRE_CHALLENGE, WIRE_ACCEPT, WIRE_REJECT, WIRE_CLOSE};
	watched_session();
	fixture.step_ns = 0;
	for (unsigned i = 0; i < sizeof kinds; i++) {
		bool back = kinds[i] == WIRE_CHALLENGE || kinds[i] == WIRE_ACCEPT || kinds[i] == WIRE_REJECT ||
			    kinds[i] == WIRE_CLOSE;
		const struct kept *k = last_of(kinds[i], back);
		uint8_t copy[TRANSPORT_MAIL_BYTES];
		memcpy(copy, k->bytes, k->len);
		for (uint32_t bit = 16; bit < k->len * 8; bit++) {
			if (bit / 8 >= offsetof(struct wire_head, crc) &&
			    bit / 8 < offsetof(struct wire_head, crc) + sizeof(le32))
				continue;
			copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
			harmless(k->to, copy, k->len, "bit", bit);
			cr_expect_eq(alone_kinds, 0, "kind %u, bit %u: drew %#x", kinds[i], bit, alone_kinds);
			copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
	}
	fixture.step_ns = 100000;
	alive();
	end();
}

/* A CLOSE of one connection, made one of another: its head has all that this one's has. */
Test(transport_auth, bye_of_another_connection)
{
	watched_session();
	const struct kept *k = last_of(WIRE_CLOSE, 1);
	uint8_t copy[TRANSPORT_MAIL_BYTES];
	memcpy(copy, k->bytes, k->len);
	struct wire_message *h = (struct wire_message *)(void *)copy;
	h->token = le64_of(port_at(0)->peers[at_0]->token);
	harmless(0, copy, k->len, "CLOSE", 0);
	cr_assert_eq(alone_kinds, 0);
	alive();
	end();
}

/* CONNECTs with cookies that still hold, of connect requests that nobody remembers any more. Expect a CHALLENGE at
 * most: the cookies were issued before the first that was forgotten. */
Test(transport_auth, forgotten_requests)
{
	uint32_t a, b;
	begin();
	keeping = true;
	fixture_pair(0, 1, &a, &b);
	keeping = false;
	drop(0, a);
	drop(1, b);
	uint64_t from = fixture.now;
	fixture.step_ns = 1000; /* so that the first one's cookie still holds */
	for (unsigned i = 0; i < FAR_TRANSPORT_REFUSED_KEPT + 2; i++) {
		fixture_pair(0, 1, &a, &b);
		drop(0, a);
		drop(1, b);
	}
	cr_assert_lt(fixture.now - from, FAR_TRANSPORT_COOKIE_NS / 2);
	fixture.step_ns = 0;
	for (unsigned i = 0; i < kept_n; i++) {
		if (kept[i].bytes[1] != WIRE_CONNECT)
			continue;
		harmless(1, kept[i].bytes, kept[i].len, "CONNECT", i);
		cr_assert_eq(alone_kinds, 1u << WIRE_CHALLENGE, "%#x", alone_kinds);
	}
	/* A new request is not rejected. */
	fixture.step_ns = 100000;
	fixture_pair(0, 1, &a, &b);
	end();
}

/* Members of two groups. Expect that neither learns that the other is there. */
Test(transport_auth, another_key)
{
	static const struct group_key other = {true, {{"a key of another group"}}};
	begin();
	end_close(1);
	fixture.key = &other;
	end_open(1, 1);
	keeping = true;
	cr_assert_eq(fixture_connect(0, 0, 1, 0, 100 * FIXTURE_MS), 0);
	cr_assert(fixture_until(&fixture.ends[0].fails, 1, 5000));
	cr_assert_eq(fixture.ends[0].error, -ETIMEDOUT);
	cr_assert(strstr(fixture.ends[0].text, "the same key"), "%s", fixture.ends[0].text);
	for (unsigned i = 0; i < kept_n; i++)
		cr_assert_eq(kept[i].from, 0u);
	cr_assert_geq(stats_of(1).refused, 1u);
	end();
}

/* The group's key is not known yet when packets come. Expect nothing to be sent before; a connection afterwards. */
Test(transport_auth, a_key_that_is_known_later)
{
	static struct group_key later;
	begin();
	end_close(1);
	fixture.key = &later;
	end_open(1, 1);
	alone = 1;
	cr_assert_eq(fixture_connect(0, 0, 1, 0, 1000 * FIXTURE_MS), 0);
	turns(500);
	cr_assert_eq(alone_bytes, 0u);
	alone = -1;
	later.key = fixture_key.key;
	atomic_store(&later.known, true);
	cr_assert(fixture_until(&fixture.ends[0].ups, 1, 5000));
	end();
}

/* One end is gone and another incarnation is at its address. Expect RESET, by its PING, before its time is up. */
Test(transport_auth, reset_of_an_incarnation_that_is_gone)
{
	begin();
	fixture.limit_ns = 10000 * FIXTURE_MS;
	end_close(0);
	end_open(0, 1);
	fixture_pair(0, 1, &at_0, &at_1);
	lost = WIRE_CLOSE;
	end_close(1);
	lost = 0;
	end_open(1, 1);
	fixture.ends[0].q->ops->set_liveness_callback(fixture.ends[0].q, awaits_reply, NULL);
	cr_assert_eq(fixture_send(0, at_0, 0, 10), 0);
	uint64_t from = fixture.now;
	cr_assert(fixture_until(&fixture.ends[0].downs, 1, 50000));
	cr_assert_eq(fixture.ends[0].error, -ESTALE);
	cr_assert_lt(fixture.now - from, fixture.limit_ns);
	end();
}

static bool replace_key(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	unsigned *seen = ctx;
	if (from != 1 || bytes[1] != WIRE_ACCEPT)
		return true;
	++*seen;
	bytes[TRANSPORT_HEAD_BYTES + offsetof(struct wire_handshake, public_key)] ^= 1;
	memset(bytes + offsetof(struct wire_control, tag), 0, AUTH_PROOF_BYTES);
	transport_tag_write(transport_key(port_at(1)), bytes, *len, port_at(1)->id, port_at(0)->own_proof, false);
	return true;
}

/* Somebody with the group's key puts another public key into ACCEPT. Expect that no connection comes of it. */
Test(transport_auth, accept_without_the_key_of_the_session)
{
	unsigned seen = 0;
	begin();
	fixture.fabric.hook = replace_key;
	fixture.fabric.hook_ctx = &seen;
	cr_assert_eq(fixture_connect(0, 0, 1, 0, 100 * FIXTURE_MS), 0);
	cr_assert(fixture_until(&fixture.ends[0].fails, 1, 5000));
	cr_assert(seen > 1 && fixture.ends[0].ups == 0);
	end();
}

/* The key of a session is of both ends and of it alone, and not the group's. */
Test(transport_auth, session_keys)
{
	uint32_t a, b;
	begin();
	fixture_pair(0, 1, &at_0, &at_1);
	fixture_pair(0, 1, &a, &b);
	const struct auth_key *k[] = {
		transport_session_key(port_at(0)->peers[at_0]), transport_session_key(port_at(1)->peers[at_1]),
		transport_session_key(port_at(0)->peers[a]), transport_session_key(port_at(1)->peers[b])};
	cr_assert(memcmp(k[0], k[1], sizeof *k[0]) == 0 && memcmp(k[2], k[3], sizeof *k[0]) == 0);
	cr_assert(memcmp(k[0], k[2], sizeof *k[0]) != 0 && memcmp(k[0], transport_key(port_at(0)), sizeof *k[0]) != 0);
	end();
}

/* Numbers of PINGs: each is taken once, however they come. */
Test(transport_auth, ping_numbers)
{
	struct transport_secret s = {.heard = 0};
	static const struct {
		uint32_t number;
		bool fresh;
	} cases[] = {{0, false},  {1, true},   {1, false},   {3, true},    {2, true},  {2, false}, {66, true},
		     {3, false},  {2, false},  {67, true},   {4, true},    {3, false}, {4, false}, {200, true},
		     {66, false}, {137, true}, {136, false}, {200, false}, {201, true}};
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
		cr_expect_eq(transport_ping_fresh(&s, cases[i].number), cases[i].fresh, "case %u", i);
	s = (struct transport_secret){.heard = UINT32_MAX};
	cr_assert(transport_ping_fresh(&s, 1) && transport_ping_fresh(&s, UINT32_MAX - 1) &&
		  !transport_ping_fresh(&s, 1));
}

/* As many CONNECTs without a cookie as come, from members' addresses. Expect no state, and a member to be connected. */
Test(transport_auth, no_state_without_a_cookie)
{
	watched_session();
	const struct kept *k = last_of(WIRE_CONNECT, 0);
	for (unsigned i = 0; i < kept_n; i++)
		if (kept[i].bytes[1] == WIRE_CONNECT && kept[i].from == 0) {
			k = &kept[i];
			break;
		}
	end_close(0); /* its accepted peers end, too */
	turns(2000);
	end_open(0, 1);
	for (unsigned i = 0; i < 1000; i++)
		dgram_inject(&fixture.fabric, 1, 0, k->bytes, k->len);
	turns(30);
	cr_assert_eq(port_at(1)->half_open_n + port_at(1)->stateless_n, 0u);
	fixture_pair(0, 1, &at_0, &at_1);
	end();
}
