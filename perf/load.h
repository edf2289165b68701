/* SPDX-License-Identifier: BSD-3-Clause */
/** Latency against load: `--rate` of `farcall perf latency`, `rate`, `bandwidth`, `fanout` and `rref`. The measuring
 * thread. */
#ifndef PERF_LOAD_H
#define PERF_LOAD_H

#include "perf.h"

enum load_kind {
	LOAD_MESSAGE,
	LOAD_CALL,   /* far::add of two tensors */
	LOAD_FANOUT, /* the same, on o->targets targets (0: 8) */
	LOAD_METHOD, /* the same as a method of an object */
	LOAD_ECHO,   /* a message whose reply is the request */
	LOAD_LARGE   /* messages of each of o->sizes, with at most each of o->depths in flight */
};

/** Measures each of o->rates, and of LOAD_LARGE each size and depth. The exit status. */
int perf_load(const struct perf_opts *o, enum load_kind kind);

#endif
