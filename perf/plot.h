/* SPDX-License-Identifier: BSD-3-Clause */
/** Pictures of measurements, drawn by gnuplot. Main thread. */
#ifndef PERF_PLOT_H
#define PERF_PLOT_H

#include "table.h"

/** NULL when gnuplot is there and `path` can be written and named to it; else why not, with the remedy. */
const char *plot_check(const char *path);

/** Draws what the table has: latency against load, bandwidth against size, or latency against peers. 0 or -1. */
int plot_draw(const struct table *t, const char *path);

#endif
