/* SPDX-License-Identifier: BSD-3-Clause */
/** Bodies that are sent from where they lie, and go where the engine wants them: memory is let go of when nothing reads
 * or writes it any more, whatever becomes of the message. The test's thread. */
#include "fake_bulk.h"
#include "memory/buf.h"
#include "transport/port.h"
#include "transport/queue.h"
#include "transport/read.h"
#include "transport/wire.h"
#include "transport_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

enum { LONG = 1 << 20, MANY = 6 };

static uint32_t at_0, at_1;
static struct far_buf *owner;
static alignas(64) uint8_t bodies[MANY][LONG];
/* Where messages go that end 1 has a place for. */
static struct far_buf *room;
static unsigned allocs, given, refuse_from;
static uint8_t order; /* of what is sent */
static unsigned lost;

static void begin(void)
{
	memset(&fake_bulk, 0, sizeof fake_bulk);
	memset(bodies, 0, sizeof bodies);
	fake_bulk.seed = 1;
	fixture_init();
	fixture.fabric.crc = true;
	owner = buf_alloc(64);
	room = NULL;
	allocs = given = lost = 0;
	order = NIC_ORDER_ALL;
	refuse_from = UINT32_MAX;
}

static void end(void)
{
	fixture_fini();
	cr_assert_eq(owner->refs, 1u, "%u references of zero-copy memory were left", owner->refs - 1);
	buf_unref(owner);
	cr_assert(!room || room->refs == 1u);
	buf_unref(room);
}

TestSuite(transport_zero_copy, .init = begin, .fini = end);

static struct transport_queue *transport_of(unsigned e)
{
	return (struct transport_queue *)fixture.ends[e].q;
}

/* Message `seq`, from bodies[seq]. */
static int send_zero_copy(unsigned e, uint32_t peer, unsigned seq, uint64_t len)
{
	struct nic_queue *q = fixture.ends[e].q;
	struct nic_tx tx;
	int error = q->ops->tx_zero_copy(q, peer, bodies[seq], len, owner, &tx);
	if (error)
		return error;
	cr_assert(tx.body == bodies[seq] && tx.body_len == len);
	fixture_fill(&tx, seq, len);
	tx.order = order;
	error = q->ops->tx_commit(q, &tx);
	q->ops->flush(q);
	return error;
}

static bool came(unsigned e, unsigned n, unsigned turns)
{
	for (; turns && fixture.ends[e].got < n && !fixture.ends[e].bad; turns--)
		fixture_turn();
	return fixture.ends[e].got == n && !fixture.ends[e].bad;
}

static bool let_go(unsigned turns)
{
	while (turns-- && owner->refs > 1)
		fixture_turn();
	return owner->refs == 1;
}

static bool place(void *ctx, uint32_t peer, const uint8_t *head, uint64_t len, struct nic_placement *out)
{
	uint64_t seq;
	cr_assert(ctx == &room && peer == at_1 && len == LONG);
	memcpy(&seq, head, sizeof seq);
	allocs++;
	if (seq >= refuse_from)
		return false;
	given++;
	buf_ref(room);
	*out = (struct nic_placement){(uint8_t *)buf_data(room) + seq * LONG, room};
	return true;
}

static void make_room(void)
{
	room = buf_alloc((size_t)MANY * LONG);
	cr_assert_not_null(room);
	memset(buf_data(room), 0, (size_t)MANY * LONG);
	fixture.ends[1].q->ops->set_placement(fixture.ends[1].q, place, &room);
}

static bool is_placed(unsigned seq)
{
	return memcmp((uint8_t *)buf_data(room) + (size_t)seq * LONG, bodies[seq], LONG) == 0;
}

Test(transport_zero_copy, kept_until_it_was_acknowledged)
{
	fixture_two(&at_0, &at_1);
	uint32_t before = transport_of(0)->carved;
	cr_assert_eq(send_zero_copy(0, at_0, 0, LONG), 0);
	cr_assert_eq(owner->refs, 2u);
	cr_assert(came(1, 1, 5000));
	cr_assert(let_go(200));
	for (unsigned i = 1; i < MANY; i++)
		cr_assert_eq(send_zero_copy(0, at_0, i, LONG), 0);
	cr_assert_gt(owner->refs, 1u);
	cr_assert(came(1, MANY, 20000) && let_go(200));
	cr_assert_leq(transport_of(0)->carved, before + MANY);
}

/* What is sent again is read again: where packets are lost it stays longer. */
Test(transport_zero_copy, bad_network)
{
	for (unsigned seed = 1; seed <= 4; seed++) {
		fixture.fabric.crc = false;
		fixture.fabric.seed = seed;
		fixture.fabric.drop = fixture.fabric.overtake = 50;
		fixture.fabric.repeat = fixture.fabric.damage = 20;
		if (seed > 2) {
			fixture.fabric.dress = fake_bulk_dress;
			fake_bulk.fail_of = 200;
		}
		fixture_two(&at_0, &at_1);
		for (unsigned i = 0; i < MANY; i++)
			cr_assert_eq(send_zero_copy(0, at_0, i, LONG - i * 1000), 0);
		cr_assert(came(1, MANY, 200000), "seed %u", seed);
		cr_assert_eq(fixture.ends[1].got_bytes, (uint64_t)MANY * LONG - 15 * 1000);
		cr_assert(let_go(2000));
		end();
		begin();
	}
}

Test(transport_zero_copy, refused)
{
	fixture_two(&at_0, &at_1);
	struct nic_queue *q = fixture.ends[0].q;
	struct nic_tx tx;
	cr_assert_eq(q->ops->tx_zero_copy(q, 99, bodies[0], LONG, owner, &tx), -EPIPE);
	cr_assert_eq(q->ops->tx_zero_copy(q, at_0, bodies[0], q->ops->tx_bytes_max(q, at_0) + 1, owner, &tx),
		     -EMSGSIZE);
	cr_assert_eq(owner->refs, 1u);
	cr_assert_eq(q->ops->tx_zero_copy(q, at_0, bodies[0], LONG, owner, &tx), 0);
	q->ops->tx_cancel(q, &tx);
	cr_assert_eq(owner->refs, 1u);
	/* It counts as what is copied does: nobody sends without a bound. */
	unsigned n = 0;
	int error;
	struct nic_tx open[64];
	while ((error = q->ops->tx_zero_copy(q, at_0, bodies[0], 8 * LONG, owner, &open[n])) == 0)
		n++;
	cr_assert(error == -ENOBUFS && n == FAR_TRANSPORT_OUT_BYTES / (8 * LONG), "%u: %d", n, error);
	while (n)
		q->ops->tx_cancel(q, &open[--n]);
	for (n = 0; n < FAR_TRANSPORT_SLOTS && fixture_send(0, at_0, n, 8) == 0; n++)
		;
	cr_assert_eq(q->ops->tx_zero_copy(q, at_0, bodies[0], LONG, owner, &tx), -EAGAIN);
	cr_assert_eq(owner->refs, 1u);
}

/* A queue to itself hands the memory up as it is. */
Test(transport_zero_copy, to_itself)
{
	end_open(0, 1);
	fixture_pair(0, 0, &at_0, &at_1);
	cr_assert_eq(send_zero_copy(0, at_0, 0, LONG), 0);
	cr_assert(came(0, 1, 100) && let_go(10));
}

/* It is kept beyond the end of that session, whose place another one takes: that one owes nothing for it. */
Test(transport_zero_copy, to_itself_and_kept)
{
	struct nic_pkt pkt = {.cookie = 0};
	uint32_t before, ignored;
	end_open(0, 1);
	end_open(1, 1);
	fixture_pair(0, 0, &before, &at_1);
	struct nic_queue *q = fixture.ends[0].q;
	cr_assert_eq(send_zero_copy(0, before, 0, LONG), 0);
	cr_assert(q->ops->recv(q, &pkt, 1) == 1 && pkt.cookie);
	q->ops->detach(q, before);
	fixture.ends[0].port->ops->drop(fixture.ends[0].port, before);
	for (unsigned i = 0; i < 10; i++)
		fixture_turn();
	fixture_pair(0, 1, &at_0, &ignored);
	cr_assert_eq(at_0, before);
	q->ops->release(q, pkt.peer, pkt.cookie);
	cr_assert_eq(transport_of(0)->peers[at_0]->out_bytes, 0);
	cr_assert_eq(send_zero_copy(0, at_0, 1, LONG), 0);
	fixture.ends[1].got = 1;
	cr_assert(came(1, 2, 5000) && let_go(10));
}

Test(transport_zero_copy, the_peer_goes)
{
	for (unsigned bulk = 0; bulk < 2; bulk++) {
		fixture.fabric.dress = bulk ? fake_bulk_dress : NULL;
		fixture_two(&at_0, &at_1);
		for (unsigned i = 0; i < MANY; i++)
			cr_assert_eq(send_zero_copy(0, at_0, i, LONG), 0);
		for (unsigned i = 0; i < 4; i++)
			fixture_turn();
		cr_assert_gt(owner->refs, 1u);
		unsigned exposed = fake_bulk.exposes - fake_bulk.withdrawn;
		cr_assert_eq(exposed > 0, bulk == 1);
		fixture.ends[0].q->ops->detach(fixture.ends[0].q, at_0);
		/* Of what devices may still read, until they say that they do not. */
		cr_assert_eq(owner->refs, 1u + exposed);
		cr_assert(let_go(100));
		end();
		begin();
	}
}

/* Read where it lies, whatever bulk is worth while otherwise: it is a part of something larger. */
Test(transport_zero_copy, read_from_there)
{
	fixture.fabric.dress = fake_bulk_dress;
	fixture_two(&at_0, &at_1);
	transport_of(0)->port->lower_caps.bulk_bytes_min = 4 * LONG;
	cr_assert_eq(fixture_send(0, at_0, 0, LONG), 0);
	cr_assert(came(1, 1, 5000));
	cr_assert_eq(fake_bulk.exposes, 0);
	cr_assert_eq(send_zero_copy(0, at_0, 1, LONG), 0);
	fake_bulk.late = 50;
	bool seen = false;
	for (unsigned i = 0; i < 5000 && fixture.ends[1].got < 2; i++) {
		fixture_turn();
		for (unsigned k = 0; k < FAKE_BULK_OPS; k++)
			seen |= fake_bulk.op[k].state == FAKE_BOUND && fake_bulk.op[k].at == bodies[1];
	}
	cr_assert(came(1, 2, 1) && seen);
	cr_assert_geq(fake_bulk.bytes, LONG - 1400 - TRANSPORT_TAIL_BYTES);
	cr_assert_gt(owner->refs, 1u, "it was given back before the device had let go of it");
	cr_assert(let_go(200));
	cr_assert_eq(fake_bulk.withdrawn, 1);
}

/* ---- where messages go ---- */

Test(transport_zero_copy, placed)
{
	for (unsigned bulk = 0; bulk < 2; bulk++) {
		fixture.fabric.dress = bulk ? fake_bulk_dress : NULL;
		fixture_two(&at_0, &at_1);
		make_room();
		refuse_from = MANY - 1;
		for (unsigned i = 0; i < MANY; i++)
			cr_assert_eq(send_zero_copy(0, at_0, i, LONG), 0);
		cr_assert(came(1, MANY, 20000) && let_go(200));
		cr_assert(allocs == MANY && given == MANY - 1);
		for (unsigned i = 0; i < MANY; i++)
			cr_assert_eq(is_placed(i), i < MANY - 1, "message %u", i);
		cr_assert_eq(bulk == 1, fake_bulk.reads > 0);
		end();
		begin();
	}
}

/* One that comes before its turn goes anywhere, since it may be forgotten and come again. */
Test(transport_zero_copy, placed_in_a_bad_network)
{
	unsigned all = 0;
	for (unsigned seed = 1; seed <= 4; seed++) {
		fixture.fabric.crc = false;
		fixture.fabric.seed = seed;
		fixture.fabric.drop = fixture.fabric.overtake = 80;
		fixture.fabric.repeat = fixture.fabric.damage = 20;
		fixture.fabric.dress = seed > 2 ? fake_bulk_dress : NULL;
		fake_bulk.fail_of = 300;
		fixture_two(&at_0, &at_1);
		make_room();
		for (unsigned i = 0; i < MANY; i++)
			cr_assert_eq(send_zero_copy(0, at_0, i, LONG), 0);
		cr_assert(came(1, MANY, 200000) && let_go(2000), "seed %u", seed);
		unsigned n = 0;
		for (unsigned i = 0; i < MANY; i++)
			n += is_placed(i);
		cr_assert(n == given && allocs == given, "each is allocated once and not moved");
		all += n;
		end();
		begin();
	}
	cr_assert(all > 0 && all <= 4 * MANY);
}

static bool lose_one(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	const struct wire_message *h = (const struct wire_message *)(void *)bytes;
	return from != 0 || h->kind != WIRE_MESSAGE || lost++;
}

/* The first packet of all is lost: both messages are begun before their turn, which they may have to give up again. */
Test(transport_zero_copy, before_its_turn)
{
	fixture_two(&at_0, &at_1);
	make_room();
	order = NIC_ORDER_NONE;
	fixture.fabric.hook = lose_one;
	cr_assert_eq(send_zero_copy(0, at_0, 0, LONG), 0);
	cr_assert_eq(send_zero_copy(0, at_0, 1, LONG), 0);
	for (unsigned i = 0; i < 20000 && fixture.ends[1].got < 2; i++)
		fixture_turn();
	cr_assert(fixture.ends[1].got == 2 && let_go(200));
	cr_assert(allocs == 0 && !is_placed(0) && !is_placed(1), "%u", allocs);
	order = NIC_ORDER_ALL;
	cr_assert_eq(send_zero_copy(0, at_0, 2, LONG), 0);
	for (unsigned i = 0; i < 20000 && fixture.ends[1].got < 3; i++)
		fixture_turn();
	cr_assert(allocs == 1 && is_placed(2) && let_go(200));
}

/* No memory is allocated for a message that has no room yet: nothing would arrive there. */
Test(transport_zero_copy, no_room_at_first)
{
	fixture_two(&at_0, &at_1);
	make_room();
	uint32_t before = transport_of(1)->in_bytes;
	transport_of(1)->in_bytes = FAR_TRANSPORT_IN_BYTES;
	cr_assert_eq(send_zero_copy(0, at_0, 0, LONG), 0);
	for (unsigned i = 0; i < 20; i++)
		fixture_turn();
	cr_assert(allocs == 0 && transport_of(1)->no_memory > 0);
	transport_of(1)->in_bytes = before;
	cr_assert(came(1, 1, 20000) && let_go(200));
	cr_assert(allocs == 1 && is_placed(0));
}

/* The memory stays as long as a device writes there, though nobody waits for the message any more. */
Test(transport_zero_copy, the_sender_goes)
{
	fixture.fabric.dress = fake_bulk_dress;
	fake_bulk.hold = true;
	fixture_two(&at_0, &at_1);
	make_room();
	cr_assert_eq(send_zero_copy(0, at_0, 0, LONG), 0);
	for (unsigned i = 0; i < 50; i++)
		fixture_turn();
	cr_assert_eq(given, 1);
	cr_assert_geq(fake_bulk.reads, 1);
	fixture.ends[1].q->ops->detach(fixture.ends[1].q, at_1);
	cr_assert_gt(room->refs, 1u);
	fake_bulk.hold = false;
	for (unsigned i = 0; i < 50; i++)
		fixture_turn();
	cr_assert_eq(room->refs, 1u);
	fixture.ends[0].q->ops->detach(fixture.ends[0].q, at_0);
	cr_assert(let_go(100));
}
