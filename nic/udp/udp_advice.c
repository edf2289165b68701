/* SPDX-License-Identifier: BSD-3-Clause */
/** Reports limits of this machine's UDP sockets, with the setting that changes each. Any thread. */
#include "nic/udp/udp.h"
#include "nic/udp/udp_port.h"

#include <errno.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Enough for a worker of 1024 members over shm, and some for the application. */
#define DESCRIPTORS 4096u

static void print_buffers(int fd, char *out, size_t cap)
{
	static const struct {
		bool rcv;
		const char *what, *sysctl;
	} sides[] = {{true, "receive", "net.core.rmem_max"}, {false, "send", "net.core.wmem_max"}};
	for (unsigned i = 0; i < 2; i++) {
		unsigned got = udp_buffer_set(fd, sides[i].rcv, UDP_BUFFER_BYTES);
		udp_append(out, cap, "%s buffer: %u KiB", sides[i].what, got >> 10);
		if (got < UDP_BUFFER_BYTES)
			udp_append(out, cap, " of %u KiB wanted; bursts may be lost: `sysctl -w %s=%u`",
				   UDP_BUFFER_BYTES >> 10, sides[i].sysctl, UDP_BUFFER_BYTES);
		udp_append(out, cap, "\n");
	}
}

static void print_descriptors(char *out, size_t cap)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= DESCRIPTORS)
		udp_append(out, cap, "descriptors: enough\n");
	else
		udp_append(out, cap, "descriptors: %llu; large groups over shm need more: `ulimit -n %u`%s\n",
			   (unsigned long long)limit.rlim_cur, DESCRIPTORS,
			   limit.rlim_max < DESCRIPTORS ? " (the hard limit is lower: root must raise it)" : "");
}

static void print_offload(int fd, char *out, size_t cap)
{
	int on = 1, segment = 1000;
	bool gso = setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment) == 0;
	bool gro = setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof on) == 0;
	udp_append(out, cap, "segmentation offload: %s\n",
		   gso ? "yes" : "no (needs Linux 4.18); small packets cost more");
	udp_append(out, cap, "receive offload: %s\n", gro ? "yes" : "no (needs Linux 5.0); small packets cost more");
}

static void print_families(char *out, size_t cap)
{
	struct udp_ip six;
	struct sockaddr_in6 sa;
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool works = fd >= 0 && udp_ip_parse("::1", &six) &&
		     bind(fd, (struct sockaddr *)&sa, udp_ip_sockaddr(&six, 0, false, &sa)) == 0;
	if (fd >= 0)
		close(fd);
	udp_append(out, cap, "IPv6: %s\n",
		   works ? "yes" : "no (net.ipv6.conf.lo.disable_ipv6, or the kernel's); IPv4 alone is used");
}

size_t nic_udp_advice(char *out, size_t cap)
{
	if (!cap)
		return 0;
	out[0] = 0;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		udp_append(out, cap, "no socket: %s\n", strerror(errno));
		return strlen(out);
	}
	print_buffers(fd, out, cap);
	print_descriptors(out, cap);
	print_offload(fd, out, cap);
	print_families(out, cap);
	close(fd);
	return strlen(out);
}
