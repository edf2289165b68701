/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Drivers in modules: shared objects that are loaded when somebody asks for their driver, so that nobody else loads
 * what they need. A module is called libfarcall-nic-NAME.so, needs no symbol of the library, and exports one symbol,
 * `far_nic_module`.
 */
#ifndef FAR_NIC_MODULE_H
#define FAR_NIC_MODULE_H

#include "nic/nic.h"

/* Changes with whatever nic/nic.h declares. */
#define NIC_MODULE_ABI    4u
#define NIC_MODULE_SYMBOL "far_nic_module"

struct nic_module {
	uint32_t abi;        /* NIC_MODULE_ABI, as the module was compiled */
	uint32_t abi_bytes;  /* NIC_MODULE_ABI_BYTES, likewise: what is passed is as large on both sides */
	const char *version; /* FAR_VERSION, likewise */
	const struct nic_port_ops *ops;
};

#define NIC_MODULE_ABI_BYTES                                                                                           \
	((uint32_t)(sizeof(struct nic_port_ops) + sizeof(struct nic_queue_ops) + sizeof(struct nic_config) +           \
		    sizeof(struct nic_caps) + sizeof(struct nic_stats) + sizeof(struct nic_pkt) +                      \
		    sizeof(struct nic_tx) + sizeof(struct nic_event) + sizeof(struct nic_addr)))

/**
 * Loads the module of driver `name`, [a-z]+, from $FAR_MODULE_DIR, which alone is looked at when it is set, else from
 * beside the object that holds this function, else from the configured directory; it stays loaded. NULL: `err` says
 * what is missing, and the remedy. Any thread, not on a shard.
 */
const struct nic_port_ops *nic_module_load(const char *name, struct nic_err *err);

#endif
