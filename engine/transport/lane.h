/* SPDX-License-Identifier: BSD-3-Clause */
/** Lanes for sending: the core writes small messages as lines; a flush copies them into packets. Poller. */
#ifndef FAR_TRANSPORT_LANE_H
#define FAR_TRANSPORT_LANE_H

#include "transport/rings.h"

/** nic_queue_ops.lane. */
void transport_lane(struct nic_queue *nq, uint32_t peer, struct nic_lane **at);
/** detach(): the place that transport_lane() filled is not filled any more. */
void transport_lane_leave(struct transport_queue *q, const struct transport_peer *p);
/** A peer has got a ring set, and so a lane. */
void transport_lane_begin(struct transport_queue *q, const struct transport_peer *p, struct transport_rings *r);
/** It loses the ring set. Lines that were not sent are dropped. */
void transport_lane_end(struct transport_queue *q, const struct transport_peer *p, struct transport_rings *r);
/** Sends what was written, as packets or messages. */
void transport_lanes_flush(struct transport_queue *q);
/** The same of one peer, before anything else is sent to it. false: not all was sent. */
bool transport_lane_flush(struct transport_queue *q, struct transport_peer *p);

/** Sends one packet of `n` lines, `len` bytes behind its head. 0 or -errno of the driver below. */
int transport_lane_put(struct transport_queue *q, struct transport_peer *p, const struct nic_line *line, uint32_t n,
		       uint32_t number, uint32_t len, unsigned flags);

/** Lines that were written and not sent. */
static inline uint32_t transport_lane_written(const struct transport_rings *r)
{
	return TRANSPORT_LINES - r->lane.room - r->lines_flying;
}

/** A packet was acknowledged. */
static inline void transport_lane_free(struct transport_rings *r, const struct transport_sent *e)
{
	r->lane.room += e->lines;
	r->lines_flying -= e->lines;
}

#endif
