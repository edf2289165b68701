/* SPDX-License-Identifier: BSD-3-Clause */
/** Options that are limits. Application thread, at start. */
#ifndef FAR_AGENT_LIMITS_H
#define FAR_AGENT_LIMITS_H

#include <farcall/agent.h>

/** Checks the limits in `opts` (NULL: defaults) and applies defaults. FAR_INVALID with the option and its range. */
enum far_status limits_resolve(const struct far_opts *opts, struct far_limits *out, struct far_err *err);

#endif
