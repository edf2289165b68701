/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The floors of a NIC: numbered raw packets between two processes, without any engine. What carries them is a table of
 * two operations (nic/nic.h, struct nic_raw_ops): a driver's own, on the queue that the engine uses, or sockets
 * (floor_udp.h). As with all floors one word is the present floor, the client measures and the server answers.
 * Main thread of each process.
 */
#ifndef PERF_FLOOR_NIC_H
#define PERF_FLOOR_NIC_H

#include "floor_ring.h"
#include "nic/nic.h"

#define FLOOR_NIC_BURST     64u                  /* packets handed over at once, at most */
#define FLOOR_NIC_ACK       16u                  /* bytes of a packet that only acknowledges */
#define FLOOR_NIC_LOST_NS   UINT64_C(100000000)  /* packets that are not back after so long were lost */
#define FLOOR_NIC_NS_MAX    UINT64_C(250000000)  /* of one floor between calls: no engine takes its peer for dead */
#define FLOOR_NIC_BYTES_MAX 65507u               /* of a raw packet, whatever a device could take */
#define FLOOR_NIC_WINDOW    128u                 /* large ones under way: the rings of a device have more places */
#define FLOOR_NIC_PACE_NS   UINT64_C(1000000000) /* a receiver that sleeps looks at the mode that often */

/** One end. The operations fill `lost` only by what they do not deliver. */
struct floor_nic {
	const struct nic_raw_ops *ops; /* NULL: this end is not open */
	struct nic_queue *queue;
	uint32_t peer;
	uint32_t bytes_max; /* of a packet */
	uint32_t window;    /* packets of that size that may be under way without any being lost */
	int fd;             /* polls readable when a packet arrives; -1: there is no such thing */
	/* Receive several packets by one operation, or each by itself; NULL: there is no difference. 0 or -errno. */
	int (*gather)(struct floor_nic *n, bool on);
	uint64_t lost_ns; /* those that are not back after so long were lost; 0: FLOOR_NIC_LOST_NS */
	uint64_t lost;    /* packets, by the client */
	unsigned burst;   /* the size that floor_nic_bursts() found best */
};

/** Client: has the server do its part in finding each other. 0, or -errno with the reason in `text`. */
int floor_nic_meet(struct floor_shared *s, enum floor_meet what, char text[FLOOR_TEXT_BYTES]);
/** Client: one packet there and back, within `ns`: 0 or -ETIMEDOUT. */
int floor_nic_ping(struct floor_shared *s, struct floor_nic *n, uint64_t ns);

/* Client, each in its own mode for about `ns`, leaving the server in FLOOR_IDLE. 0 or -errno. */

/** Round trips of FLOOR_PAYLOAD_BYTES, one outstanding. */
int floor_nic_rtt(struct floor_shared *s, struct floor_nic *n, uint64_t ns, struct hist *h);
/** The same with many outstanding, in bursts both ways: round trips in a second, with the best of three sizes of a
 * burst. */
int floor_nic_bursts(struct floor_shared *s, struct floor_nic *n, uint64_t ns, unsigned inflight,
		     double *packets_per_s);
/** Packets of the largest size one way, as many under way as make `bytes` but for what the window is less; the receiver
 * says how far it is. */
int floor_nic_stream(struct floor_shared *s, struct floor_nic *n, uint64_t ns, uint64_t bytes, double *bytes_per_s);
/** `samples` packets, each after 10 ms of silence, to a receiver that sleeps in epoll_wait() for it; `n->fd` is not
 * -1. */
int floor_nic_wake(struct floor_shared *s, struct floor_nic *n, unsigned samples, struct hist *h);

/** Server: FLOOR_NIC_RTT and those behind it; returns when `mode` changes. 0 or -errno. */
int floor_nic_serve(struct floor_shared *s, struct floor_nic *n, uint64_t mode);

#endif
