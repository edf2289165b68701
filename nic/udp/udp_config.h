/* SPDX-License-Identifier: BSD-3-Clause */
/** Parses nic=udp:..., listen= and advertise=. Pure functions; any thread. */
#ifndef NIC_UDP_CONFIG_H
#define NIC_UDP_CONFIG_H

#include "nic/dscp.h"
#include "nic/udp/udp_addr.h"

/* The minimum MTU that IPv6 guarantees. Packets up to this size are never refused; IP fragments them where necessary.
 */
#define UDP_MTU_MIN 1280u
#define UDP_MTU_MAX 65535u

/* Requested size of each socket buffer: about 60 of the largest packets, as the kernel accounts them. */
#define UDP_BUFFER_BYTES     (4u << 20)
#define UDP_BUFFER_BYTES_MAX (1u << 30)

#define UDP_LISTEN_BYTES 64 /* bytes of listen= in nic=udp:..., with the final NUL */

enum udp_offload {
	UDP_OFFLOAD_AUTO, /* segmentation where the kernel supports it, receive offload depending on the load */
	UDP_OFFLOAD_NEVER,
	UDP_OFFLOAD_ALWAYS
};

struct udp_args {
	unsigned port; /* of queue 0; 0: the kernel chooses one for each queue */
	unsigned mtu;  /* upper bound of the path MTU, bytes of an IP packet; UDP_MTU_MAX: none */
	enum udp_offload offload;
	unsigned rcvbuf, sndbuf; /* bytes */
	struct nic_dscp dscp;
	char listen[UDP_LISTEN_BYTES]; /* replaces nic_config.listen; empty: not given */
};

/** The addresses that the port is reached at. */
struct udp_listen {
	bool any;    /* one wildcard socket; else a socket for each of ips */
	bool v4, v6; /* address families of the wildcard socket */
	unsigned n;
	struct udp_published ips[UDP_ADDRS_MAX];
};

/** `args` may be NULL: defaults. 0, or -EINVAL with the reason and the valid keys in `err`. */
int udp_args_parse(const char *args, unsigned queues, struct udp_args *out, struct nic_err *err);

/** Chooses the addresses: `listen` is an interface, a subnet or an address; NULL: loopback, and with `beyond_host`
 * everything that is up. 0; -EADDRNOTAVAIL: no address matches, `err` lists those that exist; -EACCES: the address
 * reaches other hosts, which `beyond_host` does not allow; -EINVAL. */
int udp_listen_choose(const struct udp_ifaces *ifaces, const char *listen, bool beyond_host, struct udp_listen *out,
		      struct nic_err *err);

/** Replaces the addresses of `addr`, and its ports if given, by `advertise`: 0 or -EINVAL. */
int udp_advertise(const char *advertise, struct udp_addr *addr, struct nic_err *err);

#endif
