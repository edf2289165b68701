/* SPDX-License-Identifier: BSD-3-Clause */
#include "link/link_mail.h"

#include <string.h>

bool link_board_set(struct link_board *b, uint32_t i)
{
	/* The word first: whoever takes the summary's bit finds it. Pairs with link_board_take(). */
	atomic_fetch_or_explicit(&b->word[i / 64], UINT64_C(1) << i % 64, memory_order_release);
	return atomic_fetch_or_explicit(&b->summary, UINT64_C(1) << i / 64, memory_order_release) == 0;
}

uint32_t link_board_take(struct link_board *b)
{
	for (;;) {
		uint64_t summary = atomic_load_explicit(&b->summary, memory_order_acquire);
		if (!summary)
			return UINT32_MAX;
		uint32_t w = (uint32_t)__builtin_ctzll(summary);
		uint64_t word = atomic_load_explicit(&b->word[w], memory_order_acquire);
		if (word) {
			uint32_t bit = (uint32_t)__builtin_ctzll(word);
			atomic_fetch_and_explicit(&b->word[w], ~(UINT64_C(1) << bit), memory_order_acq_rel);
			return w * 64 + bit;
		}
		/* Cleared, then looked at once more: a bit that came in between is kept. */
		atomic_fetch_and_explicit(&b->summary, ~(UINT64_C(1) << w), memory_order_acq_rel);
		if (atomic_load_explicit(&b->word[w], memory_order_acquire))
			atomic_fetch_or_explicit(&b->summary, UINT64_C(1) << w, memory_order_relaxed);
	}
}

bool link_mail_put(struct link_mailbox *m, const void *bytes, uint32_t len)
{
	uint32_t at = atomic_load_explicit(&m->written, memory_order_relaxed);
	if (len > LINK_MAIL_BYTES || at - atomic_load_explicit(&m->read, memory_order_acquire) == LINK_MAIL_SLOTS)
		return false;
	struct link_mail *slot = &m->slots[at % LINK_MAIL_SLOTS];
	slot->len = len;
	memcpy(slot->bytes, bytes, len);
	atomic_store_explicit(&m->written, at + 1, memory_order_release); /* pairs with link_mail_get() */
	return true;
}

const struct link_mail *link_mail_get(struct link_mailbox *m)
{
	uint32_t at = atomic_load_explicit(&m->read, memory_order_relaxed);
	if (at == atomic_load_explicit(&m->written, memory_order_acquire))
		return NULL;
	return &m->slots[at % LINK_MAIL_SLOTS];
}

void link_mail_done(struct link_mailbox *m)
{
	uint32_t at = atomic_load_explicit(&m->read, memory_order_relaxed);
	atomic_store_explicit(&m->read, at + 1, memory_order_release); /* pairs with link_mail_put() */
}
