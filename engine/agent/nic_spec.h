/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What far_opts.nic says: "auto", or the drivers to be opened, separated by ';', and by ',' as long as no ':' was seen
 * in the entry; what follows a ':' is the driver's own. "shm,udp"; "shm;dpdk:net_memif0,role=server,id=0;udp".
 */
#ifndef FAR_AGENT_NIC_SPEC_H
#define FAR_AGENT_NIC_SPEC_H

#include "base/limits.h"

#include <farcall/status.h>
#include <stdbool.h>

#define NIC_SPEC_ENTRIES    (FAR_PORTS_MAX - 1) /* one port may be added for sessions with oneself */
#define NIC_SPEC_ARGS_BYTES 512

struct nic_spec_entry {
	char name[16];
	char args[NIC_SPEC_ARGS_BYTES];
	bool has_args;
};

struct nic_spec {
	bool automatic; /* "auto": no entries */
	unsigned n;
	struct nic_spec_entry entries[NIC_SPEC_ENTRIES];
};

/** Any thread. FAR_INVALID, naming the entry; whether there are such drivers is not looked at. */
enum far_status nic_spec_parse(const char *text, struct nic_spec *out, struct far_err *err);

#endif
