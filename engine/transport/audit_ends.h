/* SPDX-License-Identifier: BSD-3-Clause */
/** Audit of both ends of connections. Any thread while no poller runs. */
#ifndef FAR_TRANSPORT_AUDIT_ENDS_H
#define FAR_TRANSPORT_AUDIT_ENDS_H

#include "transport/audit.h"

/** Compares the connections of a port with their other ends, which are at `ports`: what counts as arrived here has
 * arrived there. No poller of any of them runs. */
void transport_audit_ends(const struct nic_port *port, const struct nic_port *const *ports, unsigned n,
			  transport_audit_report *report, void *ctx);

#endif
