/* SPDX-License-Identifier: BSD-3-Clause */
/** The published address of a port, and the check whether a peer is reachable. Control thread; verbs_address_text() and
 * verbs_blob_read(): any thread. */
#include "nic/verbs/rc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROCE_PORT 4791 /* UDP port of RoCE v2 (annex A17 of the InfiniBand specification) */

static uint64_t hash(uint64_t h, const void *bytes, size_t len)
{
	const uint8_t *b = bytes;
	for (size_t i = 0; i < len; i++)
		h = (h ^ b[i]) * UINT64_C(0x100000001b3);
	return h;
}

/* Identifies the host's boot and network namespace, which loopback belongs to. */
static uint64_t where_loopback(void)
{
	char boot[64];
	struct stat st;
	uint64_t h = UINT64_C(0xcbf29ce484222325);
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, boot, sizeof boot);
	if (fd >= 0)
		close(fd);
	if (n > 0)
		h = hash(h, boot, (size_t)n);
	if (stat("/proc/thread-self/ns/net", &st) == 0)
		h = hash(h, &st.st_ino, sizeof st.st_ino);
	return h;
}

void verbs_address_set(struct verbs_port *p)
{
	struct verbs_blob *b = &p->blob;
	b->version = VERBS_BLOB_VERSION;
	b->ethernet = p->on.ethernet;
	b->gid_type = p->on.iwarp ? VERBS_GID_IWARP : (uint8_t)p->on.gid.gid_type;
	b->queues = (uint8_t)p->queues_n;
	b->port = p->on.port;
	b->lid = p->on.ethernet ? 0 : p->on.attr.lid;
	b->mtu = p->mtu;
	memcpy(b->gid, p->on.gid.gid.raw, sizeof b->gid);
	if (verbs_gid_is_loopback(b->gid))
		b->where = where_loopback();
	for (unsigned i = 0; i < p->queues_n; i++) {
		b->queue[i].qpn = p->queues[i]->rc_qpn;
		b->queue[i].qkey = p->queues[i]->qkey;
	}
	b->service = p->on.rc ? p->rc->service : 0;
	b->bulk = p->rc && !p->on.rc ? p->rc->service : 0;
	snprintf(b->name, sizeof b->name, "%.23s", p->on.device);
}

/* True for a unicast address. */
static bool is_an_address(const uint8_t gid[16])
{
	static const uint8_t zero[16];
	bool v4 = verbs_gid_is_v4(gid);
	if (v4 ? gid[12] >= 224 || memcmp(gid + 12, zero, 4) == 0 : gid[0] == 0xff)
		return false;
	return memcmp(gid, zero, sizeof zero) != 0;
}

static bool is_plausible(const struct verbs_blob *b)
{
	if (b->ethernet > 1 || b->queues == 0 || b->queues > VERBS_QUEUES_MAX || b->mtu < VERBS_MTU_MIN ||
	    b->mtu > 4096 || b->port == 0 || !memchr(b->name, 0, sizeof b->name))
		return false;
	bool iwarp = b->gid_type == VERBS_GID_IWARP;
	if (b->ethernet ? (b->gid_type != IBV_GID_TYPE_ROCE_V2 && !iwarp) || !is_an_address(b->gid)
			: b->lid == 0 || b->lid >= 0xc000) /* multicast */
		return false;
	if (b->service > UINT16_MAX || (b->service && !b->ethernet) || (iwarp && !b->service))
		return false;
	if (b->bulk > UINT16_MAX || b->zero || (b->bulk && (b->service || !b->ethernet)))
		return false;
	for (unsigned i = 0; i < b->queues; i++)
		if (b->queue[i].qpn < 2 || b->queue[i].qpn >= VERBS_QPN_MULTICAST ||
		    (b->queue[i].qkey & VERBS_QKEY_CONTROLLED))
			return false;
	return true;
}

int verbs_blob_read(const struct nic_addr *addr, struct verbs_blob *out, struct nic_err *err)
{
	if (addr->len != sizeof *out)
		return verbs_error(err, -EINVAL, "verbs: malformed address of %u bytes", addr->len);
	memcpy(out, addr->blob, sizeof *out);
	if (out->version != VERBS_BLOB_VERSION)
		return verbs_error(err, -EINVAL,
				   "verbs: address version %u is not supported, only %u: run the same version of "
				   "farcall on all workers",
				   out->version, VERBS_BLOB_VERSION);
	return is_plausible(out) ? 0 : verbs_error(err, -EINVAL, "verbs: malformed address");
}

void verbs_address_text(const struct nic_addr *addr, char *out, size_t cap)
{
	struct verbs_blob b;
	struct nic_err err;
	char text[VERBS_GID_TEXT_MAX];
	if (verbs_blob_read(addr, &b, &err))
		snprintf(out, cap, "verbs (malformed)");
	else if (b.ethernet)
		snprintf(out, cap, verbs_gid_is_v4(b.gid) ? "verbs %s:%u" : "verbs [%s]:%u",
			 verbs_gid_text(b.gid, text), b.service ? b.service : b.queue[0].qpn);
	else
		snprintf(out, cap, "verbs lid %u:%u", b.lid, b.queue[0].qpn);
}

/* Checks that the kernel has a route from our address to the peer's; sends nothing. */
static int has_route(const struct verbs_blob *us, const struct verbs_blob *them, unsigned ifindex)
{
	bool v4 = verbs_gid_is_v4(us->gid);
	struct sockaddr_in from4 = {.sin_family = AF_INET}, to4 = {.sin_family = AF_INET, .sin_port = htons(ROCE_PORT)};
	struct sockaddr_in6 from6 = {.sin6_family = AF_INET6},
			    to6 = {.sin6_family = AF_INET6, .sin6_port = htons(ROCE_PORT)};
	memcpy(&from4.sin_addr, us->gid + 12, 4);
	memcpy(&to4.sin_addr, them->gid + 12, 4);
	memcpy(&from6.sin6_addr, us->gid, 16);
	memcpy(&to6.sin6_addr, them->gid, 16);
	from6.sin6_scope_id = to6.sin6_scope_id = ifindex; /* evaluated for link-local addresses only */
	const struct sockaddr *from = v4 ? (void *)&from4 : (void *)&from6, *to = v4 ? (void *)&to4 : (void *)&to6;
	socklen_t len = v4 ? sizeof from4 : sizeof from6;
	int fd = socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	int error = bind(fd, from, len) < 0 || connect(fd, to, len) < 0 ? -errno : 0;
	close(fd);
	return error;
}

static int reach_ethernet(const struct verbs_port *p, const struct verbs_blob *us, const struct verbs_blob *them,
			  struct nic_err *err)
{
	char ours[VERBS_GID_TEXT_MAX], theirs[VERBS_GID_TEXT_MAX];
	verbs_gid_text(us->gid, ours);
	verbs_gid_text(them->gid, theirs);
	if (verbs_gid_is_v4(us->gid) != verbs_gid_is_v4(them->gid))
		return verbs_error(
			err, -EHOSTUNREACH,
			"verbs: %s here and %s there: one is IPv4, the other IPv6; see gid= and listen=", ours, theirs);
	if (verbs_gid_is_loopback(us->gid) != verbs_gid_is_loopback(them->gid) || us->where != them->where)
		return verbs_error(err, -EXDEV, "verbs: %s here and %s there: loopback does not reach another host",
				   ours, theirs);
	int error = has_route(us, them, p->on.gid.ndev_ifindex);
	if (error)
		return verbs_error(err, error, "verbs: no route from %s to %s: %s; see `ip route get %s`", ours, theirs,
				   strerror(-error), theirs);
	return 0;
}

int verbs_reach(const struct nic_port *port, const struct nic_addr *addr, struct nic_err *err)
{
	const struct verbs_port *p = (const struct verbs_port *)port;
	const struct verbs_blob *us = &p->blob;
	struct verbs_blob them;
	int error = verbs_blob_read(addr, &them, err);
	if (!error)
		error = verbs_down_error(p, err);
	if (error || memcmp(us, &them, sizeof them) == 0)
		return error;
	if (us->ethernet != them.ethernet)
		return verbs_error(err, -EHOSTUNREACH, "verbs: %s is %s, %s is not", p->on.device,
				   us->ethernet ? "RoCE" : "InfiniBand", them.name);
	if (us->gid_type != them.gid_type)
		return verbs_error(err, -EHOSTUNREACH, "verbs: %s is %s, %s is not", p->on.device,
				   p->on.iwarp ? "iWARP" : "RoCE", them.name);
	if (!us->service != !them.service)
		return verbs_error(err, -EHOSTUNREACH,
				   "verbs: %s here has %s, %s there has %s: give rc=1 on both sides, or on none",
				   p->on.device, us->service ? "connections" : "datagrams", them.name,
				   them.service ? "connections" : "datagrams");
	if (us->ethernet)
		return reach_ethernet(p, us, &them, err);
	/* Another subnet takes a router's LID, which only the subnet manager knows. */
	if (memcmp(us->gid, them.gid, 8) != 0)
		return verbs_error(err, -EHOSTUNREACH,
				   "verbs: lid %u is in another InfiniBand subnet, and routing between subnets is not "
				   "supported; use udp",
				   them.lid);
	return 0;
}
