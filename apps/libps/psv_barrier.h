/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Barriers of a service. They are at slot 0 of the view alone, so that all members of a round pass together. A request
 * BARRIER waits at the shard (psv_wait.c) until its round is over. The thread that polls the shard.
 */
#ifndef PSV_BARRIER_H
#define PSV_BARRIER_H

#include <farcall/ps.h>

struct psv_shard;
struct psv_waiter;

struct psv_member {
	uint64_t incarnation; /* of the worker that came last as this member; 0: none has come */
	int32_t rank;         /* of that worker */
	bool here;            /* a request of this member waits */
};

struct psv_barrier {
	struct psv_barrier *next;
	char name[FAR_PS_NAME_MAX];
	uint64_t id;    /* psv_name_id() */
	uint64_t round; /* that members wait for; begins at 1 */
	uint32_t members;
	struct psv_member member[];
};

/** True for a request BARRIER whose round is not over. One that has just come joins the round. `*status`: not OK, with
 * `*err`, for one that cannot join. */
bool psv_barrier_waits(struct psv_shard *s, struct psv_waiter *w, enum far_status *status, struct far_err *err);
/** Ends the round of each barrier whose members are all here or lost. True: one ended. */
bool psv_barriers_look(struct psv_shard *s);
/** Writes the error of a request that has waited until its deadline: the members that are missing. */
void psv_barrier_late(struct psv_shard *s, const struct psv_waiter *w, char *text, size_t size);
void psv_barriers_free(struct psv_shard *s);

#endif
