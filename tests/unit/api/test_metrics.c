/* SPDX-License-Identifier: BSD-3-Clause */
/** The metrics of an agent as an application reads them: sizes, formats, its own beside them, who may read. The test's
 * thread, which steps the agents. */
#include "agents_fixture.h"

#include <farcall/metrics.h>
#include <string.h>

static void setup(void)
{
	agents_begin(2, NULL);
}

TestSuite(api_metrics, .init = setup, .fini = agents_end);

/* A program of another version has another struct. Expect what both have, zeros beyond, and not a byte more. */
Test(api_metrics, sizes_of_other_versions)
{
	struct {
		struct far_metrics m;
		uint64_t beyond[2];
	} out;
	cr_assert_eq(agents_call("far::identity", FAR_ARGS(1), NULL), FAR_OK, "%s", err.text);
	memset(&out, 0xee, sizeof out);
	cr_assert_eq(far_metrics_read_sized(agents[0], &out.m, sizeof out.m + 8, &err), FAR_OK, "%s", err.text);
	cr_assert(out.m.calls_sent == 1 && out.m.members == 2);
	cr_assert(out.beyond[0] == 0 && out.beyond[1] == UINT64_C(0xeeeeeeeeeeeeeeee));
	memset(&out, 0xee, sizeof out);
	cr_assert_eq(far_metrics_read_sized(agents[0], &out.m, 8, &err), FAR_OK, "%s", err.text);
	cr_assert(out.m.calls_sent == 1 && out.m.calls_completed == UINT64_C(0xeeeeeeeeeeeeeeee));
}

Test(api_metrics, peers)
{
	struct {
		struct far_peer_metrics p;
		uint64_t more;
	} p[3];
	cr_assert_eq(agents_call("far::identity", FAR_ARGS(1), NULL), FAR_OK, "%s", err.text);
	memset(p, 0xee, sizeof p);
	cr_assert_eq(far_metrics_peers_sized(agents[0], &p[0].p, 3, sizeof p[0], &err), FAR_OK, "%s", err.text);
	cr_assert(strcmp(p[0].p.name, "w0") == 0 && strcmp(p[1].p.name, "w1") == 0);
	cr_assert(p[0].p.calls == 0 && p[1].p.calls == 1 && p[1].more == 0);
	cr_assert_eq(p[2].p.rank, (int32_t)0xeeeeeeee, "beyond the group");
	memset(p, 0xee, sizeof p);
	cr_assert_eq(far_metrics_peers_sized(agents[0], &p[0].p, 1, sizeof p[0], &err), FAR_OK, "%s", err.text);
	cr_assert_eq(p[1].p.rank, (int32_t)0xeeeeeeee, "beyond the room");
}

static void expect(enum far_metrics_format format, const char *part)
{
	char *text;
	cr_assert_eq(far_metrics_text(agents[0], format, &text, &err), FAR_OK, "%s", err.text);
	cr_assert(strstr(text, part), "%s is not in:\n%s", part, text);
	far_metrics_free(text);
}

static void read_rows(struct far_metrics_sink *sink, void *user)
{
	far_metrics_put(sink, 0, *(double *)user, NULL);
}

/* Metrics of the application stand beside the others until they are removed. */
Test(api_metrics, texts)
{
	static const struct far_metric rows = {"app_rows_total", NULL, "Rows that were read", FAR_METRIC_COUNTER};
	double n = 12;
	char *text;
	cr_assert_eq(agents_call("far::identity", FAR_ARGS(1), NULL), FAR_OK, "%s", err.text);
	expect(FAR_METRICS_TEXT, "calls_sent");
	expect(FAR_METRICS_JSON, "\"calls_sent\":1");
	expect(FAR_METRICS_PROMETHEUS, "farcall_calls_sent_total{");
	expect(FAR_METRICS_OPENMETRICS, "# EOF\n");
	cr_assert_eq(far_metrics_text(agents[0], (enum far_metrics_format)4, &text, &err), FAR_INVALID);
	cr_assert_str_eq(err.text, "far_metrics_text: 4 is no format");
	cr_assert_eq(far_metrics_add(agents[0], &rows, 1, read_rows, &n, &err), FAR_OK, "%s", err.text);
	expect(FAR_METRICS_PROMETHEUS, "# TYPE app_rows_total counter\n");
	cr_assert_eq(far_metrics_remove(agents[0], read_rows, &n, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_metrics_text(agents[0], FAR_METRICS_PROMETHEUS, &text, &err), FAR_OK);
	cr_assert_null(strstr(text, "app_rows_total"));
	far_metrics_free(text);
	cr_assert_eq(far_metrics_remove(agents[0], read_rows, &n, &err), FAR_INVALID);
	cr_assert_str_eq(err.text, "this reader has no metrics: it was not added, or removed before");
}

static enum far_status reads(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_agent *a = far_req_agent(req);
	struct far_metrics m;
	struct far_err e;
	char *text;
	double rows = 0;
	static const struct far_metric metric = {"app_rows_total", NULL, "Rows that were read", FAR_METRIC_COUNTER};
	cr_assert_eq(far_metrics_read(a, &m, &e), FAR_WOULD_DEADLOCK);
	cr_assert(strstr(e.text, "far_metrics_read in a handler or callback would wait for the shard"), "%s", e.text);
	cr_assert_eq(far_metrics_text(a, FAR_METRICS_JSON, &text, &e), FAR_WOULD_DEADLOCK);
	cr_assert_eq(far_metrics_add(a, &metric, 1, read_rows, &rows, &e), FAR_WOULD_DEADLOCK);
	cr_assert_eq(far_metrics_remove(a, read_rows, &rows, &e), FAR_WOULD_DEADLOCK);
	return far_return(req, NULL);
}

/* The shard that would answer runs the handler. */
Test(api_metrics, not_in_a_handler)
{
	static const struct far_function f = {"t::reads() -> none", FAR_KIND_INLINE, reads, NULL};
	cr_assert_eq(far_register_function(agents[1], &f, &err), FAR_OK);
	cr_assert_eq(agents_call("t::reads", NULL, 0, NULL), FAR_OK, "%s", err.text);
}
