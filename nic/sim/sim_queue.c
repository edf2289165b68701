/* SPDX-License-Identifier: BSD-3-Clause */
/** Queue operations of the simulated NIC: receive ring, transmit ring (a lane of the host's uplink), wake-ups. The
 * thread that runs the world. */
#include "nic/sim/sim_port.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- descriptors ---- */

void sim_fd_poke(int fd)
{
	uint64_t one = 1;
	if (fd >= 0 && write(fd, &one, sizeof one) < 0)
		return; /* EAGAIN: it is readable already */
}

void sim_fd_clear(int fd)
{
	uint64_t n;
	if (fd >= 0 && read(fd, &n, sizeof n) < 0)
		return; /* EAGAIN: it was not readable */
}

int sim_fd_make(int *fd, bool readable)
{
	if (*fd < 0) {
		*fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		if (readable)
			sim_fd_poke(*fd);
	}
	return *fd;
}

static void rouse(struct sim_queue *q)
{
	q->woken = true;
	sim_fd_poke(q->wake_fd);
}

/* ---- address handles ---- */

static struct sim_dest *dest_of(const struct sim_queue *q, uint32_t peer)
{
	struct sim_dest *dest = peer < q->port->dests_n ? &q->port->dests[peer] : NULL;
	return dest && dest->state == SIM_DEST_UP && dest->queue == q->index ? dest : NULL;
}

static struct sim_dest *attached(const struct sim_queue *q, uint32_t peer)
{
	struct sim_dest *dest = dest_of(q, peer);
	return dest && dest->attached ? dest : NULL;
}

static int sim_attach(struct nic_queue *nq, uint32_t peer)
{
	struct sim_dest *dest = dest_of(sim_queue_of(nq), peer);
	if (!dest || dest->attached)
		return -EINVAL;
	dest->attached = true;
	return 0;
}

static void sim_detach(struct nic_queue *nq, uint32_t peer)
{
	struct sim_dest *dest = dest_of(sim_queue_of(nq), peer);
	if (dest)
		dest->attached = false;
}

/* ---- receiving ---- */

static uint64_t flow_of(const struct sim_packet *p, uint32_t route)
{
	uint64_t ends = (uint64_t)p->from->number << 32 | p->to->number;
	return sim_mix(sim_mix(ends + 1) ^ ((uint64_t)p->from_queue << 40 | (uint64_t)p->rail << 32 | route));
}

static struct sim_queue *arrival_queue(const struct sim_packet *p)
{
	struct sim_port *port = p->to->rails[p->rail].port;
	if (!port || port->dead)
		return NULL;
	uint32_t i = port->nic.hash ? (uint32_t)(p->flow >> 24) % port->queues_n : p->to_queue;
	return i < port->queues_n ? port->queues[i] : NULL;
}

/* Bodies have the least alignment that this NIC promises. */
static void misalign(struct sim_packet *p, uint32_t align)
{
	uint32_t by = align < 64 ? align : 0;
	if (p->len)
		memmove(p->room + by, p->body, p->len);
	p->body = p->room + by;
}

static void into_ring(struct sim_queue *q, struct sim_packet *p)
{
	struct sim *sim = p->sim;
	struct sim_host *host = p->to;
	p->to_queue = (uint16_t)q->index;
	misalign(p, q->port->nic.body_align);
	sim->stats.arrived++;
	sim_packet_landed(p);
	host->stats.rx_packets++;
	host->stats.rx_bytes += p->len;
	q->port->stats.rx_packets++;
	q->port->stats.rx_bytes += p->len;
	sim_trace(p, SIM_ARRIVE, SIM_DROP_N, NULL, 0);
	if (sim->pcap && sim->pcap_arrived)
		sim_pcap_packet(sim, p);
	p->wire = 0;
	sim_fifo_put(&q->rx, p);
	q->rx_used++;
	if (q->armed && !q->port->nic.kick)
		rouse(q);
	sim_host_wake(host);
}

static void kicked(struct sim_queue *q, struct sim_packet *p)
{
	p->sim->stats.arrived++;
	sim_packet_landed(p);
	sim_trace(p, SIM_KICK, SIM_DROP_N, NULL, 0);
	rouse(q);
	sim_host_wake(p->to);
	sim_packet_free(p);
}

void sim_nic_receive(struct sim_packet *p)
{
	struct sim_host *host = p->to;
	struct sim_queue *q = arrival_queue(p);
	if (host->state == SIM_CRASHED) {
		sim_packet_drop(p, SIM_DROP_CRASHED, NULL, host);
	} else if (!q) {
		if (host->rails[p->rail].port)
			host->rails[p->rail].port->stats.rx_unexpected++;
		sim_packet_drop(p, SIM_DROP_UNEXPECTED, NULL, host);
	} else if (p->kick) {
		kicked(q, p);
	} else if (q->rx_used >= q->port->nic.rx_slots) {
		q->port->stats.rx_missed++;
		sim_packet_drop(p, SIM_DROP_RING, NULL, host);
	} else {
		into_ring(q, p);
	}
}

static void give_back(struct sim_queue *q)
{
	while (q->handed) {
		struct sim_packet *p = q->handed;
		q->handed = p->next;
		q->rx_used--;
		sim_packet_free(p);
	}
}

static void hand_out(struct sim_queue *q, struct sim_packet *p, struct nic_pkt *out)
{
	*out = (struct nic_pkt){.head = p->body, .body_len = p->len, .peer = NIC_PEER_NONE};
	out->body = p->len ? p->body : NULL;
	if (!q->port->nic.zero_copy) {
		p->next = q->handed;
		q->handed = p;
		return;
	}
	p->cookie = q->held_free[--q->held_free_n];
	q->held[p->cookie] = p;
	out->cookie = p->cookie + 1;
}

static unsigned sim_recv(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max)
{
	struct sim_queue *q = sim_queue_of(nq);
	unsigned n = 0;
	give_back(q);
	if (q->port->dead || q->port->host->state != SIM_RUNNING)
		return 0;
	for (struct sim_packet *p; n < max && (p = sim_fifo_take(&q->rx)); n++)
		hand_out(q, p, &pkts[n]);
	q->port->host->stats.rx_taken += n;
	return n;
}

static void sim_release(struct nic_queue *nq, uint32_t peer, uint64_t cookie)
{
	struct sim_queue *q = sim_queue_of(nq);
	uint64_t i = cookie - 1;
	(void)peer;
	if (!q->held || i >= q->port->nic.rx_slots || !q->held[i])
		return;
	sim_packet_free(q->held[i]);
	q->held[i] = NULL;
	q->held_free[q->held_free_n++] = (uint32_t)i;
	q->rx_used--;
}

/* ---- sending ---- */

/* Path MTU as discovered so far. */
static uint32_t eager_max(const struct sim_port *port, const struct sim_dest *dest)
{
	uint32_t link = port->host->rails[port->rail].up->shape.mtu - SIM_HEADERS;
	return dest->bytes_max < link ? dest->bytes_max : link;
}

/* Not below the minimum of nic.h: such packets are fragmented by IP if necessary. */
static uint32_t bytes_max(const struct sim_port *port, const struct sim_dest *dest)
{
	uint32_t most = eager_max(port, dest);
	most = most < SIM_BYTES_LEAST ? SIM_BYTES_LEAST : most;
	return most < port->body_max ? most : port->body_max;
}

static int sim_tx_reserve(struct nic_queue *nq, uint32_t peer, uint64_t body_len, struct nic_tx *tx)
{
	struct sim_queue *q = sim_queue_of(nq);
	struct sim_port *port = q->port;
	if (!attached(q, peer))
		return -EPIPE;
	/* Packets above the path MTU are retransmissions of earlier ones: IP fragments them. */
	if (body_len > port->body_max)
		return -EMSGSIZE;
	if (q->tx_used >= port->nic.tx_slots || port->host->state == SIM_PAUSED) {
		q->starved = true;
		port->host->stats.tx_full++;
		return -EAGAIN;
	}
	struct sim_packet *p = sim_packet_new(port->host->sim, (uint32_t)body_len);
	if (!p)
		return -ENOBUFS;
	q->tx_used++;
	q->tx_bytes += body_len;
	q->starved = false;
	tx->head = tx->head_room;
	tx->body = p->body;
	tx->body_len = body_len;
	tx->cookie = 1;
	tx->driver_data = p;
	tx->peer = peer;
	tx->priority = 0;
	return 0;
}

static uint32_t sim_tx_room(struct nic_queue *nq, uint32_t peer)
{
	struct sim_queue *q = sim_queue_of(nq);
	if (!attached(q, peer) || q->port->host->state == SIM_PAUSED)
		return 0;
	return q->tx_used < q->port->nic.tx_slots ? q->port->nic.tx_slots - q->tx_used : 0;
}

static uint64_t sim_tx_waiting(struct nic_queue *nq, uint64_t most)
{
	struct sim_queue *q = sim_queue_of(nq);
	q->tx_most = q->tx_bytes > most ? most : UINT64_MAX;
	return q->tx_bytes;
}

static uint64_t sim_tx_bytes_max(struct nic_queue *nq, uint32_t peer)
{
	const struct sim_queue *q = sim_queue_of(nq);
	const struct sim_dest *dest = attached(q, peer);
	return dest ? bytes_max(q->port, dest) : 0;
}

static void aim(struct sim_queue *q, struct sim_packet *p, uint32_t peer)
{
	struct sim_port *port = q->port;
	const struct sim_dest *dest = &port->dests[peer];
	p->from = port->host;
	p->to = dest->to;
	p->port = port->number;
	p->dest = peer;
	p->dest_incarnation = dest->incarnations;
	p->rail = (uint8_t)port->rail;
	p->from_queue = (uint16_t)q->index;
	p->to_queue = (uint16_t)NIC_ROUTE_QUEUE(dest->route);
	p->path = (uint16_t)NIC_ROUTE_FLOW(dest->route);
	p->fragments = p->len > eager_max(port, dest);
	p->flow = flow_of(p, dest->route);
}

static void launch(struct sim_queue *q, struct sim_packet *p)
{
	struct sim *sim = p->sim;
	p->number = ++sim->packets_sent;
	p->sent_at = sim->now;
	sim->stats.sent++;
	sim_packet_launch(p);
	sim_packet_sign(p);
	sim_trace(p, SIM_SEND, SIM_DROP_N, NULL, 0);
	if (sim->pcap && !sim->pcap_arrived)
		sim_pcap_packet(sim, p);
	sim_link_put(p->from->rails[p->rail].up, p, q->index);
}

/* Frees the slot and the packet. */
static void forget(struct sim_queue *q, struct nic_tx *tx)
{
	q->tx_bytes -= tx->body_len;
	sim_packet_free(tx->driver_data);
	tx->driver_data = NULL;
	q->tx_used--;
}

static int sim_tx_commit(struct nic_queue *nq, struct nic_tx *tx)
{
	struct sim_queue *q = sim_queue_of(nq);
	struct sim_host *host = q->port->host;
	struct sim_packet *p = tx->driver_data;
	if (!p)
		return -EPIPE;
	if (q->port->dead || !attached(q, tx->peer)) {
		q->port->stats.tx_dropped++;
		forget(q, tx);
		return 0;
	}
	tx->driver_data = NULL;
	aim(q, p, tx->peer);
	p->priority = tx->priority < SIM_PRIORITIES_MAX ? tx->priority : SIM_PRIORITIES_MAX - 1;
	host->stats.tx_packets++;
	host->stats.tx_bytes += p->len;
	q->port->stats.tx_packets++;
	q->port->stats.tx_bytes += p->len;
	sim_fifo_put(&q->staged, p);
	return 0;
}

static void sim_tx_cancel(struct nic_queue *nq, struct nic_tx *tx)
{
	if (tx->driver_data)
		forget(sim_queue_of(nq), tx);
}

/* The doorbell: packets leave from here on. */
static void sim_flush(struct nic_queue *nq)
{
	struct sim_queue *q = sim_queue_of(nq);
	for (struct sim_packet *p; (p = sim_fifo_take(&q->staged));)
		launch(q, p);
}

void sim_nic_sent(struct sim_packet *p, bool dropped)
{
	struct sim_port *port = p->from->rails[p->rail].port;
	if (p->kick || !port || port->dead || port->number != p->port)
		return;
	struct sim_queue *q = port->queues[p->from_queue];
	port->stats.tx_dropped += dropped;
	q->tx_used--;
	q->tx_bytes -= p->len;
	bool room = q->tx_most != UINT64_MAX && q->tx_bytes <= q->tx_most;
	if (room)
		q->tx_most = UINT64_MAX;
	if (!q->starved && !room)
		return;
	q->starved = false;
	sim_host_wake(port->host);
}

/* ---- sleep ---- */

static void sim_arm(struct nic_queue *nq)
{
	sim_queue_of(nq)->armed = true;
}

static void sim_disarm(struct nic_queue *nq)
{
	sim_queue_of(nq)->armed = false;
}

unsigned sim_queue_waiting(const struct nic_queue *q)
{
	return sim_queue_of(q)->rx.n;
}

bool sim_queue_is_woken(const struct nic_queue *q)
{
	return sim_queue_of(q)->woken;
}

static int sim_wake_fd(const struct nic_queue *nq)
{
	struct sim_queue *q = sim_queue_of(nq);
	return sim_fd_make(&q->wake_fd, q->woken);
}

static void sim_wake_clear(struct nic_queue *nq)
{
	struct sim_queue *q = sim_queue_of(nq);
	q->woken = false;
	sim_fd_clear(q->wake_fd);
}

static void sim_wake(struct nic_queue *nq)
{
	struct sim_queue *q = sim_queue_of(nq);
	rouse(q);
	sim_host_wake(q->port->host);
}

/* A packet without bytes, beside the ring. */
static void sim_kick(struct nic_queue *nq, uint32_t peer)
{
	struct sim_queue *q = sim_queue_of(nq);
	struct sim_packet *p;
	if (!attached(q, peer) || q->port->dead || !(p = sim_packet_new(q->port->host->sim, 0)))
		return;
	aim(q, p, peer);
	p->kick = true;
	q->port->stats.kicks++;
	launch(q, p);
}

static uint64_t sim_deadline(const struct nic_queue *nq)
{
	const struct sim_queue *q = sim_queue_of(nq);
	const struct sim_host *host = q->port->host;
	const struct sim_link *up = host->rails[q->port->rail].up;
	return (q->starved || q->tx_most != UINT64_MAX) && up->sending ? sim_host_local(host, up->sending_until)
								       : UINT64_MAX;
}

#define QUEUE_OPS                                                                                                      \
	.attach = sim_attach, .detach = sim_detach, .recv = sim_recv, .release = sim_release,                          \
	.tx_reserve = sim_tx_reserve, .tx_room = sim_tx_room, .tx_bytes_max = sim_tx_bytes_max,                        \
	.tx_waiting = sim_tx_waiting, .tx_commit = sim_tx_commit, .tx_cancel = sim_tx_cancel, .flush = sim_flush,      \
	.arm = sim_arm, .disarm = sim_disarm, .wake_fd = sim_wake_fd, .wake_clear = sim_wake_clear, .wake = sim_wake,  \
	.deadline = sim_deadline

const struct nic_queue_ops sim_queue_waking_ops = {QUEUE_OPS};
const struct nic_queue_ops sim_queue_kicking_ops = {QUEUE_OPS, .kick = sim_kick};

/* ---- open and close ---- */

struct sim_queue *sim_queue_new(struct sim_port *port, uint32_t index)
{
	struct sim_queue *q = calloc(1, sizeof *q);
	must(q);
	q->base.ops = port->nic.kick ? &sim_queue_kicking_ops : &sim_queue_waking_ops;
	q->port = port;
	q->index = index;
	q->wake_fd = -1;
	q->tx_most = UINT64_MAX;
	if (!port->nic.zero_copy)
		return q;
	uint32_t n = port->nic.rx_slots;
	q->held = calloc(n, sizeof(struct sim_packet *));
	q->held_free = calloc(n, sizeof *q->held_free);
	must(q->held && q->held_free);
	for (uint32_t i = 0; i < n; i++)
		q->held_free[i] = n - 1 - i;
	q->held_free_n = n;
	return q;
}

void sim_queue_crash(struct sim_queue *q)
{
	for (struct sim_packet *p; (p = sim_fifo_take(&q->rx));) {
		q->rx_used--;
		sim_packet_drop(p, SIM_DROP_CRASHED, NULL, q->port->host);
	}
	for (struct sim_packet *p; (p = sim_fifo_take(&q->staged));)
		sim_packet_free(p);
}

void sim_queue_free(struct sim_queue *q)
{
	give_back(q);
	for (struct sim_packet *p; (p = sim_fifo_take(&q->rx)) || (p = sim_fifo_take(&q->staged));)
		sim_packet_free(p);
	for (uint32_t i = 0; q->held && i < q->port->nic.rx_slots; i++)
		if (q->held[i])
			sim_packet_free(q->held[i]);
	if (q->wake_fd >= 0)
		close(q->wake_fd);
	free(q->held);
	free(q->held_free);
	free(q);
}
