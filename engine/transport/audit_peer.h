/* SPDX-License-Identifier: BSD-3-Clause */
/** Audit of one peer, and the sums that the audit of its queue compares. Poller, as in audit.h. */
#ifndef FAR_TRANSPORT_AUDIT_PEER_H
#define FAR_TRANSPORT_AUDIT_PEER_H

#include "transport/audit.h"

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
