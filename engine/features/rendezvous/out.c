/* SPDX-License-Identifier: BSD-3-Clause */
/** The record of a message that is sent in fragments: its parts, who may read them, its end. Any thread. */
#include "features/rendezvous/rendezvous.h"

#include "memory/heads.h"

#include <string.h>

struct rendezvous_out *rendezvous_out_new(void)
{
	struct far_buf *self = buf_alloc(sizeof(struct rendezvous_out));
	if (!self)
		return NULL;
	struct rendezvous_out *o = rendezvous_out_in(self);
	memset(o, 0, sizeof *o);
	o->self = self;
	atomic_store_explicit(&o->refs, 1, memory_order_relaxed);
	return o;
}

struct rendezvous_out *rendezvous_out_alloc(size_t len, void **at)
{
	struct rendezvous_out *o = rendezvous_out_new();
	if (!o)
		return NULL;
	o->copy = buf_alloc(len);
	if (!o->copy) {
		rendezvous_out_unref(o);
		return NULL;
	}
	*at = buf_data(o->copy);
	o->parts[0] = (struct far_part){*at, len};
	o->parts_n = 1;
	o->total = len;
	return o;
}

void rendezvous_out_ref(struct rendezvous_out *o)
{
	atomic_fetch_add_explicit(&o->refs, 1, memory_order_relaxed);
}

/* Before the parts may change. Pairs with the receiver, which reads the parts and then the offer. */
static void withdraw(struct rendezvous_out *o)
{
	atomic_store_explicit(&o->offer.tag, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
}

void rendezvous_out_unref(struct rendezvous_out *o)
{
	if (atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) != 1)
		return;
	withdraw(o);
	if (o->release)
		o->release(o->release_user);
	if (o->piece)
		head_give(o->piece);
	buf_unref(o->copy);
	buf_unref(o->tlv);
	buf_unref(o->self);
}

void rendezvous_out_fields(struct rendezvous_out *o, struct far_buf *tlv)
{
	if (!tlv || o->tlv)
		return;
	buf_ref(tlv);
	o->tlv = tlv;
}

/* Pairs with rendezvous_source_take(): either the shard sees REVOKED before it reads, or we wait for the copy that it
 * has begun.
 */
void rendezvous_out_revoke(struct rendezvous_out *o)
{
	uint32_t idle = RENDEZVOUS_IDLE;
	while (!atomic_compare_exchange_weak_explicit(&o->source, &idle, RENDEZVOUS_REVOKED, memory_order_acq_rel,
						      memory_order_acquire)) {
		if (idle == RENDEZVOUS_REVOKED)
			return;
		idle = RENDEZVOUS_IDLE;
	}
	withdraw(o);
}

/* false: the parts may be gone. */
bool rendezvous_source_take(struct rendezvous_out *o)
{
	uint32_t idle = RENDEZVOUS_IDLE;
	return atomic_compare_exchange_strong_explicit(&o->source, &idle, RENDEZVOUS_READING, memory_order_acq_rel,
						       memory_order_relaxed);
}

void rendezvous_source_give(struct rendezvous_out *o)
{
	atomic_store_explicit(&o->source, RENDEZVOUS_IDLE, memory_order_release);
}
