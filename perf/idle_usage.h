/* SPDX-License-Identifier: BSD-3-Clause */
/** What this process has used so far, as the kernel counts it. Main thread of each process. */
#ifndef PERF_IDLE_USAGE_H
#define PERF_IDLE_USAGE_H

#include <stdint.h>

struct idle_usage {
	uint64_t at_ns;        /* CLOCK_MONOTONIC */
	uint64_t cpu_ns;       /* of all threads */
	uint64_t switches;     /* voluntary context switches of all threads: each is a sleep, and a wake-up after it */
	uint64_t ctl_switches; /* those of the control thread alone */
	uint64_t rss_bytes;
	uint64_t threads;
};

void idle_usage_read(struct idle_usage *u);

#endif
