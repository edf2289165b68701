/* SPDX-License-Identifier: BSD-3-Clause */
/** Round-trip estimate of a peer, updated from acknowledgements (recv.c), and the time-outs that timer.c arms. Poller.
 */
#include "transport/rtt.h"

#include "base/limits.h"

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The peak delay, decayed to the present. */
static uint64_t peak(const struct transport_rtt *r, uint64_t now)
{
	uint64_t halvings = now > r->peak_at ? (now - r->peak_at) / FAR_TRANSPORT_PEAK_NS : 0;
	return halvings < 64 ? r->peak_ns >> halvings : 0;
}

static void peak_raise(struct transport_rtt *r, uint64_t ns, uint64_t now)
{
	if (ns < peak(r, now))
		return;
	r->peak_ns = ns;
	r->peak_at = now;
}

void rtt_sample(struct transport_rtt *r, uint64_t ns, uint64_t now)
{
	ns = smaller(larger(ns, 1), FAR_TRANSPORT_RTT_NS_MAX);
	if (r->smooth_ns == 0) {
		r->smooth_ns = ns;
		r->var_ns = ns / 2;
	} else {
		uint64_t off = ns > r->smooth_ns ? ns - r->smooth_ns : r->smooth_ns - ns;
		r->var_ns = (3 * r->var_ns + off) / 4;
		r->smooth_ns = larger((7 * r->smooth_ns + ns) / 8, 1);
	}
	r->backoff = 0;
	r->sampled_at = now;
	/* A sample keeps the peak from decaying but never raises it: an ACK in time may have been delayed by a lost
	 * one, and thereby by the peer's time-out, which follows ours. */
	peak_raise(r, smaller(ns, r->peak_ns), now);
}

void rtt_mend(struct transport_rtt *r, uint64_t ns, uint64_t now)
{
	/* The delay is a measurement; what exceeds it is the back-off, which stays until a sample shows a slow network.
	 */
	if (ns <= FAR_TRANSPORT_PEAK_NS_MAX)
		r->backoff = 0;
	peak_raise(r, smaller(ns, FAR_TRANSPORT_PEAK_NS_MAX), now);
}

void rtt_back_off(struct transport_rtt *r, uint64_t now)
{
	if (r->backoff < 16)
		r->backoff++;
	r->watch |= RTT_BACKED;
	r->backed_at = now;
}

/* Margin above the smoothed round trip. */
static uint64_t margin(const struct transport_rtt *r)
{
	return larger(4 * r->var_ns, FAR_TRANSPORT_MARGIN_NS);
}

void rtt_progress(struct transport_rtt *r, uint64_t now)
{
	if (r->smooth_ns && now - r->backed_at <= r->smooth_ns + margin(r))
		r->backoff /= 2;
	if (r->backoff == 0)
		r->watch &= (uint8_t)~RTT_BACKED;
}

uint64_t rtt_timeout(const struct transport_rtt *r, uint64_t now)
{
	uint64_t ns = FAR_TRANSPORT_RTO_NS, late = peak(r, now);
	if (r->smooth_ns)
		ns = r->smooth_ns + margin(r);
	ns = smaller(larger(ns, late + late / 4), FAR_TRANSPORT_RTT_NS_MAX);
	return larger(ns, smaller(ns << r->backoff, FAR_TRANSPORT_RTO_NS_MAX));
}

uint64_t rtt_probe(const struct transport_rtt *r, uint64_t now)
{
	if (r->smooth_ns == 0)
		return 0;
	uint64_t late = peak(r, now);
	uint64_t ns = larger(2 * (r->smooth_ns + r->var_ns) + FAR_TRANSPORT_ACK_NS, late + late / 4);
	return ns < rtt_timeout(r, now) ? ns : 0;
}

void rtt_keep(const struct transport_rtt *r, struct transport_saved_rtt *path)
{
	path->peak_at = r->peak_at;
	path->smooth_ns = (uint32_t)r->smooth_ns;
	path->var_ns = (uint32_t)smaller(r->var_ns, FAR_TRANSPORT_RTT_NS_MAX);
	path->peak_ns = (uint32_t)r->peak_ns;
	path->backoff = r->backoff;
}

void rtt_resume(struct transport_rtt *r, const struct transport_saved_rtt *path)
{
	r->watch = path->backoff ? RTT_BACKED : 0;
	r->backoff = path->backoff;
	r->late_known = false;
	r->smooth_ns = path->smooth_ns;
	r->var_ns = path->var_ns;
	r->peak_ns = path->peak_ns;
	r->peak_at = path->peak_at;
	r->backed_at = 0;
}
