/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Audit of the transport's state: compares every counter, list and flag of a queue's peers with what it counts. Only
 * reads. For the simulator and debug builds. Poller, or any thread while no poller runs.
 */
#ifndef FAR_TRANSPORT_AUDIT_H
#define FAR_TRANSPORT_AUDIT_H

#include "transport/port.h"

/** Receives a description of each inconsistency. */
typedef void transport_audit_report(void *ctx, const char *text);

/** Audits a queue. Poller, between two operations of the queue, with no packet reserved. */
void transport_audit_queue(const struct transport_queue *q, transport_audit_report *report, void *ctx);
/** Audits all queues of a port; no effect on other ports. No poller of it runs. */
void transport_audit_port(const struct nic_port *port, transport_audit_report *report, void *ctx);
/** Compares the connections of a port with their other ends, which are at `ports`: what counts as arrived here has
 * arrived there. No poller of any of them runs. */
void transport_audit_ends(const struct nic_port *port, const struct nic_port *const *ports, unsigned n,
			  transport_audit_report *report, void *ctx);
/** transport_audit_queue() for debug_must(): prints inconsistencies to stderr. true: none. */
bool transport_audit_agrees(const struct transport_queue *q);
/** Makes transport_audit_agrees() return true: for tests that plant a wrong count, or that audit while packets are
 * reserved, which are in no list. */
extern bool transport_audit_paused;

/* ---- audit_peer.c ---- */

/** State of an audit. */
struct transport_auditor {
	const struct transport_queue *q;
	transport_audit_report *report;
	void *ctx;
	uint64_t found; /* reports */
	/* Sums over the peers so far. */
	uint32_t out_n;    /* messages to be sent or acknowledged */
	uint64_t in_bytes; /* of messages that arrived */
	uint32_t begun_n, senders_n, failed_over_n, rings_n;
	uint32_t active_n, backlogged_n, acks_n, kicks_n, awake_n;
	uint32_t owed_n; /* transport_audit_delayed_ack() */
	bool loops;      /* a queue is connected to itself */
};

/** Reports an inconsistency. `p` NULL: of the queue. */
__attribute__((format(printf, 3, 4))) void
transport_audit_printf(struct transport_auditor *a, const struct transport_peer *p, const char *format, ...);
/** Reports a count that differs from what was found. */
void transport_audit_same(struct transport_auditor *a, const struct transport_peer *p, const char *what, uint64_t count,
			  uint64_t found);
/** Reports `what` unless `fits`. */
void transport_audit_fits(struct transport_auditor *a, const struct transport_peer *p, bool fits, const char *what);
/** Returns true for a peer whose only pending work is a delayed acknowledgement. */
bool transport_audit_delayed_ack(const struct transport_peer *p);
/** Audits a peer. */
void transport_audit_peer(struct transport_auditor *a, const struct transport_peer *p);

#endif
