/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FAR_AGENT_LIMITS_H
#define FAR_AGENT_LIMITS_H

#include <farcall/agent.h>

/** What the options' bounds come to; `opts` NULL: the defaults. FAR_INVALID names the option and its range. */
enum far_status limits_resolve(const struct far_opts *opts, struct far_limits *out, struct far_err *err);

#endif
