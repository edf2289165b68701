/* SPDX-License-Identifier: BSD-3-Clause */
/** Pauses EAL's interrupt thread, which otherwise runs control traffic of DPDK drivers at any time. Called by the
 * control thread, one at a time; the paused thread waits inside an alarm callback of ours. */
#ifndef NIC_DPDK_EAL_PAUSE_H
#define NIC_DPDK_EAL_PAUSE_H

/** Pauses the thread and returns when it is paused. -ETIMEDOUT after 5 s: it is not paused yet, and may become so a
 * moment later. */
int eal_interrupts_pause(void);
/** Resumes the thread and returns when it runs. No effect when it is not paused. */
void eal_interrupts_resume(void);

#endif
