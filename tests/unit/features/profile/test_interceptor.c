/* SPDX-License-Identifier: BSD-3-Clause */
/** The profiler: spans of calls and of their requests, trace contexts of handlers, profiles of servers. The test's
 * thread, which steps two agents. */
#include "agents_fixture.h"
#include "features/intercept/intercept.h"
#include "features/profile/profile.h"
#include "handlers.h"

#include <string.h>

static struct recording *r;
static struct scope seen;    /* in the handler */
static uint64_t seen_parent; /* of the handler's span */
static bool was_seen;

static enum far_status look(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const struct scope *s = scope_present();
	was_seen = s != NULL;
	if (s) {
		seen.flags = s->flags;
		seen.span = s->span;
		seen.recording = s->recording;
		seen_parent = s->recording ? s->recording->spans[0].parent_id : 0;
		memcpy(seen.trace, s->trace, sizeof seen.trace);
	}
	return handler_twice(req, args, n, user);
}

static enum far_status fail(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_fail(req, FAR_DENIED, 9, "no entry");
}

static void setup(void)
{
	static const struct far_function functions[] = {
		{"t::look(int a) -> int", FAR_KIND_INLINE, look, NULL},
		{"t::fail(int a) -> int", FAR_KIND_INLINE, fail, NULL},
		{"t::never(int a) -> int", FAR_KIND_FIBER, handler_never, NULL}};
	const struct far_opts opts = {.functions = functions, .functions_n = 3};
	agents_begin(2, &opts);
	r = recording_new(16);
	was_seen = false;
}

static void teardown(void)
{
	recording_unref(r);
	agents_end();
}

TestSuite(profile_interceptor, .init = setup, .fini = teardown);

/* A call of worker 0 that ends. Its status. */
static enum far_status call(const char *function, uint64_t timeout_ns)
{
	const struct far_call_opts opts = {.timeout_ns = timeout_ns};
	struct far_future *f;
	struct far_val out;
	cr_assert_eq(far_rpc_async(agents[0], "w1", function, FAR_ARGS(4), timeout_ns ? &opts : NULL, &f, &err), FAR_OK,
		     "%s", err.text);
	if (timeout_ns)
		agents_pass(2 * timeout_ns);
	agents_until(f);
	enum far_status status = far_future_value(f, &out, &err);
	far_future_free(f);
	return status;
}

static void enter(struct recording *to)
{
	const struct scope scope = {
		.recording = to, .profile = to != NULL, .trace = {7, [15] = 9}, .flags = 1, .span = 4711};
	cr_assert_eq(scope_enter(&scope), FAR_OK);
}

/* Expect the span of the call, and below it that of the handler, which came with the answer. */
Test(profile_interceptor, a_call_and_its_request)
{
	enter(r);
	cr_assert_eq(call("t::look", 0), FAR_OK);
	scope_leave();
	cr_assert(r->n == 2 && r->calls == 0 && r->dropped == 0);
	const struct span *c = &r->spans[0], *h = &r->spans[1];
	cr_assert(c->kind == FAR_SPAN_CALL && h->kind == FAR_SPAN_HANDLER);
	cr_assert(c->named && c->mode == FAR_CALL_ASYNC && c->status == FAR_OK && !c->remote);
	cr_assert_str_eq(c->name, "t::look");
	cr_assert_str_eq(h->name, "t::look");
	cr_assert(c->at == 0 && h->at == 1 && c->to.worker == 1 && h->from.worker == 0);
	cr_assert(c->begin && c->end >= c->begin && h->remote && h->status == FAR_OK);
	cr_assert(h->parent == 1 && h->parent_id == c->id && c->parent_id == 4711);
	cr_assert(c->trace[0] == 7 && c->trace[15] == 9 && memcmp(c->trace, h->trace, sizeof c->trace) == 0);
	cr_assert_eq(seen_parent, c->id, "as the request has it");
	cr_assert(was_seen && seen.span == h->id && seen.recording && memcmp(seen.trace, c->trace, 16) == 0);
}

/* The function's error, and a deadline. Expect the span of the call with that status, ended, and nothing awaited. */
Test(profile_interceptor, calls_that_fail)
{
	enter(r);
	cr_assert_eq(call("t::fail", 0), FAR_DENIED);
	cr_assert_eq(call("t::never", FAR_MS), FAR_TIMEOUT);
	scope_leave();
	cr_assert(r->n == 2 && r->calls == 0);
	cr_assert(r->spans[0].status == FAR_DENIED && r->spans[1].status == FAR_TIMEOUT);
	cr_assert(r->spans[0].end && r->spans[1].end);
}

/* A flow that is part of a trace and records nothing. Expect the handler in the trace, below the caller's span. */
Test(profile_interceptor, a_trace_alone)
{
	enter(NULL);
	cr_assert_eq(call("t::look", 0), FAR_OK);
	scope_leave();
	cr_assert(was_seen && seen.span == 4711 && seen.flags == 1 && !seen.recording);
	cr_assert(seen.trace[0] == 7 && seen.trace[15] == 9);
	was_seen = true;
	cr_assert_eq(call("t::look", 0), FAR_OK);
	cr_assert_not(was_seen, "a flow without a scope");
}

/* A profile of a worker begins. */
static void serve(struct recording *to, unsigned worker)
{
	cr_assert_eq(server_add(to, agents[worker]), FAR_OK);
	intercept_apply(agents[worker]->shards[0]);
}

/* Profiles of two servers. Expect in each the requests that its agent serves meanwhile, of any caller, each in a trace
 * of its own. */
Test(profile_interceptor, profiles_of_servers)
{
	struct recording *other = recording_new(16);
	serve(r, 1);
	serve(other, 0);
	cr_assert_eq(call("t::look", 0), FAR_OK);
	cr_assert_eq(call("t::fail", 0), FAR_DENIED);
	cr_assert(r->n == 2 && other->n == 0);
	const struct span *h = r->spans;
	cr_assert(h[0].kind == FAR_SPAN_HANDLER && h[0].status == FAR_OK && h[0].at == 1 && h[0].parent == 0);
	cr_assert(h[0].end >= h[0].begin && h[0].begin && !h[0].parent_id);
	cr_assert_neq(memcmp(h[0].trace, h[1].trace, sizeof h->trace), 0);
	cr_assert_eq(r->refs, 2u);
	cr_assert(server_remove(r));
	cr_assert_not(server_remove(r));
	cr_assert_eq(r->refs, 1u);
	cr_assert_eq(call("t::look", 0), FAR_OK);
	cr_assert_eq(r->n, 2u);
	cr_assert(server_remove(other));
	recording_unref(other);
}

/* A profile that begins while a request is served. Expect that request not in it. */
Test(profile_interceptor, a_server_records_what_begins_from_now_on)
{
	struct recording *later = recording_new(16);
	struct far_future *f;
	serve(r, 1);
	cr_assert_eq(far_rpc_async(agents[0], "w1", "t::never", FAR_ARGS(4), NULL, &f, &err), FAR_OK);
	for (unsigned i = 0; i < 20; i++)
		agents_turn();
	serve(later, 1);
	cr_assert_eq(far_future_cancel(f, &err), FAR_OK);
	agents_until(f);
	for (unsigned i = 0; i < 300; i++)
		agents_turn();
	cr_assert(r->n == 1 && later->n == 0, "%u and %u", r->n, later->n);
	cr_assert(server_remove(r) && server_remove(later));
	far_future_free(f);
	recording_unref(later);
}
