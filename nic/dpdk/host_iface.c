/* SPDX-License-Identifier: BSD-3-Clause */
/** Properties of a kernel interface and its addresses. Control thread. */
#include "nic/dpdk/host.h"
#include "nic/dpdk/host_error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Flags of /proc/net/if_inet6, as in <linux/if_addr.h>. */
#define V6_DAD_FAILED 0x08u
#define V6_TENTATIVE  0x40u

const char *host_ip_text(bool v6, const uint8_t *ip, char out[HOST_IP_TEXT_BYTES])
{
	if (!inet_ntop(v6 ? AF_INET6 : AF_INET, ip, out, HOST_IP_TEXT_BYTES))
		strcpy(out, "?");
	return out;
}

static bool same_bits(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	if (memcmp(a, b, bits / 8) != 0)
		return false;
	uint8_t mask = (uint8_t)(0xff00u >> bits % 8);
	return bits % 8 == 0 || ((a[bits / 8] ^ b[bits / 8]) & mask) == 0;
}

static bool is_link_local(const struct host_ip *ip)
{
	return ip->v6 && ip->bytes[0] == 0xfe && (ip->bytes[1] & 0xc0) == 0x80;
}

/* Order of addresses: IPv4, IPv6, link-local. */
static unsigned rank(const struct host_ip *ip)
{
	return ip->v6 + is_link_local(ip);
}

static void ip_add(struct host_iface *iface, const struct host_ip *ip)
{
	if (iface->ips_n == HOST_IPS_MAX)
		return;
	unsigned i = iface->ips_n++;
	for (; i > 0 && rank(&iface->ips[i - 1]) > rank(ip); i--)
		iface->ips[i] = iface->ips[i - 1];
	iface->ips[i] = *ip;
}

static unsigned prefix_of(const uint8_t *mask, unsigned len)
{
	unsigned bits = 0;
	while (bits < len * 8 && (mask[bits / 8] & 0x80u >> bits % 8))
		bits++;
	return bits;
}

static bool ip_from(struct host_ip *ip, const struct sockaddr *addr, const struct sockaddr *mask)
{
	*ip = (struct host_ip){.usable = true};
	if (addr->sa_family == AF_INET) {
		memcpy(ip->bytes, &((const struct sockaddr_in *)(const void *)addr)->sin_addr, 4);
		const void *m = mask ? &((const struct sockaddr_in *)(const void *)mask)->sin_addr : NULL;
		ip->prefix = (uint8_t)(m ? prefix_of(m, 4) : 32);
	} else if (addr->sa_family == AF_INET6) {
		ip->v6 = 1;
		memcpy(ip->bytes, &((const struct sockaddr_in6 *)(const void *)addr)->sin6_addr, 16);
		const void *m = mask ? &((const struct sockaddr_in6 *)(const void *)mask)->sin6_addr : NULL;
		ip->prefix = (uint8_t)(m ? prefix_of(m, 16) : 128);
	} else {
		return false;
	}
	return true;
}

static int read_ips(struct host_iface *iface, struct nic_err *err)
{
	struct ifaddrs *all;
	if (getifaddrs(&all) < 0) {
		int error = errno;
		return host_error(err, -error, "dpdk: the addresses of interface %s cannot be read: %s", iface->name,
				  strerror(error));
	}
	for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
		struct host_ip ip;
		if (a->ifa_addr && strcmp(a->ifa_name, iface->name) == 0 && ip_from(&ip, a->ifa_addr, a->ifa_netmask))
			ip_add(iface, &ip);
	}
	freeifaddrs(all);
	return 0;
}

/* Marks IPv6 addresses under duplicate address detection. Without /proc all count as usable; bind() reports the others.
 */
static void mark_tentative(struct host_iface *iface)
{
	FILE *f = fopen("/proc/net/if_inet6", "re");
	char line[160];
	while (f && fgets(line, sizeof line, f)) {
		char hex[33], name[IFNAMSIZ];
		unsigned flags;
		uint8_t bytes[16];
		if (sscanf(line, "%32[0-9a-f] %*x %*x %*x %x %15s", hex, &flags, name) != 3 || strlen(hex) != 32 ||
		    strcmp(name, iface->name) != 0 || !(flags & (V6_TENTATIVE | V6_DAD_FAILED)))
			continue;
		for (unsigned i = 0; i < 16; i++) {
			char two[3] = {hex[2 * i], hex[2 * i + 1], 0};
			bytes[i] = (uint8_t)strtoul(two, NULL, 16);
		}
		for (unsigned i = 0; i < iface->ips_n; i++)
			if (iface->ips[i].v6 && memcmp(iface->ips[i].bytes, bytes, 16) == 0)
				iface->ips[i].usable = false;
	}
	if (f)
		fclose(f);
}

/* Reads driver name and queue counts; a driver that reports no channels counts as one queue. */
static void read_ethtool(int s, struct host_iface *iface)
{
	struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
	struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};
	struct ifreq r = {0};
	memcpy(r.ifr_name, iface->name, sizeof r.ifr_name);
	r.ifr_data = (void *)&info;
	if (ioctl(s, SIOCETHTOOL, &r) == 0)
		snprintf(iface->driver, sizeof iface->driver, "%.31s", info.driver);
	r.ifr_data = (void *)&channels;
	iface->queues = iface->rx_queues = 1;
	if (ioctl(s, SIOCETHTOOL, &r) < 0)
		return;
	unsigned apart = channels.rx_count < channels.tx_count ? channels.rx_count : channels.tx_count;
	iface->combined = channels.combined_count;
	if (channels.combined_count + channels.rx_count > 1)
		iface->rx_queues = channels.combined_count + channels.rx_count;
	if (channels.combined_count + apart > 1)
		iface->queues = channels.combined_count + apart;
}

static int read_link(int s, struct host_iface *iface, struct nic_err *err)
{
	struct ifreq r = {0};
	memcpy(r.ifr_name, iface->name, sizeof r.ifr_name);
	if (ioctl(s, SIOCGIFINDEX, &r) < 0) {
		if (errno == ENODEV)
			return host_error(err, -ENODEV,
					  "dpdk: there is no interface \"%s\" in this network namespace; `ip link` "
					  "lists the interfaces",
					  iface->name);
		return -errno;
	}
	iface->index = r.ifr_ifindex;
	if (ioctl(s, SIOCGIFHWADDR, &r) < 0)
		return -errno;
	if (r.ifr_hwaddr.sa_family != ARPHRD_ETHER)
		return host_error(err, -EPROTOTYPE,
				  "dpdk: interface %s carries no Ethernet frames; use shm within the host, or udp",
				  iface->name);
	memcpy(iface->mac, r.ifr_hwaddr.sa_data, 6);
	if (ioctl(s, SIOCGIFMTU, &r) < 0)
		return -errno;
	iface->mtu = (unsigned)r.ifr_mtu;
	if (ioctl(s, SIOCGIFFLAGS, &r) < 0)
		return -errno;
	iface->up = r.ifr_flags & IFF_UP;
	iface->running = r.ifr_flags & IFF_RUNNING;
	return 0;
}

int host_iface_read(const char *name, struct host_iface *out, struct nic_err *err)
{
	struct host_iface iface = {0};
	size_t len = strlen(name);
	if (len == 0 || len >= sizeof iface.name)
		return host_error(err, -ENODEV,
				  "dpdk: \"%.40s\" is not an interface name, which has 1 to %zu characters", name,
				  sizeof iface.name - 1);
	memcpy(iface.name, name, len);
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (s < 0)
		s = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (s < 0) {
		int error = errno;
		return host_error(err, -error, "dpdk: cannot open a socket to read interface %s: %s", name,
				  strerror(error));
	}
	if (err)
		err->text[0] = '\0';
	int error = read_link(s, &iface, err);
	if (error && err && !err->text[0])
		host_error(err, error, "dpdk: interface %s cannot be read: %s", name, strerror(-error));
	if (!error) {
		read_ethtool(s, &iface);
		error = read_ips(&iface, err);
	}
	close(s);
	if (error)
		return error;
	mark_tentative(&iface);
	*out = iface;
	return 0;
}

/** The parsed form of `listen`. */
struct wanted {
	bool any, v6;
	unsigned prefix;
	uint8_t bytes[16];
};

static int parse_listen(const char *listen, const char *name, struct wanted *out)
{
	char text[HOST_IP_TEXT_BYTES];
	*out = (struct wanted){.any = true};
	if (!listen || strcmp(listen, name) == 0)
		return 0;
	size_t len = strcspn(listen, "/");
	if (len >= sizeof text)
		return -EINVAL;
	memcpy(text, listen, len);
	text[len] = '\0';
	out->any = false;
	out->v6 = strchr(text, ':');
	if (inet_pton(out->v6 ? AF_INET6 : AF_INET, text, out->bytes) != 1)
		return -EINVAL;
	unsigned max = out->v6 ? 128 : 32;
	out->prefix = max;
	if (!listen[len])
		return 0;
	char *end;
	unsigned long prefix = strtoul(listen + len + 1, &end, 10);
	if (listen[len + 1] < '0' || listen[len + 1] > '9' || *end || prefix > max)
		return -EINVAL;
	out->prefix = (unsigned)prefix;
	return 0;
}

int host_iface_ip(const struct host_iface *iface, const char *listen, const struct host_ip **out, struct nic_err *err)
{
	struct wanted wanted;
	bool pending = false;
	if (parse_listen(listen, iface->name, &wanted))
		return host_error(err, -EINVAL,
				  "dpdk: listen=%.60s is neither the device's interface (%s) nor a subnet (10.0.0.0/8, "
				  "fd00::/8) nor an address",
				  listen, iface->name);
	if (!iface->up)
		return host_error(err, -ENETDOWN, "dpdk: interface %s is down; `ip link set dev %s up` brings it up",
				  iface->name, iface->name);
	for (unsigned i = 0; i < iface->ips_n; i++) {
		const struct host_ip *ip = &iface->ips[i];
		if (!wanted.any && (ip->v6 != wanted.v6 || !same_bits(ip->bytes, wanted.bytes, wanted.prefix)))
			continue;
		if (ip->usable) {
			*out = ip;
			return 0;
		}
		pending = true;
	}
	if (pending)
		return host_error(err, -EADDRNOTAVAIL,
				  "dpdk: the IPv6 address of interface %s is under duplicate address detection, or is "
				  "a duplicate; retry in some seconds, or add it with `nodad`",
				  iface->name);
	if (wanted.any)
		return host_error(err, -EADDRNOTAVAIL,
				  "dpdk: interface %s has no IP address; `ip addr add` gives it one, which the driver "
				  "shares with the kernel",
				  iface->name);
	return host_error(err, -EADDRNOTAVAIL,
			  "dpdk: interface %s has no address in listen=%.60s; `ip addr` lists them", iface->name,
			  listen);
}

bool host_iface_on_link(const struct host_iface *iface, bool v6, const uint8_t *ip)
{
	for (unsigned i = 0; i < iface->ips_n; i++)
		if (iface->ips[i].v6 == v6 && same_bits(iface->ips[i].bytes, ip, iface->ips[i].prefix))
			return true;
	return false;
}

bool host_iface_has_carrier(const char *name)
{
	struct ifreq request = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	snprintf(request.ifr_name, sizeof request.ifr_name, "%.15s", name);
	bool known = fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &request) == 0;
	if (fd >= 0)
		close(fd);
	return !known || (request.ifr_flags & IFF_RUNNING);
}
