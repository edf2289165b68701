/* SPDX-License-Identifier: BSD-3-Clause */
/** IP addresses, interfaces and published addresses: everything here is plain data, made and read by any thread. */
#ifndef NIC_UDP_ADDR_H
#define NIC_UDP_ADDR_H

#include "nic/nic.h"

#include <netinet/in.h>
#include <sys/socket.h>

/* Addresses that a port publishes, and sockets of a queue that is bound to each of its addresses. With all of them
 * IPv6 a published address of 16 queues is 188 bytes; a link over it may add words up to NIC_ADDR_BYTES_MAX. */
#define UDP_ADDRS_MAX  8u
#define UDP_QUEUES_MAX 16u
#define UDP_BLOB_MAX   208u

/* Addresses of interfaces that are looked at: a host of many containers has that many; later ones must be named. */
#define UDP_IFACES_MAX 256u

#define UDP_IP_TEXT_MAX 72u

struct udp_ip {
	uint8_t family; /* AF_INET, AF_INET6; 0: none */
	uint8_t bytes[16];
	uint32_t scope; /* interface of a link-local IPv6 address, 0 otherwise; never published */
};

/** An address of an interface; one without addresses has one entry with family 0. */
struct udp_iface {
	char name[16];
	struct udp_ip ip;
	uint8_t prefix; /* bits */
	bool up;        /* and running */
	bool loopback;
	bool bridge;    /* of this host's containers or virtual machines: other hosts may have the same addresses */
	bool preferred; /* the source towards the rest of the world */
};

struct udp_ifaces {
	unsigned n;
	struct udp_iface at[UDP_IFACES_MAX];
};

struct udp_published {
	struct udp_ip ip;
	bool host_only; /* means nothing to other hosts, though it is not loopback */
};

/** What an address blob says. */
struct udp_addr {
	uint64_t host;  /* of the boot; 0: unknown, like no other */
	uint64_t netns; /* network namespace of that host */
	unsigned queues, ips_n;
	uint16_t ports[UDP_QUEUES_MAX]; /* by queue */
	struct udp_published ips[UDP_ADDRS_MAX];
};

/* udp_addr.c */

/** "10.0.0.5", "fd00::2", "fe80::1%eth0"; IPv6 also in brackets, mapped IPv4 becomes IPv4. False: neither. */
bool udp_ip_parse(const char *text, struct udp_ip *out);
/** "a.b.c.d/n" or "x::/n". */
bool udp_subnet_parse(const char *text, struct udp_ip *out, unsigned *prefix);
/** Writes into `out` of UDP_IP_TEXT_MAX bytes and returns it. */
const char *udp_ip_text(const struct udp_ip *ip, char *out);
/** Same family and bytes, whatever the scope. */
bool udp_ip_same(const struct udp_ip *a, const struct udp_ip *b);
/** Do the first `prefix` bits agree? */
bool udp_ip_within(const struct udp_ip *ip, const struct udp_ip *net, unsigned prefix);
bool udp_ip_loopback(const struct udp_ip *ip);
bool udp_ip_link_local(const struct udp_ip *ip);
/** 0.0.0.0, :: */
bool udp_ip_any(const struct udp_ip *ip);
/** Unicast addresses that may stand in a published address. */
bool udp_ip_publishable(const struct udp_ip *ip);
/** Fills a socket address; `mapped`: IPv4 as an IPv6 socket of both families takes it. Returns its length. */
socklen_t udp_ip_sockaddr(const struct udp_ip *ip, uint16_t port, bool mapped, struct sockaddr_in6 *out);
/** The reverse, of either family; false: another family. */
bool udp_ip_from_sockaddr(const struct sockaddr *sa, struct udp_ip *ip, uint16_t *port);

/** Appends the addresses to `out`, "10.0.0.5, fd00::2", as far as they fit. */
void udp_ips_text(const struct udp_published *ips, unsigned n, char *out, size_t cap);
/** The same with ports: "10.0.0.5:7000, [fd00::2]:7000-7003". */
void udp_addr_text(const struct udp_addr *addr, char *out, size_t cap);

/** Bytes written into `blob` of UDP_BLOB_MAX. */
uint16_t udp_addr_encode(const struct udp_addr *addr, uint8_t *blob);
/** False: malformed; `out` is then not to be used. */
bool udp_addr_decode(const uint8_t *blob, size_t len, struct udp_addr *out);

/* udp_ifaces.c */

/** Reads the interfaces of the calling thread's network namespace: 0 or -errno. */
int udp_ifaces_read(struct udp_ifaces *out);
/** The interface that has this address, when it is up and has no link: its name, or NULL. `fd`: any socket of the same
 * network namespace. */
const char *udp_iface_without_link(const struct udp_ifaces *ifaces, const struct udp_ip *ip, int fd);
/** Which boot of which machine, and which network namespace; 0 when it cannot be known. */
uint64_t udp_host_id(void);
uint64_t udp_netns_id(void);
/** Appends "lo 127.0.0.1, eth0 10.0.0.5, fd00::2", as far as it fits. */
void udp_ifaces_text(const struct udp_ifaces *ifaces, char *out, size_t cap);

/** Fills err->text and returns `error`. */
__attribute__((format(printf, 3, 4))) int udp_error(struct nic_err *err, int error, const char *format, ...);
/** Appends to a string of `cap` bytes; false: it was cut. */
__attribute__((format(printf, 3, 4))) bool udp_append(char *out, size_t cap, const char *format, ...);

#endif
