/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Drivers in modules: shared objects that are loaded on first use of their driver, so that other processes do not load
 * their dependencies. A module is named libfarcall-nic-NAME.so, needs no symbol of the library, and exports one symbol,
 * `far_nic_module`. Any thread but a poller.
 */
#ifndef FAR_NIC_MODULE_H
#define FAR_NIC_MODULE_H

#include "nic/nic.h"

/* Raised with every change of what nic/nic.h declares. */
#define NIC_MODULE_ABI    8u
#define NIC_MODULE_SYMBOL "far_nic_module"

/** Content of `far_nic_module`. */
struct nic_module {
	uint32_t abi;        /* NIC_MODULE_ABI of the module's build */
	uint32_t abi_bytes;  /* NIC_MODULE_ABI_BYTES, likewise: both sides agree on sizes */
	const char *version; /* FAR_VERSION, likewise */
	const struct nic_port_ops *ops;
};

#define NIC_MODULE_ABI_BYTES                                                                                           \
	((uint32_t)(sizeof(struct nic_port_ops) + sizeof(struct nic_queue_ops) + sizeof(struct nic_config) +           \
		    sizeof(struct nic_caps) + sizeof(struct nic_stats) + sizeof(struct nic_pkt) +                      \
		    sizeof(struct nic_tx) + sizeof(struct nic_event) + sizeof(struct nic_addr)))

/**
 * Loads the module of driver `name`, [a-z]+; it stays loaded. Searches $FAR_MODULE_DIR only, if set; else beside the
 * object that contains this function, then in the configured directory. NULL: `err` contains the reason and the remedy.
 */
const struct nic_port_ops *nic_module_load(const char *name, struct nic_err *err);

#endif
