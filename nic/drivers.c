/* SPDX-License-Identifier: BSD-3-Clause */
/** The table of drivers, and drivers by name. Any thread but a poller. */
#include "nic/module.h"
#include "nic/nic.h"

#include <stdio.h>
#include <string.h>

const struct nic_port_ops *const nic_drivers[] = {
	&nic_shm_port_ops,
	&nic_udp_port_ops,
	NULL,
};

const char *const nic_names[] = {"shm", "verbs", "dpdk", "udp", "lossy", NULL};

const struct nic_port_ops *nic_find(const char *name, struct nic_err *err)
{
	for (unsigned i = 0; nic_drivers[i]; i++)
		if (strcmp(nic_drivers[i]->name, name) == 0)
			return nic_drivers[i];
	if (strcmp(name, "dpdk") == 0 || strcmp(name, "verbs") == 0)
		return nic_module_load(name, err);
	if (strcmp(nic_lossy_port_ops.name, name) == 0) /* never selected automatically */
		return &nic_lossy_port_ops;
	snprintf(err->text, sizeof err->text, "there is no NIC driver \"%.40s\"; `farcall info` lists them", name);
	return NULL;
}
