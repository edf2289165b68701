/* SPDX-License-Identifier: BSD-3-Clause */
/** ARP, neighbour discovery and ICMP of a port. The poller passes frames to the control thread by the exception path;
 * the control thread replies to requests and pings, resolves routers (nexthop.h), and lowers the path MTU of
 * destinations. Where the kernel owns the address, it replies itself, and its neighbour table is used until the router
 * has replied to us. */
#include "nic/dpdk/dpdk.h"
#include "nic/dpdk/host_route.h"
#include "nic/dpdk/pmtu.h"
#include "nic/dpdk/resolver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

/* Frames of each queue per step, so that a flood cannot hold the control thread: a path MTU report is compared with all
 * destinations. */
#define FRAMES_PER_STEP 8u

int dpdk_neighbour_open(struct dpdk_port *p, struct nic_err *err)
{
	for (unsigned i = 0; i < p->queues_n; i++) {
		struct exception_path *a = aligned_alloc(_Alignof(struct exception_path), sizeof *a);
		if (!a)
			return dpdk_error(err, -ENOMEM, "dpdk: out of memory");
		memset(a, 0, sizeof *a);
		p->queues[i]->exception_path = a;
		p->queues[i]->responds = p->args.class == DPDK_OWN;
	}
	return 0;
}

int dpdk_neighbour_join_groups(struct dpdk_port *p, struct nic_err *err)
{
	const uint8_t *ip = p->blob.ip;
	/* Solicited-node multicast, and all nodes, for unsolicited advertisements. */
	struct rte_ether_addr groups[2] = {{{0x33, 0x33, 0xff, ip[13], ip[14], ip[15]}}, {{0x33, 0x33, [5] = 1}}};
	if (!p->blob.v6 || rte_eth_dev_set_mc_addr_list(p->ethdev, groups, 2) == 0)
		return 0;
	int error = rte_eth_allmulticast_enable(p->ethdev);
	return error && error != -ENOTSUP
		       ? dpdk_error(
				 err, error,
				 "dpdk: %s cannot join the multicast groups of IPv6 neighbour discovery: %s; use IPv4",
				 p->args.name, strerror(-error))
		       : 0;
}

/* Wakes the control thread once for all frames that arrive before it runs. Partner: the exchange in process_queue(). */
static void notify(const struct dpdk_queue *q)
{
	if (!atomic_exchange_explicit(&q->exception_path->notified, 1, memory_order_acq_rel))
		eventfd_write(q->port->event_fd, 1);
}

void dpdk_neighbour_rx(struct dpdk_queue *q, const uint8_t *frame, unsigned len)
{
	struct exception_ring *in = &q->exception_path->in;
	struct exception_frame *to;
	if (!(q->responds && responder_wants(&q->me, frame, len)) && !resolver_wants(&q->me, frame, len) &&
	    !pmtu_wants(&q->me, frame, len))
		return;
	if (!(to = exception_room(in)))
		return;
	to->len = len;
	memcpy(to->bytes, frame, len);
	exception_put(in);
	notify(q);
}

/* ---- control thread ---- */

static void confirm(struct dpdk_port *p, const struct dpdk_queue *q, const struct exception_frame *f, uint64_t now)
{
	struct resolver_update news;
	struct nexthop *h =
		resolver_read(&q->me, f->bytes, f->len, &news) ? nexthops_find(&p->nexthops, news.ip) : NULL;
	if (h)
		nexthop_confirm(h, news.has_mac ? news.mac : NULL, news.override, now);
}

/* Lowers body_max of all destinations at the reported address, as they use the same route. The report must be about a
 * packet of an existing path; otherwise it is forged. */
static void apply_pmtu(struct dpdk_port *p, const struct dpdk_queue *q, const struct exception_frame *f)
{
	struct pmtu_report news;
	unsigned i = 0;
	if (!pmtu_read(&q->me, f->bytes, f->len, &news))
		return;
	while (i < DPDK_DESTS_MAX && !(p->dests[i] && pmtu_matches_path(&news, &p->dests[i]->path)))
		i++;
	for (unsigned k = 0; k < DPDK_DESTS_MAX && i < DPDK_DESTS_MAX; k++) {
		struct dpdk_dest *dest = p->dests[k];
		if (dest && pmtu_matches_destination(&news, &dest->path) &&
		    news.body_bytes_max < atomic_load_explicit(&dest->body_max, memory_order_relaxed))
			atomic_store_explicit(&dest->body_max, news.body_bytes_max, memory_order_relaxed);
	}
}

/* Processes the exception path of a queue. */
static void process_queue(struct dpdk_port *p, struct dpdk_queue *q, uint64_t now)
{
	unsigned left = FRAMES_PER_STEP;
	const struct exception_frame *request;
	struct exception_frame *to;
	bool any = false;
	atomic_exchange_explicit(&q->exception_path->notified, 0, memory_order_acq_rel);
	for (; left > 0 && (request = exception_next(&q->exception_path->in)); left--) {
		confirm(p, q, request, now);
		apply_pmtu(p, q, request);
		if (q->responds && (to = exception_room(&q->exception_path->out)) &&
		    (to->len = responder_write(&q->me, request->bytes, request->len, to->bytes)) > 0) {
			exception_put(&q->exception_path->out);
			any = true;
		}
		exception_release(&q->exception_path->in);
	}
	if (any)
		host_wake_signal(&q->wake);
	if (exception_next(&q->exception_path->in))
		notify(q);
}

static void solicit(struct dpdk_port *p, const struct nexthop *h, bool all)
{
	struct dpdk_queue *q = p->queues[0];
	struct exception_frame *to = exception_room(&q->exception_path->out);
	uint64_t known = atomic_load_explicit(&h->mac, memory_order_relaxed);
	uint8_t mac[6];
	if (!to)
		return; /* retried with the next solicitation */
	memcpy(mac, &known, sizeof mac);
	to->len = resolver_write_request(&q->me, h->ip, all ? NULL : mac, to->bytes);
	exception_put(&q->exception_path->out);
	host_wake_signal(&q->wake);
}

/* Uses the kernel's neighbour table: always where only the kernel receives replies, else until an address is known. A
 * datagram to the router makes the kernel resolve it. */
static void solicit_by_kernel(struct dpdk_port *p, struct nexthop *h, uint64_t now)
{
	uint8_t mac[6];
	bool v6 = p->blob.v6;
	host_kick_udp(&p->nexthop_probe_to, v6, h->ip, DPDK_DISCARD_PORT, p->iface.index);
	if (p->nexthop_probe_socket < 0)
		p->nexthop_probe_socket = host_kick_sender(&p->nexthop_probe_to);
	if (p->nexthop_probe_socket >= 0)
		host_kick_send(p->nexthop_probe_socket, &p->nexthop_probe_to);
	if ((dpdk_is_xdp(&p->args) || !nexthop_is_resolved(h)) && host_neighbour_mac(p->iface.index, v6, h->ip, mac))
		nexthop_confirm(h, mac, true, now);
}

static uint64_t packets_sent(const struct dpdk_port *p)
{
	uint64_t n = 0;
	for (unsigned i = 0; i < p->queues_n; i++)
		n += atomic_load_explicit(&p->queues[i]->counters.tx_packets, memory_order_relaxed);
	return n;
}

static void solicit_due(struct dpdk_port *p, uint64_t now)
{
	uint64_t sent = packets_sent(p);
	bool busy = sent != p->nexthops_sent;
	p->nexthops_sent = sent;
	for (unsigned i = 0; i < NEXTHOPS_MAX; i++) {
		struct nexthop *h = &p->nexthops.of[i];
		enum nexthop_solicit solicit_to = nexthop_solicit_due(h, now, busy);
		if (solicit_to == NEXTHOP_SOLICIT_NONE)
			continue;
		/* net_af_xdp sees no replies, so a unicast solicitation that fails would not be noticed: solicit all.
		 */
		solicit(p, h, solicit_to == NEXTHOP_SOLICIT_GROUP || dpdk_is_xdp(&p->args));
		if (p->args.class == DPDK_IFACE)
			solicit_by_kernel(p, h, now);
	}
}

uint64_t dpdk_neighbour_step(struct dpdk_port *p, uint64_t now)
{
	for (unsigned i = 0; i < p->queues_n; i++)
		process_queue(p, p->queues[i], now);
	if (nexthops_deadline(&p->nexthops) <= now)
		solicit_due(p, now);
	return nexthops_deadline(&p->nexthops);
}

/* ---- routes ---- */

static const uint8_t *static_mac(const struct dpdk_args *a, bool v6, const uint8_t *ip)
{
	for (unsigned i = 0; i < a->static_neighbours_n; i++)
		if (a->static_neighbours[i].v6 == v6 && memcmp(a->static_neighbours[i].ip, ip, v6 ? 16 : 4) == 0)
			return a->static_neighbours[i].mac;
	return NULL;
}

static int no_router(const struct dpdk_port *p, const struct dpdk_blob *to, struct nic_err *err)
{
	char ours[HOST_IP_TEXT_BYTES], theirs[HOST_IP_TEXT_BYTES];
	return dpdk_error(
		err, -EHOSTUNREACH,
		"dpdk: %s is not in the subnet of %s/%u, and nothing is routed here unless gw= or router= names "
		"one; use udp",
		host_ip_text(to->v6, to->ip, theirs), host_ip_text(p->blob.v6, p->blob.ip, ours), p->blob.prefix);
}

/* The MAC address for `to`. NULL: the router `nexthop` must be resolved, or *error is set. */
static const uint8_t *find_mac(const struct dpdk_port *p, const struct dpdk_blob *to, uint8_t nexthop[16], int *error,
			       struct nic_err *err)
{
	const struct dpdk_args *a = &p->args;
	const uint8_t *mac = static_mac(a, to->v6, to->ip);
	*error = 0;
	memset(nexthop, 0, 16);
	if (mac)
		return mac;
	if (dpdk_is_on_link(p, to))
		return to->mac;
	if (a->class == DPDK_IFACE)
		*error = host_route_nexthop(&p->iface, to->v6, to->ip, nexthop, err);
	else if (a->has_router)
		return a->router;
	else if (a->has_gw)
		memcpy(nexthop, a->gw, a->gw_v6 ? 16 : 4);
	else
		*error = no_router(p, to, err);
	return *error ? NULL : static_mac(a, to->v6, nexthop);
}

int dpdk_neighbour_resolve(struct dpdk_port *p, const struct dpdk_blob *to, uint8_t mac[6], struct nexthop **nexthop,
			   struct nic_err *err)
{
	uint8_t ip[16];
	int error;
	const uint8_t *known = find_mac(p, to, ip, &error, err);
	*nexthop = NULL;
	if (error)
		return error;
	memset(mac, 0, 6);
	if (known) {
		memcpy(mac, known, 6);
		return 0;
	}
	*nexthop = nexthops_get(&p->nexthops, ip);
	return *nexthop ? 0
			: dpdk_error(err, -ENOSPC, "dpdk: the routes from %s use more than %u routers; use udp",
				     p->args.name, NEXTHOPS_MAX);
}

int dpdk_neighbour_unreachable(const struct dpdk_port *p, const struct nexthop *h, struct nic_err *err)
{
	char ip[HOST_IP_TEXT_BYTES], remedy[2 * HOST_IP_TEXT_BYTES + 80];
	host_ip_text(p->blob.v6, h->ip, ip);
	if (p->args.class == DPDK_IFACE)
		snprintf(remedy, sizeof remedy, "check `ip neigh show %s` and the route to it", ip);
	else
		snprintf(remedy, sizeof remedy, "check gw= and vlan=, or set its address by neighbour=%s/MAC", ip);
	return dpdk_error(err, -EHOSTUNREACH, "dpdk: router %s has not replied to %u solicitations (%s) on %s: %s", ip,
			  h->unanswered, p->blob.v6 ? "neighbour solicitation" : "ARP",
			  p->args.class == DPDK_IFACE ? p->args.iface : p->args.name, remedy);
}

int dpdk_neighbour_remark(const struct dpdk_port *p, const struct dpdk_blob *to, struct nic_err *err)
{
	struct dpdk_port *port = (struct dpdk_port *)(uintptr_t)p;
	uint8_t ip[16];
	int error;
	const uint8_t *known = find_mac(p, to, ip, &error, err);
	const struct nexthop *h = known || error ? NULL : nexthops_find(&port->nexthops, ip);
	if (h && nexthop_is_unreachable(h))
		dpdk_neighbour_unreachable(p, h, err);
	return error;
}

/* ---- poller ---- */

void dpdk_neighbour_send(struct dpdk_queue *q)
{
	struct dpdk_tx_queue *tx_queue = &q->tx_queues[0];
	const struct exception_frame *from;
	void *got;
	/* Reserved packets keep their room. */
	while (tx_queue->n + q->open < DPDK_TX_MAX && (from = exception_next(&q->exception_path->out)) &&
	       rte_mempool_generic_get(q->pool, &got, 1, NULL) == 0) {
		struct rte_mbuf *m = got;
		uint32_t tag_len = q->tag ? DPDK_TAG_BYTES : 0;
		m->ol_flags = 0;
		m->tx_offload = 0;
		m->data_off = RTE_PKTMBUF_HEADROOM;
		m->pkt_len = from->len + tag_len;
		m->data_len = (uint16_t)m->pkt_len;
		uint8_t *frame = rte_pktmbuf_mtod_offset(m, uint8_t *, tag_len);
		memcpy(frame, from->bytes, from->len);
		if (q->tag)
			dpdk_tag_put(frame, q->tag);
		exception_release(&q->exception_path->out);
		tx_queue->m[tx_queue->n++] = m;
		q->waiting++;
	}
}
