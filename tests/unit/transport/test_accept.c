/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Packets of the handshake with right tags and one thing wrong: the test holds the group's key, as another member does.
 * So what is checked behind the tag is seen: the cookie, its time, the length, the nonce, the session's key.
 * The test's thread.
 */
#include "transport_fixture.h"

#include "base/limits.h"
#include "transport/auth.h"
#include "transport/handshake.h"
#include "transport/mail.h"
#include "transport/peer.h"
#include "transport/port.h"
#include "transport/setup.h"
#include "transport/wire.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static uint8_t handshake[TRANSPORT_MAIL_BYTES]; /* the last one with a cookie from end 0 to end 1 */
static bool connect_kept;
static unsigned cut;      /* bits of ends: what they send is lost */
static unsigned kinds[2]; /* bits of kinds that such an end sent */

static bool hook(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	struct transport_handshake w;
	if (from == 0 && to == 1 && bytes[1] == WIRE_CONNECT &&
	    transport_handshake_read(bytes + TRANSPORT_HEAD_BYTES, *len - TRANSPORT_HEAD_BYTES, &w) && w.issued) {
		memcpy(handshake, bytes, sizeof handshake);
		connect_kept = true;
	}
	if (!(cut >> from & 1))
		return true;
	kinds[from] |= 1u << bytes[1];
	return false;
}

static void begin(void)
{
	fixture_init();
	fixture.fabric.crc = true;
	fixture.fabric.hook = hook;
	connect_kept = false;
	cut = 0;
	end_open(0, 1);
	end_open(1, 1);
}

static void turns(unsigned n)
{
	while (n-- > 0)
		fixture_turn();
}

static struct transport_port *port_at(unsigned e)
{
	return (struct transport_port *)fixture.ends[e].port;
}

static void drop(unsigned e, uint32_t peer)
{
	fixture.ends[e].q->ops->detach(fixture.ends[e].q, peer);
	fixture.ends[e].port->ops->drop(fixture.ends[e].port, peer);
	turns(20);
}

/* Which kinds end `e` sends while a packet comes, whose tag end `from` makes. The clock stands. */
static unsigned drawn(unsigned from, unsigned e, uint8_t *packet, uint32_t len)
{
	uint64_t step = fixture.step_ns;
	transport_tag_write(transport_key(port_at(e)), packet, len, port_at(from)->id, port_at(e)->own_proof, false);
	fixture.step_ns = 0;
	cut |= 1u << e;
	kinds[e] = 0;
	dgram_inject(&fixture.fabric, e, 0, packet, len);
	turns(5);
	cut &= ~(1u << e);
	fixture.step_ns = step;
	return kinds[e];
}

/* ---- cookies ---- */

/* Such a CONNECT from another connect request: `token` distinguishes it from others. Its cookie is of `issued`. */
static void make_connect(uint8_t *out, uint64_t token, uint64_t issued)
{
	struct wire_handshake *body = (struct wire_handshake *)(void *)(out + TRANSPORT_HEAD_BYTES);
	struct transport_handshake w;
	memcpy(out, handshake, sizeof handshake);
	body->token = le64_of(token);
	body->issued = le64_of(issued);
	cr_assert(transport_handshake_read(out + TRANSPORT_HEAD_BYTES, sizeof handshake - TRANSPORT_HEAD_BYTES, &w));
	transport_cookie(port_at(1), &w, issued, body->cookie);
}

/* A connect request whose every packet is known and which is over. */
static void begin_with_connect(void)
{
	uint32_t a, b;
	begin();
	fixture_pair(0, 1, &a, &b);
	drop(0, a);
	drop(1, b);
	cr_assert(connect_kept);
}

/* CONNECT with cookies of several ages. Expect ACCEPT for those that hold, CHALLENGE for others. */
Test(transport_accept, time_of_a_cookie)
{
	begin_with_connect();
	fixture.now += 2 * FAR_TRANSPORT_COOKIE_NS;
	const struct {
		uint64_t issued;
		enum wire_kind answer;
	} cases[] = {{fixture.now, WIRE_ACCEPT},
		     {fixture.now + 1, WIRE_CHALLENGE},
		     {fixture.now - FAR_TRANSPORT_COOKIE_NS + 1, WIRE_ACCEPT},
		     {fixture.now - FAR_TRANSPORT_COOKIE_NS, WIRE_CHALLENGE},
		     {1, WIRE_CHALLENGE},
		     {UINT64_MAX, WIRE_CHALLENGE}};
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint8_t packet[TRANSPORT_MAIL_BYTES];
		make_connect(packet, 1000 + i, cases[i].issued);
		unsigned connects = fixture.ends[1].connects;
		cr_expect_eq(drawn(0, 1, packet, sizeof packet), 1u << cases[i].answer, "case %u: %#x", i, kinds[1]);
		cr_expect_eq(fixture.ends[1].connects - connects, cases[i].answer == WIRE_ACCEPT, "case %u", i);
	}
	fixture_fini();
}

/* CONNECT with the cookie of another request, address, nonce or time, and with each bit of it changed. Expect CHALLENGE
 * each time. */
Test(transport_accept, cookie_of_something_else)
{
	static const uint32_t places[] = {offsetof(struct wire_handshake, token) + 7,
					  offsetof(struct wire_handshake, nonce),
					  offsetof(struct wire_handshake, issued) + 7};
	uint8_t packet[TRANSPORT_MAIL_BYTES];
	begin_with_connect();
	for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
		make_connect(packet, 1000, fixture.now - 8);
		packet[TRANSPORT_HEAD_BYTES + places[i]] ^= 1;
		cr_expect_eq(drawn(0, 1, packet, sizeof packet), 1u << WIRE_CHALLENGE, "place %u: %#x", i, kinds[1]);
	}
	for (unsigned bit = 0; bit < AUTH_PROOF_BYTES * 8; bit++) {
		make_connect(packet, 1000, fixture.now);
		packet[TRANSPORT_HEAD_BYTES + offsetof(struct wire_handshake, cookie) + bit / 8] ^=
			(uint8_t)(1u << bit % 8);
		cr_expect_eq(drawn(0, 1, packet, sizeof packet), 1u << WIRE_CHALLENGE, "bit %u: %#x", bit, kinds[1]);
	}
	end_open(2, 1); /* the address of another member */
	make_connect(packet, 1000, fixture.now);
	struct transport_handshake w;
	cr_assert(transport_handshake_read(packet + TRANSPORT_HEAD_BYTES, sizeof packet - TRANSPORT_HEAD_BYTES, &w));
	memcpy(packet + (w.addr - packet), port_at(2)->own.blob, w.addr_len);
	cr_expect_eq(drawn(0, 1, packet, sizeof packet), 1u << WIRE_CHALLENGE, "address: %#x", kinds[1]);
	make_connect(packet, 1000, fixture.now);
	cr_expect_eq(drawn(0, 1, packet, sizeof packet), 1u << WIRE_ACCEPT, "%#x", kinds[1]);
	fixture_fini();
}

/* A request was accepted and is forgotten, and a CONNECT of it comes with a cookie that was issued after the accepted
 * one's and before the acceptance. Expect CHALLENGE: no second set-up begins. */
Test(transport_accept, later_cookie_of_a_forgotten_request)
{
	uint8_t packet[TRANSPORT_MAIL_BYTES];
	struct transport_handshake w;
	uint32_t a, b;
	begin_with_connect();
	cr_assert(transport_handshake_read(handshake + TRANSPORT_HEAD_BYTES, sizeof handshake - TRANSPORT_HEAD_BYTES,
					   &w));
	make_connect(packet, w.token, w.issued + 1);
	uint64_t issued = w.issued;
	fixture.step_ns = 1000; /* so that the cookie still holds */
	for (unsigned i = 0; i < FAR_TRANSPORT_REFUSED_KEPT; i++) {
		if (i == FAR_TRANSPORT_REFUSED_KEPT - 1) /* remembered until here */
			cr_assert_eq(drawn(0, 1, packet, sizeof packet), 1u << WIRE_REJECT, "%#x", kinds[1]);
		fixture_pair(0, 1, &a, &b);
		drop(0, a);
		drop(1, b);
	}
	cr_assert_lt(fixture.now - issued, FAR_TRANSPORT_COOKIE_NS / 2);
	unsigned connects = fixture.ends[1].connects;
	cr_assert_eq(drawn(0, 1, packet, sizeof packet), 1u << WIRE_CHALLENGE, "%#x", kinds[1]);
	cr_assert_eq(fixture.ends[1].connects, connects);
	fixture_fini();
}

/* ---- length ---- */

/* CONNECT of every length but its own that its fields fit in. Expect nothing: an answer may be longer. */
Test(transport_accept, length_of_connect)
{
	uint8_t packet[TRANSPORT_MAIL_BYTES + 64] = {0};
	struct transport_handshake w;
	begin_with_connect();
	make_connect(packet, 1000, fixture.now);
	cr_assert(transport_handshake_read(packet + TRANSPORT_HEAD_BYTES, TRANSPORT_MAIL_BYTES - TRANSPORT_HEAD_BYTES,
					   &w));
	uint32_t least = (uint32_t)(w.addr + w.addr_len - packet);
	cr_assert_lt(least, TRANSPORT_MAIL_BYTES);
	for (uint32_t len = least; len <= sizeof packet; len++)
		if (len != TRANSPORT_MAIL_BYTES)
			cr_expect_eq(drawn(0, 1, packet, len), 0u, "%u bytes: %#x", len, kinds[1]);
	cr_expect_eq(drawn(0, 1, packet, TRANSPORT_MAIL_BYTES), 1u << WIRE_ACCEPT, "%#x", kinds[1]);
	fixture_fini();
}

/* ---- answers ---- */

/* REFUSED of a connect request by another member than the one that got the request, and with another nonce. Expect
 * nothing; then the right one, and that it fails. */
Test(transport_accept, refused_by_another_member)
{
	uint8_t packet[TRANSPORT_MAIL_BYTES];
	begin();
	end_open(2, 1);
	cut = 1;
	cr_assert_eq(fixture_connect(0, 0, 1, 0, 10000 * FIXTURE_MS), 0);
	turns(5);
	const struct transport_peer *peer = port_at(0)->peers[0];
	cr_assert(peer->state == TRANSPORT_CONNECTING && kinds[0] >> WIRE_CONNECT & 1);
	uint8_t nonce[AUTH_NONCE_BYTES];
	memcpy(nonce, peer->setup->proofs.nonce, sizeof nonce);
	struct transport_reject no = {.error = -EALREADY, .nonce = nonce};
	uint32_t len = transport_reject_write(packet, WIRE_REJECT, port_at(0)->id, peer->token, &no);
	drawn(2, 0, packet, len);
	cr_expect_eq(fixture.ends[0].fails, 0u, "of another member");
	for (unsigned bit = 0; bit < AUTH_NONCE_BYTES * 8; bit++) {
		nonce[bit / 8] ^= (uint8_t)(1u << bit % 8);
		len = transport_reject_write(packet, WIRE_REJECT, port_at(0)->id, peer->token, &no);
		drawn(1, 0, packet, len);
		nonce[bit / 8] ^= (uint8_t)(1u << bit % 8);
		cr_assert_eq(fixture.ends[0].fails, 0u, "bit %u of the nonce", bit);
	}
	len = transport_reject_write(packet, WIRE_REJECT, port_at(0)->id, peer->token, &no);
	drawn(1, 0, packet, len);
	cr_expect(fixture.ends[0].fails == 1 && fixture.ends[0].error == -EALREADY);
	fixture_fini();
}

/* CLOSE of a connection by a member that has the group's key and not the session's. Expect that it stays; then the
 * right one, and that it ends. */
Test(transport_accept, bye_by_another_member)
{
	const struct transport_reject no = {.error = 0};
	uint8_t packet[TRANSPORT_MAIL_BYTES];
	uint32_t at_0, at_1;
	begin();
	fixture_pair(0, 1, &at_0, &at_1);
	const struct transport_peer *p = port_at(0)->peers[at_0];
	uint32_t len = transport_reject_write(packet, WIRE_CLOSE, port_at(0)->id, p->token, &no);
	drawn(1, 0, packet, len);
	transport_tag_write(transport_key(port_at(0)), packet, len, port_at(1)->id, NULL, false);
	dgram_inject(&fixture.fabric, 0, 0, packet, len);
	turns(5);
	cr_assert_eq(fixture.ends[0].downs, 0u);
	transport_tag_write(transport_session_key(p), packet, len, port_at(1)->id, NULL, false);
	dgram_inject(&fixture.fabric, 0, 0, packet, len);
	turns(5);
	cr_assert(fixture.ends[0].downs == 1 && fixture.ends[0].error == -ECONNRESET);
	fixture_fini();
}
