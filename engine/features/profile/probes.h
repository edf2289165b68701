/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls as static probes, where FAR_PROBES is 1. Any thread. */
#ifndef FAR_FEATURES_PROFILE_PROBES_H
#define FAR_FEATURES_PROFILE_PROBES_H

/** The probes of calls are there, if the environment wants them. Any number of times. */
void probes_present(void);

#endif
