/* SPDX-License-Identifier: BSD-3-Clause */
/** IP addresses, interfaces and published addresses. Plain data and pure functions, any thread; udp_ifaces.c makes
 * system calls, control thread. */
#ifndef NIC_UDP_ADDR_H
#define NIC_UDP_ADDR_H

#include "nic/nic.h"

#include <netinet/in.h>
#include <sys/socket.h>

/* Addresses that a port publishes, and sockets of a queue that binds to each address. A published address with 16
 * queues and 8 IPv6 addresses takes 188 bytes; the transport adds up to NIC_ADDR_BYTES_MAX. */
#define UDP_ADDRS_MAX  8u
#define UDP_QUEUES_MAX 16u
#define UDP_BLOB_MAX   208u

/* Interface addresses that are read, enough for a host of many containers; later ones must be named. */
#define UDP_IFACES_MAX 256u

#define UDP_IP_TEXT_MAX 72u

struct udp_ip {
	uint8_t family; /* AF_INET, AF_INET6; 0: none */
	uint8_t bytes[16];
	uint32_t scope; /* interface index of a link-local IPv6 address, else 0; never published */
};

/** An address of an interface. An interface without addresses has one entry with family 0. */
struct udp_iface {
	char name[16];
	struct udp_ip ip;
	uint8_t prefix; /* prefix length, bits */
	bool up;        /* administratively up, with a carrier */
	bool loopback;
	bool bridge;    /* bridge of local containers or virtual machines: other hosts may use the same addresses */
	bool preferred; /* source address of the default route */
};

/** The host's addresses that are up: at[0, n). */
struct udp_ifaces {
	unsigned n;
	struct udp_iface at[UDP_IFACES_MAX];
};

struct udp_published {
	struct udp_ip ip;
	bool host_only; /* not loopback, but valid on this host only */
};

/** The parsed form of an address blob. */
struct udp_addr {
	uint64_t host;  /* hash of the boot id; 0: unknown, differs from any other */
	uint64_t netns; /* network namespace of that host */
	unsigned queues, ips_n;
	uint16_t ports[UDP_QUEUES_MAX]; /* by queue */
	struct udp_published ips[UDP_ADDRS_MAX];
};

/* udp_addr.c: any thread */

/** Parses "10.0.0.5", "fd00::2", "fe80::1%eth0"; IPv6 also in brackets, mapped IPv4 becomes IPv4. False: invalid. */
bool udp_ip_parse(const char *text, struct udp_ip *out);
/** Parses "a.b.c.d/n" or "x::/n". */
bool udp_subnet_parse(const char *text, struct udp_ip *out, unsigned *prefix);
/** Writes into `out` of UDP_IP_TEXT_MAX bytes and returns it. */
const char *udp_ip_text(const struct udp_ip *ip, char *out);
/** True if family and bytes are equal; scopes may differ. */
bool udp_ip_same(const struct udp_ip *a, const struct udp_ip *b);
/** True if the first `prefix` bits are equal. */
bool udp_ip_within(const struct udp_ip *ip, const struct udp_ip *net, unsigned prefix);
bool udp_ip_loopback(const struct udp_ip *ip);
bool udp_ip_link_local(const struct udp_ip *ip);
/** 0.0.0.0, :: */
bool udp_ip_any(const struct udp_ip *ip);
/** True for unicast addresses that a blob may contain. */
bool udp_ip_publishable(const struct udp_ip *ip);
/** Fills a socket address; `mapped`: IPv4 as a dual-stack IPv6 socket takes it. Returns its length. */
socklen_t udp_ip_sockaddr(const struct udp_ip *ip, uint16_t port, bool mapped, struct sockaddr_in6 *out);
/** The reverse, for both families; false: another family. */
bool udp_ip_from_sockaddr(const struct sockaddr *sa, struct udp_ip *ip, uint16_t *port);

/** Appends the addresses to `out`, "10.0.0.5, fd00::2", truncated at `cap`. */
void udp_ips_text(const struct udp_published *ips, unsigned n, char *out, size_t cap);
/** The same with ports: "10.0.0.5:7000, [fd00::2]:7000-7003". */
void udp_addr_text(const struct udp_addr *addr, char *out, size_t cap);

/** Encodes into `blob` of UDP_BLOB_MAX bytes; returns the length. */
uint16_t udp_addr_encode(const struct udp_addr *addr, uint8_t *blob);
/** False: malformed; `out` is then undefined. */
bool udp_addr_decode(const uint8_t *blob, size_t len, struct udp_addr *out);

/* udp_ifaces.c: control thread */

/** Reads the interfaces of the calling thread's network namespace: 0 or -errno. */
int udp_ifaces_read(struct udp_ifaces *out);
/** The name of the interface that has this address and is up without a carrier; else NULL. `fd`: any socket of the same
 * network namespace. */
const char *udp_iface_without_carrier(const struct udp_ifaces *ifaces, const struct udp_ip *ip, int fd);
/** Identify the boot of the host, and the network namespace; 0: unknown. */
uint64_t udp_host_id(void);
uint64_t udp_netns_id(void);
/** Appends "lo 127.0.0.1, eth0 10.0.0.5, fd00::2", truncated at `cap`. */
void udp_ifaces_text(const struct udp_ifaces *ifaces, char *out, size_t cap);

/** Formats err->text and returns `error`. Any thread. */
__attribute__((format(printf, 3, 4))) int udp_error(struct nic_err *err, int error, const char *format, ...);
/** Appends to a string of `cap` bytes; false: truncated. */
__attribute__((format(printf, 3, 4))) bool udp_append(char *out, size_t cap, const char *format, ...);

#endif
