/* SPDX-License-Identifier: BSD-3-Clause */
/** The functions that every worker has, under `far::`. */
#ifndef FAR_BUILTIN_BUILTIN_H
#define FAR_BUILTIN_BUILTIN_H

#include <farcall/agent.h>
#include <stddef.h>

extern const struct far_function builtin_functions[];
extern const size_t builtin_functions_n;

#endif
