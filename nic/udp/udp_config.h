/* SPDX-License-Identifier: BSD-3-Clause */
/** What nic=udp:..., listen= and advertise= say. Pure functions; any thread. */
#ifndef NIC_UDP_CONFIG_H
#define NIC_UDP_CONFIG_H

#include "nic/dscp.h"
#include "nic/udp/udp_addr.h"

/* The least that IPv6 promises of every path. Packets of it or less are never refused; IP cuts them where it must. */
#define UDP_MTU_MIN 1280u
#define UDP_MTU_MAX 65535u

/* What a socket is asked to hold each way: some 60 of the largest packets, by the kernel's way of counting. */
#define UDP_BUFFER_BYTES     (4u << 20)
#define UDP_BUFFER_BYTES_MAX (1u << 30)

#define UDP_LISTEN_BYTES 64 /* of listen= in nic=udp:..., with its end */

enum udp_offload {
	UDP_OFFLOAD_AUTO, /* segmentation where the kernel takes it, receive offload by load */
	UDP_OFFLOAD_NEVER,
	UDP_OFFLOAD_ALWAYS
};

struct udp_args {
	unsigned port; /* of queue 0; 0: the kernel's choice for each queue */
	unsigned mtu;  /* bound on the path's, in bytes of IP packet; UDP_MTU_MAX: none */
	enum udp_offload offload;
	unsigned rcvbuf, sndbuf; /* bytes */
	struct nic_dscp dscp;
	char listen[UDP_LISTEN_BYTES]; /* in place of nic_config.listen; empty: that */
};

/** Where to be reached. */
struct udp_listen {
	bool any;    /* sockets bound to no address; else one for each of ips */
	bool v4, v6; /* families, of any */
	unsigned n;
	struct udp_published ips[UDP_ADDRS_MAX];
};

/** `args` may be NULL: the defaults. 0, or -EINVAL with the reason and what there is in `err`. */
int udp_args_parse(const char *args, unsigned queues, struct udp_args *out, struct nic_err *err);

/**
 * Which addresses to be reached at: `listen` is an interface, a subnet, an address, or NULL: loopback, and everything
 * else that is up with `beyond_host`. 0; -EADDRNOTAVAIL: nothing here is of that name, `err` lists what is; -EACCES:
 * it reaches beyond the host and must not; -EINVAL.
 */
int udp_listen_choose(const struct udp_ifaces *ifaces, const char *listen, bool beyond_host, struct udp_listen *out,
		      struct nic_err *err);

/** Replaces the addresses, and the ports if some are given, of `addr` by `advertise`: 0 or -EINVAL. */
int udp_advertise(const char *advertise, struct udp_addr *addr, struct nic_err *err);

#endif
