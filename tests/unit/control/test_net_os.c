/* SPDX-License-Identifier: BSD-3-Clause */
/* The operating system's sockets, and whole joins over them. The test's thread, and threads that it starts. */
#include "base/clock.h"
#include "control/control.h"
#include "control/net.h"
#include "fake_port.h"
#include "own_address.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <farcall/future.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define N 3

static int listener_bind(uint32_t addr, uint16_t *port)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(addr)};
	socklen_t len = sizeof sa;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	cr_assert_eq(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
	cr_assert_eq(listen(fd, 16), 0);
	getsockname(fd, (struct sockaddr *)&sa, &len);
	*port = ntohs(sa.sin_port);
	return fd;
}

/* Of own_address(), where no other process listens. */
enum { PORT = 7471 };

Test(control_net_os, bytes_both_ways_and_the_end)
{
	struct ctl_net *net = ctl_net_os_create();
	char got[8];
	int l = net->ops->listen(net, own_address(), PORT, -1), a = -EAGAIN;
	cr_assert_geq(l, 0);
	cr_assert_eq(net->ops->listen(net, own_address(), PORT, -1), -EADDRINUSE);
	cr_assert_eq(net->ops->accept(net, l), -EAGAIN);
	int c = net->ops->connect(net, own_address(), PORT);
	cr_assert_geq(c, 0);
	while ((a = net->ops->accept(net, l)) == -EAGAIN)
		net->ops->wait(net, time_after(clock_now(&clock_monotonic), FAR_SEC));
	cr_assert_geq(a, 0);
	cr_assert(fcntl(a, F_GETFD) & FD_CLOEXEC);
	cr_assert(fcntl(c, F_GETFD) & FD_CLOEXEC);
	cr_assert(fcntl(l, F_GETFD) & FD_CLOEXEC);
	cr_assert_eq(net->ops->recv(net, a, got, sizeof got), -EAGAIN);
	cr_assert_eq(net->ops->send(net, c, "hello", 5), 5);
	while (net->ops->recv(net, a, got, sizeof got) == -EAGAIN)
		net->ops->wait(net, time_after(clock_now(&clock_monotonic), FAR_SEC));
	cr_assert_eq(memcmp(got, "hello", 5), 0);
	net->ops->close(net, a);
	long n;
	while ((n = net->ops->recv(net, c, got, sizeof got)) == -EAGAIN)
		net->ops->wait(net, time_after(clock_now(&clock_monotonic), FAR_SEC));
	cr_assert_eq(n, 0);
	/* Sending to a closed stream is an error, not a signal. */
	for (int i = 0; i < 100 && net->ops->send(net, c, "x", 1) == 1; i++)
		usleep(1000);
	cr_assert_lt(net->ops->send(net, c, "x", 1), 0);
	net->ops->close(net, c);
	net->ops->close(net, l);
	net->ops->destroy(net);
}

Test(control_net_os, refused)
{
	struct ctl_net *net = ctl_net_os_create();
	char got[8];
	int c = net->ops->connect(net, own_address(), PORT);
	long n = c;
	while (c >= 0 && (n = net->ops->recv(net, c, got, sizeof got)) == -EAGAIN)
		net->ops->wait(net, time_after(clock_now(&clock_monotonic), FAR_SEC));
	cr_assert_eq(n, -ECONNREFUSED);
	if (c >= 0)
		net->ops->close(net, c);
	net->ops->destroy(net);
}

Test(control_net_os, loopback)
{
	struct ctl_net *net = ctl_net_os_create();
	uint16_t port;
	cr_assert_eq(net->ops->loopback(net, "localhost", -1), 1);
	cr_assert_eq(net->ops->loopback(net, "127.3.2.1", -1), 1);
	cr_assert_eq(net->ops->loopback(net, "::1", -1), 1);
	cr_assert_eq(net->ops->loopback(net, "0.0.0.0", -1), 0);
	cr_assert_eq(net->ops->loopback(net, "::", -1), 0);
	cr_assert_eq(net->ops->loopback(net, "192.0.2.1", -1), 0);
	int any = listener_bind(INADDR_ANY, &port), own = listener_bind(INADDR_LOOPBACK, &port);
	cr_assert_eq(net->ops->loopback(net, "localhost", any), 0);
	cr_assert_eq(net->ops->loopback(net, "localhost", own), 1);
	cr_assert_eq(net->ops->loopback(net, "localhost", 999), -EBADF);
	close(any);
	close(own);
	net->ops->destroy(net);
}

Test(control_net_os, adopts_a_listener_of_the_same_port_only)
{
	struct ctl_net *net = ctl_net_os_create();
	uint16_t port;
	int fd = listener_bind(INADDR_LOOPBACK, &port), plain = socket(AF_INET, SOCK_STREAM, 0);
	cr_assert_eq(net->ops->listen(net, "localhost", (uint16_t)(port ^ 1), fd), -EADDRNOTAVAIL);
	cr_assert_eq(net->ops->listen(net, "localhost", port, plain), -EINVAL);
	cr_assert_eq(net->ops->listen(net, "localhost", port, fd), fd);
	cr_assert_eq(net->ops->accept(net, fd), -EAGAIN);
	cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	int c = net->ops->connect(net, "localhost", port), a;
	while ((a = net->ops->accept(net, fd)) == -EAGAIN)
		net->ops->wait(net, time_after(clock_now(&clock_monotonic), FAR_SEC));
	cr_assert_geq(a, 0);
	net->ops->close(net, a);
	net->ops->close(net, c);
	net->ops->close(net, fd);
	close(plain);
	net->ops->destroy(net);
}

/* Bytes that nobody wants to read now do not end a wait: a paused client must not keep the thread awake. */
Test(control_net_os, a_stream_that_is_not_to_be_read)
{
	struct ctl_net *net = ctl_net_os_create();
	char got[8];
	int l = net->ops->listen(net, own_address(), PORT, -1), c = net->ops->connect(net, own_address(), PORT), a;
	while ((a = net->ops->accept(net, l)) == -EAGAIN)
		net->ops->wait(net, time_after(clock_now(&clock_monotonic), FAR_SEC));
	cr_assert_eq(net->ops->send(net, c, "hello", 5), 5);
	net->ops->wait(net, TIME_NEVER);
	net->ops->want(net, a, 0, 0);
	uint64_t from = clock_now(&clock_monotonic);
	net->ops->wait(net, from + 20 * FAR_MS);
	cr_assert_geq(clock_now(&clock_monotonic), from + 20 * FAR_MS);
	net->ops->want(net, a, 1, 0);
	net->ops->wait(net, TIME_NEVER);
	cr_assert_eq(net->ops->recv(net, a, got, sizeof got), 5);
	net->ops->close(net, a);
	net->ops->close(net, c);
	net->ops->close(net, l);
	net->ops->destroy(net);
}

/* All descriptors are in use. Expect that to be an error only when somebody is to be accepted. */
Test(control_net_os, accept_without_descriptors)
{
	struct ctl_net *net = ctl_net_os_create();
	struct rlimit before, full;
	int l = net->ops->listen(net, own_address(), PORT, -1), c = net->ops->connect(net, own_address(), PORT), a;
	while ((a = net->ops->accept(net, l)) == -EAGAIN)
		net->ops->wait(net, time_after(clock_now(&clock_monotonic), FAR_SEC));
	int late = net->ops->connect(net, own_address(), PORT), next = dup(0);
	struct pollfd waiting = {.fd = l, .events = POLLIN};
	cr_assert_eq(poll(&waiting, 1, -1), 1);
	close(next);
	getrlimit(RLIMIT_NOFILE, &before);
	full = (struct rlimit){(rlim_t)next, before.rlim_max};
	setrlimit(RLIMIT_NOFILE, &full);
	int refused = net->ops->accept(net, l);
	setrlimit(RLIMIT_NOFILE, &before);
	cr_assert_eq(refused, -EMFILE);
	cr_assert_eq(net->ops->accept(net, l), next);
	full.rlim_cur++;
	setrlimit(RLIMIT_NOFILE, &full);
	refused = net->ops->accept(net, l);
	setrlimit(RLIMIT_NOFILE, &before);
	cr_assert_eq(refused, -EAGAIN, "nobody is there");
	int all[] = {next, late, a, c, l};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		net->ops->close(net, all[i]);
	net->ops->destroy(net);
}

static void *wake_later(void *arg)
{
	struct ctl_net *net = arg;
	usleep(20000);
	net->ops->wake(net);
	return NULL;
}

Test(control_net_os, wake_ends_a_wait_without_limit)
{
	struct ctl_net *net = ctl_net_os_create();
	pthread_t t;
	pthread_create(&t, NULL, wake_later, net);
	net->ops->wait(net, TIME_NEVER);
	pthread_join(t, NULL);
	/* A wake before the wait counts too, once. */
	net->ops->wake(net);
	net->ops->wait(net, TIME_NEVER);
	uint64_t from = clock_now(&clock_monotonic);
	net->ops->wait(net, from + 5 * FAR_MS);
	cr_assert_geq(clock_now(&clock_monotonic), from + 5 * FAR_MS);
	net->ops->destroy(net);
}

/* ---- joins ---- */

static struct fake_fabric fabric;
static struct nic_port *ports[N];
static struct ctl *ctls[N];
static struct far_err err;

static bool post(void *ctx, unsigned shard, const struct mail *mail)
{
	return true;
}

static bool take(void *ctx, unsigned shard, struct mail *mail)
{
	return false;
}

static uint64_t outstanding(void *ctx)
{
	return 0;
}

static enum far_status make(int i, int n, const char *url)
{
	char name[8];
	snprintf(name, sizeof name, "w%d", i);
	ports[i] = fake_port_create(&fabric, "fake", (uint64_t)i + 1);
	struct ctl_config config = {.name = name,
				    .rank = i,
				    .world = n,
				    .init_method = url,
				    .incarnation = (uint64_t)i + 1,
				    .init_timeout_ns = 10 * FAR_SEC,
				    .shards = 1,
				    .clock = &clock_monotonic,
				    .net = ctl_net_os_create(),
				    .ports = &ports[i],
				    .ports_n = 1,
				    .post = post,
				    .take = take,
				    .outstanding = outstanding,
				    .begun = outstanding};
	enum far_status status = ctl_create(&ctls[i], &config, &err);
	if (status != FAR_OK)
		config.net->ops->destroy(config.net);
	return status;
}

static void unmake(int n)
{
	for (int i = 0; i < n; i++) {
		ctl_destroy(ctls[i]);
		fake_port_destroy(ports[i]);
	}
}

/* The fake ports are for one thread: all control threads are stepped by this one. */
static void step_until(int n, enum ctl_state state)
{
	uint64_t limit = clock_now(&clock_monotonic) + 20 * FAR_SEC;
	for (int there = 0; there < n && clock_now(&clock_monotonic) < limit; usleep(200)) {
		there = 0;
		for (int i = n - 1; i >= 0; i--) {
			ctl_step(ctls[i], clock_now(&clock_monotonic));
			there += ctl_state(ctls[i]) == state;
		}
	}
	for (int i = 0; i < n; i++)
		cr_assert_eq(ctl_state(ctls[i]), state, "member %d", i);
}

Test(control_net_os, joins_again_and_again_at_one_port)
{
	char url[64];
	snprintf(url, sizeof url, "tcp://%s:%d", own_address(), PORT);
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < N; i++)
			cr_assert_eq(make(i, N, url), FAR_OK, "%s", err.text);
		step_until(N, CTL_READY);
		for (int i = 0; i < N; i++)
			ctl_leave(ctls[i], 10 * FAR_SEC);
		step_until(N, CTL_LEFT);
		for (int i = 0; i < N; i++)
			cr_assert_eq(ctl_wait_settled(ctls[i], &err), FAR_OK, "%s", err.text);
		unmake(N);
	}
}

Test(control_net_os, inherited_listener_serves_one_group)
{
	char url[64], number[16];
	uint16_t port;
	int fd = listener_bind(INADDR_LOOPBACK, &port);
	snprintf(url, sizeof url, "tcp://127.0.0.1:%u", (unsigned)port);
	snprintf(number, sizeof number, "%d", fd);
	setenv("FAR_STORE_FD", number, 1);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < N; i++)
			cr_assert_eq(make(i, N, url), FAR_OK, "%s", err.text);
		step_until(N, CTL_READY);
		for (int i = 0; i < N; i++)
			ctl_leave(ctls[i], 10 * FAR_SEC);
		step_until(N, CTL_LEFT);
		unmake(N);
	}
}

Test(control_net_os, inherited_listener_is_checked)
{
	char url[64], number[16];
	uint16_t port;
	int any = listener_bind(INADDR_ANY, &port);
	snprintf(url, sizeof url, "tcp://127.0.0.1:%u", (unsigned)port);
	snprintf(number, sizeof number, "%d", any);
	setenv("FAR_STORE_FD", number, 1);
	cr_assert_eq(make(0, 1, url), FAR_OK);
	step_until(1, CTL_FAILED);
	cr_assert_eq(ctl_wait_settled(ctls[0], &err), FAR_DENIED, "%s", err.text);
	unmake(1);
	setenv("FAR_STORE_FD", "1023", 1);
	cr_assert_eq(make(0, 1, url), FAR_OK);
	step_until(1, CTL_FAILED);
	cr_assert_eq(ctl_wait_settled(ctls[0], &err), FAR_INVALID);
	cr_assert(strstr(err.text, "FAR_STORE_FD is 1023"), "%s", err.text);
	unmake(1);
	setenv("FAR_STORE_FD", "x", 1);
	cr_assert_eq(make(0, 1, url), FAR_INVALID);
	cr_assert(strstr(err.text, "FAR_STORE_FD is \"x\""), "%s", err.text);
	fake_port_destroy(ports[0]);
	close(any);
}

Test(control_net_os, thread_joins_sleeps_and_leaves)
{
	char url[64];
	snprintf(url, sizeof url, "tcp://%s:%d", own_address(), PORT);
	for (int round = 0; round < 3; round++) {
		cr_assert_eq(make(0, 1, url), FAR_OK, "%s", err.text);
		cr_assert_eq(ctl_start(ctls[0], &err), FAR_OK, "%s", err.text);
		cr_assert_eq(ctl_wait_settled(ctls[0], &err), FAR_OK, "%s", err.text);
		cr_assert_eq(ctl_state(ctls[0]), CTL_READY);
		if (round < 2) {
			ctl_leave(ctls[0], FAR_SEC);
			cr_assert_eq(ctl_wait_settled(ctls[0], &err), FAR_OK, "%s", err.text);
			cr_assert_eq(ctl_state(ctls[0]), CTL_LEFT);
		}
		ctl_stop(ctls[0]);
		unmake(1);
	}
}
