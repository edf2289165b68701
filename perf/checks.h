/* SPDX-License-Identifier: BSD-3-Clause */
/** Which options a measurement of `farcall perf` takes, and which of them go together. Main thread. */
#ifndef PERF_CHECKS_H
#define PERF_CHECKS_H

#include "perf.h"

/* Which options a measurement takes. */
enum taker {
	LATENCY = 1,
	RATE = 2,
	BANDWIDTH = 4,
	SERVE = 8,
	IDLE = 16,
	FLOOR = 32,
	PEER = 64,
	ATTACHED = 128,
	FANOUT = 256,
	WAKE = 512,
	MEMORY = 1024,
	RREF = 2048,
	START = 4096,
	STARTING = 8192,
	TRACE = 16384,
	PS = 32768,
	GROUP = 65536,
	SHARE = 131072,
	CALLS = LATENCY | RATE, /* those that measure calls, one by one */
	PAIRS = CALLS | BANDWIDTH,
	LOADS = PAIRS | FANOUT | RREF, /* those with --rate: an open loop */
	SPAWNING = PAIRS | FANOUT | WAKE | MEMORY | RREF | FLOOR | TRACE |
		   PS, /* those that start the other process themselves */
	ALL = 262143
};

/** Checks the options of a measurement, and fills in what follows from them. 0, or the exit status after printing. */
int perf_check(struct perf_opts *o, enum taker taker);

#endif
