/* SPDX-License-Identifier: BSD-3-Clause */
/** Channels between the poller of a queue and the control thread: sets of peers, a ring of packets. Either thread. */
#include "transport/mail.h"

#include "transport/port.h"

#include <string.h>

bool transport_peer_set_add(struct transport_peer_set *b, uint32_t i)
{
	uint32_t w = i / 64, n = w / 64;
	/* The word first, then the bits above it. Pairs with transport_peer_set_take(). */
	atomic_fetch_or_explicit(&b->word[w], UINT64_C(1) << i % 64, memory_order_release);
	atomic_fetch_or_explicit(&b->summary[n], UINT64_C(1) << w % 64, memory_order_release);
	return atomic_fetch_or_explicit(&b->any, UINT64_C(1) << n, memory_order_release) == 0;
}

/* Clears the bit above `below`, and sets it again if `below` is not 0: a bit added in between is kept. */
static void clear(_Atomic uint64_t *above, unsigned bit, _Atomic uint64_t *below)
{
	atomic_fetch_and_explicit(above, ~(UINT64_C(1) << bit), memory_order_acq_rel);
	if (atomic_load_explicit(below, memory_order_acquire))
		atomic_fetch_or_explicit(above, UINT64_C(1) << bit, memory_order_relaxed);
}

uint32_t transport_peer_set_take(struct transport_peer_set *b)
{
	for (;;) {
		uint64_t any = atomic_load_explicit(&b->any, memory_order_acquire);
		if (!any)
			return UINT32_MAX;
		uint32_t n = (uint32_t)__builtin_ctzll(any);
		uint64_t summary = atomic_load_explicit(&b->summary[n], memory_order_acquire);
		if (!summary) {
			clear(&b->any, n, &b->summary[n]);
			continue;
		}
		uint32_t in = (uint32_t)__builtin_ctzll(summary), w = n * 64 + in;
		uint64_t word = atomic_load_explicit(&b->word[w], memory_order_acquire);
		if (word) {
			uint32_t bit = (uint32_t)__builtin_ctzll(word);
			atomic_fetch_and_explicit(&b->word[w], ~(UINT64_C(1) << bit), memory_order_acq_rel);
			return w * 64 + bit;
		}
		clear(&b->summary[n], in, &b->word[w]);
	}
}

bool transport_mail_put(struct transport_mailbox *m, const struct transport_port *via, const void *bytes, uint32_t len)
{
	uint32_t at = atomic_load_explicit(&m->written, memory_order_relaxed);
	if (len > TRANSPORT_MAIL_BYTES ||
	    at - atomic_load_explicit(&m->read, memory_order_acquire) == TRANSPORT_MAIL_SLOTS)
		return false;
	struct transport_mail *slot = &m->slots[at % TRANSPORT_MAIL_SLOTS];
	slot->via = via;
	slot->len = len;
	memcpy(slot->bytes, bytes, len);
	atomic_store_explicit(&m->written, at + 1, memory_order_release); /* pairs with transport_mail_get() */
	return true;
}

const struct transport_mail *transport_mail_get(struct transport_mailbox *m)
{
	uint32_t at = atomic_load_explicit(&m->read, memory_order_relaxed);
	if (at == atomic_load_explicit(&m->written, memory_order_acquire))
		return NULL;
	return &m->slots[at % TRANSPORT_MAIL_SLOTS];
}

void transport_mail_done(struct transport_mailbox *m)
{
	uint32_t at = atomic_load_explicit(&m->read, memory_order_relaxed);
	atomic_store_explicit(&m->read, at + 1, memory_order_release); /* pairs with transport_mail_put() */
}
