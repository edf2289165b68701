/* SPDX-License-Identifier: BSD-3-Clause */
/** Recordings of spans, and scopes of flows. The test's thread. */
#include "features/intercept/intercept.h"
#include "features/profile/profile.h"

#include <criterion/criterion.h>
#include <string.h>

static struct span span_named(const char *name, uint32_t parent, uint64_t end)
{
	struct span s = {.parent = parent, .begin = 5, .end = end};
	snprintf(s.name, sizeof s.name, "%s", name);
	return s;
}

Test(profile_record, spans_are_numbered_and_bounded)
{
	struct recording *r = recording_new(10);
	for (uint32_t i = 1; i <= 12; i++) {
		struct span s = span_named("x", 0, 0);
		s.id = i;
		cr_assert_eq(recording_add(r, &s, false), i <= 10 ? i : 0);
	}
	cr_assert(r->n == 10 && r->dropped == 2);
	for (uint32_t i = 0; i < 10; i++)
		cr_assert_eq(r->spans[i].id, i + 1);
	cr_assert_not(recording_reserve(r));
	recording_unref(r);
	recording_unref(NULL);
	r = recording_new(0);
	cr_assert_eq(recording_add(r, &(struct span){0}, false), 0u);
	cr_assert_eq(r->dropped, 1u);
	recording_unref(r);
}

/* Expect the recording to wait for calls alone, dropped ones too. */
Test(profile_record, calls_are_awaited)
{
	struct recording *r = recording_new(2);
	struct span s = span_named("call", 0, 0);
	uint32_t first = recording_add(r, &s, true), second = recording_add(r, &s, false);
	cr_assert_eq(recording_add(r, &s, true), 0u);
	recording_hold(r);
	cr_assert_eq(r->calls, 3u);
	uint64_t before = profile_now();
	recording_end(r, first, FAR_DENIED, true);
	cr_assert(r->spans[0].status == FAR_DENIED && r->spans[0].end >= before && r->spans[0].end <= profile_now());
	cr_assert_eq(r->calls, 2u);
	recording_end(r, second, FAR_OK, false);
	recording_end(r, 0, FAR_OK, true); /* the one that was dropped */
	recording_end(r, 0, FAR_OK, true);
	cr_assert_eq(r->calls, 0u);
	recording_unref(r);
}

/* Appended to one that has spans, and to one that has no room. Expect parents moved, open spans ended, and each span
 * that is lost counted once. */
Test(profile_record, one_is_appended_to_another)
{
	for (uint32_t room = 0; room <= 3; room++) {
		struct recording *to = recording_new(2 + room), *from = recording_new(10);
		struct span s = span_named("to", 0, 1);
		recording_add(to, &s, false);
		recording_add(to, &s, false);
		s = span_named("outer", 0, 0);
		recording_add(from, &s, false);
		s = span_named("inner", 1, 9);
		recording_add(from, &s, false);
		recording_add(from, &s, false);
		from->dropped = 5;
		recording_append(to, from, 2);
		cr_assert_eq(to->n, 2 + room);
		cr_assert_eq(to->dropped, 5 + 3 - room, "room for %u: %u", room, (unsigned)to->dropped);
		if (room > 1) {
			cr_assert_eq(to->spans[2].parent, 2u, "the given one");
			cr_assert_neq(to->spans[2].end, 0u);
			cr_assert_eq(to->spans[3].parent, 3u, "its own, moved");
			cr_assert_eq(to->spans[3].end, 9u);
		}
		cr_assert_eq(from->n, 3u);
		recording_unref(to);
		recording_unref(from);
	}
}

/* Scopes nest, and keep their recordings. Expect the profiler to see calls while there is one. */
Test(profile_record, scopes_nest)
{
	struct recording *r = recording_new(4), *inner = recording_new(4);
	cr_assert_null(scope_present());
	cr_assert_not(intercept_any());
	struct scope scope = {.recording = r, .profile = true, .trace = {1, 2, 3}};
	cr_assert_eq(scope_enter(&scope), FAR_OK);
	cr_assert(intercept_any());
	const struct scope *outer = scope_present();
	cr_assert(outer && outer->recording == r && outer->profile);
	cr_assert_eq(r->refs, 2u);
	scope = (struct scope){.recording = inner, .outer = scope_present(), .parent = 3};
	cr_assert_eq(scope_enter(&scope), FAR_OK);
	cr_assert(scope_present()->recording == inner && scope_present()->parent == 3);
	uint8_t trace[16];
	scope_trace(outer, trace);
	cr_assert(trace[0] == 1 && trace[2] == 3);
	scope_leave();
	cr_assert_eq(scope_present(), outer);
	cr_assert_eq(inner->refs, 1u);
	scope_leave();
	cr_assert_null(scope_present());
	cr_assert_eq(r->refs, 1u);
	cr_assert_not(intercept_any());
	recording_unref(r);
	recording_unref(inner);
}

/* The recording of the process. Expect flows without a scope in it, each call in a trace of its own. */
Test(profile_record, of_the_process)
{
	struct recording *r = recording_new(4);
	uint8_t a[16], b[16], zeros[16] = {0};
	recording_of_process_set(r);
	cr_assert(intercept_any());
	cr_assert_eq(recording_of_process(), r);
	const struct scope *s = scope_present();
	cr_assert(s && s->process && s->recording == r);
	scope_trace(s, a);
	scope_trace(s, b);
	cr_assert(memcmp(a, b, sizeof a) != 0 && memcmp(a, zeros, sizeof a) != 0);
	struct recording *own = recording_new(4);
	struct scope scope = {.recording = own, .outer = scope_present()};
	cr_assert_eq(scope_enter(&scope), FAR_OK);
	cr_assert(scope_present()->recording == own && !scope_present()->outer);
	scope_leave();
	cr_assert_eq(scope_present(), s);
	recording_of_process_set(NULL);
	cr_assert(!scope_present() && !recording_of_process() && !intercept_any());
	recording_unref(own);
	recording_unref(r);
}
