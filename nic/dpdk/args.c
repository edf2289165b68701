/* SPDX-License-Identifier: BSD-3-Clause */
/** Parses nic=dpdk:DEVICE[,KEY=VALUE…]: keys of this driver are taken out, all others are passed on to DPDK. Control
 * thread. */
#include "nic/dpdk/dpdk.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORM                                                                                                           \
	"nic=dpdk:net_memif0,role=server,id=0,socket=/path, nic=dpdk:net_af_packet0,iface=eth0, or nic=dpdk: and a "   \
	"PCI address"

/* Bytes of a buffer of a memif ring. With 2^8 of them a ring takes as much memory as DPDK's 2^10 of 2048. */
#define MEMIF_BUFFER_BYTES 8192

static int bad_key(struct nic_err *err, const char *key, const char *value, const char *wanted)
{
	return dpdk_error(err, -EINVAL, "dpdk: %s=%.60s: %s", key, value, wanted);
}

static int number(const char *text, unsigned long min, unsigned long max, unsigned *out)
{
	char *end;
	errno = 0;
	unsigned long n = strtoul(text, &end, 10);
	if (!isdigit((unsigned char)*text) || *end || errno || n < min || n > max)
		return -EINVAL;
	*out = (unsigned)n;
	return 0;
}

/* Parses an IP address without prefix; *v6: it is IPv6. */
static int read_ip(const char *text, uint8_t *v6, uint8_t ip[16])
{
	*v6 = strchr(text, ':') != NULL;
	return inet_pton(*v6 ? AF_INET6 : AF_INET, text, ip) == 1 ? 0 : -EINVAL;
}

/* Parses A.B.C.D[/N] or IPv6[/N]; without /N the prefix is 24 or 64 bits. */
static int parse_ip(struct dpdk_args *a, const char *value)
{
	char text[64];
	if ((size_t)snprintf(text, sizeof text, "%s", value) >= sizeof text)
		return -EINVAL;
	char *slash = strchr(text, '/');
	if (slash)
		*slash++ = 0;
	if (read_ip(text, &a->v6, a->ip))
		return -EINVAL;
	a->has_ip = true;
	a->prefix = a->v6 ? 64 : 24;
	return slash ? number(slash, 1, a->v6 ? 128 : 32, &a->prefix) : 0;
}

/* Parses XX:XX:XX:XX:XX:XX, a unicast address. */
static int read_mac(const char *text, uint8_t mac[6])
{
	unsigned b[6];
	char rest;
	if (sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x%c", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5], &rest) != 6 || b[0] & 1)
		return -EINVAL;
	for (unsigned i = 0; i < 6; i++)
		mac[i] = (uint8_t)b[i];
	return 0;
}

static int parse_router(struct dpdk_args *a, const char *value)
{
	a->has_router = read_mac(value, a->router) == 0;
	return a->has_router ? 0 : -EINVAL;
}

static int parse_gw(struct dpdk_args *a, const char *value)
{
	a->has_gw = read_ip(value, &a->gw_v6, a->gw) == 0;
	return a->has_gw ? 0 : -EINVAL;
}

/* Parses IP/MAC. */
static int parse_static(struct dpdk_args *a, const char *value)
{
	char text[64];
	struct dpdk_static_neighbour *to = &a->static_neighbours[a->static_neighbours_n];
	if (a->static_neighbours_n == DPDK_STATIC_NEIGHBOURS_MAX ||
	    (size_t)snprintf(text, sizeof text, "%s", value) >= sizeof text)
		return -EINVAL;
	char *slash = strchr(text, '/');
	if (!slash)
		return -EINVAL;
	*slash++ = 0;
	if (read_ip(text, &to->v6, to->ip) || read_mac(slash, to->mac))
		return -EINVAL;
	a->static_neighbours_n++;
	return 0;
}

/* 1: a key of this driver; 0: a key of the device; or -EINVAL. */
static int parse_driver_key(struct dpdk_args *a, const char *key, const char *value, struct nic_err *err)
{
	unsigned n = 0;
	if (strcmp(key, "huge") == 0) {
		if (number(value, 0, 1, &n))
			return bad_key(err, key, value, "0 or 1");
		a->huge = (int)n;
	} else if (strcmp(key, "mtu") == 0) {
		if (number(value, 256, 65535, &a->mtu))
			return bad_key(err, key, value, "256 to 65535");
	} else if (strcmp(key, "port") == 0) {
		if (number(value, 1, 65536 - DPDK_QUEUES_MAX, &a->port))
			return bad_key(err, key, value, "a UDP port, 1 to 65520");
	} else if (strcmp(key, "rxd") == 0 || strcmp(key, "txd") == 0) {
		unsigned *to = key[0] == 'r' ? &a->rxd : &a->txd;
		if (number(value, DPDK_RING_MIN, DPDK_RING_MAX, to))
			return bad_key(err, key, value, "packets per device ring, 32 to 4096");
	} else if (strcmp(key, "dscp") == 0) {
		if (nic_dscp_parse(value, strlen(value), &a->dscp))
			return bad_key(err, key, value, NIC_DSCP_FORM);
	} else if (strcmp(key, "vlan") == 0) {
		if (a->class != DPDK_OWN || number(value, 1, 4094, &a->vlan))
			return bad_key(err, key, value,
				       a->class == DPDK_OWN ? "the number of a VLAN, 1 to 4094"
							    : "only for a device that the kernel does not use; on an "
							      "interface, give iface= the VLAN interface");
	} else if (strcmp(key, "router") == 0) {
		if (a->class != DPDK_OWN || parse_router(a, value))
			return bad_key(err, key, value,
				       a->class == DPDK_OWN
					       ? "the MAC address of a router, as 02:00:00:00:00:01"
					       : "only for a device whose address the kernel does not own");
	} else if (strcmp(key, "gw") == 0) {
		if (a->class != DPDK_OWN || parse_gw(a, value))
			return bad_key(err, key, value,
				       a->class == DPDK_OWN ? "the IP address of a router, as 10.0.0.254"
							    : "only for a device that the kernel does not use; on an "
							      "interface, the kernel's routes apply");
	} else if (strcmp(key, "neighbour") == 0) {
		if (a->class != DPDK_OWN || parse_static(a, value))
			return bad_key(err, key, value,
				       a->class == DPDK_OWN
					       ? "an IP and a MAC address, as 10.0.0.254/02:00:00:00:00:01; 8 at most"
					       : "only for a device that the kernel does not use; on an interface, use "
						 "`ip neigh append_devarg`");
	} else if (strcmp(key, "ip") == 0) {
		if (parse_ip(a, value))
			return bad_key(err, key, value, "an address and the length of its subnet, as 10.0.0.1/24");
	} else {
		return 0;
	}
	return 1;
}

static bool starts(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* DPDK's memif driver ignores all of its arguments if it does not recognise one of them. */
static bool is_memif_key(const char *key)
{
	static const char *const keys[] = {"id",  "role",      "bsize",     "rsize",  "socket",   "socket-abstract",
					   "mac", "owner-uid", "owner-gid", "secret", "zero-copy"};
	for (unsigned i = 0; i < sizeof keys / sizeof *keys; i++)
		if (strcmp(key, keys[i]) == 0)
			return true;
	return false;
}

/* Virtual devices that reach processes of this host only: by sockets, files, or nobody. Every other one may have an
 * interface or a card below it. */
static bool stays_on_host(const char *name)
{
	static const char *const names[] = {"net_memif", "net_null",        "net_ring",    "net_vhost",
					    "eth_vhost", "net_virtio_user", "virtio_user", "net_pcap"};
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
		if (starts(name, names[i]))
			return true;
	return false;
}

/* Does the key of such a device name an interface: of net_pcap in place of a file, of virtio-user the kernel's vhost in
 * place of a socket. */
static bool names_interface(const struct dpdk_args *a, const char *key, const char *value)
{
	if (starts(a->name, "net_pcap"))
		return strstr(key, "iface") != NULL;
	return strstr(a->name, "virtio_user") && strcmp(key, "path") == 0 && starts(value, "/dev/");
}

/* Reads those keys of the device that this driver needs, too. */
static int parse_device_key(struct dpdk_args *a, const char *key, const char *value, struct nic_err *err)
{
	a->beyond_host |= names_interface(a, key, value);
	if (a->class == DPDK_IFACE && strcmp(key, "iface") == 0)
		snprintf(a->iface, sizeof a->iface, "%s", value);
	if (a->class != DPDK_MEMIF)
		return 0;
	if (!is_memif_key(key))
		return bad_key(err, key, value,
			       "not a memif argument; these are: role, id, socket, socket-abstract, bsize, rsize, mac, "
			       "secret");
	if (strcmp(key, "role") == 0) {
		a->server = strcmp(value, "server") == 0;
		if (!a->server && strcmp(value, "client") != 0)
			return bad_key(err, key, value, "server or client");
	} else if (strcmp(key, "id") == 0) {
		if (number(value, 0, UINT32_MAX, &a->id))
			return bad_key(err, key, value, "a number, the same on both sides");
	} else if (strcmp(key, "bsize") == 0) {
		if (number(value, 256, 16384, &a->bsize))
			return bad_key(err, key, value, "256 to 16384 bytes");
	} else if (strcmp(key, "socket") == 0) {
		if (strlen(value) >= sizeof a->socket - 1)
			return bad_key(err, key, value, "the path of a unix socket, at most 106 bytes");
		snprintf(a->socket, sizeof a->socket, "%s", value);
	} else if (strcmp(key, "socket-abstract") == 0) {
		a->abstract = strcmp(value, "no") != 0;
	} else if (strcmp(key, "zero-copy") == 0 && strcmp(value, "no") != 0) {
		return bad_key(err, key, value, "not supported: mbufs would be freed only when the peer polls");
	}
	return 0;
}

static int append_devarg(struct dpdk_args *a, const char *key, const char *value, struct nic_err *err)
{
	size_t len = strlen(a->devargs);
	int n = snprintf(a->devargs + len, sizeof a->devargs - len, "%s%s=%s", len ? "," : "", key, value);
	return n < 0 || (size_t)n >= sizeof a->devargs - len
		       ? dpdk_error(err, -EINVAL, "dpdk: the arguments of %s take more than %zu bytes", a->name,
				    sizeof a->devargs - 1)
		       : 0;
}

static int parse_pair(struct dpdk_args *a, char *pair, struct nic_err *err)
{
	char *value = strchr(pair, '=');
	if (!value || value == pair)
		return dpdk_error(err, -EINVAL, "dpdk: \"%.60s\" after %s is not key=value", pair, a->name);
	*value++ = 0;
	int own = parse_driver_key(a, pair, value, err);
	if (own < 0)
		return own;
	if (own)
		return 0;
	int error = parse_device_key(a, pair, value, err);
	if (error)
		return error;
	/* dpdk_memif_prepare() adds these, for the device behind the proxy. */
	if (a->class == DPDK_MEMIF && (strcmp(pair, "socket") == 0 || strcmp(pair, "socket-abstract") == 0))
		return 0;
	return append_devarg(a, pair, value, err);
}

static void classify(struct dpdk_args *a)
{
	char pci[HOST_PCI_NAME_BYTES];
	a->pci = host_pci_name(a->name, pci);
	if (a->pci)
		snprintf(a->name, sizeof a->name, "%s", pci);
	a->bus = a->pci ? "pci" : starts(a->name, "net_") || starts(a->name, "eth_") ? "vdev" : NULL;
	a->class =
		starts(a->name, "net_memif") ? DPDK_MEMIF
		: starts(a->name, "net_af_packet") || starts(a->name, "net_af_xdp") || starts(a->name, "eth_af_packet")
			? DPDK_IFACE
			: DPDK_OWN;
	a->beyond_host = !stays_on_host(a->name);
	a->huge = -1;
	nic_dscp_init(&a->dscp);
	a->bsize = MEMIF_BUFFER_BYTES;
	if (a->class == DPDK_MEMIF) /* of a key that is there twice DPDK takes the last */
		snprintf(a->devargs, sizeof a->devargs, "bsize=%d,rsize=8", MEMIF_BUFFER_BYTES);
	/* memif's own defaults */
	a->abstract = true;
	snprintf(a->socket, sizeof a->socket, "/run/memif.sock");
}

static int check_routers(const struct dpdk_args *a, struct nic_err *err)
{
	char gw[HOST_IP_TEXT_BYTES];
	if (a->has_gw && a->has_router)
		return dpdk_error(err, -EINVAL, "dpdk: gw= and router= both name a router; leave one of them out");
	if (a->has_gw && (!a->has_ip || !dpdk_same_subnet(a->v6, a->ip, a->prefix, a->gw_v6, a->gw)))
		return dpdk_error(err, -EINVAL,
				  "dpdk: gw=%s is not in the subnet of ip=; a router outside of it cannot be resolved",
				  host_ip_text(a->gw_v6, a->gw, gw));
	return 0;
}

static int check(const struct dpdk_args *a, struct nic_err *err)
{
	if (a->class == DPDK_IFACE && !a->iface[0])
		return dpdk_error(err, -EINVAL, "dpdk: %s needs iface=, the kernel's name of an interface", a->name);
	if (a->class == DPDK_MEMIF && !strstr(a->devargs, "role="))
		return dpdk_error(err, -EINVAL, "dpdk: %s needs role=server on one side and role=client on the other",
				  a->name);
	return check_routers(a, err);
}

int dpdk_args_parse(const char *text, struct dpdk_args *out, struct nic_err *err)
{
	char copy[1024];
	memset(out, 0, sizeof *out);
	if (!text || !*text)
		return dpdk_error(err, -ENODEV, "dpdk: no device given: " FORM);
	if ((size_t)snprintf(copy, sizeof copy, "%s", text) >= sizeof copy)
		return dpdk_error(err, -EINVAL, "dpdk: device and arguments exceed %zu bytes", sizeof copy - 1);
	char *rest, *word = strtok_r(copy, ",", &rest);
	if (!word || text[0] == ',' || strlen(word) >= sizeof out->name || strpbrk(word, "= \t"))
		return dpdk_error(err, -EINVAL, "dpdk: \"%.60s\" is not a device; " FORM, text);
	snprintf(out->name, sizeof out->name, "%s", word);
	classify(out);
	int error = 0;
	while (!error && (word = strtok_r(NULL, ",", &rest)))
		error = parse_pair(out, word, err);
	return error ? error : check(out, err);
}
