/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What is known of the round trip to a peer, and the time-outs that follow from it. The shape is RFC 6298's: a smoothed
 * round trip and its mean deviation, Karn's rule (a packet that was sent twice is no sample), and a back-off that stays
 * until there is a fresh sample. But where much is lost, as at a receiver whose ring is small, the timed packet may be
 * among the lost ones for ever: so it is halved by what is acknowledged as soon after a time-out as the network, as it
 * was measured, can answer what was sent then. Two things are added.
 *
 * The margin above the round trip is FAR_LINK_MARGIN_NS at least, not a second: the network is measured in
 * microseconds. What is longer is the peer's host, which may run something else for milliseconds, rarely, so that the
 * deviation forgets it at once. So the longest delay that made a time-out too short is remembered beside it, and halves
 * with each FAR_LINK_PEAK_NS: a busy host costs a needless packet about once in that time. That the time-out was too
 * short, and not the acknowledgement lost, is told by the receiver: it says which packet it had already, and whether it
 * had acknowledged it.
 */
#ifndef FAR_TRANSPORT_RTT_H
#define FAR_TRANSPORT_RTT_H

#include <stdbool.h>
#include <stdint.h>

/** What the path of a packet looks at, by one bit test each way. */
enum rtt_watch {
	RTT_WANTED = 1, /* the next packet that is sent first is timed */
	RTT_TIMING = 2, /* packet `number` is on its way since sent_at */
	RTT_LATE = 4,   /* packet `late` was sent again by time; its acknowledgement is awaited */
	RTT_BACKED = 8, /* there is a back-off */
};

/** All times in ns. */
struct link_rtt {
	uint8_t watch;      /* enum rtt_watch */
	uint8_t backoff;    /* the time-out is doubled so often */
	bool late_known;    /* late_ns is of packet `late` */
	uint32_t number;    /* TIMING */
	uint32_t late;      /* packet that was sent again by time, the last such */
	uint64_t smooth_ns; /* 0: nothing was measured */
	uint64_t var_ns;    /* mean deviation */
	uint64_t peak_ns;   /* longest delay that was mended, as it was at peak_at */
	uint64_t peak_at;
	uint64_t sent_at;    /* TIMING */
	uint64_t sampled_at; /* last sample, or its beginning */
	uint64_t backed_at;  /* last time-out */
	uint64_t late_from;  /* when `late` was sent first, or a little later */
	uint64_t late_ns;    /* from then to its acknowledgement */
};

/** What of it outlasts that nothing is under way. Times in ns. */
struct link_path {
	uint64_t peak_at;
	uint32_t smooth_ns, var_ns, peak_ns; /* FAR_LINK_RTT_NS_MAX at most */
	uint8_t backoff;
	uint8_t reorder; /* FAR_LINK_REORDER, or more: it has reordered so many. The owner's; rtt_keep() leaves it */
};
void rtt_keep(const struct link_rtt *r, struct link_path *path);
/** As it was, nothing being timed. */
void rtt_resume(struct link_rtt *r, const struct link_path *path);

/** A packet that was sent once came back after `ns`. */
void rtt_sample(struct link_rtt *r, uint64_t ns, uint64_t now);
/** A packet was sent again for nothing: it was acknowledged `ns` after it had been sent first. */
void rtt_mend(struct link_rtt *r, uint64_t ns, uint64_t now);
/** A time-out: the next one is twice as long. */
void rtt_back_off(struct link_rtt *r, uint64_t now);
/** Something was acknowledged after that. */
void rtt_progress(struct link_rtt *r, uint64_t now);
/** Unacknowledged for so long, packets are sent again: [FAR_LINK_MARGIN_NS, FAR_LINK_RTT_NS_MAX]. */
uint64_t rtt_timeout(const struct link_rtt *r, uint64_t now);
/** Unacknowledged for so long, the last packet is sent once more, to ask what is missing; 0: the time-out is as soon,
 * or nothing is known. */
uint64_t rtt_probe(const struct link_rtt *r, uint64_t now);

#endif
