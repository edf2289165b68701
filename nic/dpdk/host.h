/* SPDX-License-Identifier: BSD-3-Clause */
/** Kernel services for a port that shares an interface with the kernel (af_packet, af_xdp): interface properties,
 * sockets that reserve our UDP ports, and descriptors that wake a queue, since these devices have no interrupt that a
 * thread could sleep on. No DPDK here. Slow operations of the control thread, unless noted. */
#ifndef FAR_NIC_DPDK_HOST_H
#define FAR_NIC_DPDK_HOST_H

#include "base/limits.h"
#include "nic/nic.h"

#include <net/if.h>
#include <sys/socket.h>

#define HOST_IPS_MAX       32 /* addresses of an interface; further ones are ignored */
#define HOST_IP_TEXT_BYTES 48

/** An IP address of the host, with its subnet. */
struct host_ip {
	uint8_t v6;     /* 0: IPv4, bytes[0, 4) */
	uint8_t prefix; /* prefix length of the subnet, bits */
	bool usable;    /* false: IPv6 under duplicate address detection, or a duplicate */
	uint8_t bytes[16];
};

/** A snapshot of a kernel interface. */
struct host_iface {
	char name[IFNAMSIZ];
	char driver[32]; /* "veth", "ixgbe" …; "": not reported */
	int index;
	uint8_t mac[6];
	unsigned mtu;      /* bytes of an IP packet */
	unsigned queues;   /* pairs of receive and transmit queues in use; 1 if not reported */
	unsigned combined; /* of these, the combined ones (both directions) */
	unsigned rx_queues;
	bool up;      /* administratively up */
	bool running; /* has a carrier */
	unsigned ips_n;
	struct host_ip ips[HOST_IPS_MAX]; /* IPv4 first, link-local last */
};

/** Reads an interface of this network namespace. -ENODEV: no such interface; -EPROTOTYPE: it carries no Ethernet
 * frames; or the errno of a system call. */
int host_iface_read(const char *name, struct host_iface *out, struct nic_err *err);

/** Chooses the address to be reached at: `listen` as in struct nic_config (the interface's own name, a subnet, an
 * address); NULL: the first usable address. -EADDRNOTAVAIL: none, or none yet; -EINVAL: `listen` has another form;
 * -ENETDOWN: the interface is down. */
int host_iface_ip(const struct host_iface *iface, const char *listen, const struct host_ip **out, struct nic_err *err);

/** True if `ip` is in the subnet of one of the interface's addresses. */
bool host_iface_on_link(const struct host_iface *iface, bool v6, const uint8_t *ip);
/** True if the interface is up and has a carrier, or if that cannot be read. Three system calls. */
bool host_iface_has_carrier(const char *name);

/** "10.0.0.5", "fd00::5"; returns `out`. Any thread. */
const char *host_ip_text(bool v6, const uint8_t *ip, char out[HOST_IP_TEXT_BYTES]);

/** Kernel sockets bound to the ports first, first + 1 … */
struct host_sockets {
	int fds[FAR_SHARDS_MAX];
	unsigned n;
	uint16_t first;
};

/** Reserves `n` consecutive UDP ports, n in [1, FAR_SHARDS_MAX], from `first` on (0: anywhere): binds kernel sockets
 * that discard what they receive. So the kernel neither gives the ports to other programs nor answers our traffic with
 * "port unreachable". -EADDRINUSE: a port is taken; -EADDRNOTAVAIL: not an address of the host. On failure nothing is
 * left open. */
int host_reserve_ports(struct host_sockets *out, const struct host_iface *iface, const struct host_ip *ip,
		       uint16_t first, unsigned n, struct nic_err *err);

/** Binds `n` kernel sockets, as above, that receive kicks: peers send them through the kernel. */
int host_kick_open_udp(struct host_sockets *out, const struct host_iface *iface, const struct host_ip *ip, unsigned n,
		       struct nic_err *err);

/** Closes all sockets; may be called on a zeroed struct and twice. */
void host_sockets_close(struct host_sockets *socks);

/** Opens a unix socket at `path` that receives the kicks of one queue from this host; replaces a stale one. The
 * descriptor or -errno: -EADDRINUSE: another process receives there; -ENAMETOOLONG. */
int host_kick_open_unix(const char *path, struct nic_err *err);

/** The address of a kick. */
struct host_kick {
	struct sockaddr_storage to;
	socklen_t len; /* 0: none */
};

/** Sets the address to a kernel socket of a host, reached through interface `index`. */
void host_kick_udp(struct host_kick *out, bool v6, const uint8_t *ip, uint16_t port, int index);
/** Sets the address to a path. -ENAMETOOLONG. */
int host_kick_unix(struct host_kick *out, const char *path);
/** Opens a socket that sends kicks to addresses of this family: the descriptor or -errno. */
int host_kick_sender(const struct host_kick *to);
/** Sends a kick, which may be lost. Any thread; one system call that never blocks. */
void host_kick_send(int sender, const struct host_kick *to);

/** The descriptors that a queue sleeps on: `fd` polls readable after host_wake_signal(), after a kick, and when the
 * timer expires. */
struct host_wake {
	int fd;    /* epoll descriptor of the other three */
	int event; /* eventfd */
	int kick;  /* socket that receives kicks; -1: none */
	int timer; /* timerfd of host_wake_timer_set(); -1: none */
};

/** Opens the descriptors. Takes over `kick` (-1: none) on success only. */
int host_wake_open(struct host_wake *out, int kick, struct nic_err *err);
/** Makes `fd` poll readable when `other` does; `other` stays the caller's. 0 or -errno. */
int host_wake_add(const struct host_wake *wake, int other);
/** Creates the timer of host_wake_timer_set(). 0 or -errno. */
int host_wake_timer_open(struct host_wake *wake);
/** Poller: arms the timer: `fd` polls readable once, after `ns` nanoseconds; 0 disarms it. One system call. */
void host_wake_timer_set(const struct host_wake *wake, long ns);
/** Closes all descriptors; may be called twice. */
void host_wake_close(struct host_wake *wake);
/** Wakes the queue. Any thread; one system call. */
void host_wake_signal(const struct host_wake *wake);
/** Poller: makes `fd` unreadable again. Reads at most FAR_KICKS_CLEARED_MAX kicks, so that a peer that floods us with
 * kicks cannot hold the poller here. True if there was a kick. */
bool host_wake_clear(const struct host_wake *wake);

#endif
