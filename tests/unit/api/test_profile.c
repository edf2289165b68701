/* SPDX-License-Identifier: BSD-3-Clause */
/** Profiles, ranges and trace contexts of a flow: spans with their parents and names, what cannot end. The test's
 * thread, and fibers of agents that it steps. */
#include "agents_fixture.h"
#include "api/profile.h"

#include <farcall/profile.h>
#include <string.h>

static struct far_profile *p;

static void begin(void)
{
	cr_assert_eq(far_profile_begin(NULL, &p, &err), FAR_OK, "%s", err.text);
}

static const struct far_span *spans(size_t n)
{
	size_t count;
	const struct far_span *s = far_profile_spans(p, NULL, &count);
	cr_assert_not_null(s);
	cr_assert_eq(count, n, "%zu spans", count);
	return s;
}

/* ---- ranges ---- */

/* Expect each below the one around it, in the order of their begins, with the trace of the profile. */
Test(api_profile, ranges)
{
	begin();
	cr_assert_eq(far_range_begin("outer"), FAR_OK);
	cr_assert_eq(far_range_begin("inner"), FAR_OK);
	cr_assert_eq(far_range_end(), FAR_OK);
	cr_assert_eq(far_range_begin(NULL), FAR_OK);
	const struct far_span *s = spans(3);
	cr_assert(s[1].status == FAR_OK && s[2].status == FAR_PENDING, "one is open");
	cr_assert_eq(far_range_end(), FAR_OK);
	cr_assert_eq(far_range_end(), FAR_OK);
	cr_assert_eq(far_range_end(), FAR_INVALID, "none is open");
	s = spans(3);
	cr_assert(strcmp(s[0].name, "outer") == 0 && strcmp(s[1].name, "inner") == 0 && strcmp(s[2].name, "?") == 0);
	cr_assert(s[0].parent == -1 && s[1].parent == 0 && s[2].parent == 0);
	cr_assert(s[1].parent_id == s[0].id && s[1].id != s[2].id);
	for (unsigned i = 0; i < 3; i++) {
		cr_assert(s[i].kind == FAR_SPAN_RANGE && s[i].status == FAR_OK && s[i].at == -1);
		cr_assert(s[i].begin_ns <= s[i].end_ns && s[i].end_ns <= s[0].end_ns);
		cr_assert_eq(memcmp(s[i].trace, s[0].trace, sizeof s[0].trace), 0);
	}
	cr_assert_eq(far_profile_end(p, &err), FAR_OK, "%s", err.text);
	far_profile_free(p);
}

Test(api_profile, without_a_profile)
{
	cr_assert_eq(far_range_begin("none"), FAR_OK);
	cr_assert_eq(far_range_end(), FAR_OK);
	cr_assert_eq(far_range_end_with(NULL, &err), FAR_OK);
	cr_assert_eq(far_profile_end(NULL, &err), FAR_INVALID);
	far_profile_free(NULL);
}

/* A range that ends with a future, with its error. */
Test(api_profile, a_range_ends_with_a_future)
{
	struct far_future *f;
	begin();
	cr_assert_eq(far_future_create(&f, &err), FAR_OK);
	cr_assert_eq(far_range_begin("late"), FAR_OK);
	cr_assert_eq(far_range_end_with(f, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_range_end_with(f, &err), FAR_INVALID);
	cr_assert_str_eq(err.text, "far_range_end_with: no range is open; each can end only once");
	cr_assert_eq(far_profile_wait(p, 1, &err), FAR_PENDING);
	cr_assert_str_eq(err.text, "1 calls of the profile have not completed");
	cr_assert_eq(spans(1)->status, FAR_PENDING);
	cr_assert_eq(far_future_set_error(f, FAR_GONE, 0, "gone"), FAR_OK);
	cr_assert_eq(far_profile_wait(p, FAR_FOREVER, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(spans(1)->status, FAR_GONE);
	far_future_free(f);
	far_profile_free(p);
}

/* One profile within another: each has its own spans, and the inner one ends first. */
Test(api_profile, nested)
{
	struct far_profile *outer;
	begin();
	outer = p;
	cr_assert_eq(far_range_begin("of the outer"), FAR_OK);
	begin();
	cr_assert_eq(far_range_begin("of the inner"), FAR_OK);
	cr_assert_eq(far_profile_end(p, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "or a range or a profile inside of it is open"), "%s", err.text);
	cr_assert_eq(far_range_end(), FAR_OK);
	cr_assert_eq(far_profile_end(outer, &err), FAR_INVALID);
	cr_assert_eq(far_profile_end(p, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_profile_end(p, &err), FAR_INVALID);
	cr_assert_str_eq(err.text, "far_profile_end: the profile has ended");
	cr_assert_str_eq(spans(1)->name, "of the inner");
	far_profile_free(p);
	p = outer;
	cr_assert_eq(far_range_end(), FAR_OK);
	cr_assert_str_eq(spans(1)->name, "of the outer");
	far_profile_free(p);
}

Test(api_profile, bounds_of_a_profile)
{
	const struct far_profile_opts two = {.spans_max = 2}, wrong = {.reserved = {[3] = 1}};
	cr_assert_eq(far_profile_begin(&wrong, &p, &err), FAR_INVALID);
	cr_assert_eq(far_profile_begin(&two, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_profile_begin(&two, &p, &err), FAR_OK, "%s", err.text);
	for (unsigned i = 0; i < 5; i++) {
		cr_assert_eq(far_range_begin("a"), FAR_OK);
		cr_assert_eq(far_range_end(), FAR_OK);
	}
	spans(2);
	cr_assert_eq(far_profile_dropped(p), 3u);
	far_profile_free(p);
}

/* A span of another worker, placed by an estimate. Expect it behind the one around it, though it seems to begin before.
 */
Test(api_profile, parents_first)
{
	struct span call = {.name = "a", .kind = FAR_SPAN_RANGE, .begin = 100, .end = 200, .at = -1},
		    late = {.name = "b", .kind = FAR_SPAN_RANGE, .begin = 90, .end = 95, .at = -1},
		    inner = {.name = "c", .kind = FAR_SPAN_RANGE, .begin = 50, .end = 60, .at = -1};
	begin();
	inner.parent = recording_add(p->recording, &call, false);
	recording_add(p->recording, &inner, false);
	recording_add(p->recording, &late, false);
	const struct far_span *s = spans(3);
	cr_assert(strcmp(s[0].name, "b") == 0 && strcmp(s[1].name, "a") == 0 && strcmp(s[2].name, "c") == 0);
	cr_assert(s[0].parent == -1 && s[1].parent == -1 && s[2].parent == 1);
	far_profile_free(p);
}

/* ---- names ---- */

Test(api_profile, keys)
{
	char out[64];
	cr_assert_eq(far_profile_key(FAR_CALL_SYNC, "f", "a", "b", out, sizeof out), 18u);
	cr_assert_str_eq(out, "rpc_sync#f(a -> b)");
	far_profile_key(FAR_CALL_FETCH, NULL, "a", "b", out, sizeof out);
	cr_assert_str_eq(out, "to_here#(a)->(b)");
	far_profile_key(FAR_CALL_ONEWAY, "7", "a", "b", out, sizeof out);
	cr_assert_str_eq(out, "oneway#7(a -> b)");
	cr_assert_eq(far_profile_key(FAR_CALL_SYNC, "f", "a", "b", out, 9), 18u, "as snprintf");
	cr_assert_str_eq(out, "rpc_sync");
	far_profile_key((enum far_call_mode)99, "f", "a", "b", out, sizeof out);
	cr_assert_str_eq(out, "?#f(a -> b)");
}

static void calls(void)
{
	struct far_val out;
	size_t n;
	begin();
	cr_assert_eq(far_range_begin("step"), FAR_OK);
	cr_assert_eq(far_rpc_sync(agents[0], "w1", "far::identity", FAR_ARGS(1), NULL, &out, &err), FAR_OK, "%s",
		     err.text);
	cr_assert_eq(far_range_end(), FAR_OK);
	cr_assert_eq(far_profile_end(p, &err), FAR_OK, "%s", err.text);
	const struct far_span *s = far_profile_spans(p, agents[0], &n);
	cr_assert_eq(n, 3u);
	cr_assert_str_eq(s[1].name, "rpc_sync#far::identity(w0 -> w1)");
	cr_assert(s[1].kind == FAR_SPAN_CALL && s[1].parent == 0 && s[1].at == 0 && s[1].to.worker == 1);
	cr_assert_str_eq(s[2].name, "rpc_sync#far::identity(w0 -> w1)#remote_op: far::identity");
	cr_assert(s[2].kind == FAR_SPAN_HANDLER && s[2].parent == 1 && s[2].at == 1 && s[2].remote);
	far_profile_free(p);
}

/* A call, and its request at the other worker, whose span came with the answer. */
Test(api_profile, calls_and_their_requests)
{
	agents_begin(2, NULL);
	agents_run(0, calls);
	agents_end();
}

/* A worker that is not known is named by its rank. */
Test(api_profile, unknown_workers)
{
	char name[FAR_NAME_MAX];
	agents_begin(2, NULL);
	profile_worker(agents[0], 1, name);
	cr_assert_str_eq(name, "w1");
	profile_worker(agents[0], 7, name);
	cr_assert_str_eq(name, "rank 7");
	profile_worker(NULL, 1, name);
	cr_assert_str_eq(name, "rank 1");
	agents_end();
}

/* ---- trace contexts ---- */

#define TRACE  "0af7651916cd43dd8448eb211c80319c"
#define PARENT "b7ad6b7169203331"

Test(api_profile, traces)
{
	char out[FAR_TRACEPARENT];
	cr_assert_not(far_trace_get(out));
	cr_assert_eq(far_trace_accept("00-" TRACE "-" PARENT "-01", &err), FAR_OK, "%s", err.text);
	cr_assert(far_trace_get(out));
	cr_assert_str_eq(out, "00-" TRACE "-" PARENT "-01");
	begin();
	cr_assert_eq(far_range_begin("r"), FAR_OK);
	cr_assert(far_trace_get(out));
	cr_assert_eq(strncmp(out, "00-" TRACE "-", 36), 0, "the same trace: %s", out);
	cr_assert_neq(strncmp(out + 36, PARENT, 16), 0, "below the range: %s", out);
	cr_assert_eq(far_trace_accept(NULL, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "the flow has a profile; accept the trace before it"), "%s", err.text);
	far_range_end();
	far_profile_free(p);
	cr_assert_eq(far_trace_accept("00-" TRACE "-" PARENT "-00", &err), FAR_OK, "another replaces it");
	cr_assert(far_trace_get(out) && strcmp(out + 53, "00") == 0);
	cr_assert_eq(far_trace_accept(NULL, &err), FAR_OK);
	cr_assert_not(far_trace_get(out));
}

/* Versions but 00 may have more behind it; none has fewer, zeros, capitals or the version ff. */
Test(api_profile, texts_of_traces)
{
	static const char *const good[] = {"01-" TRACE "-" PARENT "-03", "cc-" TRACE "-" PARENT "-01-more"},
				 *const bad[] = {"",
						 "00-" TRACE "-" PARENT,
						 "00-" TRACE "-" PARENT "-01-more",
						 "01-" TRACE "-" PARENT "-01x",
						 "ff-" TRACE "-" PARENT "-01",
						 "00-00000000000000000000000000000000-" PARENT "-01",
						 "00-" TRACE "-0000000000000000-01",
						 "00-0AF7651916CD43DD8448EB211C80319C-" PARENT "-01",
						 "00-" TRACE "-" PARENT "-0g",
						 "0g-" TRACE "-" PARENT "-01",
						 "00_" TRACE "-" PARENT "-01"};
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		cr_assert_eq(far_trace_accept(good[i], &err), FAR_OK, "%s", err.text);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		cr_assert_eq(far_trace_accept(bad[i], &err), FAR_INVALID, "%s", bad[i]);
		cr_assert(strstr(err.text, "is no traceparent"), "%s", err.text);
	}
	far_trace_accept(NULL, &err);
}
