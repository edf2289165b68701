/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Farcall, through its public headers and libfarcall.so. Each process holds its shard and polls it
 * (far_shard_acquire()). shm, udp: messages to an inline handler, far_msg_send() and far_reply(). typed: far::add of
 * two tensors of two floats over shm; far_rpc_sync() alone, far_rpc_async() and futures with several in flight.
 * Main thread of each process.
 */
#include "bench.h"
#include <arpa/inet.h>
#include <errno.h>
#include <farcall/farcall.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HANDLER 1
#define SERVER  1 /* rank */
#define WORLD   2
#define INIT_NS (20 * FAR_SEC)
/* A process without CPU time on a busy machine is not lost. */
#define PEER_LIMIT_NS (20 * FAR_SEC)
#define LEAVE_NS      (15 * FAR_SEC)
#define ELEMENTS      2

static struct far_agent *agent;
static bool typed, stopped;
static struct far_future *futures[BENCH_DEPTH_MAX];
static float left[BENCH_DEPTH_MAX][ELEMENTS], right[ELEMENTS] = {1, 2};
static unsigned order[BENCH_DEPTH_MAX]; /* slots of the typed calls in flight, a ring */
static uint64_t begun, taken;

static void check(enum far_status status, const struct far_err *err, const char *what)
{
	if (status == FAR_OK)
		return;
	bench_die("%s: %s", what, err->text);
}

static void answer(struct far_req *req, const void *data, size_t len, void *user)
{
	size_t reply_len;
	const void *reply = bench_answer(data, len, &reply_len);
	(void)user;
	if (far_reply(req, reply, reply_len) != FAR_OK)
		bench_die("far_reply failed");
	stopped = bench_stopped();
}

static void join(int rank, unsigned port)
{
	static const struct far_msg_handler handler = {HANDLER, FAR_KIND_INLINE, answer, NULL};
	char method[64];
	struct far_err err;
	typed = strcmp(bench.variant, "typed") == 0;
	snprintf(method, sizeof method, "tcp://127.0.0.1:%u", port);
	struct far_opts opts = {.init_method = method,
				.init_timeout_ns = INIT_NS,
				.peer_limit_ns = PEER_LIMIT_NS,
				.nic = typed ? "shm" : bench.variant,
				.messages = &handler,
				.messages_n = 1};
	check(far_init_rpc(rank == SERVER ? "server" : "client", rank, WORLD, &opts, &agent, &err), &err,
	      "far_init_rpc");
	check(far_shard_acquire(agent, 0, &err), &err, "far_shard_acquire");
}

static void leave(void)
{
	struct far_err err;
	far_shard_release(agent);
	check(far_shutdown(agent, LEAVE_NS, &err), &err, "far_shutdown");
}

static void serve(int fd)
{
	unsigned port = 0;
	bench_swap(fd, &port, &port, sizeof port);
	join(SERVER, port);
	while (!stopped)
		for (int i = 0; i < 16; i++)
			far_shard_poll(agent);
	leave();
}

/* The store's listening socket: no port is guessed. */
static unsigned listen_store(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	char text[16];
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) < 0 || listen(fd, WORLD) < 0 ||
	    getsockname(fd, (struct sockaddr *)&at, &len) < 0)
		bench_die("cannot listen for the other process: %s", strerror(errno));
	snprintf(text, sizeof text, "%d", fd);
	setenv("FAR_STORE_FD", text, 1);
	return ntohs(at.sin_port);
}

static void open_client(int fd)
{
	unsigned port = listen_store(), unused;
	bench_swap(fd, &port, &unused, sizeof port);
	join(0, port);
}

static void on_reply(enum far_status status, const void *data, size_t len, const struct far_err *err, void *user)
{
	(void)user;
	check(status, err, "a call");
	bench_reply(data, len);
}

static void take_sum(unsigned slot, struct far_val *sum)
{
	const float *x = sum->u.t.data;
	if (sum->type != FAR_TYPE_TENSOR || x[0] != left[slot][0] + 1 || x[1] != left[slot][1] + 2)
		bench_die("far::add returned a wrong sum");
	far_val_fini(sum);
	bench_done(slot);
}

static void add(unsigned slot)
{
	static const struct far_to to = {SERVER, 0};
	struct far_tensor a = far_tensor_1d(FAR_F32, left[slot], ELEMENTS);
	struct far_tensor b = far_tensor_1d(FAR_F32, right, ELEMENTS);
	struct far_val sum;
	struct far_err err;
	left[slot][0] = (float)(begun & 0xffff);
	order[begun++ % bench.depth] = slot;
	if (bench.depth > 1) {
		check(far_rpc_async_to(agent, to, "far::add", FAR_ARGS(&a, &b), NULL, &futures[slot], &err), &err,
		      "far_rpc_async");
		return;
	}
	check(far_rpc_sync(agent, "server", "far::add", FAR_ARGS(&a, &b), NULL, &sum, &err), &err, "far_rpc_sync");
	taken++;
	take_sum(slot, &sum);
}

static void send_request(unsigned slot, const void *data, size_t len)
{
	static const struct far_to to = {SERVER, 0};
	struct far_err err;
	if (typed && !bench_stops(data)) {
		add(slot);
		return;
	}
	check(far_msg_send(agent, to, HANDLER, data, len, NULL, on_reply, NULL, &err), &err, "far_msg_send");
}

static void progress(void)
{
	struct far_err err;
	far_shard_poll(agent);
	while (taken < begun) {
		unsigned slot = order[taken % bench.depth];
		struct far_val sum;
		if (!far_future_done(futures[slot]))
			break;
		check(far_future_value(futures[slot], &sum, &err), &err, "a call");
		far_future_free(futures[slot]);
		taken++;
		take_sum(slot, &sum);
	}
}

static void version(char *text, size_t cap)
{
	snprintf(text, cap, "%s", far_version());
}

int main(int argc, char **argv)
{
	static const struct bench_peer peer = {"farcall",   "shm udp typed", version,  serve,
					       open_client, send_request,    progress, leave};
	return bench_main(argc, argv, &peer);
}
