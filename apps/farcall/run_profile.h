/* SPDX-License-Identifier: BSD-3-Clause */
/** The file of `farcall run --profile`, made of those of the workers. Main thread. */
#ifndef FARCALL_RUN_PROFILE_H
#define FARCALL_RUN_PROFILE_H

#include "apps/cli/output.h"

/** Sets FAR_PROFILE for the workers and removes what an earlier run left. 0, or −errno. */
int run_profile_begin(const char *file, int world);
/** Joins the files of the workers into `file` and removes them; reports workers without one. 0, or 1: there is no
 * file. */
int run_profile_end(const char *file, int world, struct output *output);

#endif
