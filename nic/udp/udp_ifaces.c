/* SPDX-License-Identifier: BSD-3-Clause */
/** Reads the interfaces of this network namespace, and identifies host and namespace. Control thread. */
#include "base/hash.h"
#include "nic/udp/udp_addr.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* The source address towards `to`, from a connected socket that sends nothing; false: no route. */
static bool source_towards(const char *to, struct udp_ip *out)
{
	struct udp_ip ip;
	struct sockaddr_in6 sa;
	socklen_t len = sizeof sa;
	uint16_t port;
	if (!udp_ip_parse(to, &ip))
		return false;
	int fd = socket(ip.family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	socklen_t to_len = udp_ip_sockaddr(&ip, 9, false, &sa);
	bool found = connect(fd, (struct sockaddr *)&sa, to_len) == 0 &&
		     getsockname(fd, (struct sockaddr *)&sa, &len) == 0 &&
		     udp_ip_from_sockaddr((struct sockaddr *)&sa, out, &port);
	close(fd);
	return found;
}

static bool is_bridge(const char *name)
{
	char path[64];
	snprintf(path, sizeof path, "/sys/class/net/%.15s/bridge", name);
	return access(path, F_OK) == 0;
}

static uint8_t prefix_of(const struct sockaddr *mask, unsigned family)
{
	if (!mask)
		return 0;
	uint8_t bits = 0;
	size_t at =
		family == AF_INET ? offsetof(struct sockaddr_in, sin_addr) : offsetof(struct sockaddr_in6, sin6_addr);
	const uint8_t *bytes = (const uint8_t *)mask + at;
	for (unsigned i = 0; i < (family == AF_INET ? 32u : 128u) && bytes[i / 8] >> (7 - i % 8) & 1; i++)
		bits++;
	return bits;
}

static bool named_before(const struct udp_ifaces *ifaces, const char *name)
{
	for (unsigned i = 0; i < ifaces->n; i++)
		if (strcmp(ifaces->at[i].name, name) == 0)
			return true;
	return false;
}

static void add(struct udp_ifaces *out, const struct ifaddrs *ifa, bool without_address)
{
	struct udp_iface iface = {.up = (ifa->ifa_flags & IFF_UP) && (ifa->ifa_flags & IFF_RUNNING),
				  .loopback = ifa->ifa_flags & IFF_LOOPBACK};
	uint16_t port;
	bool address = ifa->ifa_addr && udp_ip_from_sockaddr(ifa->ifa_addr, &iface.ip, &port);
	if (out->n == UDP_IFACES_MAX || address == without_address ||
	    (without_address && named_before(out, ifa->ifa_name)))
		return;
	snprintf(iface.name, sizeof iface.name, "%s", ifa->ifa_name);
	iface.bridge = is_bridge(iface.name);
	if (address)
		iface.prefix = prefix_of(ifa->ifa_netmask, iface.ip.family);
	out->at[out->n++] = iface;
}

int udp_ifaces_read(struct udp_ifaces *out)
{
	struct ifaddrs *list;
	out->n = 0;
	if (getifaddrs(&list) < 0)
		return -errno;
	for (const struct ifaddrs *ifa = list; ifa; ifa = ifa->ifa_next)
		add(out, ifa, false);
	for (const struct ifaddrs *ifa = list; ifa; ifa = ifa->ifa_next)
		add(out, ifa, true);
	freeifaddrs(list);
	/* Addresses reserved for documentation: their route is the default route. */
	const char *const elsewhere[] = {"198.51.100.1", "2001:db8::1"};
	for (unsigned k = 0; k < 2; k++) {
		struct udp_ip ip;
		if (source_towards(elsewhere[k], &ip))
			for (unsigned i = 0; i < out->n; i++)
				if (udp_ip_same(&out->at[i].ip, &ip))
					out->at[i].preferred = true;
	}
	return 0;
}

const char *udp_iface_without_carrier(const struct udp_ifaces *ifaces, const struct udp_ip *ip, int fd)
{
	for (unsigned i = 0; i < ifaces->n; i++) {
		const struct udp_iface *at = &ifaces->at[i];
		struct ifreq request = {0};
		if (!at->ip.family || !udp_ip_same(&at->ip, ip))
			continue;
		memcpy(request.ifr_name, at->name, sizeof at->name);
		bool known = ioctl(fd, SIOCGIFFLAGS, &request) == 0;
		return known && (request.ifr_flags & IFF_UP) && !(request.ifr_flags & IFF_RUNNING) ? at->name : NULL;
	}
	return NULL;
}

uint64_t udp_host_id(void)
{
	char boot[64];
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, boot, sizeof boot);
	if (fd >= 0)
		close(fd);
	return n > 0 ? hash64(boot, (size_t)n) : 0;
}

uint64_t udp_netns_id(void)
{
	struct stat st;
	if (stat("/proc/thread-self/ns/net", &st) < 0)
		return 0;
	uint64_t words[2] = {(uint64_t)st.st_dev, (uint64_t)st.st_ino};
	return hash64(words, sizeof words);
}

void udp_ifaces_text(const struct udp_ifaces *ifaces, char *out, size_t cap)
{
	char text[UDP_IP_TEXT_MAX];
	const char *last = "";
	for (unsigned i = 0; i < ifaces->n; i++) {
		const struct udp_iface *iface = &ifaces->at[i];
		bool again = strcmp(last, iface->name) == 0;
		bool fits = udp_append(out, cap, "%s%s%s%s", i ? ", " : "", again ? "" : iface->name, again ? "" : " ",
				       iface->ip.family ? udp_ip_text(&iface->ip, text) : "without an address");
		if (fits && !iface->up && !again)
			fits = udp_append(out, cap, " (down)");
		if (!fits)
			return;
		last = iface->name;
	}
}
