/* SPDX-License-Identifier: BSD-3-Clause */
/** A server rank: joins, serves until every worker has left, prints the report at rank 0. Main thread. */
#ifndef PSERVER_SERVE_H
#define PSERVER_SERVE_H

#include "group.h"

struct serve_options {
	int servers;     /* ranks [0, servers) */
	unsigned shards; /* of each server */
	size_t rows_max; /* of a table; 0: the bound of ps_table.h */
	uint64_t timeout_ns;
	bool json;
};

/** `g` is identified, not joined. Returns the exit status: 0, 1 after a message, 128 + a signal. */
int serve(struct group *g, const struct serve_options *o);

#endif
