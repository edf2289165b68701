/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Round-trip estimate of a peer, and the retransmission time-outs that follow from it. Poller; pure computation.
 *
 * It follows RFC 6298: a smoothed round trip and its mean deviation, Karn's rule (a retransmitted packet is no sample),
 * and a back-off that ends with the next sample. At high loss, as with a small receive ring, the timed packet may be
 * lost every time. So the back-off is also halved when an acknowledgement arrives as soon after a time-out as the
 * measured network can answer the retransmission. Two things differ from the RFC.
 *
 * The margin above the round trip is FAR_TRANSPORT_MARGIN_NS at least, not a second: the network answers in
 * microseconds.
 *
 * Longer delays come from the peer's host, which rarely runs something else for milliseconds; the mean deviation
 * forgets that at once. So the longest delay that made a time-out too short is kept beside it, and halves with each
 * FAR_TRANSPORT_PEAK_NS: a busy host costs one spurious retransmission in about that time. The receiver reports that a
 * time-out was too short, as opposed to a lost acknowledgement: which packet arrived twice, and whether it had
 * acknowledged the first copy.
 */
#ifndef FAR_TRANSPORT_RTT_H
#define FAR_TRANSPORT_RTT_H

#include <stdbool.h>
#include <stdint.h>

/** Bits that the fast path tests, one test when sending and one when receiving. */
enum rtt_watch {
	RTT_WANTED = 1, /* the next new packet is a sample */
	RTT_TIMING = 2, /* packet `number`, sent at sent_at, is a sample */
	RTT_LATE = 4,   /* packet `late` was retransmitted by time-out and is not acknowledged */
	RTT_BACKED = 8, /* backoff is not 0 */
};

/** RTT state of a ring set. All times in ns. */
struct transport_rtt {
	uint8_t watch;      /* enum rtt_watch */
	uint8_t backoff;    /* the time-out is shifted left by it */
	bool late_known;    /* late_ns belongs to packet `late` */
	uint32_t number;    /* TIMING: packet number of the sample */
	uint32_t late;      /* number of the last packet retransmitted by time-out */
	uint64_t smooth_ns; /* smoothed round trip. 0: not measured */
	uint64_t var_ns;    /* mean deviation */
	uint64_t peak_ns;   /* longest delay that caused a spurious retransmission, as of peak_at */
	uint64_t peak_at;
	uint64_t sent_at;    /* TIMING */
	uint64_t sampled_at; /* last sample, or start of the present one */
	uint64_t backed_at;  /* last time-out, valid with BACKED */
	uint64_t late_from;  /* first transmission of `late`, or a little later */
	uint64_t late_ns;    /* from then to its acknowledgement */
};

/** What a peer keeps of it without a ring set. Times in ns. */
struct transport_saved_rtt {
	uint64_t peak_at;
	uint32_t smooth_ns, var_ns, peak_ns; /* FAR_TRANSPORT_RTT_NS_MAX at most */
	uint8_t backoff;
	uint8_t reorder; /* packets that may overtake another before it counts as lost: FAR_TRANSPORT_REORDER to
 FAR_TRANSPORT_REORDER_MAX. rtt_keep() does not write it */
};
/** Saves the state. */
void rtt_keep(const struct transport_rtt *r, struct transport_saved_rtt *path);
/** Restores a saved state, without a sample in progress. */
void rtt_resume(struct transport_rtt *r, const struct transport_saved_rtt *path);

/** Adds a sample: a packet that was sent once was acknowledged after `ns`. */
void rtt_sample(struct transport_rtt *r, uint64_t ns, uint64_t now);
/** Records a spurious retransmission: the packet was acknowledged `ns` after its first transmission. */
void rtt_mend(struct transport_rtt *r, uint64_t ns, uint64_t now);
/** Records a time-out: doubles the next one. */
void rtt_back_off(struct transport_rtt *r, uint64_t now);
/** Records an acknowledgement during a back-off. */
void rtt_progress(struct transport_rtt *r, uint64_t now);
/** Returns the retransmission time-out, in [FAR_TRANSPORT_MARGIN_NS, FAR_TRANSPORT_RTT_NS_MAX]. */
uint64_t rtt_timeout(const struct transport_rtt *r, uint64_t now);
/** Returns the delay of a tail loss probe. 0: no probe, since the time-out is as early or nothing was measured. */
uint64_t rtt_probe(const struct transport_rtt *r, uint64_t now);

#endif
