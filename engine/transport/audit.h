/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A walk over a queue of the transport: every counter, list and flag of its peers against what it counts. It knows
 * nothing that the structures do not say. For the simulator and debug builds.
 */
#ifndef FAR_TRANSPORT_AUDIT_H
#define FAR_TRANSPORT_AUDIT_H

#include "transport/port.h"

/** What does not agree, in words. */
typedef void link_audit_report(void *ctx, const char *text);

/** Called by the holder of the queue's shard, between two operations of the queue: nothing is reserved. */
void link_audit_queue(const struct link_queue *q, link_audit_report *report, void *ctx);
/** The same of all queues of a port; nothing when there is no transport in it. No shard of it runs. */
void link_audit_port(const struct nic_port *port, link_audit_report *report, void *ctx);
/** Compares the connections of a port with their other ends, which are at `ports`: what is taken for arrived here has
 * arrived there. No shard of any of them runs. */
void link_audit_ends(const struct nic_port *port, const struct nic_port *const *ports, unsigned n,
		     link_audit_report *report, void *ctx);
/** link_audit_queue() for debug_must(): writes what it finds to stderr. */
bool link_audit_agrees(const struct link_queue *q);
/** Makes link_audit_agrees() return true: for a test that plants a wrong count, or that looks while messages are
 * reserved, which are in no list. */
extern bool link_audit_paused;

/* audit_peer.c */

struct link_auditor {
	const struct link_queue *q;
	link_audit_report *report;
	void *ctx;
	uint64_t found; /* reports */
	/* Of all peers so far. */
	uint32_t out_n;    /* messages that are to be sent or acknowledged */
	uint64_t in_bytes; /* of messages that arrived */
	uint32_t begun_n, senders_n, abroad_n, rings_n;
	uint32_t active_n, backlogged_n, acks_n, kicks_n, awake_n;
	uint32_t owed_n; /* link_audit_owed() */
	bool loops;      /* a queue is connected to itself */
};

/** `p` NULL: of the queue. */
__attribute__((format(printf, 3, 4))) void link_audit_say(struct link_auditor *a, const struct link_peer *p,
							  const char *format, ...);
void link_audit_same(struct link_auditor *a, const struct link_peer *p, const char *what, uint64_t count,
		     uint64_t found);
void link_audit_fits(struct link_auditor *a, const struct link_peer *p, bool fits, const char *what);
/** It is owed an acknowledgement that only the queue's `owing` remembers. */
bool link_audit_owed(const struct link_peer *p);
void link_audit_peer(struct link_auditor *a, const struct link_peer *p);

#endif
