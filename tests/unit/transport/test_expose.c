/* SPDX-License-Identifier: BSD-3-Clause */
/** The sender of messages that the other side reads where they lie: exposed or not, announced, withdrawn. The test's
 * thread. */
#include "onesided_fixture.h"
#include "transport/expose.h"
#include "transport/read.h"
#include "transport/wire.h"

#include <errno.h>

TestSuite(transport_expose, .init = begin, .fini = fixture_fini);

Test(transport_expose, one_side_has_none)
{
	for (unsigned without = 1; without <= 3; without++) {
		begin();
		fake_bulk.without = without;
		fixture_two(&at_0, &at_1);
		cr_assert(fixture_stream(0, at_0, 1, 3, len_long, 3000));
		cr_assert_eq(fake_bulk.exposes, 0);
		nothing_left();
		fixture_fini();
	}
}

Test(transport_expose, not_exposed)
{
	static const int errors[] = {-EAGAIN, -ENOMEM, -EOPNOTSUPP, -EPIPE};
	for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++) {
		begin();
		fake_bulk.expose_error = errors[i];
		fixture_two(&at_0, &at_1);
		cr_assert(fixture_stream(0, at_0, 1, 3, len_long, 3000));
		cr_assert_eq(fake_bulk.reads, 0);
		nothing_left();
		fixture_fini();
	}
}

/* The driver takes it, and says nothing more. Small ones pass meanwhile. */
Test(transport_expose, never_exposed)
{
	fake_bulk.no_exposed = true;
	fixture_two(&at_0, &at_1);
	cr_assert(fixture_stream(0, at_0, 1, 3, len_long, 5000));
	cr_assert(fake_bulk.exposes == 3 && fake_bulk.reads == 0);
	nothing_left();
}

static unsigned lost, keyed;

static bool lose_first(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	const struct wire_message *h = (const struct wire_message *)(void *)bytes;
	if (from != 0 || h->kind != WIRE_MESSAGE || !(h->lane_phase & WIRE_EXPOSED))
		return true;
	keyed++;
	return lost == 0 || lost-- == 0;
}

/* The first packet sent again has its key, too. */
Test(transport_expose, announced_again)
{
	fixture.fabric.hook = lose_first;
	lost = 2;
	fixture_two(&at_0, &at_1);
	cr_assert(fixture_stream(0, at_0, 1, 1, len_long, 3000));
	cr_assert_geq(keyed, 3);
	cr_assert_geq(fake_bulk.bytes, LONG - 1400 - TRANSPORT_TAIL_BYTES);
	nothing_left();
}

/* The first packet is lost, and its connection then: sent again it has no key. */
static bool lose_and_break(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	if (lose_first(ctx, from, to, queue, bytes, len))
		return true;
	fake_bulk_break();
	return false;
}

Test(transport_expose, announced_in_vain)
{
	fixture.fabric.hook = lose_and_break;
	lost = 1;
	fixture_two(&at_0, &at_1);
	cr_assert(fixture_stream(0, at_0, 1, 1, len_long, 3000));
	cr_assert(keyed == 1 && fake_bulk.reads == 0);
	nothing_left();
}
