/* SPDX-License-Identifier: BSD-3-Clause */
/** The transport's port: open, close, capabilities, addresses, counters. Control thread. connection.c has its
 * connections.
 */
#include "transport/port.h"

#include "base/table.h"
#include "base/text.h"
#include "transport/auth.h"
#include "transport/connect.h"
#include "transport/connection.h"
#include "transport/rings.h"
#include "transport/setup.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define DRIVERS_MAX 8

static void transport_close(struct nic_port *port);

static struct transport_port *port_of(const struct nic_port *port)
{
	return (struct transport_port *)port;
}

static bool is_transport(const struct nic_port *port)
{
	return port->ops->close == transport_close;
}

int transport_error(struct nic_err *err, int error, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	text_setv(err->text, sizeof err->text, format, args);
	va_end(args);
	return error;
}

bool transport_needed(const struct nic_caps *caps)
{
	return !caps->connected || !caps->reliable || !caps->ordered;
}

void transport_port_signal(struct transport_port *p)
{
	uint64_t one = 1;
	if (p->config.signal) {
		p->config.signal(p->config.signal_ctx);
		return;
	}
	ssize_t n = write(p->event_fd, &one, sizeof one);
	(void)n; /* EAGAIN: it is readable already */
}

/* ---- addresses ---- */

/* Drivers that were below a transport: address_text() has no port and finds them by name. Entries are never removed. */
static _Atomic(const struct nic_port_ops *) drivers[DRIVERS_MAX];

static void driver_remember(const struct nic_port_ops *ops)
{
	for (unsigned i = 0; i < DRIVERS_MAX; i++) {
		const struct nic_port_ops *none = NULL;
		if (atomic_compare_exchange_strong(&drivers[i], &none, ops) || none == ops)
			return;
	}
}

static const struct nic_port_ops *driver_named(const char *name)
{
	for (unsigned i = 0; i < DRIVERS_MAX; i++) {
		const struct nic_port_ops *ops = atomic_load(&drivers[i]);
		if (ops && strncmp(ops->name, name, sizeof((struct nic_addr *)0)->driver) == 0)
			return ops;
	}
	/* A driver that no port here uses. */
	for (unsigned i = 0; nic_drivers[i]; i++)
		if (strncmp(nic_drivers[i]->name, name, sizeof((struct nic_addr *)0)->driver) == 0)
			return nic_drivers[i];
	return NULL;
}

bool transport_addr_split(const struct nic_addr *addr, struct nic_addr *lower, uint64_t *id)
{
	le64 b;
	if (addr->len <= TRANSPORT_ID_BYTES || addr->len > NIC_ADDR_BYTES_MAX)
		return false;
	*lower = *addr;
	lower->len = (uint16_t)(addr->len - TRANSPORT_ID_BYTES);
	memset(lower->blob + lower->len, 0, TRANSPORT_ID_BYTES);
	memcpy(&b, addr->blob + lower->len, sizeof b);
	*id = le64_get(b);
	return true;
}

static void transport_address(const struct nic_port *port, struct nic_addr *out)
{
	const struct transport_port *p = port_of(port);
	le64 id = le64_of(p->id);
	*out = p->own;
	memcpy(out->blob + out->len, &id, sizeof id);
	out->len = (uint16_t)(out->len + sizeof id);
}

void transport_address_text(const struct nic_addr *addr, char *out, size_t cap)
{
	struct nic_addr lower;
	uint64_t id;
	const struct nic_port_ops *ops = driver_named(addr->driver);
	if (ops && transport_addr_split(addr, &lower, &id))
		ops->address_text(&lower, out, cap);
	else
		snprintf(out, cap, "%.*s (malformed)", (int)sizeof addr->driver, addr->driver);
}

static int transport_reach(const struct nic_port *port, const struct nic_addr *addr, struct nic_err *err)
{
	const struct transport_port *p = port_of(port);
	struct nic_addr lower;
	uint64_t id;
	if (!transport_addr_split(addr, &lower, &id))
		return transport_error(err, -EINVAL, "%s: malformed address", p->ops.name);
	int error = p->lower->ops->reach(p->lower, &lower, err);
	if (id != p->id)
		return error;
	if (error && err)
		err->text[0] = 0; /* a connection to itself does not use the port below */
	return 0;
}

/* ---- capabilities and counters ---- */

static void transport_caps(const struct nic_port *port, struct nic_caps *out)
{
	const struct transport_port *p = port_of(port);
	const struct nic_caps *lower = &p->lower_caps;
	bool kicks = p->queues_n && p->queues[0]->ops->kick;
	*out = (struct nic_caps){
		.connected = true,
		.reliable = true,
		.ordered = true,
		.crc = true,
		.zero_copy_rx = true,
		.wake = lower->wake || kicks,
		.poll_costs = lower->poll_costs,
		.checksum = lower->checksum,
		.steering = NIC_STEER_QUEUE,
		.ip = lower->ip,
		.head_bytes_max = sizeof(struct wire_call),
		.body_align = 32,
		.body_bytes_max = TRANSPORT_BODY_MAX,
		.slots = FAR_TRANSPORT_SLOTS,
		.peers_max = FAR_TRANSPORT_PEERS_MAX < lower->peers_max ? FAR_TRANSPORT_PEERS_MAX : lower->peers_max,
		.queues_max =
			FAR_TRANSPORT_QUEUES_MAX < lower->queues_max ? FAR_TRANSPORT_QUEUES_MAX : lower->queues_max,
	};
}

static uint64_t counted(_Atomic uint64_t *c)
{
	return atomic_load_explicit(c, memory_order_relaxed);
}

/* A counter that a queue has under the same name. */
#define ADD(name) (out->name += counted(&q->name))

static void transport_nic_stats(const struct nic_port *port, struct nic_stats *out)
{
	port_of(port)->lower->ops->stats(port_of(port)->lower, out);
}

void transport_stats_read(const struct nic_port *port, struct transport_stats *out)
{
	*out = (struct transport_stats){.resent = 0};
	if (!is_transport(port))
		return;
	struct transport_port *p = port_of(port);
	for (uint32_t i = 0; i < p->queues_n; i++) {
		struct transport_queue *q = p->queues[i];
		ADD(resent), ADD(duplicates), ADD(crc_errors), ADD(malformed), ADD(timeouts), ADD(tail_loss_probes),
			ADD(spurious_retransmits), ADD(grant_retransmits), ADD(path_migrations), ADD(read_bytes),
			ADD(unknown_connection_drops), ADD(closed_connection_drops), ADD(no_memory),
			ADD(handshake_backlog_drops);
		out->refused += counted(&q->unproven);
	}
	out->refused += counted(&p->refused_n);
	out->handshake_backlog_drops += counted(&p->backlog_drops_n);
	out->unknown_connection_drops += counted(&p->unknown_n);
	out->duplicates += counted(&p->repeated_n);
}

static struct nic_queue *transport_queue_at(struct nic_port *port, unsigned i)
{
	return i < port_of(port)->queues_n ? &port_of(port)->queues[i]->base : NULL;
}

static int transport_fd(const struct nic_port *port)
{
	return port_of(port)->epoll_fd;
}

static int transport_mem_register(struct nic_port *port, void *base, size_t bytes, struct nic_err *err)
{
	return port_of(port)->lower->ops->mem_register(port_of(port)->lower, base, bytes, err);
}

static int transport_mem_unregister(struct nic_port *port, void *base, size_t bytes, struct nic_err *err)
{
	return port_of(port)->lower->ops->mem_unregister(port_of(port)->lower, base, bytes, err);
}

/* ---- open and close ---- */

/* Zeroed address space: only the pages of a port's and a queue's tables that are used become memory. */
static void *tables_make(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return at == MAP_FAILED ? NULL : at;
}

static void queue_free(struct transport_queue *q)
{
	while (q->free) {
		struct transport_message *m = q->free;
		q->free = m->next;
		buf_unref(m->own);
	}
	transport_segments_free(q);
	transport_onesided_table_end(&q->onesided); /* the driver below is closed */
	free(q->scratch);
	munmap(q, sizeof *q);
}

static void port_free(struct transport_port *p)
{
	for (uint32_t i = 0; i < p->peers_n; i++) {
		if (p->peers[i]->state != TRANSPORT_FREE)
			transport_peer_free(p, p->peers[i]);
	}
	for (uint32_t i = 0; i < p->peers_n; i += TRANSPORT_SLAB_PEERS)
		free(p->secrets[i / TRANSPORT_SLAB_PEERS]);
	table_unmap(p->table, TRANSPORT_TABLE_BYTES);
	auth_erase(&p->transport, sizeof p->transport);
	for (uint32_t i = 0; i < p->queues_n; i++)
		queue_free(p->queues[i]);
	if (p->event_fd >= 0)
		close(p->event_fd);
	if (p->epoll_fd >= 0)
		close(p->epoll_fd);
	munmap(p, sizeof *p);
}

static void transport_close(struct nic_port *port)
{
	struct transport_port *p = port_of(port);
	transport_port_leave(p);
	p->lower->ops->close(p->lower);
	port_free(p);
}

static int queue_open(struct transport_port *p, unsigned i)
{
	struct nic_queue *lower = p->lower->ops->queue(p->lower, i);
	if (!lower)
		return -EINVAL;
	struct transport_queue *q = tables_make(sizeof *q);
	if (!q)
		return -ENOMEM;
	p->queues[p->queues_n++] = q;
	q->scratch = aligned_alloc(64, TRANSPORT_SCRATCH_BYTES);
	if (!q->scratch)
		return -ENOMEM;
	q->base.ops = &p->queue_ops;
	q->base.lanes.dirty = q->dirty;
	q->lower = lower;
	q->ops = lower->ops;
	q->port = p;
	q->id = p->id;
	q->index = i;
	q->crc = !p->lower_caps.crc;
	q->unchecked = p->config.unchecked;
	q->limit_ns = p->config.limit_ns;
	q->clock = p->config.clock;
	q->ready_last = &q->ready_first;
	if (!lower->ops->raw)
		p->queue_ops.raw = NULL;
	return 0;
}

static int watch(const struct transport_port *p, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN};
	return fd < 0 || epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, fd, &ev) == 0 ? 0 : -errno;
}

static int descriptors_open(struct transport_port *p)
{
	p->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	p->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (p->epoll_fd < 0 || p->event_fd < 0)
		return -errno;
	int error = watch(p, p->event_fd);
	return error ? error : watch(p, p->lower->ops->fd(p->lower));
}

static int port_open(struct transport_port *p)
{
	int error = p->config.signal ? 0 : descriptors_open(p);
	for (unsigned i = 0; !error && i < p->config.queues; i++)
		error = queue_open(p, i);
	return error;
}

static int check(const struct nic_port *lower, const struct transport_config *config, const struct nic_caps *caps,
		 const struct nic_addr *own, struct nic_err *err)
{
	const char *name = lower->ops->name;
	if (config->head_bytes != sizeof(struct wire_call))
		return transport_error(err, -EINVAL, "%s: the transport needs heads of %zu bytes, not %u", name,
				       sizeof(struct wire_call), config->head_bytes);
	if (config->queues == 0 || config->queues > FAR_TRANSPORT_QUEUES_MAX)
		return transport_error(err, -EINVAL, "%s: 1 to %u queues, not %u", name, FAR_TRANSPORT_QUEUES_MAX,
				       config->queues);
	if (caps->body_bytes_max < TRANSPORT_PACKET_MIN)
		return transport_error(err, -EINVAL,
				       "%s: packets of %llu bytes are too small for the transport; it needs %u", name,
				       (unsigned long long)caps->body_bytes_max, TRANSPORT_PACKET_MIN);
	if (own->len + TRANSPORT_ID_BYTES > NIC_ADDR_BYTES_MAX)
		return transport_error(
			err, -EINVAL,
			"%s: an address of %u bytes leaves no room for the transport's identity; at most %u", name,
			own->len, NIC_ADDR_BYTES_MAX - TRANSPORT_ID_BYTES);
	return 0;
}

int transport_open(struct nic_port *lower, const struct transport_config *config, struct nic_port **out,
		   struct nic_err *err)
{
	struct nic_caps caps;
	struct nic_addr own;
	lower->ops->caps(lower, &caps);
	lower->ops->address(lower, &own);
	int error = check(lower, config, &caps, &own, err);
	if (error)
		return error;
	struct transport_port *p = tables_make(sizeof *p);
	if (!p)
		return transport_error(err, -ENOMEM, "%s: out of memory", lower->ops->name);
	p->config = *config;
	if (!p->config.limit_ns)
		p->config.limit_ns = FAR_PEER_LIMIT_NS;
	if (!p->config.clock)
		p->config.clock = &clock_monotonic;
	if (!p->config.random)
		p->config.random = &random_kernel;
	p->epoll_fd = p->event_fd = -1;
	p->lower = lower;
	p->lower_caps = caps;
	p->ring = caps.rx_slots - caps.rx_slots / 4;
	p->own = own;
	p->id = (random_next(p->config.random) & ~UINT64_C(15)) | (config->queues - 1);
	if (p->id < 16) /* 0 is no identity */
		p->id += 16;
	auth_random(&p->cookies, sizeof p->cookies, p->config.random);
	auth_random(&p->transport, sizeof p->transport, p->config.random);
	transport_key_update(p);
	p->packet_max = caps.body_bytes_max < UINT32_MAX / 2 ? (uint32_t)caps.body_bytes_max : UINT32_MAX / 2;
	p->next_at = UINT64_MAX;
	p->ops = *lower->ops;
	p->ops.close = transport_close;
	p->ops.caps = transport_caps;
	p->ops.address = transport_address;
	p->ops.address_text = transport_address_text;
	p->ops.reach = transport_reach;
	p->ops.stats = transport_nic_stats;
	p->ops.queue = transport_queue_at;
	p->ops.connect = transport_connect;
	p->ops.step = transport_step;
	p->ops.fd = transport_fd;
	p->ops.drop = transport_drop;
	if (lower->ops->mem_register) {
		p->ops.mem_register = transport_mem_register;
		p->ops.mem_unregister = transport_mem_unregister;
	}
	p->base.ops = &p->ops;
	p->queue_ops = transport_queue_ops;
	p->queue_ops.raw = &transport_raw_ops;
	p->table = table_map(TRANSPORT_TABLE_BYTES);
	error = p->table ? port_open(p) : -ENOMEM;
	if (error) {
		transport_error(err, error, "%s: cannot open the transport over it: %s", lower->ops->name,
				strerror(-error));
		port_free(p);
		return error;
	}
	driver_remember(lower->ops);
	*out = &p->base;
	return 0;
}

void transport_migration_callback(struct nic_port *port, transport_migrated_fn *migrated, void *ctx)
{
	if (!is_transport(port))
		return;
	port_of(port)->migrated = migrated;
	port_of(port)->migrated_ctx = ctx;
}

struct nic_port *transport_lower(struct nic_port *port)
{
	return is_transport(port) ? port_of(port)->lower : port;
}
