/* SPDX-License-Identifier: BSD-3-Clause */
/** The field with the spans of a served request: as written, cut, and with other bytes. The test's thread. */
#include "features/profile/profile.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static const uint8_t trace[16] = {1, 2, 3};

static struct span span_of(const char *name, enum far_span_kind kind, uint32_t parent, uint64_t begin)
{
	struct span s = {.kind = (uint8_t)kind,
			 .mode = FAR_CALL_ASYNC,
			 .parent = parent,
			 .at = 1,
			 .named = true,
			 .from = {0, 0},
			 .to = {1, -1},
			 .begin = begin,
			 .end = begin + 5,
			 .id = 0x1122334455667788 + begin};
	memcpy(s.trace, trace, sizeof s.trace);
	snprintf(s.name, sizeof s.name, "%s", name);
	return s;
}

/* A request that was received `ago` ns ago, queued for 100 ns, with `ranges` ranges. */
static struct recording *served(uint64_t ago, unsigned ranges)
{
	struct recording *r = recording_new(1000);
	uint64_t begin = profile_now() - ago;
	struct span s = span_of("t::f", FAR_SPAN_HANDLER, 0, begin);
	s.queued = 100;
	s.end = 0;
	cr_assert(recording_add(r, &s, false) == 1);
	for (unsigned i = 0; i < ranges; i++) {
		s = span_of("range", FAR_SPAN_RANGE, 1, begin + 200 + i);
		recording_add(r, &s, false);
	}
	return r;
}

/* A call that began `ago` ns ago. */
static struct recording *calling(uint64_t ago)
{
	struct recording *r = recording_new(1000);
	struct span s = span_of("t::f", FAR_SPAN_CALL, 0, profile_now() - ago);
	s.end = 0;
	recording_add(r, &s, true);
	return r;
}

Test(answer, comes_as_it_was_written)
{
	uint8_t bytes[FAR_PROFILE_REPLY_BYTES];
	struct recording *callee = served(10000, 2), *caller = calling(1000000000);
	size_t len = answer_write(callee, bytes);
	answer_read(caller, 1, bytes, len);
	recording_end(caller, 1, FAR_OK, true);
	cr_assert(caller->n == 4);
	const struct span *call = &caller->spans[0], *handler = &caller->spans[1], *range = &caller->spans[3];
	cr_assert(call->queued == 100);
	cr_assert(call->running >= 9900 && call->completing == 0 && call->wire > 0);
	cr_assert(call->queued + call->running + call->wire <= call->end - call->begin);
	cr_assert(strcmp(handler->name, "t::f") == 0 && handler->kind == FAR_SPAN_HANDLER);
	cr_assert(handler->parent == 1 && handler->remote == true && handler->named == true);
	cr_assert(handler->at == 1 && handler->to.worker == 1 && handler->to.shard == -1);
	/* Between request and answer, half of what is neither before and half behind. */
	cr_assert(handler->begin >= call->begin && handler->end <= call->end);
	cr_assert(handler->begin - call->begin >= 400000000);
	cr_assert(range->parent == 2 && range->begin - handler->begin == 201);
	cr_assert(range->end - range->begin == 5 && range->id == callee->spans[2].id);
	cr_assert(handler->parent_id == call->id && range->parent_id == handler->id);
	cr_assert(memcmp(range->trace, trace, sizeof trace) == 0);
	recording_unref(callee);
	recording_unref(caller);
}

Test(answer, spans_without_room_are_counted)
{
	uint8_t bytes[FAR_PROFILE_REPLY_BYTES];
	struct recording *callee = served(100000, 500), *caller = calling(1000000);
	size_t len = answer_write(callee, bytes);
	cr_assert(len <= sizeof bytes);
	answer_read(caller, 1, bytes, len);
	cr_assert(caller->n > 10 && caller->n < 502);
	cr_assert(caller->dropped + caller->n == 502);
	recording_unref(callee);
	recording_unref(caller);
}

/* A sanitizer sees what is read beyond; here, that nothing malformed is recorded. */
Test(answer, damaged_bytes_do_no_harm)
{
	uint8_t bytes[FAR_PROFILE_REPLY_BYTES], copy[FAR_PROFILE_REPLY_BYTES];
	struct recording *callee = served(10000, 3);
	size_t len = answer_write(callee, bytes);
	for (size_t cut = 0; cut < len; cut++) {
		struct recording *caller = calling(1000000);
		memcpy(copy, bytes, cut);
		answer_read(caller, 1, copy, cut);
		cr_assert(caller->n == 1, "%zu bytes", cut);
		recording_unref(caller);
	}
	for (size_t at = 0; at < len; at++)
		for (unsigned x = 1; x < 256; x = 2 * x + 1) {
			struct recording *caller = calling(1000000);
			memcpy(copy, bytes, len);
			copy[at] ^= (uint8_t)x;
			answer_read(caller, 1, copy, len);
			for (uint32_t i = 1; i < caller->n; i++) {
				const struct span *s = &caller->spans[i];
				cr_assert(s->parent <= i && s->begin <= s->end);
				cr_assert(s->mode < FAR_CALL_MODE_COUNT && s->status < FAR_STATUS_COUNT);
			}
			recording_unref(caller);
		}
	recording_unref(callee);
}
