/* SPDX-License-Identifier: BSD-3-Clause */
/** Options from the environment. Start only. */
#ifndef FAR_AGENT_SETTINGS_H
#define FAR_AGENT_SETTINGS_H

#include <farcall/agent.h>

/** Sets each option that is 0 or NULL to the value of FAR_<OPTION> in the environment, if that is set and not empty.
 * INVALID, with the variable and its value. */
enum far_status settings_read(struct far_opts *o, struct far_err *err);

#endif
