/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a port needs of the kernel when it shares an interface with it (af_packet, af_xdp): the facts of the interface,
 * sockets that hold our UDP ports, and a way to wake a queue, since these devices have no interrupt that a thread could
 * sleep on. No DPDK in here. Slow operations, for the control core, but for the two that say otherwise.
 */
#ifndef FAR_NIC_DPDK_HOST_H
#define FAR_NIC_DPDK_HOST_H

#include "base/limits.h"
#include "nic/nic.h"

#include <net/if.h>
#include <sys/socket.h>

#define HOST_IPS_MAX       32 /* of an interface; more are not looked at */
#define HOST_IP_TEXT_BYTES 48

/** An address of the host, with the subnet that it is in. */
struct host_ip {
	uint8_t v6;     /* 0: IPv4, bytes[0, 4) */
	uint8_t prefix; /* bits of the subnet */
	bool usable;    /* false: IPv6 and still, or found to be, somebody else's */
	uint8_t bytes[16];
};

/** A kernel interface, as it was when it was read. */
struct host_iface {
	char name[IFNAMSIZ];
	char driver[32]; /* "veth", "ixgbe" …; "" when it does not say */
	int index;
	uint8_t mac[6];
	unsigned mtu;      /* of an IP packet */
	unsigned queues;   /* pairs of them in use; 1 when it does not say */
	unsigned combined; /* of these, those that send and receive */
	unsigned rx_queues;
	bool up;      /* by the administrator */
	bool running; /* has a carrier */
	unsigned ips_n;
	struct host_ip ips[HOST_IPS_MAX]; /* IPv4 first, link-local ones last */
};

/**
 * Reads an interface of this network namespace. -ENODEV: there is none of the name; -EPROTOTYPE: it carries no Ethernet
 * frames; or what a system call says.
 */
int host_iface_read(const char *name, struct host_iface *out, struct nic_err *err);

/**
 * The address by which `iface` is to be reached: by `listen` as in struct nic_config (the interface's own name, a
 * subnet, an address), or the first usable one when it is NULL. -EADDRNOTAVAIL: there is none, or none yet; -EINVAL:
 * `listen` is none of the three; -ENETDOWN: the interface is down.
 */
int host_iface_ip(const struct host_iface *iface, const char *listen, const struct host_ip **out, struct nic_err *err);

/** Is `ip` on the interface's own link: in the subnet of one of its addresses. */
bool host_iface_on_link(const struct host_iface *iface, bool v6, const uint8_t *ip);
/** Is the interface up, with a cable that works, as far as is known. Three system calls. */
bool host_iface_runs(const char *name);

/** "10.0.0.5", "fd00::5"; returns `out`. Any thread. */
const char *host_ip_text(bool v6, const uint8_t *ip, char out[HOST_IP_TEXT_BYTES]);

/** Kernel sockets bound to the ports first, first + 1 … */
struct host_socks {
	int fds[FAR_SHARDS_MAX];
	unsigned n;
	uint16_t first;
};

/**
 * Binds `n` kernel sockets, [1, FAR_SHARDS_MAX], to consecutive UDP ports from `first` on, 0: wherever there are so
 * many free ones, and has the kernel throw away what it gets for them. So the kernel neither gives these ports to
 * others nor answers what it sees of our traffic with "port unreachable". -EADDRINUSE: a port is taken; -EADDRNOTAVAIL:
 * the address is not the host's. On failure nothing is left open.
 */
int host_hold_open(struct host_socks *out, const struct host_iface *iface, const struct host_ip *ip, uint16_t first,
		   unsigned n, struct nic_err *err);

/** Binds `n` kernel sockets, as above, that receive kicks: peers on other hosts send them there, by way of the kernel.
 */
int host_kick_open_udp(struct host_socks *out, const struct host_iface *iface, const struct host_ip *ip, unsigned n,
		       struct nic_err *err);

/** Closes all of them; may be called on zeroed ones and twice. */
void host_socks_close(struct host_socks *socks);

/** A socket in the file system that receives the kicks of one queue, from peers of this host; a dead one of the same
 * path is replaced. The descriptor, or -errno: -EADDRINUSE, somebody listens there; -ENAMETOOLONG. */
int host_kick_open_unix(const char *path, struct nic_err *err);

/** Where a kick goes. */
struct host_kick {
	struct sockaddr_storage to;
	socklen_t len; /* 0: nowhere */
};

/** Kicks to a kernel socket on another host, or this one, reached through interface `index`. */
void host_kick_udp(struct host_kick *out, bool v6, const uint8_t *ip, uint16_t port, int index);
/** Kicks to a path. -ENAMETOOLONG. */
int host_kick_unix(struct host_kick *out, const char *path);
/** A socket to send kicks of that kind from: the descriptor or -errno. */
int host_kick_sender(const struct host_kick *to);
/** Sends one, which may be lost. Any thread; one system call, never waits. */
void host_kick_send(int sender, const struct host_kick *to);

/** What a queue sleeps on: `fd` polls readable after host_wake_signal(), and after a kick. */
struct host_wake {
	int fd;    /* an epoll descriptor of the other two */
	int event; /* an eventfd */
	int kick;  /* receives kicks; -1: none */
	int timer; /* host_wake_look()'s; -1: none */
};

/** Takes over `kick` (-1: none), on success only. */
int host_wake_open(struct host_wake *out, int kick, struct nic_err *err);
/** Has `fd` poll readable when this descriptor does, too; it stays the caller's. 0 or -errno. */
int host_wake_watch(const struct host_wake *wake, int other);
/** Readies host_wake_look(). 0 or -errno. */
int host_wake_look_open(struct host_wake *wake);
/** Has `fd` poll readable in `ns` nanoseconds, once; 0: not any more. One system call. */
void host_wake_look(const struct host_wake *wake, long ns);
/** Closes all; may be called twice. */
void host_wake_close(struct host_wake *wake);
/** Any thread; one system call. */
void host_wake_signal(const struct host_wake *wake);
/** Makes `fd` unreadable again: takes what is there now, of kicks FAR_KICKS_CLEARED_MAX at most, so that a peer that
 * floods us with them cannot keep us here. Was there a kick. */
bool host_wake_clear(const struct host_wake *wake);

#endif
