/* SPDX-License-Identifier: BSD-3-Clause */
/** The NIC ports of an agent: selection, order of preference, opening. Start and stop only. */
#ifndef FAR_AGENT_PORTS_H
#define FAR_AGENT_PORTS_H

#include "agent/env.h"
#include "base/limits.h"
#include "nic/nic.h"

#include <farcall/status.h>

struct ports_config {
	const char *nic, *listen, *advertise; /* of far_opts; NULL: from the environment, else the default */
	uint64_t id;                          /* the incarnation */
	uint64_t peer_limit_ns;               /* 0: the default */
	bool any_user, beyond_host;           /* as in struct nic_config */
	const struct group_key *key;          /* as in struct nic_config */
	const char *checksum;                 /* of far_opts; NULL: from the environment, else "on" */
	bool quiet;                           /* writes nothing to stderr */
	unsigned queues;                      /* of each port: one for each shard */
	struct agent_env *env;                /* NULL: the machine's devices */
};

struct ports {
	struct nic_port *at[FAR_PORTS_MAX]; /* best first */
	unsigned n;
	unsigned published; /* ports [0, published) are published; at most one more serves `self` only */
	unsigned self;      /* index of the port for sessions of the worker with itself: shm */
	/* "auto": drivers that could not be opened, with the reason */
	unsigned refused_n;
	struct {
		char name[16];
		char why[NIC_TEXT_BYTES_MAX];
	} refused[FAR_PORTS_MAX];
};

/**
 * Opens the ports of the options; makes system calls. On failure all are closed. INVALID with the entry; UNREACHABLE
 * with the driver's reason: a named driver cannot be opened, or none can.
 */
enum far_status ports_open(const struct ports_config *config, struct ports *out, struct far_err *err);
/** Takes over the ports of `config->env` instead. On failure all are closed: INVALID, RESOURCE. */
enum far_status ports_adopt(const struct ports_config *config, struct ports *out, struct far_err *err);
void ports_close(struct ports *ports);

/** INVALID unless `word` is a value of far_opts.checksum. */
enum far_status ports_check_checksum(const char *word, struct far_err *err);

/** True if "auto" tries this driver on this machine; false: with the reason in *why. */
bool ports_automatic(const char *driver, const char **why);

#endif
