/* SPDX-License-Identifier: BSD-3-Clause */
/** The part of `farcall info` about NICs: drivers, ports, addresses. Main thread. */
#ifndef FARCALL_INFO_NICS_H
#define FARCALL_INFO_NICS_H

#include "perf/json.h"

#include <stdbool.h>
#include <stdio.h>

struct info_nics_opts {
	const char *nic;      /* as far_opts; NULL: the environment */
	const char *security; /* NULL or "none" */
};

/** Prints every driver and the ports that a worker would open here; opens and closes them. `j`: an
 * object that is open, or NULL. False after an error on stderr: the drivers of `opts` cannot be opened. */
bool info_nics(const struct info_nics_opts *opts, FILE *out, struct json *j);

#endif
