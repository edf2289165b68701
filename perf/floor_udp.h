/* SPDX-License-Identifier: BSD-3-Clause */
/** Raw packets through UDP sockets: connected, non-blocking, polled; many at once by segmentation offload (GSO, GRO).
 * Main thread of each process. */
#ifndef PERF_FLOOR_UDP_H
#define PERF_FLOOR_UDP_H

#include "floor_nic.h"

/**
 * Client: a socket and one at the server, connected with each other along the way that the udp driver would take to
 * `s->meeting.server`. 0, or -errno with the reason in `text`.
 */
int floor_udp_open(struct floor_nic *n, struct floor_shared *s, char text[FLOOR_TEXT_BYTES]);
/** Server: its part, in FLOOR_MEET_SOCKET; what was open is closed. Errors are reported through `s`. */
void floor_udp_accept(struct floor_nic *n, struct floor_shared *s);
/** One that is not open, or that is a queue, may be closed. */
void floor_udp_close(struct floor_nic *n);

#endif
