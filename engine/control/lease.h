/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Times of a lease. Its holder counts from the moment at which it sent the last acknowledged renewal, the store from
 * the arrival of that renewal, each by its own monotonic clock. So the holder is first to see the end, by the transit
 * of the renewal, and by a margin for clocks that run at different speeds. Control thread; no state.
 */
#ifndef FAR_CONTROL_LEASE_H
#define FAR_CONTROL_LEASE_H

#include "base/limits.h"
#include "base/mutant.h"

#include <stdint.h>

/* The lease of a static group over etcd, whose members do not end with it: etcd may be stopped for 10 s, and a client
 * be late by 8 s. */
#define LEASE_ETCD_NS UINT64_C(20000000000)

/** When the store ends a lease: its time and the margin. */
static inline uint64_t lease_with_margin(uint64_t ns)
{
	return MUTANT(LEASE_UNMARGINED) ? ns : ns + ns / 8 + FAR_LEASE_MARGIN_NS;
}

/** How long the holder of a lease that ends after `ns` may serve: lease_with_margin() of it is no longer. */
static inline uint64_t lease_without_margin(uint64_t ns)
{
	return (ns - FAR_LEASE_MARGIN_NS) * 8 / 9;
}

/** Between two renewals: a lease survives two lost ones. */
static inline uint64_t lease_interval(uint64_t ns)
{
	return ns / 4;
}

#endif
