/* SPDX-License-Identifier: BSD-3-Clause */
/** A module of another Farcall: FAKE_ABI and FAKE_VERSION say which; without them no module at all.
 * Main thread of each process. */
#include "nic/module.h"

#ifdef FAKE_ABI
static const struct nic_port_ops ops = {.name = "dpdk"};
extern const struct nic_module far_nic_module;
const struct nic_module far_nic_module = {
	.abi = FAKE_ABI, .abi_bytes = NIC_MODULE_ABI_BYTES, .version = FAKE_VERSION, .ops = &ops};
#else
extern const int fake_nothing;
const int fake_nothing = 1;
#endif
