/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stream is two ends. What one end says travels to the other in a queue of pieces, in order; the first of them has
 * an event. A piece that finds its path cut tries again later.
 */
#include "nic/sim/ctl_net.h"

#include "base/must.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DELAY_NS     UINT64_C(20000)
#define JITTER_NS    UINT64_C(5000)
#define WINDOW_BYTES 65536u
#define RETRY_NS     UINT64_C(200000000)
#define GIVE_UP_NS   UINT64_C(15000000000)
#define BACKLOG_MAX  1024u /* connections that wait for accept() */
#define HANDLES_MAX  65536

enum piece_kind {
	PIECE_OPEN,   /* connect: asks for an end there */
	PIECE_OPENED, /* there is one */
	PIECE_DATA,
	PIECE_FIN,
	PIECE_RESET
};

struct piece {
	struct piece *next;
	enum piece_kind kind;
	int error; /* RESET */
	uint64_t at;
	size_t len;
	uint8_t bytes[];
};

enum end_state {
	END_NONE,    /* of a stream that is not accepted, or was closed */
	END_OPENING, /* connect() is under way */
	END_OPEN
};

struct end {
	struct stream *stream;
	struct net *net; /* NULL: closed, or not accepted yet */
	const struct sim_host *host;
	enum end_state state;
	int error;      /* told by every operation from now on */
	bool eof;       /* nothing comes after what is in `in` */
	bool unread;    /* its owner has not seen an error or the end yet */
	bool want_room; /* set_want(), or a send() that found none */
	bool closed;    /* by its owner */
	bool vanished;  /* its host lost its power */
	uint8_t *in;    /* in[head, tail) is to be read */
	size_t head, tail, cap;
	/* on its way to this end */
	struct piece *first, **last;
	size_t flying;
	uint64_t sent_until; /* when the last piece arrives */
	uint64_t stalled_at, retry_ns;
	sim_event event;
};

struct stream {
	struct sim_streams *world;
	struct sim_random random;
	struct end end[2]; /* who connected, and the other */
	uint16_t port;
	struct stream *next_waiting; /* for accept() */
	struct stream *next, **prev; /* of the world */
};

enum handle_kind { HANDLE_FREE, HANDLE_LISTENER, HANDLE_STREAM };

struct handle {
	enum handle_kind kind;
	uint16_t port; /* LISTENER */
	unsigned waiting_n;
	struct stream *waiting, **waiting_last;
	struct end *end; /* STREAM */
};

struct net {
	struct ctl_net base;
	struct sim_streams *world;
	struct sim_host *host;
	void (*wake)(void *ctx);
	void *ctx;
	bool cut_off;
	struct handle *handles;
	int handles_n;
	struct net *next;
};

struct sim_streams {
	struct sim *sim;
	struct sim_streams_config config;
	struct net *nets;
	struct stream *streams;
	uint64_t made;
	uint64_t *cut;                     /* a bit for each pair of hosts; NULL: none was ever cut */
	uint64_t dark[SIM_HOSTS_MAX / 64]; /* hosts without power */
};

/* ---- the world ---- */

struct sim_streams *sim_streams_create(struct sim *sim, const struct sim_streams_config *config)
{
	struct sim_streams *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->sim = sim;
	if (config)
		s->config = *config;
	if (!s->config.delay_ns)
		s->config.delay_ns = DELAY_NS;
	if (!s->config.jitter_ns)
		s->config.jitter_ns = JITTER_NS;
	if (!s->config.window_bytes)
		s->config.window_bytes = WINDOW_BYTES;
	if (!s->config.retry_ns)
		s->config.retry_ns = RETRY_NS;
	if (!s->config.give_up_ns)
		s->config.give_up_ns = GIVE_UP_NS;
	return s;
}

static void pieces_drop(struct end *e)
{
	sim_cancel(e->stream->world->sim, e->event);
	e->event = 0;
	while (e->first) {
		struct piece *p = e->first;
		e->first = p->next;
		free(p);
	}
	e->last = &e->first;
	e->flying = 0;
}

static void stream_free(struct stream *st)
{
	for (unsigned i = 0; i < 2; i++) {
		pieces_drop(&st->end[i]);
		free(st->end[i].in);
	}
	*st->prev = st->next;
	if (st->next)
		st->next->prev = st->prev;
	free(st);
}

void sim_streams_destroy(struct sim_streams *s)
{
	if (!s)
		return;
	must(!s->nets);
	while (s->streams)
		stream_free(s->streams);
	free(s->cut);
	free(s);
}

static size_t pair_bit(const struct sim_host *from, const struct sim_host *to)
{
	return (size_t)sim_host_number(from) * SIM_HOSTS_MAX + sim_host_number(to);
}

void sim_streams_cut(struct sim_streams *s, const struct sim_host *from, const struct sim_host *to, bool cut)
{
	size_t bit = pair_bit(from, to);
	if (!s->cut && !(s->cut = calloc((size_t)SIM_HOSTS_MAX * SIM_HOSTS_MAX / 64, sizeof *s->cut)))
		return;
	if (cut)
		s->cut[bit / 64] |= UINT64_C(1) << bit % 64;
	else
		s->cut[bit / 64] &= ~(UINT64_C(1) << bit % 64);
}

void sim_streams_heal(struct sim_streams *s)
{
	free(s->cut);
	s->cut = NULL;
}

static bool is_cut(const struct sim_streams *s, const struct sim_host *from, const struct sim_host *to)
{
	size_t there = pair_bit(from, to), back = pair_bit(to, from);
	return s->cut && ((s->cut[there / 64] >> there % 64 & 1) || (s->cut[back / 64] >> back % 64 & 1));
}

static bool is_dark(const struct sim_streams *s, const struct sim_host *host)
{
	unsigned i = sim_host_number(host);
	return s->dark[i / 64] >> i % 64 & 1;
}

static void set_dark(struct sim_streams *s, const struct sim_host *host, bool dark)
{
	unsigned i = sim_host_number(host);
	s->dark[i / 64] = (s->dark[i / 64] & ~(UINT64_C(1) << i % 64)) | (uint64_t)dark << i % 64;
}

static struct sim_host *host_named(const struct sim_streams *s, const char *name)
{
	unsigned n = sim_hosts(s->sim);
	for (unsigned i = 0; i < n; i++)
		if (strcmp(sim_host_name(sim_host(s->sim, i)), name) == 0)
			return sim_host(s->sim, i);
	return NULL;
}

/* ---- streams ---- */

static struct end *other(struct end *e)
{
	return &e->stream->end[e == &e->stream->end[0]];
}

static void tell(struct end *e)
{
	if (e->net && !e->net->cut_off)
		e->net->wake(e->net->ctx);
}

static void stream_let_go(struct stream *st)
{
	const struct end *a = &st->end[0], *b = &st->end[1];
	/* The other end may wait to be accepted. */
	if (!a->net && !b->net && !a->first && !b->first && (b->closed || b->state == END_NONE))
		stream_free(st);
}

static struct stream *stream_new(struct sim_streams *s, uint16_t port)
{
	struct stream *st = calloc(1, sizeof *st);
	if (!st)
		return NULL;
	st->world = s;
	st->port = port;
	for (unsigned i = 0; i < 2; i++) {
		st->end[i].stream = st;
		st->end[i].last = &st->end[i].first;
	}
	sim_random_init(&st->random, sim_seed(s->sim), "ctl stream", s->made++);
	st->next = s->streams;
	st->prev = &s->streams;
	if (st->next)
		st->next->prev = &st->next;
	s->streams = st;
	return st;
}

static void on_piece(void *ctx);

static void expect(struct end *to)
{
	struct sim *sim = to->stream->world->sim;
	uint64_t at = to->first->at, now = sim_now(sim);
	to->event = sim_at(sim, at > now ? at : now, on_piece, to);
}

/* A piece on its way to an end. Without memory the stream is broken at both. */
static bool send_piece(struct end *to, enum piece_kind kind, int error, const void *bytes, size_t len)
{
	struct stream *st = to->stream;
	const struct sim_streams_config *c = &st->world->config;
	struct piece *p = malloc(sizeof *p + len);
	if (!p)
		return false;
	uint64_t at = sim_now(st->world->sim) + c->delay_ns + sim_random_below(&st->random, c->jitter_ns + 1);
	if (at < to->sent_until)
		at = to->sent_until;
	to->sent_until = at;
	*p = (struct piece){.kind = kind, .error = error, .at = at, .len = len};
	if (len)
		memcpy(p->bytes, bytes, len);
	*to->last = p;
	to->last = &p->next;
	to->flying += len;
	if (to->first == p)
		expect(to);
	return true;
}

static void end_fail(struct end *e, int error)
{
	if (e->error || e->closed)
		return;
	e->error = error;
	e->unread = true;
	tell(e);
}

/* ---- arrival ---- */

static bool take_data(struct end *e, const struct piece *p)
{
	if (e->head) {
		memmove(e->in, e->in + e->head, e->tail - e->head);
		e->tail -= e->head;
		e->head = 0;
	}
	if (e->tail + p->len > e->cap) {
		size_t cap = e->cap ? e->cap : 1024;
		while (cap < e->tail + p->len)
			cap *= 2;
		uint8_t *in = realloc(e->in, cap);
		if (!in)
			return false;
		e->in = in;
		e->cap = cap;
	}
	memcpy(e->in + e->tail, p->bytes, p->len);
	e->tail += p->len;
	return true;
}

static struct handle *listener_of(const struct sim_streams *s, const struct sim_host *host, uint16_t port,
				  struct net **net)
{
	for (struct net *n = s->nets; n; n = n->next) {
		if (n->host != host || n->cut_off)
			continue;
		for (int i = 0; i < n->handles_n; i++)
			if (n->handles[i].kind == HANDLE_LISTENER && n->handles[i].port == port) {
				*net = n;
				return &n->handles[i];
			}
	}
	return NULL;
}

static void asked_to_open(struct end *e)
{
	struct stream *st = e->stream;
	struct net *net;
	struct handle *h = listener_of(st->world, e->host, st->port, &net);
	if (!h || h->waiting_n == BACKLOG_MAX) {
		e->closed = true;
		send_piece(other(e), PIECE_RESET, -ECONNREFUSED, NULL, 0);
		return;
	}
	e->state = END_OPEN;
	st->next_waiting = NULL;
	*h->waiting_last = st;
	h->waiting_last = &st->next_waiting;
	h->waiting_n++;
	send_piece(other(e), PIECE_OPENED, 0, NULL, 0);
	net->wake(net->ctx);
}

static void arrive(struct end *e, const struct piece *p)
{
	if (p->kind == PIECE_OPEN) {
		asked_to_open(e);
		return;
	}
	if (p->kind == PIECE_RESET) {
		end_fail(e, p->error);
		return;
	}
	if (e->closed || e->vanished) { /* nobody is there any more: a reset, but for a FIN */
		if (p->kind == PIECE_DATA)
			send_piece(other(e), PIECE_RESET, -ECONNRESET, NULL, 0);
		return;
	}
	if (p->kind == PIECE_OPENED)
		e->state = END_OPEN;
	else if (p->kind == PIECE_FIN)
		e->eof = e->unread = true;
	else if (!take_data(e, p))
		end_fail(e, -ENOMEM);
	tell(e);
}

/* The path is cut, or nobody answers at the other end of it: later once more, or never. */
static void stall(struct end *to)
{
	const struct sim_streams_config *c = &to->stream->world->config;
	uint64_t now = sim_now(to->stream->world->sim);
	if (!to->stalled_at) {
		to->stalled_at = now;
		to->retry_ns = c->retry_ns;
	}
	if (now - to->stalled_at >= c->give_up_ns) {
		pieces_drop(to);
		end_fail(other(to), -ETIMEDOUT);
		stream_let_go(to->stream);
		return;
	}
	to->first->at = now + to->retry_ns;
	to->retry_ns *= 2;
	expect(to);
}

static void on_piece(void *ctx)
{
	struct end *to = ctx;
	struct stream *st = to->stream;
	uint64_t now = sim_now(st->world->sim);
	to->event = 0;
	if (is_cut(st->world, other(to)->host, to->host) || is_dark(st->world, to->host)) {
		stall(to);
		return;
	}
	to->stalled_at = 0;
	while (to->first && to->first->at <= now) {
		struct piece *p = to->first;
		to->first = p->next;
		if (!to->first)
			to->last = &to->first;
		to->flying -= p->len;
		arrive(to, p);
		free(p);
	}
	if (to->first)
		expect(to);
	stream_let_go(st);
}

/* ---- the operations ---- */

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
		const struct sim_host *named = host_named(n->world, host);
		if (named != n->host)
			return named ? -EADDRNOTAVAIL : -ENXIO;
	}
	if (listener_of(n->world, n->host, port, &there))
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
	return host_named(net_of(net)->world, host) || strcmp(host, "0.0.0.0") == 0 ? 0 : -ENXIO;
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
	struct sim_host *to = is_loopback(host) ? n->host : host_named(n->world, host);
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
		if (send_piece(&st->end[1], PIECE_OPEN, 0, NULL, 0))
			return i;
		stream_free(st);
	}
	n->handles[i].kind = HANDLE_FREE;
	return -ENOMEM;
}

/* How much of it, as the seed says. */
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
	struct end *e = handle_at(net_of(net), handle, HANDLE_STREAM)->end, *to = other(e);
	size_t window = e->stream->world->config.window_bytes, used = to->flying + (to->tail - to->head);
	e->unread &= !e->error;
	if (e->error)
		return e->error;
	if (e->state != END_OPEN || used >= window || len == 0) {
		e->want_room = true;
		return len == 0 ? 0 : -EAGAIN;
	}
	size_t n = chopped(e, len < window - used ? len : window - used);
	return send_piece(to, PIECE_DATA, 0, data, n) ? (long)n : -ENOMEM;
}

static long net_recv(struct ctl_net *net, int handle, void *data, size_t len)
{
	struct end *e = handle_at(net_of(net), handle, HANDLE_STREAM)->end, *from = other(e);
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
		tell(from);
	}
	return (long)n;
}

/* With something unread the other side is told by a reset, as a kernel does. */
static void end_close(struct end *e, bool silent)
{
	struct stream *st = e->stream;
	bool unread = e->tail > e->head;
	e->closed = true;
	e->vanished |= silent;
	e->net = NULL;
	if (other(e)->state == END_NONE) /* nobody has heard of it */
		pieces_drop(other(e));
	else if (!silent && !e->error)
		send_piece(other(e), unread || e->state == END_OPENING ? PIECE_RESET : PIECE_FIN, -ECONNRESET, NULL, 0);
	stream_let_go(st);
}

static void handle_close(struct net *n, struct handle *h)
{
	while (h->kind == HANDLE_LISTENER && h->waiting) {
		struct stream *st = h->waiting;
		h->waiting = st->next_waiting;
		if (!n->cut_off)
			send_piece(&st->end[0], PIECE_RESET, -ECONNRESET, NULL, 0);
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
	must(!"a control core that is stepped waits for nothing");
}

static void net_want_write(struct ctl_net *net, int handle, int on)
{
	handle_at(net_of(net), handle, HANDLE_STREAM)->end->want_room = on != 0;
}

static int net_watch(struct ctl_net *net, int fd)
{
	(void)net;
	(void)fd; /* ports tell by agent_env.ctl_due */
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
	.want_write = net_want_write,
	.watch = net_watch,
	.wake = net_wake,
	.destroy = net_destroy,
};

struct ctl_net *sim_ctl_net_create(struct sim_streams *s, struct sim_host *host, void (*wake)(void *ctx), void *ctx)
{
	struct net *n = calloc(1, sizeof *n);
	if (!n)
		return NULL;
	set_dark(s, host, false);
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
		if (h->kind == HANDLE_STREAM && (h->end->unread || h->end->tail > h->end->head))
			return true;
	}
	return false;
}

void sim_ctl_net_cut_off(struct ctl_net *net)
{
	struct net *n = net_of(net);
	n->cut_off = true;
	set_dark(n->world, n->host, true);
}
