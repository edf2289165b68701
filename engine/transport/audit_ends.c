/* SPDX-License-Identifier: BSD-3-Clause */
/** Audit of both ends of a connection, for the simulator, which has both in one process. No poller runs. */
#include "transport/audit_ends.h"

#include "transport/audit_peer.h"
#include "transport/port.h"
#include "transport/rings.h"

#define fits(condition, what) transport_audit_fits(a, p, condition, what)

/* Finds the other end of a connection among `ports`. NULL: it is gone, or has another connection. */
static const struct transport_peer *other_end(const struct transport_peer *p, const struct nic_port *const *ports,
					      unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		const struct transport_port *port = (const struct transport_port *)ports[i];
		if (transport_lower((struct nic_port *)(uintptr_t)ports[i]) == ports[i] || port->id != p->remote_id)
			continue;
		const struct transport_peer *there = port->peers[TRANSPORT_INDEX(p->remote_token)];
		return there && there->started && !there->dead && there->token == p->remote_token &&
				       there->remote_token == p->token
			       ? there
			       : NULL;
	}
	return NULL;
}

static bool has_arrived(const struct transport_peer *there, uint32_t number)
{
	return (int32_t)(number - there->rx_next) < 0 ||
	       (there->rings && there->rings->arrived[number % FAR_TRANSPORT_WINDOW].message);
}

/* An acknowledgement leaves after its packets have arrived, and the receiver drops none of them before the sender does,
 * except without memory (early_forget()), which no scenario causes. */
static void audit_acknowledged(struct transport_auditor *a, const struct transport_peer *p,
			       const struct transport_peer *there)
{
	bool all = true;
	fits((int32_t)(there->rx_next - p->una) >= 0, "packets are acknowledged that have not arrived there");
	for (uint32_t number = p->una; number != p->next && number - p->una < FAR_TRANSPORT_WINDOW; number++)
		all &= !p->rings->sent[number % FAR_TRANSPORT_WINDOW].arrived || has_arrived(there, number);
	fits(all, "a packet is taken for arrived that has not arrived there");
}

void transport_audit_ends(const struct nic_port *port, const struct nic_port *const *ports, unsigned n,
			  transport_audit_report *report, void *ctx)
{
	if (transport_lower((struct nic_port *)(uintptr_t)port) == port)
		return;
	const struct transport_port *here = (const struct transport_port *)port;
	for (uint32_t i = 0; i < here->queues_n; i++) {
		const struct transport_queue *q = here->queues[i];
		struct transport_auditor a = {.q = q, .report = report, .ctx = ctx};
		for (uint32_t k = 0; k < q->actives_n; k++) {
			const struct transport_peer *p = q->actives[k];
			if (!p->rings || p->una == p->next || p->dead || p->loop)
				continue;
			const struct transport_peer *there = other_end(p, ports, n);
			if (there)
				audit_acknowledged(&a, p, there);
		}
	}
}
