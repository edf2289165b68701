/* SPDX-License-Identifier: BSD-3-Clause */
/* Simulated byte streams between hosts. The test's thread. */
#include "apps/sim/ctl_net.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)
#define LONG   (SECOND / 100) /* more than a few round trips */

struct place {
	struct sim_host *host;
	struct ctl_net *net;
	unsigned woken;
};

struct fixture {
	struct sim *sim;
	struct sim_streams *streams;
	struct place place[3];
};

static void wake(void *ctx)
{
	((struct place *)ctx)->woken++;
}

static void process(struct fixture *b, unsigned i)
{
	b->place[i].net = sim_ctl_net_create(b->streams, b->place[i].host, wake, &b->place[i]);
	cr_assert(b->place[i].net);
}

static void setup(struct fixture *b, const struct sim_streams_config *streams)
{
	struct sim_config config;
	struct sim_host_config host;
	struct nic_err err = {.text = ""};
	memset(b, 0, sizeof *b);
	sim_config_init(&config, 5);
	b->sim = sim_create(&config, &err);
	cr_assert(b->sim, "%s", err.text);
	b->streams = sim_streams_create(b->sim, streams);
	for (unsigned i = 0; i < 3; i++) {
		sim_host_config_init(&host);
		snprintf(host.name, sizeof host.name, "h%u", i);
		b->place[i].host = sim_host_add(b->sim, &host, &err);
		cr_assert(b->place[i].host, "%s", err.text);
		process(b, i);
	}
}

static void killed(struct fixture *b, unsigned i)
{
	b->place[i].net->ops->destroy(b->place[i].net);
	b->place[i].net = NULL;
}

static void teardown(struct fixture *b)
{
	for (unsigned i = 0; i < 3; i++)
		if (b->place[i].net)
			killed(b, i);
	sim_streams_destroy(b->streams);
	sim_destroy(b->sim);
}

static void pass_time(struct fixture *b, uint64_t ns)
{
	cr_assert(sim_run_until(b->sim, sim_now(b->sim) + ns));
}

static int listening(struct fixture *b, unsigned i)
{
	struct ctl_net *net = b->place[i].net;
	int l = net->ops->listen(net, sim_host_name(b->place[i].host), 7000, -1);
	cr_assert_geq(l, 0);
	return l;
}

static int connecting(struct fixture *b, unsigned from, unsigned to)
{
	struct ctl_net *net = b->place[from].net;
	int h = net->ops->connect(net, sim_host_name(b->place[to].host), 7000);
	cr_assert_geq(h, 0);
	return h;
}

static int accepted(struct fixture *b, unsigned i, int l)
{
	return b->place[i].net->ops->accept(b->place[i].net, l);
}

static long put(struct fixture *b, unsigned i, int h, const void *data, size_t len)
{
	return b->place[i].net->ops->send(b->place[i].net, h, data, len);
}

static long get(struct fixture *b, unsigned i, int h, void *data, size_t len)
{
	return b->place[i].net->ops->recv(b->place[i].net, h, data, len);
}

static void hang_up(struct fixture *b, unsigned i, int h)
{
	b->place[i].net->ops->close(b->place[i].net, h);
}

/* A stream from 0 to 1: its handles. */
static void connected(struct fixture *b, int *a, int *z)
{
	int l = listening(b, 1);
	*a = connecting(b, 0, 1);
	cr_assert_eq(put(b, 0, *a, "x", 1), -EAGAIN, "not before it is there");
	cr_assert_eq(accepted(b, 1, l), -EAGAIN);
	pass_time(b, LONG);
	cr_assert_gt(b->place[0].woken, 0);
	cr_assert_gt(b->place[1].woken, 0);
	cr_assert(sim_ctl_net_ready(b->place[1].net));
	*z = accepted(b, 1, l);
	cr_assert_geq(*z, 0);
	cr_assert_eq(accepted(b, 1, l), -EAGAIN);
	cr_assert(!sim_ctl_net_ready(b->place[1].net));
	hang_up(b, 1, l);
}

Test(streams, bytes_arrive_in_order_whatever_is_cut_where)
{
	const struct sim_streams_config config = {.chop = SIM_CERTAIN / 2, .window_bytes = 1000};
	struct fixture b;
	int a, z;
	unsigned sent = 0, seen = 0, parts = 0;
	setup(&b, &config);
	connected(&b, &a, &z);
	while (seen < 100000) {
		uint8_t bytes[700];
		long n;
		for (unsigned i = 0; i < sizeof bytes; i++)
			bytes[i] = (uint8_t)((sent + i) * 7 >> 3);
		if (sent < 100000 && (n = put(&b, 0, a, bytes, sizeof bytes)) > 0) {
			sent += (unsigned)n;
			parts += n < (long)sizeof bytes;
		}
		while ((n = get(&b, 1, z, bytes, sizeof bytes)) > 0)
			for (long i = 0; i < n; i++, seen++)
				cr_assert_eq(bytes[i], (uint8_t)(seen * 7 >> 3));
		cr_assert_eq(n, -EAGAIN);
		pass_time(&b, 10000);
		cr_assert_leq(sent - seen, 1000, "the window");
	}
	cr_assert_gt(parts, 10);
	teardown(&b);
}

Test(streams, a_full_window_opens_with_reading)
{
	struct fixture b;
	static uint8_t bytes[200000];
	int a, z;
	setup(&b, NULL);
	connected(&b, &a, &z);
	long n = put(&b, 0, a, bytes, sizeof bytes);
	cr_assert_eq(n, 65536);
	cr_assert_eq(put(&b, 0, a, bytes, 1), -EAGAIN);
	pass_time(&b, LONG);
	cr_assert_eq(put(&b, 0, a, bytes, 1), -EAGAIN, "it is not read yet");
	b.place[0].woken = 0;
	cr_assert_eq(get(&b, 1, z, bytes, 100), 100);
	cr_assert_gt(b.place[0].woken, 0);
	cr_assert_eq(put(&b, 0, a, bytes, sizeof bytes), 100);
	teardown(&b);
}

Test(streams, ends)
{
	struct fixture b;
	char c;
	int a, z;
	setup(&b, NULL);
	connected(&b, &a, &z);
	cr_assert_eq(put(&b, 0, a, "bye", 3), 3);
	hang_up(&b, 0, a);
	pass_time(&b, LONG);
	cr_assert_eq(get(&b, 1, z, &c, 1), 1);
	cr_assert_eq(get(&b, 1, z, &c, 1), 1);
	cr_assert_eq(get(&b, 1, z, &c, 1), 1);
	cr_assert_eq(get(&b, 1, z, &c, 1), 0, "the end comes after what was said");
	cr_assert_eq(put(&b, 1, z, "?", 1), 1, "nobody knows yet");
	pass_time(&b, LONG);
	cr_assert_eq(get(&b, 1, z, &c, 1), -ECONNRESET);
	cr_assert_eq(put(&b, 1, z, "?", 1), -ECONNRESET);
	hang_up(&b, 1, z);
	/* With something unread the other end is reset. */
	connected(&b, &a, &z);
	cr_assert_eq(put(&b, 0, a, "unread", 6), 6);
	pass_time(&b, LONG);
	hang_up(&b, 1, z);
	pass_time(&b, LONG);
	cr_assert_eq(get(&b, 0, a, &c, 1), -ECONNRESET);
	teardown(&b);
}

Test(streams, who_is_not_there)
{
	struct fixture b;
	char c;
	setup(&b, NULL);
	struct ctl_net *net = b.place[0].net;
	cr_assert_eq(net->ops->connect(net, "nowhere", 7000), -ENXIO);
	cr_assert_eq(net->ops->loopback(net, "nowhere", -1), -ENXIO);
	cr_assert_eq(net->ops->loopback(net, "h1", -1), 0);
	cr_assert_eq(net->ops->loopback(net, "localhost", -1), 1);
	cr_assert_eq(net->ops->listen(net, "h1", 7000, -1), -EADDRNOTAVAIL);
	listening(&b, 0);
	cr_assert_eq(net->ops->listen(net, "h0", 7000, -1), -EADDRINUSE);
	int h = connecting(&b, 0, 1);
	cr_assert_eq(get(&b, 0, h, &c, 1), -EAGAIN);
	pass_time(&b, LONG);
	cr_assert_eq(get(&b, 0, h, &c, 1), -ECONNREFUSED);
	teardown(&b);
}

Test(streams, given_up_half_way)
{
	struct fixture b;
	char c;
	setup(&b, NULL);
	int l = listening(&b, 1);
	hang_up(&b, 0, connecting(&b, 0, 1)); /* before anybody has heard of it */
	pass_time(&b, LONG);
	cr_assert_eq(accepted(&b, 1, l), -EAGAIN);
	int h = connecting(&b, 0, 1);
	pass_time(&b, LONG);
	hang_up(&b, 0, h); /* before it is accepted */
	pass_time(&b, LONG);
	int z = accepted(&b, 1, l);
	cr_assert_geq(z, 0);
	cr_assert_eq(get(&b, 1, z, &c, 1), 0);
	h = connecting(&b, 0, 1);
	int other = connecting(&b, 2, 1);
	pass_time(&b, LONG);
	hang_up(&b, 1, l); /* with two that wait */
	pass_time(&b, LONG);
	cr_assert_eq(get(&b, 0, h, &c, 1), -ECONNRESET);
	cr_assert_eq(get(&b, 2, other, &c, 1), -ECONNRESET);
	teardown(&b);
}

Test(streams, a_cut_stalls_and_then_breaks)
{
	struct fixture b;
	char c;
	int a, z;
	setup(&b, NULL);
	connected(&b, &a, &z);
	/* Of one direction: what is said there is not acknowledged here. */
	sim_streams_cut(b.streams, b.place[1].host, b.place[0].host, true);
	cr_assert_eq(put(&b, 0, a, "1", 1), 1);
	pass_time(&b, SECOND);
	cr_assert_eq(get(&b, 1, z, &c, 1), -EAGAIN);
	sim_streams_heal(b.streams);
	pass_time(&b, SECOND);
	cr_assert_eq(get(&b, 1, z, &c, 1), 1);
	sim_streams_cut(b.streams, b.place[0].host, b.place[1].host, true);
	cr_assert_eq(put(&b, 0, a, "2", 1), 1);
	pass_time(&b, 40 * SECOND);
	cr_assert_eq(get(&b, 0, a, &c, 1), -ETIMEDOUT);
	cr_assert_eq(get(&b, 1, z, &c, 1), -EAGAIN, "who says nothing learns nothing");
	teardown(&b);
}

Test(streams, a_process_hangs_up_and_a_host_does_not)
{
	struct fixture b;
	char c;
	int a, z;
	setup(&b, NULL);
	connected(&b, &a, &z);
	killed(&b, 1);
	pass_time(&b, LONG);
	cr_assert_eq(get(&b, 0, a, &c, 1), 0);
	int h = connecting(&b, 0, 1);
	pass_time(&b, LONG);
	cr_assert_eq(get(&b, 0, h, &c, 1), -ECONNREFUSED, "its kernel is there");
	process(&b, 1);
	connected(&b, &a, &z);
	sim_ctl_net_cut_off(b.place[1].net);
	killed(&b, 1);
	pass_time(&b, LONG);
	cr_assert_eq(get(&b, 0, a, &c, 1), -EAGAIN, "nobody has said anything");
	h = connecting(&b, 0, 1);
	pass_time(&b, SECOND);
	cr_assert_eq(get(&b, 0, h, &c, 1), -EAGAIN, "nobody answers");
	pass_time(&b, 40 * SECOND);
	cr_assert_eq(get(&b, 0, h, &c, 1), -ETIMEDOUT);
	cr_assert_eq(get(&b, 0, a, &c, 1), -ETIMEDOUT, "nobody keeps it alive");
	/* It is back before that, and knows nothing of the stream. */
	process(&b, 1);
	connected(&b, &a, &z);
	sim_ctl_net_cut_off(b.place[1].net);
	killed(&b, 1);
	pass_time(&b, SECOND);
	process(&b, 1);
	cr_assert_eq(put(&b, 0, a, "?", 1), 1);
	pass_time(&b, LONG);
	cr_assert_eq(get(&b, 0, a, &c, 1), -ECONNRESET);
	teardown(&b);
}
