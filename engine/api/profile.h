/* SPDX-License-Identifier: BSD-3-Clause */
/** A profile of the application, and its spans as they were read last. One thread at a time. */
#ifndef FAR_API_PROFILE_H
#define FAR_API_PROFILE_H

#include "features/profile/profile.h"

struct far_profile {
	struct recording *recording;
	struct far_agent *server; /* NULL: of a flow */
	bool ended;
	uint64_t real; /* CLOCK_REALTIME − CLOCK_MONOTONIC at its begin */
	struct far_span *spans;
	size_t n;
};

/** A profile that no flow has. NULL: no memory. */
struct far_profile *profile_new(size_t spans_max);
/** The name of a worker, or "rank N". */
void profile_worker(struct far_agent *agent, int rank, char name[FAR_NAME_MAX]);

#endif
