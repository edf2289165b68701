/* SPDX-License-Identifier: BSD-3-Clause */
/** Next hops by a clock of the test's own: when they are asked, and when they are given up. */
#include "nic/dpdk/nexthop.h"

#include <criterion/criterion.h>
#include <string.h>

static struct hops hops;
static const uint8_t ip[16] = {10, 8, 0, 9}, mac[6] = {2, 0, 0, 0, 0, 9}, other[6] = {2, 0, 0, 0, 0, 8};
static const uint64_t start = UINT64_C(5000000000);

static bool lies_at(const struct hop *h, const uint8_t *at)
{
	uint64_t is = atomic_load(&h->mac), want = 0;
	memcpy(&want, at, 6);
	return is == want;
}

static struct hop *known(void)
{
	struct hop *h = hops_take(&hops, ip);
	cr_assert_eq(hop_ask(h, start, false), HOP_ASK_ALL);
	hop_hear(h, mac, true, start);
	cr_assert(hop_is_known(h) && lies_at(h, mac));
	return h;
}

Test(hop, table)
{
	struct hop *h = hops_take(&hops, ip);
	cr_assert_eq(hops_take(&hops, ip), h, "one for all that use it");
	for (unsigned i = 1; i < HOPS_MAX; i++)
		cr_assert(hops_take(&hops, (const uint8_t[16]){10, 9, 0, (uint8_t)i}));
	cr_assert_null(hops_take(&hops, (const uint8_t[16]){10, 9, 1, 0}), "no more of them");
	cr_assert_eq(hops_find(&hops, ip), h);
	hop_give(h);
	cr_assert_eq(hops_find(&hops, ip), h, "somebody uses it still");
	hop_give(h);
	cr_assert_null(hops_find(&hops, ip));
	cr_assert_eq(hops_take(&hops, (const uint8_t[16]){10, 9, 1, 0}), h, "its place is taken again");
}

Test(hop, nobody_answers)
{
	struct hop *h = hops_take(&hops, ip);
	uint64_t now = start;
	for (unsigned i = 0; i < HOP_TRIES; i++, now += HOP_ASK_NS) {
		cr_assert_not(hop_is_silent(h));
		cr_assert_eq(hop_ask(h, now, true), HOP_ASK_ALL);
		cr_assert_eq(hop_ask(h, now + HOP_ASK_NS - 1, true), HOP_ASK_NOBODY);
	}
	cr_assert(hop_is_silent(h));
	cr_assert_eq(hop_ask(h, now, true), HOP_ASK_ALL, "it may come back");
	cr_assert_eq(hops_deadline(&hops), now + HOP_SILENT_NS, "but it is asked slowly");
	cr_assert_eq(h->unanswered, HOP_TRIES);
	hop_hear(h, mac, true, now);
	cr_assert(!hop_is_silent(h) && lies_at(h, mac));
}

Test(hop, is_asked_while_used)
{
	struct hop *h = known();
	uint64_t now = start + HOP_ASK_NS;
	cr_assert_eq(hop_ask(h, now, true), HOP_ASK_IT);
	hop_hear(h, NULL, true, now);
	cr_assert(lies_at(h, mac), "it is where it was");
	now += HOP_ASK_NS;
	cr_assert_eq(hop_ask(h, now, false), HOP_ASK_NOBODY, "nothing is sent");
	now = start + HOP_ASK_NS + HOP_IDLE_NS;
	cr_assert_eq(hop_ask(h, now, false), HOP_ASK_IT);
	cr_assert_eq(hop_ask(h, now + HOP_ASK_NS, false), HOP_ASK_ALL, "it does not answer there");
	hop_hear(h, other, true, now);
	cr_assert(lies_at(h, other) && h->unanswered == 0);
	hop_give(h);
	cr_assert_eq(hop_ask(h, now + HOP_IDLE_NS, true), HOP_ASK_NOBODY, "nobody uses it");
	cr_assert_eq(hops_deadline(&hops), UINT64_MAX);
}

Test(hop, whom_it_believes)
{
	struct hop *h = hops_take(&hops, ip);
	hop_hear(h, NULL, true, start);
	cr_assert_not(hop_is_known(h), "a word without an address, when none is known");
	hop_hear(h, mac, false, start);
	cr_assert(lies_at(h, mac), "the first is believed");
	hop_hear(h, other, false, start);
	cr_assert(lies_at(h, mac), "another only if it says that it replaces it");
	hop_hear(h, other, true, start);
	cr_assert(lies_at(h, other));
}

Test(hop, who_comes_anew_asks_a_silent_one)
{
	struct hop *h = known();
	uint64_t now = start;
	for (unsigned i = 0; i <= HOP_TRIES + 1; i++)
		hop_ask(h, now += HOP_ASK_NS, true);
	cr_assert(hop_is_silent(h) && hop_is_known(h));
	cr_assert_eq(hops_take(&hops, ip), h);
	cr_assert(!hop_is_silent(h) && !hop_is_known(h));
	cr_assert_eq(hop_ask(h, now, true), HOP_ASK_ALL);
}
