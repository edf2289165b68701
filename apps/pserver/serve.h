/* SPDX-License-Identifier: BSD-3-Clause */
/** A server of tables: of `farcall pserver`, until a signal, or of a training job, until its end. Main thread. */
#ifndef PSERVER_SERVE_H
#define PSERVER_SERVE_H

#include "agree.h"
#include "group.h"
#include "report.h"
#include "tenants.h"

struct serve_options {
	const char *service;
	uint64_t servers;             /* ranks [0, servers) */
	unsigned shards;              /* of this server */
	const char *load, *functions; /* directory of saved tables, plugin; NULL: none */
	const struct tenants *tenants;
	struct agreement *agreement; /* with the other servers; NULL: not compared */
	uint64_t workers;            /* of the job; 0: no job, serves until a signal */
	bool json;                   /* the report of the job, which rank 0 prints */
};

/** `g` is identified, not joined. Returns the exit status: 0 when the job is done, 128 + a signal, EXIT_PEER_LOST when
 * a member of the job was lost, 1 after another error. Each prints its reason, except a signal. */
int serve(struct group *g, const struct serve_options *o);

#endif
