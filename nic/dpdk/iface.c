/* SPDX-License-Identifier: BSD-3-Clause */
/** Ports on an interface that the kernel uses too (net_af_packet, net_af_xdp): they share its addresses, and use some
 * of its UDP ports. Sockets of the kernel reserve these ports, so that no other program gets them and the kernel does
 * not answer our traffic; the XDP filter takes only our packets from the kernel. Control thread. */
#include "nic/dpdk/dpdk.h"
#include "nic/dpdk/xdp/xdp.h"

#include <dirent.h>
#include <errno.h>
#include <linux/capability.h>
#include <linux/if_packet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Default frame size of net_af_packet, and the bytes of a frame that the kernel uses. */
#define PACKET_FRAME_BYTES 2048u
#define PACKET_FRAMES      512u /* frames of a ring: default, and minimum worth using */
#define PACKET_FRAMES_MIN  64u
#define PACKET_HEAD_BYTES  (TPACKET_ALIGN(TPACKET2_HDRLEN) + 16u)

/* Room of an mbuf that the kernel shares: it must lie within a page of 4 KiB, with DPDK's headroom and the pool's
 * header; the kernel reserves 256 bytes in front of the frame (XDP_PACKET_HEADROOM). */
#define XDP_ROOM_MAX (4096u - 64u - (unsigned)sizeof(struct rte_mbuf) - RTE_PKTMBUF_HEADROOM - 64u)
/* Minimum mbuf size that the kernel accepts. */
#define XDP_ROOM_MIN   2048u
#define XDP_HEAD_BYTES (256u + FRAME_MAC_BYTES + 4u)

/* Retries to take a queue that was just released. */
#define XDP_TRIES_MAX 100u
#define XDP_TRY_NS    20000000

/* The value of a device argument; NULL: absent. */
static const char *find_arg(const char *devargs, const char *key)
{
	size_t n = strlen(key);
	for (const char *at = devargs; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (strncmp(at, key, n) == 0 && at[n] == '=')
			return at + n + 1;
	}
	return NULL;
}

static int packet_probe(struct nic_err *err)
{
	int s = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (s >= 0) {
		close(s);
		return 0;
	}
	int error = errno;
	if (error == EPERM)
		return dpdk_error(err, -EPERM,
				  "dpdk: net_af_packet needs CAP_NET_RAW (root, or `setcap cap_net_raw+ep PROGRAM`; in "
				  "a user namespace, a network namespace of its own); udp needs no capability");
	return dpdk_error(err, -error, "dpdk: cannot create a packet socket: %s", strerror(error));
}

/* Collects everything that can be read without changes: rights, the interface, its address. */
static int inspect(const struct dpdk_args *args, const struct nic_config *config, struct host_iface *iface,
		   struct host_ip *ip, struct nic_err *err)
{
	const struct host_ip *chosen;
	int error = dpdk_is_xdp(args) ? xdp_probe(err) : packet_probe(err);
	if (!error)
		error = host_iface_read(args->iface, iface, err);
	if (!error)
		error = host_iface_ip(iface, config->listen, &chosen, err);
	if (!error)
		*ip = *chosen;
	return error;
}

int dpdk_iface_probe(const struct dpdk_args *args, const struct nic_config *config, struct nic_err *err)
{
	struct host_iface iface;
	struct host_ip ip;
	return inspect(args, config, &iface, &ip, err);
}

/* The value of a numeric device argument. */
static unsigned number_arg(const struct dpdk_args *args, const char *key, unsigned otherwise)
{
	const char *text = find_arg(args->devargs, key);
	return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

/* Appends to the device arguments. */
__attribute__((format(printf, 3, 4))) static int add_arg(struct dpdk_args *args, struct nic_err *err,
							 const char *format, ...)
{
	size_t len = strlen(args->devargs), room = sizeof args->devargs - len;
	va_list list;
	va_start(list, format);
	int n = vsnprintf(args->devargs + len, room, format, list);
	va_end(list);
	if (n < 0 || (size_t)n >= room)
		return dpdk_error(err, -E2BIG, "dpdk: the arguments of %s take more than %zu bytes", args->name,
				  sizeof args->devargs - 1);
	return 0;
}

/* The capabilities of root in a user namespace do not cover locked memory. */
static bool in_user_namespace(void)
{
	unsigned inside = 0, outside = 0, n = 0;
	FILE *f = fopen("/proc/self/uid_map", "re");
	bool whole = f && fscanf(f, "%u %u %u", &inside, &outside, &n) == 3 && n == UINT32_MAX;
	if (f)
		fclose(f);
	return !whole;
}

/* Bytes of memory that this process may lock. */
static uint64_t memlock_limit(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};
	struct rlimit limit;
	if (syscall(SYS_capget, &head, data) == 0 && data[0].effective & 1u << CAP_IPC_LOCK && !in_user_namespace())
		return UINT64_MAX;
	return getrlimit(RLIMIT_MEMLOCK, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

static int memlock_too_low(const struct dpdk_args *args, uint64_t bytes, struct nic_err *err)
{
	return dpdk_error(err, -ENOMEM,
			  "dpdk: %s locks %llu KiB of memory, but `ulimit -l` allows %llu: raise it (limits.conf, "
			  "LimitMEMLOCK=, docker --ulimit memlock), or give CAP_IPC_LOCK",
			  args->name, (unsigned long long)bytes >> 10, (unsigned long long)memlock_limit() >> 10);
}

/** Sizes the ring: the default number of frames, or as many as may be locked; each large enough for the interface.
 * Whole pages, each a block, since DPDK expects frames to follow each other without gaps. */
static int add_packet_args(struct dpdk_port *p, struct nic_err *err)
{
	struct dpdk_args *args = &p->args;
	unsigned page = (unsigned)sysconf(_SC_PAGESIZE), count = PACKET_FRAMES;
	unsigned frame = TPACKET_ALIGN(p->iface.mtu + FRAME_MAC_BYTES + 4 /* a VLAN tag */ + PACKET_HEAD_BYTES);
	int error = 0;
	if (p->queues_n > 1 && !find_arg(args->devargs, "qpairs"))
		error = add_arg(args, err, ",qpairs=%u", p->queues_n);
	if (error || find_arg(args->devargs, "framesz") || find_arg(args->devargs, "blocksz") ||
	    find_arg(args->devargs, "framecnt"))
		return error; /* the user has set the sizes */
	frame = frame > PACKET_FRAME_BYTES ? (frame + page - 1) / page * page : PACKET_FRAME_BYTES;
	uint64_t each = (uint64_t)2 * frame * number_arg(args, "qpairs", 1); /* receive and transmit */
	while (count > PACKET_FRAMES_MIN && each * count > memlock_limit())
		count /= 2;
	if (each * count > memlock_limit())
		return memlock_too_low(args, each * count, err);
	if (frame > PACKET_FRAME_BYTES)
		error = add_arg(args, err, ",framesz=%u,blocksz=%u", frame, frame);
	return error || count == PACKET_FRAMES ? error : add_arg(args, err, ",framecnt=%u", count);
}

/* True for interfaces without hardware: they have nothing to poll, and net_af_xdp's busy polling would make a system
 * call for each poll of an empty queue. */
static bool is_virtual(const struct host_iface *iface)
{
	static const char *const drivers[] = {"", "veth", "tun", "bridge", "dummy", "macvlan", "bonding"};
	for (unsigned i = 0; i < sizeof drivers / sizeof drivers[0]; i++)
		if (strcmp(iface->driver, drivers[i]) == 0)
			return true;
	return false;
}

static int add_xdp_args(struct dpdk_port *p, struct nic_err *err)
{
	struct dpdk_args *args = &p->args;
	struct frame_addr me = {.v6 = p->ip.v6, .port = p->reserved_ports.first};
	char path[64];
	unsigned start = number_arg(args, "start_queue", 0);
	int error = 0;
	/* All queues must be served: the card chooses one by its hash, and packets on a queue without our socket would
	 * be lost. DPDK serves only one queue of an interface whose queues either send or receive. */
	unsigned served = p->iface.combined ? p->iface.combined : 1;
	bool chosen = find_arg(args->devargs, "queue_count") || start;
	p->xdp_rings = number_arg(args, "queue_count", served > start ? served - start : 1);
	if (!chosen && p->iface.rx_queues > served)
		return dpdk_error(err, -ERANGE,
				  "dpdk: interface %s has %u receive queues, but net_af_xdp serves only %u: set one by "
				  "`ethtool -L %s rx 1`, or give queue_count=1 if nothing arrives at the others",
				  p->iface.name, p->iface.rx_queues, served, p->iface.name);
	if (p->xdp_rings < p->queues_n || start + p->xdp_rings > XDP_QUEUES_MAX)
		return dpdk_error(err, -ERANGE,
				  "dpdk: net_af_xdp serves %u queues of interface %s: each of the %u shards needs one, "
				  "and %u is the maximum; change it by `ethtool -L %s combined N`",
				  p->xdp_rings, p->iface.name, p->queues_n, XDP_QUEUES_MAX, p->iface.name);
	if (!find_arg(args->devargs, "queue_count"))
		error = add_arg(args, err, ",queue_count=%u", p->xdp_rings);
	if (!error && is_virtual(&p->iface) && !find_arg(args->devargs, "busy_budget"))
		error = add_arg(args, err, ",busy_budget=0");
	if (error || find_arg(args->devargs, "xdp_prog")) /* the user's program, attached and removed by the user */
		return error;
	error = xdp_remove_stale(p->iface.index, p->iface.name, err);
	if (error)
		return error;
	memcpy(me.mac, p->iface.mac, sizeof me.mac);
	memcpy(me.ip, p->ip.bytes, sizeof me.ip);
	p->xdp_object = xdp_object(&me, p->queues_n, path, sizeof path, err);
	return p->xdp_object < 0 ? p->xdp_object : add_arg(args, err, ",xdp_prog=%s", path);
}

/* Lists the sockets of this process of the device's kind, ascending; returns how many of the first `max` there are.
 * DPDK does not expose the sockets of its rings. */
static unsigned list_sockets(const struct dpdk_port *p, int *out, unsigned max)
{
	int domain = dpdk_is_xdp(&p->args) ? AF_XDP : AF_PACKET;
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;
	for (struct dirent *e = d ? readdir(d) : NULL; e && n < max; e = readdir(d)) {
		int fd = atoi(e->d_name), is = 0;
		socklen_t len = sizeof is;
		if (e->d_name[0] == '.' || getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &is, &len) < 0 || is != domain)
			continue;
		unsigned at = n++;
		for (; at > 0 && out[at - 1] > fd; at--)
			out[at] = out[at - 1];
		out[at] = fd;
	}
	if (d)
		closedir(d);
	return n;
}

static void record_socket(struct dpdk_port *p, int fd)
{
	struct stat st;
	if (fstat(fd, &st) < 0)
		return;
	p->sockets[p->sockets_n] = fd;
	p->inodes[p->sockets_n++] = st.st_ino;
}

/* Sets p->sockets to the sockets that appeared since dpdk_iface_open(). */
static void find_sockets(struct dpdk_port *p)
{
	int now[DPDK_SOCKETS_MAX];
	unsigned n = list_sockets(p, now, DPDK_SOCKETS_MAX), before = 0;
	p->sockets_n = 0;
	for (unsigned i = 0; i < n; i++) {
		while (before < p->earlier_sockets_n && p->earlier_sockets[before] < now[i])
			before++;
		if ((before == p->earlier_sockets_n || p->earlier_sockets[before] != now[i]) &&
		    p->sockets_n < XDP_QUEUES_MAX)
			record_socket(p, now[i]);
	}
}

/* Unmaps the rings of a socket, which keep it alive after close(). DPDK unmaps those of the first queue only. */
static void unmap_socket(uint64_t inode)
{
	char line[256];
	FILE *f = fopen("/proc/self/maps", "re");
	while (f && fgets(line, sizeof line, f)) {
		unsigned long from, to, of;
		char path[16];
		if (sscanf(line, "%lx-%lx %*s %*s %*s %lu %15s", &from, &to, &of, path) == 4 && of == inode &&
		    strncmp(path, "socket:[", 8) == 0)
			munmap((void *)from, to - from);
	}
	if (f)
		fclose(f);
}

/* Closes the sockets of net_af_xdp, which DPDK leaves open, so that the interface's queues become free. Call when the
 * device is closed. */
static void close_sockets(struct dpdk_port *p)
{
	struct stat st;
	for (unsigned i = 0; dpdk_is_xdp(&p->args) && i < p->sockets_n; i++)
		if (fstat(p->sockets[i], &st) == 0 && S_ISSOCK(st.st_mode) && st.st_ino == p->inodes[i]) {
			unmap_socket(p->inodes[i]);
			close(p->sockets[i]);
		}
	p->sockets_n = 0;
}

int dpdk_iface_wake_on_sockets(struct dpdk_port *p, struct nic_err *err)
{
	unsigned rings = dpdk_is_xdp(&p->args) ? p->xdp_rings : p->queues_n;
	find_sockets(p);
	if (p->queues_n == 1)
		return 0;
	for (unsigned q = 0; q < p->queues_n; q++) {
		for (unsigned i = 0; i < p->sockets_n; i++) {
			/* The sockets were created in the order of the rings. If others are among them, each socket
			 * wakes all queues. */
			if (p->sockets_n == rings && i % p->queues_n != q)
				continue;
			int error = host_wake_add(&p->queues[q]->wake, p->sockets[i]);
			if (error)
				return dpdk_error(err, error, "dpdk: the sockets of %s cannot be watched: %s",
						  p->args.name, strerror(-error));
		}
	}
	if (p->sockets_n == 0)
		return dpdk_error(err, -ENOENT,
				  "dpdk: cannot find the sockets of %s in /proc/self/fd, which wake the queues of "
				  "several shards; use one shard",
				  p->args.name);
	return 0;
}

int dpdk_iface_open(struct dpdk_port *p, const struct nic_config *config, struct nic_err *err)
{
	int error = inspect(&p->args, config, &p->iface, &p->ip, err);
	if (!error)
		error = host_reserve_ports(&p->reserved_ports, &p->iface, &p->ip, (uint16_t)p->args.port, p->queues_n,
					   err);
	if (!error)
		error = host_kick_open_udp(&p->kicks, &p->iface, &p->ip, p->queues_n, err);
	if (error)
		return error;
	p->earlier_sockets_n = list_sockets(p, p->earlier_sockets, DPDK_SOCKETS_MAX);
	return dpdk_is_xdp(&p->args) ? add_xdp_args(p, err) : add_packet_args(p, err);
}

uint16_t dpdk_iface_mtu(const struct dpdk_port *p)
{
	unsigned mtu = p->iface.mtu < UINT16_MAX ? p->iface.mtu : UINT16_MAX;
	if (p->args.mtu && p->args.mtu < mtu)
		mtu = p->args.mtu;
	if (dpdk_is_xdp(&p->args) && mtu > XDP_ROOM_MAX - XDP_HEAD_BYTES)
		mtu = XDP_ROOM_MAX - XDP_HEAD_BYTES;
	return (uint16_t)mtu;
}

unsigned dpdk_iface_room(const struct dpdk_port *p)
{
	unsigned frame = dpdk_iface_mtu(p) + XDP_HEAD_BYTES;
	if (dpdk_is_xdp(&p->args))
		return frame > XDP_ROOM_MIN ? frame : XDP_ROOM_MIN;
	return number_arg(&p->args, "framesz", PACKET_FRAME_BYTES);
}

int dpdk_iface_may_lock(const struct dpdk_port *p, uint64_t bytes, struct nic_err *err)
{
	uint64_t all = bytes * p->xdp_rings;
	return dpdk_is_xdp(&p->args) && all > memlock_limit() ? memlock_too_low(&p->args, all, err) : 0;
}

/* net_af_xdp busy-polls the kernel for so many packets (64 by default) each time it finds none. */
bool dpdk_iface_poll_costs(const struct dpdk_port *p)
{
	return dpdk_is_xdp(&p->args) && number_arg(&p->args, "busy_budget", 64) > 0;
}

int dpdk_iface_attach_link(struct dpdk_port *p, struct nic_err *err)
{
	if (p->xdp_object < 0)
		return 0;
	int link = xdp_attach_link(p->iface.index, p->iface.name, &p->xdp_program, err);
	if (link == -EOPNOTSUPP) /* old kernel: DPDK detaches the filter, or the next start does */
		return 0;
	p->xdp_link = link < 0 ? -1 : link;
	return link < 0 ? link : 0;
}

bool dpdk_iface_retry(struct dpdk_port *p, unsigned tries, const struct nic_err *err)
{
	struct nic_err ignored;
	/* The text is all that DPDK reports; its error code is always the same. */
	if (!dpdk_is_xdp(&p->args) || tries == XDP_TRIES_MAX || !err || !strstr(err->text, "xsk socket"))
		return false;
	if (dpdk_iface_attach_link(p, &ignored) == 0)
		dpdk_iface_detach_link(p);
	find_sockets(p);
	dpdk_device_close(p);
	dpdk_device_free(p);
	close_sockets(p);
	xdp_close_objects(p->xdp_program);
	p->xdp_program = 0;
	nanosleep(&(struct timespec){.tv_nsec = XDP_TRY_NS}, NULL);
	return true;
}

void dpdk_iface_detach_link(struct dpdk_port *p)
{
	xdp_detach_link(p->xdp_link);
	p->xdp_link = -1;
}

void dpdk_iface_close(struct dpdk_port *p)
{
	if (p->xdp_object >= 0)
		close(p->xdp_object);
	p->xdp_object = -1;
	close_sockets(p);
	xdp_close_objects(p->xdp_program);
	p->xdp_program = 0;
	host_sockets_close(&p->reserved_ports);
	host_sockets_close(&p->kicks);
}
