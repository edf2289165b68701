/* SPDX-License-Identifier: BSD-3-Clause */
/** Metrics and debug information of an agent, collected from its shards, ports and threads. Any thread; those that
 * collect block. */
#ifndef FAR_AGENT_METRICS_H
#define FAR_AGENT_METRICS_H

#include "agent/agent.h"
#include "features/metrics/write.h"

/** Adds the counters of a shard. Never blocks, as the next two. */
void agent_counters_add(const struct shard *s, struct far_counters *out);
void agent_nic_stats(const struct far_agent *a, unsigned port, struct far_nic_stats *out);
void agent_rref_counts(const struct far_agent *a, struct far_rref_counts *out);

/** Collects everything; waits for its shards for METRICS_WAIT_NS. RESOURCE. The report is the caller's:
 * agent_report_free(). */
enum far_status agent_report(struct far_agent *a, struct metrics_report **out, struct far_err *err);
void agent_report_free(struct metrics_report *r);
/** Writes as JSON what is under way, since when, and what the shards and the control thread do. */
enum far_status agent_debug_write(struct far_agent *a, struct metrics_out *o, struct far_err *err);
/** Writes as JSON who the worker is. Never blocks. */
void agent_info_write(const struct far_agent *a, struct metrics_out *o);

/** Reads FAR_METRICS_SAMPLE: the latency of one in so many calls is measured. INVALID. */
enum far_status agent_sample_every(uint32_t *out, struct far_err *err);
/** Start and stop what serves metrics: the admin socket, and HTTP if FAR_METRICS is set. */
struct init;
enum far_status agent_init_metrics(struct init *in);
void agent_fini_metrics(struct far_agent *a);

#endif
