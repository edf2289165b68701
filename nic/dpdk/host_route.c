/* SPDX-License-Identifier: BSD-3-Clause */
/** Netlink queries of routes and neighbours. Control thread. */
#include "nic/dpdk/host_route.h"

#include "nic/dpdk/host_error.h"

#include <errno.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <unistd.h>

#define REPLY_BYTES 4096u

/* A request with one attribute, an address. */
struct request {
	struct nlmsghdr head;
	union {
		struct rtmsg route;
		struct ndmsg neighbour;
	} of;
	uint8_t more[64];
};

/* Messages of a netlink reply. */
struct reply {
	_Alignas(struct nlmsghdr) uint8_t bytes[REPLY_BYTES];
};

static void add_address(struct request *q, unsigned short type, bool v6, const uint8_t *ip)
{
	size_t len = v6 ? 16 : 4;
	struct rtattr attr = {.rta_len = (unsigned short)RTA_LENGTH(len), .rta_type = type};
	uint8_t *at = (uint8_t *)q + NLMSG_ALIGN(q->head.nlmsg_len);
	memcpy(at, &attr, sizeof attr);
	memcpy(at + RTA_LENGTH(0), ip, len);
	q->head.nlmsg_len = NLMSG_ALIGN(q->head.nlmsg_len) + (uint32_t)RTA_SPACE(len);
}

/* Sends the request and returns the reply if it has the wanted type; else NULL, with the reason in *error. The kernel
 * replies within the call. */
static const struct nlmsghdr *query(const struct request *q, struct reply *a, unsigned type, int *error)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
	ssize_t n = -1;
	*error = -EIO;
	if (fd < 0 || send(fd, q, q->head.nlmsg_len, 0) < 0 || (n = recv(fd, a->bytes, sizeof a->bytes, 0)) < 0)
		*error = -errno;
	if (fd >= 0)
		close(fd);
	const struct nlmsghdr *head = (const struct nlmsghdr *)(const void *)a->bytes;
	if (n < (ssize_t)sizeof *head || head->nlmsg_len < sizeof *head || head->nlmsg_len > (size_t)n)
		return NULL;
	if (head->nlmsg_type == NLMSG_ERROR && head->nlmsg_len >= NLMSG_LENGTH(sizeof(struct nlmsgerr))) {
		struct nlmsgerr status;
		memcpy(&status, NLMSG_DATA(head), sizeof status);
		*error = status.error ? status.error : -ENOENT;
	}
	return head->nlmsg_type == type ? head : NULL;
}

/* Finds an attribute with at least `len` bytes, behind `fixed` bytes of the message; NULL: none. */
static const void *find(const struct nlmsghdr *head, size_t fixed, unsigned type, size_t len)
{
	size_t at = NLMSG_HDRLEN + NLMSG_ALIGN(fixed);
	const uint8_t *bytes = (const uint8_t *)head;
	while (at + sizeof(struct rtattr) <= head->nlmsg_len) {
		struct rtattr attr;
		memcpy(&attr, bytes + at, sizeof attr);
		if (attr.rta_len < sizeof attr || attr.rta_len > head->nlmsg_len - at)
			return NULL;
		if (attr.rta_type == type && attr.rta_len >= RTA_LENGTH(len))
			return bytes + at + RTA_LENGTH(0);
		at += RTA_ALIGN(attr.rta_len);
	}
	return NULL;
}

int host_route_nexthop(const struct host_iface *iface, bool v6, const uint8_t *to, uint8_t nexthop[16],
		       struct nic_err *err)
{
	char text[HOST_IP_TEXT_BYTES];
	struct reply a;
	int error, out = 0;
	struct request q = {
		.head = {.nlmsg_len = NLMSG_LENGTH(sizeof q.of.route),
			 .nlmsg_type = RTM_GETROUTE,
			 .nlmsg_flags = NLM_F_REQUEST},
		.of.route = {.rtm_family = v6 ? AF_INET6 : AF_INET, .rtm_dst_len = v6 ? 128 : 32},
	};
	add_address(&q, RTA_DST, v6, to);
	const struct nlmsghdr *head = query(&q, &a, RTM_NEWROUTE, &error);
	if (!head)
		return host_error(err, -ENETUNREACH, "dpdk: the kernel has no route to %s: %s; see `ip route get %s`",
				  host_ip_text(v6, to, text), strerror(-error), text);
	const void *oif = find(head, sizeof(struct rtmsg), RTA_OIF, sizeof out);
	const void *via = find(head, sizeof(struct rtmsg), RTA_GATEWAY, v6 ? 16 : 4);
	if (oif)
		memcpy(&out, oif, sizeof out);
	if (out != iface->index)
		return host_error(
			err, -ENETUNREACH,
			"dpdk: the kernel's route to %s does not leave by %s; `ip route get %s` shows it, `ip "
			"route add` changes it",
			host_ip_text(v6, to, text), iface->name, text);
	if (find(head, sizeof(struct rtmsg), RTA_VIA, 1))
		return host_error(err, -ENETUNREACH,
				  "dpdk: the kernel's route to %s uses a router of the other IP version, which is not "
				  "supported; `ip route add %s via` a router of the same version",
				  host_ip_text(v6, to, text), text);
	memset(nexthop, 0, 16);
	memcpy(nexthop, via ? via : to, v6 ? 16 : 4);
	return 0;
}

bool host_neighbour_mac(int index, bool v6, const uint8_t *ip, uint8_t mac[6])
{
	struct reply a;
	struct ndmsg found;
	int error;
	struct request q = {
		.head = {.nlmsg_len = NLMSG_LENGTH(sizeof q.of.neighbour),
			 .nlmsg_type = RTM_GETNEIGH,
			 .nlmsg_flags = NLM_F_REQUEST},
		.of.neighbour = {.ndm_family = v6 ? AF_INET6 : AF_INET, .ndm_ifindex = index},
	};
	add_address(&q, NDA_DST, v6, ip);
	const struct nlmsghdr *head = query(&q, &a, RTM_NEWNEIGH, &error);
	if (!head || head->nlmsg_len < NLMSG_LENGTH(sizeof found))
		return false;
	memcpy(&found, NLMSG_DATA(head), sizeof found);
	const void *at = find(head, sizeof found, NDA_LLADDR, 6);
	if (!at || !(found.ndm_state & (NUD_REACHABLE | NUD_PERMANENT | NUD_STALE | NUD_DELAY | NUD_PROBE)))
		return false;
	memcpy(mac, at, 6);
	return true;
}
