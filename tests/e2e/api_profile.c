/* SPDX-License-Identifier: BSD-3-Clause */
/* run: -n 3. Main thread of each process; handlers on shard threads. */
/** Trace contexts through calls, profiles below them, ranges without a profile. profile.py runs it with --profile, too:
 * with FAR_PROFILE every call has a span, and a trace of its own if it has no other. */
#include "check.h"

static const char parent[] = "00f067aa0ba902b7", trace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
static struct far_agent *agent;
static struct far_err err;
static struct far_profile *server;
static bool recorded; /* FAR_PROFILE */

/* ---- workers 1 and 2 ---- */

static enum far_status answer(struct far_req *req, const char *text)
{
	struct far_val v = far_str(text);
	return far_return(req, &v);
}

/* The trace context of the handler. */
FAR_HANDLER(seen)
{
	char text[FAR_TRACEPARENT];
	return answer(req, far_trace_get(text) ? text : "none");
}

/* A nested call, in a range. */
FAR_HANDLER(outer)
{
	struct far_val v;
	struct far_err e;
	far_range_begin("work \"\\\x01\xff"); /* bytes that JSON has to escape */
	enum far_status status = far_rpc_sync(far_req_agent(req), "worker2", "t::seen", FAR_NOARGS, NULL, &v, &e);
	far_range_end();
	if (status)
		return far_fail(req, status, e.code, "%s", e.text);
	status = far_return(req, &v);
	far_val_fini(&v);
	return status;
}

FAR_HANDLER(fails)
{
	return far_fail(req, FAR_REMOTE, 7, "on request");
}

/* Begins a profile of this worker. */
FAR_HANDLER(server_begin)
{
	struct far_profile_opts opts = {.server = far_req_agent(req)};
	struct far_err e;
	return far_profile_begin(&opts, &server, &e) ? far_fail(req, e.status, e.code, "%s", e.text)
						     : far_return(req, NULL);
}

static void put_hex(const void *bytes, size_t n, char *out)
{
	for (size_t i = 0; i < n; i++)
		snprintf(out + 2 * i, 3, "%02x", ((const unsigned char *)bytes)[i]);
}

/* Ends it: the trace and the parent of the only request that it has. */
FAR_HANDLER(server_end)
{
	char text[64] = "none";
	size_t spans_n;
	far_profile_end(server, NULL);
	const struct far_span *s = far_profile_spans(server, far_req_agent(req), &spans_n);
	if (s && spans_n == 1 && s->kind == FAR_SPAN_HANDLER && s->parent == -1) {
		put_hex(s->trace, sizeof s->trace, text);
		text[32] = '-';
		put_hex(&s->parent_id, sizeof s->parent_id, text + 33);
	}
	enum far_status status = answer(req, text);
	far_profile_free(server);
	return status;
}

static void on_message(struct far_req *req, const void *data, size_t len, void *user)
{
	(void)user;
	far_reply(req, data, len);
}

/* ---- worker 0 ---- */

/* The text that a function of a worker answers with. */
static const char *call(const char *to, const char *fn)
{
	static char text[128];
	struct far_val v;
	CHECK_STATUS(far_rpc_sync(agent, to, fn, FAR_NOARGS, NULL, &v, &err), FAR_OK, &err);
	snprintf(text, sizeof text, "%s", v.type == FAR_TYPE_STRING ? (const char *)v.u.s.data : "");
	far_val_fini(&v);
	return text;
}

static void accept_trace(const char *flags)
{
	char text[FAR_TRACEPARENT], back[FAR_TRACEPARENT];
	snprintf(text, sizeof text, "00-%s-%s-%s", trace, parent, flags);
	CHECK_STATUS(far_trace_accept(text, &err), FAR_OK, &err);
	CHECK(far_trace_get(back) && strcmp(back, text) == 0);
}

/* A context is of the accepted trace; its parent is the accepted one unless there are spans between. */
static void is_below(const char *text, const char *flags, bool spans)
{
	CHECK(strlen(text) == FAR_TRACEPARENT - 1 && memcmp(text, "00-", 3) == 0);
	CHECK(memcmp(text + 3, trace, 32) == 0 && strcmp(text + 53, flags) == 0);
	CHECK((memcmp(text + 36, parent, 16) == 0) == !spans);
}

static void malformed(void)
{
	static const char *const texts[] = {"",
					    "00",
					    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
					    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-00",
					    "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
					    "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
					    "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
					    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x",
					    "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
					    "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"};
	char text[FAR_TRACEPARENT];
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		CHECK_STATUS(far_trace_accept(texts[i], &err), FAR_INVALID, &err);
		CHECK(!far_trace_get(text));
	}
	CHECK_STATUS(far_trace_accept("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-later", &err), FAR_OK,
		     &err);
	CHECK_STATUS(far_trace_accept(NULL, &err), FAR_OK, &err);
}

static void traces(void)
{
	char text[FAR_TRACEPARENT];
	CHECK((strcmp(call("worker1", "t::seen"), "none") == 0) == !recorded);
	accept_trace("01");
	is_below(call("worker1", "t::seen"), "01", recorded);
	is_below(call("worker1", "t::outer"), "01", recorded);
	accept_trace("00"); /* in place of the one before */
	is_below(call("worker1", "t::outer"), "00", recorded);
	CHECK_STATUS(far_trace_accept(NULL, &err), FAR_OK, &err);
	CHECK(!far_trace_get(text));
	CHECK((strcmp(call("worker1", "t::seen"), "none") == 0) == !recorded);
}

/* The spans of a profile are below the accepted trace, those of other workers, too. */
static void profile_below(void)
{
	struct far_profile *p;
	char hex[33];
	size_t n;
	accept_trace("01");
	CHECK_STATUS(far_profile_begin(NULL, &p, &err), FAR_OK, &err);
	CHECK_STATUS(far_trace_accept(NULL, &err), FAR_INVALID, &err);
	is_below(call("worker1", "t::outer"), "01", true);
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::fails", FAR_NOARGS, NULL, NULL, &err), FAR_REMOTE, &err);
	CHECK_STATUS(far_profile_end(p, &err), FAR_OK, &err);
	CHECK_STATUS(far_profile_end(p, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_profile_wait(p, FAR_FOREVER, &err), FAR_OK, &err);
	const struct far_span *s = far_profile_spans(p, agent, &n);
	CHECK(s && n == 6); /* outer: call, handler, range, call, handler; fails: call */
	for (size_t i = 0; i < n; i++) {
		put_hex(s[i].trace, sizeof s[i].trace, hex);
		CHECK(strcmp(hex, trace) == 0);
		put_hex(&s[i].parent_id, sizeof s[i].parent_id, hex);
		CHECK(s[i].parent < 0 ? strcmp(hex, parent) == 0 : s[i].parent_id == s[s[i].parent].id);
		CHECK((s[i].parent < 0) == (i == 0 || i == 5));
		CHECK(s[i].status == (i == 5 ? FAR_REMOTE : FAR_OK) && s[i].begin_ns <= s[i].end_ns);
		CHECK(s[i].at == (i == 0 || i == 5 ? 0 : i == 4 ? 2 : 1) && s[i].remote == (s[i].at != 0));
	}
	CHECK(s[1].parent == 0 && s[2].parent == 1 && s[3].parent == 2 && s[4].parent == 3);
	far_profile_free(p);
	CHECK_STATUS(far_trace_accept(NULL, &err), FAR_OK, &err);
}

/* The profile of a server has the traces of its callers. */
static void profile_of_server(void)
{
	char want[64];
	call("worker1", "t::server_begin");
	accept_trace("01");
	call("worker1", "t::seen");
	CHECK_STATUS(far_trace_accept(NULL, &err), FAR_OK, &err);
	const char *text = call("worker1", "t::server_end");
	snprintf(want, sizeof want, "%s-%s", trace, parent);
	CHECK(strlen(text) == 49 && memcmp(text, trace, 32) == 0);
	CHECK((strcmp(text, want) == 0) == !recorded);
}

/* Programs with ranges run without a profile. */
static void ranges(void)
{
	struct far_future *f;
	size_t len;
	char back;
	CHECK(far_range_begin("outer") == FAR_OK && far_range_begin("inner") == FAR_OK);
	CHECK_STATUS(far_rpc_async(agent, "worker1", "t::seen", FAR_NOARGS, NULL, &f, &err), FAR_OK, &err);
	CHECK_STATUS(far_range_end_with(f, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_OK, &err);
	CHECK(far_range_end() == FAR_OK && far_range_end() == FAR_OK);
	far_future_free(f);
	CHECK_STATUS(far_msg_call(agent, (struct far_to){1, 0}, 1, "x", 1, NULL, &back, 1, &len, &err), FAR_OK, &err);
	CHECK(len == 1 && back == 'x');
}

int main(void)
{
	static const struct far_function table[] = {{"t::seen() -> str", FAR_KIND_INLINE, seen, NULL},
						    {"t::outer() -> str", FAR_KIND_FIBER, outer, NULL},
						    {"t::fails() -> none", FAR_KIND_INLINE, fails, NULL},
						    {"t::server_begin() -> none", FAR_KIND_FIBER, server_begin, NULL},
						    {"t::server_end() -> str", FAR_KIND_FIBER, server_end, NULL}};
	static const struct far_msg_handler messages[] = {{1, FAR_KIND_INLINE, on_message, NULL}};
	struct far_opts opts = {
		.functions = table, .functions_n = sizeof table / sizeof *table, .messages = messages, .messages_n = 1};
	recorded = getenv("FAR_PROFILE") != NULL;
	agent = check_join(&opts);
	if (check_rank() == 0) {
		malformed();
		traces();
		profile_below();
		profile_of_server();
		ranges();
	}
	check_leave(agent);
	return 0;
}
