/* SPDX-License-Identifier: BSD-3-Clause */
/** A message's parts on their way into a call or a one-way message. */
#ifndef FAR_API_PARTS_H
#define FAR_API_PARTS_H

#include "agent/agent.h"
#include "features/rendezvous/rendezvous.h"

struct parts {
	const struct far_part *part;
	size_t n;
};

/* Where a long message is sent from. */
enum parts_owner {
	PARTS_COPIED,   /* a copy */
	PARTS_BORROWED, /* the application's memory, until it is revoked */
	PARTS_RELEASED  /* the same, until it is released */
};

/**
 * Checks the parts and makes them the message of `start`, whose worker and shard are set: to be copied when it starts,
 * or, beyond FAR_MSG_WHOLE_MAX, as a struct large_out in `start->ready`, of which the caller holds a reference;
 * parts_end() gives it back. `parts` stays until then. INVALID, TOO_LARGE, RESOURCE.
 */
enum far_status parts_start(struct shard *s, struct call_start *start, const struct parts *parts,
			    enum parts_owner owner, struct far_err *err);

/** After the start, whatever became of it: `release` (may be NULL) is called now, or when the message has been sent. */
void parts_end(const struct call_start *start, far_msg_release_fn *release, void *user);

#endif
