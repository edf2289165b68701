/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Paths to a member: a port of this worker and a published address of the member with the same driver. Paths are
 * numbered from 0, best first. The connecting side tries them in this order and so decides for both sides. Control
 * thread.
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

/** The first path from number `from` on whose driver can reach the member; `info` is the member's. false: none. */
bool route_next(const struct group *g, const struct info *info, unsigned from, struct route *out);
/** The path for sessions of this worker with itself. */
void route_self(const struct group *g, struct route *out);
/** True if both sides have ports of one driver, whether the member can be reached or not. */
bool route_common(const struct group *g, const struct info *info);

/**
 * Writes why `chosen` is the path: a reason against each better one; `chosen` NULL: why there is none. `failed`: errors
 * of the paths that were tried; "": none was.
 */
void route_why(const struct group *g, const struct info *info, const struct route *chosen, const char *failed,
	       char *out, size_t cap);
/** Writes what the drivers diagnose on all paths to a member, usable ones included, such as an unplugged cable; "": no
 * findings. */
void route_diagnoses(const struct group *g, const struct info *info, char *out, size_t cap);
/** Writes ": " and what the driver of port `port` diagnoses on its paths to the member, such as a link that is down or
 * a router without replies; "": no findings. */
void route_diagnosis(const struct group *g, unsigned port, const struct info *info, char *out, size_t cap);
/** Writes the addresses of both sides and the reasons against each path, for an error text; long lists are cut. */
void route_none(const struct group *g, const struct info *info, char *out, size_t cap);

/**
 * Publishes the route for application threads (ctl_member_route()). The info of `p` is known; `why` is copied; `route`
 * NULL: there is none. Without memory the former one stays.
 */
void route_publish(struct peer *p, const struct route *route, const char *why);
/** Frees the published routes, which have no reader any more. */
void route_free(struct peer *p);

#endif
