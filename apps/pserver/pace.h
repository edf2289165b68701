/* SPDX-License-Identifier: BSD-3-Clause */
/** Begins the batches of a worker at fixed times: the open loop of `farcall train --rate`. Main thread. */
#ifndef PSERVER_PACE_H
#define PSERVER_PACE_H

#include "metrics.h"

struct pace {
	uint64_t rate;         /* batches that begin in a second; 0: each when the one before it has ended */
	uint64_t begin_ns, n;  /* when the first one was due; batches begun */
	uint64_t due_ns;       /* when the present one should have begun */
	struct latency *times; /* of the batches, from when they should have begun */
};

/** Waits until the next batch is due, or until a signal stops the job (stop_signal()). */
void pace_wait(struct pace *p);
/** The batch has ended. */
void pace_ended(struct pace *p);

#endif
