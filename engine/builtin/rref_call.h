/* SPDX-License-Identifier: BSD-3-Clause */
/** Functions on the values of references: the owner's side of far_rref_call(). Shard thread. */
#ifndef FAR_BUILTIN_RREF_CALL_H
#define FAR_BUILTIN_RREF_CALL_H

#include <farcall/rpc.h>

/** far::rref_call(rref value, str function, List args) -> Any. */
extern const struct far_function rref_call_function;
#define rref_call_name "far::rref_call"

#endif
