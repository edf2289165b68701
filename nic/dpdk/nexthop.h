/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The next-hop table: routers that packets for other subnets are sent to, with their MAC addresses, which are resolved
 * by ARP or neighbour discovery and may change. The control thread owns it; pollers read `mac` when they send. Pure
 * functions: no DPDK, no system call.
 *
 *	FREE --hops_take()--> INCOMPLETE --hop_hear()--> REACHABLE --solicitation due--> PROBE
 *	                          |                          ^                             |
 *	                          '--HOP_TRIES solicitations without reply--> UNREACHABLE <-'
 *
 * Any reply leads back to REACHABLE. An UNREACHABLE router with users is solicited on, at a lower rate.
 */
#ifndef FAR_NIC_DPDK_NEXTHOP_H
#define FAR_NIC_DPDK_NEXTHOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Routers of a port. */
#define HOPS_MAX 16u
/* Solicitations without a reply until the router counts as unreachable: 3 s with HOP_ASK_NS. */
#define HOP_TRIES 12u
/* Interval of solicitations without a reply, and while packets are sent. A changed MAC address is so found within
 * peer_limit_ns (1 s). */
#define HOP_ASK_NS UINT64_C(250000000)
/* Interval while no packets are sent. */
#define HOP_IDLE_NS UINT64_C(10000000000)
/* Interval of an unreachable router. */
#define HOP_SILENT_NS UINT64_C(1000000000)

struct hop {
	uint32_t users; /* destinations that use it; 0: the entry is free */
	uint8_t ip[16];
	_Atomic uint64_t mac; /* the 6 bytes as they lie in a frame; 0: unresolved. Written by the control thread, read
				 by pollers; relaxed: a frame to the previous address is just lost */
	unsigned unanswered;  /* solicitations since the last confirmation */
	/* ns; next solicitation; last confirmation */
	uint64_t ask_at, heard_at;
};

struct hops {
	struct hop of[HOPS_MAX];
};

/* Destination of the next solicitation: none, the router itself, or all (ARP broadcast, solicited-node multicast). */
enum hop_question { HOP_ASK_NOBODY, HOP_ASK_IT, HOP_ASK_ALL };

/** Adds a user to the router `ip`, creating the entry if absent. NULL: HOPS_MAX routers are in use. */
struct hop *hops_take(struct hops *hops, const uint8_t ip[16]);
/** Removes a user. */
void hop_give(struct hop *h);
/** The entry of `ip` if it has users; else NULL. */
struct hop *hops_find(struct hops *hops, const uint8_t ip[16]);
/** Checks whether a solicitation is due, and counts it as sent. `busy`: packets were sent since the last call. */
enum hop_question hop_ask(struct hop *h, uint64_t now, bool busy);
/** Processes a reply from `mac`; NULL: from the address that was solicited. A different address is accepted only with
 * `replaces`, or if none is known. */
void hop_hear(struct hop *h, const uint8_t *mac, bool replaces, uint64_t now);
/** Time of the next solicitation; UINT64_MAX: none. */
uint64_t hops_deadline(const struct hops *hops);

static inline bool hop_is_known(const struct hop *h)
{
	return atomic_load_explicit(&h->mac, memory_order_relaxed) != 0;
}

static inline bool hop_is_silent(const struct hop *h)
{
	return h->unanswered >= HOP_TRIES;
}

#endif
