/* SPDX-License-Identifier: BSD-3-Clause */
/** Counts the uses of keys, by a sample. The thread that polls the shard. */
#include "psv_hot.h"

static void halve(struct psv_hot *h)
{
	for (uint32_t s = 0; s < PSV_HOT_SETS; s++)
		for (uint32_t w = 0; w < PSV_HOT_WAYS; w++)
			h->set[s][w].uses /= 2;
	h->counted = 0;
}

static void count(struct psv_hot *h, uint64_t key)
{
	struct psv_hot_key *set = h->set[pst_hash(key) % PSV_HOT_SETS], *least = set;
	for (uint32_t w = 0; w < PSV_HOT_WAYS; w++) {
		if (set[w].uses && set[w].key == key) {
			set[w].uses++;
			return;
		}
		if (set[w].uses < least->uses)
			least = &set[w];
	}
	least->key = key;
	least->uses++;
}

void psv_hot_use(struct psv_hot *h, const uint64_t *keys, uint32_t n)
{
	uint32_t i = h->skip;
	for (; i < n; i += PSV_HOT_SAMPLE) {
		count(h, keys[i]);
		if (++h->counted == PSV_HOT_RECENT)
			halve(h);
	}
	h->skip = i - n;
}

size_t psv_hot_list(const struct psv_hot *h, struct psv_hot_key *out)
{
	size_t n = 0;
	for (uint32_t s = 0; s < PSV_HOT_SETS; s++)
		for (uint32_t w = 0; w < PSV_HOT_WAYS; w++)
			if (h->set[s][w].uses)
				out[n++] = (struct psv_hot_key){h->set[s][w].key, h->set[s][w].uses * PSV_HOT_SAMPLE};
	return n;
}
