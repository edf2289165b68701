/* SPDX-License-Identifier: BSD-3-Clause */
/** Control packets: which PING, RESET and CLOSE is obeyed, and what goes to the control thread. The test's thread. */
#include "caught_packet.h"

#include "base/limits.h"
#include "transport/auth.h"
#include "transport/control.h"
#include "transport/peer.h"
#include "transport/port.h"
#include "transport/queue.h"

#include <errno.h>

static struct transport_queue *queue_at(unsigned e)
{
	return (struct transport_queue *)fixture.ends[e].q;
}

/* Endings with a wrong token change nothing, nor a RESET that answers no PING; with the right one they end it. */
Test(transport_control, endings)
{
	static const uint8_t kinds[] = {WIRE_RESET, WIRE_CLOSE};
	for (unsigned i = 0; i < 2; i++) {
		begin(WIRE_MESSAGE);
		head()->kind = kinds[i];
		memset(caught + 96, 0, sizeof(struct wire_reject));
		caught_len = 96 + sizeof(struct wire_reject);
		uint8_t *nonce = caught + 96 + offsetof(struct wire_reject, nonce);
		const struct transport_peer *peer = ((struct transport_port *)fixture.ends[1].port)->peers[at_1];
		if (kinds[i] == WIRE_RESET) {
			atomic_store(&transport_secret_of(peer)->pings, 7);
			transport_ping_nonce(8, nonce);
			inject();
			memset(nonce, 0, AUTH_NONCE_BYTES);
			inject();
			cr_assert_eq(fixture.ends[1].downs, 0);
			transport_ping_nonce(7, nonce);
		}
		for (unsigned bit = 64; bit < 192; bit++) {
			caught[bit / 8] ^= (uint8_t)(1u << bit % 8);
			inject();
			caught[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
		turns(10);
		cr_assert_eq(fixture.ends[1].downs, 0);
		inject();
		turns(10);
		cr_assert_eq(fixture.ends[1].downs, 1);
		fixture_fini();
	}
}

/* A PING of end 0, which is a member. */
static void begin_ping(void)
{
	fixture_init();
	fixture.fabric.crc = true;
	fixture.fabric.hook = catch;
	want = WIRE_PING;
	fixture_two(&at_0, &at_1);
	turns(50);
	transport_send_ping(queue_at(0), queue_at(0)->peers[at_0]);
	fixture.ends[0].q->ops->flush(fixture.ends[0].q);
	turns(3);
	cr_assert_gt(caught_len, 0);
}

/* The same PING again, one with each byte of its proofs wrong, and one that is cut. Expect each dropped by its reason,
 * and the next one answered. */
Test(transport_control, a_ping_is_obeyed_once)
{
	begin_ping();
	struct transport_peer *p = queue_at(1)->peers[at_1];
	const struct transport_stats before = stats_of_1();
	p->heard = false;
	inject();
	cr_assert_eq(stats_of_1().duplicates - before.duplicates, 1u);
	cr_assert_not(p->heard);
	uint64_t unproven = queue_at(1)->unproven;
	for (uint32_t at = TRANSPORT_HEAD_BYTES; at < caught_len; at += 8) {
		caught[at] ^= 1;
		inject();
		caught[at] ^= 1;
	}
	cr_assert_gt(queue_at(1)->unproven, unproven);
	cr_assert_eq(stats_of_1().duplicates - before.duplicates, 1u, "none of them counted as a repetition");
	uint32_t whole = caught_len;
	caught_len = TRANSPORT_HEAD_BYTES + 8;
	uint64_t malformed = stats_of_1().malformed;
	inject();
	cr_assert_eq(stats_of_1().malformed - malformed, 1u);
	caught_len = whole;
	p->heard = false;
	transport_send_ping(queue_at(0), queue_at(0)->peers[at_0]);
	fixture.ends[0].q->ops->flush(fixture.ends[0].q);
	uint64_t sent = fixture.fabric.sent;
	turns(1);
	cr_assert(p->heard && fixture.fabric.sent > sent, "it is answered");
	cr_assert_eq(fixture.ends[1].downs, 0);
	fixture_fini();
}

/* Of a connection that the engine has left. */
Test(transport_control, a_ping_of_a_closed_connection)
{
	begin_ping();
	fixture.ends[1].q->ops->detach(fixture.ends[1].q, at_1);
	uint64_t before = stats_of_1().closed_connection_drops;
	inject();
	cr_assert_eq(stats_of_1().closed_connection_drops - before, 1u);
	fixture_fini();
}

static void receive(uint8_t kind, uint32_t len)
{
	static uint8_t bytes[2 * TRANSPORT_MAIL_BYTES];
	struct wire_head h = {.version = WIRE_VERSION, .kind = kind};
	struct nic_pkt lp = {.body = bytes, .body_len = len};
	memset(bytes, kind, sizeof bytes);
	memcpy(bytes, &h, sizeof h);
	transport_receive_control(queue_at(0), NULL, &h, &lp);
}

/* Packets that name no connection. Expect those of the set-up with the control thread, whole, and the others counted.
 */
Test(transport_control, what_goes_to_the_control_thread)
{
	static const uint8_t kinds[] = {WIRE_CONNECT,     WIRE_CHALLENGE, WIRE_ACCEPT, WIRE_REJECT,
					WIRE_WRONG_QUEUE, WIRE_PING,      WIRE_RESET,  WIRE_CLOSE};
	fixture_init();
	end_open(0, 1);
	struct transport_queue *q = queue_at(0);
	for (size_t i = 0; i < sizeof kinds; i++) {
		receive(kinds[i], 200);
		const struct transport_mail *mail = transport_mail_get(&q->mail);
		cr_assert(mail && mail->via == q->port && mail->len == 200, "kind %u", kinds[i]);
		cr_assert(mail->bytes[1] == kinds[i] && mail->bytes[199] == kinds[i]);
		transport_mail_done(&q->mail);
	}
	receive(WIRE_MESSAGE, 200);
	receive(WIRE_ACK, 200);
	receive(0, 200);
	receive(WIRE_KINDS, 200);
	cr_assert_null(transport_mail_get(&q->mail));
	cr_assert(q->unknown_connection_drops == 2 && q->malformed == 2);
	fixture_fini();
}

/* A RESET of a connection that answers no PING: it may answer an ACCEPT. Expect it with the control thread; a CLOSE is
 * checked here. */
Test(transport_control, a_reset_that_answers_an_accept)
{
	uint8_t bytes[TRANSPORT_HEAD_BYTES + sizeof(struct wire_reject)] = {WIRE_VERSION, WIRE_RESET};
	const struct nic_pkt lp = {.body = bytes, .body_len = sizeof bytes};
	fixture_init();
	fixture_two(&at_0, &at_1);
	struct transport_queue *q = queue_at(0);
	for (unsigned i = 0; i < 2; i++) {
		const struct wire_head h = {.version = WIRE_VERSION, .kind = i ? WIRE_CLOSE : WIRE_RESET};
		bytes[1] = h.kind;
		transport_receive_end(q, q->peers[at_0], q, &h, &lp);
		cr_assert(transport_mail_get(&q->mail) && q->unproven == i);
	}
	turns(10);
	cr_assert_eq(fixture.ends[0].downs, 0);
	fixture_fini();
}

/* One packet more than the ring takes, and one that is longer than any. */
Test(transport_control, the_ring_to_the_control_thread_is_bounded)
{
	fixture_init();
	end_open(0, 1);
	for (unsigned i = 0; i < TRANSPORT_MAIL_SLOTS + 3; i++)
		receive(WIRE_CONNECT, TRANSPORT_MAIL_BYTES);
	cr_assert_eq(queue_at(0)->handshake_backlog_drops, 3u);
	receive(WIRE_CONNECT, TRANSPORT_MAIL_BYTES + 1);
	cr_assert_eq(queue_at(0)->malformed, 1u);
	cr_assert_eq(queue_at(0)->handshake_backlog_drops, 3u);
	fixture_fini();
}

/* The driver below has no room, or the packet is too long for it. Expect its error, and nothing to flush. */
Test(transport_control, a_packet_that_cannot_be_sent)
{
	fixture_init();
	fixture_two(&at_0, &at_1);
	turns(50);
	struct transport_peer *p = queue_at(0)->peers[at_0];
	queue_at(0)->unflushed = false;
	fixture.fabric.full_every = 1;
	cr_assert_eq(transport_send_raw(p, caught, 100), -EAGAIN);
	fixture.fabric.full_every = 0;
	cr_assert_eq(transport_send_raw(p, caught, fixture.fabric.packet_max + 1), -EMSGSIZE);
	cr_assert_not(queue_at(0)->unflushed);
	cr_assert_eq(transport_send_raw(p, caught, 100), 0);
	cr_assert(queue_at(0)->unflushed);
	fixture_fini();
}
