/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages in parts: copied, or sent without a copy. Application threads and handlers. */
#ifndef FAR_API_PARTS_H
#define FAR_API_PARTS_H

#include "agent/agent.h"
#include "features/rendezvous/rendezvous.h"

struct parts {
	const struct far_part *part;
	size_t n;
};

/* Memory that a rendezvous message is sent from. */
enum parts_owner {
	PARTS_COPIED,   /* a copy in memory of the engine */
	PARTS_BORROWED, /* the application's memory, until rendezvous_out_revoke() */
	PARTS_RELEASED  /* the application's memory, until the release callback */
};

/**
 * Checks the parts and makes them the message of `start`, whose worker and shard are set. An eager message is copied
 * when the call starts. A rendezvous message (beyond FAR_MSG_EAGER_MAX, or from registered memory) is a struct
 * rendezvous_out in `start->ready`; the caller has a reference of it. `parts` must stay until parts_end(). Errors:
 * INVALID, TOO_LARGE, RESOURCE.
 */
enum far_status parts_start(struct shard *s, struct call_start *start, const struct parts *parts,
			    enum parts_owner owner, struct far_err *err);

/** The least message that is sent without a copy. A session that changes its driver meanwhile sends it in another way.
 */
size_t parts_least(const struct shard *s, const struct call_start *start);

/** Due after the start, failed or not. Gives the reference back. `release` (may be NULL) runs now, or once the message
 * was sent. */
void parts_end(const struct call_start *start, far_msg_release_fn *release, void *user);

#endif
