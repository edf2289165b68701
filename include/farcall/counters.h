/* SPDX-License-Identifier: BSD-3-Clause */
/** Counters of an agent, of its shards and of its NIC ports, and the bounds in use. <farcall/metrics.h> has sums over
 * them with latencies, peers and references. Any thread, unless a function names another one. */
#ifndef FARCALL_COUNTERS_H
#define FARCALL_COUNTERS_H

#include <farcall/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

struct far_agent;

/* ---- Any thread; these never block ---- */

/** Counters of an agent (the sum over its shards) or of one shard. Read while the shards run. */
struct far_counters {
	uint64_t calls_sent, calls_completed, calls_failed, calls_timed_out;
	uint64_t requests_received, replies_sent;
	uint64_t replies_late; /* replies that arrived after their call had ended */
	uint64_t bytes_sent, bytes_received;
	uint64_t packets_dropped;    /* malformed, or not valid in the session's state */
	uint64_t busy_refusals;      /* calls and one-way messages refused with FAR_BUSY */
	uint64_t calls_retried;      /* requests sent again (far_call_opts.retry) */
	uint64_t requests_duplicate; /* duplicates received, and not run again */
	uint64_t wakeups;            /* times the thread that polls the shard woke from sleep */
	uint64_t calls_active, requests_active;
	uint64_t oneways_sent, oneways_received; /* one-way messages */
	uint64_t oneways_dropped; /* one-way messages without a handler, past their deadline, without memory, or lost
				   with the peer */
	uint64_t rendezvous_sent, rendezvous_received; /* rendezvous messages, completed */
	uint64_t rendezvous_active;                    /* rendezvous messages in transfer, both directions */
	uint64_t hedges_sent;                          /* hedge calls of fan-outs */
	uint64_t hedges_won;                           /* hedge calls that answered first */
	uint64_t bytes_by_reference;                   /* received in memory of far_alloc_shared() of the sender */
};

/** The functions below with the caller's size of struct far_counters. */
void far_counters_read_sized(struct far_agent *agent, struct far_counters *out, size_t bytes);
enum far_status far_shard_counters_read_sized(struct far_agent *agent, unsigned shard, struct far_counters *out,
					      size_t bytes, struct far_err *err);

/** Reads the sum over all shards. */
static inline void far_counters_read(struct far_agent *agent, struct far_counters *out)
{
	far_counters_read_sized(agent, out, sizeof *out);
}
/** Reads those of one shard. Errors: INVALID (no such shard). */
static inline enum far_status far_shard_counters_read(struct far_agent *agent, unsigned shard, struct far_counters *out,
						      struct far_err *err)
{
	return far_shard_counters_read_sized(agent, shard, out, sizeof *out, err);
}

/** A NIC port of the agent and its counters. Counters may be a moment old; those a driver does not keep are 0. */
struct far_nic_stats {
	char driver[16];
	char address[96]; /* as published, as text */
	bool only_self;   /* not published: used for calls on oneself */
	uint64_t rx_packets, tx_packets;
	uint64_t rx_bytes, tx_bytes;
	uint64_t rx_unexpected; /* received, not for this port: other protocols, ports or addresses */
	uint64_t rx_malformed;  /* received for this port, malformed */
	uint64_t rx_missed;     /* lost because the device or the kernel had no room */
	uint64_t tx_dropped;    /* refused by the device or the kernel */
	uint64_t kicks;         /* wake-ups sent to peers */
	/* Of drivers that may lose, duplicate or damage packets: packets sent again, received twice, with a wrong
	 * CRC32C. */
	uint64_t resent, duplicates, crc_errors;
	uint64_t refused;              /* connect requests rejected */
	uint64_t timeouts;             /* retransmission timeouts */
	uint64_t tail_loss_probes;     /* tail loss probes: the last packet sent again before a timeout */
	uint64_t spurious_retransmits; /* retransmits whose original had arrived */
	/* Received and dropped: of no known connection or of another incarnation of this worker; of a closed
	 * connection; without memory, or out of order beyond the window (sent again); connect requests beyond those
	 * that may be in progress (sent again). */
	uint64_t unknown_connection_drops, closed_connection_drops, no_memory, handshake_backlog_drops;
	uint64_t grant_retransmits; /* grants of rendezvous messages sent again */
	uint64_t path_migrations;   /* sessions of this port that moved to another path, or back */
	uint64_t read_bytes;        /* of rendezvous messages that this port's device read from the sender's memory */
};
/** Ports of the agent. Port 0 is the preferred one. */
unsigned far_nic_ports(struct far_agent *agent);
/** far_nic_stats_read() with the caller's size of the struct. */
enum far_status far_nic_stats_read_sized(struct far_agent *agent, unsigned port, struct far_nic_stats *out,
					 size_t bytes, struct far_err *err);
/** Reads port `port`, [0, far_nic_ports()). Errors: INVALID. */
static inline enum far_status far_nic_stats_read(struct far_agent *agent, unsigned port, struct far_nic_stats *out,
						 struct far_err *err)
{
	return far_nic_stats_read_sized(agent, port, out, sizeof *out, err);
}

/** Bounds in use: far_opts with defaults filled in and powers of two rounded up. */
struct far_limits {
	unsigned submit_slots, mailbox_slots, calls, deferred, peer_calls, retry_window, fibers; /* per shard */
	unsigned peer_waiting;                                                                   /* per shard */
	unsigned blocking_threads, blocking_queue;                                               /* per agent */
};
/** far_limits_read() with the caller's size of the struct. */
void far_limits_read_sized(struct far_agent *agent, struct far_limits *out, size_t bytes);
/** Reads the bounds in use; the defaults if `agent` is NULL. */
static inline void far_limits_read(struct far_agent *agent, struct far_limits *out)
{
	far_limits_read_sized(agent, out, sizeof *out);
}

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
