/* SPDX-License-Identifier: BSD-3-Clause */
/** Next hops by a clock of the test's own: when they are solicited, and when they are given up. The test's thread. */
#include "nic/dpdk/nexthop.h"

#include <criterion/criterion.h>
#include <string.h>

static struct nexthops nexthops;
static const uint8_t ip[16] = {10, 8, 0, 9}, mac[6] = {2, 0, 0, 0, 0, 9}, other[6] = {2, 0, 0, 0, 0, 8};
static const uint64_t start = UINT64_C(5000000000);

static bool lies_at(const struct nexthop *h, const uint8_t *at)
{
	uint64_t is = atomic_load(&h->mac), want = 0;
	memcpy(&want, at, 6);
	return is == want;
}

static struct nexthop *known(void)
{
	struct nexthop *h = nexthops_get(&nexthops, ip);
	cr_assert_eq(nexthop_solicit_due(h, start, false), NEXTHOP_SOLICIT_GROUP);
	nexthop_confirm(h, mac, true, start);
	cr_assert(nexthop_is_resolved(h) && lies_at(h, mac));
	return h;
}

Test(nexthop, table)
{
	struct nexthop *h = nexthops_get(&nexthops, ip);
	cr_assert_eq(nexthops_get(&nexthops, ip), h, "one for all that use it");
	for (unsigned i = 1; i < NEXTHOPS_MAX; i++)
		cr_assert(nexthops_get(&nexthops, (const uint8_t[16]){10, 9, 0, (uint8_t)i}));
	cr_assert_null(nexthops_get(&nexthops, (const uint8_t[16]){10, 9, 1, 0}), "no more of them");
	cr_assert_eq(nexthops_find(&nexthops, ip), h);
	nexthop_put(h);
	cr_assert_eq(nexthops_find(&nexthops, ip), h, "somebody uses it still");
	nexthop_put(h);
	cr_assert_null(nexthops_find(&nexthops, ip));
	cr_assert_eq(nexthops_get(&nexthops, (const uint8_t[16]){10, 9, 1, 0}), h, "its place is taken again");
}

Test(nexthop, nobody_answers)
{
	struct nexthop *h = nexthops_get(&nexthops, ip);
	uint64_t now = start;
	for (unsigned i = 0; i < NEXTHOP_SOLICITS_MAX; i++, now += NEXTHOP_SOLICIT_NS) {
		cr_assert_not(nexthop_is_unreachable(h));
		cr_assert_eq(nexthop_solicit_due(h, now, true), NEXTHOP_SOLICIT_GROUP);
		cr_assert_eq(nexthop_solicit_due(h, now + NEXTHOP_SOLICIT_NS - 1, true), NEXTHOP_SOLICIT_NONE);
	}
	cr_assert(nexthop_is_unreachable(h));
	cr_assert_eq(nexthop_solicit_due(h, now, true), NEXTHOP_SOLICIT_GROUP, "it may come back");
	cr_assert_eq(nexthops_deadline(&nexthops), now + NEXTHOP_UNREACHABLE_NS, "but it is solicited slowly");
	cr_assert_eq(h->unanswered, NEXTHOP_SOLICITS_MAX);
	nexthop_confirm(h, mac, true, now);
	cr_assert(!nexthop_is_unreachable(h) && lies_at(h, mac));
}

Test(nexthop, is_asked_while_used)
{
	struct nexthop *h = known();
	uint64_t now = start + NEXTHOP_SOLICIT_NS;
	cr_assert_eq(nexthop_solicit_due(h, now, true), NEXTHOP_SOLICIT_UNICAST);
	nexthop_confirm(h, NULL, true, now);
	cr_assert(lies_at(h, mac), "it is where it was");
	now += NEXTHOP_SOLICIT_NS;
	cr_assert_eq(nexthop_solicit_due(h, now, false), NEXTHOP_SOLICIT_NONE, "nothing is sent");
	now = start + NEXTHOP_SOLICIT_NS + NEXTHOP_IDLE_NS;
	cr_assert_eq(nexthop_solicit_due(h, now, false), NEXTHOP_SOLICIT_UNICAST);
	cr_assert_eq(nexthop_solicit_due(h, now + NEXTHOP_SOLICIT_NS, false), NEXTHOP_SOLICIT_GROUP,
		     "it does not answer there");
	nexthop_confirm(h, other, true, now);
	cr_assert(lies_at(h, other) && h->unanswered == 0);
	nexthop_put(h);
	cr_assert_eq(nexthop_solicit_due(h, now + NEXTHOP_IDLE_NS, true), NEXTHOP_SOLICIT_NONE, "nobody uses it");
	cr_assert_eq(nexthops_deadline(&nexthops), UINT64_MAX);
}

Test(nexthop, whom_it_believes)
{
	struct nexthop *h = nexthops_get(&nexthops, ip);
	nexthop_confirm(h, NULL, true, start);
	cr_assert_not(nexthop_is_resolved(h), "a word without an address, when none is known");
	nexthop_confirm(h, mac, false, start);
	cr_assert(lies_at(h, mac), "the first is believed");
	nexthop_confirm(h, other, false, start);
	cr_assert(lies_at(h, mac), "another only if it says that it replaces it");
	nexthop_confirm(h, other, true, start);
	cr_assert(lies_at(h, other));
}

Test(nexthop, who_comes_anew_asks_a_silent_one)
{
	struct nexthop *h = known();
	uint64_t now = start;
	for (unsigned i = 0; i <= NEXTHOP_SOLICITS_MAX + 1; i++)
		nexthop_solicit_due(h, now += NEXTHOP_SOLICIT_NS, true);
	cr_assert(nexthop_is_unreachable(h) && nexthop_is_resolved(h));
	cr_assert_eq(nexthops_get(&nexthops, ip), h);
	cr_assert(!nexthop_is_unreachable(h) && !nexthop_is_resolved(h));
	cr_assert_eq(nexthop_solicit_due(h, now, true), NEXTHOP_SOLICIT_GROUP);
}
