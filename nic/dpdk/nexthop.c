/* SPDX-License-Identifier: BSD-3-Clause */
/** The next-hop table. Control thread. */
#include "nic/dpdk/nexthop.h"

#include <string.h>

struct nexthop *nexthops_find(struct nexthops *nexthops, const uint8_t ip[16])
{
	for (unsigned i = 0; i < NEXTHOPS_MAX; i++)
		if (nexthops->of[i].users && memcmp(nexthops->of[i].ip, ip, sizeof nexthops->of[i].ip) == 0)
			return &nexthops->of[i];
	return NULL;
}

struct nexthop *nexthops_get(struct nexthops *nexthops, const uint8_t ip[16])
{
	struct nexthop *h = nexthops_find(nexthops, ip);
	for (unsigned i = 0; !h && i < NEXTHOPS_MAX; i++)
		if (!nexthops->of[i].users) {
			h = &nexthops->of[i];
			memcpy(h->ip, ip, sizeof h->ip);
			h->unanswered = 0;
			h->solicit_at = 0;
			atomic_store_explicit(&h->mac, 0, memory_order_relaxed);
		}
	if (!h)
		return NULL;
	/* A new user starts resolution afresh. */
	if (nexthop_is_unreachable(h)) {
		h->unanswered = 0;
		h->solicit_at = 0;
		atomic_store_explicit(&h->mac, 0, memory_order_relaxed);
	}
	h->users++;
	return h;
}

void nexthop_put(struct nexthop *h)
{
	h->users--;
}

enum nexthop_solicit nexthop_solicit_due(struct nexthop *h, uint64_t now, bool busy)
{
	if (!h->users || now < h->solicit_at)
		return NEXTHOP_SOLICIT_NONE;
	bool known = nexthop_is_resolved(h) && h->unanswered == 0;
	h->solicit_at = now + NEXTHOP_SOLICIT_NS;
	if (known && !busy && now < h->confirmed_at + NEXTHOP_IDLE_NS)
		return NEXTHOP_SOLICIT_NONE; /* confirmed recently, and no packets are sent */
	if (nexthop_is_unreachable(h))
		h->solicit_at = now + NEXTHOP_UNREACHABLE_NS;
	else
		h->unanswered++;
	return known ? NEXTHOP_SOLICIT_UNICAST : NEXTHOP_SOLICIT_GROUP;
}

void nexthop_confirm(struct nexthop *h, const uint8_t *mac, bool override, uint64_t now)
{
	uint64_t was = atomic_load_explicit(&h->mac, memory_order_relaxed), is = was;
	if (mac) {
		is = 0;
		memcpy(&is, mac, 6);
	}
	if (is == 0 || (was && is != was && !override))
		return;
	atomic_store_explicit(&h->mac, is, memory_order_relaxed);
	h->unanswered = 0;
	h->confirmed_at = now;
	h->solicit_at = now + NEXTHOP_SOLICIT_NS;
}

uint64_t nexthops_deadline(const struct nexthops *nexthops)
{
	uint64_t at = UINT64_MAX;
	for (unsigned i = 0; i < NEXTHOPS_MAX; i++)
		if (nexthops->of[i].users && nexthops->of[i].solicit_at < at)
			at = nexthops->of[i].solicit_at;
	return at;
}
