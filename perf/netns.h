/* SPDX-License-Identifier: BSD-3-Clause */
/** Network namespaces by the names that `ip netns` gives them. Main thread. */
#ifndef PERF_NETNS_H
#define PERF_NETNS_H

#include "perf.h"

/** Moves the calling thread, and what it starts from now on, into one. NULL: stays. 0; or 1, after printing. */
int netns_enter(const struct perf_opts *o, const char *name);

/** Can it be entered: 0; or 1, after printing. The caller stays where it is. */
int netns_check(const struct perf_opts *o, const char *name);

/**
 * A socket listening on 127.0.0.1, at any port, of that namespace; the caller stays where it is. The store hands it to
 * rank 0, wherever that is: workers of the namespace reach it, and rank 0 needs no way to it. The descriptor,
 * close-on-exec, and the port; or -1, after printing.
 */
int netns_listen(const struct perf_opts *o, const char *name, uint16_t *port);

#endif
