/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Kernel sockets of a port: they reserve UDP ports, receive and send kicks, and wake queues. Control thread; any thread
 * for host_kick_send() and host_wake_signal(), the poller for host_wake_timer_set() and host_wake_clear().
 */
#include "nic/dpdk/host.h"
#include "nic/dpdk/host_error.h"

#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

/* Tries when the kernel chose the first port of a range and a later one was taken. */
#define PORT_TRIES 64

static socklen_t address_of(struct sockaddr_storage *out, bool v6, const uint8_t *ip, uint16_t port, int index)
{
	memset(out, 0, sizeof *out);
	if (!v6) {
		struct sockaddr_in *in = (void *)out;
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		memcpy(&in->sin_addr, ip, 4);
		return sizeof *in;
	}
	struct sockaddr_in6 *in6 = (void *)out;
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(port);
	memcpy(&in6->sin6_addr, ip, 16);
	in6->sin6_scope_id = (uint32_t)index; /* evaluated for link-local addresses only */
	return sizeof *in6;
}

/* Makes the kernel discard packets of this socket before it allocates memory for them. */
static int discard_all(int fd)
{
	struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog program = {1, &drop};
	int least = 1;
	if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) < 0)
		return -errno;
	return setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof least) < 0 ? -errno : 0;
}

static uint16_t port_of(int fd)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof at;
	if (getsockname(fd, (struct sockaddr *)&at, &len) < 0)
		return 0;
	return ntohs(at.ss_family == AF_INET ? ((struct sockaddr_in *)(void *)&at)->sin_port
					     : ((struct sockaddr_in6 *)(void *)&at)->sin6_port);
}

/** What a range of sockets is bound to. */
struct socket_range {
	const struct host_iface *iface;
	const struct host_ip *ip;
	bool drop;
};

static int bind_one(const struct socket_range *socket_range, uint16_t port)
{
	struct sockaddr_storage at;
	int fd = socket(socket_range->ip->v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	int error = socket_range->drop ? discard_all(fd) : 0;
	socklen_t len =
		address_of(&at, socket_range->ip->v6, socket_range->ip->bytes, port, socket_range->iface->index);
	if (!error && bind(fd, (struct sockaddr *)&at, len) < 0)
		error = -errno;
	if (error) {
		close(fd);
		return error;
	}
	return fd;
}

void host_sockets_close(struct host_sockets *socks)
{
	while (socks->n > 0)
		close(socks->fds[--socks->n]);
}

/* Binds all n or none; on failure *failed is the port. */
static int bind_range(struct host_sockets *out, const struct socket_range *socket_range, uint16_t first, unsigned n,
		      unsigned *failed)
{
	out->n = 0;
	out->first = first;
	for (unsigned i = 0; i < n; i++) {
		unsigned port = i ? out->first + i : first;
		int fd = port <= 65535 ? bind_one(socket_range, (uint16_t)port) : -EADDRINUSE;
		if (fd < 0) {
			host_sockets_close(out);
			*failed = port;
			return fd;
		}
		out->fds[out->n++] = fd;
		if (i == 0)
			out->first = port_of(fd);
	}
	return 0;
}

static int open_range(struct host_sockets *out, const struct socket_range *socket_range, uint16_t first, unsigned n,
		      struct nic_err *err)
{
	char text[HOST_IP_TEXT_BYTES];
	unsigned failed = 0;
	*out = (struct host_sockets){.n = 0};
	if (n == 0 || n > FAR_SHARDS_MAX || (first && first + n > 65536u))
		return host_error(err, -EINVAL, "dpdk: cannot use %u UDP ports from %u on: 1 to %u ports, up to 65535",
				  n, first, FAR_SHARDS_MAX);
	int error = -EADDRINUSE;
	for (int i = 0; error == -EADDRINUSE && i < (first ? 1 : PORT_TRIES); i++)
		error = bind_range(out, socket_range, first, n, &failed);
	if (error == 0)
		return 0;
	host_ip_text(socket_range->ip->v6, socket_range->ip->bytes, text);
	if (error == -EADDRINUSE && first)
		return host_error(err, error,
				  "dpdk: UDP port %u of %s is taken by another socket; `ss -ulpn` shows by which "
				  "process; give another port=, or none",
				  failed, text);
	if (error == -EADDRINUSE)
		return host_error(err, error, "dpdk: no %u consecutive free UDP ports at %s", n, text);
	return host_error(err, error, "dpdk: cannot bind UDP port %u of %s (interface %s): %s", failed, text,
			  socket_range->iface->name, strerror(-error));
}

int host_reserve_ports(struct host_sockets *out, const struct host_iface *iface, const struct host_ip *ip,
		       uint16_t first, unsigned n, struct nic_err *err)
{
	return open_range(out, &(struct socket_range){iface, ip, true}, first, n, err);
}

int host_kick_open_udp(struct host_sockets *out, const struct host_iface *iface, const struct host_ip *ip, unsigned n,
		       struct nic_err *err)
{
	return open_range(out, &(struct socket_range){iface, ip, false}, 0, n, err);
}

void host_kick_udp(struct host_kick *out, bool v6, const uint8_t *ip, uint16_t port, int index)
{
	out->len = address_of(&out->to, v6, ip, port, index);
}

int host_kick_unix(struct host_kick *out, const char *path)
{
	struct sockaddr_un *un = (void *)&out->to;
	size_t len = strlen(path);
	memset(out, 0, sizeof *out);
	if (len >= sizeof un->sun_path)
		return -ENAMETOOLONG;
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path, path, len);
	out->len = sizeof *un;
	return 0;
}

/* True if no process receives at the path any more. */
static bool is_stale(int fd, const struct host_kick *at)
{
	return connect(fd, (const struct sockaddr *)&at->to, at->len) < 0 && errno == ECONNREFUSED;
}

int host_kick_open_unix(const char *path, struct nic_err *err)
{
	struct host_kick at;
	if (host_kick_unix(&at, path))
		return host_error(err, -ENAMETOOLONG,
				  "dpdk: %s is too long for a unix socket; set FAR_RUNTIME_DIR to a shorter directory",
				  path);
	int fd = host_kick_sender(&at);
	if (fd < 0)
		return host_error(err, fd, "dpdk: cannot create a unix socket: %s", strerror(-fd));
	/* The mode applies to the socket file: other users may not wake us. */
	int rc = fchmod(fd, 0600) < 0 ? -1 : bind(fd, (const struct sockaddr *)&at.to, at.len);
	if (rc < 0 && errno == EADDRINUSE) {
		struct stat st;
		int probe = host_kick_sender(&at);
		if (probe >= 0 && lstat(path, &st) == 0 && S_ISSOCK(st.st_mode) && is_stale(probe, &at))
			unlink(path);
		if (probe >= 0)
			close(probe);
		rc = bind(fd, (const struct sockaddr *)&at.to, at.len);
	}
	if (rc < 0) {
		int error = errno;
		close(fd);
		return host_error(err, -error, "dpdk: cannot receive kicks at %s: %s", path, strerror(error));
	}
	return fd;
}

int host_kick_sender(const struct host_kick *to)
{
	int fd = socket(to->to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return fd < 0 ? -errno : fd;
}

void host_kick_send(int sender, const struct host_kick *to)
{
	static const char kick = 'k';
	if (to->len == 0)
		return;
	/* It fails if the receiver is gone, or has enough kicks pending. */
	if (sendto(sender, &kick, 1, MSG_NOSIGNAL, (const struct sockaddr *)&to->to, to->len) < 0)
		return;
}

static int epoll_add(int epoll, int fd)
{
	struct epoll_event event = {.events = EPOLLIN};
	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

int host_wake_open(struct host_wake *out, int kick, struct nic_err *err)
{
	struct host_wake wake = {epoll_create1(EPOLL_CLOEXEC), eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), kick, -1};
	if (wake.fd < 0 || wake.event < 0 || epoll_add(wake.fd, wake.event) < 0 ||
	    (kick >= 0 && epoll_add(wake.fd, kick) < 0)) {
		int error = errno;
		wake.kick = -1;
		host_wake_close(&wake);
		return host_error(err, -error, "dpdk: cannot create a wake-up descriptor: %s%s", strerror(error),
				  error == EMFILE ? "; raise `ulimit -n`" : "");
	}
	*out = wake;
	return 0;
}

int host_wake_add(const struct host_wake *wake, int other)
{
	return epoll_add(wake->fd, other) < 0 ? -errno : 0;
}

int host_wake_timer_open(struct host_wake *wake)
{
	wake->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return wake->timer < 0 ? -errno : host_wake_add(wake, wake->timer);
}

void host_wake_timer_set(const struct host_wake *wake, long ns)
{
	/* Setting the timer also clears its expirations, so that the descriptor is not readable. */
	timerfd_settime(wake->timer, 0, &(struct itimerspec){.it_value.tv_nsec = ns}, NULL);
}

void host_wake_close(struct host_wake *wake)
{
	int *fds[] = {&wake->fd, &wake->event, &wake->kick, &wake->timer};
	for (unsigned i = 0; i < sizeof fds / sizeof *fds; i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

void host_wake_signal(const struct host_wake *wake)
{
	uint64_t one = 1;
	/* It fails only if the counter is at its maximum; then the descriptor is readable. */
	if (write(wake->event, &one, sizeof one) < 0)
		return;
}

bool host_wake_clear(const struct host_wake *wake)
{
	uint64_t count;
	char kick;
	int kicks = 0;
	/* EAGAIN: another descriptor was readable. */
	ssize_t got = read(wake->event, &count, sizeof count);
	if (wake->timer >= 0)
		got = read(wake->timer, &count, sizeof count);
	for (; wake->kick >= 0 && kicks < FAR_KICKS_CLEARED_MAX; kicks++) {
		got = recv(wake->kick, &kick, sizeof kick, MSG_DONTWAIT | MSG_TRUNC);
		if (got < 0)
			break;
	}
	return kicks > 0;
}
