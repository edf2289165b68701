/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * ZeroMQ over ipc. Settings by the manual pages of libzmq 4.3: DEALER and ROUTER for requests without lockstep
 * (zmq_socket(3), "Request-reply pattern"); ipc, between processes of one host (zmq_ipc(7)); requests
 * without a copy (zmq_msg_init_data(3)); one I/O thread (zmq_ctx_set(3), ZMQ_IO_THREADS: the default).
 * zmq_msg_recv(3) blocks: a thread that polled would take the core of the I/O thread.
 */
#include "bench.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

static void *context, *sock;

static void check(int rc, const char *what)
{
	if (rc < 0)
		bench_die("%s: %s", what, zmq_strerror(zmq_errno()));
}

static void open_socket(int type)
{
	context = zmq_ctx_new();
	sock = context ? zmq_socket(context, type) : NULL;
	if (!sock)
		bench_die("zmq_socket: %s", zmq_strerror(zmq_errno()));
}

static void endpoint(char *text, size_t cap)
{
	snprintf(text, cap, "ipc://%s/zeromq", bench.dir);
}

static void serve(int fd)
{
	char at[256], ready = 1;
	zmq_msg_t id, request;
	endpoint(at, sizeof at);
	open_socket(ZMQ_ROUTER);
	check(zmq_bind(sock, at), "zmq_bind");
	bench_swap(fd, &ready, &ready, 1);
	while (!bench_stopped()) {
		size_t len;
		zmq_msg_init(&id);
		zmq_msg_init(&request);
		check(zmq_msg_recv(&id, sock, 0), "zmq_msg_recv");
		check(zmq_msg_recv(&request, sock, 0), "zmq_msg_recv");
		const void *reply = bench_answer(zmq_msg_data(&request), zmq_msg_size(&request), &len);
		check(zmq_msg_send(&id, sock, ZMQ_SNDMORE), "zmq_msg_send");
		check(zmq_send(sock, reply, len, 0), "zmq_send");
		zmq_msg_close(&request);
	}
	zmq_close(sock);
	zmq_ctx_term(context); /* waits until the last reply has left */
}

static void open_client(int fd)
{
	char at[256], ready = 1;
	endpoint(at, sizeof at);
	bench_swap(fd, &ready, &ready, 1);
	open_socket(ZMQ_DEALER);
	check(zmq_connect(sock, at), "zmq_connect");
}

static void keep(void *data, void *hint)
{
	(void)data;
	(void)hint;
}

static void send_request(unsigned slot, const void *data, size_t len)
{
	zmq_msg_t request;
	(void)slot;
	check(zmq_msg_init_data(&request, (void *)(uintptr_t)data, len, keep, NULL), "zmq_msg_init_data");
	check(zmq_msg_send(&request, sock, 0), "zmq_msg_send");
}

static void progress(void)
{
	zmq_msg_t reply;
	zmq_msg_init(&reply);
	check(zmq_msg_recv(&reply, sock, 0), "zmq_msg_recv");
	bench_reply(zmq_msg_data(&reply), zmq_msg_size(&reply));
	zmq_msg_close(&reply);
}

static void close_client(void)
{
	zmq_close(sock);
	zmq_ctx_term(context);
}

static void version(char *text, size_t cap)
{
	int major, minor, patch;
	zmq_version(&major, &minor, &patch);
	snprintf(text, cap, "%d.%d.%d", major, minor, patch);
}

int main(int argc, char **argv)
{
	static const struct bench_peer peer = {"zeromq",    "",           version,  serve,
					       open_client, send_request, progress, close_client};
	return bench_main(argc, argv, &peer);
}
