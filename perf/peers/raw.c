/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The floor of the loopback: sockets without a protocol of requests. Non-blocking, polled by recv(2), as in
 * tcp(7) (TCP_NODELAY), udp(7), send(2) and recv(2) with MSG_DONTWAIT. A datagram holds at most 65507 bytes, so udp
 * has the small figures alone. Main thread of each process.
 */
#include "bench.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#define BUFFER (8 << 20) /* bytes of a socket buffer; the kernel cuts it to net.core.wmem_max */
#define HEAD   8
#define LARGE  16384

static int sock;
static bool udp;
static unsigned char *in;
static size_t in_len, in_cap;

static struct sockaddr_in loopback(void)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void check(int rc, const char *what)
{
	if (rc < 0)
		bench_die("%s: %s", what, strerror(errno));
}

static void connect_over(int fd, bool serving)
{
	struct sockaddr_in mine = loopback(), theirs;
	socklen_t len = sizeof mine;
	int size = BUFFER, one = 1;
	udp = strcmp(bench.variant, "udp") == 0;
	sock = socket(AF_INET, udp ? SOCK_DGRAM : SOCK_STREAM, 0);
	check(sock, "socket");
	if (udp) {
		setsockopt(sock, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
		setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
	}
	check(bind(sock, (struct sockaddr *)&mine, len), "bind");
	if (serving && !udp)
		check(listen(sock, 1), "listen");
	check(getsockname(sock, (struct sockaddr *)&mine, &len), "getsockname");
	bench_swap(fd, &mine, &theirs, sizeof mine);
	if (udp || !serving)
		check(connect(sock, (struct sockaddr *)&theirs, sizeof theirs), "connect");
	if (serving && !udp) {
		int listening = sock;
		sock = accept(listening, NULL, NULL);
		check(sock, "accept");
		close(listening);
	}
	if (!udp)
		check(setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), "TCP_NODELAY");
	in_cap = 2 * (bench.bytes > bench.reply_bytes ? bench.bytes : bench.reply_bytes);
	in_cap = in_cap < 65536 ? 65536 : in_cap;
	in = bench_alloc(in_cap);
}

/* Reads what is there, and gives each whole message to `take`. */
static void receive(void (*take)(const void *data, size_t len))
{
	size_t room = in_cap - in_len, whole = in_len >= HEAD ? bench_length(in) : 0;
	if (whole > LARGE && whole > in_len) /* ends with the message, so that nothing is moved */
		room = whole - in_len < room ? whole - in_len : room;
	ssize_t n = recv(sock, in + in_len, room, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		bench_die("recv: %s", n ? strerror(errno) : "the other process ended");
	in_len += (size_t)n;
	size_t at = 0, len;
	while (in_len - at >= HEAD && in_len - at >= (len = bench_length(in + at))) {
		if (len < HEAD || len > in_cap)
			bench_die("a message of %zu bytes", len);
		take(in + at, len);
		at += len;
	}
	in_len -= at;
	if (at && in_len)
		memmove(in, in + at, in_len);
}

static void transmit(const void *data, size_t len, void (*meanwhile)(void))
{
	for (size_t at = 0; at < len;) {
		ssize_t n = send(sock, (const char *)data + at, len - at, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n > 0)
			at += (size_t)n;
		else if (errno == EAGAIN || errno == ENOBUFS)
			meanwhile();
		else if (errno != EINTR)
			bench_die("send: %s", strerror(errno));
	}
}

static void nothing(void)
{
}

static void answer(const void *data, size_t len)
{
	size_t reply_len;
	const void *reply = bench_answer(data, len, &reply_len);
	transmit(reply, reply_len, nothing);
}

static void serve(int fd)
{
	connect_over(fd, true);
	while (!bench_stopped())
		receive(answer);
}

static void open_client(int fd)
{
	connect_over(fd, false);
}

static void progress(void)
{
	receive(bench_reply);
}

static void send_request(unsigned slot, const void *data, size_t len)
{
	(void)slot;
	transmit(data, len, progress);
}

static void version(char *text, size_t cap)
{
	struct utsname name;
	uname(&name);
	snprintf(text, cap, "%s %.100s", name.sysname, name.release);
}

int main(int argc, char **argv)
{
	static const struct bench_peer peer = {"raw",       "tcp udp",    version,  serve,
					       open_client, send_request, progress, NULL};
	return bench_main(argc, argv, &peer);
}
