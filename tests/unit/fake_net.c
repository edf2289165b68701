/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENDS_MAX 1024
#define PIPE_MAX 65536 /* bytes on their way in one direction */
#define NONE     (-1)

enum end_kind { END_FREE, END_LISTENER, END_STREAM };

struct end {
	enum end_kind kind;
	struct fake_net *owner; /* NULL: waits to be accepted */
	char host[64];
	uint16_t port;
	int listener; /* of a stream that waits to be accepted */
	int peer;     /* other end of the stream, NONE when closed */
	int error;    /* told once by send and recv */
	bool unwatched;
	size_t len;
	uint8_t *in;
};

struct fake_net {
	struct ctl_net base;
	struct fake_world *world;
};

static uint64_t world_now(void *ctx)
{
	return ((struct fake_world *)ctx)->now;
}

struct fake_world *fake_world_create(void)
{
	struct fake_world *w = calloc(1, sizeof *w);
	w->now = 1000000000;
	w->clock = (struct clock_source){world_now, w};
	w->ends = calloc(ENDS_MAX, sizeof(struct end));
	return w;
}

static struct end *end_at(struct fake_world *w, int i)
{
	return (struct end *)w->ends + i;
}

static int end_new(struct fake_world *w, enum end_kind kind, struct fake_net *owner)
{
	for (int i = 0; i < ENDS_MAX; i++) {
		struct end *e = end_at(w, i);
		if (e->kind != END_FREE)
			continue;
		*e = (struct end){.kind = kind, .owner = owner, .listener = NONE, .peer = NONE};
		e->in = malloc(PIPE_MAX);
		return i;
	}
	return -EMFILE;
}

static void end_close(struct fake_world *w, int i)
{
	struct end *e = end_at(w, i);
	if (e->kind == END_FREE)
		return;
	if (e->peer != NONE)
		end_at(w, e->peer)->peer = NONE;
	free(e->in);
	bool listener = e->kind == END_LISTENER;
	*e = (struct end){.kind = END_FREE};
	for (int j = 0; listener && j < ENDS_MAX; j++) {
		struct end *waiting = end_at(w, j);
		if (waiting->kind == END_STREAM && !waiting->owner && waiting->listener == i) {
			if (waiting->peer != NONE)
				end_at(w, waiting->peer)->error = -ECONNRESET;
			end_close(w, j);
		}
	}
}

void fake_world_destroy(struct fake_world *w)
{
	for (int i = 0; i < ENDS_MAX; i++)
		end_close(w, i);
	free(w->ends);
	free(w);
}

static struct fake_world *world_of(struct ctl_net *net)
{
	return ((struct fake_net *)net)->world;
}

static int listener_find(struct fake_world *w, const char *host, uint16_t port)
{
	for (int i = 0; i < ENDS_MAX; i++) {
		struct end *e = end_at(w, i);
		if (e->kind == END_LISTENER && e->port == port && strcmp(e->host, host) == 0)
			return i;
	}
	return NONE;
}

static int fake_listen(struct ctl_net *net, const char *host, uint16_t port, int adopt_fd)
{
	struct fake_world *w = world_of(net);
	(void)adopt_fd;
	if (listener_find(w, host, port) != NONE)
		return -EADDRINUSE;
	int i = end_new(w, END_LISTENER, (struct fake_net *)net);
	if (i >= 0) {
		snprintf(end_at(w, i)->host, sizeof end_at(w, i)->host, "%s", host);
		end_at(w, i)->port = port;
	}
	return i;
}

static int fake_loopback(struct ctl_net *net, const char *host, int adopt_fd)
{
	(void)net;
	(void)adopt_fd;
	if (strcmp(host, "nowhere") == 0)
		return -ENXIO;
	return strncmp(host, "127.", 4) == 0 || strcmp(host, "localhost") == 0;
}

static int fake_accept(struct ctl_net *net, int listener)
{
	struct fake_world *w = world_of(net);
	for (int i = 0; i < ENDS_MAX; i++) {
		struct end *e = end_at(w, i);
		if (e->kind == END_STREAM && !e->owner && e->listener == listener) {
			if (w->accept_error)
				return w->accept_error;
			e->owner = (struct fake_net *)net;
			return i;
		}
	}
	return -EAGAIN;
}

static int fake_connect(struct ctl_net *net, const char *host, uint16_t port)
{
	struct fake_world *w = world_of(net);
	int listener = listener_find(w, host, port);
	if (strcmp(host, "nowhere") == 0)
		return -ENXIO;
	int i = end_new(w, END_STREAM, (struct fake_net *)net);
	if (i < 0)
		return i;
	if (listener == NONE) {
		end_at(w, i)->error = -ECONNREFUSED;
		return i;
	}
	int j = end_new(w, END_STREAM, NULL);
	if (j < 0) {
		end_close(w, i);
		return j;
	}
	end_at(w, j)->listener = listener;
	end_at(w, j)->peer = i;
	end_at(w, i)->peer = j;
	return i;
}

static long fake_send(struct ctl_net *net, int handle, const void *data, size_t len)
{
	struct fake_world *w = world_of(net);
	struct end *e = end_at(w, handle);
	if (e->error)
		return e->error;
	if (e->peer == NONE)
		return -EPIPE;
	struct end *to = end_at(w, e->peer);
	size_t n = len < PIPE_MAX - to->len ? len : PIPE_MAX - to->len;
	if (w->chunk && n > w->chunk)
		n = w->chunk;
	if (n == 0)
		return -EAGAIN;
	memcpy(to->in + to->len, data, n);
	to->len += n;
	return (long)n;
}

static long fake_recv(struct ctl_net *net, int handle, void *data, size_t len)
{
	struct end *e = end_at(world_of(net), handle);
	size_t n = len < e->len ? len : e->len;
	if (e->error)
		return e->error;
	if (n == 0)
		return e->peer == NONE ? 0 : -EAGAIN;
	memcpy(data, e->in, n);
	memmove(e->in, e->in + n, e->len - n);
	e->len -= n;
	return (long)n;
}

unsigned fake_world_unwatched(struct fake_world *w)
{
	unsigned n = 0;
	for (int i = 0; i < ENDS_MAX; i++)
		n += end_at(w, i)->kind == END_STREAM && end_at(w, i)->unwatched;
	return n;
}

static void fake_close(struct ctl_net *net, int handle)
{
	end_close(world_of(net), handle);
}

static void fake_wait(struct ctl_net *net, uint64_t until)
{
	(void)net;
	(void)until;
}

static void fake_want(struct ctl_net *net, int handle, int read, int write)
{
	(void)write;
	end_at(world_of(net), handle)->unwatched = !read;
}

static int fake_watch(struct ctl_net *net, int fd)
{
	(void)net;
	(void)fd;
	return 0;
}

static void fake_wake(struct ctl_net *net)
{
	(void)net;
}

static void fake_destroy(struct ctl_net *net)
{
	struct fake_world *w = world_of(net);
	for (int i = 0; i < ENDS_MAX; i++) {
		if (end_at(w, i)->kind != END_FREE && end_at(w, i)->owner == (struct fake_net *)net)
			end_close(w, i);
	}
	free(net);
}

static const struct ctl_net_ops fake_ops = {
	.listen = fake_listen,
	.loopback = fake_loopback,
	.accept = fake_accept,
	.connect = fake_connect,
	.send = fake_send,
	.recv = fake_recv,
	.close = fake_close,
	.wait = fake_wait,
	.want = fake_want,
	.watch = fake_watch,
	.wake = fake_wake,
	.destroy = fake_destroy,
};

struct ctl_net *fake_net_create(struct fake_world *w)
{
	struct fake_net *n = calloc(1, sizeof *n);
	n->base.ops = &fake_ops;
	n->world = w;
	return &n->base;
}
