/* SPDX-License-Identifier: BSD-3-Clause */
/** Functions that every worker has, with names in `far::`. At start. Called by the thread that starts the agent. */
#ifndef FAR_BUILTIN_BUILTIN_H
#define FAR_BUILTIN_BUILTIN_H

#include <farcall/status.h>
#include <stdbool.h>

struct registry;

/**
 * Registers far::identity, far::gather, far::rref_call and far::rref_claim, and libfarcall-ops' functions on tensors.
 * Without that library an agent works without these: builtin_no_ops() then has the reason and the remedy.
 */
enum far_status builtin_register(struct registry *r, struct far_err *err);

/** Why function `name` is missing: `err` has a text if it is one of libfarcall-ops', which was not found. */
bool builtin_no_ops(const char *name, struct far_err *err);

#endif
