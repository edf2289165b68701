/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Next hops: the routers that packets for other subnets are sent to, whose MAC addresses are asked for and may change.
 * All of it is the control core's, but for the addresses, which shards read as they send. Pure: no DPDK, no system
 *call.
 *
 *	free --take--> asked --heard--> known --a question is due--> known, asked again
 *	                 |                ^                                   |
 *	                 '--no answer to HOP_TRIES questions--> silent <------'
 *
 * A silent one is asked on, slowly, as long as somebody uses it: it may come back.
 */
#ifndef FAR_NIC_DPDK_NEXTHOP_H
#define FAR_NIC_DPDK_NEXTHOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Of a port: routers of its subnet. */
#define HOPS_MAX 16u
/* Questions without an answer after which a hop is silent: with HOP_ASK_NS 3 s. */
#define HOP_TRIES 12u
/* Between two questions, without an answer; and while packets are sent. So a router whose address has changed is found
 * within the second that a peer's silence is borne with. */
#define HOP_ASK_NS UINT64_C(250000000)
/* While nothing is sent. */
#define HOP_IDLE_NS UINT64_C(10000000000)
/* To a silent one. */
#define HOP_SILENT_NS UINT64_C(1000000000)

struct hop {
	uint32_t users; /* places; 0: free */
	uint8_t ip[16];
	_Atomic uint64_t mac; /* its 6 bytes as they lie in a frame; 0: not known yet. Relaxed: a frame to the address
				 before is a lost one */
	unsigned unanswered;  /* questions since something was heard */
	uint64_t ask_at, heard_at;
};

struct hops {
	struct hop of[HOPS_MAX];
};

/* To whom the next question goes. */
enum hop_question { HOP_ASK_NOBODY, HOP_ASK_IT, HOP_ASK_ALL };

/** One more user of the hop `ip`; NULL: there are HOPS_MAX others. */
struct hop *hops_take(struct hops *hops, const uint8_t ip[16]);
/** One user less. */
void hop_give(struct hop *h);
/** The hop, when it is used; else NULL. */
struct hop *hops_find(struct hops *hops, const uint8_t ip[16]);
/** Whether a question is due, which counts as asked. `busy`: packets were sent since the last time. */
enum hop_question hop_ask(struct hop *h, uint64_t now, bool busy);
/** It has answered, from `mac`; NULL: from where it was asked. With `replaces` even if it is known elsewhere. */
void hop_hear(struct hop *h, const uint8_t *mac, bool replaces, uint64_t now);
/** When a question is due next; UINT64_MAX: never. */
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
