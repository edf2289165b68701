/* SPDX-License-Identifier: BSD-3-Clause */
/** What an agent needs for <farcall/testing.h>. */
#ifndef FAR_API_TESTING_H
#define FAR_API_TESTING_H

#include <stdbool.h>

struct far_agent;

/** The agent's faults, none of which is set. false: no memory. */
bool faults_create(struct far_agent *a);
/** After its shards. */
void faults_destroy(struct far_agent *a);

#endif
