/* SPDX-License-Identifier: BSD-3-Clause */
/** Time-outs from round trips, by the numbers alone. The test's thread. */
#include "transport/rtt.h"

#include "base/limits.h"

#include <criterion/criterion.h>

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define S  UINT64_C(1000000000)

static void samples(struct transport_rtt *r, unsigned n, uint64_t ns, uint64_t now)
{
	while (n-- > 0)
		rtt_sample(r, ns, now);
}

Test(transport_rtt, nothing_known)
{
	struct transport_rtt r = {0};
	cr_assert_eq(rtt_timeout(&r, 0), FAR_TRANSPORT_RTO_NS);
	cr_assert_eq(rtt_timeout(&r, UINT64_MAX), FAR_TRANSPORT_RTO_NS);
	cr_assert_eq(rtt_probe(&r, 0), 0);
}

/* RFC 6298, 2.2: of the first sample, half is its deviation. */
Test(transport_rtt, first_sample)
{
	struct transport_rtt r = {0};
	rtt_sample(&r, 10 * MS, 0);
	cr_assert_eq(rtt_timeout(&r, 0), 30 * MS);
	cr_assert_eq(rtt_probe(&r, 0), 0); /* it would not be sooner */
}

/* A steady round trip: the time-out is the margin above it, and never less. */
Test(transport_rtt, steady)
{
	static const uint64_t trips[] = {0, 1, 20 * US, 500 * US, 5 * MS, 50 * MS};
	for (unsigned i = 0; i < sizeof trips / sizeof *trips; i++) {
		struct transport_rtt r = {0};
		samples(&r, 200, trips[i], 0);
		uint64_t later = 10 * FAR_TRANSPORT_PEAK_NS; /* the longest is forgotten */
		cr_assert_geq(rtt_timeout(&r, later), trips[i] + FAR_TRANSPORT_MARGIN_NS);
		cr_assert_leq(rtt_timeout(&r, later), trips[i] + FAR_TRANSPORT_MARGIN_NS + 100);
		cr_assert_eq(rtt_timeout(&r, later) / 4 >= FAR_TRANSPORT_ACK_NS, true);
	}
}

Test(transport_rtt, probe_after_two_round_trips)
{
	struct transport_rtt r = {0};
	samples(&r, 200, 100 * US, 0);
	uint64_t at = rtt_probe(&r, 10 * FAR_TRANSPORT_PEAK_NS);
	cr_assert_geq(at, 200 * US);
	cr_assert_leq(at, 200 * US + FAR_TRANSPORT_ACK_NS + 10);
}

/* A delay that made a time-out too short stays in it, and is halved with the time, not by the samples. */
Test(transport_rtt, variance_that_remembers)
{
	struct transport_rtt r = {0};
	samples(&r, 100, 20 * US, S);
	rtt_mend(&r, 4 * MS, S);
	samples(&r, 100000, 20 * US, S);
	cr_assert_eq(rtt_timeout(&r, S), 5 * MS);
	cr_assert_eq(rtt_probe(&r, S), 0);
	cr_assert_eq(rtt_timeout(&r, S + FAR_TRANSPORT_PEAK_NS - 1), 5 * MS);
	cr_assert_eq(rtt_timeout(&r, S + FAR_TRANSPORT_PEAK_NS), 2500 * US);
	cr_assert_lt(rtt_timeout(&r, S + 4 * FAR_TRANSPORT_PEAK_NS), 1100 * US);
	cr_assert_lt(rtt_timeout(&r, UINT64_MAX), 1100 * US);
	/* A shorter one does not take its place, a longer one does. */
	rtt_mend(&r, 3 * MS, S);
	cr_assert_eq(rtt_timeout(&r, S), 5 * MS);
	rtt_mend(&r, 8 * MS, S);
	cr_assert_eq(rtt_timeout(&r, S), 10 * MS);
	/* Delays that were waited for keep it up, and do not raise it. */
	rtt_sample(&r, 7 * MS, S + FAR_TRANSPORT_PEAK_NS);
	samples(&r, 1000, 20 * US, S + FAR_TRANSPORT_PEAK_NS);
	cr_assert_eq(rtt_timeout(&r, S + FAR_TRANSPORT_PEAK_NS), 8750 * US);
	for (unsigned i = 0; i < 100; i++) {
		rtt_sample(&r, 50 * MS, S + FAR_TRANSPORT_PEAK_NS);
		samples(&r, 1000, 20 * US, S + FAR_TRANSPORT_PEAK_NS);
	}
	cr_assert_eq(rtt_timeout(&r, S + FAR_TRANSPORT_PEAK_NS), 8750 * US);
}

/* Doubled with each time-out up to the ceiling, and so until something is measured. */
Test(transport_rtt, back_off)
{
	struct transport_rtt r = {0};
	samples(&r, 200, 20 * US, 0);
	uint64_t now = 10 * FAR_TRANSPORT_PEAK_NS, base = rtt_timeout(&r, now), before = base;
	for (unsigned i = 1; i < 100; i++) {
		rtt_back_off(&r, 0);
		uint64_t ns = rtt_timeout(&r, now);
		cr_assert(ns == 2 * before || ns == FAR_TRANSPORT_RTO_NS_MAX, "%u", i);
		before = ns;
	}
	cr_assert_eq(before, FAR_TRANSPORT_RTO_NS_MAX);
	/* An answer that the network cannot have given so soon to what was sent last may be one to what was sent first;
	 * of those that it can have given, each halves it. */
	rtt_progress(&r, 20 * US + 2 * FAR_TRANSPORT_MARGIN_NS);
	cr_assert_eq(rtt_timeout(&r, now), FAR_TRANSPORT_RTO_NS_MAX);
	rtt_progress(&r, 20 * US);
	rtt_progress(&r, 20 * US);
	cr_assert_eq(r.backoff, 4);
	cr_assert_eq(rtt_timeout(&r, now), 16 * base);
	rtt_sample(&r, 20 * US, now);
	cr_assert_eq(rtt_timeout(&r, now), base);
}

/* A network slower than the ceiling of the back-off, and a host that stood still for a minute. */
Test(transport_rtt, ceilings)
{
	struct transport_rtt r = {0};
	samples(&r, 200, 300 * MS, 0);
	rtt_back_off(&r, 0);
	cr_assert_geq(rtt_timeout(&r, 0), 300 * MS);
	samples(&r, 200, UINT64_MAX, 0);
	cr_assert_eq(rtt_timeout(&r, 0), FAR_TRANSPORT_RTT_NS_MAX);
	struct transport_rtt still = {0};
	samples(&still, 200, 20 * US, 0);
	rtt_mend(&still, 60 * S, 0);
	cr_assert_eq(rtt_timeout(&still, 0), FAR_TRANSPORT_PEAK_NS_MAX * 5 / 4);
	/* The back-off is what remembers that: it might be the network. */
	rtt_back_off(&still, 0);
	rtt_mend(&still, 60 * S, 0);
	cr_assert_eq(rtt_timeout(&still, 0), FAR_TRANSPORT_PEAK_NS_MAX * 5 / 2);
	rtt_mend(&still, MS, 0);
	cr_assert_eq(rtt_timeout(&still, 0), FAR_TRANSPORT_PEAK_NS_MAX * 5 / 4);
}
