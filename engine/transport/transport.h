/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Public interface of the transport: a connected, reliable port over the port of a datagram driver. Called by the
 * control thread, except where noted.
 *
 * The port below may lose, duplicate, reorder or damage packets and has address handles only. The port above has what
 * the engine requires of every port: connected peers, reliable and ordered delivery, bodies up to 16 MiB, and a report
 * when a peer ends. The shard and the control thread use both kinds by nic/nic.h alone; this header has what nic.h
 * lacks. Packets are a struct wire_head (transport/wire.h) and bytes of messages.
 *
 * Owners of memory (nic_queue_ops.tx_zero_copy, nic_placement.owner) are struct far_buf (memory/buf.h).
 */
#ifndef FAR_TRANSPORT_TRANSPORT_H
#define FAR_TRANSPORT_TRANSPORT_H

#include "base/clock.h"
#include "base/group_key.h"
#include "nic/nic.h"

/** Counters of a transport's port since it was opened, all its queues together. */
struct transport_stats {
	uint64_t resent;           /* retransmitted packets: loss detected or time-out; tail loss probes not counted */
	uint64_t timeouts;         /* retransmission timers that expired */
	uint64_t tail_loss_probes; /* tail loss probes: last packets sent once more before a time-out */
	uint64_t spurious_retransmits; /* retransmitted packets that had arrived, as the receiver reports */
	uint64_t grant_retransmits;    /* grants sent again after no granted byte arrived */
	uint64_t path_migrations;      /* connections that migrated to another path */
	uint64_t read_bytes;           /* bytes of messages read from the peer's memory (nic_bulk_ops) */
	/* Packets that arrived and were dropped: */
	uint64_t duplicates; /* received before */
	uint64_t crc_errors;
	uint64_t malformed; /* they violate the wire format */
	uint64_t refused;   /* set-up packets that are not authenticated, and connect requests that were rejected */
	uint64_t unknown_connection_drops; /* unknown connection: wrong token, or another incarnation of the port */
	uint64_t closed_connection_drops;  /* closed connection */
	uint64_t no_memory; /* no memory for the message, or a fragment out of turn; the sender retransmits */
	uint64_t handshake_backlog_drops; /* set-up packets beyond what waits for the control thread; the sender
					     retransmits */
};

struct transport_config {
	unsigned queues;     /* all queues of the port below */
	unsigned head_bytes; /* of packets above: sizeof(struct wire_call) */
	bool unchecked;      /* omit the CRC between peers that both set this, if the driver below does not check */
	uint64_t limit_ns;   /* a silent peer that owes an answer is DOWN after this. 0: FAR_PEER_LIMIT_NS */
	const struct clock_source *clock;   /* NULL: the system's */
	const struct random_source *random; /* of identity and tokens. NULL: the kernel's */
	const struct group_key *key; /* both ends prove it in each set-up. NULL: security=none. Outlives the port */
	uint32_t first_packet;       /* number of the first packet of each connection, for tests of wrap-around */
	/* Called when step() has work, on any thread, for callers that drive step() themselves; fd() is −1 then. NULL:
	 * fd() becomes readable instead. */
	void (*signal)(void *ctx);
	void *signal_ctx;
};

/** Returns true if a port with these capabilities needs a transport above it. */
bool transport_needed(const struct nic_caps *caps);

/**
 * Opens a port over `lower` and takes ownership of it: close() closes both. Its ops->name is lower's; its address is
 * lower's and the port's identity. On failure `lower` still belongs to the caller. -ENOMEM; -EINVAL: lower's packets
 * are too small, or its address leaves no room.
 */
int transport_open(struct nic_port *lower, const struct transport_config *config, struct nic_port **out,
		   struct nic_err *err);

/**
 * Makes the transports among these ports siblings: ports of one agent whose queues of one number belong to one shard.
 * Skips other ports. Called before any of them is stepped. Once one sibling is closed, none is stepped any more.
 */
void transport_join(struct nic_port *const ports[], unsigned n);

/**
 * Adds a secondary path to peer `number`, UP at `port`: to address `addr` of the driver below `through`, a sibling. The
 * connection fails over to it when neither its primary path nor a path added before reaches the peer. The peer must add
 * a path through its port at that address. `name` is returned by transport_path_current(). The caller steps both ports.
 * -EINVAL: no siblings, no such peer, or malformed; -ENOSPC: FAR_TRANSPORT_SECONDARY_PATHS_MAX; or -errno of the
 * driver, with its reason.
 */
int transport_path_add(struct nic_port *port, uint32_t number, struct nic_port *through, const struct nic_addr *addr,
		       uint32_t name, struct nic_err *err);

/** Called by step() when a connection has migrated: packets to `peer` leave by another path from now on, which
 * transport_path_current() returns. */
typedef void transport_migrated_fn(void *ctx, uint32_t peer);

/** Sets the callback for migrations. Called before the first step(). NULL: no callback. No effect on other ports. */
void transport_migration_callback(struct nic_port *port, transport_migrated_fn *migrated, void *ctx);

/** Returns the `name` of the path by which packets to this peer, UP at `port`, leave now; TRANSPORT_PATH_PRIMARY: the
 * primary path. */
uint32_t transport_path_current(struct nic_port *port, uint32_t peer);
#define TRANSPORT_PATH_PRIMARY UINT32_MAX

/** Reads the counters, which may be a moment old. All 0 for other ports. Any thread. */
void transport_stats_read(const struct nic_port *port, struct transport_stats *out);

/** address_text() of every transport: formats an address, also of a driver that is not open here. Any thread. */
void transport_address_text(const struct nic_addr *addr, char *out, size_t cap);

/** Returns the port below a transport's port, or `port` itself if it is another. */
struct nic_port *transport_lower(struct nic_port *port);

#endif
