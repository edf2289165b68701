/* SPDX-License-Identifier: BSD-3-Clause */
/** Ports on an interface that the kernel goes on using: its address is ours too, and UDP ports of it. */
#include "nic/dpdk/dpdk.h"

#include <errno.h>
#include <string.h>

static int read_iface(const struct dpdk_args *args, const struct nic_config *config, struct host_iface *iface,
		      struct host_ip *ip, struct nic_err *err)
{
	const struct host_ip *chosen;
	int error = host_iface_read(args->iface, iface, err);
	if (!error)
		error = host_iface_ip(iface, config->listen, &chosen, err);
	if (!error)
		*ip = *chosen;
	return error;
}

int dpdk_iface_probe(const struct dpdk_args *args, const struct nic_config *config, struct nic_err *err)
{
	struct host_iface iface;
	struct host_ip ip;
	return read_iface(args, config, &iface, &ip, err);
}

int dpdk_iface_open(struct dpdk_port *p, const struct nic_config *config, struct nic_err *err)
{
	int error = read_iface(&p->args, config, &p->iface, &p->ip, err);
	if (!error)
		error = host_hold_open(&p->holder, &p->iface, &p->ip, (uint16_t)p->args.port, p->queues_n, err);
	if (!error)
		error = host_kick_open_udp(&p->kicks, &p->iface, &p->ip, p->queues_n, err);
	return error;
}

void dpdk_iface_leave(struct dpdk_port *p)
{
	(void)p;
}

void dpdk_iface_close(struct dpdk_port *p)
{
	host_socks_close(&p->holder);
	host_socks_close(&p->kicks);
}
