/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stream has two ends. Bytes of one end go to the other in a queue of pieces, in order; the first of them has
 * an event. A piece that finds its path cut tries again later. The thread of the simulated world.
 */
#include "apps/sim/streams.h"

#include "base/must.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DELAY_NS     UINT64_C(20000)
#define JITTER_NS    UINT64_C(5000)
#define WINDOW_BYTES 65536u
#define RETRY_NS     UINT64_C(200000000)
#define GIVE_UP_NS   UINT64_C(10000000000) /* as engine/control/net_os.c has the kernel do */

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

void end_forget(struct end *e)
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

void stream_free(struct stream *st)
{
	for (unsigned i = 0; i < 2; i++) {
		end_forget(&st->end[i]);
		sim_cancel(st->world->sim, st->end[i].keep_alive);
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
	if (!s->cut)
		s->cut = calloc((size_t)SIM_HOSTS_MAX * SIM_HOSTS_MAX / 64, sizeof *s->cut);
	must(s->cut);
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

void streams_set_dark(struct sim_streams *s, const struct sim_host *host, bool dark)
{
	unsigned i = sim_host_number(host);
	s->dark[i / 64] = (s->dark[i / 64] & ~(UINT64_C(1) << i % 64)) | (uint64_t)dark << i % 64;
}

struct sim_host *streams_host(const struct sim_streams *s, const char *name)
{
	unsigned n = sim_hosts(s->sim);
	for (unsigned i = 0; i < n; i++)
		if (strcmp(sim_host_name(sim_host(s->sim, i)), name) == 0)
			return sim_host(s->sim, i);
	return NULL;
}

/* ---- streams ---- */

void end_notify(struct end *e)
{
	if (e->net && !e->net->cut_off)
		e->net->wake(e->net->ctx);
}

void stream_let_go(struct stream *st)
{
	const struct end *a = &st->end[0], *b = &st->end[1];
	/* The other end may wait to be accepted. */
	if (!a->net && !b->net && !a->first && !b->first && (b->closed || b->state == END_NONE))
		stream_free(st);
}

struct stream *stream_new(struct sim_streams *s, uint16_t port)
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
bool end_send(struct end *to, enum piece_kind kind, int error, const void *bytes, size_t len)
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

void end_fail(struct end *e, int error)
{
	if (e->error || e->closed)
		return;
	e->error = error;
	e->unread = true;
	end_notify(e);
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

struct handle *streams_listener(const struct sim_streams *s, const struct sim_host *host, uint16_t port,
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

static void requested_to_open(struct end *e)
{
	struct stream *st = e->stream;
	struct net *net;
	struct handle *h = streams_listener(st->world, e->host, st->port, &net);
	if (!h || h->waiting_n == BACKLOG_MAX) {
		e->closed = true;
		end_send(end_other(e), PIECE_RESET, -ECONNREFUSED, NULL, 0);
		return;
	}
	e->state = END_OPEN;
	st->next_waiting = NULL;
	*h->waiting_last = st;
	h->waiting_last = &st->next_waiting;
	h->waiting_n++;
	end_send(end_other(e), PIECE_OPENED, 0, NULL, 0);
	net->wake(net->ctx);
}

static void arrive(struct end *e, const struct piece *p)
{
	if (p->kind == PIECE_OPEN) {
		requested_to_open(e);
		return;
	}
	if (p->kind == PIECE_RESET) {
		end_fail(e, p->error);
		return;
	}
	if (e->closed || e->vanished) { /* nobody is there any more: a reset, but for a FIN */
		if (p->kind == PIECE_DATA)
			end_send(end_other(e), PIECE_RESET, -ECONNRESET, NULL, 0);
		return;
	}
	if (p->kind == PIECE_OPENED)
		e->state = END_OPEN;
	else if (p->kind == PIECE_FIN)
		e->eof = e->unread = true;
	else if (!take_data(e, p))
		end_fail(e, -ENOMEM);
	end_notify(e);
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
		end_forget(to);
		end_fail(end_other(to), -ETIMEDOUT);
		stream_let_go(to->stream);
		return;
	}
	uint64_t last = to->stalled_at + c->give_up_ns;
	to->first->at = now + to->retry_ns < last ? now + to->retry_ns : last;
	to->retry_ns *= 2;
	expect(to);
}

static void on_piece(void *ctx)
{
	struct end *to = ctx;
	struct stream *st = to->stream;
	uint64_t now = sim_now(st->world->sim);
	to->event = 0;
	if (is_cut(st->world, end_other(to)->host, to->host) || is_dark(st->world, to->host)) {
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
