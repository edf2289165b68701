/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Ways to a member: one of our ports, and an address of the same driver that the member has published. They are
 * numbered, best first, from 0; who connects tries them in this order, and so decides for both sides.
 */
#ifndef FAR_CONTROL_ROUTE_H
#define FAR_CONTROL_ROUTE_H

#include "control/info.h"

struct group;
struct peer;
struct ctl_route;

struct route {
	unsigned number;
	uint16_t port; /* index in config.ports */
	struct nic_addr addr;
};

/** The best from `from` on whose driver says that it can reach the member; `info` as the member published it. false:
 * none. */
bool route_next(const struct group *g, const struct info *info, unsigned from, struct route *out);
/** The one to oneself. */
void route_self(const struct group *g, struct route *out);
/** Have we a driver in common, be it in reach or not. */
bool route_common(const struct group *g, const struct info *info);

/**
 * Why it is this one: a reason for each better one. `failed` is what came of those that were tried; "": none was.
 * `chosen` NULL: why there is none.
 */
void route_why(const struct group *g, const struct info *info, const struct route *chosen, const char *failed,
	       char *out, size_t cap);
/** What our drivers remark on the ways to a member, those that would be tried included: a cable that is pulled. "":
 * nothing. */
void route_remarks(const struct group *g, const struct info *info, char *out, size_t cap);
/** What the driver of our port `port` remarks of the way to the member, though it may be one: a link that is down, a
 * router that does not answer. ": " and that, or "". */
void route_remark(const struct group *g, unsigned port, const struct info *info, char *out, size_t cap);
/** The addresses of both sides and what stands between them, for an error's text; bounded, cut where they are many. */
void route_none(const struct group *g, const struct info *info, char *out, size_t cap);

/**
 * What application threads see of it from now on; `p`'s info is known. `why` is copied. Without memory the old one
 * stays. NULL `route`: there is none.
 */
void route_tell(struct peer *p, const struct route *route, const char *why);
void route_free(struct peer *p);

#endif
