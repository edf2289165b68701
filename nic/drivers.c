/* SPDX-License-Identifier: BSD-3-Clause */
#include "nic/nic.h"

const struct nic_port_ops *const nic_drivers[] = {
	&nic_shm_port_ops,
	NULL,
};
