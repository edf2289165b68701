/* SPDX-License-Identifier: BSD-3-Clause */
/** Streams of a store's client: to a server by TCP or within the process, and which one a URL selects. The test's
 * thread. */
#include "control/store_stream.h"

#include "base/clock.h"
#include "control/store.h"
#include "control/url.h"
#include "fake_net.h"
#include "own_dir.h"

#include <errno.h>

static struct fake_world *world;
static struct ctl_net *net;

static void setup(void)
{
	world = fake_world_create();
	net = fake_net_create(world);
}

static void teardown(void)
{
	net->ops->destroy(net);
	fake_world_destroy(world);
}

TestSuite(store_stream, .init = setup, .fini = teardown);

Test(store_stream, tcp)
{
	char got[8];
	int l = net->ops->listen(net, "h", 1, -1);
	struct store_stream *s = store_stream_tcp(net, "h", 1);
	bool busy = false;
	cr_assert_eq(s->ops->open(s), 0);
	int h = net->ops->accept(net, l);
	cr_assert_geq(h, 0);
	cr_assert_eq(s->ops->send(s, "to", 2), 2);
	cr_assert_eq(net->ops->recv(net, h, got, sizeof got), 2);
	cr_assert_eq(s->ops->recv(s, got, sizeof got), -EAGAIN);
	net->ops->send(net, h, "back", 4);
	cr_assert_eq(s->ops->recv(s, got, sizeof got), 4);
	cr_assert_eq(memcmp(got, "back", 4), 0);
	cr_assert_eq(s->ops->step(s, 1, &busy), TIME_NEVER);
	cr_assert_not(busy);
	world->unacknowledged = 3;
	cr_assert_eq(s->ops->unacknowledged(s), 3);
	s->ops->want(s, true);
	cr_assert_eq(fake_world_unwatched(world), 0u);
	/* The end of an attempt closes its connection, and the next one has another. */
	s->ops->close(s);
	s->ops->close(s);
	cr_assert_eq(net->ops->recv(net, h, got, sizeof got), 0);
	cr_assert_eq(s->ops->open(s), 0);
	int again = net->ops->accept(net, l);
	cr_assert_geq(again, 0);
	s->ops->destroy(s);
	cr_assert_eq(net->ops->recv(net, again, got, sizeof got), 0);
}

Test(store_stream, tcp_without_a_server)
{
	struct store_stream *s = store_stream_tcp(net, "nowhere", 1);
	cr_assert_eq(s->ops->open(s), -ENXIO);
	s->ops->destroy(s);
	s = store_stream_tcp(net, "h", 1);
	cr_assert_eq(s->ops->open(s), 0);
	cr_assert_eq(s->ops->send(s, "x", 1), -ECONNREFUSED);
	s->ops->destroy(s);
}

Test(store_stream, within_the_process)
{
	struct store_server *server = store_server_create(net, -1);
	struct store_stream *s = store_stream_local(server);
	struct store_msg m = {.op = STORE_LOGIN, .timeout_ns = UINT64_MAX}, reply;
	uint8_t frame[STORE_FRAME_MAX];
	bool busy = false;
	size_t len = store_msg_encode(&m, frame);
	cr_assert_eq(s->ops->open(s), 0);
	cr_assert_eq(s->ops->send(s, frame, len), (long)len);
	cr_assert_eq(s->ops->recv(s, frame, sizeof frame), -EAGAIN);
	store_server_step(server, 1, &busy);
	long n = s->ops->recv(s, frame, sizeof frame);
	cr_assert_gt(n, 0);
	cr_assert_eq(store_msg_decode(frame, (size_t)n, &reply), n);
	cr_assert(reply.reply && reply.op == STORE_LOGIN && reply.status == STORE_OK);
	s->ops->destroy(s);
	store_server_destroy(server); /* it outlives its client's stream */
}

/* Each scheme has a stream of its own: by TCP it connects to host and port, as a file to the path. */
Test(store_stream, of_a_url)
{
	struct url url = {.scheme = URL_TCP, .port = 7};
	snprintf(url.host, sizeof url.host, "h");
	struct store_stream *s = store_stream_of(net, &url);
	int l = net->ops->listen(net, "h", 7, -1);
	cr_assert_eq(s->ops->open(s), 0);
	cr_assert_geq(net->ops->accept(net, l), 0);
	s->ops->destroy(s);
	own_dir_make();
	url.scheme = URL_FILE;
	snprintf(url.path, sizeof url.path, "%s/store", top);
	struct store_stream *file = store_stream_of(net, &url);
	url.scheme = URL_ETCD;
	snprintf(url.path, sizeof url.path, "h:2379");
	struct store_stream *etcd = store_stream_of(net, &url);
	cr_assert_null(file->ops->why);
	cr_assert_str_eq(etcd->ops->why(etcd), "");
	file->ops->destroy(file);
	etcd->ops->destroy(etcd);
	own_dir_remove();
}
