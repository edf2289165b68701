/* SPDX-License-Identifier: BSD-3-Clause */
/** The ring of a shard's rare events. Any thread. */
#include "core/trace.h"

static uint64_t pack(const struct trace_event *e)
{
	return (uint64_t)e->worker << 32 | (uint64_t)e->function << 16 | (uint64_t)e->status << 8 |
	       (uint64_t)e->typed << 7 | (uint64_t)e->kind;
}

static struct trace_event unpack(uint64_t at, uint64_t what)
{
	return (struct trace_event){.at = at,
				    .kind = (enum trace_kind)(what & 0x7f),
				    .status = (uint8_t)(what >> 8),
				    .typed = what >> 7 & 1,
				    .function = (uint16_t)(what >> 16),
				    .worker = (uint32_t)(what >> 32)};
}

void trace_add(struct shard_trace *t, const struct trace_event *e)
{
	uint32_t slot = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed) % TRACE_EVENTS;
	atomic_store_explicit(&t->of[slot].what, pack(e), memory_order_relaxed);
	atomic_store_explicit(&t->of[slot].at, e->at, memory_order_release);
}

uint32_t trace_read(const struct shard_trace *t, struct trace_event *out, uint32_t max)
{
	uint32_t end = atomic_load_explicit(&t->next, memory_order_relaxed), n = 0;
	uint32_t have = end < TRACE_EVENTS ? end : TRACE_EVENTS;
	for (uint32_t i = end - (have < max ? have : max); i != end; i++) {
		const struct trace_slot *slot = &t->of[i % TRACE_EVENTS];
		uint64_t at = atomic_load_explicit(&slot->at, memory_order_acquire);
		if (at)
			out[n++] = unpack(at, atomic_load_explicit(&slot->what, memory_order_relaxed));
	}
	return n;
}

const char *trace_kind_text(enum trace_kind kind)
{
	static const char *const texts[TRACE_KINDS] = {"session up", "session down", "call failed", "request failed"};
	return kind < TRACE_KINDS ? texts[kind] : "?";
}
