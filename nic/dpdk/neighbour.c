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
#define FRAMES_A_STEP 8u

int dpdk_neighbour_open(struct dpdk_port *p, struct nic_err *err)
{
	for (unsigned i = 0; i < p->queues_n; i++) {
		struct aside *a = aligned_alloc(_Alignof(struct aside), sizeof *a);
		if (!a)
			return dpdk_error(err, -ENOMEM, "dpdk: out of memory");
		memset(a, 0, sizeof *a);
		p->queues[i]->aside = a;
		p->queues[i]->answers = p->args.class == DPDK_OWN;
	}
	return 0;
}

int dpdk_neighbour_listen(struct dpdk_port *p, struct nic_err *err)
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

/* Wakes the control thread once for all frames that arrive before it runs. Partner: the exchange in take(). */
static void tell(const struct dpdk_queue *q)
{
	if (!atomic_exchange_explicit(&q->aside->told, 1, memory_order_acq_rel))
		eventfd_write(q->port->event_fd, 1);
}

void dpdk_neighbour_note(struct dpdk_queue *q, const uint8_t *frame, unsigned len)
{
	struct aside_ring *in = &q->aside->in;
	struct aside_frame *to;
	if (!(q->answers && answer_wanted(&q->me, frame, len)) && !ask_wanted(&q->me, frame, len) &&
	    !narrow_wanted(&q->me, frame, len))
		return;
	if (!(to = aside_room(in)))
		return;
	to->len = len;
	memcpy(to->bytes, frame, len);
	aside_put(in);
	tell(q);
}

/* ---- control thread ---- */

static void hear(struct dpdk_port *p, const struct dpdk_queue *q, const struct aside_frame *f, uint64_t now)
{
	struct ask_news news;
	struct hop *h = ask_read(&q->me, f->bytes, f->len, &news) ? hops_find(&p->hops, news.ip) : NULL;
	if (h)
		hop_hear(h, news.has_mac ? news.mac : NULL, news.replaces, now);
}

/* Lowers body_max of all destinations at the reported address, as they use the same route. The report must be about a
 * packet of an existing path; otherwise it is forged. */
static void hear_narrow(struct dpdk_port *p, const struct dpdk_queue *q, const struct aside_frame *f)
{
	struct narrow_news news;
	unsigned i = 0;
	if (!narrow_read(&q->me, f->bytes, f->len, &news))
		return;
	while (i < DPDK_PLACES_MAX && !(p->places[i] && narrow_is_of(&news, &p->places[i]->path)))
		i++;
	for (unsigned k = 0; k < DPDK_PLACES_MAX && i < DPDK_PLACES_MAX; k++) {
		struct dpdk_place *place = p->places[k];
		if (place && narrow_concerns(&news, &place->path) &&
		    news.body_bytes_max < atomic_load_explicit(&place->body_max, memory_order_relaxed))
			atomic_store_explicit(&place->body_max, news.body_bytes_max, memory_order_relaxed);
	}
}

/* Processes the exception path of a queue. */
static void take(struct dpdk_port *p, struct dpdk_queue *q, uint64_t now)
{
	unsigned left = FRAMES_A_STEP;
	const struct aside_frame *asked;
	struct aside_frame *to;
	bool any = false;
	atomic_exchange_explicit(&q->aside->told, 0, memory_order_acq_rel);
	for (; left > 0 && (asked = aside_next(&q->aside->in)); left--) {
		hear(p, q, asked, now);
		hear_narrow(p, q, asked);
		if (q->answers && (to = aside_room(&q->aside->out)) &&
		    (to->len = answer_write(&q->me, asked->bytes, asked->len, to->bytes)) > 0) {
			aside_put(&q->aside->out);
			any = true;
		}
		aside_give(&q->aside->in);
	}
	if (any)
		host_wake_signal(&q->wake);
	if (aside_next(&q->aside->in))
		tell(q);
}

static void ask(struct dpdk_port *p, const struct hop *h, bool all)
{
	struct dpdk_queue *q = p->queues[0];
	struct aside_frame *to = aside_room(&q->aside->out);
	uint64_t known = atomic_load_explicit(&h->mac, memory_order_relaxed);
	uint8_t mac[6];
	if (!to)
		return; /* retried with the next solicitation */
	memcpy(mac, &known, sizeof mac);
	to->len = ask_write(&q->me, h->ip, all ? NULL : mac, to->bytes);
	aside_put(&q->aside->out);
	host_wake_signal(&q->wake);
}

/* Uses the kernel's neighbour table: always where only the kernel receives replies, else until an address is known. A
 * datagram to the router makes the kernel resolve it. */
static void ask_kernel(struct dpdk_port *p, struct hop *h, uint64_t now)
{
	uint8_t mac[6];
	bool v6 = p->blob.v6;
	host_kick_udp(&p->hop_to, v6, h->ip, DPDK_DISCARD_PORT, p->iface.index);
	if (p->hop_socket < 0)
		p->hop_socket = host_kick_sender(&p->hop_to);
	if (p->hop_socket >= 0)
		host_kick_send(p->hop_socket, &p->hop_to);
	if ((dpdk_is_xdp(&p->args) || !hop_is_known(h)) && host_neighbour_mac(p->iface.index, v6, h->ip, mac))
		hop_hear(h, mac, true, now);
}

static uint64_t packets_sent(const struct dpdk_port *p)
{
	uint64_t n = 0;
	for (unsigned i = 0; i < p->queues_n; i++)
		n += atomic_load_explicit(&p->queues[i]->counters.tx_packets, memory_order_relaxed);
	return n;
}

static void ask_hops(struct dpdk_port *p, uint64_t now)
{
	uint64_t sent = packets_sent(p);
	bool busy = sent != p->hops_sent;
	p->hops_sent = sent;
	for (unsigned i = 0; i < HOPS_MAX; i++) {
		struct hop *h = &p->hops.of[i];
		enum hop_question question = hop_ask(h, now, busy);
		if (question == HOP_ASK_NOBODY)
			continue;
		/* net_af_xdp sees no replies, so a unicast solicitation that fails would not be noticed: solicit all.
		 */
		ask(p, h, question == HOP_ASK_ALL || dpdk_is_xdp(&p->args));
		if (p->args.class == DPDK_IFACE)
			ask_kernel(p, h, now);
	}
}

uint64_t dpdk_neighbour_step(struct dpdk_port *p, uint64_t now)
{
	for (unsigned i = 0; i < p->queues_n; i++)
		take(p, p->queues[i], now);
	if (hops_deadline(&p->hops) <= now)
		ask_hops(p, now);
	return hops_deadline(&p->hops);
}

/* ---- routes ---- */

static const uint8_t *fixed_mac(const struct dpdk_args *a, bool v6, const uint8_t *ip)
{
	for (unsigned i = 0; i < a->statics_n; i++)
		if (a->statics[i].v6 == v6 && memcmp(a->statics[i].ip, ip, v6 ? 16 : 4) == 0)
			return a->statics[i].mac;
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

/* The MAC address for `to`. NULL: the router `hop` must be resolved, or *error is set. */
static const uint8_t *find_mac(const struct dpdk_port *p, const struct dpdk_blob *to, uint8_t hop[16], int *error,
			       struct nic_err *err)
{
	const struct dpdk_args *a = &p->args;
	const uint8_t *mac = fixed_mac(a, to->v6, to->ip);
	*error = 0;
	memset(hop, 0, 16);
	if (mac)
		return mac;
	if (dpdk_is_near(p, to))
		return to->mac;
	if (a->class == DPDK_IFACE)
		*error = host_route_hop(&p->iface, to->v6, to->ip, hop, err);
	else if (a->has_router)
		return a->router;
	else if (a->has_gw)
		memcpy(hop, a->gw, a->gw_v6 ? 16 : 4);
	else
		*error = no_router(p, to, err);
	return *error ? NULL : fixed_mac(a, to->v6, hop);
}

int dpdk_neighbour_way(struct dpdk_port *p, const struct dpdk_blob *to, uint8_t mac[6], struct hop **hop,
		       struct nic_err *err)
{
	uint8_t ip[16];
	int error;
	const uint8_t *known = find_mac(p, to, ip, &error, err);
	*hop = NULL;
	if (error)
		return error;
	memset(mac, 0, 6);
	if (known) {
		memcpy(mac, known, 6);
		return 0;
	}
	*hop = hops_take(&p->hops, ip);
	return *hop ? 0
		    : dpdk_error(err, -ENOSPC, "dpdk: the routes from %s use more than %u routers; use udp",
				 p->args.name, HOPS_MAX);
}

int dpdk_neighbour_silent(const struct dpdk_port *p, const struct hop *h, struct nic_err *err)
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
	const struct hop *h = known || error ? NULL : hops_find(&port->hops, ip);
	if (h && hop_is_silent(h))
		dpdk_neighbour_silent(p, h, err);
	return error;
}

/* ---- poller ---- */

void dpdk_neighbour_send(struct dpdk_queue *q)
{
	struct dpdk_lane *lane = &q->lanes[0];
	const struct aside_frame *from;
	void *got;
	/* Reserved packets keep their room. */
	while (lane->n + q->open < DPDK_TX_MAX && (from = aside_next(&q->aside->out)) &&
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
		aside_give(&q->aside->out);
		lane->m[lane->n++] = m;
		q->waiting++;
	}
}
