/* SPDX-License-Identifier: BSD-3-Clause */
/** Port operations: those of the port below. Over a connected driver, its connections become address handles. Control
 * thread. */
#include "base/text.h"
#include "nic/lossy/lossy.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GREETING "lossy" /* handshake payload of our connections below */

/** connect() of the port below in progress, as its `user`: distinguishes our connections from accepted ones. */
struct lossy_connect {
	struct lossy_connect *next; /* of lossy_port.connecting */
	void *user;                 /* of connect() above */
};

int lossy_error(struct nic_err *err, int error, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	text_setv(err->text, sizeof err->text, format, args);
	va_end(args);
	return error;
}

static struct lossy_port *port_of(const struct nic_port *p)
{
	return (struct lossy_port *)p;
}

/* ---- opening ---- */

static int find_lower(const struct nic_config *config, struct lossy_args *args, struct nic_config *lower_config,
		      const struct nic_port_ops **lower, struct nic_err *err)
{
	int error = lossy_args_parse(config->args, args, err);
	*lower = NULL;
	if (error)
		return error;
	if (strcmp(args->over, nic_lossy_port_ops.name) == 0)
		return lossy_error(err, -EINVAL, "lossy: over=lossy: give the chances once, over another driver");
	*lower = nic_find(args->over, err);
	if (!*lower)
		return -ENOENT;
	*lower_config = *config;
	lower_config->args = args->lower_args;
	lower_config->head_bytes = 0;
	return 0;
}

static int lossy_probe(const struct nic_config *config, struct nic_err *err)
{
	struct lossy_args args;
	struct nic_config lower_config;
	const struct nic_port_ops *lower;
	int error = find_lower(config, &args, &lower_config, &lower, err);
	return error ? error : lower->probe(&lower_config, err);
}

/* Opens the port below without heads, as for a datagram driver; a connected one rejects that. */
static int open_lower(struct lossy_port *p, const struct nic_port_ops *lower, struct nic_config *config,
		      struct nic_err *err)
{
	int error = lower->open(config, &p->lower, err);
	if (error != -EINVAL)
		return error;
	struct nic_err second = {""};
	config->head_bytes = LOSSY_HEAD_BYTES;
	error = lower->open(config, &p->lower, &second);
	if (error && error != -EINVAL)
		*err = second;
	return error;
}

/* Removes the promises that disturbance breaks. */
static void weaken(struct lossy_port *p, const struct nic_caps *lower)
{
	struct nic_caps *caps = &p->caps;
	*caps = *lower;
	p->connected = lower->connected;
	p->head_bytes = lower->connected ? LOSSY_HEAD_BYTES : 0;
	p->peers_max = lower->peers_max;
	caps->connected = caps->reliable = caps->ordered = caps->crc = caps->authenticated = false;
	caps->one_sided = caps->zero_copy_rx = caps->zero_copy_tx = false;
	caps->head_bytes_max = 0;
	caps->inline_bytes_max = lower->inline_bytes_max > p->head_bytes ? lower->inline_bytes_max - p->head_bytes : 0;
	if (caps->body_bytes_max > p->args.bytes)
		caps->body_bytes_max = p->args.bytes;
	caps->release_ns = 0;
}

static void lossy_close(struct nic_port *port)
{
	struct lossy_port *p = port_of(port);
	for (unsigned i = 0; p->queues && i < p->queues_n; i++)
		lossy_queue_free(p->queues[i]);
	for (uint32_t i = 0; p->connected && p->peers && i < p->peers_max; i++)
		if (p->peers[i].leaving || atomic_load_explicit(&p->peers[i].listened, memory_order_relaxed))
			p->lower->ops->drop(p->lower, i);
	if (p->lower)
		p->lower->ops->close(p->lower);
	while (p->connecting) {
		struct lossy_connect *c = p->connecting;
		p->connecting = c->next;
		free(c);
	}
	free(p->queues);
	free(p->peers);
	free(p);
}

static int queues_new(struct lossy_port *p, unsigned n)
{
	p->peers = calloc(p->peers_max, sizeof *p->peers);
	p->queues = calloc(n, sizeof *p->queues);
	if (!p->peers || !p->queues)
		return -ENOMEM;
	for (; p->queues_n < n; p->queues_n++) {
		p->queues[p->queues_n] = lossy_queue_new(p, p->queues_n);
		if (!p->queues[p->queues_n])
			return -ENOMEM;
	}
	return 0;
}

static int lossy_open(const struct nic_config *config, struct nic_port **out, struct nic_err *err)
{
	struct lossy_args args;
	struct nic_config lower_config;
	const struct nic_port_ops *lower;
	struct nic_caps caps;
	int error = find_lower(config, &args, &lower_config, &lower, err);
	if (error)
		return error;
	struct lossy_port *p = calloc(1, sizeof *p);
	if (!p)
		return lossy_error(err, -ENOMEM, "lossy: out of memory");
	p->base.ops = &nic_lossy_port_ops;
	p->args = args;
	p->args.lower_args = NULL; /* its memory is the caller's */
	error = open_lower(p, lower, &lower_config, err);
	if (error) {
		free(p);
		return error;
	}
	lower->caps(p->lower, &caps);
	weaken(p, &caps);
	error = queues_new(p, config->queues);
	if (error) {
		lossy_close(&p->base);
		return lossy_error(err, error, "lossy: out of memory");
	}
	*out = &p->base;
	return 0;
}

static void lossy_caps(const struct nic_port *port, struct nic_caps *out)
{
	*out = port_of(port)->caps;
}

/* ---- addresses: name of the driver below, NUL, its blob ---- */

static void lossy_address(const struct nic_port *port, struct nic_addr *out)
{
	const struct lossy_port *p = port_of(port);
	struct nic_addr lower;
	size_t name = strlen(p->args.over) + 1;
	p->lower->ops->address(p->lower, &lower);
	memset(out, 0, sizeof *out);
	snprintf(out->driver, sizeof out->driver, "%s", nic_lossy_port_ops.name);
	memcpy(out->blob, p->args.over, name);
	memcpy(out->blob + name, lower.blob, lower.len);
	out->len = (uint16_t)(name + lower.len);
}

/* Extracts the address of the driver below. false: malformed. */
static bool lower_address(const struct nic_addr *addr, struct nic_addr *out)
{
	const uint8_t *nul = addr->len <= sizeof addr->blob ? memchr(addr->blob, 0, addr->len) : NULL;
	size_t name = nul ? (size_t)(nul - addr->blob) + 1 : 0;
	if (name < 2 || name > sizeof out->driver)
		return false;
	memset(out, 0, sizeof *out);
	memcpy(out->driver, addr->blob, name);
	out->len = (uint16_t)(addr->len - name);
	memcpy(out->blob, addr->blob + name, out->len);
	return true;
}

/* Formats it if the driver is built in: no module is loaded for a name that another worker published. */
static void lossy_address_text(const struct nic_addr *addr, char *out, size_t cap)
{
	struct nic_addr lower;
	char text[NIC_TEXT_BYTES_MAX] = "a driver that is not built in";
	if (!lower_address(addr, &lower)) {
		snprintf(out, cap, "lossy (malformed address)");
		return;
	}
	for (unsigned i = 0; nic_drivers[i]; i++)
		if (strcmp(nic_drivers[i]->name, lower.driver) == 0)
			nic_drivers[i]->address_text(&lower, text, sizeof text);
	snprintf(out, cap, "lossy over %s", text);
}

static int match_address(const struct lossy_port *p, const struct nic_addr *addr, struct nic_addr *lower,
			 struct nic_err *err)
{
	if (!lower_address(addr, lower))
		return lossy_error(err, -EINVAL, "lossy: malformed address");
	if (strcmp(lower->driver, p->args.over) != 0)
		return lossy_error(err, -EXDEV, "lossy: that port is over another driver than over=%s", p->args.over);
	return 0;
}

static int lossy_reach(const struct nic_port *port, const struct nic_addr *addr, struct nic_err *err)
{
	const struct lossy_port *p = port_of(port);
	struct nic_addr lower;
	int error = match_address(p, addr, &lower, err);
	return error ? error : p->lower->ops->reach(p->lower, &lower, err);
}

static void lossy_stats(const struct nic_port *port, struct nic_stats *out)
{
	const struct lossy_port *p = port_of(port);
	p->lower->ops->stats(p->lower, out);
	out->rx_packets = out->rx_bytes = out->tx_packets = out->tx_bytes = 0;
	for (unsigned i = 0; i < p->queues_n; i++) {
		const struct lossy_counters *c = &p->queues[i]->count;
		out->rx_packets += atomic_load_explicit(&c->rx_packets, memory_order_relaxed);
		out->rx_bytes += atomic_load_explicit(&c->rx_bytes, memory_order_relaxed);
		out->rx_malformed += atomic_load_explicit(&c->rx_malformed, memory_order_relaxed);
		out->tx_packets += atomic_load_explicit(&c->tx_packets, memory_order_relaxed);
		out->tx_bytes += atomic_load_explicit(&c->tx_bytes, memory_order_relaxed);
		out->tx_dropped += atomic_load_explicit(&c->tx_dropped, memory_order_relaxed);
	}
}

static struct nic_queue *lossy_queue_at(struct nic_port *port, unsigned i)
{
	return i < port_of(port)->queues_n ? &port_of(port)->queues[i]->base : NULL;
}

/* ---- peers ---- */

static int lossy_connect(struct nic_port *port, const struct nic_connect *wanted, struct nic_err *err)
{
	struct lossy_port *p = port_of(port);
	struct nic_port *lower = p->lower;
	struct nic_addr at;
	int error = match_address(p, wanted->addr, &at, err);
	if (error)
		return error;
	if (!p->connected)
		return lower->ops->connect(lower,
					   &(struct nic_connect){wanted->queue, &at, wanted->remote_queue, NULL, 0,
								 wanted->deadline, wanted->user},
					   err);
	struct lossy_connect *c = malloc(sizeof *c);
	if (!c)
		return lossy_error(err, -ENOMEM, "lossy: out of memory");
	error = lower->ops->connect(lower,
				    &(struct nic_connect){wanted->queue, &at, wanted->remote_queue, GREETING,
							  sizeof GREETING, wanted->deadline, c},
				    err);
	if (error) {
		free(c);
		return error;
	}
	*c = (struct lossy_connect){.next = p->connecting, .user = wanted->user};
	p->connecting = c;
	return 0;
}

/* Abandons a connect() in progress for its user. */
static void *connect_done(struct lossy_port *p, struct lossy_connect *c)
{
	void *user = c->user;
	struct lossy_connect **at = &p->connecting;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	free(c);
	return user;
}

/* Notifies the poller, asleep or not, of a change of lossy_peer.listened. */
static void listen(struct lossy_port *p, uint32_t peer, enum lossy_listened listened)
{
	struct lossy_peer *at = &p->peers[peer];
	struct lossy_queue *q = p->queues[at->queue];
	atomic_store_explicit(&at->listened, listened, memory_order_release);
	atomic_fetch_add_explicit(&q->changes, 1, memory_order_release); /* pairs with follow_changes() */
	q->lower->ops->wake(q->lower);
}

/* The event callback of the port's owner, for events of the port below. */
struct above {
	struct lossy_port *port;
	nic_event_fn *event;
	void *ctx;
};

static int report_up(struct above *above, const struct nic_event *ev, void *user)
{
	struct lossy_peer *peer = &above->port->peers[ev->peer];
	struct nic_event up = {.type = NIC_EVENT_UP, .peer = ev->peer, .queue = ev->queue, .user = user};
	peer->ours = true;
	atomic_store_explicit(&peer->dead, 0, memory_order_relaxed);
	return above->event(above->ctx, &up);
}

static int on_datagram_event(void *ctx, const struct nic_event *ev)
{
	struct above *above = ctx;
	return ev->type == NIC_EVENT_UP ? report_up(above, ev, ev->user) : above->event(above->ctx, ev);
}

static int on_connect(const struct nic_event *ev)
{
	*ev->reply_len = 0;
	return ev->handshake_len == sizeof GREETING && memcmp(ev->handshake, GREETING, sizeof GREETING) == 0 ? 0
													     : -EPROTO;
}

static int on_connection_event(void *ctx, const struct nic_event *ev)
{
	struct above *above = ctx;
	struct lossy_port *p = above->port;
	if (ev->type == NIC_EVENT_CONNECT)
		return on_connect(ev);
	if (ev->type == NIC_EVENT_FAILED) {
		struct nic_event failed = *ev;
		failed.user = connect_done(p, ev->user);
		return above->event(above->ctx, &failed);
	}
	if (ev->type == NIC_EVENT_UP && ev->user)
		return report_up(above, ev, connect_done(p, ev->user));
	struct lossy_peer *peer = &p->peers[ev->peer];
	if (ev->type == NIC_EVENT_UP) {
		peer->queue = ev->queue;
		listen(p, ev->peer, LOSSY_LISTEN);
	} else if (peer->ours) {
		atomic_store_explicit(&peer->dead, 1, memory_order_relaxed);
	} else {
		peer->leaving = true;
		p->leaving_n++;
		listen(p, ev->peer, LOSSY_LEAVE);
	}
	return 0;
}

/* Drops the peers that the poller has detached. */
static void drop_left(struct lossy_port *p)
{
	for (uint32_t i = 0; p->leaving_n && i < p->peers_max; i++) {
		struct lossy_peer *peer = &p->peers[i];
		/* pairs with leave() */
		if (!peer->leaving || atomic_load_explicit(&peer->listened, memory_order_acquire))
			continue;
		peer->leaving = false;
		p->leaving_n--;
		p->lower->ops->drop(p->lower, i);
	}
}

static uint64_t lossy_step(struct nic_port *port, uint64_t now, nic_event_fn *event, void *ctx)
{
	struct lossy_port *p = port_of(port);
	struct above above = {.port = p, .event = event, .ctx = ctx};
	drop_left(p);
	uint64_t next =
		p->lower->ops->step(p->lower, now, p->connected ? on_connection_event : on_datagram_event, &above);
	if (p->leaving_n) {
		uint64_t at = (now ? now : lossy_now()) + LOSSY_LEAVE_NS;
		next = at < next ? at : next;
	}
	return next;
}

static int lossy_fd(const struct nic_port *port)
{
	const struct lossy_port *p = port_of(port);
	return p->lower->ops->fd(p->lower);
}

static void lossy_drop(struct nic_port *port, uint32_t peer)
{
	struct lossy_port *p = port_of(port);
	if (peer >= p->peers_max || !p->peers[peer].ours)
		return;
	p->peers[peer].ours = false;
	p->lower->ops->drop(p->lower, peer);
}

const struct nic_port_ops nic_lossy_port_ops = {
	.name = "lossy",
	.probe = lossy_probe,
	.open = lossy_open,
	.close = lossy_close,
	.caps = lossy_caps,
	.address = lossy_address,
	.address_text = lossy_address_text,
	.reach = lossy_reach,
	.stats = lossy_stats,
	.queue = lossy_queue_at,
	.connect = lossy_connect,
	.step = lossy_step,
	.fd = lossy_fd,
	.drop = lossy_drop,
};
