/* SPDX-License-Identifier: BSD-3-Clause */
/** Opens raw packets on the queues of two running agents, whose shards the measuring threads hold. */
#include "floor_agent.h"
#include "agent/agent.h"
#include "core/session.h"
#include "core/shard.h"
#include "floor_udp.h"
#include "transport/transport.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What carries our calls to shard 0 of a worker, or NULL. */
static const struct session *session_with(struct far_agent *agent, int worker, char text[FLOOR_TEXT_BYTES])
{
	struct shard *s = agent->shards[0];
	const struct session *se = NULL;
	if (worker >= 0 && (uint32_t)worker < s->world)
		se = &s->sessions[session_index(s, (uint32_t)worker, 0)];
	if (!se || se->state != SESSION_UP || se->port >= agent->ports.n) {
		snprintf(text, FLOOR_TEXT_BYTES, "there is no session with worker %d", worker);
		return NULL;
	}
	return se;
}

/* The largest raw packet of a port. */
static uint32_t bytes_of(struct nic_port *port)
{
	struct nic_caps caps;
	port->ops->caps(port, &caps);
	return caps.body_bytes_max < FLOOR_NIC_BYTES_MAX ? (uint32_t)caps.body_bytes_max : FLOOR_NIC_BYTES_MAX;
}

static void from_queue(struct floor_nic *n, const struct session *se, uint32_t bytes_max)
{
	*n = (struct floor_nic){.ops = se->q->ops->raw,
				.queue = se->q,
				.peer = se->peer,
				.bytes_max = bytes_max,
				.window = FLOOR_NIC_WINDOW,
				.fd = -1};
}

int floor_agent_open(struct floor_nic *n, struct far_agent *agent, struct far_to to, struct floor_shared *s,
		     char text[FLOOR_TEXT_BYTES])
{
	const struct session *se = session_with(agent, to.worker, text);
	*n = (struct floor_nic){.fd = -1};
	if (!se)
		return -ENOTCONN;
	struct nic_port *port = transport_lower(agent->ports.at[se->port]);
	const char *driver = port->ops->name;
	if (strcmp(driver, "shm") == 0)
		return 0;
	s->meeting.worker = agent->rank;
	port->ops->address(port, &s->meeting.client); /* by which the server knows the driver */
	if (strcmp(driver, "udp") == 0) {
		int rc = floor_nic_meet(s, FLOOR_MEET_ADDRESS, text);
		return rc ? rc : floor_udp_open(n, s, text);
	}
	if (!se->q->ops->raw) {
		snprintf(text, FLOOR_TEXT_BYTES, "nothing can be sent beside the driver %s; leave --floor out", driver);
		return -EOPNOTSUPP;
	}
	s->meeting.bytes_max = bytes_of(port);
	int rc = floor_nic_meet(s, FLOOR_MEET_QUEUE, text);
	if (rc == 0)
		from_queue(n, se, s->meeting.bytes_max);
	return rc;
}

void floor_agent_accept(struct floor_nic *n, struct far_agent *agent, struct floor_shared *s)
{
	struct floor_meeting *m = &s->meeting;
	if (m->what == FLOOR_MEET_SOCKET) {
		floor_udp_accept(n, s);
		return;
	}
	const struct session *se = session_with(agent, m->worker, m->text);
	struct nic_port *port = se ? transport_lower(agent->ports.at[se->port]) : NULL;
	m->error = se ? 0 : -ENOTCONN;
	if (se && strncmp(port->ops->name, m->client.driver, sizeof m->client.driver) != 0) {
		snprintf(m->text, sizeof m->text, "calls arrive by the driver %s", port->ops->name);
		m->error = -EXDEV;
	} else if (se && m->what == FLOOR_MEET_ADDRESS) {
		port->ops->address(port, &m->server);
	} else if (se && se->q->ops->raw) {
		floor_udp_close(n);
		uint32_t own = bytes_of(port);
		m->bytes_max = m->bytes_max < own ? m->bytes_max : own;
		from_queue(n, se, m->bytes_max);
	} else if (se) {
		snprintf(m->text, sizeof m->text, "nothing can be sent beside the driver %s", port->ops->name);
		m->error = -EOPNOTSUPP;
	}
}

void floor_agent_close(struct floor_nic *n)
{
	floor_udp_close(n);
}
