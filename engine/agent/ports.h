/* SPDX-License-Identifier: BSD-3-Clause */
/** The ports of an agent: which are opened, in which order they are preferred. */
#ifndef FAR_AGENT_PORTS_H
#define FAR_AGENT_PORTS_H

#include "agent/env.h"
#include "base/limits.h"
#include "nic/nic.h"

#include <farcall/status.h>

struct ports_config {
	const char *nic, *listen, *advertise; /* of far_opts; NULL: the environment, else the default */
	uint64_t id;                          /* the incarnation */
	uint64_t peer_limit_ns;               /* 0: the default */
	bool any_user, beyond_host;           /* as in struct nic_config */
	const struct group_key *key;          /* likewise */
	const char *checksum;                 /* of far_opts; NULL: the environment, else "on" */
	bool quiet;                           /* nothing on stderr */
	unsigned queues;
	struct agent_env *env; /* NULL: the machine's */
};

struct ports {
	struct nic_port *at[FAR_PORTS_MAX]; /* best first */
	unsigned n;
	unsigned published; /* those after it, at most one, are for sessions with oneself only */
	unsigned self;      /* the one for sessions with oneself: shm */
	/* "auto": those that did not open, and why */
	unsigned refused_n;
	struct {
		char name[16];
		char why[NIC_TEXT_BYTES_MAX];
	} refused[FAR_PORTS_MAX];
};

/**
 * Opens what the options say. Control core or before it runs; makes system calls. On failure nothing is left open.
 * INVALID, naming the entry; UNREACHABLE with the driver's reason: a driver that was named does not open, or none does.
 */
enum far_status ports_open(const struct ports_config *config, struct ports *out, struct far_err *err);
/** Takes over those of `config->env` in place of opening any; a session with oneself goes by the one that it says. All
 * are closed on failure: INVALID, RESOURCE. */
enum far_status ports_adopt(const struct ports_config *config, struct ports *out, struct far_err *err);
void ports_close(struct ports *ports);

/** INVALID unless this is what far_opts.checksum can be. */
enum far_status ports_check_checksum(const char *word, struct far_err *err);

/** The drivers that "auto" tries here, best first: false for one that it does not, with the reason. */
bool ports_automatic(const char *driver, const char **why);

#endif
