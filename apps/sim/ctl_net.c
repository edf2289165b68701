/* SPDX-License-Identifier: BSD-3-Clause */
/* The sockets of a process: handles, of listeners and of ends of streams. The thread of the simulated world. */
#include "apps/sim/streams.h"
#include "base/must.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HANDLES_MAX 65536

static struct net *net_of(struct ctl_net *net)
{
	return (struct net *)(void *)net;
}

static struct handle *handle_at(struct net *n, int handle, enum handle_kind kind)
{
	must(handle >= 0 && handle < n->handles_n && n->handles[handle].kind == kind);
	return &n->handles[handle];
}

/* The lowest free one, as descriptors are given. */
static int handle_new(struct net *n, enum handle_kind kind)
{
	int i = 0;
	while (i < n->handles_n && n->handles[i].kind != HANDLE_FREE)
		i++;
	if (i == HANDLES_MAX)
		return -EMFILE;
	if (i == n->handles_n) {
		int more = n->handles_n ? 2 * n->handles_n : 4;
		struct handle *handles = realloc(n->handles, (size_t)more * sizeof *handles);
		if (!handles)
			return -ENOMEM;
		memset(handles + n->handles_n, 0, (size_t)(more - n->handles_n) * sizeof *handles);
		/* Lists that are empty point into the table. */
		for (int j = 0; j < n->handles_n; j++)
			if (handles[j].kind == HANDLE_LISTENER && !handles[j].waiting)
				handles[j].waiting_last = &handles[j].waiting;
		n->handles = handles;
		n->handles_n = more;
	}
	n->handles[i] = (struct handle){.kind = kind};
	n->handles[i].waiting_last = &n->handles[i].waiting;
	return i;
}

static bool is_loopback(const char *host)
{
	return strncmp(host, "127.", 4) == 0 || strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0;
}

static int net_listen(struct ctl_net *net, const char *host, uint16_t port, int adopt_fd)
{
	struct net *n = net_of(net), *there;
	(void)adopt_fd; /* a world has no descriptors */
	if (!is_loopback(host) && strcmp(host, "0.0.0.0") != 0) {
		const struct sim_host *named = streams_host(n->world, host);
		if (named != n->host)
			return named ? -EADDRNOTAVAIL : -ENXIO;
	}
	if (streams_listener(n->world, n->host, port, &there))
		return -EADDRINUSE;
	int i = handle_new(n, HANDLE_LISTENER);
	if (i >= 0)
		n->handles[i].port = port;
	return i;
}

static int net_loopback(struct ctl_net *net, const char *host, int adopt_fd)
{
	(void)adopt_fd;
	if (is_loopback(host))
		return 1;
	return streams_host(net_of(net)->world, host) || strcmp(host, "0.0.0.0") == 0 ? 0 : -ENXIO;
}

static int net_accept(struct ctl_net *net, int listener)
{
	struct net *n = net_of(net);
	if (!handle_at(n, listener, HANDLE_LISTENER)->waiting)
		return -EAGAIN;
	int i = handle_new(n, HANDLE_STREAM);
	if (i < 0)
		return i;
	struct handle *l = &n->handles[listener];
	struct stream *st = l->waiting;
	l->waiting = st->next_waiting;
	if (!l->waiting)
		l->waiting_last = &l->waiting;
	l->waiting_n--;
	st->end[1].net = n;
	n->handles[i].end = &st->end[1];
	return i;
}

static int net_connect(struct ctl_net *net, const char *host, uint16_t port)
{
	struct net *n = net_of(net);
	struct sim_host *to = is_loopback(host) ? n->host : streams_host(n->world, host);
	if (!to)
		return -ENXIO;
	int i = handle_new(n, HANDLE_STREAM);
	if (i < 0)
		return i;
	struct stream *st = stream_new(n->world, port);
	if (st) {
		st->end[0].net = n;
		st->end[0].host = n->host;
		st->end[0].state = END_OPENING;
		st->end[1].host = to;
		n->handles[i].end = &st->end[0];
		if (end_send(&st->end[1], PIECE_OPEN, 0, NULL, 0))
			return i;
		stream_free(st);
	}
	n->handles[i].kind = HANDLE_FREE;
	return -ENOMEM;
}

/* A length drawn from the seed. */
static size_t chopped(struct end *e, size_t n)
{
	struct stream *st = e->stream;
	uint32_t chop = st->world->config.chop;
	if (n > 1 && chop && sim_random_below(&st->random, SIM_CERTAIN) < chop)
		return 1 + (size_t)sim_random_below(&st->random, n - 1);
	return n;
}

static long net_send(struct ctl_net *net, int handle, const void *data, size_t len)
{
	struct end *e = handle_at(net_of(net), handle, HANDLE_STREAM)->end, *to = end_other(e);
	size_t window = e->stream->world->config.window_bytes, used = to->flying + (to->tail - to->head);
	e->unread &= !e->error;
	if (e->error)
		return e->error;
	if (e->state != END_OPEN || used >= window || len == 0) {
		e->want_room = true;
		return len == 0 ? 0 : -EAGAIN;
	}
	size_t n = chopped(e, len < window - used ? len : window - used);
	return end_send(to, PIECE_DATA, 0, data, n) ? (long)n : -ENOMEM;
}

static long net_recv(struct ctl_net *net, int handle, void *data, size_t len)
{
	struct end *e = handle_at(net_of(net), handle, HANDLE_STREAM)->end, *from = end_other(e);
	size_t n = e->tail - e->head;
	if (n == 0) {
		e->unread = false;
		return e->error ? e->error : e->eof ? 0 : -EAGAIN;
	}
	n = chopped(e, len < n ? len : n);
	memcpy(data, e->in + e->head, n);
	e->head += n;
	if (from->want_room) {
		from->want_room = false;
		end_notify(from);
	}
	return (long)n;
}

static void on_keep_alive(void *ctx)
{
	struct end *e = ctx;
	e->keep_alive = 0;
	end_fail(e, -ETIMEDOUT);
}

/* The host lost its power: the other side's kernel retransmits without reply, then fails the stream. */
static void end_vanish(struct end *e)
{
	struct end *other = end_other(e);
	struct sim_streams *s = e->stream->world;
	e->vanished = true;
	if (other->net && !e->error && !other->keep_alive)
		other->keep_alive = sim_at(s->sim, sim_now(s->sim) + s->config.give_up_ns, on_keep_alive, other);
}

/* With unread data the other side receives a reset, as from a kernel. */
static void end_close(struct end *e, bool silent)
{
	struct stream *st = e->stream;
	struct end *to = end_other(e);
	bool unread = e->tail > e->head;
	uint64_t from = sim_now(st->world->sim) + (e->net ? e->net->linger_ns : 0);
	if (to->sent_until < from)
		to->sent_until = from;
	e->closed = true;
	e->net = NULL;
	if (end_other(e)->state == END_NONE) /* the remote end was never created */
		end_forget(end_other(e));
	else if (silent)
		end_vanish(e);
	else if (!e->error)
		end_send(end_other(e), unread || e->state == END_OPENING ? PIECE_RESET : PIECE_FIN, -ECONNRESET, NULL,
			 0);
	stream_let_go(st);
}

static void handle_close(struct net *n, struct handle *h)
{
	while (h->kind == HANDLE_LISTENER && h->waiting) {
		struct stream *st = h->waiting;
		h->waiting = st->next_waiting;
		if (!n->cut_off)
			end_send(&st->end[0], PIECE_RESET, -ECONNRESET, NULL, 0);
		st->end[1].error = -ECONNRESET;
		end_close(&st->end[1], n->cut_off);
	}
	if (h->kind == HANDLE_STREAM)
		end_close(h->end, n->cut_off);
	*h = (struct handle){.kind = HANDLE_FREE};
}

static void net_close(struct ctl_net *net, int handle)
{
	struct net *n = net_of(net);
	must(handle >= 0 && handle < n->handles_n && n->handles[handle].kind != HANDLE_FREE);
	handle_close(n, &n->handles[handle]);
}

static void net_wait(struct ctl_net *net, uint64_t until)
{
	(void)net;
	(void)until;
	must(!"a control thread that is stepped waits for nothing");
}

static void net_want(struct ctl_net *net, int handle, int read, int write)
{
	struct handle *h = handle_at(net_of(net), handle, HANDLE_STREAM);
	h->unwatched = !read;
	h->end->want_room = write != 0;
}

static int net_watch(struct ctl_net *net, int fd)
{
	(void)net;
	(void)fd; /* ports report by agent_env.ctl_due */
	return 0;
}

static void net_wake(struct ctl_net *net)
{
	struct net *n = net_of(net);
	n->wake(n->ctx);
}

static void net_destroy(struct ctl_net *net)
{
	struct net *n = net_of(net), **at = &n->world->nets;
	for (int i = 0; i < n->handles_n; i++)
		if (n->handles[i].kind != HANDLE_FREE)
			handle_close(n, &n->handles[i]);
	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	free(n->handles);
	free(n);
}

static const struct ctl_net_ops ops = {
	.listen = net_listen,
	.loopback = net_loopback,
	.accept = net_accept,
	.connect = net_connect,
	.send = net_send,
	.recv = net_recv,
	.close = net_close,
	.wait = net_wait,
	.want = net_want,
	.watch = net_watch,
	.wake = net_wake,
	.destroy = net_destroy,
};

struct ctl_net *sim_ctl_net_create(struct sim_streams *s, struct sim_host *host, void (*wake)(void *ctx), void *ctx)
{
	struct net *n = calloc(1, sizeof *n);
	if (!n)
		return NULL;
	streams_set_dark(s, host, false);
	*n = (struct net){.base = {&ops}, .world = s, .host = host, .wake = wake, .ctx = ctx, .next = s->nets};
	s->nets = n;
	return &n->base;
}

bool sim_ctl_net_ready(const struct ctl_net *net)
{
	const struct net *n = (const struct net *)(const void *)net;
	for (int i = 0; i < n->handles_n; i++) {
		const struct handle *h = &n->handles[i];
		if (h->kind == HANDLE_LISTENER && h->waiting)
			return true;
		if (h->kind == HANDLE_STREAM && !h->unwatched && (h->end->unread || h->end->tail > h->end->head))
			return true;
	}
	return false;
}

void sim_ctl_net_linger(struct ctl_net *net, uint64_t ns)
{
	net_of(net)->linger_ns = ns;
}

void sim_ctl_net_cut_off(struct ctl_net *net)
{
	struct net *n = net_of(net);
	n->cut_off = true;
	streams_set_dark(n->world, n->host, true);
}
