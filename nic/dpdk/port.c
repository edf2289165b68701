/* SPDX-License-Identifier: BSD-3-Clause */
/** Port operations: opens and closes the device, and creates and reports destinations. Control thread; dpdk_stats():
 * any thread. */
#include "nic/dpdk/dpdk.h"

#include "base/text.h"
#include "farcall/version.h"
#include "nic/module.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define EVENT UINT64_MAX /* epoll tag */

static struct dpdk_port *port_of(const struct nic_port *p)
{
	return (struct dpdk_port *)(uintptr_t)p;
}

int dpdk_error(struct nic_err *err, int error, const char *format, ...)
{
	if (err) {
		va_list args;
		va_start(args, format);
		text_setv(err->text, sizeof err->text, format, args);
		va_end(args);
	}
	return error;
}

uint64_t dpdk_now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

/* ---- open and close ---- */

static int check(const struct nic_config *config, struct dpdk_args *args, struct nic_err *err)
{
	uint16_t id;
	if (config->queues == 0 || config->queues > DPDK_QUEUES_MAX)
		return dpdk_error(err, -EINVAL, "dpdk: 1 to %u queues, not %u", DPDK_QUEUES_MAX, config->queues);
	if (config->head_bytes)
		return dpdk_error(err, -EINVAL,
				  "dpdk: a datagram driver has no packet heads, but a head of %u bytes was requested",
				  config->head_bytes);
	int error = dpdk_args_parse(config->args, args, err);
	if (error)
		return error;
	bool is_device = args->bus || rte_eth_dev_get_port_by_name(args->name, &id) == 0;
	if (is_device && args->beyond_host && !config->beyond_host)
		return dpdk_error(err, -EPERM,
				  "dpdk: %s leads to other hosts: give the group a key (FAR_KEY_FILE) or set "
				  "security=none, or use "
				  "shm",
				  args->class == DPDK_IFACE ? args->iface : args->name);
	return 0;
}

static void dpdk_close(struct nic_port *port)
{
	struct dpdk_port *p = port_of(port);
	for (uint32_t i = 0; i < DPDK_DESTS_MAX; i++)
		free(p->dests[i]);
	if (p->args.class == DPDK_IFACE)
		dpdk_iface_detach_link(p);
	if (p->memif)
		dpdk_memif_close(p);
	else
		dpdk_device_close(p);
	for (unsigned i = 0; i < p->queues_n; i++)
		if (p->queues[i])
			dpdk_queue_close(p->queues[i]);
	dpdk_device_free(p);
	dpdk_card_close(p);
	if (p->args.class == DPDK_IFACE)
		dpdk_iface_close(p);
	if (p->nexthop_probe_socket >= 0)
		close(p->nexthop_probe_socket);
	if (p->event_fd >= 0)
		close(p->event_fd);
	if (p->fd >= 0)
		close(p->fd);
	free(p);
}

static int open_fds(struct dpdk_port *p, struct nic_err *err)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = EVENT};
	p->fd = epoll_create1(EPOLL_CLOEXEC);
	p->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (p->fd < 0 || p->event_fd < 0 || epoll_ctl(p->fd, EPOLL_CTL_ADD, p->event_fd, &ev) < 0)
		return dpdk_error(err, -errno, "dpdk: %s; see `ulimit -n`", strerror(errno));
	return 0;
}

static int open_device(struct dpdk_port *p, const struct nic_config *config, struct nic_err *err)
{
	int error = p->args.pci ? dpdk_card_open(p, err) : 0;
	if (!error)
		error = dpdk_eal_start(p->args.huge, dpdk_card_is_physical(p), err);
	if (!error && p->args.class == DPDK_IFACE)
		error = dpdk_iface_open(p, config, err);
	if (!error && p->args.class == DPDK_MEMIF)
		error = dpdk_memif_prepare(p, config, err);
	if (error)
		return error;
	p->head_len = (p->args.class == DPDK_IFACE ? p->ip.v6 : p->args.v6) ? FRAME_V6_BYTES : FRAME_V4_BYTES;
	unsigned tries = 0;
	do
		error = dpdk_device_open(p, err);
	while (error && dpdk_iface_retry(p, tries++, err));
	if (!error && p->args.class == DPDK_IFACE)
		error = dpdk_iface_attach_link(p, err);
	if (error)
		return error;
	dpdk_address_set(p);
	for (unsigned i = 0; !error && i < p->queues_n; i++)
		error = dpdk_queue_open(p, i, err);
	if (!error && p->args.class != DPDK_MEMIF)
		error = dpdk_neighbour_open(p, err);
	if (!error && p->forwards_rx)
		error = dpdk_queues_forward(p, err);
	if (!error && p->args.class == DPDK_IFACE)
		error = dpdk_iface_wake_on_sockets(p, err);
	if (error)
		return error;
	if (p->args.class == DPDK_MEMIF)
		return dpdk_memif_open(p, err);
	error = dpdk_device_start(p, err);
	/* Packets that the rules do not match reach their shard by forwarding. */
	if (!error && p->flows[0])
		error = dpdk_queues_forward(p, err);
	return error || p->args.class != DPDK_OWN ? error : dpdk_neighbour_join_groups(p, err);
}

static int dpdk_open(const struct nic_config *config, struct nic_port **out, struct nic_err *err)
{
	struct dpdk_args args;
	int error = check(config, &args, err);
	if (error)
		return error;
	struct dpdk_port *p = calloc(1, sizeof *p);
	if (!p)
		return dpdk_error(err, -ENOMEM, "dpdk: out of memory");
	p->base.ops = &dpdk_port_ops;
	p->args = args;
	p->queues_n = config->queues;
	p->fd = p->event_fd = p->xdp_object = p->xdp_link = p->claim = p->nexthop_probe_socket = -1;
	p->pending_last = &p->pending_first;
	atomic_store(&p->shut, DPDK_DOWN);
	error = open_fds(p, err);
	if (!error)
		error = open_device(p, config, err);
	if (error) {
		dpdk_close(&p->base);
		return error;
	}
	if (!p->memif)
		atomic_store(&p->shut, DPDK_OPEN);
	*out = &p->base;
	return 0;
}

/* Checks what can be checked without starting EAL, which cannot be undone. */
static int dpdk_probe(const struct nic_config *config, struct nic_err *err)
{
	struct dpdk_args args;
	int error = check(config, &args, err);
	if (!error && args.pci)
		return dpdk_card_probe(&args, err);
	return !error && args.class == DPDK_IFACE ? dpdk_iface_probe(&args, config, err) : error;
}

/* ---- properties ---- */

static void dpdk_caps(const struct nic_port *port, struct nic_caps *out)
{
	const struct dpdk_port *p = port_of(port);
	*out = (struct nic_caps){
		.zero_copy_rx = true,
		.wake = p->args.class == DPDK_OWN,
		.checksum = p->udp_sums,
		.poll_costs = p->args.class == DPDK_IFACE && dpdk_iface_poll_costs(p),
		.pair_rings = p->args.class == DPDK_MEMIF,
		.steering = p->steering,
		.ip = p->args.class == DPDK_IFACE ? NIC_IP_KERNEL : NIC_IP_DRIVER,
		.headroom_bytes = p->head_len,
		.body_align = p->rx_shift ? DPDK_BODY_ALIGN : 2,
		.body_bytes_max = p->body_max,
		.release_ns = 0, /* bodies are written in place */
		.slots = DPDK_TX_MAX,
		.rx_slots = p->shares_ring ? p->rx_ring / p->queues_n : p->rx_ring,
		.peers_max = DPDK_DESTS_MAX,
		.queues_max = p->args.class == DPDK_MEMIF ? DPDK_MEMIF_QUEUES_MAX : DPDK_QUEUES_MAX,
	};
}

/* Frames of memif are copied from process to process in memory. */
static bool dpdk_is_loopback(const struct nic_port *port, uint32_t peer)
{
	(void)peer;
	return port_of(port)->args.class == DPDK_MEMIF;
}

static void dpdk_address(const struct nic_port *port, struct nic_addr *out)
{
	memset(out, 0, sizeof *out);
	snprintf(out->driver, sizeof out->driver, "%s", dpdk_port_ops.name);
	out->len = sizeof port_of(port)->blob;
	memcpy(out->blob, &port_of(port)->blob, sizeof port_of(port)->blob);
}

static uint64_t count(_Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static void dpdk_stats(const struct nic_port *port, struct nic_stats *out)
{
	struct dpdk_port *p = port_of(port);
	struct rte_eth_stats device;
	memset(out, 0, sizeof *out);
	for (unsigned i = 0; i < p->queues_n; i++) {
		struct dpdk_counters *c = &p->queues[i]->counters;
		out->rx_packets += count(&c->rx_packets);
		out->tx_packets += count(&c->tx_packets);
		out->rx_bytes += count(&c->rx_bytes);
		out->tx_bytes += count(&c->tx_bytes);
		out->rx_unexpected += count(&c->unexpected);
		out->rx_malformed += count(&c->malformed);
		out->tx_dropped += count(&c->dropped);
		out->kicks += count(&c->kicks);
		out->rx_missed += count(&c->missed);
	}
	if (rte_eth_stats_get(p->ethdev, &device) == 0) {
		out->rx_missed += device.imissed + device.rx_nombuf;
		out->rx_malformed += device.ierrors;
		out->tx_dropped += device.oerrors;
	}
}

static struct nic_queue *dpdk_queue_at(struct nic_port *port, unsigned i)
{
	return i < port_of(port)->queues_n ? &port_of(port)->queues[i]->base : NULL;
}

/* ---- destinations ---- */

static struct dpdk_dest *dest_new(struct dpdk_port *p)
{
	for (uint32_t i = 0; i < DPDK_DESTS_MAX; i++) {
		uint32_t number = (p->dests_next + i) % DPDK_DESTS_MAX;
		if (p->dests[number])
			continue;
		struct dpdk_dest *dest = aligned_alloc(64, (sizeof *dest + 63) / 64 * 64);
		if (!dest)
			return NULL;
		memset(dest, 0, sizeof *dest);
		dest->number = number;
		p->dests_next = number + 1;
		p->dests[number] = dest;
		return dest;
	}
	return NULL;
}

/* The source port of path 0 is the queue's own; others make a peer with RSS choose another ring. */
static uint16_t source_port(const struct dpdk_port *p, unsigned queue, unsigned path)
{
	unsigned own = p->blob.port + queue;
	return (uint16_t)(path == 0 ? own : 1024 + (own + path) % (65536 - 1024));
}

static int dest_init(struct dpdk_port *p, struct dpdk_dest *dest, struct dpdk_queue *q, const struct dpdk_blob *to,
		     unsigned remote, struct nic_err *err)
{
	struct frame_addr from = q->me, at = dpdk_blob_frame_addr(to);
	unsigned remote_queue = NIC_ROUTE_QUEUE(remote);
	bool own = memcmp(to, &p->blob, sizeof *to) == 0;
	from.port = source_port(p, q->index, NIC_ROUTE_FLOW(remote));
	at.port = (uint16_t)(to->port + remote_queue);
	if (!p->memif) {
		int error = dpdk_neighbour_resolve(p, to, at.mac, &dest->nexthop, err);
		if (error)
			return error;
	}
	frame_path_init(&dest->path, &from, &at);
	dest->queue = q;
	atomic_init(&dest->body_max, to->body < p->body_max ? to->body : p->body_max);
	if (own) {
		dest->forward_ring = dpdk_queue_forward_ring(p->queues[remote_queue], q->index);
		dest->forward_wake = p->queues[remote_queue]->wake.event;
		return dest->forward_ring ? 0 : dpdk_error(err, -ENOMEM, "dpdk: out of memory");
	}
	dest->tx_queue = &q->tx_queues[q->tx_queues_n > 1 ? remote_queue : 0];
	if (p->memif)
		dpdk_memif_peer_kick(p, remote_queue, &dest->kick);
	else if (to->kick)
		host_kick_udp(&dest->kick, to->v6, to->ip, (uint16_t)(to->kick + remote_queue), p->iface.index);
	if (dest->kick.len && q->sender < 0)
		q->sender = host_kick_sender(&dest->kick);
	return 0;
}

static void unlink_pending(struct dpdk_port *p, struct dpdk_dest *dest)
{
	for (struct dpdk_dest **at = &p->pending_first; *at; at = &(*at)->next)
		if (*at == dest) {
			*at = dest->next;
			if (p->pending_last == &dest->next)
				p->pending_last = at;
			return;
		}
}

static void dpdk_drop(struct nic_port *port, uint32_t peer)
{
	struct dpdk_port *p = port_of(port);
	if (peer >= DPDK_DESTS_MAX || !p->dests[peer])
		return;
	unlink_pending(p, p->dests[peer]);
	if (p->dests[peer]->nexthop)
		nexthop_put(p->dests[peer]->nexthop);
	free(p->dests[peer]);
	p->dests[peer] = NULL;
}

static int dpdk_connect(struct nic_port *port, const struct nic_connect *c, struct nic_err *err)
{
	struct dpdk_port *p = port_of(port);
	struct dpdk_blob to;
	int error = dpdk_reach(port, c->addr, err);
	if (!error)
		error = dpdk_blob_read(c->addr, &to, err);
	if (error)
		return error;
	if (c->queue >= p->queues_n)
		return dpdk_error(err, -EINVAL, "dpdk: there is no queue %u; the port has %u", c->queue, p->queues_n);
	if (NIC_ROUTE_QUEUE(c->remote_queue) >= to.queues)
		return dpdk_error(err, -EINVAL, "dpdk: %s has no queue %u, only %u", to.name,
				  NIC_ROUTE_QUEUE(c->remote_queue), to.queues);
	if (to.v6 != p->blob.v6)
		return dpdk_error(err, -EINVAL, "dpdk: one side has an IPv4 address, the other IPv6");
	struct dpdk_dest *dest = dest_new(p);
	if (dest && (error = dest_init(p, dest, p->queues[c->queue], &to, c->remote_queue, err))) {
		dpdk_drop(port, dest->number);
		return error;
	}
	if (!dest)
		return dpdk_error(err, -ENOSPC, "dpdk: cannot create a destination: more than %u, or out of memory",
				  DPDK_DESTS_MAX);
	dest->user = c->user;
	*p->pending_last = dest;
	p->pending_last = &dest->next;
	eventfd_write(p->event_fd, 1);
	return 0;
}

/* Reports UP for resolved destinations, and FAILED for those with an unreachable router; others stay pending. */
static void report(struct dpdk_port *p, nic_event_fn *event, void *ctx)
{
	for (struct dpdk_dest **at = &p->pending_first, *dest; (dest = *at);) {
		struct nic_event ev = {
			.type = NIC_EVENT_UP, .peer = dest->number, .queue = dest->queue->index, .user = dest->user};
		struct nic_err why = {""};
		if (dest->nexthop && !nexthop_is_resolved(dest->nexthop)) {
			if (!nexthop_is_unreachable(dest->nexthop)) {
				at = &dest->next;
				continue;
			}
			ev = (struct nic_event){
				.type = NIC_EVENT_FAILED, .peer = NIC_PEER_NONE, .user = dest->user, .text = why.text};
			ev.error = dpdk_neighbour_unreachable(p, dest->nexthop, &why);
			dpdk_drop(&p->base, dest->number);
		} else {
			if (dest->nexthop)
				frame_set_mac(dest->path.bytes,
					      atomic_load_explicit(&dest->nexthop->mac, memory_order_relaxed));
			unlink_pending(p, dest);
		}
		event(ctx, &ev);
		at = &p->pending_first; /* the callback may have dropped destinations */
	}
}

static uint64_t dpdk_step(struct nic_port *port, uint64_t now, nic_event_fn *event, void *ctx)
{
	struct dpdk_port *p = port_of(port);
	eventfd_t ignored;
	eventfd_read(p->event_fd, &ignored);
	if (p->memif) {
		report(p, event, ctx);
		return dpdk_memif_step(p, now ? now : dpdk_now());
	}
	uint64_t again = dpdk_neighbour_step(p, now ? now : dpdk_now());
	report(p, event, ctx);
	return again;
}

static int dpdk_fd(const struct nic_port *port)
{
	return port_of(port)->fd;
}

const struct nic_port_ops dpdk_port_ops = {
	.name = "dpdk",
	.probe = dpdk_probe,
	.open = dpdk_open,
	.close = dpdk_close,
	.caps = dpdk_caps,
	.address = dpdk_address,
	.is_loopback = dpdk_is_loopback,
	.address_text = dpdk_address_text,
	.reach = dpdk_reach,
	.stats = dpdk_stats,
	.queue = dpdk_queue_at,
	.connect = dpdk_connect,
	.step = dpdk_step,
	.fd = dpdk_fd,
	.drop = dpdk_drop,
};

extern const struct nic_module far_nic_module;
const struct nic_module far_nic_module = {
	.abi = NIC_MODULE_ABI,
	.abi_bytes = NIC_MODULE_ABI_BYTES,
	.version = FAR_VERSION,
	.ops = &dpdk_port_ops,
};
