/* SPDX-License-Identifier: BSD-3-Clause */
/** Registers far::keep_awake, the function that far_keep_awake() calls on the worker to be kept awake. Start; it runs
 * on the shard thread. */
#ifndef FAR_BUILTIN_AWAKE_H
#define FAR_BUILTIN_AWAKE_H

#include <farcall/rpc.h>

/** far::keep_awake(int ns) -> none: of the shard that serves it. */
extern const struct far_function awake_function;
#define awake_name "far::keep_awake"

#endif
