/* SPDX-License-Identifier: BSD-3-Clause */
/** Port operations: opens and closes the device, and creates and reports destinations. Control thread; verbs_stats():
 * any thread. */
#include "nic/verbs/bulk.h"

#include "base/text.h"
#include "farcall/version.h"
#include "nic/module.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct verbs_port *port_of(const struct nic_port *p)
{
	return (struct verbs_port *)(uintptr_t)p;
}

int verbs_error(struct nic_err *err, int error, const char *format, ...)
{
	if (err) {
		va_list args;
		va_start(args, format);
		text_setv(err->text, sizeof err->text, format, args);
		va_end(args);
	}
	return error;
}

uint64_t verbs_now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

/* ---- open and close ---- */

static int check(const struct nic_config *config, struct verbs_args *args, struct nic_err *err)
{
	if (config->queues == 0 || config->queues > VERBS_QUEUES_MAX)
		return verbs_error(err, -EINVAL, "verbs: 1 to %u queues, not %u", VERBS_QUEUES_MAX, config->queues);
	if (config->head_bytes)
		return verbs_error(err, -EINVAL,
				   "verbs: a datagram driver has no packet heads, but a head of %u bytes was requested",
				   config->head_bytes);
	return verbs_args_parse(config->args, args, err);
}

void verbs_port_close_device(struct verbs_port *p)
{
	verbs_resolver_close(p);
	if (p->rc)
		verbs_rc_close(p);
	for (unsigned i = 0; i < p->queues_n; i++)
		if (p->queues[i])
			verbs_qp_close(p->queues[i]);
	for (unsigned i = 0; i < VERBS_DESTS_MAX; i++)
		if (p->dests[i])
			memset(p->dests[i]->ah, 0, sizeof p->dests[i]->ah);
	verbs_ah_sets_destroy(p);
	verbs_mems_close(p);
	if (p->pd)
		ibv_dealloc_pd(p->pd);
	if (p->on.context)
		ibv_close_device(p->on.context);
	p->pd = NULL;
	p->on.context = NULL;
	/* Pollers may now report operations in flight as ended. */
	atomic_store_explicit(&p->device_released, true, memory_order_release);
	for (unsigned i = 0; p->mems && i < p->queues_n; i++)
		if (p->queues[i])
			verbs_signal(p->queues[i]->event_fd);
}

static void verbs_close(struct nic_port *port)
{
	struct verbs_port *p = port_of(port);
	verbs_port_close_device(p);
	verbs_ah_sets_close(p);
	if (p->rc)
		verbs_rc_free(p);
	for (uint32_t i = 0; i < VERBS_DESTS_MAX; i++)
		free(p->dests[i]);
	for (unsigned i = 0; i < p->queues_n; i++)
		if (p->queues[i])
			verbs_queue_close(p->queues[i]);
	verbs_mems_free(p);
	int fds[] = {p->watch_fd, p->event_fd, p->fd};
	for (unsigned i = 0; i < sizeof fds / sizeof *fds; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	free(p);
}

/* Priorities with equal class values share handles. */
static void classify(struct verbs_port *p)
{
	for (unsigned i = 0; i < VERBS_PRIORITIES; i++) {
		uint8_t tos = p->on.ethernet ? p->args.dscp.tos[i] : 0, sl = p->on.ethernet ? 0 : p->args.sl[i];
		unsigned c = 0;
		while (c < p->classes_n && (p->class_tos[c] != tos || p->class_sl[c] != sl))
			c++;
		if (c == p->classes_n) {
			p->class_tos[c] = tos;
			p->class_sl[c] = sl;
			p->classes_n++;
		}
		p->class_of[i] = (uint8_t)c;
	}
}

static int check_connections(const struct verbs_port *p, struct nic_err *err)
{
	const struct ibv_device_attr *l = &p->limits;
	unsigned n = p->queues_n * (p->args.connections ? p->args.connections : VERBS_CONNS);
	if (l->max_qp >= (int)n && l->max_cq >= 2 * (int)p->queues_n)
		return 0;
	return verbs_error(err, -ENOSPC,
			   "verbs: %s has %d queue pairs and %d completion queues, %u shards need up to %u and %u: "
			   "give a smaller connections=, or use fewer shards",
			   p->on.device, l->max_qp, l->max_cq, p->queues_n, n, 2 * p->queues_n);
}

static int check_limits(struct verbs_port *p, struct nic_err *err)
{
	const struct ibv_device_attr *l = &p->limits;
	unsigned least = p->args.rx_slots > VERBS_TX_RING ? p->args.rx_slots : VERBS_TX_RING;
	if (ibv_query_device(p->on.context, &p->limits))
		return verbs_error(err, -EIO, "verbs: the limits of %s cannot be queried", p->on.device);
	if (l->max_qp_wr < (int)least || l->max_cqe < (int)least)
		return verbs_error(err, -EINVAL,
				   "verbs: queues of %s hold %d packets and %d completions, not %u; see rx_slots=",
				   p->on.device, l->max_qp_wr, l->max_cqe, least);
	if (p->on.rc)
		return check_connections(p, err);
	if (l->max_qp < (int)p->queues_n || l->max_cq < 2 * (int)p->queues_n)
		return verbs_error(err, -ENOSPC,
				   "verbs: %s has %d queue pairs and %d completion queues, %u shards need %u and %u: "
				   "use fewer shards, or another device",
				   p->on.device, l->max_qp, l->max_cq, p->queues_n, p->queues_n, 2 * p->queues_n);
	return 0;
}

static int open_bulk(struct verbs_port *p, struct nic_err *err)
{
	int error = verbs_mems_open(p, err);
	return error ? error : verbs_rc_open(p, err);
}

/* Continues without bulk after it could not be opened. */
static void disable_bulk(struct verbs_port *p)
{
	if (p->rc)
		verbs_rc_close(p);
	for (unsigned i = 0; i < p->queues_n; i++)
		if (p->queues[i])
			verbs_queue_close(p->queues[i]);
	memset(p->queues, 0, sizeof p->queues);
	if (p->rc)
		verbs_rc_free(p);
	verbs_mems_close(p);
	verbs_mems_free(p);
	p->mems = NULL;
	p->args.bulk = 0;
}

static bool is_automatic(const struct verbs_port *p)
{
	return p->args.bulk_mode == VERBS_BULK_DEFAULT || p->args.bulk_mode == VERBS_BULK_AUTO;
}

/* Opens connections, for packets or for bulk beside datagrams. */
static int open_connections(struct verbs_port *p, struct nic_err *err)
{
	struct nic_err ignored;
	int error = p->args.bulk ? verbs_bulk_check(p, err) : 0;
	if (error)
		return error;
	if (p->args.bulk)
		return open_bulk(p, err);
	if (p->on.rc)
		return verbs_rc_open(p, err);
	/* Not an error: packets carry everything. verbs_advice() reports the reason. */
	if (!is_automatic(p) || verbs_bulk_probe(&p->on, &p->limits, &ignored))
		return 0;
	p->args.bulk = VERBS_BULK_AUTO_BYTES;
	if (open_bulk(p, &ignored))
		disable_bulk(p);
	return 0;
}

static int open_queues(struct verbs_port *p, struct nic_err *err)
{
	int error = 0;
	for (unsigned i = 0; !error && i < p->queues_n; i++)
		error = verbs_queue_open(p, i, err);
	if (!error || !is_automatic(p) || !p->args.bulk)
		return error;
	disable_bulk(p); /* bulk may have exceeded the device's limits */
	return open_queues(p, err);
}

static int open_device(struct verbs_port *p, const struct nic_config *config, struct nic_err *err)
{
	int error = verbs_device_open(&p->args, config, &p->on, err);
	if (!error)
		error = check_limits(p, err);
	if (error)
		return error;
	/* iWARP segments a message itself. On RoCE a message stays one packet: if a connection ended inside a message,
	 * its buffer would be lost from the shared receive queue. */
	p->mtu = p->on.iwarp ? VERBS_MTU_MAX : 128u << p->on.attr.active_mtu;
	if (p->args.mtu && p->args.mtu < p->mtu)
		p->mtu = p->args.mtu;
	classify(p);
	p->pd = ibv_alloc_pd(p->on.context);
	if (!p->pd)
		return verbs_error(err, -ENOMEM, "verbs: %s cannot create a protection domain: %s", p->on.device,
				   strerror(errno));
	error = verbs_events_open(p, err);
	if (!error)
		error = open_connections(p, err);
	if (!error)
		error = open_queues(p, err);
	if (error)
		return error;
	verbs_address_set(p);
	return p->on.rc ? 0 : verbs_resolver_open(p, err);
}

static int verbs_open(const struct nic_config *config, struct nic_port **out, struct nic_err *err)
{
	struct verbs_args args;
	int error = check(config, &args, err);
	if (error)
		return error;
	struct verbs_port *p = calloc(1, sizeof *p);
	if (!p)
		return verbs_error(err, -ENOMEM, "verbs: out of memory");
	p->base.ops = &verbs_port_ops;
	p->args = args;
	p->queues_n = config->queues;
	p->memory_block = config->memory_block;
	p->memory = (uintptr_t)config->memory;
	p->memory_bytes = config->memory_bytes;
	p->key = config->key;
	p->fd = p->event_fd = p->watch_fd = -1;
	p->pending_last = &p->pending_first;
	error = open_device(p, config, err);
	if (error) {
		verbs_close(&p->base);
		return error;
	}
	*out = &p->base;
	return 0;
}

static int verbs_probe(const struct nic_config *config, struct nic_err *err)
{
	struct verbs_args args;
	struct verbs_choice on;
	int error = check(config, &args, err);
	if (!error)
		error = verbs_device_open(&args, config, &on, err);
	if (!error)
		ibv_close_device(on.context);
	return error;
}

/* ---- properties ---- */

static void verbs_caps(const struct nic_port *port, struct nic_caps *out)
{
	const struct verbs_port *p = port_of(port);
	*out = (struct nic_caps){
		.zero_copy_rx = true,
		.wake = true,
		.checksum = true, /* RoCE and InfiniBand have a CRC over the whole packet */
		.steering = NIC_STEER_QUEUE,
		.ip = p->on.ethernet ? NIC_IP_KERNEL : NIC_IP_NONE,
		.headroom_bytes = 0,
		.body_align = VERBS_BODY_ALIGN,
		.body_bytes_max = p->mtu,
		.release_ns = 0, /* bodies are written in place */
		.slots = VERBS_TX_SLOTS,
		.one_sided = p->args.bulk > 0,
		.bulk_bytes_min = p->args.bulk,
		.rx_slots = p->on.rc && p->queues[0]->rc->per_conn_buffers ? 1u << VERBS_OWN_SHIFT : p->args.rx_slots,
		.peers_max = VERBS_DESTS_MAX,
		.queues_max = VERBS_QUEUES_MAX,
	};
}

static void verbs_address(const struct nic_port *port, struct nic_addr *out)
{
	memset(out, 0, sizeof *out);
	snprintf(out->driver, sizeof out->driver, "%s", verbs_port_ops.name);
	out->len = sizeof port_of(port)->blob;
	memcpy(out->blob, &port_of(port)->blob, sizeof port_of(port)->blob);
}

static uint64_t count(_Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static void verbs_stats(const struct nic_port *port, struct nic_stats *out)
{
	struct verbs_port *p = port_of(port);
	memset(out, 0, sizeof *out);
	for (unsigned i = 0; i < p->queues_n; i++) {
		struct verbs_counters *c = &p->queues[i]->counters;
		out->rx_packets += count(&c->rx_packets);
		out->tx_packets += count(&c->tx_packets);
		out->rx_bytes += count(&c->rx_bytes);
		out->tx_bytes += count(&c->tx_bytes);
		out->rx_unexpected += count(&c->unexpected);
		out->rx_malformed += count(&c->malformed);
		out->tx_dropped += count(&c->dropped);
	}
	for (unsigned i = 0; p->rc && i < VERBS_REFUSALS; i++)
		out->refused += count(&p->rc->refused[i]);
}

static struct nic_queue *verbs_queue_at(struct nic_port *port, unsigned i)
{
	return i < port_of(port)->queues_n ? &port_of(port)->queues[i]->base : NULL;
}

/* ---- destinations ---- */

static struct verbs_dest *dest_new(struct verbs_port *p)
{
	for (uint32_t i = 0; i < VERBS_DESTS_MAX; i++) {
		uint32_t number = (p->dests_next + i) % VERBS_DESTS_MAX;
		if (p->dests[number])
			continue;
		struct verbs_dest *dest = calloc(1, sizeof *dest);
		if (!dest)
			return NULL;
		dest->number = number;
		p->dests_next = number + 1;
		p->dests[number] = dest;
		return dest;
	}
	return NULL;
}

static void unlink_pending(struct verbs_port *p, struct verbs_dest *dest)
{
	for (struct verbs_dest **at = &p->pending_first; *at; at = &(*at)->next)
		if (*at == dest) {
			*at = dest->next;
			if (p->pending_last == &dest->next)
				p->pending_last = at;
			return;
		}
}

static void verbs_drop(struct nic_port *port, uint32_t peer)
{
	struct verbs_port *p = port_of(port);
	struct verbs_dest *dest = peer < VERBS_DESTS_MAX ? p->dests[peer] : NULL;
	if (!dest)
		return;
	unlink_pending(p, dest);
	if (dest->ah_set)
		verbs_ah_set_put(p, dest->ah_set, verbs_now());
	if (dest->remote)
		verbs_remote_put(dest->queue, dest->remote);
	p->dests[peer] = NULL;
	free(dest);
}

/* Sets the address handles or the remote queue of a destination; false: none available. */
static bool dest_init(struct verbs_port *p, struct verbs_dest *dest, struct verbs_queue *q, const struct verbs_blob *to,
		      unsigned remote_queue)
{
	dest->queue = q;
	if (!p->on.rc) {
		dest->ah_set = verbs_ah_set_get(p, to, verbs_now());
		if (!dest->ah_set || !p->rc || !to->bulk)
			return dest->ah_set != NULL;
	}
	struct verbs_remote *r = verbs_remote_get(q, to->queue[remote_queue].qpn, to->queue[remote_queue].qkey);
	if (r) {
		memcpy(r->gid, to->gid, sizeof r->gid);
		r->service = (uint16_t)(p->on.rc ? to->service : to->bulk);
	}
	dest->remote = r;
	return r != NULL;
}

static int verbs_connect(struct nic_port *port, const struct nic_connect *c, struct nic_err *err)
{
	struct verbs_port *p = port_of(port);
	struct verbs_blob to;
	int error = verbs_reach(port, c->addr, err);
	if (!error)
		error = verbs_blob_read(c->addr, &to, err);
	if (error)
		return error;
	unsigned remote_queue = NIC_ROUTE_QUEUE(c->remote_queue);
	if (c->queue >= p->queues_n)
		return verbs_error(err, -EINVAL, "verbs: there is no queue %u; the port has %u", c->queue, p->queues_n);
	if (remote_queue >= to.queues)
		return verbs_error(err, -EINVAL, "verbs: %s has no queue %u, only %u", to.name, remote_queue,
				   to.queues);
	struct verbs_dest *dest = dest_new(p);
	if (!dest || !dest_init(p, dest, p->queues[c->queue], &to, remote_queue)) {
		if (dest)
			verbs_drop(port, dest->number);
		return verbs_error(err, -ENOSPC,
				   "verbs: cannot create a destination: more than %u destinations or %u address "
				   "handles, or out of memory",
				   VERBS_DESTS_MAX, VERBS_AH_SETS_MAX);
	}
	dest->qpn = to.queue[remote_queue].qpn;
	dest->qkey = to.queue[remote_queue].qkey;
	dest->body_max = to.mtu < p->mtu ? to.mtu : p->mtu;
	dest->user = c->user;
	*p->pending_last = dest;
	p->pending_last = &dest->next;
	verbs_signal(p->event_fd);
	return 0;
}

static void report_up(struct verbs_port *p, struct verbs_dest *dest, nic_event_fn *event, void *ctx)
{
	struct nic_event ev = {
		.type = NIC_EVENT_UP, .peer = dest->number, .queue = dest->queue->index, .user = dest->user};
	for (unsigned i = 0; dest->ah_set && i < VERBS_PRIORITIES; i++) {
		struct ibv_ah *ah = dest->ah_set->ah[p->class_of[i]];
		dest->ah[i] = ah ? ah : dest->ah_set->ah[p->class_of[0]];
	}
	event(ctx, &ev);
}

static void report_failed(struct verbs_port *p, struct verbs_dest *dest, nic_event_fn *event, void *ctx)
{
	char text[NIC_TEXT_BYTES_MAX], gid[VERBS_GID_TEXT_MAX];
	int error = dest->ah_set->error;
	snprintf(text, sizeof text, "verbs: no address handle for %s from %s: %s%s",
		 verbs_gid_text(dest->ah_set->gid, gid), p->on.device, strerror(-error),
		 error == -ETIMEDOUT || error == -EHOSTUNREACH ? ": no host replies for this address" : "");
	struct nic_event ev = {
		.type = NIC_EVENT_FAILED, .peer = NIC_PEER_NONE, .user = dest->user, .error = error, .text = text};
	verbs_drop(&p->base, dest->number);
	event(ctx, &ev);
}

static uint64_t verbs_step(struct nic_port *port, uint64_t now, nic_event_fn *event, void *ctx)
{
	struct verbs_port *p = port_of(port);
	now = now ? now : verbs_now();
	uint64_t next = verbs_events_step(p, now);
	for (struct verbs_dest *dest = p->pending_first, *then; dest; dest = then) {
		then = dest->next;
		enum verbs_ah_set_state state = dest->ah_set ? verbs_ah_set_state(dest->ah_set) : VERBS_AH_READY;
		if (state == VERBS_AH_RESOLVING)
			continue;
		unlink_pending(p, dest);
		if (state == VERBS_AH_READY)
			report_up(p, dest, event, ctx);
		else
			report_failed(p, dest, event, ctx);
	}
	if (p->rc) {
		uint64_t at = verbs_rc_step(p, now);
		next = at < next ? at : next;
	}
	verbs_mems_step(p, now);
	uint64_t sweep = verbs_ah_sets_sweep(p, now);
	return sweep < next ? sweep : next;
}

static int verbs_fd(const struct nic_port *port)
{
	return port_of(port)->fd;
}

const struct nic_port_ops verbs_port_ops = {
	.name = "verbs",
	.probe = verbs_probe,
	.open = verbs_open,
	.close = verbs_close,
	.caps = verbs_caps,
	.address = verbs_address,
	.address_text = verbs_address_text,
	.reach = verbs_reach,
	.stats = verbs_stats,
	.queue = verbs_queue_at,
	.connect = verbs_connect,
	.step = verbs_step,
	.fd = verbs_fd,
	.drop = verbs_drop,
	.mem_register = verbs_mem_register,
	.mem_unregister = verbs_mem_unregister,
	.advice = verbs_advice,
};

extern const struct nic_module far_nic_module;
const struct nic_module far_nic_module = {
	.abi = NIC_MODULE_ABI,
	.abi_bytes = NIC_MODULE_ABI_BYTES,
	.version = FAR_VERSION,
	.ops = &verbs_port_ops,
};
