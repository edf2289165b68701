/* SPDX-License-Identifier: BSD-3-Clause */
/** Ports that a floor opens for itself, as an agent with the same --nic would: one in each of the two processes. They
 * must not move while they are open. Main thread of each process. */
#ifndef PERF_FLOOR_PORT_H
#define PERF_FLOOR_PORT_H

#include "floor_nic.h"
#include "perf.h"
#include <pthread.h>

#define FLOOR_PORT_TEXT 256 /* of the words for both ends' addresses */

struct floor_port {
	struct floor_nic nic;
	struct nic_port *port;
	bool attached; /* its queue 0 to `nic.peer` */
	/* The thread that steps it, from connect() on. */
	pthread_t control;
	int stop_fd;
	bool controlled;
	/* What connect() came to. */
	_Atomic bool settled; /* release: the rest is there */
	uint32_t peer;
	int error;
	char why[FLOOR_TEXT_BYTES];
};

/**
 * Client: opens both ends and waits until they reach each other. `where` gets the two addresses in words. 0, or -errno
 * with the reason in `text`.
 */
int floor_port_open(struct floor_port *p, struct floor_shared *s, const struct perf_opts *o,
		    char where[FLOOR_PORT_TEXT], char text[FLOOR_TEXT_BYTES]);
void floor_port_close(struct floor_port *p);

/** Server: FLOOR_NIC_OPEN and the floors, and the end; a floor_serve_fn. */
int floor_port_serve(struct floor_shared *s, const struct perf_opts *o, uint64_t mode);

#endif
