/* SPDX-License-Identifier: BSD-3-Clause */
/** The next-hop table. Control thread. */
#include "nic/dpdk/nexthop.h"

#include <string.h>

struct hop *hops_find(struct hops *hops, const uint8_t ip[16])
{
	for (unsigned i = 0; i < HOPS_MAX; i++)
		if (hops->of[i].users && memcmp(hops->of[i].ip, ip, sizeof hops->of[i].ip) == 0)
			return &hops->of[i];
	return NULL;
}

struct hop *hops_take(struct hops *hops, const uint8_t ip[16])
{
	struct hop *h = hops_find(hops, ip);
	for (unsigned i = 0; !h && i < HOPS_MAX; i++)
		if (!hops->of[i].users) {
			h = &hops->of[i];
			memcpy(h->ip, ip, sizeof h->ip);
			h->unanswered = 0;
			h->ask_at = 0;
			atomic_store_explicit(&h->mac, 0, memory_order_relaxed);
		}
	if (!h)
		return NULL;
	/* A new user starts resolution afresh. */
	if (hop_is_silent(h)) {
		h->unanswered = 0;
		h->ask_at = 0;
		atomic_store_explicit(&h->mac, 0, memory_order_relaxed);
	}
	h->users++;
	return h;
}

void hop_give(struct hop *h)
{
	h->users--;
}

enum hop_question hop_ask(struct hop *h, uint64_t now, bool busy)
{
	if (!h->users || now < h->ask_at)
		return HOP_ASK_NOBODY;
	bool known = hop_is_known(h) && h->unanswered == 0;
	h->ask_at = now + HOP_ASK_NS;
	if (known && !busy && now < h->heard_at + HOP_IDLE_NS)
		return HOP_ASK_NOBODY; /* confirmed recently, and no packets are sent */
	if (hop_is_silent(h))
		h->ask_at = now + HOP_SILENT_NS;
	else
		h->unanswered++;
	return known ? HOP_ASK_IT : HOP_ASK_ALL;
}

void hop_hear(struct hop *h, const uint8_t *mac, bool replaces, uint64_t now)
{
	uint64_t was = atomic_load_explicit(&h->mac, memory_order_relaxed), is = was;
	if (mac) {
		is = 0;
		memcpy(&is, mac, 6);
	}
	if (is == 0 || (was && is != was && !replaces))
		return;
	atomic_store_explicit(&h->mac, is, memory_order_relaxed);
	h->unanswered = 0;
	h->heard_at = now;
	h->ask_at = now + HOP_ASK_NS;
}

uint64_t hops_deadline(const struct hops *hops)
{
	uint64_t at = UINT64_MAX;
	for (unsigned i = 0; i < HOPS_MAX; i++)
		if (hops->of[i].users && hops->of[i].ask_at < at)
			at = hops->of[i].ask_at;
	return at;
}
