/* SPDX-License-Identifier: BSD-3-Clause */
/** The class whose method `farcall perf rref` calls: registered by both sides. Shard thread. */
#ifndef PERF_CELL_H
#define PERF_CELL_H

#include <farcall/object.h>

extern const struct far_class perf_cell;

#endif
