/* SPDX-License-Identifier: BSD-3-Clause */
/** The packets of fragments and one-way messages and their work in a pass: malformed ones, turns, sessions that end,
 * packets in any order. The test's thread. */
#include "core/call.h"
#include "core/packet.h"
#include "core/session.h"
#include "rendezvous_fixture.h"

TestSuite(rendezvous, .init = setup, .fini = teardown);

/* What is acknowledged has a length of its own. Expect another one refused, and the session's end requested. */
Test(rendezvous, acknowledgements_of_another_length)
{
	static const uint8_t zeros[sizeof(struct packet_acked) + 1];
	const union packet_head h = {.credit = {.type = PACKET_CREDIT}};
	for (size_t len = 0; len <= sizeof zeros; len++) {
		uint64_t before = dropped();
		put(NIC_PEER, h, zeros, len);
		passes(1);
		cr_assert_eq(dropped() - before, len != sizeof(struct packet_acked), "%zu", len);
		cr_assert_eq(posted(MAIL_PROTOCOL_ERROR), len != sizeof(struct packet_acked), "%zu", len);
		shard->sessions[PEER].protocol_error = false;
	}
}

/* What the peer owes: a batch of acknowledgements, one that was requested, the rest of a message. */
Test(rendezvous, what_a_peer_owes)
{
	bool (*owes)(const struct session *se) = rendezvous_feature.only.session_owes;
	const struct session *se = &shard->sessions[PEER];
	struct rendezvous_peer *p = rendezvous_peer_of(shard, &shard->sessions[PEER]);
	cr_assert_not(owes(se));
	p->oneways_sent = FAR_ONEWAYS_BATCH - 1;
	p->packets_sent = FAR_RENDEZVOUS_BATCH - 1;
	cr_assert_not(owes(se), "it acknowledges in batches");
	p->oneways_sent++;
	cr_assert(owes(se));
	p->oneways_sent = 0;
	p->packets_sent++;
	cr_assert(owes(se));
	p->packets_sent = 0;
	p->credit_requested = true;
	cr_assert(owes(se));
	p->credit_requested = false;
	announce(PACKET_REQUEST, MSG_ECHO, 9, 1, 1, TOTAL);
	passes(1);
	cr_assert(owes(se), "fragments");
	put_about(PACKET_ABORT, 1, 1, 0, 0);
	passes(1);
	cr_assert_not(owes(se));
}

/* The next session with a worker. Expect the record of the one before, cleared but for its place in the list. */
Test(rendezvous, a_record_is_used_again)
{
	struct session *se = &shard->sessions[PEER];
	struct rendezvous_peer *p = rendezvous_peer_of(shard, se);
	announce(PACKET_REQUEST, MSG_ECHO, 9, 1, 5, TOTAL);
	passes(1);
	p->credit_requested = true;
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	cr_assert(posted(MAIL_DETACHED));
	mail(MAIL_PEER_RESTARTED, PEER, NIC_PEER);
	rendezvous_list(shard, p);
	mail(MAIL_PEER_UP, PEER, NIC_PEER);
	cr_assert_eq(rendezvous_peer_of(shard, se), p);
	cr_assert(p->session == se && p->listed && rendezvous_of(shard)->first == p);
	cr_assert(!p->credit_requested && !p->in[1].open && p->in[1].epoch == 0);
	cr_assert(p->queue_tail == &p->queue && p->ready_tail == &p->ready && p->oneways_tail == &p->oneways);
	passes(1);
	cr_assert(!p->listed && !rendezvous_of(shard)->first);
	while (fake_queue_sent(queue, &(union packet_head){0}))
		;
}

enum { PIECES = 4, PIECE = 1000 };

static uint64_t copied(uint32_t worker)
{
	const struct rendezvous_in *in = rendezvous_peer_of(shard, &shard->sessions[worker])->in[0].in;
	return in ? in->copied : (uint64_t)PIECES * PIECE;
}

/* Fragments of two peers are there. Expect one copied in each pass, of each peer by turns. */
Test(rendezvous, peers_take_turns)
{
	static const uint32_t nics[] = {NIC_PEER, NIC_OTHER};
	for (unsigned k = 0; k < 2; k++) {
		union packet_head h = {.rendezvous = {.type = PACKET_RENDEZVOUS, .epoch = 1, .total = PIECES * PIECE}};
		union packet_head message = request(MSG_SILENT, 1, UINT64_MAX);
		message.type = PACKET_ONEWAY;
		put(nics[k], h, &message, sizeof message);
	}
	passes(2);
	for (unsigned i = 0; i < PIECES; i++)
		for (unsigned k = 0; k < 2; k++)
			put(nics[k],
			    (union packet_head){.data = {.type = PACKET_DATA, .epoch = 1, .offset = i * PIECE}}, bytes,
			    PIECE);
	for (unsigned n = 1; n <= 2 * PIECES; n++) {
		passes(1);
		uint64_t a = copied(PEER), b = copied(OTHER);
		cr_assert_eq(a + b, (uint64_t)n * PIECE, "pass %u: %u and %u", n, (unsigned)a, (unsigned)b);
		cr_assert(a <= b + PIECE && b <= a + PIECE, "pass %u: %u and %u", n, (unsigned)a, (unsigned)b);
	}
	cr_assert_eq(ran, 2u);
	while (fake_queue_sent(queue, &(union packet_head){0}))
		;
}

static uint64_t dice;

static uint32_t roll(uint32_t n)
{
	dice = dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(dice >> 33) % n;
}

/* A packet that is nearly right, of any of these types, about what really goes on. */
static void put_anything(void)
{
	struct rendezvous_peer *p = rendezvous_peer_of(shard, &shard->sessions[PEER]);
	unsigned lane = roll(FAR_RENDEZVOUS_LANES + (roll(50) == 0));
	const struct rendezvous_lane *l = &p->in[lane % FAR_RENDEZVOUS_LANES];
	uint32_t epoch = l->epoch + (roll(40) == 0), out_epoch = p->out[lane % FAR_RENDEZVOUS_LANES].epoch;
	const struct rendezvous_out *out = p->out[lane % FAR_RENDEZVOUS_LANES].out;
	uint64_t units = p->packets_acked + roll(4);
	switch (roll(10)) {
	case 0: {
		static const enum packet_type types[] = {PACKET_REQUEST, PACKET_ONEWAY, PACKET_REPLY};
		enum packet_type type = types[roll(3)];
		uint16_t fn = type == PACKET_ONEWAY ? MSG_SILENT : (uint16_t)(MSG_ECHO + roll(4));
		announce_as(request(fn, roll(8), roll(3) ? UINT64_MAX : FAR_MS), type, lane, epoch + 1, 1 + roll(3000));
		break;
	}
	case 1:
	case 2:
	case 3:
		put_data(lane, epoch, l->accepted + (roll(40) == 0), bytes, roll(8) ? roll(600) : roll(40));
		break;
	case 4:
		put_about(PACKET_GRANT, lane, out_epoch, out && roll(8) ? out->total : roll(TOTAL + 10), units);
		break;
	case 5:
		put_about(PACKET_REFUSE, lane, out_epoch, 0, units);
		break;
	case 6:
		put_about(PACKET_ABORT, lane, epoch, 0, 0);
		break;
	case 7:
		put_about(roll(2) ? PACKET_CREDIT : PACKET_CREDIT_REQUEST, 0, 0, p->oneways_acked + roll(3), units);
		break;
	case 8:
		put_cancel(roll(8));
		break;
	default:
		put(NIC_PEER,
		    (union packet_head){.request = {.type = (uint8_t)roll(16),
						    .slot = roll(8),
						    .generation = roll(8) + 1,
						    .flags = (uint8_t)roll(4)}},
		    bytes, roll(100));
	}
}

Test(rendezvous, any_packets_in_any_order)
{
	static struct result r[12];
	for (uint64_t seed = 1; seed <= 60; seed++) {
		dice = seed;
		for (unsigned step = 0; step < 40; step++) {
			put_anything();
			if (roll(4) == 0)
				passes(1);
			if (roll(30) == 0)
				advance(FAR_MS / 2);
			if (roll(10) == 0) {
				struct result *one = &r[roll(12)];
				if (roll(2))
					call_large(one, roll(2) ? FAR_SEC : FAR_MS, 100 + roll(TOTAL - 100));
				else
					call(one, FAR_MS, bytes, 10);
			}
			if (roll(10) == 0)
				oneway(step);
			queue->no_bulk = roll(10) == 0;
		}
		queue->no_bulk = false;
		passes(20);
		mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
		cr_assert(posted(MAIL_DETACHED));
		cr_assert_eq(shard->counters.rendezvous_active, 0u, "seed %llu", (unsigned long long)seed);
		cr_assert_eq(shard->counters.sends_begun, shard->counters.sends_ended, "seed %llu",
			     (unsigned long long)seed);
		for (; kept_n; kept_n--)
			far_deferred_drop(kept[kept_n - 1]);
		passes(1);
		cr_assert_eq(queue->in_held, 0u);
		cr_assert_eq(queue->open_tx, 0u);
		mail(MAIL_PEER_RESTARTED, PEER, NIC_PEER);
		mail(MAIL_PEER_UP, PEER, NIC_PEER);
		shard->sessions[PEER].eager_max = WHOLE;
	}
}
