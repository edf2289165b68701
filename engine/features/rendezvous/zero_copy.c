/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages that have ended, and that packets of the driver still refer to. Shard thread, but for zero_copy_end() (stop
 * of the agent). */
#include "features/rendezvous/rendezvous.h"

#include "core/context.h"
#include "core/shard.h"

void zero_copy_reap(struct shard *s)
{
	struct rendezvous_out **at = &rendezvous_of(s)->zero_copy;
	while (*at) {
		struct rendezvous_out *o = *at;
		/* The last reference is given back after the last byte was read. */
		if (atomic_load_explicit(&o->self->refs, memory_order_acquire) > 1) {
			at = &o->next;
			continue;
		}
		*at = o->next;
		rendezvous_out_drop(s, o);
		at = &rendezvous_of(s)->zero_copy; /* its callback may have sent */
	}
}

struct rendezvous_out *zero_copy_hand_to_agent(struct shard *s, struct rendezvous_out *others)
{
	struct rendezvous_out **end = &rendezvous_of(s)->zero_copy;
	while (*end)
		end = &(*end)->next;
	*end = others;
	others = rendezvous_of(s)->zero_copy;
	rendezvous_of(s)->zero_copy = NULL;
	return others;
}

void zero_copy_end(struct rendezvous_out *zero_copy)
{
	while (zero_copy) {
		struct rendezvous_out *o = zero_copy;
		zero_copy = o->next;
		rendezvous_out_unref(o);
	}
}

void rendezvous_out_drop(struct shard *s, struct rendezvous_out *o)
{
	const char *outer = s->context.handler;
	s->context.handler = "a release callback";
	rendezvous_out_unref(o);
	s->context.handler = outer;
}
