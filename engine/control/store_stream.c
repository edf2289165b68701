/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams of the store's client to a server: by TCP, or within the process. Control thread. */
#include "control/store_stream.h"

#include "base/clock.h"
#include "control/store.h"
#include "control/url.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define HANDLE_NONE (-1)

struct tcp {
	struct store_stream base;
	struct ctl_net *net;
	int handle; /* of `net` */
	uint16_t port;
	char host[URL_HOST_MAX];
};

static int tcp_open(struct store_stream *s)
{
	struct tcp *t = (struct tcp *)s;
	int handle = t->net->ops->connect(t->net, t->host, t->port);
	if (handle >= 0)
		t->handle = handle;
	return handle < 0 ? handle : 0;
}

static void tcp_close(struct store_stream *s)
{
	struct tcp *t = (struct tcp *)s;
	if (t->handle != HANDLE_NONE)
		t->net->ops->close(t->net, t->handle);
	t->handle = HANDLE_NONE;
}

static long tcp_send(struct store_stream *s, const void *data, size_t len)
{
	struct tcp *t = (struct tcp *)s;
	return t->net->ops->send(t->net, t->handle, data, len);
}

static long tcp_recv(struct store_stream *s, void *data, size_t len)
{
	struct tcp *t = (struct tcp *)s;
	return t->net->ops->recv(t->net, t->handle, data, len);
}

static long tcp_unacknowledged(struct store_stream *s)
{
	struct tcp *t = (struct tcp *)s;
	return t->net->ops->unacknowledged ? t->net->ops->unacknowledged(t->net, t->handle) : -ENOTSUP;
}

static void tcp_want(struct store_stream *s, bool write)
{
	struct tcp *t = (struct tcp *)s;
	t->net->ops->want(t->net, t->handle, 1, write);
}

static uint64_t no_step(struct store_stream *s, uint64_t now, bool *busy)
{
	(void)s;
	(void)now;
	(void)busy;
	return TIME_NEVER;
}

static void stream_free(struct store_stream *s)
{
	s->ops->close(s);
	free(s);
}

struct store_stream *store_stream_tcp(struct ctl_net *net, const char *host, uint16_t port)
{
	static const struct store_stream_ops ops = {.open = tcp_open,
						    .close = tcp_close,
						    .send = tcp_send,
						    .recv = tcp_recv,
						    .unacknowledged = tcp_unacknowledged,
						    .want = tcp_want,
						    .step = no_step,
						    .destroy = stream_free};
	struct tcp *t = calloc(1, sizeof *t);
	if (!t)
		return NULL;
	t->base.ops = &ops;
	t->net = net;
	t->port = port;
	t->handle = HANDLE_NONE;
	snprintf(t->host, sizeof t->host, "%s", host);
	return &t->base;
}

struct local {
	struct store_stream base;
	struct store_server *server;
};

static int local_open(struct store_stream *s)
{
	(void)s;
	return 0;
}

static void local_close(struct store_stream *s)
{
	(void)s;
}

static long local_send(struct store_stream *s, const void *data, size_t len)
{
	return store_server_local_send(((struct local *)s)->server, data, len);
}

static long local_recv(struct store_stream *s, void *data, size_t len)
{
	return store_server_local_recv(((struct local *)s)->server, data, len);
}

static void local_want(struct store_stream *s, bool write)
{
	(void)s;
	(void)write;
}

struct store_stream *store_stream_local(struct store_server *server)
{
	static const struct store_stream_ops ops = {.open = local_open,
						    .close = local_close,
						    .send = local_send,
						    .recv = local_recv,
						    .want = local_want,
						    .step = no_step,
						    .destroy = stream_free};
	struct local *l = calloc(1, sizeof *l);
	if (!l)
		return NULL;
	l->base.ops = &ops;
	l->server = server;
	return &l->base;
}

struct store_stream *store_stream_of(struct ctl_net *net, const struct url *url)
{
	return url->scheme == URL_TCP    ? store_stream_tcp(net, url->host, url->port)
	       : url->scheme == URL_FILE ? store_stream_threaded_file(net, url->path)
					 : store_stream_etcd(net, url->path);
}
