/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * EAL's interrupt thread, parked: it runs the drivers' own control traffic, and does so whenever it likes. While it is
 * parked, in a callback of ours, it does nothing. By one thread at a time.
 */
#ifndef NIC_DPDK_EAL_PAUSE_H
#define NIC_DPDK_EAL_PAUSE_H

/** Parks it; returns when it is parked. 0, or -ETIMEDOUT after 5 s: then it is not, or will be in a moment. */
int park_interrupts(void);
/** Lets it go; returns when it has gone. Nothing happens when it is not parked. */
void park_release(void);

#endif
