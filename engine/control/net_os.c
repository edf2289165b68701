/* SPDX-License-Identifier: BSD-3-Clause */
/* The control thread's sockets from the operating system: TCP streams, epoll, an eventfd for wake(). A handle is a file
 * descriptor. Control thread, but for wake(). */
#include "base/clock.h"
#include "control/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS_MAX    64 /* events that one epoll_wait() returns; the others stay pending */
#define BACKLOG       512 /* connections that wait for accept(): half of the largest group; the others repeat their SYN */
#define ADDRESSES_MAX 8   /* addresses of one name that are tried */
#define KEEP_IDLE_S   5   /* TCP keep-alive: seconds of silence before the first probe; then one each second */
#define KEEP_PROBES   5   /* unanswered probes that end a stream */

struct net_os {
	struct ctl_net base;
	int epoll;
	int event;         /* eventfd that wake() writes */
	unsigned attempts; /* connect() calls so far: selects the address of a name */
};

struct address {
	struct sockaddr_storage sa;
	socklen_t len;
};

static struct net_os *net_os(struct ctl_net *net)
{
	return (struct net_os *)net;
}

static int gai_errno(int rc)
{
	switch (rc) {
	case EAI_AGAIN:
		return -EHOSTUNREACH; /* the name server does not reply now: the caller retries */
	case EAI_MEMORY:
		return -ENOMEM;
	case EAI_SYSTEM:
		return errno ? -errno : -EIO;
	default:
		return -ENXIO; /* no such name */
	}
}

/* Resolves a name: IPv4 first, so that listener and connecting side agree on a name with both. Returns the number of
 * addresses, or -errno. */
static int resolve(const char *host, uint16_t port, struct address out[ADDRESSES_MAX])
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list = NULL;
	char service[8];
	int n = 0;
	if (strcmp(host, "localhost") == 0)
		host = "127.0.0.1";
	snprintf(service, sizeof service, "%u", (unsigned)port);
	int rc = getaddrinfo(host, service, &hints, &list);
	if (rc)
		return gai_errno(rc);
	for (int pass = 0; pass < 2; pass++) {
		for (struct addrinfo *a = list; a && n < ADDRESSES_MAX; a = a->ai_next) {
			if (a->ai_family != (pass ? AF_INET6 : AF_INET) || a->ai_addrlen > sizeof out[n].sa)
				continue;
			memcpy(&out[n].sa, a->ai_addr, a->ai_addrlen);
			out[n++].len = a->ai_addrlen;
		}
	}
	freeaddrinfo(list);
	return n ? n : -ENXIO;
}

static bool loopback(const struct sockaddr_storage *sa)
{
	if (sa->ss_family == AF_INET) {
		struct in_addr a = ((const struct sockaddr_in *)sa)->sin_addr;
		return ntohl(a.s_addr) >> 24 == 127;
	}
	if (sa->ss_family == AF_INET6) {
		const struct in6_addr *a = &((const struct sockaddr_in6 *)sa)->sin6_addr;
		return IN6_IS_ADDR_LOOPBACK(a) || (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr[12] == 127);
	}
	return false;
}

static int watch_as(struct net_os *n, int fd, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.fd = fd};
	return epoll_ctl(n->epoll, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

static int fd_prepare(int fd)
{
	int fl = fcntl(fd, F_GETFL);
	if (fl < 0 || fcntl(fd, F_SETFL, fl | O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC))
		return -errno;
	return 0;
}

/* Checks and watches an inherited listener. Edge-triggered: a failing accept() must not keep the thread awake; the
 * caller retries it by time. */
static int listener_adopt(struct net_os *n, uint16_t port, int fd)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof sa;
	int on = 0;
	socklen_t on_len = sizeof on;
	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &on_len) || getsockname(fd, (struct sockaddr *)&sa, &len))
		return -errno;
	if (!on)
		return -EINVAL;
	uint16_t bound = sa.ss_family == AF_INET    ? ((struct sockaddr_in *)&sa)->sin_port
			 : sa.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&sa)->sin6_port
						    : 0;
	if (ntohs(bound) != port)
		return -EADDRNOTAVAIL;
	int rc = fd_prepare(fd);
	if (rc == 0)
		rc = watch_as(n, fd, EPOLLIN | EPOLLET);
	return rc ? rc : fd;
}

static int listener_open(struct net_os *n, const struct address *a)
{
	int on = 1, rc;
	int fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
	    bind(fd, (const struct sockaddr *)&a->sa, a->len) || listen(fd, BACKLOG)) {
		rc = -errno;
		goto close_fd;
	}
	rc = watch_as(n, fd, EPOLLIN | EPOLLET);
	if (rc)
		goto close_fd;
	return fd;
close_fd:
	close(fd);
	return rc;
}

static int os_listen(struct ctl_net *net, const char *host, uint16_t port, int adopt_fd)
{
	struct address a[ADDRESSES_MAX];
	if (adopt_fd >= 0)
		return listener_adopt(net_os(net), port, adopt_fd);
	int n = port ? resolve(host, port, a) : -EINVAL;
	int rc = n < 0 ? n : -ENXIO;
	for (int i = 0; i < n; i++) {
		rc = listener_open(net_os(net), &a[i]);
		if (rc >= 0 || rc == -EADDRINUSE)
			break;
	}
	return rc;
}

static int os_loopback(struct ctl_net *net, const char *host, int adopt_fd)
{
	struct address a[ADDRESSES_MAX];
	(void)net;
	if (adopt_fd >= 0) {
		a[0].len = sizeof a[0].sa;
		if (getsockname(adopt_fd, (struct sockaddr *)&a[0].sa, &a[0].len))
			return -errno;
		return loopback(&a[0].sa);
	}
	int n = resolve(host, 1, a);
	for (int i = 0; i < n; i++) {
		if (!loopback(&a[i].sa))
			return 0;
	}
	return n < 0 ? n : 1;
}

/* Enables TCP keep-alive: the peer's machine may end without a packet. */
static void stream_keep_alive(int fd)
{
	static const struct {
		int level, name, value;
	} options[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
		       {IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S},
		       {IPPROTO_TCP, TCP_KEEPINTVL, 1},
		       {IPPROTO_TCP, TCP_KEEPCNT, KEEP_PROBES},
		       {IPPROTO_TCP, TCP_USER_TIMEOUT, (KEEP_IDLE_S + KEEP_PROBES) * 1000}};
	for (size_t i = 0; i < sizeof options / sizeof *options; i++)
		setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof options[i].value);
}

static int stream_watch(struct net_os *n, int fd, uint32_t events)
{
	int on = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	stream_keep_alive(fd);
	int rc = watch_as(n, fd, events);
	if (rc) {
		close(fd);
		return rc;
	}
	return fd;
}

static bool somebody_waits(int listener)
{
	struct pollfd p = {.fd = listener, .events = POLLIN};
	return poll(&p, 1, 0) > 0;
}

/* Out of descriptors, the kernel returns EMFILE even when no connection waits. */
static int os_accept(struct ctl_net *net, int listener)
{
	int fd;
	do {
		fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	} while (fd < 0 && errno == EINTR);
	if (fd < 0) {
		int rc = errno == EWOULDBLOCK ? -EAGAIN : -errno;
		bool full = rc == -EMFILE || rc == -ENFILE;
		return full && !somebody_waits(listener) ? -EAGAIN : rc;
	}
	return stream_watch(net_os(net), fd, EPOLLIN);
}

static int os_connect(struct ctl_net *net, const char *host, uint16_t port)
{
	struct address a[ADDRESSES_MAX];
	struct net_os *os = net_os(net);
	int n = resolve(host, port, a);
	if (n <= 0)
		return n < 0 ? n : -ENXIO;
	const struct address *to = &a[os->attempts++ % (unsigned)n];
	int fd = socket(to->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)&to->sa, to->len) && errno != EINPROGRESS && errno != EINTR) {
		int rc = errno == EAGAIN ? -EADDRNOTAVAIL : -errno; /* EAGAIN: out of local ports */
		close(fd);
		return rc;
	}
	return stream_watch(os, fd, EPOLLIN);
}

static long os_send(struct ctl_net *net, int handle, const void *data, size_t len)
{
	ssize_t n;
	(void)net;
	do {
		n = send(handle, data, len, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n >= 0 ? n : errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

static long os_recv(struct ctl_net *net, int handle, void *data, size_t len)
{
	ssize_t n;
	(void)net;
	do {
		n = recv(handle, data, len, 0);
	} while (n < 0 && errno == EINTR);
	return n >= 0 ? n : errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

static long os_unacknowledged(struct ctl_net *net, int handle)
{
	int bytes;
	(void)net;
	return ioctl(handle, SIOCOUTQ, &bytes) ? -errno : bytes;
}

static void os_close(struct ctl_net *net, int handle)
{
	(void)net;
	close(handle);
}

static void os_wait(struct ctl_net *net, uint64_t until)
{
	struct net_os *n = net_os(net);
	struct epoll_event ev[EVENTS_MAX];
	int ms = -1;
	if (until != TIME_NEVER) {
		uint64_t now = clock_now(&clock_monotonic);
		uint64_t ns = until > now ? until - now : 0;
		/* Rounded up: a thread that wakes too early would only wait again. */
		uint64_t up = ns / 1000000 + (ns % 1000000 != 0);
		ms = up > INT_MAX ? INT_MAX : (int)up;
	}
	int got = epoll_wait(n->epoll, ev, EVENTS_MAX, ms);
	for (int i = 0; i < got; i++) {
		uint64_t drained;
		if (ev[i].data.fd == n->event && read(n->event, &drained, sizeof drained) < 0)
			continue;
	}
}

static void os_want(struct ctl_net *net, int handle, int read, int write)
{
	struct epoll_event ev = {.events = (read ? (uint32_t)EPOLLIN : 0) | (write ? (uint32_t)EPOLLOUT : 0),
				 .data.fd = handle};
	epoll_ctl(net_os(net)->epoll, EPOLL_CTL_MOD, handle, &ev);
}

static int os_watch(struct ctl_net *net, int fd)
{
	return watch_as(net_os(net), fd, EPOLLIN);
}

static void os_wake(struct ctl_net *net)
{
	uint64_t one = 1;
	ssize_t n = write(net_os(net)->event, &one, sizeof one);
	(void)n; /* a full counter means that a wake-up is pending */
}

static void os_destroy(struct ctl_net *net)
{
	close(net_os(net)->event);
	close(net_os(net)->epoll);
	free(net);
}

static const struct ctl_net_ops os_ops = {
	.listen = os_listen,
	.loopback = os_loopback,
	.accept = os_accept,
	.connect = os_connect,
	.send = os_send,
	.recv = os_recv,
	.unacknowledged = os_unacknowledged,
	.close = os_close,
	.wait = os_wait,
	.want = os_want,
	.watch = os_watch,
	.wake = os_wake,
	.destroy = os_destroy,
};

struct ctl_net *ctl_net_os_create(void)
{
	struct net_os *n = calloc(1, sizeof *n);
	if (!n)
		return NULL;
	n->base.ops = &os_ops;
	n->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (n->epoll < 0)
		goto free_net;
	n->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (n->event < 0)
		goto close_epoll;
	if (watch_as(n, n->event, EPOLLIN))
		goto close_event;
	return &n->base;
close_event:
	close(n->event);
close_epoll:
	close(n->epoll);
free_net:
	free(n);
	return NULL;
}
