/* SPDX-License-Identifier: BSD-3-Clause */
/** Metrics that the application adds: their names, and their samples in both formats. The test's thread. */
#include "features/metrics/added.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct metrics_added *list;
static struct far_err err;
static const struct far_metric two[] = {{"app_rows_total", NULL, "Rows that were read", FAR_METRIC_COUNTER},
					{"app_wait_seconds", "seconds", "Time that was waited", FAR_METRIC_GAUGE}};

static void read_two(struct far_metrics_sink *sink, void *user)
{
	static const char *const labels[] = {"table", "a \"quoted\\\n name", NULL}, *const bad[] = {"1st", "x", NULL},
				 *const cut[] = {"table", NULL};
	far_metrics_put(sink, 0, 12, labels);
	far_metrics_put(sink, 0, 13, NULL);
	far_metrics_put(sink, 1, 0.25, NULL);
	far_metrics_put(sink, 2, 1, NULL); /* there is none: nothing is written */
	far_metrics_put(sink, 0, 99, bad);
	far_metrics_put(sink, 0, 99, cut);
}

static void teardown(void)
{
	metrics_added_free(&list);
}

TestSuite(metrics_added, .fini = teardown);

static enum far_status add(const struct far_metric *m, size_t n, far_metrics_reader *read, void *user)
{
	return metrics_added_add(&list, m, n, sizeof *m, read, user, &err);
}

static char *text_of(enum far_metrics_format format)
{
	static char text[4096];
	struct metrics_report r = {.worker = "w0", .group = "g"};
	struct metrics_out o = {0};
	metrics_added_write(&list, &r, format == FAR_METRICS_JSON, &o);
	cr_assert_not(o.failed);
	snprintf(text, sizeof text, "%s", o.text ? o.text : "");
	free(o.text);
	return text;
}

static void expect(const char *text, const char *part)
{
	cr_assert(strstr(text, part), "no \"%s\" in: %s", part, text);
}

Test(metrics_added, samples_for_prometheus)
{
	cr_assert_eq(add(two, 2, read_two, NULL), FAR_OK, "%s", err.text);
	for (unsigned again = 0; again < 2; again++) { /* a reading leaves nothing for the next */
		const char *text = text_of(FAR_METRICS_PROMETHEUS);
		expect(text, "# HELP app_rows_total Rows that were read");
		expect(text, "# TYPE app_rows_total counter\napp_rows_total{");
		expect(text, ",table=\"a \\\"quoted\\\\\\n name\"} 12\n");
		expect(text, "} 13\n# HELP app_wait_seconds");
		expect(text, "} 0.25\n");
		cr_assert_null(strstr(text, "99"), "%s", text);
		cr_assert_null(strstr(strstr(text, "} 12") + 1, "} 12"), "%s", text);
	}
}

Test(metrics_added, samples_in_json)
{
	cr_assert_eq(add(two, 2, read_two, NULL), FAR_OK, "%s", err.text);
	cr_assert_str_eq(
		text_of(FAR_METRICS_JSON),
		"{\"name\":\"app_rows_total\",\"kind\":\"counter\",\"unit\":\"\",\"samples\":["
		"{\"labels\":{\"table\":\"a \\\"quoted\\\\\\n name\"},\"value\":12},{\"labels\":{},\"value\":13}]},"
		"{\"name\":\"app_wait_seconds\",\"kind\":\"gauge\",\"unit\":\"seconds\",\"samples\":["
		"{\"labels\":{},\"value\":0.25}]}");
}

static void read_odd(struct far_metrics_sink *sink, void *user)
{
	far_metrics_put(sink, 0, (double)INFINITY, NULL);
	far_metrics_put(sink, 0, -(double)INFINITY, NULL);
	far_metrics_put(sink, 0, (double)NAN, NULL);
	far_metrics_put(sink, 0, 9007199254740991.0, NULL);
}

Test(metrics_added, values_that_are_no_numbers)
{
	const struct far_metric m = {"app_odd", NULL, "Odd values", FAR_METRIC_GAUGE};
	cr_assert_eq(add(&m, 1, read_odd, NULL), FAR_OK, "%s", err.text);
	const char *text = text_of(FAR_METRICS_PROMETHEUS);
	expect(text, "} +Inf\n");
	expect(text, "} -Inf\n");
	expect(text, "} NaN\n");
	text = text_of(FAR_METRICS_JSON);
	expect(text, "{\"labels\":{},\"value\":null},{\"labels\":{},\"value\":null},{\"labels\":{},\"value\":null}");
}

static void read_one(struct far_metrics_sink *sink, void *user)
{
	far_metrics_put(sink, 0, *(int *)user, NULL);
}

/* Two readers of one metric, as two tables of a program. Expect it written once, with the samples of both; removed,
 * with those of the other. */
Test(metrics_added, readers_share_a_metric)
{
	int first = 41, second = 42;
	cr_assert_eq(add(two, 1, read_one, &first), FAR_OK, "%s", err.text);
	cr_assert_eq(add(two, 1, read_one, &second), FAR_OK, "%s", err.text);
	cr_assert_eq(add(two, 1, read_one, &second), FAR_INVALID);
	cr_assert(strstr(err.text, "this reader was added before, with 1 metrics"), "%s", err.text);
	const char *text = text_of(FAR_METRICS_JSON);
	expect(text, "\"samples\":[{\"labels\":{},\"value\":41},{\"labels\":{},\"value\":42}]}");
	cr_assert_null(strstr(strstr(text, "app_rows_total") + 1, "app_rows_total"), "%s", text);
	cr_assert(metrics_added_remove(&list, read_one, &first));
	cr_assert_not(metrics_added_remove(&list, read_one, &first));
	text = text_of(FAR_METRICS_JSON);
	expect(text, "\"samples\":[{\"labels\":{},\"value\":42}]}");
	struct far_metric other = two[0];
	other.help = "Another text";
	cr_assert_eq(add(&other, 1, read_one, &first), FAR_INVALID);
	cr_assert(strstr(err.text, "metric app_rows_total was added with another kind, unit or help"), "%s", err.text);
}

/* Each rule of a name. Expect the metric and the rule in the text. */
Test(metrics_added, names_that_cannot_be)
{
	static char help[257];
	memset(help, 'h', 256);
	const struct {
		struct far_metric m;
		const char *why;
	} bad[] = {
		{{"1st_total", NULL, "h", FAR_METRIC_COUNTER}, "\"1st_total\" is no name of a metric"},
		{{"a-b", NULL, "h", FAR_METRIC_GAUGE}, "\"a-b\" is no name of a metric"},
		{{"", NULL, "h", FAR_METRIC_GAUGE}, "\"\" is no name"},
		{{NULL, NULL, "h", FAR_METRIC_GAUGE}, "\"\" is no name"},
		{{"app_rows", NULL, "h", FAR_METRIC_COUNTER}, "metric app_rows: the name of a counter"},
		{{"app_rows_total", NULL, "h", FAR_METRIC_GAUGE}, "metric app_rows_total: the name of a counter"},
		{{"_total", NULL, "h", FAR_METRIC_COUNTER}, "metric _total: the name of a counter"},
		{{"seconds", "seconds", "h", FAR_METRIC_GAUGE}, "its name does not end in its unit"},
		{{"app_x", NULL, "", FAR_METRIC_GAUGE}, "metric app_x: its help is not one line"},
		{{"app_x", NULL, "two\nlines", FAR_METRIC_GAUGE}, "metric app_x: its help is not one line"},
		{{"app_x", NULL, help, FAR_METRIC_GAUGE}, "its help is not one line of 1 to 255 bytes"},
		{{"app_x", NULL, NULL, FAR_METRIC_GAUGE}, "metric app_x: its help is not one line"},
		{{"app_wait", "seconds", "h", FAR_METRIC_GAUGE}, "metric app_wait: its name does not end in its unit"},
		{{"appseconds", "seconds", "h", FAR_METRIC_GAUGE}, "its name does not end in its unit"},
		{{"app_wait_ms", "m s", "h", FAR_METRIC_GAUGE}, "its unit is no word"},
		{{"app_x", NULL, "h", (enum far_metric_kind)7}, "metric app_x: 7 is no kind"}};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		cr_assert_eq(add(&bad[i].m, 1, read_one, NULL), FAR_INVALID, "case %zu", i);
		cr_assert(strstr(err.text, bad[i].why), "case %zu: %s", i, err.text);
	}
	cr_assert_eq(add(two, 0, read_one, NULL), FAR_INVALID);
	cr_assert_eq(add(two, FAR_METRICS_ADD_MAX + 1, read_one, NULL), FAR_INVALID);
	cr_assert_eq(add(NULL, 1, read_one, NULL), FAR_INVALID);
	cr_assert_eq(add(two, 1, NULL, NULL), FAR_INVALID);
	cr_assert_null(list);
	/* The second is wrong: the first is not added either. */
	const struct far_metric mixed[] = {two[0], bad[1].m};
	cr_assert_eq(add(mixed, 2, read_one, NULL), FAR_INVALID);
	cr_assert_null(list);
}

Test(metrics_added, names_of_farcall)
{
	const struct far_metric m = {"farcall_calls_sent_total", NULL, "Calls", FAR_METRIC_COUNTER};
	cr_assert(metrics_name_taken(m.name));
	cr_assert_eq(add(&m, 1, read_one, NULL), FAR_INVALID);
	cr_assert(strstr(err.text, "Farcall has a metric of this name"), "%s", err.text);
	cr_assert_not(metrics_name_taken("app_rows_total"));
}
