/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Audit of the transport's state: compares every counter, list and flag of a queue's peers with what it counts. Only
 * reads. For the simulator and debug builds. Poller, or any thread while no poller runs.
 */
#ifndef FAR_TRANSPORT_AUDIT_H
#define FAR_TRANSPORT_AUDIT_H

#include "transport/queue.h"

/** Receives a description of each inconsistency. */
typedef void transport_audit_report(void *ctx, const char *text);

/** Audits a queue. Poller, between two operations of the queue, with no packet reserved. */
void transport_audit_queue(const struct transport_queue *q, transport_audit_report *report, void *ctx);
/** Audits all queues of a port; no effect on other ports. No poller of it runs. */
void transport_audit_port(const struct nic_port *port, transport_audit_report *report, void *ctx);
/** transport_audit_queue() for debug_must(): prints inconsistencies to stderr. true: none. */
bool transport_audit_agrees(const struct transport_queue *q);
/** Makes transport_audit_agrees() return true: for tests that plant a wrong count, or that audit while packets are
 * reserved, which are in no list. */
extern bool transport_audit_paused;

#endif
