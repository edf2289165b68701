/* SPDX-License-Identifier: BSD-3-Clause */
/** A datagram driver with a link over it, which is held to what connected drivers promise; nic_conformance.c includes
 * it. Main thread of each process. */
#ifndef NIC_OVER_LINK_H
#define NIC_OVER_LINK_H

#include "base/clock.h"
#include "nic_fixture.h"
#include "transport/transport.h"

/* Of a driver whose time is not the machine's; NULL: it is. */
static const struct clock_source *other_clock;

static int wrap_in_link(struct nic_port *lower, unsigned queues, struct nic_port **up, struct nic_err *err)
{
	struct transport_config config = {
		.queues = queues, .head_bytes = HEAD, .limit_ns = LINK_NS, .clock = other_clock};
	return transport_open(lower, &config, up, err);
}

/* From now on ports have the transport over them; reads their capabilities. */
static bool go_over_link(void)
{
	struct nic_err err = {""};
	struct nic_config config = {.runtime_dir = dir,
				    .id = 99,
				    .queues = 1,
				    .beyond_host = beyond_host,
				    .args = driver_args_n ? driver_args[0] : NULL};
	struct nic_port *lower, *port;
	if (!transport_needed(&caps))
		return false;
	if (driver->open(&config, &lower, &err) || wrap_in_link(lower, 1, &port, &err)) {
		fprintf(stderr, "a link: %s\n", err.text);
		return false;
	}
	port->ops->caps(port, &caps);
	port->ops->close(port);
	port_wrap = wrap_in_link;
	over_network = true;
	return true;
}

#endif
