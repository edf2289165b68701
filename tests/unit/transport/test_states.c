/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Hand-built packets: every kind in every state of a peer, with the right and with wrong tokens and identities, of
 * past, expected and future numbers. What is sent back, counted, reported and delivered is in the tables; that nothing
 * else is, and that nothing is kept afterwards, is checked for every row. The test's thread.
 */
#include "transport/rings.h"
#include "transport_states.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* ---- connections that are not there ---- */

/* Packets without the right token change nothing, in any state. */
static const struct expect wrong[] = {
	[WIRE_MESSAGE] = {.counter = UNKNOWN},
	[WIRE_ACK] = {.counter = UNKNOWN},
	[WIRE_PING] = {.sent = SENT(RESET), .counter = REFUSED},
	[WIRE_CONNECT] = {.sent = SENT(REJECT),
			  .counter = REFUSED}, /* of another incarnation; the token says nothing */
	[WIRE_ACCEPT] = {.sent = SENT(RESET), .counter = REFUSED},
	[WIRE_REJECT] = {.counter = UNKNOWN},
	[WIRE_WRONG_QUEUE] = {.counter = UNKNOWN},
	[WIRE_RESET] = {.counter = UNKNOWN},
	[WIRE_CLOSE] = {.counter = UNKNOWN},
	[WIRE_CHALLENGE] = {.counter = UNKNOWN},
};

static bool no_way_back(enum state state)
{
	return state == ACCEPTING || state == REFUSING || state == CLOSING;
}

Test(transport_states, wrong_token_or_incarnation)
{
	char what[160];
	for (unsigned state = 0; state < STATES; state++)
		for (unsigned kind = WIRE_MESSAGE; kind < WIRE_KINDS; kind++)
			for (unsigned auth = WRONG_TOKEN; auth < AUTHS; auth++) {
				struct packet k;
				if (kind == WIRE_CONNECT && auth == WRONG_TOKEN)
					continue;
				enter((enum state)state);
				snprintf(what, sizeof what, "%s%s in state \"%s\"", kind_names[kind], auth_names[auth],
					 state_names[state]);
				build(&k, (enum wire_kind)kind, (enum auth)auth);
				struct expect want = wrong[kind];
				if (no_way_back((enum state)state))
					want.sent = 0;
				run(&k, &want, what);
				leave(what);
			}
}

/* ---- the right token, where no messages are taken ---- */

static const struct expect early[STATES][WIRE_KINDS] =
	{
		[NONE] =
			{
				[WIRE_MESSAGE] = {.counter = UNKNOWN},
				[WIRE_ACK] = {.counter = UNKNOWN},
				[WIRE_PING] = {.sent = SENT(RESET), .counter = REFUSED},
				[WIRE_CONNECT] = {.sent = SENT(ACCEPT), .ups = 1},
				[WIRE_ACCEPT] = {.sent = SENT(RESET), .counter = REFUSED},
				[WIRE_REJECT] = {.counter = UNKNOWN},
				[WIRE_WRONG_QUEUE] = {.counter = UNKNOWN},
				[WIRE_RESET] = {.counter = UNKNOWN},
				[WIRE_CLOSE] = {.counter = UNKNOWN},
				[WIRE_CHALLENGE] = {.counter = UNKNOWN},
			},
		[CONNECTING] =
			{
				[WIRE_MESSAGE] = {.counter = UNKNOWN}, /* before ACCEPT: it comes again */
				[WIRE_ACK] = {.counter = UNKNOWN},
				[WIRE_PING] = {.counter = DUPLICATE},
				[WIRE_CONNECT] = {.sent = SENT(ACCEPT), .ups = 1}, /* the other direction's set-up */
				[WIRE_ACCEPT] = {.sent = SENT(ACK), .ups = 1},
				[WIRE_REJECT] = {.fails = 1},
				[WIRE_WRONG_QUEUE] = {.sent = SENT(CONNECT)}, /* by the next path */
				[WIRE_RESET] = {.counter = DUPLICATE},
				[WIRE_CLOSE] = {.counter = DUPLICATE},
				[WIRE_CHALLENGE] = {.counter = DUPLICATE}, /* issued at 0, so before any */
			},
		/* There is no way back yet, so nothing can be sent. */
		[ACCEPTING] =
			{
				[WIRE_MESSAGE] = {.counter = UNKNOWN},
				[WIRE_ACK] = {.counter = UNKNOWN},
				[WIRE_PING] = {.counter = DUPLICATE},
				[WIRE_CONNECT] = {.counter = NOTHING},
				[WIRE_ACCEPT] = {.counter = DUPLICATE},
				[WIRE_REJECT] = {.counter = DUPLICATE},
				[WIRE_WRONG_QUEUE] = {.counter = DUPLICATE},
				[WIRE_RESET] = {.counter = DUPLICATE},
				[WIRE_CLOSE] = {.counter = DUPLICATE},
				[WIRE_CHALLENGE] = {.counter = DUPLICATE},
			},
		[REFUSING] =
			{
				[WIRE_MESSAGE] = {.counter = UNKNOWN},
				[WIRE_ACK] = {.counter = UNKNOWN},
				[WIRE_PING] = {.counter = DUPLICATE},
				[WIRE_CONNECT] = {.counter = NOTHING},
				[WIRE_ACCEPT] = {.counter = DUPLICATE},
				[WIRE_REJECT] = {.counter = DUPLICATE},
				[WIRE_WRONG_QUEUE] = {.counter = DUPLICATE},
				[WIRE_RESET] = {.counter = DUPLICATE},
				[WIRE_CLOSE] = {.counter = DUPLICATE},
				[WIRE_CHALLENGE] = {.counter = DUPLICATE},
			},
		[DOWN] =
			{
				[WIRE_MESSAGE] = {.counter = ENDED},
				[WIRE_ACK] = {.counter = ENDED},
				[WIRE_PING] = {.counter = ENDED},
				[WIRE_CONNECT] = {.sent = SENT(ACCEPT), .ups = 1}, /* a new connection */
				[WIRE_ACCEPT] = {.counter = DUPLICATE},
				[WIRE_REJECT] = {.counter = DUPLICATE},
				[WIRE_WRONG_QUEUE] = {.counter = DUPLICATE},
				[WIRE_RESET] = {.counter = ENDED},
				[WIRE_CLOSE] = {.counter = ENDED},
				[WIRE_CHALLENGE] = {.counter = DUPLICATE},
			},
		[CLOSING] =
			{
				[WIRE_MESSAGE] = {.counter = UNKNOWN},
				[WIRE_ACK] = {.counter = UNKNOWN},
				[WIRE_PING] = {.counter = REFUSED},
				[WIRE_CONNECT] = {.counter = NOTHING},
				[WIRE_ACCEPT] = {.counter = REFUSED},
				[WIRE_REJECT] = {.counter = DUPLICATE},
				[WIRE_WRONG_QUEUE] = {.counter = DUPLICATE},
				[WIRE_RESET] = {.counter = DUPLICATE},
				[WIRE_CLOSE] = {.counter = DUPLICATE},
				[WIRE_CHALLENGE] = {.counter = DUPLICATE},
			},
};

Test(transport_states, no_messages_are_taken)
{
	static const enum state states[] = {NONE, CONNECTING, ACCEPTING, REFUSING, DOWN, CLOSING};
	static const uint32_t numbers[] = {FIRST - 1, FIRST, FIRST + 5, FIRST + FAR_TRANSPORT_WINDOW};
	char what[160];
	for (unsigned i = 0; i < sizeof states / sizeof *states; i++)
		for (unsigned kind = WIRE_MESSAGE; kind < WIRE_KINDS; kind++) {
			unsigned variants = kind == WIRE_MESSAGE ? DATA_KINDS * 4 : kind == WIRE_ACK ? 4 : 1;
			for (unsigned v = 0; v < variants; v++) {
				struct packet k;
				enter(states[i]);
				snprintf(what, sizeof what, "%s (%u) in state \"%s\"", kind_names[kind], v,
					 state_names[states[i]]);
				build(&k, (enum wire_kind)kind, RIGHT);
				if (kind == WIRE_MESSAGE) {
					k.len = TRANSPORT_HEAD_BYTES;
					put_data(&k, (enum data)(v / 4), numbers[v % 4]);
				} else if (kind == WIRE_ACK) {
					k.head.ack = le32_of(numbers[v]);
					k.head.ack_bits = le64_of(UINT64_MAX);
				}
				run(&k, &early[states[i]][kind], what);
				leave(what);
			}
		}
}

/* ---- connections ---- */

static const struct expect late[2][WIRE_KINDS] = {
	/* UNCONFIRMED: accepted, and nothing came with its token yet */
	{
		[WIRE_PING] = {.sent = SENT(ACK)},
		[WIRE_CONNECT] = {.sent = SENT(ACCEPT), .ups = 1}, /* another set-up of the same port */
		[WIRE_ACCEPT] = {.counter = DUPLICATE},
		[WIRE_REJECT] = {.counter = DUPLICATE},
		[WIRE_WRONG_QUEUE] = {.sent = SENT(ACCEPT)}, /* by the next path */
		[WIRE_RESET] = {.downs = 1},
		[WIRE_CLOSE] = {.downs = 1},
		[WIRE_CHALLENGE] = {.counter = DUPLICATE},
	},
	{
		[WIRE_PING] = {.sent = SENT(ACK)},
		[WIRE_CONNECT] = {.sent = SENT(ACCEPT), .ups = 1},
		[WIRE_ACCEPT] = {.counter = DUPLICATE},
		[WIRE_REJECT] = {.counter = DUPLICATE},
		[WIRE_WRONG_QUEUE] = {.counter = DUPLICATE},
		[WIRE_RESET] = {.downs = 1},
		[WIRE_CLOSE] = {.downs = 1},
		[WIRE_CHALLENGE] = {.counter = DUPLICATE},
	},
};

Test(transport_states, connection_set_up_packets)
{
	char what[160];
	for (unsigned up = 0; up < 2; up++)
		for (unsigned kind = WIRE_PING; kind < WIRE_KINDS; kind++) {
			struct packet k;
			enum state state = up ? UP : UNCONFIRMED;
			enter(state);
			snprintf(what, sizeof what, "%s in state \"%s\"", kind_names[kind], state_names[state]);
			build(&k, (enum wire_kind)kind, RIGHT);
			run(&k, &late[up][kind], what);
			leave(what);
		}
}

/* The same CONNECT once more, in each state in which there is one. */
Test(transport_states, connect_again)
{
	static const struct {
		enum state state;
		struct expect expect;
	} cases[] = {
		{ACCEPTING, {.counter = DUPLICATE}},
		{REFUSING, {.counter = DUPLICATE}},
		{UNCONFIRMED, {.sent = SENT(ACCEPT), .counter = DUPLICATE}},
		{UP, {.counter = DUPLICATE}},
		{DOWN, {.counter = DUPLICATE}},
	};
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct packet k = {0};
		enter(cases[i].state);
		memcpy(&k, handshake, handshake_len);
		k.len = handshake_len;
		run(&k, &cases[i].expect, state_names[cases[i].state]);
		leave(state_names[cases[i].state]);
	}
}

enum when { PAST, EXPECTED, FUTURE, BEYOND, WHENS };
static const char *const when_names[] = {"that came before", "that is due", "before its turn", "beyond the window"};

/* What is due, but not the beginning of its message, comes after those before it. */
static const struct expect taken[DATA_KINDS][WHENS] = {
	[WHOLE] = {{.sent = SENT(ACK), .counter = DUPLICATE},
		   {.got = 1},
		   {.sent = SENT(ACK)},
		   {.counter = MALFORMED, .downs = 1}},
	[BEGINNING] = {{.sent = SENT(ACK), .counter = DUPLICATE},
		       {.got = 0},
		       {.sent = SENT(ACK)},
		       {.counter = MALFORMED, .downs = 1}},
	[MIDDLE] = {{.sent = SENT(ACK), .counter = DUPLICATE},
		    {.got = 0},
		    {.sent = SENT(ACK)},
		    {.counter = MALFORMED, .downs = 1}},
	[END] = {{.sent = SENT(ACK), .counter = DUPLICATE},
		 {.got = 1},
		 {.sent = SENT(ACK)},
		 {.counter = MALFORMED, .downs = 1}},
	[FRAGMENT] = {{.sent = SENT(ACK), .counter = DUPLICATE},
		      {.sent = SENT(ACK), .got = 1},
		      {.sent = SENT(ACK), .counter = NO_MEMORY},
		      {.counter = MALFORMED, .downs = 1}},
};

static void fragments_before(enum data data)
{
	for (unsigned i = 0; i < (data == MIDDLE ? 1u : data == END ? 2u : 0u); i++) {
		struct packet k;
		put_head(&k, WIRE_MESSAGE, RIGHT);
		put_data(&k, i ? MIDDLE : BEGINNING, FIRST + i);
		receive(&k);
	}
	sent = 0;
}

Test(transport_states, messages)
{
	char what[160];
	for (unsigned up = 0; up < 2; up++)
		for (unsigned data = 0; data < DATA_KINDS; data++)
			for (unsigned when = 0; when < WHENS; when++) {
				struct packet k;
				enum state state = up ? UP : UNCONFIRMED;
				enter(state);
				snprintf(what, sizeof what, "%s %s in state \"%s\"", data_names[data], when_names[when],
					 state_names[state]);
				if (when == EXPECTED)
					fragments_before((enum data)data);
				uint32_t due = peer->rx_next;
				uint32_t number = when == PAST     ? due - 1
						  : when == FUTURE ? due + 5
						  : when == BEYOND ? due + FAR_TRANSPORT_WINDOW
								   : due;
				put_head(&k, WIRE_MESSAGE, RIGHT);
				put_data(&k, (enum data)data, number);
				run(&k, &taken[data][when], what);
				cr_expect(peer->confirmed, "%s", what);
				leave(what);
			}
}

/* Five packets of end 1 that are not acknowledged. */
static void five_out(void)
{
	for (unsigned n = 0; n < 5; n++) {
		cr_assert_eq(fixture_send(1, fixture.ends[1].up, n, 20), 0);
		queue->base.ops->flush(&queue->base);
	}
}

/* Acknowledgements of what was acknowledged, of what is out, and of what was never sent, with and without bits. */
Test(transport_states, acknowledgements)
{
	static const struct {
		uint32_t step; /* from the oldest that is out */
		uint64_t bits;
		uint32_t una;
		struct expect expect;
	} cases[] = {
		{UINT32_MAX, 0, 0, {0}},
		{UINT32_MAX, UINT64_MAX, 0, {0}},
		{0, 0, 0, {0}},
		{2, 0, 2, {0}},
		{5, 0, 5, {0}},
		{0, 1, 0, {0}},                     /* the second: not yet enough evidence of the first */
		{0, 7, 0, {.sent = SENT(MESSAGE)}}, /* three after the first */
		{0, UINT64_MAX, 0, {.sent = SENT(MESSAGE)}},
		{6, 0, 0, {.counter = MALFORMED}},
		{1000, UINT64_MAX, 0, {.counter = MALFORMED}},
		{0x7fffffff, 0, 0, {.counter = MALFORMED}},
	};
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct packet k;
		char what[32];
		snprintf(what, sizeof what, "case %u", i);
		enter(UP);
		five_out();
		sent = 0;
		put_head(&k, WIRE_ACK, RIGHT);
		k.head.ack = le32_of(FIRST + cases[i].step);
		k.head.ack_bits = le64_of(cases[i].bits);
		run(&k, &cases[i].expect, what);
		cr_expect_eq(peer->una, FIRST + cases[i].una, "%s", what);
		cr_expect_eq(peer->out_n, 5 - cases[i].una, "%s", what);
		leave(what);
	}
}

/* DUPLICATE names what was never sent, was not sent again, is long gone: nothing changes. */
Test(transport_states, twice_of_anything)
{
	enter(UP);
	five_out();
	for (uint32_t i = 0; i < 3000; i += 7) {
		struct packet k;
		put_head(&k, WIRE_ACK, RIGHT);
		k.head.flags = WIRE_DUPLICATE | WIRE_UNACKED;
		k.head.first = le32_of(i * 0x100003u);
		run(&k, &(struct expect){.sent = SENT(MESSAGE)}, "DUPLICATE");
		k.head.first = le32_of(FIRST + i % 9);
		receive(&k);
	}
	cr_assert_eq(states_stats().spurious_retransmits, 0);
	cr_assert_eq(peer->path.reorder, FAR_TRANSPORT_REORDER);
	struct transport_rtt rtt = transport_rtt_of(peer);
	cr_assert_eq(rtt_timeout(&rtt, fixture.now), FAR_TRANSPORT_RTO_NS);
	leave("DUPLICATE");
}

/* ---- without the key ---- */

/* Every control message of a sender that has all but the key, in every state: right tokens, a cookie that was issued
 * now, nonces that answer. Expect nothing to be sent, reported or changed. */
Test(transport_states, nothing_without_the_key)
{
	char what[160];
	states_key = &fixture_key;
	for (unsigned state = 0; state < STATES; state++)
		for (unsigned kind = WIRE_PING; kind < WIRE_KINDS; kind++)
			for (unsigned tag = 0; tag < 3; tag++) {
				struct packet k;
				enter((enum state)state);
				snprintf(what, sizeof what, "%s with tag %u in state \"%s\"", kind_names[kind], tag,
					 state_names[state]);
				build(&k, (enum wire_kind)kind, RIGHT);
				if (tag == 1)
					memset(k.control.tag, 0xa5, sizeof k.control.tag);
				else if (tag == 2) /* of another packet */
					memcpy(k.control.tag, handshake + offsetof(struct wire_control, tag),
					       sizeof k.control.tag);
				struct transport_end was = fixture.ends[1];
				enum transport_state inner = peer ? peer->state : TRANSPORT_FREE;
				receive(&k);
				cr_expect_eq(sent, 0, "%s: sent %#x", what, sent);
				cr_expect(fixture.ends[1].ups == was.ups && fixture.ends[1].downs == was.downs &&
						  fixture.ends[1].fails == was.fails,
					  "%s: reported", what);
				cr_expect(!peer || peer->state == inner, "%s: is in state %d", what, peer->state);
				leave(what);
			}
}
