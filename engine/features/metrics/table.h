/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The names of all metrics. engine/METRICS.md describes the same ones, which a test compares. Constant. Any thread.
 *
 * METRICS_SCALARS(X): X(field of struct far_metrics, name, kind, divisor from the field's unit, help).
 * METRICS_PEER, METRICS_NIC: the same of struct far_peer_metrics and far_nic_stats.
 * METRICS_OTHER(X): X(name, kind, labels, help): families that are not one field.
 * A counter's name ends in _total. Times are in seconds, sizes in bytes.
 */
#ifndef FAR_FEATURES_METRICS_TABLE_H
#define FAR_FEATURES_METRICS_TABLE_H

#define METRICS_NS 1000000000u

#define METRICS_SCALARS(X)                                                                                             \
	X(calls_sent, "farcall_calls_sent_total", COUNTER, 1, "Calls begun")                                           \
	X(calls_completed, "farcall_calls_completed_total", COUNTER, 1, "Calls that ended with a value")               \
	X(calls_failed, "farcall_calls_failed_total", COUNTER, 1, "Calls that ended with an error")                    \
	X(calls_timed_out, "farcall_calls_timed_out_total", COUNTER, 1, "Calls that reached their deadline")           \
	X(calls_retried, "farcall_calls_retried_total", COUNTER, 1, "Requests sent again")                             \
	X(calls_active, "farcall_calls_active", GAUGE, 1, "Calls begun and not ended")                                 \
	X(calls_waiting, "farcall_calls_waiting", GAUGE, 1, "Calls that wait for a session or for room")               \
	X(hedges_sent, "farcall_hedges_sent_total", COUNTER, 1, "Hedge calls of fan-outs")                             \
	X(hedges_won, "farcall_hedges_won_total", COUNTER, 1, "Hedge calls that answered first")                       \
	X(requests_received, "farcall_requests_received_total", COUNTER, 1, "Requests received")                       \
	X(replies_sent, "farcall_replies_sent_total", COUNTER, 1, "Replies sent")                                      \
	X(requests_active, "farcall_requests_active", GAUGE, 1, "Requests not answered")                               \
	X(requests_deferred, "farcall_requests_deferred", GAUGE, 1, "Requests to be answered later, on no fiber")      \
	X(requests_duplicate, "farcall_requests_duplicate_total", COUNTER, 1, "Duplicate requests, not run again")     \
	X(bytes_sent, "farcall_sent_bytes_total", COUNTER, 1, "Bodies of messages sent")                               \
	X(bytes_received, "farcall_received_bytes_total", COUNTER, 1, "Bodies of messages received")                   \
	X(oneways_sent, "farcall_oneways_sent_total", COUNTER, 1, "One-way messages sent")                             \
	X(oneways_received, "farcall_oneways_received_total", COUNTER, 1, "One-way messages received")                 \
	X(rendezvous_sent, "farcall_rendezvous_sent_total", COUNTER, 1, "Rendezvous messages sent")                    \
	X(rendezvous_received, "farcall_rendezvous_received_total", COUNTER, 1, "Rendezvous messages received")        \
	X(rendezvous_active, "farcall_rendezvous_active", GAUGE, 1, "Rendezvous messages in transfer")                 \
	X(bytes_by_reference, "farcall_by_reference_bytes_total", COUNTER, 1, "Received from memory of the sender")    \
	X(rrefs_owned, "farcall_rrefs_owned", GAUGE, 1, "Values kept here")                                            \
	X(rrefs_held, "farcall_rrefs_held", GAUGE, 1, "References held to values of others")                           \
	X(rrefs_unconfirmed, "farcall_rrefs_unconfirmed", GAUGE, 1, "Held references not confirmed by the owner")      \
	X(rrefs_forks, "farcall_rrefs_forks", GAUGE, 1, "References of others to values kept here")                    \
	X(rrefs_pending, "farcall_rrefs_pending", GAUGE, 1, "Control messages about references not acknowledged")      \
	X(threads, "farcall_threads", GAUGE, 1, "Threads of blocking handlers")                                        \
	X(threads_idle, "farcall_threads_idle", GAUGE, 1, "Threads of blocking handlers without work")                 \
	X(threads_queued, "farcall_threads_queued", GAUGE, 1, "Requests that wait for a thread")                       \
	X(fibers_max, "farcall_fibers_max", GAUGE, 1, "Fibers that may be in use")                                     \
	X(fibers_active, "farcall_fibers_active", GAUGE, 1, "Fibers in use")                                           \
	X(memory_reserved, "farcall_memory_reserved_bytes", GAUGE, 1, "Address space of the region")                   \
	X(memory_committed, "farcall_memory_committed_bytes", GAUGE, 1, "Memory of the region that may have pages")    \
	X(memory_slab_used, "farcall_memory_slab_used_bytes", GAUGE, 1, "Small buffers in use")                        \
	X(memory_large_used, "farcall_memory_large_used_bytes", GAUGE, 1, "Large buffers in use")                      \
	X(memory_retained, "farcall_memory_retained_bytes", GAUGE, 1, "Freed pages kept")                              \
	X(members, "farcall_members", GAUGE, 1, "Workers of the group")                                                \
	X(members_alive, "farcall_members_alive", GAUGE, 1, "Workers of the group that are members now")               \
	X(sessions_up, "farcall_sessions_up", GAUGE, 1, "Sessions that are up")                                        \
	X(sessions_connecting, "farcall_sessions_connecting", GAUGE, 1, "Sessions that are being set up")              \
	X(sessions_lost, "farcall_sessions_lost", GAUGE, 1, "Sessions whose worker is lost")                           \
	X(shards, "farcall_shards", GAUGE, 1, "Shards of the worker")                                                  \
	X(shards_silent, "farcall_shards_silent", GAUGE, 1, "Shards that did not answer to this reading")              \
	X(wakeups, "farcall_wakeups_total", COUNTER, 1, "Times a poller woke from sleep")                              \
	X(uptime_ns, "farcall_uptime_seconds", GAUGE, METRICS_NS, "Time since the worker's start")                     \
	X(latency_every, "farcall_call_latency_sampled_one_in", GAUGE, 1, "One call in so many is measured")

#define METRICS_PEERS(X)                                                                                               \
	X(sessions_up, "farcall_peer_sessions_up", GAUGE, 1, "Sessions with the worker that are up")                   \
	X(calls, "farcall_peer_calls_total", COUNTER, 1, "Calls to the worker")                                        \
	X(calls_active, "farcall_peer_calls_active", GAUGE, 1, "Calls to the worker not ended")                        \
	X(requests, "farcall_peer_requests_total", COUNTER, 1, "Requests and one-way messages of the worker")          \
	X(requests_active, "farcall_peer_requests_active", GAUGE, 1, "Requests of the worker not answered")            \
	X(bytes_sent, "farcall_peer_sent_bytes_total", COUNTER, 1, "Bodies of messages sent to the worker")            \
	X(bytes_received, "farcall_peer_received_bytes_total", COUNTER, 1, "Bodies of messages of the worker")

#define METRICS_NICS(X)                                                                                                \
	X(tx_packets, "farcall_nic_sent_packets_total", COUNTER, 1, "Packets sent")                                    \
	X(rx_packets, "farcall_nic_received_packets_total", COUNTER, 1, "Packets received")                            \
	X(tx_bytes, "farcall_nic_sent_bytes_total", COUNTER, 1, "Bytes sent")                                          \
	X(rx_bytes, "farcall_nic_received_bytes_total", COUNTER, 1, "Bytes received")                                  \
	X(kicks, "farcall_nic_kicks_total", COUNTER, 1, "Wake-ups sent to peers")                                      \
	X(resent, "farcall_nic_retransmits_total", COUNTER, 1, "Packets sent again")                                   \
	X(spurious_retransmits, "farcall_nic_spurious_retransmits_total", COUNTER, 1, "Of these, without need")        \
	X(timeouts, "farcall_nic_retransmission_timeouts_total", COUNTER, 1, "Retransmission timeouts")                \
	X(tail_loss_probes, "farcall_nic_tail_loss_probes_total", COUNTER, 1, "Tail loss probes")                      \
	X(grant_retransmits, "farcall_nic_grant_retransmits_total", COUNTER, 1, "Grants sent again")                   \
	X(refused, "farcall_nic_connects_refused_total", COUNTER, 1, "Connect requests rejected")                      \
	X(path_migrations, "farcall_nic_path_migrations_total", COUNTER, 1, "Sessions that moved to another path")     \
	X(read_bytes, "farcall_nic_one_sided_read_bytes_total", COUNTER, 1, "Bytes read from the sender's memory")

/** Drops of a NIC port: field of struct far_nic_stats, reason. */
#define METRICS_NIC_DROPS(X)                                                                                           \
	X(rx_unexpected, "unexpected")                                                                                 \
	X(rx_malformed, "malformed")                                                                                   \
	X(rx_missed, "no_room")                                                                                        \
	X(tx_dropped, "send_refused")                                                                                  \
	X(duplicates, "duplicate")                                                                                     \
	X(crc_errors, "checksum")                                                                                      \
	X(unknown_connection_drops, "unknown_connection")                                                              \
	X(closed_connection_drops, "closed_connection")                                                                \
	X(no_memory, "no_memory")                                                                                      \
	X(handshake_backlog_drops, "handshake_backlog")

/** Drops of the worker: field of struct far_metrics, reason. */
#define METRICS_DROPS(X)                                                                                               \
	X(packets_dropped, "invalid")                                                                                  \
	X(replies_late, "reply_late")                                                                                  \
	X(oneways_dropped, "oneway")                                                                                   \
	X(busy_refusals, "busy")

#define METRICS_OTHER(X)                                                                                               \
	X("farcall_info", GAUGE, "version", "1, with the version as a label")                                          \
	X("farcall_drops_total", COUNTER, "reason", "Messages and packets dropped or refused")                         \
	X("farcall_nic_drops_total", COUNTER, "nic, address, reason", "Packets dropped by a NIC port")                 \
	X("farcall_nic_sessions_up", GAUGE, "nic, address", "Sessions that are up, by their NIC port")                 \
	X("farcall_peer_errors_total", COUNTER, "peer, class", "Calls to the worker that failed")                      \
	X("farcall_shard_calls_sent_total", COUNTER, "shard", "Calls begun, by shard")                                 \
	X("farcall_shard_requests_received_total", COUNTER, "shard", "Requests received, by shard")                    \
	X("farcall_shard_poller_cpu_seconds_total", COUNTER, "shard", "CPU time of the poller's thread")               \
	X("farcall_call_latency_seconds", HISTOGRAM, "le", "Latency of the measured calls")

#endif
