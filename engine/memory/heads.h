/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Small pieces of shared memory of this process: what precedes arguments that a peer reads in place. Any thread.
 */
#ifndef FAR_MEMORY_HEADS_H
#define FAR_MEMORY_HEADS_H

#include <stddef.h>

#define HEAD_BYTES ((size_t)1024)
#define HEADS_MAX  64u /* as many messages by reference as a session may have under way, FAR_REFERRED_MAX */

/** Makes them, once; without memory there are none. Locks and makes system calls. */
void heads_make(void);

/* ---- These neither lock nor make system calls ---- */

/** Takes one, aligned to 64; NULL: none is free. */
void *head_take(void);
void head_give(void *head);

#endif
