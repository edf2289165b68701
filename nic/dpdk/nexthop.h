/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The next-hop table: routers that packets for other subnets are sent to, with their MAC addresses, which are resolved
 * by ARP or neighbour discovery and may change. The control thread owns it; pollers read `mac` when they send. Pure
 * functions: no DPDK, no system call.
 *
 *	FREE --nexthops_get()--> INCOMPLETE --nexthop_confirm()--> REACHABLE --solicitation due--> PROBE
 *	                          |                          ^                             |
 *	                          '--NEXTHOP_SOLICITS_MAX solicitations without reply--> UNREACHABLE <-'
 *
 * Any reply leads back to REACHABLE. An UNREACHABLE router with users is solicited on, at a lower rate.
 */
#ifndef FAR_NIC_DPDK_NEXTHOP_H
#define FAR_NIC_DPDK_NEXTHOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Routers of a port. */
#define NEXTHOPS_MAX 16u
/* Solicitations without a reply until the router counts as unreachable: 3 s with NEXTHOP_SOLICIT_NS. */
#define NEXTHOP_SOLICITS_MAX 12u
/* Interval of solicitations without a reply, and while packets are sent. A changed MAC address is so found within
 * peer_limit_ns (1 s). */
#define NEXTHOP_SOLICIT_NS UINT64_C(250000000)
/* Interval while no packets are sent. */
#define NEXTHOP_IDLE_NS UINT64_C(10000000000)
/* Interval of an unreachable router. */
#define NEXTHOP_UNREACHABLE_NS UINT64_C(1000000000)

struct nexthop {
	uint32_t users; /* destinations that use it; 0: the entry is free */
	uint8_t ip[16];
	_Atomic uint64_t mac; /* the 6 bytes as they lie in a frame; 0: unresolved. Written by the control thread, read
				 by pollers; relaxed: a frame to the previous address is just lost */
	unsigned unanswered;  /* solicitations since the last confirmation */
	/* ns; next solicitation; last confirmation */
	uint64_t solicit_at, confirmed_at;
};

/** The table of a port; entries without users are free. */
struct nexthops {
	struct nexthop of[NEXTHOPS_MAX];
};

/* Destination of the next solicitation: none, the router itself, or all (ARP broadcast, solicited-node multicast). */
enum nexthop_solicit { NEXTHOP_SOLICIT_NONE, NEXTHOP_SOLICIT_UNICAST, NEXTHOP_SOLICIT_GROUP };

/** Adds a user to the router `ip`, creating the entry if absent. NULL: NEXTHOPS_MAX routers are in use. */
struct nexthop *nexthops_get(struct nexthops *nexthops, const uint8_t ip[16]);
/** Removes a user. */
void nexthop_put(struct nexthop *h);
/** The entry of `ip` if it has users; else NULL. */
struct nexthop *nexthops_find(struct nexthops *nexthops, const uint8_t ip[16]);
/** Checks whether a solicitation is due, and counts it as sent. `busy`: packets were sent since the last call. */
enum nexthop_solicit nexthop_solicit_due(struct nexthop *h, uint64_t now, bool busy);
/** Processes a reply from `mac`; NULL: from the address that was solicited. A different address is accepted only with
 * `override`, or if none is known. */
void nexthop_confirm(struct nexthop *h, const uint8_t *mac, bool override, uint64_t now);
/** Time of the next solicitation; UINT64_MAX: none. */
uint64_t nexthops_deadline(const struct nexthops *nexthops);

static inline bool nexthop_is_resolved(const struct nexthop *h)
{
	return atomic_load_explicit(&h->mac, memory_order_relaxed) != 0;
}

static inline bool nexthop_is_unreachable(const struct nexthop *h)
{
	return h->unanswered >= NEXTHOP_SOLICITS_MAX;
}

#endif
