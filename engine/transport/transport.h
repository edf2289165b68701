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

/** The `name` of the way by which what is sent to this peer, UP at `port`, leaves now; LINK_WAY_OWN: its own. Control
 * core. */
uint32_t link_way_taken(struct nic_port *port, uint32_t peer);
#define LINK_WAY_OWN UINT32_MAX

/** The address_text of all of them: an address of a driver that need not be open here. Any thread. */
void link_address_text(const struct nic_addr *addr, char *out, size_t cap);

/** The port below one of link_open(), or the port itself when it is none. */
struct nic_port *link_lower(struct nic_port *port);

#endif
