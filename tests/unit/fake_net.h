/* SPDX-License-Identifier: BSD-3-Clause */
/** Sockets in memory and a clock that moves by hand: several control cores in one thread. */
#ifndef FAKE_NET_H
#define FAKE_NET_H

#include "base/clock.h"
#include "control/net.h"

#include <stdbool.h>

struct fake_world {
	uint64_t now;
	struct clock_source clock; /* shows `now` */
	size_t chunk;              /* bytes that one send takes at most; 0: no limit */
	int accept_error;          /* of accept(), -errno; 0: none */
	void *ends;
};

struct fake_world *fake_world_create(void);
void fake_world_destroy(struct fake_world *w);
/** Streams that wait() would not watch for bytes to read. */
unsigned fake_world_unwatched(struct fake_world *w);

/** One process's sockets; destroy() of the net closes all that it left open. */
struct ctl_net *fake_net_create(struct fake_world *w);

#endif
