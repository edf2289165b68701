/* SPDX-License-Identifier: BSD-3-Clause */
/** Port operations: open, published address, and destinations. Control thread; udp_stats(): any thread. Nothing here
 * sends to a peer. */
#include "nic/udp/udp_port.h"

#include "base/random.h"

#include <errno.h>
#include <linux/sock_diag.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

static struct udp_port *port_of(const struct nic_port *p)
{
	return (struct udp_port *)p;
}

/* Allocates zeroed pages that become resident when touched; NULL: out of memory. */
static void *pages_new(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return at == MAP_FAILED ? NULL : at;
}

static void pages_free(void *at, size_t bytes)
{
	if (at)
		munmap(at, bytes);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* ---- open and close ---- */

static int config_read(const struct nic_config *config, struct udp_port *p, struct nic_err *err)
{
	if (config->queues == 0 || config->queues > UDP_QUEUES_MAX)
		return udp_error(err, -EINVAL, "udp: 1 to %u queues, not %u", UDP_QUEUES_MAX, config->queues);
	if (config->head_bytes)
		return udp_error(err, -EINVAL,
				 "udp: a datagram driver has no packet heads, but a head of %u bytes was requested",
				 config->head_bytes);
	int error = udp_args_parse(config->args, config->queues, &p->args, err);
	if (error)
		return error;
	error = udp_ifaces_read(&p->ifaces);
	if (error)
		return udp_error(err, error, "udp: the network interfaces cannot be read: %s", strerror(-error));
	return udp_listen_choose(&p->ifaces, p->args.listen[0] ? p->args.listen : config->listen, config->beyond_host,
				 &p->listen, err);
}

/* Identifies host and namespace; random if /proc is missing, so that no peer counts as local. */
static void identify(struct udp_port *p)
{
	p->host = udp_host_id();
	p->netns = udp_netns_id();
	if (!p->host)
		p->host = random_u64();
	if (!p->netns)
		p->netns = random_u64();
}

static void queue_close(struct udp_queue *q)
{
	udp_sockets_close(q);
	close_fd(&q->epoll_fd);
	close_fd(&q->event_fd);
	pages_free(q->arena, UDP_ARENA_BYTES);
	pages_free(q->rx, (size_t)UDP_READS * UDP_RX_BUFFER);
	pages_free(q->attached, UDP_DESTS_MAX * sizeof *q->attached);
	pages_free(q, sizeof *q);
}

static void udp_close(struct nic_port *port)
{
	struct udp_port *p = port_of(port);
	for (uint32_t i = 0; i < p->queues_n; i++)
		queue_close(p->queues[i]);
	close_fd(&p->pending_fd);
	pages_free(p->dests, UDP_DESTS_MAX * sizeof *p->dests);
	pages_free(p, sizeof *p);
}

static int no_descriptor(int error, struct nic_err *err)
{
	return udp_error(err, error, "udp: %s; see `ulimit -n` (each queue needs three descriptors and its sockets)",
			 strerror(-error));
}

static int queue_open(struct udp_port *p, struct nic_err *err)
{
	struct udp_queue *q = pages_new(sizeof *q);
	struct epoll_event event = {.events = EPOLLIN};
	if (!q)
		return udp_error(err, -ENOMEM, "udp: out of memory");
	q->base.ops = &udp_queue_ops;
	q->port = p;
	q->index = p->queues_n;
	q->epoll_fd = q->event_fd = q->direct.socket.fd = -1;
	q->direct.peer = q->direct.last = NIC_PEER_NONE;
	p->queues[p->queues_n++] = q;
	q->arena = pages_new(UDP_ARENA_BYTES);
	q->rx = pages_new((size_t)UDP_READS * UDP_RX_BUFFER);
	q->attached = pages_new(UDP_DESTS_MAX * sizeof *q->attached);
	if (!q->arena || !q->rx || !q->attached)
		return udp_error(err, -ENOMEM, "udp: out of memory; a queue needs 10 MiB of address space (ulimit -v)");
	udp_reads_prepare(q);
	q->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	q->epoll_fd = q->event_fd < 0 ? -1 : epoll_create1(EPOLL_CLOEXEC);
	if (q->epoll_fd < 0 || epoll_ctl(q->epoll_fd, EPOLL_CTL_ADD, q->event_fd, &event) < 0)
		return no_descriptor(-errno, err);
	int error = udp_sockets_open(p, q, err);
	if (!error && p->args.offload == UDP_OFFLOAD_ALWAYS)
		udp_batched_set(q, true);
	return error;
}

static int publish(struct udp_port *p, const char *advertise, struct nic_err *err)
{
	p->addr.host = p->host;
	p->addr.netns = p->netns;
	p->addr.queues = p->queues_n;
	for (uint32_t i = 0; i < p->queues_n; i++)
		p->addr.ports[i] = p->queues[i]->port_number;
	p->addr.ips_n = p->listen.n;
	memcpy(p->addr.ips, p->listen.ips, sizeof p->addr.ips);
	return advertise && *advertise ? udp_advertise(advertise, &p->addr, err) : 0;
}

static int udp_open(const struct nic_config *config, struct nic_port **out, struct nic_err *err)
{
	struct udp_port *p = pages_new(sizeof *p);
	if (!p)
		return udp_error(err, -ENOMEM, "udp: out of memory");
	p->base.ops = &nic_udp_port_ops;
	p->free_dest = p->first_pending = p->last_pending = NIC_PEER_NONE;
	p->pending_fd = -1;
	identify(p);
	int error = config_read(config, p, err);
	if (!error) {
		p->dests = pages_new(UDP_DESTS_MAX * sizeof *p->dests);
		p->pending_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		error = !p->dests ? udp_error(err, -ENOMEM, "udp: out of memory") : p->pending_fd < 0 ? -errno : 0;
		if (p->pending_fd < 0 && error)
			no_descriptor(error, err);
	}
	for (unsigned i = 0; !error && i < config->queues; i++)
		error = queue_open(p, err);
	if (!error)
		error = publish(p, config->advertise, err);
	if (error) {
		udp_close(&p->base);
		return error;
	}
	*out = &p->base;
	return 0;
}

static int udp_probe(const struct nic_config *config, struct nic_err *err)
{
	struct udp_port *p = pages_new(sizeof *p);
	if (!p)
		return udp_error(err, -ENOMEM, "udp: out of memory");
	int error = config_read(config, p, err);
	pages_free(p, sizeof *p);
	int fd = error ? -1 : socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (!error && fd < 0)
		error = udp_error(err, -errno, "udp: no socket: %s", strerror(errno));
	close_fd(&fd);
	return error;
}

/* ---- properties ---- */

static uint32_t body_max(const struct udp_args *args)
{
	uint32_t bytes = args->mtu - UDP_HEADERS_V4;
	return bytes < UDP_BYTES_MAX ? bytes : UDP_BYTES_MAX;
}

static void udp_caps(const struct nic_port *port, struct nic_caps *out)
{
	*out = (struct nic_caps){
		.wake = true,
		.poll_costs = true,
		.ip_fragments = true,
		.checksum = true,
		.steering = NIC_STEER_QUEUE,
		.ip = NIC_IP_KERNEL,
		.body_align = 1,
		.body_bytes_max = body_max(&port_of(port)->args),
		.slots = UDP_SLOTS,
		.peers_max = UDP_DESTS_MAX,
		.queues_max = UDP_QUEUES_MAX,
	};
}

static void udp_address(const struct nic_port *port, struct nic_addr *out)
{
	memset(out, 0, sizeof *out);
	snprintf(out->driver, sizeof out->driver, "%s", nic_udp_port_ops.name);
	out->len = udp_addr_encode(&port_of(port)->addr, out->blob);
}

static void udp_address_text(const struct nic_addr *addr, char *out, size_t cap)
{
	struct udp_addr peer;
	if (!cap)
		return;
	snprintf(out, cap, "udp ");
	if (udp_addr_decode(addr->blob, addr->len, &peer))
		udp_addr_text(&peer, out, cap);
	else
		udp_append(out, cap, "(malformed)");
}

static uint64_t socket_drops(int fd)
{
	uint32_t info[SK_MEMINFO_VARS] = {0};
	socklen_t len = sizeof info;
	return getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &len) < 0 ? 0 : info[SK_MEMINFO_DROPS];
}

static uint64_t counter(const _Atomic uint64_t *c)
{
	return atomic_load_explicit(c, memory_order_relaxed);
}

static void udp_stats(const struct nic_port *port, struct nic_stats *out)
{
	const struct udp_port *p = port_of(port);
	*out = (struct nic_stats){0};
	for (uint32_t i = 0; i < p->queues_n; i++) {
		const struct udp_queue *q = p->queues[i];
		out->rx_packets += counter(&q->counters.rx_packets);
		out->tx_packets += counter(&q->counters.tx_packets);
		out->rx_bytes += counter(&q->counters.rx_bytes);
		out->tx_bytes += counter(&q->counters.tx_bytes);
		out->rx_malformed += counter(&q->counters.rx_malformed);
		out->tx_dropped += counter(&q->counters.tx_dropped);
		for (uint32_t k = 0; k < q->sockets_n; k++)
			out->rx_missed += socket_drops(q->sockets[k].fd);
	}
}

static struct nic_queue *udp_queue_at(struct nic_port *port, unsigned i)
{
	return i < port_of(port)->queues_n ? &port_of(port)->queues[i]->base : NULL;
}

static int udp_fd(const struct nic_port *port)
{
	return port_of(port)->pending_fd;
}

/* ---- destinations ---- */

static int route_to(struct udp_port *p, const struct nic_addr *addr, struct udp_addr *peer, struct udp_route *route,
		    struct nic_err *err)
{
	const struct udp_self self = {
		.host = p->host, .netns = p->netns, .ifaces = &p->ifaces, .ips = p->listen.ips, .ips_n = p->listen.n};
	if (addr->len > NIC_ADDR_BYTES_MAX || !udp_addr_decode(addr->blob, addr->len, peer))
		return udp_error(err, -EINVAL, "udp: malformed address");
	return udp_route_choose(&self, peer, udp_kernel_route, p, route, err);
}

/* Writes a remark if a packet to this address was refused. The next packet may get through. */
static void remark(const struct udp_port *p, const struct udp_addr *peer, const struct udp_ip *ip, struct nic_err *err)
{
	char text[UDP_IP_TEXT_MAX];
	for (uint32_t i = 0; i < p->dests_n; i++) {
		struct udp_dest *dest = &p->dests[i];
		struct udp_ip to;
		uint16_t port;
		if (dest->state != UDP_DEST_UP ||
		    !udp_ip_from_sockaddr((const struct sockaddr *)&dest->to, &to, &port) || !udp_ip_same(&to, ip) ||
		    port != peer->ports[dest->remote_queue % peer->queues])
			continue;
		int error = atomic_load_explicit(&dest->error, memory_order_relaxed);
		if (error)
			udp_error(err, 0, "udp: a packet to %s port %u was refused: %s%s", udp_ip_text(ip, text), port,
				  strerror(error),
				  error == EPERM          ? "; a firewall of this host forbids it"
				  : error == ECONNREFUSED ? "; no process has that port"
							  : "");
	}
}

static bool udp_is_loopback(const struct nic_port *port, uint32_t peer)
{
	const struct udp_port *p = port_of(port);
	struct udp_ip ip;
	uint16_t number;
	return peer < p->dests_n && udp_ip_from_sockaddr((const struct sockaddr *)&p->dests[peer].to, &ip, &number) &&
	       udp_ip_loopback(&ip);
}

static int udp_reach(const struct nic_port *port, const struct nic_addr *addr, struct nic_err *err)
{
	struct udp_addr peer;
	struct udp_route route;
	int error = route_to(port_of(port), addr, &peer, &route, err);
	if (!error) {
		const struct udp_port *p = port_of(port);
		const char *iface = udp_iface_without_carrier(&p->ifaces, &route.from, p->queues[0]->sockets[0].fd);
		if (iface)
			udp_error(err, 0, "udp: the link of %s is down: see its cable and the peer's", iface);
		else
			remark(p, &peer, &route.ip, err);
	}
	return error;
}

/* NIC_PEER_NONE: all are in use. */
static uint32_t dest_new(struct udp_port *p)
{
	uint32_t i = p->free_dest;
	if (i == NIC_PEER_NONE)
		return p->dests_n < UDP_DESTS_MAX ? p->dests_n++ : NIC_PEER_NONE;
	p->free_dest = p->dests[i].next;
	return i;
}

static void dest_free(struct udp_port *p, uint32_t i)
{
	p->dests[i].state = UDP_DEST_FREE;
	p->dests[i].queue = NULL;
	p->dests[i].next = p->free_dest;
	p->free_dest = i;
}

static void dest_pending(struct udp_port *p, uint32_t i)
{
	uint64_t one = 1;
	p->dests[i].state = UDP_DEST_PENDING;
	p->dests[i].next = NIC_PEER_NONE;
	if (p->first_pending == NIC_PEER_NONE)
		p->first_pending = i;
	else
		p->dests[p->last_pending].next = i;
	p->last_pending = i;
	if (write(p->pending_fd, &one, sizeof one) < 0)
		return; /* EAGAIN: the descriptor is readable already */
}

static void dest_init(struct udp_port *p, struct udp_dest *dest, const struct udp_route *route, uint16_t port)
{
	bool six = route->ip.family == AF_INET6;
	uint32_t headers = six ? UDP_HEADERS_V6 : UDP_HEADERS_V4;
	uint32_t mtu = route->mtu < p->args.mtu ? route->mtu : p->args.mtu;
	dest->to_len = (uint8_t)udp_ip_sockaddr(&route->ip, port, p->queues[0]->sockets[route->socket].dual, &dest->to);
	dest->socket = (uint8_t)route->socket;
	dest->cut_max = six ? UDP_BYTES_MAX_V6 : UDP_BYTES_MAX;
	dest->bytes_max = mtu > headers + UDP_BYTES_MIN ? mtu - headers : UDP_BYTES_MIN;
	if (dest->bytes_max > dest->cut_max)
		dest->bytes_max = dest->cut_max;
	dest->probes = 0;
	dest->v4 = !six;
	dest->direct = udp_ip_loopback(&route->ip) && route->socket == 0 && p->queues[0]->direct.socket.fd >= 0;
	dest->segments = p->args.offload != UDP_OFFLOAD_NEVER;
	dest->attached_to = NULL;
	atomic_init(&dest->error, 0);
	atomic_init(&dest->port_unreachable, false);
}

static int udp_connect(struct nic_port *port, const struct nic_connect *c, struct nic_err *err)
{
	struct udp_port *p = port_of(port);
	struct udp_addr peer;
	struct udp_route route;
	if (c->queue >= p->queues_n)
		return udp_error(err, -EINVAL, "udp: there is no queue %u; the port has %u", c->queue, p->queues_n);
	if (c->remote_queue >= UDP_QUEUES_MAX)
		return udp_error(err, -EINVAL, "udp: queue %u is out of range [0, %u)", c->remote_queue,
				 UDP_QUEUES_MAX);
	int error = route_to(p, c->addr, &peer, &route, err);
	if (error)
		return error;
	uint32_t i = dest_new(p);
	if (i == NIC_PEER_NONE)
		return udp_error(err, -ENOSPC, "udp: more than %u peers", UDP_DESTS_MAX);
	struct udp_dest *dest = &p->dests[i];
	dest->no_such_queue = c->remote_queue >= peer.queues;
	dest_init(p, dest, &route, dest->no_such_queue ? peer.ports[0] : peer.ports[c->remote_queue]);
	dest->queue = p->queues[c->queue];
	dest->remote_queue = (uint16_t)c->remote_queue;
	dest->user = c->user;
	dest_pending(p, i);
	return 0;
}

static void report(struct udp_port *p, uint32_t i, nic_event_fn *event, void *ctx)
{
	struct udp_dest *dest = &p->dests[i];
	struct nic_event ev = {.user = dest->user, .queue = dest->queue->index, .peer = i, .type = NIC_EVENT_UP};
	char text[96];
	if (dest->no_such_queue) {
		snprintf(text, sizeof text, "udp: the peer has no queue %u", dest->remote_queue);
		ev = (struct nic_event){.type = NIC_EVENT_FAILED,
					.user = dest->user,
					.peer = NIC_PEER_NONE,
					.error = -ECHRNG,
					.text = text};
		dest_free(p, i);
	} else {
		dest->state = UDP_DEST_UP;
	}
	event(ctx, &ev);
}

/* Scans all destinations; refusals are rare. */
static void report_refusals(struct udp_port *p, nic_event_fn *event, void *ctx)
{
	if (!atomic_exchange_explicit(&p->refusals, false, memory_order_acq_rel))
		return;
	for (uint32_t i = 0; i < p->dests_n; i++) {
		struct udp_dest *dest = &p->dests[i];
		if (!atomic_exchange_explicit(&dest->port_unreachable, false, memory_order_acq_rel) ||
		    dest->state != UDP_DEST_UP)
			continue;
		struct nic_event ev = {
			.type = NIC_EVENT_UNREACHABLE, .peer = i, .queue = dest->queue->index, .user = dest->user};
		event(ctx, &ev);
	}
}

static uint64_t udp_step(struct nic_port *port, uint64_t now, nic_event_fn *event, void *ctx)
{
	struct udp_port *p = port_of(port);
	uint64_t n;
	(void)now;
	bool woken = p->first_pending != NIC_PEER_NONE || atomic_load_explicit(&p->refusals, memory_order_acquire);
	if (woken && read(p->pending_fd, &n, sizeof n) < 0)
		n = 0;
	report_refusals(p, event, ctx);
	while (p->first_pending != NIC_PEER_NONE) {
		uint32_t i = p->first_pending;
		p->first_pending = p->dests[i].next;
		if (p->dests[i].state == UDP_DEST_DROPPED)
			dest_free(p, i);
		else
			report(p, i, event, ctx);
	}
	return UINT64_MAX;
}

static void udp_drop(struct nic_port *port, uint32_t peer)
{
	struct udp_port *p = port_of(port);
	if (peer >= p->dests_n)
		return;
	if (p->dests[peer].state == UDP_DEST_PENDING)
		p->dests[peer].state = UDP_DEST_DROPPED;
	else if (p->dests[peer].state == UDP_DEST_UP)
		dest_free(p, peer);
}

const struct nic_port_ops nic_udp_port_ops = {
	.name = "udp",
	.probe = udp_probe,
	.open = udp_open,
	.close = udp_close,
	.caps = udp_caps,
	.address = udp_address,
	.address_text = udp_address_text,
	.reach = udp_reach,
	.is_loopback = udp_is_loopback,
	.stats = udp_stats,
	.queue = udp_queue_at,
	.connect = udp_connect,
	.step = udp_step,
	.fd = udp_fd,
	.drop = udp_drop,
};
