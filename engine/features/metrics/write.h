/* SPDX-License-Identifier: BSD-3-Clause */
/** Metrics of an agent as text, as JSON, or in the text formats of Prometheus and OpenMetrics. Any thread; allocates.
 */
#ifndef FAR_FEATURES_METRICS_WRITE_H
#define FAR_FEATURES_METRICS_WRITE_H

#include "base/limits.h"
#include "core/latency.h"

#include <farcall/metrics.h>
#include <stdbool.h>
#include <stddef.h>

/** A growing text. After a failed allocation it stays as it is, and `failed` is set. */
struct metrics_out {
	char *text;
	size_t len, cap;
	bool failed;
	bool openmetrics; /* in that format, not in the one of Prometheus */
};

__attribute__((format(printf, 2, 3))) void metrics_put(struct metrics_out *o, const char *format, ...);
/** A text within quotes, escaped for JSON; Prometheus' labels have the same escapes for what names contain. */
void metrics_put_quoted(struct metrics_out *o, const char *text);

/** The lines before the samples of a metric. `unit`: NULL: seconds or bytes, if the name ends in it. */
void metrics_put_head(struct metrics_out *o, const char *name, const char *kind, const char *help, const char *unit);
/** Name and labels that every sample has; the closing brace is the caller's. */
struct metrics_report;
void metrics_put_labels(struct metrics_out *o, const struct metrics_report *r, const char *name);
/** True if it is the name of one of Farcall's metrics. */
bool metrics_name_taken(const char *name);

struct metrics_added;

/** What is written. */
struct metrics_report {
	const char *worker, *group, *state; /* of the control thread, in words */
	int rank;
	long pid;
	struct far_metrics sum;
	uint64_t latency[LATENCY_BUCKETS];
	unsigned nics_n, shards_n;
	struct far_nic_stats nics[FAR_PORTS_MAX];
	uint64_t nic_sessions[FAR_PORTS_MAX];
	struct {
		struct far_counters counters;
		uint64_t cpu_ns;
	} shards[FAR_SHARDS_MAX];
	unsigned peers_n;
	struct far_peer_metrics *peers;
	struct metrics_added *const *added; /* features/metrics/added.h */
};

void metrics_write(const struct metrics_report *r, enum far_metrics_format format, struct metrics_out *o);
/** Latency that share / 1000 of the measured calls do not exceed, in ns; 0: none was measured. */
uint64_t metrics_percentile(const uint64_t bucket[LATENCY_BUCKETS], uint64_t n, unsigned share);

#endif
