/* SPDX-License-Identifier: BSD-3-Clause */
/** State of an agent for <farcall/testing.h>. Start and stop only. */
#ifndef FAR_API_TESTING_H
#define FAR_API_TESTING_H

#include <stdbool.h>

struct far_agent;

/** Creates the agent's faults, none set. False: no memory. */
bool faults_create(struct far_agent *a);
/** Frees them, after the shards were destroyed. */
void faults_destroy(struct far_agent *a);

#endif
