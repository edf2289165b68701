/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Metrics of the tables of a server, as the worker's metrics have them. engine/METRICS.md describes the same ones,
 * which a test compares. The thread that reads the metrics.
 *
 * METRICS_PS(X): X(field of struct far_ps_stats, name, kind, divisor from the field's unit, help).
 */
#ifndef PSV_METRICS_H
#define PSV_METRICS_H

#include "psv_shard.h"

#define PSV_METRICS_NS 1000000000u

#define METRICS_PS(X)                                                                                                  \
	X(rows, "farcall_ps_rows", GAUGE, 1, "Rows, with expired ones that are not removed yet")                       \
	X(bytes, "farcall_ps_bytes", GAUGE, 1, "Memory of the table")                                                  \
	X(row_bytes, "farcall_ps_row_bytes", GAUGE, 1, "Of it, rows")                                                  \
	X(state_bytes, "farcall_ps_state_bytes", GAUGE, 1, "Of it, optimizer state")                                   \
	X(index_bytes, "farcall_ps_index_bytes", GAUGE, 1, "Of it, the index")                                         \
	X(pulls, "farcall_ps_pulls_total", COUNTER, 1, "Requests that pulled rows")                                    \
	X(pushes, "farcall_ps_pushes_total", COUNTER, 1, "Requests that changed rows, applied ones")                   \
	X(keys_pulled, "farcall_ps_keys_pulled_total", COUNTER, 1, "Keys of pulls")                                    \
	X(keys_pushed, "farcall_ps_keys_pushed_total", COUNTER, 1, "Keys of pushes")                                   \
	X(made, "farcall_ps_rows_made_total", COUNTER, 1, "Rows made")                                                 \
	X(erased, "farcall_ps_rows_erased_total", COUNTER, 1, "Rows erased by clients")                                \
	X(evicted, "farcall_ps_rows_evicted_total", COUNTER, 1, "Rows evicted from a full table")                      \
	X(expired, "farcall_ps_rows_expired_total", COUNTER, 1, "Rows removed after their TTL")                        \
	X(refused, "farcall_ps_keys_refused_total", COUNTER, 1, "Keys that found a full table")                        \
	X(waited, "farcall_ps_keys_waited_total", COUNTER, 1, "Pushed keys that were not admitted yet")                \
	X(duplicates, "farcall_ps_duplicates_total", COUNTER, 1, "Changes that were applied before")                   \
	X(scans, "farcall_ps_partitions_scanned_total", COUNTER, 1, "Partitions read by saves and scans")              \
	X(served, "farcall_ps_served_sampled_total", COUNTER, 1, "Requests whose time was measured, one in 64")        \
	X(served_ns, "farcall_ps_served_seconds_total", COUNTER, PSV_METRICS_NS, "Time of these at the shard")

/** Adds the metrics of a server to its worker's. RESOURCE. */
enum far_status psv_metrics_add(struct far_ps_server *server, struct far_err *err);
/** Removes them; a reading has ended then. */
void psv_metrics_remove(struct far_ps_server *server);

#endif
