/* SPDX-License-Identifier: BSD-3-Clause */
/** The published address of a port, and the check whether a peer is reachable. Control thread; dpdk_address_text() and
 * dpdk_blob_read(): any thread. */
#include "nic/dpdk/dpdk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static uint64_t hash(uint64_t h, const void *bytes, size_t len)
{
	const uint8_t *b = bytes;
	for (size_t i = 0; i < len; i++)
		h = (h ^ b[i]) * UINT64_C(0x100000001b3);
	return h;
}

/* Identifies a memif socket by its directory and name, since each server creates the socket anew. An abstract socket
 * belongs to its network namespace. */
static uint64_t where_memif(const struct dpdk_args *a)
{
	struct stat st = {0};
	char dir[sizeof a->socket];
	snprintf(dir, sizeof dir, "%s", a->socket);
	char *slash = strrchr(dir, '/');
	const char *name = a->socket;
	if (!a->abstract && slash) {
		name = a->socket + (slash - dir) + 1;
		slash[slash == dir] = 0;
	}
	if (stat(a->abstract ? "/proc/self/ns/net" : slash ? dir : ".", &st) < 0)
		memset(&st, 0, sizeof st);
	uint64_t h = hash(UINT64_C(0xcbf29ce484222325), &st.st_dev, sizeof st.st_dev);
	h = hash(h, &st.st_ino, sizeof st.st_ino);
	return hash(h, name, strlen(name));
}

/* Derives an address in 169.254.0.0/16 from the MAC address, for devices that got no ip=. */
static void choose_ip(struct dpdk_blob *b, const struct dpdk_args *a)
{
	if (a->has_ip) {
		b->v6 = a->v6;
		b->prefix = (uint8_t)a->prefix;
		memcpy(b->ip, a->ip, sizeof b->ip);
		return;
	}
	uint64_t h = hash(UINT64_C(0xcbf29ce484222325), b->mac, sizeof b->mac);
	b->prefix = 16;
	b->ip[0] = 169;
	b->ip[1] = 254;
	b->ip[2] = (uint8_t)(1 + h % 254);
	b->ip[3] = (uint8_t)(1 + (h >> 16) % 254);
}

void dpdk_address_set(struct dpdk_port *p)
{
	struct dpdk_blob *b = &p->blob;
	struct rte_ether_addr mac = {{0}};
	rte_eth_macaddr_get(p->ethdev, &mac);
	b->version = DPDK_BLOB_VERSION;
	b->class = (uint8_t)p->args.class;
	b->server = p->args.server;
	b->queues = (uint8_t)p->queues_n;
	b->body = (uint32_t)p->body_max;
	memcpy(b->mac, mac.addr_bytes, sizeof b->mac);
	snprintf(b->name, sizeof b->name, "%.31s", p->args.class == DPDK_IFACE ? p->args.iface : p->args.name);
	if (p->args.class == DPDK_IFACE) {
		memcpy(b->mac, p->iface.mac, sizeof b->mac);
		memcpy(b->ip, p->ip.bytes, sizeof b->ip);
		b->v6 = p->ip.v6;
		b->prefix = p->ip.prefix;
		b->port = p->reserved_ports.first;
		b->kick = p->kicks.first;
		return;
	}
	choose_ip(b, &p->args);
	b->port = (uint16_t)(p->args.port ? p->args.port : DPDK_UDP_PORT);
	if (p->args.class == DPDK_MEMIF) {
		b->id = p->args.id;
		b->where = where_memif(&p->args);
	}
}

struct frame_addr dpdk_blob_frame_addr(const struct dpdk_blob *blob)
{
	struct frame_addr at = {.v6 = blob->v6, .port = blob->port};
	memcpy(at.mac, blob->mac, sizeof at.mac);
	memcpy(at.ip, blob->ip, sizeof at.ip);
	return at;
}

int dpdk_blob_read(const struct nic_addr *addr, struct dpdk_blob *out, struct nic_err *err)
{
	if (addr->len != sizeof *out)
		return dpdk_error(err, -EINVAL, "dpdk: malformed address of %u bytes", addr->len);
	memcpy(out, addr->blob, sizeof *out);
	if (out->version != DPDK_BLOB_VERSION)
		return dpdk_error(err, -EINVAL,
				  "dpdk: address version %u is not supported, only %u: run the same version of farcall "
				  "on all workers",
				  out->version, DPDK_BLOB_VERSION);
	if (out->class > DPDK_OWN || out->queues == 0 || out->queues > DPDK_QUEUES_MAX || out->v6 > 1 ||
	    out->prefix > (out->v6 ? 128 : 32) || out->port == 0 || out->port + out->queues > 65536 ||
	    out->body > FRAME_PAYLOAD_MAX || !memchr(out->name, 0, sizeof out->name))
		return dpdk_error(err, -EINVAL, "dpdk: malformed address");
	return 0;
}

void dpdk_address_text(const struct nic_addr *addr, char *out, size_t cap)
{
	struct dpdk_blob b;
	struct nic_err err;
	char ip[HOST_IP_TEXT_BYTES];
	if (dpdk_blob_read(addr, &b, &err))
		snprintf(out, cap, "dpdk (malformed)");
	else if (b.class == DPDK_MEMIF)
		snprintf(out, cap, "dpdk memif id %" PRIu32 " (%s)", b.id, b.server ? "server" : "client");
	else
		snprintf(out, cap, b.v6 ? "dpdk [%s]:%u" : "dpdk %s:%u", host_ip_text(b.v6, b.ip, ip), b.port);
}

bool dpdk_same_subnet(bool a_v6, const uint8_t *a, unsigned prefix, bool b_v6, const uint8_t *b)
{
	for (unsigned bit = 0; bit < prefix; bit += 8) {
		unsigned left = prefix - bit, mask = left >= 8 ? 0xff : 0xff & ~(0xffu >> left);
		if ((a[bit / 8] ^ b[bit / 8]) & mask)
			return false;
	}
	return a_v6 == b_v6;
}

static bool same_subnet(const struct dpdk_blob *a, const struct dpdk_blob *b)
{
	return dpdk_same_subnet(a->v6, a->ip, a->prefix, b->v6, b->ip);
}

bool dpdk_is_on_link(const struct dpdk_port *p, const struct dpdk_blob *to)
{
	return p->args.class == DPDK_MEMIF || same_subnet(&p->blob, to);
}

static int reach_memif(const struct dpdk_blob *us, const struct dpdk_blob *them, struct nic_err *err)
{
	if (us->where != them->where)
		return dpdk_error(err, -EHOSTUNREACH, "dpdk: the peer's memif uses another socket%s",
				  " (socket=; in containers, another directory, or another network namespace for "
				  "abstract ones)");
	if (us->id != them->id)
		return dpdk_error(err, -EHOSTUNREACH,
				  "dpdk: memif id %" PRIu32 " here, %" PRIu32 " there; see id=", us->id, them->id);
	if (us->server == them->server)
		return dpdk_error(err, -EHOSTUNREACH, "dpdk: both sides are memif's %s; one must have role=%s",
				  us->server ? "server" : "client", us->server ? "client" : "server");
	if (us->queues != them->queues)
		return dpdk_error(err, -EHOSTUNREACH,
				  "dpdk: memif needs the same number of shards on both sides: %u here, %u there",
				  us->queues, them->queues);
	return 0;
}

int dpdk_reach(const struct nic_port *port, const struct nic_addr *addr, struct nic_err *err)
{
	const struct dpdk_port *p = (const struct dpdk_port *)port;
	const struct dpdk_blob *us = &p->blob;
	struct dpdk_blob them;
	char ours[HOST_IP_TEXT_BYTES], theirs[HOST_IP_TEXT_BYTES];
	int error = dpdk_blob_read(addr, &them, err);
	if (error)
		return error;
	if (memcmp(us, &them, sizeof them) == 0)
		return dpdk_error(err, 0, "%s", p->flow_text);
	if ((us->class == DPDK_MEMIF) != (them.class == DPDK_MEMIF))
		return dpdk_error(err, -EHOSTUNREACH, "dpdk: %s is memif, %s is not", us->name, them.name);
	if (us->class == DPDK_MEMIF)
		return reach_memif(us, &them, err);
	host_ip_text(us->v6, us->ip, ours);
	host_ip_text(them.v6, them.ip, theirs);
	if (us->v6 != them.v6)
		return dpdk_error(err, -EHOSTUNREACH, "dpdk: %s and %s differ in their IP version; use udp", ours,
				  theirs);
	if (memcmp(us->mac, them.mac, sizeof us->mac) == 0)
		return dpdk_error(
			err, -EHOSTUNREACH,
			"dpdk: %s and %s are the same interface, which does not send to itself; use shm or udp", ours,
			theirs);
	error = dpdk_neighbour_remark(p, &them, err);
	if (!error)
		dpdk_link_remark(p, err); /* an unreachable router is explained by a link that is down */
	return error;
}
