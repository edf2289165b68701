/* SPDX-License-Identifier: BSD-3-Clause */
/** The lease of this worker in a dynamic group, as a shard keeps it. Shard thread. */
#ifndef FAR_CORE_LEASE_H
#define FAR_CORE_LEASE_H

#include <stdbool.h>
#include <stdint.h>

struct shard;

/** A session has begun: checks the lease from now on, at its end and after each pause. */
void lease_watch(struct shard *s);
/** Ends all sessions if the lease has run out. true: it has, and no handler starts until lease_renew(). */
bool lease_is_over(struct shard *s);
/** This worker is a member again, as another incarnation. */
void lease_renew(struct shard *s, uint64_t incarnation);

#endif
