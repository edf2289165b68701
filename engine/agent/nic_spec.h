/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Parser of far_opts.nic. Any thread. The text is "auto", or a list of drivers separated by ';', or by ',' where no ':'
 * precedes in the entry; the driver's arguments follow ':'. "shm,udp"; "shm;dpdk:net_memif0,role=server,id=0;udp".
 */
#ifndef FAR_AGENT_NIC_SPEC_H
#define FAR_AGENT_NIC_SPEC_H

#include "base/limits.h"

#include <farcall/status.h>
#include <stdbool.h>

#define NIC_SPEC_ENTRIES    (FAR_PORTS_MAX - 1) /* one port may be added for sessions of the worker with itself */
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

/** Parses `text`. FAR_INVALID with the entry; does not check that the drivers exist. */
enum far_status nic_spec_parse(const char *text, struct nic_spec *out, struct far_err *err);

#endif
