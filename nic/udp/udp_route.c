/* SPDX-License-Identifier: BSD-3-Clause */
/** Ranks and chooses the addresses of a peer. Control thread. */
#include "nic/udp/udp_route.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum rank { LOOPBACK, OWN, SUBNET, ROUTED, RANKS, NEVER = RANKS };

static const struct udp_iface *iface_of(const struct udp_ifaces *ifaces, const struct udp_ip *ip)
{
	for (unsigned i = 0; i < ifaces->n; i++)
		if (ifaces->at[i].ip.family && udp_ip_same(&ifaces->at[i].ip, ip))
			return &ifaces->at[i];
	return NULL;
}

static bool in_our_subnets(const struct udp_ifaces *ifaces, const struct udp_ip *ip)
{
	for (unsigned i = 0; i < ifaces->n; i++) {
		const struct udp_iface *at = &ifaces->at[i];
		if (at->up && at->prefix && !at->loopback && udp_ip_within(ip, &at->ip, at->prefix))
			return true;
	}
	return false;
}

/* The interface of our own link-local address; a peer's link-local address is valid on that link only. */
static uint32_t scope_of(const struct udp_self *self)
{
	for (unsigned i = 0; i < self->ips_n; i++)
		if (self->ips[i].ip.scope)
			return self->ips[i].ip.scope;
	return 0;
}

static enum rank rank_of(const struct udp_self *self, const struct udp_addr *peer, struct udp_published *p,
			 const char **why)
{
	bool same_host = peer->host && peer->host == self->host;
	bool same_netns = same_host && peer->netns && peer->netns == self->netns;
	if (udp_ip_loopback(&p->ip)) {
		*why = same_host ? "loopback of another network namespace" : "loopback of another host";
		return same_netns ? LOOPBACK : NEVER;
	}
	if (p->host_only && !same_host) {
		*why = "an address of a bridge on another host";
		return NEVER;
	}
	if (p->ip.family == AF_INET6 && udp_ip_link_local(&p->ip)) {
		p->ip.scope = scope_of(self);
		*why = "link-local, and no link-local address is listened at here";
		return p->ip.scope ? SUBNET : NEVER;
	}
	if (iface_of(self->ifaces, &p->ip)) {
		*why = "also an address of this host, in another network";
		return same_netns ? OWN : NEVER;
	}
	return in_our_subnets(self->ifaces, &p->ip) ? SUBNET : ROUTED;
}

static int no_route(const struct udp_self *self, const struct udp_addr *peer, const char *why, int error,
		    struct nic_err *err)
{
	char ours[96] = "", theirs[120] = "";
	udp_ips_text(self->ips, self->ips_n, ours, sizeof ours);
	udp_ips_text(peer->ips, peer->ips_n, theirs, sizeof theirs);
	return udp_error(err, error, "udp: no route from %s to %s: %s", ours, theirs, why);
}

int udp_route_choose(const struct udp_self *self, const struct udp_addr *peer, udp_route_fn *query, void *ctx,
		     struct udp_route *out, struct nic_err *err)
{
	struct udp_published ips[UDP_ADDRS_MAX];
	enum rank ranks[UDP_ADDRS_MAX];
	const char *why = "there is no address";
	int error = -ENETUNREACH;
	memcpy(ips, peer->ips, sizeof ips);
	for (unsigned i = 0; i < peer->ips_n; i++)
		ranks[i] = rank_of(self, peer, &ips[i], &why);
	for (unsigned rank = 0; rank < RANKS; rank++)
		for (unsigned i = 0; i < peer->ips_n; i++) {
			struct udp_route route = {.ip = ips[i].ip};
			if (ranks[i] != rank)
				continue;
			int failed = query(ctx, &route);
			if (!failed) {
				*out = route;
				return 0;
			}
			error = failed;
			why = strerror(-failed);
		}
	return no_route(self, peer, why, error, err);
}
