/* SPDX-License-Identifier: BSD-3-Clause */
/** IP addresses of RDMA devices, found through rdma_cm: those of iWARP devices are not in a GID table. Control thread.
 */
#include "nic/verbs/rc.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sockaddr_storage verbs_rc_sockaddr(const uint8_t gid[16], uint16_t service, unsigned ifindex)
{
	struct sockaddr_storage out = {0};
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(service)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(service)};
	if (verbs_gid_is_v4(gid)) {
		memcpy(&v4.sin_addr, gid + 12, 4);
		memcpy(&out, &v4, sizeof v4);
	} else {
		memcpy(&v6.sin6_addr, gid, 16);
		v6.sin6_scope_id = verbs_gid_is_link_local(gid) ? ifindex : 0;
		memcpy(&out, &v6, sizeof v6);
	}
	return out;
}

static bool read_address(const struct sockaddr *at, uint8_t gid[16])
{
	if (at && at->sa_family == AF_INET) {
		memset(gid, 0, 16);
		gid[10] = gid[11] = 0xff;
		memcpy(gid + 12, &((const struct sockaddr_in *)(const void *)at)->sin_addr, 4);
		return true;
	}
	if (at && at->sa_family == AF_INET6) {
		memcpy(gid, &((const struct sockaddr_in6 *)(const void *)at)->sin6_addr, 16);
		return true;
	}
	return false;
}

bool verbs_gid_is_here(const uint8_t gid[16], unsigned ifindex)
{
	struct sockaddr_storage at = verbs_rc_sockaddr(gid, 0, ifindex);
	int fd = socket(at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool here = fd >= 0 &&
		    bind(fd, (struct sockaddr *)&at,
			 at.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)) == 0;
	if (fd >= 0)
		close(fd);
	return here;
}

/* The device port that an address belongs to, by binding to it; 0: another device, or none. */
static uint8_t port_of(const struct verbs_cm *cm, struct rdma_event_channel *channel, const char *device,
		       const uint8_t gid[16])
{
	struct sockaddr_storage at = verbs_rc_sockaddr(gid, 0, 0);
	struct rdma_cm_id *id;
	uint8_t port = 0;
	if (cm->rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
		return 0;
	if (!cm->rdma_bind_addr(id, (struct sockaddr *)&at) && id->verbs &&
	    strcmp(ibv_get_device_name(id->verbs->device), device) == 0)
		port = id->port_num;
	cm->rdma_destroy_id(id);
	return port;
}

static int collect(const struct verbs_cm *cm, struct rdma_event_channel *channel, const char *device,
		   const struct ifaddrs *list, struct ibv_gid_entry *out)
{
	unsigned n = 0;
	for (const struct ifaddrs *a = list; a && n < VERBS_GIDS_MAX; a = a->ifa_next) {
		struct ibv_gid_entry e = {
			.gid_index = n, .gid_type = IBV_GID_TYPE_ROCE_V2, .ndev_ifindex = if_nametoindex(a->ifa_name)};
		if (!(a->ifa_flags & IFF_UP) || !read_address(a->ifa_addr, e.gid.raw) ||
		    verbs_gid_is_link_local(e.gid.raw))
			continue;
		e.port_num = port_of(cm, channel, device, e.gid.raw);
		if (e.port_num)
			out[n++] = e;
	}
	return (int)n;
}

int verbs_rc_addresses(const char *device, struct ibv_gid_entry **out, struct nic_err *err)
{
	const struct verbs_cm *cm = verbs_cm_load(err);
	struct ifaddrs *list = NULL;
	if (!cm)
		return -ENOENT;
	struct ibv_gid_entry *table = calloc(VERBS_GIDS_MAX, sizeof *table);
	if (!table || getifaddrs(&list) < 0) {
		free(table);
		return verbs_error(err, -ENOMEM, "verbs: out of memory");
	}
	errno = 0;
	struct rdma_event_channel *channel = cm->rdma_create_event_channel();
	int n = channel ? collect(cm, channel, device, list, table) : verbs_cannot_cm(device, errno, err);
	if (channel)
		cm->rdma_destroy_event_channel(channel);
	freeifaddrs(list);
	if (n < 0)
		free(table);
	else
		*out = table;
	return n;
}
