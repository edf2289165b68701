/* SPDX-License-Identifier: BSD-3-Clause */
/** A host's interfaces, made up. */
#ifndef UDP_FAKE_H
#define UDP_FAKE_H

#include "nic/udp/udp_addr.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { FAKE_DOWN = 1, FAKE_BRIDGE = 2, FAKE_PREFERRED = 4, FAKE_LOOPBACK = 8 };

static inline struct udp_ip fake_ip(const char *text)
{
	struct udp_ip ip;
	cr_assert(udp_ip_parse(text, &ip), "%s", text);
	return ip;
}

static inline void fake_iface(struct udp_ifaces *ifaces, const char *name, const char *ip, uint8_t prefix,
			      unsigned flags)
{
	struct udp_iface *at = &ifaces->at[ifaces->n++];
	*at = (struct udp_iface){.prefix = prefix,
				 .up = !(flags & FAKE_DOWN),
				 .bridge = flags & FAKE_BRIDGE,
				 .preferred = flags & FAKE_PREFERRED,
				 .loopback = flags & FAKE_LOOPBACK};
	snprintf(at->name, sizeof at->name, "%s", name);
	if (ip)
		at->ip = fake_ip(ip);
}

/* A host of containers: what most workers see that are not in one. */
static inline void fake_host(struct udp_ifaces *ifaces)
{
	ifaces->n = 0;
	fake_iface(ifaces, "lo", "127.0.0.1", 8, FAKE_LOOPBACK);
	fake_iface(ifaces, "docker0", "172.17.0.1", 16, FAKE_BRIDGE);
	fake_iface(ifaces, "eth1", "10.1.0.7", 24, 0);
	fake_iface(ifaces, "eth0", "192.0.2.7", 24, FAKE_PREFERRED);
	fake_iface(ifaces, "lo", "::1", 128, FAKE_LOOPBACK);
	fake_iface(ifaces, "eth0", "fd00::7", 64, FAKE_PREFERRED);
	fake_iface(ifaces, "eth0", "fe80::7", 64, 0);
	fake_iface(ifaces, "eth2", "198.51.100.7", 24, FAKE_DOWN);
	fake_iface(ifaces, "eth3", NULL, 0, 0);
	ifaces->at[6].ip.scope = 42;
}

#endif
