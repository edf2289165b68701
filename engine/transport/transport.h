/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Enough reliability for datagram drivers: a port over a port. Below is a driver whose packets may be lost, repeated,
 * reordered or damaged and that knows only places to send to; above is what the engine expects of every port:
 * connected peers, reliable and ordered, bodies of any size up to 16 MiB, and an end that is reported.
 *
 * Packets are a struct wire_head (engine/core/head.h) and bytes of a message; engine/PROTOCOL.md tables them. All of it
 * is behind nic/nic.h, so the shard and the control core see no difference.
 */
#ifndef FAR_TRANSPORT_TRANSPORT_H
#define FAR_TRANSPORT_TRANSPORT_H

#include "base/clock.h"
#include "base/group_key.h"
#include "base/random.h"
#include "nic/nic.h"

/** Counters of a transport's port since it was opened, all its queues together. */
struct transport_stats {
	uint64_t resent;     /* packets sent again, by evidence or time; probes are not among them */
	uint64_t timeouts;   /* retransmission timers that expired */
	uint64_t probes;     /* tail loss probes: last packets sent once more, before a time-out */
	uint64_t needless;   /* packets sent again that had arrived, as the receiver reports */
	uint64_t regrants;   /* grants sent again, since no bytes had come of them */
	uint64_t moves;      /* connections that migrated to another path */
	uint64_t read_bytes; /* of messages, read from the peer's memory (nic_bulk_ops) */
	/* Packets that arrived and were dropped: */
	uint64_t duplicates; /* received before */
	uint64_t crc_errors;
	uint64_t malformed; /* they break the wire format */
	uint64_t refused;   /* connect requests of unauthenticated peers, and set-up packets out of state */
	uint64_t unknown;   /* of no connection: unknown token, or another incarnation of the port */
	uint64_t ended;     /* of a closed connection */
	uint64_t no_memory; /* no memory for the message, or a fragment out of turn; the sender retransmits */
	uint64_t crowded;   /* set-up packets while too many wait for the control thread; the sender retransmits */
};

struct link_config {
	unsigned queues;     /* of the lower port, all of them */
	unsigned head_bytes; /* of the packets above: sizeof(struct shm_head) */
	bool unchecked; /* where the driver below does not check, packets of and to those that say the same have no CRC
			 */
	uint64_t limit_ns;                /* a peer that owes something and is not heard for so long is DOWN; 0: 1 s */
	const struct clock_source *clock; /* NULL: the machine's */
	const struct random_source *random; /* of identity and tokens; NULL: the kernel's */
	const struct group_key *key; /* to be proven by both ends of a set-up; NULL: security=none. Outlives the port */
	uint32_t first_packet;       /* number of the first packet of each connection */
	/* Called when step() has work, instead of making fd() readable, which is −1 then: for who steps it himself.
	 * Any thread. NULL: there is a descriptor. */
	void (*signal)(void *ctx);
	void *signal_ctx;
};

/** Does a port with these capabilities need a link between it and the engine? */
bool link_wanted(const struct nic_caps *caps);

/**
 * Makes a port over `lower`, which belongs to it from then on (close() closes both). Its ops->name is lower's, its
 * address is lower's with the link's own words added. Control core or before it runs. On failure `lower` is still the
 * caller's. -ENOMEM; -EINVAL: lower's packets are too small, or its address leaves no room.
 */
int link_open(struct nic_port *lower, const struct link_config *config, struct nic_port **out, struct nic_err *err);

/**
 * Makes the links among these ports siblings: those of one agent, whose queues of the same number are held by one
 * shard; other ports are left out. Before any is stepped. They are closed together: none is stepped once one is closed.
 */
void link_join(struct nic_port *const ports[], unsigned n);

/**
 * Another way to peer `number`, which is UP at `port`: to the address `addr` of the driver below `through`, a sibling.
 * It is used when the better ones, which are its own and those that were added before, do not lead there any more; the
 * peer has to add a way of its own through the port at that address. `name` is the caller's. Control core, which steps
 * both ports. -EINVAL: no siblings, no such peer, malformed; -ENOSPC: FAR_LINK_WAYS_MAX; or the driver's, with its
 * reason.
 */
int link_way_add(struct nic_port *port, uint32_t number, struct nic_port *through, const struct nic_addr *addr,
		 uint32_t name, struct nic_err *err);

/** Control thread, from step(): packets to `peer` leave by another path from now on; link_way_taken() names it. */
typedef void transport_migrated_fn(void *ctx, uint32_t peer);

/** Sets the function that is called when a connection migrates; `migrated` NULL: none. Control thread, before the first
 * step(). No effect on a port that is no transport's. */
void transport_migration_callback(struct nic_port *port, transport_migrated_fn *migrated, void *ctx);

/** Reads the counters. Any thread; they may be a moment old. All 0 for a port that is no transport's. */
void transport_stats_read(const struct nic_port *port, struct transport_stats *out);

/** The `name` of the way by which what is sent to this peer, UP at `port`, leaves now; LINK_WAY_OWN: its own. Control
 * core. */
uint32_t link_way_taken(struct nic_port *port, uint32_t peer);
#define LINK_WAY_OWN UINT32_MAX

/** The address_text of all of them: an address of a driver that need not be open here. Any thread. */
void link_address_text(const struct nic_addr *addr, char *out, size_t cap);

/** The port below one of link_open(), or the port itself when it is none. */
struct nic_port *link_lower(struct nic_port *port);

#endif
