/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * nng over ipc. Settings by the manual pages of nng 1.5: a pair of sockets, because one context of nng_req(7) keeps one
 * request in flight (nng_pair(7)); ipc (nng_ipc(7)); no limit of a message (nng_options(5), NNG_OPT_RECVMAXSZ); room
 * for all that is in flight (NNG_OPT_SENDBUF, NNG_OPT_RECVBUF). nng_recvmsg(3) blocks. Messages are built by
 * nng_msg_append(3), which copies. Main thread of each process.
 */
#include "bench.h"
#include <nng/nng.h>
#include <nng/protocol/pair0/pair.h>
#include <stdio.h>

static nng_socket sock;

static void check(int rc, const char *what)
{
	if (rc)
		bench_die("%s: %s", what, nng_strerror(rc));
}

static void open_socket(void)
{
	check(nng_pair0_open(&sock), "nng_pair0_open");
	check(nng_socket_set_size(sock, NNG_OPT_RECVMAXSZ, 0), "NNG_OPT_RECVMAXSZ");
	check(nng_socket_set_int(sock, NNG_OPT_SENDBUF, BENCH_DEPTH_MAX), "NNG_OPT_SENDBUF");
	check(nng_socket_set_int(sock, NNG_OPT_RECVBUF, BENCH_DEPTH_MAX), "NNG_OPT_RECVBUF");
}

static void endpoint(char *text, size_t cap)
{
	snprintf(text, cap, "ipc://%s/nng", bench.dir);
}

static void transmit(const void *data, size_t len)
{
	nng_msg *m;
	check(nng_msg_alloc(&m, 0), "nng_msg_alloc");
	check(nng_msg_append(m, data, len), "nng_msg_append");
	check(nng_sendmsg(sock, m, 0), "nng_sendmsg");
}

static void serve(int fd)
{
	char at[256], ready = 1;
	endpoint(at, sizeof at);
	open_socket();
	check(nng_listen(sock, at, NULL, 0), "nng_listen");
	bench_swap(fd, &ready, &ready, 1);
	while (!bench_stopped()) {
		nng_msg *m;
		size_t len;
		check(nng_recvmsg(sock, &m, 0), "nng_recvmsg");
		const void *reply = bench_answer(nng_msg_body(m), nng_msg_len(m), &len);
		transmit(reply, len);
		nng_msg_free(m);
	}
	/* nng_close(3) drops what was not sent: the client closes its end of the pair when it has the last reply. */
	bench_swap(fd, &ready, &ready, 1);
	nng_close(sock);
}

static int control;

static void open_client(int fd)
{
	char at[256], ready = 1;
	control = fd;
	endpoint(at, sizeof at);
	bench_swap(fd, &ready, &ready, 1);
	open_socket();
	check(nng_dial(sock, at, NULL, 0), "nng_dial");
}

static void send_request(unsigned slot, const void *data, size_t len)
{
	(void)slot;
	transmit(data, len);
}

static void progress(void)
{
	nng_msg *m;
	check(nng_recvmsg(sock, &m, 0), "nng_recvmsg");
	bench_reply(nng_msg_body(m), nng_msg_len(m));
	nng_msg_free(m);
}

static void close_client(void)
{
	char ready = 1;
	bench_swap(control, &ready, &ready, 1);
	nng_close(sock);
}

static void version(char *text, size_t cap)
{
	snprintf(text, cap, "%s", nng_version());
}

int main(int argc, char **argv)
{
	static const struct bench_peer peer = {"nng",       "",           version,  serve,
					       open_client, send_request, progress, close_client};
	return bench_main(argc, argv, &peer);
}
