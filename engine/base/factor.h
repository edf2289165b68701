/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Factors: parts of the fast path that perf/factors.sh switches off, one at a time, to see what each gives. FACTOR() is
 * the constant 1, except in the sources that are compiled once more with FAR_WITHOUT for that script. What it switches
 * off costs time and changes nothing else; but COUNTERS costs time while it is on. Any thread.
 */
#ifndef FAR_BASE_FACTOR_H
#define FAR_BASE_FACTOR_H

/* perf/meson.build and perf/factors.sh have the same names. */
#define FACTOR_NONE      0
#define FACTOR_FAST      10 /* the whole fast path (core/fast.h) */
#define FACTOR_BURSTS    1  /* the first line of a burst is published last */
#define FACTOR_CLAIMS    2  /* the ownership of a burst's lines is requested at once */
#define FACTOR_OWN       12 /* a claim is a prefetch that owns, where the processor obeys it; else a store */
#define FACTOR_AHEAD     13 /* each line of a burst claims one further ahead */
#define FACTOR_PREFETCH  3  /* the receiver prefetches the lines of a burst */
#define FACTOR_DEADLINES 4  /* one reading of the clock for 64 passes of calls */
#define FACTOR_SITES     5  /* a place that calls finds its function again by the name's address */
#define FACTOR_PLANS     6  /* the callee remembers how a function's arguments came */
#define FACTOR_FUTURES   7  /* free futures are kept by the shard */
#define FACTOR_QUIET     8  /* a pass looks at the next lines before it receives */
#define FACTOR_POLLS     9  /* a wait polls the lane alone between two passes */
#define FACTOR_COUNTERS  11 /* counters by peer: for perf/instructions.sh, which counts what they cost */

#ifndef FAR_WITHOUT
#define FAR_WITHOUT FACTOR_NONE
#endif
#define FACTOR(id) (FAR_WITHOUT != FACTOR_##id)

#endif
