/* SPDX-License-Identifier: BSD-3-Clause */
/** Functions that every worker has, with names in `far::`. Read at start; handlers run inline on a shard. */
#ifndef FAR_BUILTIN_BUILTIN_H
#define FAR_BUILTIN_BUILTIN_H

#include <farcall/agent.h>
#include <stddef.h>

extern const struct far_function builtin_functions[];
extern const size_t builtin_functions_n;

#endif
