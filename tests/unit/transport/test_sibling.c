/* SPDX-License-Identifier: BSD-3-Clause */
/** Packets that another queue of the shard receives for a connection, and when a queue polls its siblings. Ends 0 and 1
 * are connected; 2 is a second port of the worker of 0. The test's thread. */
#include "base/limits.h"
#include "transport/port.h"
#include "transport/queue.h"
#include "transport/sibling.h"
#include "transport_fixture.h"

#include <criterion/criterion.h>
#include <string.h>

static uint32_t at_0, at_1;
static struct transport_queue *q, *via;
static unsigned polls[DGRAM_PORTS];

static void polled(unsigned port)
{
	polls[port]++;
}

static void begin(void)
{
	fixture_init();
	fixture_two(&at_0, &at_1);
	end_open(2, 1);
	struct nic_port *both[] = {fixture.ends[0].port, fixture.ends[2].port};
	transport_join(both, 2);
	q = (struct transport_queue *)fixture.ends[0].q;
	via = (struct transport_queue *)fixture.ends[2].q;
	fixture.ends[2].queues = 0; /* it is polled by its sibling alone */
	for (unsigned i = 0; i < 50; i++)
		fixture_turn();
	fixture.fabric.polled = polled;
	memset(polls, 0, sizeof polls);
}

TestSuite(transport_sibling, .init = begin, .fini = fixture_fini);

static void receive(struct transport_peer *p, uint8_t kind)
{
	union wire_packet packet = {.head = {.version = WIRE_VERSION, .kind = kind}};
	uint8_t bytes[200];
	memset(bytes, 0, sizeof bytes);
	memcpy(bytes, &packet, sizeof packet);
	transport_sibling_receive(q, via, p, &packet, &(struct nic_pkt){.body = bytes, .body_len = sizeof bytes});
}

/* Takes the mail of the queue to the control thread: true if it is of this kind, and names the port that received it.
 */
static bool mailed(uint8_t kind)
{
	const struct transport_mail *m = transport_mail_get(&q->mail);
	bool is = m && m->bytes[1] == kind && m->via == via->port;
	if (m)
		transport_mail_done(&q->mail);
	return is;
}

/* Expect what a connection here may answer with the control thread of its port, and the others dropped. */
Test(transport_sibling, packets_that_name_no_connection)
{
	static const uint8_t kinds[] = {WIRE_PING, WIRE_WRONG_QUEUE, WIRE_RESET, WIRE_CLOSE};
	for (size_t i = 0; i < sizeof kinds; i++) {
		receive(NULL, kinds[i]);
		cr_assert(mailed(kinds[i]), "kind %u", kinds[i]);
	}
	receive(NULL, WIRE_MESSAGE);
	receive(NULL, WIRE_ACK);
	receive(NULL, WIRE_CONNECT);
	cr_assert_null(transport_mail_get(&q->mail));
	cr_assert_eq(q->unknown_connection_drops, 3u);
}

/* Packets of a connection. Expect a cut PING and an end without proof to change nothing, no set-up by this way, and
 * none of a connection that has ended. */
Test(transport_sibling, packets_of_a_connection)
{
	struct transport_peer *p = q->peers[at_0];
	receive(p, WIRE_PING);
	receive(p, WIRE_CLOSE);
	cr_assert(q->malformed == 1 && q->unproven == 1);
	receive(p, WIRE_WRONG_QUEUE);
	cr_assert(mailed(WIRE_WRONG_QUEUE));
	receive(p, WIRE_CONNECT);
	receive(p, WIRE_ACCEPT);
	cr_assert_eq(q->unknown_connection_drops, 2u);
	cr_assert_eq(q->closed_connection_drops, 0u);
	fixture.ends[0].q->ops->detach(fixture.ends[0].q, at_0);
	receive(p, WIRE_MESSAGE);
	receive(p, WIRE_ACK);
	cr_assert_eq(q->closed_connection_drops, 2u);
	fixture_turn();
	cr_assert_eq(fixture.ends[0].downs, 0u);
}

/* While a connection of the queue uses another port. Expect each recv() to poll the sibling, but for one whose own
 * burst is not processed. */
Test(transport_sibling, is_polled_while_it_is_used)
{
	for (unsigned i = 0; i < 20; i++) {
		q->failed_over_n = i >= 10;
		fixture_take(0, 0);
	}
	cr_assert(polls[2] == 10 && polls[0] == 20, "%u and %u", polls[2], polls[0]);
	via->lines_n = 1;
	fixture_take(0, 0);
	via->lines_n = 0;
	via->lower_n++;
	fixture_take(0, 0);
	via->lower_n--;
	cr_assert_eq(polls[2], 10u);
	fixture_take(0, 0);
	cr_assert_eq(polls[2], 11u);
	q->failed_over_n = 0;
}

/* A driver whose empty polls are system calls. Expect one poll in sixteen once so many were empty, and all of them
 * again after a packet. */
Test(transport_sibling, is_polled_rarely_where_polls_cost)
{
	static const uint8_t junk[100];
	via->port->lower_caps.poll_costs = true;
	via->empty_polls = FAR_TRANSPORT_EMPTY_POLLS;
	for (unsigned i = 0; i < 160; i++)
		transport_siblings_poll(q);
	cr_assert(polls[2] >= 9 && polls[2] <= 11, "%u polls", polls[2]);
	dgram_inject(&fixture.fabric, 2, 0, junk, sizeof junk);
	for (unsigned i = 0; i < 16; i++)
		transport_siblings_poll(q);
	unsigned before = polls[2];
	for (unsigned i = 0; i < 10; i++)
		transport_siblings_poll(q);
	cr_assert_eq(polls[2] - before, 10u);
}
