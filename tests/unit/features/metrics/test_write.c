/* SPDX-License-Identifier: BSD-3-Clause */
/** Metrics as text: the four formats of one report, names and units, quoting, percentiles. The test's thread. */
#include "features/metrics/write.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct metrics_report r;
static struct far_peer_metrics peer = {.name = "w1", .rank = 1, .nic = "shm", .calls = 7};
static struct metrics_added *added;
static struct metrics_out o;

static void setup(void)
{
	r = (struct metrics_report){.worker = "w0",
				    .group = "g",
				    .state = "ready",
				    .rank = 3,
				    .pid = 4711,
				    .nics_n = 1,
				    .shards_n = 2,
				    .peers_n = 1,
				    .peers = &peer,
				    .added = &added};
	r.sum.calls_sent = 3;
	r.sum.uptime_ns = 1500000000;
	r.sum.latency_n = 3;
	r.sum.latency_sum_ns = 2000000001;
	r.latency[latency_bucket(1000)] = 2; /* which ends at 1024 ns */
	r.latency[latency_bucket(3000)] = 1;
	snprintf(r.nics[0].driver, sizeof r.nics[0].driver, "udp");
	snprintf(r.nics[0].address, sizeof r.nics[0].address, "10.0.0.1:7");
	r.nics[0].tx_packets = 12;
	r.nic_sessions[0] = 5;
	r.shards[1].counters.calls_sent = 9;
	r.shards[1].cpu_ns = 250000000;
	peer.errors[1] = 4;
}

static void teardown(void)
{
	free(o.text);
	o = (struct metrics_out){0};
}

TestSuite(metrics_write, .init = setup, .fini = teardown);

static const char *written(enum far_metrics_format format)
{
	teardown();
	metrics_write(&r, format, &o);
	cr_assert(o.text && !o.failed && strlen(o.text) == o.len && o.len < o.cap);
	return o.text;
}

static void expect(const char *part)
{
	cr_assert(strstr(o.text, part), "no \"%s\" in: %s", part, o.text);
}

static unsigned count(const char *part)
{
	unsigned n = 0;
	for (const char *at = o.text; (at = strstr(at, part)); at += strlen(part))
		n++;
	return n;
}

Test(metrics_write, prometheus)
{
	written(FAR_METRICS_PROMETHEUS);
	expect("# HELP farcall_calls_sent_total Calls begun.\n# TYPE farcall_calls_sent_total counter\n"
	       "farcall_calls_sent_total{group=\"g\",worker=\"w0\"} 3\n");
	expect("farcall_uptime_seconds{group=\"g\",worker=\"w0\"} 1.500000000\n");
	expect("farcall_nic_sent_packets_total{group=\"g\",worker=\"w0\",nic=\"udp\",address=\"10.0.0.1:7\"} 12\n");
	expect("farcall_peer_calls_total{group=\"g\",worker=\"w0\",peer=\"w1\"} 7\n");
	expect(",peer=\"w1\",class=\"lost\"} 4\n");
	expect(",shard=\"1\"} 9\n");
	expect(",shard=\"1\"} 0.250000000\n");
	cr_assert_eq(count("# UNIT") + count("# EOF"), 0u);
}

/* Expect the buckets to count all calls up to their ends, and the last one all of them. */
Test(metrics_write, latency_is_a_histogram)
{
	written(FAR_METRICS_PROMETHEUS);
	expect("_bucket{group=\"g\",worker=\"w0\",le=\"1.024e-06\"} 2\n");
	expect("le=\"2.048e-06\"} 2\n");
	expect("le=\"4.096e-06\"} 3\n");
	expect("le=\"+Inf\"} 3\n");
	expect("farcall_call_latency_seconds_sum{group=\"g\",worker=\"w0\"} 2.000000001\n");
	expect("farcall_call_latency_seconds_count{group=\"g\",worker=\"w0\"} 3\n");
}

/* A family is described once, before its samples, and each sample has a family. */
Test(metrics_write, each_family_is_described_once)
{
	static char names[256][96];
	unsigned n = 0;
	char *text = strdup(written(FAR_METRICS_PROMETHEUS));
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		if (strncmp(line, "# TYPE ", 7) == 0) {
			cr_assert_lt(n, 256u);
			snprintf(names[n], sizeof *names, "%.*s", (int)strcspn(line + 7, " "), line + 7);
			for (unsigned i = 0; i < n; i++)
				cr_assert_str_neq(names[i], names[n]);
			n++;
		} else if (*line != '#') {
			cr_assert(n && strncmp(line, names[n - 1], strlen(names[n - 1])) == 0, "%s after %s", line,
				  n ? names[n - 1] : "nothing");
		}
	}
	cr_assert_gt(n, 50u);
	free(text);
}

/* Families are named without the ending of their samples, and have units. */
Test(metrics_write, openmetrics)
{
	written(FAR_METRICS_OPENMETRICS);
	expect("# TYPE farcall_calls_sent counter\n# HELP farcall_calls_sent Calls begun.\n"
	       "farcall_calls_sent_total{group=\"g\",worker=\"w0\"} 3\n");
	expect("# TYPE farcall_sent_bytes counter\n# UNIT farcall_sent_bytes bytes\n");
	expect("# TYPE farcall_uptime_seconds gauge\n# UNIT farcall_uptime_seconds seconds\n");
	expect("# TYPE farcall info\n");
	cr_assert_str_eq(o.text + o.len - 6, "# EOF\n");
	cr_assert_eq(count("# EOF"), 1u);
}

Test(metrics_write, json)
{
	int depth = 0;
	written(FAR_METRICS_JSON);
	expect("\"worker\":\"w0\",\"group\":\"g\",\"rank\":3,\"pid\":4711,\"state\":\"ready\",\"calls_sent\":3");
	expect("\"uptime_ns\":1500000000");
	expect("\"latency\":{\"n\":3,\"sum_ns\":2000000001");
	expect("\"nics\":[{\"nic\":\"udp\",\"address\":\"10.0.0.1:7\",\"sessions_up\":5,\"tx_packets\":12");
	expect("\"peers\":[{\"peer\":\"w1\",\"rank\":1,\"nic\":\"shm\"");
	expect("{\"shard\":1,\"calls_sent\":9,\"requests_received\":0,\"cpu_ns\":250000000}");
	for (const char *at = o.text; *at; at++) {
		depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
		cr_assert(depth > 0 || !strcmp(at, "}\n") || *at == '\n');
	}
	cr_assert_eq(depth, 0);
	cr_assert_eq(count(",,") + count("[,") + count("{,") + count(",]") + count(",}"), 0u);
}

/* Samples alone, without the labels that all have. */
Test(metrics_write, text)
{
	written(FAR_METRICS_TEXT);
	expect("farcall_calls_sent_total 3\n");
	expect("farcall_peer_calls_total{peer=\"w1\"} 7\n");
	cr_assert_eq(count("group=") + count("worker=") + count("#"), 0u);
}

Test(metrics_write, names_are_quoted)
{
	r.group = "a\"b\\c\nd\x01";
	written(FAR_METRICS_PROMETHEUS);
	expect("farcall_calls_sent_total{group=\"a\\\"b\\\\c\\nd\",worker=\"w0\"} 3\n");
	written(FAR_METRICS_JSON);
	expect("\"group\":\"a\\\"b\\\\c\\nd\",");
}

/* After a failed allocation. */
Test(metrics_write, a_failed_text_stays_as_it_is)
{
	metrics_put(&o, "%s", "before");
	o.failed = true;
	metrics_put(&o, "%s", "after");
	cr_assert_str_eq(o.text, "before");
	cr_assert_eq(o.len, 6u);
}

Test(metrics_write, percentiles)
{
	static uint64_t b[LATENCY_BUCKETS];
	cr_assert_eq(metrics_percentile(b, 0, 500), 0u);
	b[latency_bucket(100)] = 90;
	b[latency_bucket(5000)] = 9;
	b[latency_bucket(80000)] = 1;
	cr_assert_eq(metrics_percentile(b, 100, 500), latency_bucket_end(latency_bucket(100)) - 1);
	cr_assert_eq(metrics_percentile(b, 100, 900), latency_bucket_end(latency_bucket(100)) - 1);
	cr_assert_eq(metrics_percentile(b, 100, 901), latency_bucket_end(latency_bucket(5000)) - 1);
	cr_assert_eq(metrics_percentile(b, 100, 990), latency_bucket_end(latency_bucket(5000)) - 1);
	cr_assert_eq(metrics_percentile(b, 100, 999), latency_bucket_end(latency_bucket(80000)) - 1);
}

/* Of a worker, a peer, a port, and of several fields. */
Test(metrics_write, names_that_are_taken)
{
	static const char *const names[] = {"farcall_calls_sent_total", "farcall_peer_calls_total",
					    "farcall_nic_sent_packets_total", "farcall_call_latency_seconds"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		cr_assert(metrics_name_taken(names[i]), "%s", names[i]);
	cr_assert_not(metrics_name_taken("farcall_calls_sent"));
	cr_assert_not(metrics_name_taken(""));
}
